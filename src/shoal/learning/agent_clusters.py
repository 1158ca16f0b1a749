"""Agents with similar experience, as in SePS (Christianos et al. 2021): encoder, decoder of transitions, k-means.

    max  E_{z ~ q(z|i)}[ log p(o', r | z, o, a) ] − β KL(q(z|i) ‖ N(0, 1)),    p Gaussian of fixed width         (ELBO)

The decoder does not read i, so z encodes how agent i's observations and rewards differ from those of other agents. The
agents' z are clustered by k-means, whose number of clusters the Davies-Bouldin index may choose.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.equations.reduce import mean_and_std
from shoal.networks.body import Body, build_body
from shoal.networks.inputs import observation_features
from shoal.networks.net import Net
from shoal.types import Discrete, EnvSpec, PyTree, Trajectory

HELD_OUT = 4
"""One in so many environments is held out from training, to evaluate codes."""


class TransitionBatch(NamedTuple):
    """Transitions of single agents, standardised; *b is any batch. Dead agents' rows and weights are zero."""

    agent: Int[Array, "*b"]
    seen: Float[Array, "*b O+A"]
    """o and a (one-hot where actions are discrete)."""
    outcome: Float[Array, "*b O+1"]
    """o' − o and r."""
    weight: Float[Array, "*b"]


class Autoencoder(NamedTuple):
    """q(z|i) and the mean of p(o', r | z, o, a); parameters are (encoder's, decoder's)."""

    encoder: Net
    decoder: Net

    def codes(self, params: PyTree, num_agents: int) -> tuple[Float[Array, "N Z"], Float[Array, "N Z"]]:
        """Mean and log variance of every agent's z."""
        mean, log_var = jnp.split(_call(self.encoder, params[0], jnp.eye(num_agents)), 2, axis=-1)
        return mean, log_var

    def error(self, params: PyTree, z: Float[Array, "*b Z"], rows: TransitionBatch) -> Float[Array, "*b"]:
        """−2 log p of each row up to a constant: its squared error, summed over features."""
        predicted = _call(self.decoder, params[1], jnp.concatenate([z, rows.seen], axis=-1))
        return rows.weight * jnp.square(predicted - rows.outcome).sum(-1)


def _call(net: Net, params: PyTree, x: Array) -> Array:
    return net.apply(params, (), x[None], jnp.zeros((1, 1), bool))[1][0]


def experience(spec: EnvSpec, traj: Trajectory) -> TransitionBatch:
    """The trajectory's transitions, [T, E, N]; weights are 0 from the step in which the agent dies on."""
    step, outcome = traj.step, traj.outcome
    seen, led_to = observation_features(spec, step.obs), observation_features(spec, outcome.obs)
    weight = step.alive & outcome.alive
    action = jax.nn.one_hot(traj.action, spec.action.n) if isinstance(spec.action, Discrete) else traj.action

    def standardised(*columns: Array) -> Array:
        x = jnp.where(weight[..., None], jnp.concatenate(columns, axis=-1), 0.0)
        mean, std = mean_and_std(x, weight[..., None], (0, 1, 2))
        return jnp.where(weight[..., None], (x - mean) / jnp.where(std > 1e-6, std, 1.0), 0.0)

    return TransitionBatch(
        jnp.broadcast_to(jnp.arange(spec.num_agents), weight.shape),
        standardised(seen, action),
        standardised(led_to - seen, outcome.reward[..., None]),
        weight.astype(jnp.float32),
    )


class Pretraining(NamedTuple):
    """How the autoencoder is trained."""

    latent: int
    """Width of z."""
    kl_weight: float
    """β."""
    updates: int
    """Gradient steps."""
    batch: int
    """Transitions of single agents in each of them."""
    rate: float
    """Adam's step size at the start; it decreases linearly to 0."""


def elbo_loss(
    kl_weight: float, nets: Autoencoder, num_agents: int, params: PyTree, rows: TransitionBatch, key: PRNGKeyArray
) -> Float[Array, ""]:
    """−ELBO of a batch [b], its squared errors not halved, as in the authors' code."""
    mean, log_var = nets.codes(params, num_agents)
    kl = -0.5 * (1 + log_var - mean**2 - jnp.exp(log_var)).sum(-1)  # KL(q(z|i) ‖ N(0, 1)) of every agent
    mean, log_var, kl = mean[rows.agent], log_var[rows.agent], kl[rows.agent]
    z = mean + jnp.exp(0.5 * log_var) * jax.random.normal(key, mean.shape)
    return jnp.mean(nets.error(params, z, rows) + rows.weight * kl_weight * kl)


def fit(c: Pretraining, nets: Autoencoder, num_agents: int, rows: TransitionBatch, key: PRNGKeyArray) -> PyTree:
    """Parameters of the autoencoder after training on batches drawn from ``rows`` [R] with replacement."""
    key_encoder, key_decoder, key_train = jax.random.split(key, 3)
    adam = optax.adam(optax.linear_schedule(c.rate, 0.0, c.updates))

    def descend(state: tuple[PyTree, PyTree], key: PRNGKeyArray) -> tuple[tuple[PyTree, PyTree], None]:
        params, opt = state
        key_rows, key_z = jax.random.split(key)
        drawn = jax.random.randint(key_rows, (c.batch,), 0, rows.weight.size)
        batch = jax.tree.map(lambda x: x[drawn], rows)
        gradient = jax.grad(elbo_loss, argnums=3)(c.kl_weight, nets, num_agents, params, batch, key_z)
        updates, opt = adam.update(gradient, opt)
        return (optax.apply_updates(params, updates), opt), None

    params = nets.encoder.init(key_encoder), nets.decoder.init(key_decoder)
    start = params, adam.init(params)
    return jax.lax.scan(descend, start, jax.random.split(key_train, c.updates))[0][0]


CodeError = Callable[[Float[np.ndarray, "N Z"]], Float[np.ndarray, "E N"]]
"""One code for each agent -> its mean held-out error in each environment."""


def encode(
    spec: EnvSpec, c: Pretraining, traj: Trajectory, key: PRNGKeyArray
) -> tuple[Float[np.ndarray, "N Z"], CodeError]:
    """Every agent's mean of z, and a function that evaluates other codes."""
    n, actions = spec.num_agents, spec.action.width
    # With a small output layer all agents have nearly the same code at first.
    encoder = build_body(Body((64,), "relu"), n, 2 * c.latent, output_gain=0.01)
    decoder = build_body(Body((64, 64), "relu"), c.latent + spec.feature_dim + actions, spec.feature_dim + 1)
    nets, held = Autoencoder(encoder, decoder), max(1, traj.step.first.shape[1] // HELD_OUT)

    @jax.jit
    def train(traj: Trajectory, key: Array) -> tuple[PyTree, Array, TransitionBatch]:
        rows = experience(spec, traj)
        params = fit(c, nets, n, jax.tree.map(lambda x: x[:, held:].reshape(-1, *x.shape[3:]), rows), key)
        return params, nets.codes(params, n)[0], jax.tree.map(lambda x: jnp.swapaxes(x[:, :held], 0, 1), rows)

    @jax.jit
    def error_of(params: PyTree, kept: TransitionBatch, codes: Array) -> Array:
        def one(rows: TransitionBatch) -> Array:
            z = jnp.broadcast_to(codes, (*rows.weight.shape, c.latent))
            return nets.error(params, z, rows).sum(0) / jnp.maximum(rows.weight.sum(0), 1.0)

        return jax.lax.map(one, kept)

    params, codes, kept = train(traj, key)
    return np.asarray(codes), lambda codes: np.asarray(error_of(params, kept, jnp.asarray(codes)))


STARTS = 10
"""Runs of k-means from different starts; the result has the smallest sum of squared distances."""


def kmeans(points: Float[np.ndarray, "N Z"], clusters: int, seed: int) -> tuple[int, ...] | None:
    """Each point's cluster, numbered in the order in which they first appear; None where there is no solution.

    k-means++ (Arthur & Vassilvitskii 2007) from :data:`STARTS` starts. There is no solution for fewer
    distinct points than clusters, or if every start leaves a cluster empty. With as many clusters as points, each point
    is one.
    """
    from scipy.cluster.vq import ClusterError, kmeans2  # slow to import, and acting does without it

    if clusters == len(points):
        return tuple(range(clusters))
    if clusters > len(np.unique(points, axis=0)):
        return None
    best, tightest = None, np.inf
    for rng in np.random.default_rng(seed).spawn(STARTS):
        try:
            centres, labels = kmeans2(points, clusters, iter=50, minit="++", missing="raise", rng=rng)
        except ClusterError:
            continue
        spread = np.square(points - centres[labels]).sum()
        if spread < tightest:
            best, tightest = labels, spread
    return None if best is None else in_order(best)


def in_order(labels: Int[np.ndarray, " N"]) -> tuple[int, ...]:
    """The same clusters, numbered 0, 1, … in the order in which they first appear."""
    seen = list(dict.fromkeys(labels.tolist()))
    return tuple(seen.index(label) for label in labels.tolist())


def centres(points: Float[np.ndarray, "N Z"], labels: tuple[int, ...]) -> Float[np.ndarray, "N Z"]:
    """Each point's cluster centre."""
    member = np.eye(max(labels) + 1)[list(labels)]
    return (member @ (member.T @ points / member.sum(0)[:, None])).astype(points.dtype)


def davies_bouldin(points: Float[np.ndarray, "N Z"], labels: tuple[int, ...]) -> float:
    """Mean over clusters of the worst (s_i + s_j) / d_ij: mean distances from the centres over the centres' distance.

    Smaller is better. It needs at least two clusters, and falls to 0 where each has one point.

    Source: Davies & Bouldin 1979, A cluster separation measure, definition 5 with p = q = 2 in the form in common use.
    """
    where = np.array(labels)
    middle = np.stack([points[where == k].mean(0) for k in range(where.max() + 1)])
    spread = np.array([np.linalg.norm(points[where == k] - m, axis=1).mean() for k, m in enumerate(middle)])
    apart = np.linalg.norm(middle[:, None] - middle, axis=-1)
    np.fill_diagonal(apart, np.inf)
    return float(((spread[:, None] + spread) / apart).max(1).mean())
