"""Ensembles of sub-policies: one for each episode, learning from its own episodes only."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.networks.body import build_body
from shoal.training import feed
from shoal.types import Trajectory
from support.naive_maddpg import BASE, made, of
from support.trajectories import (
    E,
    T,
    acted,
    assert_trees_close,
    assert_trees_equal,
    distance,
    make_spec,
    make_trajectory,
)

KEY = jax.random.key(1)
SPEC = make_spec(2)
PAIR = replace(BASE, ensemble=2)


def with_members(traj: Trajectory, member: Any) -> Trajectory:
    return traj._replace(extras={"member": jnp.broadcast_to(jnp.asarray(member, jnp.int32), traj.step.alive.shape)})


def test_a_sub_policy_is_drawn_for_every_episode_and_kept_through_it() -> None:
    config = replace(BASE, ensemble=3)
    prog, envs, length = made(SPEC, config), 1500, 6
    traj = make_trajectory(SPEC, length=length, envs=envs, carry=prog.algorithm.initial_carry(envs))
    traj = traj._replace(step=traj.step._replace(first=traj.step.first.at[0].set(True)))
    traj = acted(prog, prog.learner, traj, greedy=True)
    member, first = np.asarray(traj.extras["member"]), np.asarray(traj.step.first)
    assert (member[1:] == member[:-1])[~first[1:]].all()
    drawn, before = member[1:][first[1:]], member[:-1][first[1:]]
    count = len(drawn)
    assert count > 1500
    for a, b in [(drawn[:, 0], drawn[:, 1]), (drawn[:, 0], before[:, 0]), (drawn[:, 1], before[:, 0])]:
        table = np.histogram2d(a, b, bins=3)[0]
        assert ((table - count / 9) ** 2 / (count / 9)).sum() < 35  # χ² with 8 degrees of freedom: p = 3e-5
    net = build_body(config.network, SPEC.obs_dim, 4)
    for i in range(2):
        obs = jnp.where(traj.step.alive[..., i, None], traj.step.obs[..., i, :], 0)
        x = jnp.stack(
            [net.apply(of(prog.learner.policy.actor, 3 * i + k), (), obs, traj.step.first)[1] for k in range(3)]
        )
        best = np.where(traj.step.legal[..., i, :], x, -np.inf).argmax(-1)
        chosen = np.take_along_axis(best, member[None, ..., i], 0)[0]
        np.testing.assert_array_equal(traj.action[..., i], chosen)
        assert (best != chosen).any()


def test_a_sub_policy_learns_from_its_own_episodes_only() -> None:
    """Rows of the other sub-policy hold anything; the critic stands still here, since it learns from all rows."""
    prog = made(SPEC, replace(PAIR, critic_learning_rate=1e-20))
    member = np.random.default_rng(0).integers(2, size=(T, E, 2))
    traj = with_members(make_trajectory(SPEC), member)
    learner, _ = prog.update(prog.learner, traj, KEY)
    for i, k in np.ndindex(2, 2):
        strange = jnp.asarray(member[..., i] != k)
        step = traj.step._replace(obs=jnp.where(strange[..., None, None], traj.step.obs + 1, traj.step.obs))
        action = jnp.where(strange[..., None], 0, traj.action)
        other, _ = prog.update(prog.learner, traj._replace(step=step, action=action), KEY)
        same = 2 * i + k
        for p in range(4):
            gap = distance(of(other.policy.actor, p), of(learner.policy.actor, p))
            assert gap < 1e-7 if p == same else gap > 1e-5
            assert distance(of(learner.policy.actor, p), of(prog.learner.policy.actor, p)) > 1e-3


def test_an_ensemble_of_which_one_plays_is_plain_maddpg() -> None:
    """Sub-policy 0 moves as MADDPG's policy, sub-policy 1 not at all; critics and target networks are MADDPG's."""
    plain, pair, traj = made(SPEC, BASE), made(SPEC, PAIR), make_trajectory(SPEC)

    def first(tree: Any) -> Any:
        return jax.tree.map(lambda x: x[::2], tree)

    start, target = pair.learner, pair.learner.statistics.target
    statistics = plain.learner.statistics._replace(target=target._replace(actor=first(target.actor)))
    policy = plain.learner.policy._replace(actor=first(start.policy.actor))
    one = plain.learner._replace(policy=policy, critic=start.critic, statistics=statistics)
    two = start
    for t in range(2):
        key = jax.random.key(t)
        one, _ = plain.update(one, traj, key)
        two, _ = pair.update(two, with_members(traj, 0), key)
    got = first(two.policy.actor), two.critic, first(two.statistics.target.actor), two.statistics.target.critic
    assert_trees_close(got, (one.policy.actor, one.critic, *one.statistics.target[:2]), 1e-5, 1e-7)
    idle = [jax.tree.map(lambda x: x[1::2], x.policy.actor) for x in (two, start)]
    assert_trees_equal(*idle)
    assert distance(one.policy.actor, first(start.policy.actor)) > 1e-3
    assert plain.algorithm.replay.keep(with_members(traj, 0)).extras == {}


def test_the_replay_buffer_holds_the_sub_policy_of_each_episode() -> None:
    config = replace(PAIR, batch_size=16, buffer_size=2 * T * E, learning_starts=1)
    replay = made(SPEC, config).algorithm.replay
    assert replay.batch == 32  # 16 rows for each of two sub-policies
    rng, rolls = np.random.default_rng(0), []
    for seed in range(2):
        traj = with_members(make_trajectory(SPEC, seed), rng.integers(2, size=(T, E, 2)))
        rolls.append(traj)
    fed = feed.make_feed(replay, rolls[0], E, 1)
    state = fed.init()
    for traj in rolls:
        state = fed.put(state, traj)
    drawn = fed.take(state, rolls[1], KEY).samples  # type: ignore[union-attr]
    assert drawn.extras["member"].shape == (1, 1, 32, 2)
    known = {
        np.asarray(traj.step.obs[t, e]).tobytes(): np.asarray(traj.extras["member"][t, e])
        for traj in rolls for t in range(T) for e in range(E)
    }  # fmt: skip
    for obs, member in zip(np.asarray(drawn.obs)[0, 0], np.asarray(drawn.extras["member"])[0, 0], strict=True):
        np.testing.assert_array_equal(known[obs.tobytes()], member)
