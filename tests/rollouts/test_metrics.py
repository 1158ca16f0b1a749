"""The metrics of episodes are the same numbers on the device and in worker processes, and no algorithm sees them."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counters
from shoal.rollouts import fused
from shoal.rollouts.host import HostRollout, Parallelism
from shoal.training.evaluation import first_episodes
from shoal.types import EpisodeStats, Step, Trajectory

E, T, SEEDS = 4, 25, 2


def act(policy: Any, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
    """Random legal actions."""
    assert step.metrics == ()
    return carry, jax.random.categorical(key, jnp.where(step.legal, 0.0, -jnp.inf)), {}


def constant(policy: Any, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
    """One steps by 1 and two by 2."""
    assert step.metrics == ()
    return carry, jnp.broadcast_to(jnp.array([0, 1]), step.alive.shape), {}


def nothing(num_envs: int) -> tuple[()]:
    return ()


def keys(number: int) -> Any:
    return jax.random.split(jax.random.key(number), SEEDS)


def hosted(workers: int, length: int) -> Any:
    return closing(HostRollout(counters.hosted(), nothing, Parallelism(SEEDS, E, workers), length))


def collected(workers: int | None) -> Iterator[tuple[Trajectory, EpisodeStats]]:
    """Two rollouts of two seeds, episodes running on from one into the other; ``None`` is the device."""
    policies = jnp.zeros(SEEDS)
    if workers is None:
        device = fused.make_rollout(counters.device(), E, T)
        collect = jax.jit(jax.vmap(partial(device.collect, act), axis_name=fused.SEEDS))
        state = jax.jit(jax.vmap(lambda key: device.init(key, ())))(keys(5))
        for number in range(2):
            state, trajectory, stats = collect(policies, state, keys(7 + number))
            yield trajectory, stats
        return
    with hosted(workers, T) as rollout:
        rollout.init(keys(5))
        for number in range(2):
            yield rollout.collect(act, policies, keys(7 + number))


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_they_are_summed_over_the_episodes_that_ended(workers: int | None) -> None:
    for trajectory, stats in collected(workers):
        assert trajectory.step.metrics == trajectory.outcome.metrics == ()
        outcome = jax.device_get(trajectory.outcome)
        one, two = np.moveaxis(np.round(16 * outcome.state[..., :2]), -1, 0)
        won = outcome.last & (one == two)
        known = outcome.last & outcome.alive[..., 1]
        metrics, known_metrics = np.asarray(stats.metrics), np.asarray(stats.known)
        assert metrics.shape == known_metrics.shape == (SEEDS, 2)
        np.testing.assert_array_equal(stats.episodes, outcome.last.sum((1, 2)))
        np.testing.assert_array_equal(known_metrics[:, 0], stats.episodes)
        np.testing.assert_array_equal(metrics[:, 0], won.sum((1, 2)))
        np.testing.assert_array_equal(known_metrics[:, 1], known.sum((1, 2)))
        np.testing.assert_array_equal(metrics[:, 1], np.where(known, abs(one - two), 0).sum((1, 2)))
        assert (metrics[:, 0] > 0).all() and (known_metrics[:, 1] > 0).all()
        assert (known_metrics[:, 1] < stats.episodes).all()


def by_hand(seed: int) -> tuple[tuple[float, ...], tuple[float, float]]:
    """(both returns and the length) and (won, gap) of an episode in which one steps by 1 and two by 2."""
    x, y, alive, returns = seed % 16, seed // 16 % 16, True, [0.0, 0.0]
    length = 0
    while length < counters.HORIZON and (length == 0 or x != y):
        length += 1
        x, y = (x + 1) % 16, (y + 2 * alive) % 16
        returns = [returns[0] + x / 16, returns[1] + alive * y / 16]
        alive = alive and y < 12
    return (*returns, length), (float(x == y), float(abs(x - y)) if alive else np.nan)


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_each_whole_episode_has_its_own(workers: int | None) -> None:
    policies, episodes = jnp.zeros(SEEDS), 40
    if workers is None:
        play = first_episodes(counters.device(), constant, (), episodes, True)
        found = jax.jit(jax.vmap(play, axis_name=fused.SEEDS))(policies, keys(1))
    else:
        with hosted(workers, 1) as rollout:
            found = rollout.play(constant, policies, keys(1), episodes)
    returns, lengths, metrics = (np.asarray(x).reshape(SEEDS * episodes, -1) for x in found)
    expected: dict[Any, set] = {}
    for seed in range(256):
        played, told = by_hand(seed)
        expected.setdefault(played, set()).add(str(told))
    assert np.mean([len(told) == 1 for told in expected.values()]) > 0.9  # returns and length tell episodes apart
    for i in range(SEEDS * episodes):
        told = tuple(float(x) for x in metrics[i])
        assert str(told) in expected[(*map(float, returns[i]), int(lengths[i, 0]))]
    assert 0 < metrics[:, 0].mean() < 1 and 0 < np.isnan(metrics[:, 1]).mean() < 1
