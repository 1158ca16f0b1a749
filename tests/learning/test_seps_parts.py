"""The equations of SePS against plain loops: transitions, the bound, k-means, the index."""

import jax
import jax.numpy as jnp
import numpy as np

from shoal.learning import agent_clusters
from shoal.networks.net import Net
from shoal.types import Box
from support.trajectories import make_spec, make_trajectory

KEY = jax.random.key(0)


def test_transitions_are_standardised_over_the_living() -> None:
    for action in (None, Box(2, -1.0, 1.0)):
        spec = make_spec(3, action=action)
        traj = make_trajectory(spec, length=30, envs=8)
        rows = agent_clusters.experience(spec, traj)
        alive = np.asarray(traj.step.alive & traj.outcome.alive)
        acts = np.asarray(traj.action)
        acts = np.eye(4)[acts] if action is None else acts
        seen = np.concatenate([traj.step.obs, acts], -1)
        change = np.asarray(traj.outcome.obs - traj.step.obs)
        outcome = np.concatenate([change, np.asarray(traj.outcome.reward)[..., None]], -1)
        for got, raw in ((rows.seen, seen), (rows.outcome, outcome)):
            kept = raw[alive].astype(np.float64)
            expected = (kept - kept.mean(0)) / kept.std(0)
            np.testing.assert_allclose(np.asarray(got)[alive], expected, rtol=1e-4, atol=1e-4)
            assert not np.asarray(got)[~alive].any()
        np.testing.assert_array_equal(rows.weight, alive)
        assert (np.asarray(rows.agent) == np.arange(3)).all()


def test_a_feature_that_never_changes_is_left_alone() -> None:
    spec = make_spec(2)
    traj = make_trajectory(spec, length=6)
    step = traj.step._replace(obs=traj.step.obs.at[..., 0].set(7.0))
    outcome = traj.outcome._replace(obs=traj.outcome.obs.at[..., 0].set(7.0))
    rows = agent_clusters.experience(spec, traj._replace(step=step, outcome=outcome))
    assert not np.asarray(rows.seen)[..., 0].any() and not np.asarray(rows.outcome)[..., 0].any()


def linear() -> Net:
    return Net(lambda key: (), lambda params, carry, x, first: (carry, x @ params), lambda batch: ())


def test_the_reconstruction_bound() -> None:
    """−ELBO of linear nets against numbers written out; a dead agent's row counts as a row of error 0."""
    rng, n, latent, batch = np.random.default_rng(0), 3, 2, 7
    w_enc, w_dec = rng.normal(size=(n, 2 * latent)), rng.normal(size=(latent + 4, 3))
    agent, seen, outcome = rng.integers(0, n, batch), rng.normal(size=(batch, 4)), rng.normal(size=(batch, 3))
    weight = np.array([1, 1, 0, 1, 1, 0, 1.0])
    kl_weight = 0.3
    params = jnp.array(w_enc, jnp.float32), jnp.array(w_dec, jnp.float32)
    arrays = (jnp.array(x, jnp.float32) for x in (seen, outcome, weight))
    rows = agent_clusters.TransitionBatch(jnp.array(agent, jnp.int32), *arrays)
    loss = agent_clusters.elbo_loss(kl_weight, agent_clusters.Autoencoder(linear(), linear()), n, params, rows, KEY)
    noise = np.asarray(jax.random.normal(KEY, (batch, latent)))
    total = 0.0
    for b in range(batch):
        mean, log_var = w_enc[agent[b], :latent], w_enc[agent[b], latent:]
        z = mean + np.exp(log_var / 2) * noise[b]
        error = ((np.concatenate([z, seen[b]]) @ w_dec - outcome[b]) ** 2).sum()
        kl = sum((np.exp(v) + m**2 - 1 - v) / 2 for m, v in zip(mean, log_var, strict=True))
        total += weight[b] * (error + 0.3 * kl)
    np.testing.assert_allclose(loss, total / batch, rtol=1e-5)


def test_kmeans_finds_clouds_however_they_are_ordered() -> None:
    rng = np.random.default_rng(1)
    kinds = rng.permutation(np.repeat(np.arange(5), (1, 2, 3, 4, 5)))
    points = (10 * np.eye(5)[kinds] + rng.normal(size=(15, 5))).astype(np.float32)
    assert agent_clusters.kmeans(points, 5, 0) == agent_clusters.in_order(kinds)
    assert agent_clusters.kmeans(points, 1, 0) == (0,) * 15
    assert agent_clusters.kmeans(points, 15, 0) == tuple(range(15))
    assert agent_clusters.in_order(np.array([7, 2, 7, 0])) == (0, 1, 0, 2)


def test_kmeans_of_coinciding_points_has_no_answer() -> None:
    points = np.zeros((4, 2), np.float32)
    assert agent_clusters.kmeans(points, 3, 0) is None and agent_clusters.kmeans(points, 4, 0) == (0, 1, 2, 3)


def test_cluster_centres() -> None:
    points = np.array([[0.0, 1.0], [2.0, 3.0], [10.0, 0.0]], np.float32)
    np.testing.assert_array_equal(agent_clusters.centres(points, (0, 0, 1)), [[1, 2], [1, 2], [10, 0]])
    np.testing.assert_array_equal(agent_clusters.centres(points, (0, 1, 2)), points)


def test_the_davies_bouldin_index() -> None:
    """Three clusters on a line: mean distances 1, 2 and 0 from centres at 1, 12 and 20."""
    points = np.array([[0.0], [2.0], [10.0], [14.0], [20.0]])
    ratios = np.array([[0, 3 / 11, 1 / 19], [3 / 11, 0, 2 / 8], [1 / 19, 2 / 8, 0]])
    assert np.isclose(agent_clusters.davies_bouldin(points, (0, 0, 1, 1, 2)), ratios.max(1).mean())
