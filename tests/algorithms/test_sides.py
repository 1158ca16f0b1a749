"""Sides trained by different algorithms: each learns as if the others were its environment, and nothing else."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal import algorithms
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.rollouts import fused
from shoal.sides import sides as composite
from shoal.types import Algorithm, Box, Discrete, Environment, EnvSpec, Learner, Scale, Step, Trajectory
from support.trajectories import distance

SMALL: dict[str, Any] = {"hidden": (6,), "epochs": 1, "minibatches": 1, "chunk_length": 6}
ENVS, LENGTH = 4, 6
SCALE = Scale(ENVS, LENGTH, 3)


def made(names: str, env: Environment, **flags: Any) -> Algorithm:
    module = algorithms.get(names)
    return module.make(env.spec, override(module.Config(), SMALL | flags), SCALE)


class Played(NamedTuple):
    env: Environment
    algorithm: Algorithm
    learner: Learner
    trajectory: Trajectory


@pytest.fixture(scope="module")
def played() -> Played:
    """Agents 0 and 2 of the busy game are side 2, a recurrent one; agent 1 is side 1. Rows and masks are ragged."""
    env = toys.busy()
    algorithm = made("mappo+ia2c", env, sides=(2, 1, 2), side2_recurrent=4, output_gain=3.0)
    rollout = fused.make_rollout(env, ENVS, LENGTH)

    def roll(key: jax.Array) -> tuple[Learner, Trajectory]:
        keys = jax.random.split(key, 3)
        learner = algorithm.init(keys[0])
        state = rollout.init(keys[1], algorithm.initial_carry(ENVS))
        return learner, rollout.collect(algorithm.act, learner, state, keys[2])[1]

    return Played(env, algorithm, *jax.jit(roll)(jax.random.key(0)))


def test_all_sides_take_legal_actions(played: Played) -> None:
    """An illegal action costs 1000: rows, masks and actions stand with the right agents."""
    traj = played.trajectory
    assert traj.action.shape == (LENGTH, ENVS, 3) and traj.outcome.reward.min() > -500.0
    legal = np.take_along_axis(np.asarray(traj.step.legal), np.asarray(traj.action)[..., None], -1)
    assert legal.all() and len(np.unique(traj.action)) == 4
    assert {name: x.shape[2] for name, x in traj.extras.items()} == {"side1/log_prob": 1, "side2/log_prob": 2}


def by_hand(traj: Trajectory, who: list[int], obs: int, actions: int, side: int) -> Trajectory:
    def step(x: Step) -> Step:
        rows = {name: getattr(x, name)[:, :, who] for name in ("alive", "reward", "discount")}
        return x._replace(obs=x.obs[:, :, who, :obs], legal=x.legal[:, :, who, :actions], **rows)

    extras = {"log_prob": traj.extras[f"side{side}/log_prob"]}
    return Trajectory(step(traj.step), traj.action[:, :, who], extras, step(traj.outcome), traj.carry[side - 1])


def spec_by_hand(spec: EnvSpec, who: list[int], actions: int) -> EnvSpec:
    return EnvSpec(
        name=spec.name,
        agents=tuple(spec.agents[i] for i in who),
        obs_dims=tuple(spec.obs_dims[i] for i in who),
        state_dim=3,
        action=Discrete(actions),
        action_dims=tuple(spec.action_dims[i] for i in who),
        roles=tuple(range(len(who))),
        horizon=spec.horizon,
        shared_reward=len(who) == 1,
    )


SIDES = [("mappo", [1], 6, 4, {}), ("ia2c", [0, 2], 5, 3, {"recurrent": 4})]


def test_each_side_learns_as_its_algorithm_alone(played: Played) -> None:
    key = jax.random.key(5)
    learner, metrics = jax.jit(played.algorithm.update)(played.learner, played.trajectory, key)
    assert int(learner.updates) == 1 and {name.split("/")[0] for name in metrics} == {"side1", "side2"}
    for i, (name, who, obs, actions, flags) in enumerate(SIDES):
        module, spec = algorithms.get(name), spec_by_hand(played.env.spec, who, actions)
        config = override(module.Config(), SMALL | flags | {"output_gain": 3.0})
        alone = module.make(spec, config, SCALE)
        before = Learner(*(part[i] for part in played.learner[:-1]), updates=played.learner.updates)
        seen = by_hand(played.trajectory, who, obs, actions, i + 1)
        after, said = jax.jit(alone.update)(before, seen, jax.random.split(key)[i])
        ours = Learner(*(part[i] for part in learner[:-1]), updates=learner.updates)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6), ours, after)
        np.testing.assert_allclose(metrics[f"side{i + 1}/entropy"], said["entropy"], rtol=1e-5)
        moved = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), before.policy.actor, after.policy.actor)
        assert max(jax.tree.leaves(moved)) > 1e-5


def test_a_side_does_not_see_the_other_side(played: Played) -> None:
    """Not even what is not a number."""
    traj, update = played.trajectory, jax.jit(played.algorithm.update)
    other = jnp.array([True, False, True])

    def spoil(step: Step) -> Step:
        return step._replace(
            obs=jnp.where(other[:, None], jnp.nan, step.obs),
            reward=jnp.where(other, jnp.nan, step.reward),
            legal=step.legal | other[:, None],
        )

    spoilt = traj._replace(step=spoil(traj.step), outcome=spoil(traj.outcome))
    spoilt = spoilt._replace(
        extras=traj.extras | {"side2/log_prob": jnp.full_like(traj.extras["side2/log_prob"], jnp.nan)}
    )
    one, two = (update(played.learner, x, jax.random.key(5))[0] for x in (traj, spoilt))
    jax.tree.map(np.testing.assert_array_equal, one.policy[0], two.policy[0])
    assert not all(np.isfinite(x).all() for x in jax.tree.leaves(two.policy[1]))


def test_sides_of_one_algorithm_start_and_act_independently() -> None:
    """Each side draws parameters and actions from a key of its own; from one key, twins would always act alike."""
    algorithm = made("mappo+mappo", env := toys.coordination(), sides=(1, 2))
    learner = jax.jit(algorithm.init)(jax.random.key(0))
    assert distance(*(jax.tree.leaves(side) for side in learner.policy)) > 0.1
    envs = 900
    step = jax.tree.map(lambda x: jnp.broadcast_to(x, (envs, *x.shape)), env.reset(jax.random.key(1))[1])
    carry = algorithm.initial_carry(envs)
    action = jax.jit(lambda key: algorithm.act(learner, carry, step, key, False)[1])(jax.random.key(2))
    table = np.histogram2d(*np.asarray(action).T, bins=3)[0]
    assert (np.abs(table - envs / 9) < 50).all()  # five standard deviations; fresh policies are nearly uniform


def test_continuous_actions_keep_their_own_width() -> None:
    env = toys.drift()
    algorithm = made("mappo+ippo", env, sides=(2, 1), output_gain=6.0)
    key = jax.random.key(0)
    step = jax.vmap(lambda key: env.reset(key)[1])(jax.random.split(key, ENVS))
    carry = algorithm.initial_carry(ENVS)
    action = jax.jit(lambda key: algorithm.act(algorithm.init(key), carry, step, key, False)[1])(key)
    assert action.shape == (ENVS, 2, 2) and (action[:, 1, 1] == 0).all()
    assert (action[:, 0] != 0).all() and (action[:, 1, 0] != 0).all()
    assert composite.narrowed(env.spec, (1,)).action == Box(1, -1.0, 3.0)


def test_the_sides_of_an_environment_go_before_roles() -> None:
    """A team has several roles; its agents earn the same, which algorithms that need one reward may use."""
    spec = replace(toys.busy().spec, roles=(0, 1, 0), sides=(1, 0, 1), shared_reward=False)
    assert composite.members(spec, 2, None) == ((1,), (0, 2))
    assert composite.members(spec, 2, (1, 1, 2)) == ((0, 1), (2,))
    assert [composite.narrowed(spec, who).shared_reward for who in ((0, 2), (0, 1), (1,))] == [True, False, True]
    assert not composite.narrowed(replace(spec, sides=None), (0, 2)).shared_reward
    with pytest.raises(InputError, match="has 2 sides, too few for 3 sides"):
        composite.members(spec, 3, None)
