"""Normalised algorithms in rollouts, with a replay buffer, over devices, and what is refused."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal import algorithms
from shoal.algorithms import ippo
from shoal.equations.normalise import Running
from shoal.equations.reduce import DEVICES
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.rollouts import fused
from shoal.sides.reward_normalisation import RETURN, RewardCarry, normalise_rewards
from shoal.training import feed as feeds
from shoal.training import sharding
from shoal.types import Algorithm, Learner, Scale, Step, Trajectory
from support.trajectories import E, T, assert_trees_close, compiled, make_spec, make_trajectory

KEY = jax.random.key(2)
SMALL = {"hidden": (4,), "epochs": 1, "minibatches": 1}
CONFIG = override(ippo.Config(), SMALL)


def untrained(algorithm: Algorithm) -> Any:
    """A learner without parameters worth the name: all numbers are 0, but statistics as they begin."""
    learner = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(algorithm.init, KEY))
    return jax.tree.map(
        lambda x: x._replace(square=jnp.ones_like(x.square)) if isinstance(x, Running) else x,
        learner,
        is_leaf=lambda x: isinstance(x, Running),
    )


def test_the_return_and_its_statistics_over_roll_outs_and_episodes() -> None:
    """As a loop over timesteps has them, which forgets G where an episode ends: two rollouts, without a seam."""
    env, envs, length, gamma = toys.busy(), 3, 10, 0.8
    algorithm = normalise_rewards(ippo.make(env.spec, CONFIG, Scale(envs, length, 2)), env.spec, gamma, 10.0)
    rollout = fused.make_rollout(env, envs, length)

    @compiled
    def advance(learner: Any, state: Any, key: Any) -> Any:
        state, traj, _ = rollout.collect(algorithm.act, learner, state, key)
        after, metrics = algorithm.update(learner, traj, key)
        return after.statistics.returns, state, traj, metrics["return_std"]  # what is learned need not be compiled

    learner, state = untrained(algorithm), compiled(rollout.init)(KEY, algorithm.initial_carry(envs))
    running, returns, ends = np.zeros((envs, 3)), [], 0
    for turn in range(2):
        stats, state, traj, std = advance(learner, state, jax.random.fold_in(KEY, turn))
        learner = learner._replace(statistics=learner.statistics._replace(returns=stats))
        alive, last = np.asarray(traj.step.alive), np.asarray(traj.outcome.last)
        for t in range(length):
            np.testing.assert_allclose(traj.extras[RETURN][t], running, rtol=1e-5, atol=1e-5)
            running = gamma * running + np.asarray(traj.outcome.reward[t], np.float64)
            returns.append(running[alive[t]])
            running = np.where(last[t][:, None], 0.0, running)
        seen = np.concatenate(returns)
        np.testing.assert_allclose((stats.mean, std), (seen.mean(), seen.std()), rtol=1e-4)
        assert stats.weight == seen.size
        ends += last.sum()
    assert ends > 3 and not alive.all()


@pytest.mark.parametrize("name", ["qmix", "ippo+ippo+iql"])
def test_samples_of_a_replay_buffer(name: str) -> None:
    """Through the feed itself, shapes only: what is stored is what the plain algorithm stores."""
    spec, module, envs = make_spec(), algorithms.get(name), 4
    flags = SMALL | ({"sides": (1, 2, 3)} if "+" in name else {})
    plain = module.make(spec, override(module.Config(), flags), Scale(envs, T, 5))
    both = normalise_rewards(plain, spec, 0.9, 10.0)

    def trajectory(algorithm: Any) -> Trajectory:
        """The shapes of one."""
        carry = algorithm.initial_carry(envs)
        traj = make_trajectory(spec, 0, carry, envs=envs)
        step = jax.tree.map(lambda x: x[0], traj.step)
        act = partial(algorithm.act, greedy=False)
        _, action, extras = jax.eval_shape(act, jax.eval_shape(algorithm.init, KEY), carry, step, KEY)
        longer = partial(jax.tree.map, lambda x: jax.ShapeDtypeStruct((T, *x.shape), x.dtype))
        return jax.eval_shape(lambda x: x, traj._replace(action=longer(action), extras=longer(extras)))

    def learn(traj: Trajectory, key: Any) -> Any:
        feed = feeds.make_feed(both.replay, traj, envs, 1)
        return both.update(both.init(key), feed.take(feed.put(feed.init(), traj), traj, key), key)

    after, _ = jax.eval_shape(learn, trajectory(both), KEY)
    assert jax.tree.structure(after) == jax.tree.structure(jax.eval_shape(both.init, KEY))
    kept, before = (
        [jax.eval_shape(one.keep, trajectory(algorithm)) for one in feeds.wanted(algorithm.replay)]
        for algorithm in (both, plain)
    )
    assert kept == before and kept


def test_statistics_on_two_devices_equal_those_on_one() -> None:
    spec = make_spec()

    def make(envs: int) -> Any:
        return normalise_rewards(ippo.make(spec, CONFIG, Scale(envs, T, 5)), spec, 0.9, 10.0)

    one, half = make(E), make(E // 2)
    traj = make_trajectory(spec, 1, one.initial_carry(E))
    traj = traj._replace(extras=traj.extras | {RETURN: traj.step.reward})
    time_first, first = jax.P(None, DEVICES), jax.P(DEVICES)
    specs = Trajectory(time_first, time_first, time_first, time_first, first)  # type: ignore[arg-type]
    shard = partial(jax.shard_map, mesh=sharding.plan_layout(1, E, 2).mesh, check_vma=False)

    def counted(algorithm: Any, learner: Any, traj: Trajectory, key: Any) -> Any:
        learner, _ = algorithm.update(learner, traj, key)
        return (), learner.statistics.returns

    learner = untrained(one)
    over_two = compiled(shard(partial(counted, half), in_specs=(jax.P(), specs, jax.P()), out_specs=jax.P()))
    alone = compiled(partial(counted, one))(learner, traj, KEY)
    assert_trees_close(over_two(learner, traj, KEY), alone, 1e-5, 1e-6)
    assert alone[1].weight == traj.step.alive.sum()


@pytest.mark.parametrize(
    ("gamma", "clip", "said"),
    [
        (0.9, float("nan"), "reward_clip must be above 0, not nan"),
        (1.5, 10.0, "gamma must be at least 0 and at most 1, not 1.5"),
    ],
)
def test_options_without_a_meaning_are_refused(gamma: float, clip: float, said: str) -> None:
    spec = make_spec()
    with pytest.raises(InputError, match=said):
        normalise_rewards(ippo.make(spec, CONFIG, Scale(E, T, 5)), spec, gamma, clip)


def test_it_learns_what_it_would_from_rewards_divided_by_hand() -> None:
    """By σ_G of the batch, clipped; a deployed policy acts as it did."""
    spec = make_spec()
    plain = ippo.make(spec, CONFIG, Scale(E, T, 5))
    both = normalise_rewards(plain, spec, 0.9, 2.0)
    learner = jax.jit(plain.init)(KEY)
    traj = make_trajectory(spec, 1, plain.initial_carry(E))
    noted = traj._replace(carry=RewardCarry(traj.carry, jnp.zeros((E, spec.num_agents))))
    noted = noted._replace(extras=traj.extras | {RETURN: traj.step.reward})
    returns = np.asarray(0.9 * traj.step.reward + traj.outcome.reward)[np.asarray(traj.step.alive)]

    def scaled(step: Step) -> Step:
        return step._replace(reward=jnp.clip(step.reward / returns.std(), -2.0, 2.0))

    by_hand = traj._replace(step=scaled(traj.step), outcome=scaled(traj.outcome))
    start = jax.jit(both.init)(KEY)
    got, metrics = compiled(both.update)(start, noted, KEY)
    expected, _ = compiled(plain.update)(learner, by_hand, KEY)
    assert_trees_close(got.policy, expected.policy, 1e-4, 1e-5)
    np.testing.assert_allclose(metrics["return_std"], returns.std(), rtol=1e-4)
    assert jax.tree.structure(got) == jax.tree.structure(start)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(got)] == [(x.shape, x.dtype) for x in jax.tree.leaves(start)]
    assert np.abs(np.asarray(traj.outcome.reward) / returns.std()).max() > 2  # so that the clip is seen
    step, alone = jax.tree.map(lambda x: x[0], traj.step), Learner(got.policy, (), (), (), got.updates)
    _, action, extras = both.act(alone, both.initial_carry(E), step, KEY, True)
    np.testing.assert_array_equal(action, plain.act(alone, plain.initial_carry(E), step, KEY, True)[1])
    np.testing.assert_array_equal(extras[RETURN], np.where(step.first[:, None], 0, step.reward))
