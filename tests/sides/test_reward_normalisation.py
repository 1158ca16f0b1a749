"""Reward normalisation around an algorithm that learns nothing: G, its statistics, and the rewards that are passed on.

In rollouts and around real algorithms: ``tests/algorithms/test_normalisation.py``.
"""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal import algorithms
from shoal.equations import normalise, targets
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.runs.build import make_algorithm
from shoal.sides.opponents import FrozenPolicies, against
from shoal.sides.past_selves import against_past
from shoal.sides.reward_normalisation import RETURN, normalise_rewards, return_deviation
from shoal.sides.sides import Side, _joined, narrowed
from shoal.training.settings import Settings
from shoal.types import Algorithm, Learner, Scale, Step, Trajectory

SPEC = toys.busy().spec
T, E, N, GAMMA, CLIP = 6, 2, SPEC.num_agents, 0.5, 1.5
KEY = jax.random.key(0)


def idle() -> Algorithm:
    """Its update keeps as its policy the rewards that it is given."""
    zero = jnp.zeros((), jnp.int32)

    def act(learner: Learner, carry: Any, step: Step, key: Any, greedy: bool) -> tuple[Any, Any, dict[str, Any]]:
        return carry, jnp.zeros(step.alive.shape, jnp.int32), {}

    def update(learner: Learner, traj: Trajectory, key: Any) -> tuple[Learner, dict[str, Any]]:
        assert traj.extras == {} and traj.carry == ()
        return learner._replace(policy=traj.outcome.reward), {}

    return Algorithm(lambda key: Learner((), (), (), (), zero), lambda envs: (), act, update)


def played(algorithm: Algorithm, rewards: np.ndarray, last: np.ndarray, alive: np.ndarray) -> Trajectory:
    """The trajectory of these rewards [T, E, N], with what ``act`` notes at every step."""
    learner, carry = algorithm.init(KEY), algorithm.initial_carry(E)
    steps, extras, before = [], [], carry
    reward, first = np.zeros((E, N)), np.ones(E, bool)
    for t in range(T):
        step = Step(
            jnp.zeros((E, N, SPEC.obs_dim)), jnp.zeros((E, SPEC.state_dim)), jnp.ones((E, N, SPEC.action.width), bool),
            jnp.array(alive[t]), jnp.float32(reward), jnp.ones((E, N)), jnp.array(first), jnp.zeros(E, bool),
        )  # fmt: skip
        carry, _, noted = algorithm.act(learner, carry, step, KEY, False)
        steps.append(step)
        extras.append(noted)
        reward, first = np.where(last[t][:, None], 0.0, rewards[t]), last[t]
    step, extras = (jax.tree.map(lambda *x: jnp.stack(x), *each) for each in (steps, extras))
    outcome = step._replace(reward=jnp.float32(rewards), last=jnp.array(last))
    return Trajectory(step, jnp.zeros((T, E, N), jnp.int32), extras, outcome, before)


def test_rewards_of_an_algorithm_without_a_discount_are_not_normalised() -> None:
    settings, config = override(Settings(), {"normalise_rewards": True}), algorithms.get("random").Config()
    with pytest.raises(InputError, match=r"by the discounted return, and random has no discount gamma\.$"):
        make_algorithm("random", toys.busy().spec, config, settings, Scale(4, 2, 1))


def test_returns_start_anew_with_each_episode_and_the_dead_do_not_count() -> None:
    rng = np.random.default_rng(0)
    rewards, alive = rng.normal(3, 1, (T, E, N)), rng.uniform(size=(T, E, N)) > 0.3
    last = np.zeros((T, E), bool)
    last[2, 0] = last[3, 1] = True
    rewards[~alive] = 1e3  # what a dead agent is given
    algorithm = normalise_rewards(idle(), SPEC, GAMMA, CLIP)
    traj = played(algorithm, rewards, last, alive)

    running, returns = np.zeros((E, N)), []
    for t in range(T):
        np.testing.assert_allclose(traj.extras[RETURN][t], running, rtol=1e-6)
        running = GAMMA * running + rewards[t]
        returns.append(running[alive[t]])
        running = np.where(last[t][:, None], 0, running)
    seen = np.concatenate(returns)

    learner, metrics = algorithm.update(algorithm.init(KEY), traj, KEY)
    assert learner.statistics.returns.weight == seen.size
    np.testing.assert_allclose(metrics["return_std"], seen.std(), rtol=1e-4)
    expected = np.clip(rewards / seen.std(), -CLIP, CLIP)
    np.testing.assert_allclose(learner.policy, expected, rtol=1e-4)
    assert np.abs(expected).max() == CLIP and np.abs(expected).min() < CLIP


def test_rollouts_that_only_fill_a_buffer_are_counted_inside_every_wrapper() -> None:
    """The algorithm adds up the rewards that it is given."""

    def observe(learner: Learner, traj: Trajectory) -> Learner:
        return learner._replace(statistics=learner.statistics + traj.outcome.reward.sum())

    plain = idle()
    counting = plain._replace(init=lambda key: plain.init(key)._replace(statistics=jnp.zeros(())), observe=observe)
    rewards, every = np.random.default_rng(0).normal(3, 1, (T, E, N)), np.ones((T, E, N), bool)
    sides = [(0,), tuple(range(1, N))]
    apart = [Side(i, side, narrowed(SPEC, side), counting) for i, side in enumerate(sides, 1)]
    wrapped = {
        "rewards": normalise_rewards(counting, SPEC, GAMMA, 1e3),
        "past": against_past(counting, SPEC, (0,), 2, 1, 0.0, True),
        "frozen": against(counting, SPEC, (0,), FrozenPolicies(plain, ())),
        "sides": _joined(SPEC, apart),
    }
    found = {}
    for name, algorithm in wrapped.items():
        assert algorithm.observe is not None
        traj = played(algorithm, rewards, np.zeros((T, E), bool), every)
        found[name] = algorithm.observe(algorithm.init(KEY), traj).statistics
    deviation = return_deviation(found["rewards"].returns)
    assert found["rewards"].returns.weight == rewards.size
    np.testing.assert_allclose(found["rewards"].statistics, rewards.sum() / deviation, rtol=1e-5)
    np.testing.assert_allclose(found["past"].statistics, rewards.sum(), rtol=1e-5)
    np.testing.assert_allclose(found["frozen"], rewards[..., 0].sum(), rtol=1e-5)
    np.testing.assert_allclose(found["sides"], [rewards[..., side].sum() for side in sides], rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_small_rewards_are_scaled_as_large_ones(scale: float) -> None:
    """By ``normalise_rewards`` and by ``reward_norm``; rewards that are all 0 stay 0."""
    reward = jnp.float32(scale * (1 + np.random.default_rng(0).normal(size=4000)))
    stats = normalise.update(normalise.init(()), reward, beta=None)
    np.testing.assert_allclose(return_deviation(stats), reward.std(), rtol=1e-3)
    np.testing.assert_allclose(targets.normalise_reward("standardise", stats, reward).std(), 1.0, rtol=1e-3)
    by_deviation = targets.normalise_reward("scale", stats, reward)
    np.testing.assert_allclose(targets.unscaled(stats, by_deviation), reward, rtol=1e-5)
    none = cast(normalise.Running, targets.update_reward_stats(normalise.init(()), jnp.zeros(5), jnp.ones(5, bool)))
    assert not targets.normalise_reward("standardise", none, jnp.zeros(5)).any() and return_deviation(
        none
    ) == pytest.approx(1e-4)
