"""Wrong results of replaced parts and of users' algorithms are refused in one sentence when they are traced."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import happo, mapg, mappo, qmix
from shoal.errors import InputError
from shoal.learning.results import checked, same_type
from shoal.models.utilities import Mixer
from shoal.types import Algorithm, Box, Scale
from support.algorithm_cases import BASE
from support.trajectories import E, T, make_spec, make_trajectory

SPEC = make_spec()
N = SPEC.num_agents
ROWS = rf"an array \[T, E, N\], here \[{T}, {E}, {N}\]"


def traced(algorithm: Algorithm, spec: Any = SPEC) -> Any:
    """The shapes of an update's results, for which the whole update is traced."""
    key, traj = jax.random.key(0), make_trajectory(spec)
    return jax.eval_shape(lambda: algorithm.update(algorithm.init(key), traj, key))


@contextmanager
def refused(message: str) -> Iterator[None]:
    """An ``InputError`` of this text; its notes, in which JAX says that it shortened the traceback, do not count."""
    with pytest.raises(InputError) as error:
        yield
    assert re.match(message, str(error.value)), error.value


def of_gae(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda c, traj, v: change(*mappo.gae_advantage(c, traj, v))


def loss_of(loss: Callable[..., Any], change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *given: change(*loss(*given))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"advantage": of_gae(lambda a, y: a)},
            rf"advantage must return advantages and value targets, but returned an array \[{T}, {E}, {N}\]\.",
        ),
        (
            {"advantage": of_gae(lambda a, y: (a.mean(-1, keepdims=True), y))},
            rf"What advantage returns as advantages must be {ROWS}, not an array \[{T}, {E}, 1\]\.",
        ),
        (
            {"advantage": of_gae(lambda a, y: (a, y[0]))},
            rf"What advantage returns as value targets must be {ROWS}, not an array \[{E}, {N}\]\.",
        ),
        ({"credit": lambda learner, traj, key: None}, rf"What credit returns must be {ROWS}, not None\."),
        (
            {"baseline": lambda learner, traj, key: traj.outcome.reward.sum(-1)},
            rf"What baseline returns must be {ROWS}, not an array \[{T}, {E}\]\.",
        ),
        (
            {"actor_loss": loss_of(mappo.policy_loss, lambda loss, metrics: loss)},
            r"actor_loss must return a loss and metrics, but returned an array \[\]\.",
        ),
        (
            {"critic_loss": loss_of(mappo.value_loss, lambda loss, metrics: (loss, 0.5))},
            r"The metrics that critic_loss returns must be a dictionary, not 0\.5\.",
        ),
    ],
)
def test_parts_of_mappo_that_return_something_else_are_refused(parts: dict[str, Any], message: str) -> None:
    with refused(f"{message}$"):
        traced(mappo.make(SPEC, BASE, Scale(E, T, 1), **parts))


def test_parts_that_change_nothing_are_accepted() -> None:
    same = {
        "actor_loss": loss_of(mappo.policy_loss, lambda loss, metrics: [loss, metrics]),
        "advantage": of_gae(lambda a, y: [a, y]),
        "credit": lambda learner, traj, key: jnp.zeros_like(traj.outcome.reward),
    }
    assert traced(mappo.make(SPEC, BASE, Scale(E, T, 1), **same))


def test_a_loss_of_one_agent_that_returns_no_metrics_is_refused() -> None:
    def alone(*given: Any) -> Any:
        return mappo.policy_loss(*given)[0]

    with refused(r"actor_loss must return a loss and metrics, but returned an array \[\]\.$"):
        traced(happo.make(SPEC, happo.Config(), Scale(E, T, 1), alone))


def test_an_advantage_of_mapg_of_another_shape_is_refused() -> None:
    algorithm = mapg.make_policy_gradient(SPEC, mapg.Config(), Scale(E, T, 1), lambda q, options, v: q[..., None])
    with refused(rf"What advantage returns must be {ROWS}, not an array .*, {N}, 1\]\.$"):
        traced(algorithm)


@pytest.mark.parametrize(
    ("mixer", "message"),
    [
        (Mixer(lambda key: {}, lambda p, q, best, action, step: q.sum(-1, keepdims=True)), r"\[\*b\], here \[3, 5\]"),
        (Mixer(lambda key: {}, lambda p, q, *rest: q.sum(-1), team=False), rf"\[\*b N\], here \[3, 5, {N}\]"),
        (
            Mixer(lambda key: {}, lambda p, q, *rest: q.sum(-1), greedy=lambda q: q),
            rf"\[\*b\], here \[3, 5\], not an array \[3, 5, {N}\]",
        ),
    ],
)
def test_mixers_whose_value_would_broadcast_in_the_loss_are_refused(mixer: Mixer, message: str) -> None:
    """With a shared axis of length 1 the loss would compare every sequence with every other, and train."""
    spec = make_spec()
    step = jax.tree.map(lambda x: jnp.broadcast_to(x[:1, :1], (3, 5, *x.shape[2:])), make_trajectory(spec).step)
    q, action = jnp.zeros((3, 5, N, spec.action.width)), jnp.zeros((3, 5, N), int)
    value = mixer.of_actions if mixer.greedy is None else mixer.of_greedy
    with refused(f"The value of a mixer must be an array {message}"):
        value({}, q, action, step)
    sound = qmix.make_mixer(spec, qmix.Config(mixer_input="concat"))
    mixed = jax.eval_shape(lambda: sound.of_actions(sound.init(jax.random.key(0)), q, action, step))
    assert mixed.shape == (3, 5)


def own(**changes: Callable[..., Any]) -> Algorithm:
    """MAPPO with functions that change results, as an algorithm of a user's module ``idea``."""
    made = mappo.make(SPEC, BASE, Scale(E, T, 1))

    def changed(function: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: change(*function(*given))

    spoiled = {name: changed(getattr(made, name), change) for name, change in changes.items()}
    return checked(made._replace(**spoiled), SPEC, "idea")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, a, x: (c, a), r"act of 'idea' must return a carry, actions and extras, but returned 2 values\."),
        (
            lambda c, a, x: (c, a[..., None], x),
            rf"What act of 'idea' returns as actions must be an array \[E, N\], here \[{E}, {N}\], not an .*, 1\]\.",
        ),
        (lambda c, a, x: (c, 1.0 * a, x), r"Actions that act of 'idea' returns must be integers, not float32\."),
        (
            lambda c, a, x: ({"h": jnp.zeros(3)}, a, x),
            r"The carry that act of 'idea' returns has \['h'\] = float32\[3\], but was given nothing: it must keep its "
            r"type\.",
        ),
        (lambda c, a, x: (c, a, a), r"The extras that act of 'idea' returns must be a dictionary, not .*"),
    ],
)
def test_results_of_act_are_checked(change: Callable[..., Any], message: str) -> None:
    algorithm, key = own(act=change), jax.random.key(0)
    step = jax.tree.map(lambda x: x[0], make_trajectory(SPEC).step)
    with refused(f"{message}$"):
        algorithm.act(algorithm.init(key), algorithm.initial_carry(E), step, key, False)


def test_continuous_actions_must_be_real_numbers_of_every_dimension() -> None:
    spec, key = make_spec(action=Box(2)), jax.random.key(0)
    made = mappo.make(spec, BASE, Scale(E, T, 1))
    step = jax.tree.map(lambda x: x[0], make_trajectory(spec).step)

    def act(change: Callable[[Any], Any]) -> Any:
        def changed(*given: Any) -> Any:
            carry, action, extras = made.act(*given)
            return carry, change(action), extras

        algorithm = checked(made._replace(act=changed), spec, "idea")
        return algorithm.act(algorithm.init(key), algorithm.initial_carry(E), step, key, False)

    assert act(lambda a: a)[1].shape == (E, N, 2)
    with refused(rf".*must be an array \[E, N, A\], here \[{E}, {N}, 2\], not an array \[{E}, {N}\]"):
        act(lambda a: a[..., 0])
    with refused(".*must be floating-point numbers, not int32"):
        act(lambda a: a.astype(int))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda learner, m: learner, r"update of 'idea' must return a learner and metrics, but returned a Learner\."),
        (
            lambda learner, m: (learner._replace(updates=1.0 * learner.updates), m),
            r"The learner that update of 'idea' returns has updates = float32\[\], but was given int32\[\]: it must .*",
        ),
        (
            lambda learner, m: (learner._replace(critic=()), m),
            r"The learner that update of 'idea' returns has critic.* = nothing, but was given float32\[.*",
        ),
        (
            lambda learner, m: (learner, m | {"gap": jnp.zeros(N)}),
            rf"The metric 'gap' that update of 'idea' returns must be one number, not an array \[{N}\]\.",
        ),
        (
            lambda learner, m: (learner, m | {"gap": "wide"}),
            r"The metric 'gap' that update of 'idea' returns must be one number, not 'wide'\.",
        ),
    ],
)
def test_results_of_update_are_checked(change: Callable[..., Any], message: str) -> None:
    with refused(f"{message}$"):
        traced(own(update=change))


def test_types_of_numpy_that_jax_reads_as_its_own_are_no_change() -> None:
    key = jax.random.key(0)
    same_type("The carry", {"h": np.zeros(3), "n": 2, "k": key}, {"h": jnp.zeros(3), "n": jnp.int32(2), "k": key})
    with refused(r"The carry has \['h'\] = int32\[3\], but was given float32\[3\]"):
        same_type("The carry", {"h": np.zeros(3)}, {"h": jnp.zeros(3, int)})


def test_containers_and_leaves_that_are_no_arrays_are_compared() -> None:
    with refused(
        r"The learner has other containers \(tuples, dictionaries, None\) than it was given: keep their types"
    ):
        same_type("The learner", (jnp.zeros(3), None), (jnp.zeros(3), ()))
    with refused(r"The learner has \[0\] = a str, but was given float32\[3\]: it must keep its type\."):
        same_type("The learner", (jnp.zeros(3),), ("text",))


def test_results_that_are_right_pass_unchanged() -> None:
    plain, kept = mappo.make(SPEC, BASE, Scale(E, T, 1)), own(act=lambda *x: x, update=lambda *x: x)
    assert traced(kept) == traced(plain)
