"""CommNet and TarMAC: what agents send each other before they act, by loops over agents, and who hears whom."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import commnet, tarmac
from shoal.equations.distributions import Categorical
from shoal.errors import InputError
from shoal.models.talking import make_talking_actor
from shoal.networks.body import Body
from shoal.types import EnvSpec, Scale, Step
from support.small_nets import noise
from support.trajectories import E, T, compiled, make_spec, make_step

N, D = 4, 6
SPEC = make_spec(N, obs_dims=(5,) * N, shared_reward=True)
BODY = Body((D,), orthogonal=False)
COMMNET = commnet.Config(network=BODY, rounds=2, agent_id=False)
TARMAC = tarmac.Config(network=BODY, rounds=2, agent_id=False, signature_width=3, value_width=2)
CONFIGS = {"commnet": COMMNET, "tarmac": TARMAC}
each = pytest.mark.parametrize("name", CONFIGS)


def mostly(quick: str) -> Any:
    """Both, of which one is a slow test."""
    return pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] * (x != quick)) for x in CONFIGS])


def exchange(c: Any) -> Any:
    if isinstance(c, tarmac.Config):
        return partial(tarmac.targeted, c.signature_width, c.value_width)
    return commnet.mean_of_others


@cache
def made(c: Any, spec: EnvSpec = SPEC) -> tuple[Any, Any, Any]:
    """The actor, noise for its parameters, and (parameters, carry, step) -> (carry, logits), compiled."""
    actor = make_talking_actor(spec, c, exchange(c))

    def logits(params: Any, carry: Any, step: Step) -> tuple[Any, Any]:
        carry, pi = actor.distribution(params, carry, step)
        assert isinstance(pi, Categorical)
        return carry, pi.logits

    return actor, noise(actor), compiled(logits)


def logits_of(c: Any, step: Step, spec: EnvSpec = SPEC) -> np.ndarray:
    actor, params, logits = made(c, spec)
    return np.asarray(logits(params, actor.initial_carry(step.first.shape[1]), step)[1])


def step_of(spec: EnvSpec = SPEC, dead: float = 0.3) -> Step:
    return make_step(np.random.default_rng(0), spec, (T, E), dead)._replace(legal=jnp.ones((T, E, N, 4), bool))


def linear(p: Any, i: int, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(p["kernel"][i], np.float64) + np.asarray(p["bias"][i], np.float64)


def by_loops(c: Any, obs: np.ndarray, alive: np.ndarray) -> list[np.ndarray]:
    """Each agent's logits in one timestep, with parameters of its own; only those of the living are compared."""
    params = made(c)[1]
    encoder, head = params["encoder"], params["head"]["head"]
    h = []
    for i in range(N):
        x = obs[i] if alive[i] else np.zeros(5)
        h.append(np.tanh(linear(encoder["head"], i, np.tanh(linear(encoder["layers"][0], i, x)))))
    for k in range(2):
        new = []
        for i in range(N):
            senders = [j for j in range(N) if alive[j] and j != i and not c.silent]
            if isinstance(c, commnet.Config):
                p = params["rounds"][k]
                heard = sum((h[j] for j in senders), np.zeros(D)) / max(len(senders), 1)
                new.append(np.tanh(linear(p["own"], i, h[i]) + linear(p["heard"], i, heard)))
                continue
            p, heard = params["rounds"][0], np.zeros(2)
            if senders:
                query, weights, values = linear(p["query"], i, h[i]), [], []
                for j in [*senders, i]:
                    message = linear(p["message"], j, h[j])
                    weights.append(np.exp(query @ message[:3] / np.sqrt(3)))
                    values.append(message[3:])
                heard = np.average(values, axis=0, weights=weights)
            new.append(np.tanh(linear(p["update"], i, np.concatenate([heard, h[i]]))))
        h = new
    return [linear(head, i, h[i]) for i in range(N)]


@each
@pytest.mark.parametrize("silent", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_logits_are_those_of_loops_over_agents_and_messages(name: str, silent: bool) -> None:
    c, step = replace(CONFIGS[name], sharing="independent", silent=silent), step_of()
    found, alive = logits_of(c, step), np.asarray(step.alive)
    assert not alive.all()
    for t, e in np.ndindex(T, E):
        expected = by_loops(c, np.asarray(step.obs[t, e], np.float64), alive[t, e])
        for i in np.flatnonzero(alive[t, e]):
            np.testing.assert_allclose(found[t, e, i], expected[i], atol=1e-4)


@each
def test_only_the_living_are_heard_and_by_all(name: str) -> None:
    step = step_of()
    alive, before = np.asarray(step.alive), logits_of(CONFIGS[name], step)
    for j in range(N):
        other = step._replace(obs=step.obs.at[:, :, j].multiply(-2.0))
        moved = (logits_of(CONFIGS[name], other) != before).any(-1)
        np.testing.assert_array_equal(moved[alive], np.broadcast_to(alive[..., j : j + 1], moved.shape)[alive])


@each
def test_agents_with_the_same_parameters_may_change_places(name: str) -> None:
    step, order = step_of(), np.array([2, 0, 3, 1])
    turned = step._replace(obs=step.obs[:, :, order], alive=step.alive[:, :, order])
    before, after = logits_of(CONFIGS[name], step)[:, :, order], logits_of(CONFIGS[name], turned)
    alive = np.asarray(turned.alive)
    np.testing.assert_allclose(after[alive], before[alive], atol=1e-5)


@mostly("tarmac")
def test_a_sender_learns_from_the_action_of_a_receiver(name: str) -> None:
    """The gradient of agent 0's output reaches agent 2's parameters, and not where agents are silent."""
    step = step_of(dead=0.0)
    for silent in (False, True):
        c = replace(CONFIGS[name], sharing="independent", silent=silent)
        actor, params, _ = made(c)

        def of_first(params: Any, actor: Any = actor) -> Any:
            return actor.distribution(params, (), step)[1].logits[:, :, 0, 1].sum()

        found = compiled(jax.grad(of_first))(params)["encoder"]["layers"][0]["kernel"]
        size = np.abs(found).max((1, 2))
        assert size[0] > 1e-3 and ((size[1:] > 1e-4).all() if not silent else (size[1:] == 0).all())


def test_teams_that_compete_do_not_hear_each_other() -> None:
    rivals = replace(SPEC, shared_reward=False, sides=(0, 0, 1, 1))
    step = step_of(rivals, dead=0.0)
    other = step._replace(obs=step.obs.at[:, :, 2:].multiply(-2.0))
    moved = (logits_of(COMMNET, other, rivals) != logits_of(COMMNET, step, rivals)).any(-1)
    assert not moved[..., :2].any() and moved[..., 2:].all()


@mostly("commnet")
def test_recurrent_agents_act_as_they_are_trained_and_forget_at_the_start_of_an_episode(name: str) -> None:
    c, step = replace(CONFIGS[name], network=replace(BODY, recurrent=D)), step_of()
    actor, params, logits = made(c)
    carry, found = actor.initial_carry(E), logits_of(c, step)
    for t in range(T):
        after, now = logits(params, carry, jax.tree.map(lambda x, t=t: x[t : t + 1], step))
        carry = jax.tree.map(lambda x: x[-1], after)
        np.testing.assert_allclose(now[0], found[t], atol=1e-5)
    first = step._replace(first=step.first.at[2].set(True))
    changed = first._replace(obs=first.obs.at[:2].multiply(-2.0))
    np.testing.assert_array_equal(logits_of(c, changed)[2:], logits_of(c, first)[2:])
    assert (logits_of(c, changed)[:2] != logits_of(c, first)[:2]).any()


@each
def test_what_has_no_meaning_is_refused(name: str) -> None:
    module = {"commnet": commnet, "tarmac": tarmac}[name]
    for changes, said in (
        ({"baseline": "optimal"}, "leave out baseline and dead_value"),
        ({"dead_value": "masked", "critic_input": "local"}, "leave out baseline and dead_value"),
        ({"network": replace(BODY, network="universal")}, "messages are between: use entities"),
    ):
        with pytest.raises(InputError, match=said):
            module.make(SPEC, replace(CONFIGS[name], **changes), Scale(E, T, 1))
    assert module.make_policy(SPEC, CONFIGS[name]).acts_on == "team"
