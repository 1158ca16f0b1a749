"""Acting with cached keys and values is decoding all agents at once, in whatever order, whoever is dead."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.equations.distributions import TanhGaussian
from shoal.models.sequence import decoding_rank
from shoal.types import Box
from support.mat_cases import CASES, evaluated, played, rank_of
from support.trajectories import E, N, T

every_case = pytest.mark.parametrize("name", CASES)


@every_case
@pytest.mark.parametrize("greedy", [False, True], ids=["sampled", "greedy"])
def test_acting_with_a_cache_is_the_parallel_pass_without(name, greedy):
    _, learner, traj = played(name, greedy)
    alive, real = np.asarray(traj.step.alive), np.asarray(traj.step.legal)
    dist, _ = evaluated(name, learner, traj)
    np.testing.assert_allclose(dist.log_prob(traj.action)[alive], traj.extras["log_prob"][alive], rtol=1e-5, atol=1e-5)
    if greedy:  # so the cached pass had the same distributions, not only the same number
        got, expected = np.asarray(traj.action)[alive], np.asarray(dist.mode())[alive]
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    if isinstance(CASES[name][0].action, Box):
        assert not np.asarray(traj.action)[~real].any()


@every_case
def test_a_distribution_depends_on_the_actions_of_the_living_before_it_and_on_no_others(name):
    _, learner, traj = played(name)
    before, _ = evaluated(name, learner, traj)
    alive, rank = np.asarray(traj.step.alive), rank_of(traj)
    discrete = not isinstance(CASES[name][0].action, Box)
    for j in range(N):
        action, real = traj.action[:, :, j], traj.step.legal[:, :, j]
        other = (action + 1) % 4 if discrete else action + jnp.where(real, 0.3, 0.0)
        after, _ = evaluated(name, learner, traj._replace(action=traj.action.at[:, :, j].set(other)))
        one, two = (np.asarray(jax.tree.leaves(dist)[0]) for dist in (before, after))  # logits or means
        moved = (one != two).any(-1)
        expected = alive[..., j : j + 1] & (rank[..., j : j + 1] < rank)
        np.testing.assert_array_equal(moved[alive], expected[alive])
        assert np.abs(one - two).max() > 0.01  # far more than what caching may differ by


def test_the_start_token_differs_from_every_action():
    """A box's centre is all zeros in the units that the decoder reads, and is still not the start.

    Were it, agent 1 would read the same whether it decodes first or after an agent that took that action: attention
    over two equal keys is attention over one.
    """
    _, learner, traj = played("squashed")
    centre = jnp.where(traj.step.legal, -0.5, 0.0)
    everyone = traj._replace(step=traj.step._replace(alive=jnp.ones_like(traj.step.alive)), action=centre)
    first, second = (
        evaluated("squashed", learner, everyone._replace(extras={"rank": jnp.broadcast_to(rank, (T, E, N))}))[0]
        for rank in (jnp.array([1, 0, 2]), jnp.array([0, 1, 2]))
    )
    assert isinstance(first, TanhGaussian) and isinstance(second, TanhGaussian)
    gap = jnp.abs(first.mean - second.mean)
    assert gap[:, :, 1].max(-1).min() > 1e-4


def test_orders_are_drawn_for_each_timestep_and_stored():
    _, _, traj = played("shuffled")
    rank, alive = np.asarray(traj.extras["rank"]), np.asarray(traj.step.alive)
    np.testing.assert_array_equal(np.sort(rank, -1), np.broadcast_to(np.arange(N), rank.shape))
    np.testing.assert_array_equal(rank < alive.sum(-1, keepdims=True), alive)  # the dead come last
    orders = {tuple(row) for row in rank[alive.all(-1)]}
    assert len(orders) > 2
    _, _, greedy = played("shuffled", greedy=True)
    np.testing.assert_array_equal(greedy.extras["rank"], rank_of(greedy._replace(extras={})))
    assert "rank" not in played("discrete")[2].extras


def test_decoding_rank():
    alive = np.random.default_rng(0).random((50, 4)) > 0.4
    priority = np.random.default_rng(1).integers(0, 3, (50, 4)).astype(np.float32)  # with ties
    got = decoding_rank(jnp.asarray(alive), jnp.asarray(priority))
    for i in range(50):
        order = sorted(range(4), key=lambda a: (not alive[i, a], priority[i, a], a))
        np.testing.assert_array_equal(np.asarray(got[i])[order], np.arange(4))


def test_the_encoder_reads_the_state_only_if_asked():
    for name, reads in (("discrete", False), ("shuffled", True)):
        _, learner, traj = played(name)
        other = traj._replace(step=traj.step._replace(state=traj.step.state[::-1]))
        (dist, value), (other_dist, other_value) = (evaluated(name, learner, x) for x in (traj, other))
        assert bool((dist.entropy() != other_dist.entropy()).any()) == reads
        assert bool((value != other_value).any()) == reads
