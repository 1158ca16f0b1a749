"""SHAQ: Shapley Q-learning (Wang et al. 2022).

    min_θ,λ  E[ ( r + γ d Σ_i max_{a_i} Q_i(τ'^i, a_i; θ^-) − Σ_i δ_i(s, a) Q_i(τ^i, a_i; θ) )² ]
    δ_i = 1 if a_i maximises Q_i, otherwise  α_i(s, a) = 1 + (1/M) Σ_{k ≤ M} | F_λ(s; Q_{C_k}, Q_i) |
    Q_C = (1/|C|) Σ_{j ∈ C} Q_j, 0 for none,    C_k = the agents before i in the k-th of M random orders of all agents

so that a coalition C has the Shapley value's probability, |C|! (N − |C| − 1)! / N!. Each Q_i estimates the agent's
Markov Shapley value, and their sum the team's optimal value. F is QMIX's mixing network of two values, whose weights
come from hypernetworks of the state and are nonnegative. With every δ_i = 1 it would be VDN; here an action that is not
greedy has a weight above 1. All other stages are those of :mod:`shoal.algorithms.qmix`.

Deviations from the authors' code: coalitions are the paper's, while some of the code's contain the agent itself; dead
agents are in no coalition, and their terms are left out; an action as good as the best one has δ_i = 1 whichever of the
two the arg-max returns; those of qmix.py. As in the code, gradients of α_i reach the utilities, and the target is a
sum. Equations, options and results: docs/algorithms/shaq.md.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.algorithms import qmix
from shoal.bounds import Depth, Draws, Rate, Width
from shoal.equations.distributions import row_keys
from shoal.learning.config import check_options
from shoal.learning.replay import QConfig
from shoal.models.utilities import Mixer, mixer_input
from shoal.types import Algorithm, EnvSpec, PyTree, Scale, Step

make_policy = qmix.make_policy


@dataclass(frozen=True)
class Config(QConfig):
    """SHAQ's hyper-parameters. "Code" is the authors' repository, for StarCraft.

    Beside its own it has what :class:`shoal.algorithms.qmix.Config` says of pymarl.
    """

    mixer_input: Literal["state", "concat"] = "state"
    """What the hypernetworks read: the global ``state``, or ``concat``, all agents' observations. Code: state."""
    coalitions: Draws = 10
    """M: coalitions drawn for each agent and timestep. Code: 10."""
    alpha_learning_rate: Rate = 1e-3
    """Adam's step size for the hypernetworks. Code: 1e-3 (RMSprop)."""
    mixing_width: Width = 32
    """Width of the hidden layer of F. Code: 32."""
    hyper_width: Width = 64
    """Width of the hidden layer of the hypernetworks of F's weights. Code: 64."""
    hyper_layers: Depth = 2
    """Layers of those hypernetworks. Code: 2."""


def coalition_values(
    q: Float[Array, "*b N"], order: Float[Array, "*b M N"], alive: Bool[Array, "*b N"]
) -> Float[Array, "*b M N"]:
    """Q_C of the living agents before each agent, who are those with smaller numbers in ``order``."""
    before = (order[..., None, :] < order[..., :, None]) & alive[..., None, None, :]  # [*b M N N]: j before i
    return jnp.where(before, q[..., None, None, :], 0.0).sum(-1) / jnp.maximum(before.sum(-1), 1)


def estimate(
    of_coalition: Float[Array, "*b M N"],
    q: Float[Array, "*b N"],
    w1: Float[Array, "*b 2 H"],
    b1: Float[Array, "*b H"],
    w2: Float[Array, "*b H"],
    v: Float[Array, "*b"],
) -> Float[Array, "*b N"]:
    """(1/M) Σ_k |F(Q_{C_k}, Q_i)|, where F is :func:`shoal.algorithms.qmix.mix` of these two values."""
    w1, w2 = jnp.abs(w1), jnp.abs(w2)
    own = q[..., None] * w1[..., 1:, :] + b1[..., None, :]  # [*b N H], the same for all coalitions
    hidden = jax.nn.elu(of_coalition[..., None] * w1[..., None, :1, :] + own[..., None, :, :])
    return jnp.abs(jnp.einsum("...mnh,...h->...mn", hidden, w2) + v[..., None, None]).mean(-2)


def make_mixer(spec: EnvSpec, c: Config) -> Mixer:
    """Σ_i δ_i Q_i.

    Raises:
        InputError: the environment has no global state for the hypernetworks to read.
    """
    source = mixer_input(spec, c.mixer_input)
    nets = qmix.mixing_nets(source.width, 2, c.mixing_width, c.hyper_width, c.hyper_layers)

    def draw(key: PRNGKeyArray, step: Step) -> tuple[Float[Array, "L B M N"]]:
        length, size, n = step.alive.shape
        one = lambda key: jax.random.uniform(key, (length, c.coalitions, n))  # noqa: E731
        return (jax.vmap(one, out_axes=1)(row_keys(key, size)),)

    def apply(
        params: PyTree, q: Array, best: Array, action: Array, step: Step, order: Array | None = None
    ) -> Float[Array, "*b"]:
        if order is None:
            same = jax.random.uniform(jax.random.key(0), (c.coalitions, spec.num_agents))
            order = jnp.broadcast_to(same, (*q.shape[:-1], *same.shape))
        weights = nets.apply(params, source.features(step))
        alpha = 1 + estimate(coalition_values(q, order, step.alive), q, *weights)
        return (jnp.where(q < best, alpha, 1.0) * q).sum(-1)

    return Mixer(
        nets.init,
        apply,
        reads_state=c.mixer_input == "state",
        draw=draw,
        greedy=lambda q: q.sum(-1),
        learning_rate=c.alpha_learning_rate,
    )


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """SHAQ for an environment with discrete actions.

    Raises:
        InputError: actions are continuous, the environment has no global state for the hypernetworks to read, or an
            option is out of its range.
    """
    check_options(config)
    return qmix.make_q_learning(spec, config, scale, make_mixer(spec, config))
