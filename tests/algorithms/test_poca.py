"""MA-POCA: values and baselines of sets of living agents against loops, and credit after death."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import poca
from shoal.equations.normalise import VALUES, denormalise
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.types import Box, Scale, Step
from support.trajectories import ACTIONS, E, N, T, acted, compiled, make_spec, make_trajectory, program

SPEC, KEY = make_spec(), jax.random.key(1)
CONFIG = poca.Config(
    network=Body((4, 5), activation="relu", orthogonal=False),
    adam_eps=0.5,
    epochs=1,
    heads=2,
    agent_id=False,
    value_norm="none",
    huber=None,
    normalise_advantage="none",
    value_clip=1e-6,
)
"""Before the first step values and baselines are what they were, so that even a narrow clip changes nothing."""


def affine(p: Any, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(p["kernel"][0], np.float64) + np.asarray(p["bias"][0], np.float64)


def norm(p: Any, x: np.ndarray) -> np.ndarray:
    x = (x - x.mean()) / np.sqrt(x.var() + 1e-6)
    return x * np.asarray(p["scale"][0], np.float64) + np.asarray(p["bias"][0], np.float64)


def hidden(p: Any, x: np.ndarray) -> np.ndarray:
    for layer in p["layers"]:
        x = np.maximum(affine(layer, x), 0)
    return x


def of_set(phi: Any, entities: list[np.ndarray]) -> float:
    """v(RSA(·)), of a list that has nothing but the entities that are there."""
    x = [norm(phi["embedding_norm"], e) for e in entities]
    p, found = phi["attention"], []
    queries, memories = [affine(p["query"], e) for e in x], [affine(p["memory"], e) for e in x]
    for i in range(len(x)):
        mixed = []
        for h in (slice(0, 2), slice(2, 4)):
            scores = np.array([queries[i][h] @ m[:4][h] for m in memories]) / np.sqrt(2)
            share = np.exp(scores - scores.max())
            mixed.append(sum(w * m[4:][h] for w, m in zip(share / share.sum(), memories, strict=True)))
        found.append(norm(phi["residual_norm"], x[i] + affine(p["output"], np.concatenate(mixed))))
    last = hidden(phi["hidden"], np.mean(found, axis=0))
    return float(affine(phi["head"], np.append(last, 2 * len(x) / N - 1))[0])


def values_of(phi: Any, step: Step, action: Any) -> tuple[np.ndarray, np.ndarray]:
    """V [T, E] and b [T, E, N] of living agents, moment by moment; 0 elsewhere."""
    obs, alive = np.asarray(step.obs, np.float64), np.asarray(step.alive)
    v, b = np.zeros(alive.shape[:2]), np.zeros(alive.shape)
    for t, e in np.ndindex(v.shape):
        living = np.flatnonzero(alive[t, e])
        own = {j: hidden(phi["embed"], obs[t, e, j]) for j in living}
        with_action = {
            j: hidden(phi["embed_with_action"], np.append(obs[t, e, j], np.eye(ACTIONS)[int(action[t, e, j])]))
            for j in living
        }
        if len(living):
            v[t, e] = of_set(phi, [own[j] for j in living])
        for i in living:
            b[t, e, i] = of_set(phi, [own[i], *(with_action[j] for j in living if j != i)])
    return v, b


def returns(traj: Any, v: np.ndarray, then: np.ndarray) -> np.ndarray:
    """y of the team, [T, E], backwards."""
    alive, discount = np.asarray(traj.step.alive | traj.outcome.alive), np.asarray(traj.outcome.discount, np.float64)
    reward, last = np.asarray(traj.outcome.reward, np.float64).mean(-1), np.asarray(traj.outcome.last)
    d = np.where(alive.any(-1), np.where(alive, discount, 0).max(-1), discount.max(-1))
    y, following = np.zeros(v.shape), np.zeros(v.shape[1])
    for t in reversed(range(T)):
        delta = reward[t] + CONFIG.gamma * d[t] * then[t] - v[t]
        following = delta + CONFIG.gamma * CONFIG.lam * d[t] * np.where(last[t], 0.0, following)
        y[t] = following + v[t]
    return y


@cache
def played(value_norm: str = "none") -> Any:
    prog = program(SPEC, replace(CONFIG, value_norm=value_norm))
    traj = acted(prog, prog.learner, make_trajectory(SPEC))
    return prog, traj, prog.update(prog.learner, traj, KEY)


def test_values_and_baselines_are_those_of_a_loop_over_living_agents() -> None:
    prog, traj, _ = played()
    critic = poca.make_set_critic(SPEC, CONFIG)
    v, b = values_of(prog.learner.critic, traj.step, traj.action)
    alive = np.asarray(traj.step.alive)
    got = compiled(critic.values)(prog.learner.critic, (), traj.step)[1]
    np.testing.assert_allclose(np.asarray(got)[alive], np.broadcast_to(v[..., None], b.shape)[alive], 1e-4, 1e-5)
    got = compiled(critic.baselines)(prog.learner.critic, traj.step, traj.action)
    np.testing.assert_allclose(np.asarray(got)[alive], b[alive], 1e-4, 1e-5)


def errors(phi: Any, traj: Any, scale: float = 1.0, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """V − y and b − y of living agents, where outputs times ``scale`` plus ``shift`` are in the rewards' units."""
    v, b = (scale * x + shift for x in values_of(phi, traj.step, traj.action))
    then = scale * values_of(phi, traj.outcome, traj.action)[0] + shift
    then = np.where(np.asarray(traj.outcome.alive).any(-1), then, 0.0)
    v = np.where(np.asarray(traj.step.alive).any(-1), v, 0.0)
    y, alive = returns(traj, v, then)[..., None], np.asarray(traj.step.alive)
    return (v[..., None] - y + 0 * b)[alive], (b - y)[alive]


def test_losses_are_those_of_a_loop() -> None:
    """With one epoch the ratio is 1 and nothing is clipped: the losses are −A, ½ (V − y)² and ½ (b − y)²."""
    prog, traj, (_, metrics) = played()
    of_v, of_b = errors(prog.learner.critic, traj)
    np.testing.assert_allclose(metrics["value_loss"], (of_v**2).mean() / 2, rtol=1e-4)
    np.testing.assert_allclose(metrics["baseline_loss"], (of_b**2).mean() / 2, rtol=1e-4)
    np.testing.assert_allclose(metrics["policy_loss"], of_b.mean(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value_norm", ["running", "popart"])
def test_advantages_are_in_the_rewards_units_of_before_the_update(value_norm: str) -> None:
    prog, traj, (learner, _) = played(value_norm)
    traj = traj._replace(outcome=traj.outcome._replace(reward=3 * traj.outcome.reward + 2))
    learner = learner._replace(
        policy=prog.learner.policy
    )  # whose actions the trajectory has; the statistics are not empty
    zero, one = (float(denormalise(learner.statistics.value, jnp.full((1,), x), VALUES)[0]) for x in (0.0, 1.0))
    assert abs(zero) > 0.01 and abs(one - zero - 1) > 0.01
    after, metrics = prog.update(learner, traj, KEY)
    _, of_b = errors(learner.critic, traj, one - zero, zero)
    np.testing.assert_allclose(metrics["policy_loss"], of_b.mean(), rtol=1e-3, atol=1e-4)
    if value_norm == "popart":  # the clip compares with b in the new units, from which nothing has moved yet
        low, high = (float(denormalise(after.statistics.value, jnp.full((1,), x), VALUES)[0]) for x in (0.0, 1.0))
        expected = ((of_b / (high - low)) ** 2).mean() / 2
        np.testing.assert_allclose(metrics["baseline_loss"], expected, rtol=1e-3)


def test_a_baseline_does_not_depend_on_the_agents_own_action_and_on_nothing_dead() -> None:
    prog, traj, _ = played()
    b, alive = compiled(poca.make_set_critic(SPEC, CONFIG).baselines), np.asarray(traj.step.alive)
    before = b(prog.learner.critic, traj.step, traj.action)
    for j in range(N):
        other = traj.action.at[..., j].set((traj.action[..., j] + 1) % ACTIONS)
        moved = np.asarray(b(prog.learner.critic, traj.step, other) != before)
        expected = alive[..., j : j + 1] & (np.arange(N) != j) & alive
        assert not moved[alive & ~expected].any() and moved[expected].mean() > 0.8  # some layers output only zeros


def test_a_dead_agent_is_credited_with_what_its_team_earns_later() -> None:
    traj = played()[1]
    alive = jnp.ones((T, E, N), bool).at[1:, :, 0].set(False)
    step, out = traj.step._replace(alive=alive), traj.outcome
    out = out._replace(
        alive=jnp.ones_like(alive).at[:, :, 0].set(False), last=jnp.zeros_like(out.last), reward=0 * out.reward,
        discount=jnp.ones_like(out.discount).at[0, :, 0].set(0.0),
    )  # fmt: skip
    traj = traj._replace(step=step, outcome=out)
    v = jnp.zeros((T, E, N))
    zero = poca.TrajectoryValues(v, v, v, ())  # type: ignore[arg-type]
    later = traj._replace(outcome=out._replace(reward=out.reward.at[-1].set(1.0)))
    gain = poca.team_returns(CONFIG, later, zero)[1] - poca.team_returns(CONFIG, traj, zero)[1]
    np.testing.assert_allclose(gain[0, :, 0], (CONFIG.gamma * CONFIG.lam) ** (T - 1), rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"critic_input": "concat"}, "local, agent or pruned, not 'concat'"),
        ({"baseline": "optimal"}, "baseline must be value, not 'optimal'"),
        ({"dead_value": "masked"}, "dead_value must be team, not 'masked'"),
        ({"critic_hidden": (8,)}, "leave out critic_hidden"),
        ({"heads": 3}, "3 heads do not divide"),
        ({"baseline_coef": -1.0}, "baseline_coef must be"),
        ({"network": Body(())}, "hidden cannot be empty"),
    ],
)
def test_invalid_input_is_refused(changes: dict[str, Any], said: str) -> None:
    for spec in (SPEC, make_spec(action=Box(2))):
        with pytest.raises(InputError, match=said):
            poca.make(spec, replace(CONFIG, **changes), Scale(E, T, 1))
