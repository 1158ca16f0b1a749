"""What draws random numbers side by side gets keys of its own: frozen_policies, opponents, past selves, sides."""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import toys
from shoal.sides import opponents, sides
from shoal.sides.opponents import FrozenPolicies, against
from shoal.sides.past_selves import against_past
from shoal.types import Algorithm, Learner, Scale, Step, Trajectory

SPEC = toys.busy().spec
N, KEY = SPEC.num_agents, jax.random.key(0)


def draw(key: Any) -> Any:
    """A number by which to know a key."""
    return jax.random.randint(key, (), 0, 2**30)


def drawing() -> Algorithm:
    """Initial policy, actions of all agents, and a metric of the update are the :func:`draw` of their keys."""
    zero = jnp.zeros((), jnp.int32)

    def act(learner: Learner, carry: Any, step: Step, key: Any, greedy: bool) -> tuple[Any, Any, dict[str, Any]]:
        return carry, jnp.broadcast_to(draw(key), step.alive.shape), {}

    def update(learner: Learner, traj: Trajectory, key: Any) -> tuple[Learner, dict[str, Any]]:
        return learner, {"drawn": draw(key) + 0.0}

    return Algorithm(lambda key: Learner(draw(key), (), (), (), zero), lambda envs: (), act, update)


def once(f: Callable[..., Any], *arguments: Any) -> Any:
    """The results of ``f``; an error if it uses a key twice, or one that it has split."""
    with jax.debug_key_reuse(True):
        return jax.jit(f, static_argnums=4)(*arguments)


def steps(num_envs: int) -> Step:
    flags = jnp.zeros(num_envs, bool)
    each = jnp.ones((num_envs, N))
    obs, state = jnp.zeros((num_envs, N, SPEC.obs_dim)), jnp.zeros((num_envs, SPEC.state_dim))
    return Step(obs, state, jnp.ones((num_envs, N, SPEC.action.width), bool), each > 0, 0 * each, each, flags, flags)


def test_each_opponent_has_its_own_key() -> None:
    three = FrozenPolicies(drawing(), jnp.arange(3))
    _, action = opponents.act_frozen(three, (), steps(6), KEY, False)
    assert (action == action[:, :1]).all()
    assert len(np.unique(action[::2, 0])) == 3


def test_a_learner_and_its_opponents_have_keys_of_their_own() -> None:
    opposed = against(drawing(), SPEC, (1,), FrozenPolicies(drawing(), jnp.arange(2)))
    for key in jax.random.split(KEY):
        _, action, _ = once(opposed.act, opposed.init(KEY), opposed.initial_carry(4), steps(4), key, False)
        assert len({*action[:, 1].tolist()}) == 1  # the learner's
        assert len(np.unique(action)) == 3  # and two frozen_policies'


def test_a_learner_and_its_past_selves_have_keys_of_their_own() -> None:
    self_play = against_past(drawing(), SPEC, (0, 2), 2, every=1, share=1.0, active=True)
    _, action, _ = once(self_play.act, self_play.init(KEY), self_play.initial_carry(4), steps(4), KEY, False)
    assert len(np.unique(action)) == 3


def test_each_side_has_keys_of_its_own() -> None:
    module = ModuleType("drawing")
    module.make = lambda spec, config, scale: drawing()  # type: ignore[attr-defined]
    config = SimpleNamespace(sides=(1, 2, 1), side1=None, side2=None)
    both = sides.make_sides(("drawing", "drawing"), (module, module), SPEC, config, Scale(2, 1, 1))
    learner = both.init(KEY)
    assert len({int(x) for x in learner.policy}) == 2
    now, carry = steps(2), both.initial_carry(2)
    _, action, extras = both.act(learner, carry, now, KEY, False)
    assert len(np.unique(action)) == 2 and (action[:, 0] == action[:, 2]).all()
    step, action = jax.tree.map(lambda x: x[None], (now, action))
    _, metrics = both.update(learner, Trajectory(step, action, extras, step, carry), KEY)
    assert len({float(x) for x in metrics.values()}) == 2
