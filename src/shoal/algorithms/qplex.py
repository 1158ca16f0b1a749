"""QPLEX: duplex dueling multi-agent Q-learning (Wang et al. 2021).

    V_i(s) = w_i(s) max_a Q_i(τ^i, a) + b_i(s),    A_i(s, u^i) = w_i(s) (Q_i(τ^i, u^i) − max_a Q_i(τ^i, a)),    w_i > 0
    Q_tot(s, u) = V_tot + A_tot = Σ_i V_i(s) + Σ_i λ_i(s, u) A_i(s, u^i),    λ_i > 0
    λ_i(s, u) = Σ_k υ_k(s) φ_{i,k}(s) λ_{i,k}(s, u),    υ_k > 0,    φ_{i,k}, λ_{i,k} in (0, 1)   (section 3.2, eq. 8–11)

As A_i ≤ 0 and λ_i > 0, Q_tot is largest where each agent's utility is. As λ_i depends on the whole joint action, every
Q_tot whose greedy joint action consists of the agents' greedy actions is possible, monotone or not. All other stages
are those of :mod:`shoal.algorithms.qmix`.

As in the authors' code, Q_tot = Σ_i (w_i Q_i + b_i) + Σ_i (λ_i − 1) A_i, and the A_i of the second sum are constants to
differentiation (``stop_gradient``): the same value, with another gradient. Deviations from it: one net outputs the
weights of all heads, where the code has one for each; no choice between λ and λ − 1; those of qmix.py. Equations,
options and results: docs/algorithms/qplex.md.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.algorithms import qmix
from shoal.bounds import Depth, Width
from shoal.learning.config import check_options
from shoal.learning.replay import QConfig
from shoal.models.utilities import Mixer, joint_action, mixer_input
from shoal.networks.hyper import hypernetwork, team_output
from shoal.types import Algorithm, EnvSpec, PyTree, Scale, Step

make_policy = qmix.make_policy

LEAST = 1e-10
"""Added to weights to keep them above 0."""


@dataclass(frozen=True)
class Config(QConfig):
    """QPLEX's hyper-parameters. "Paper" is Wang et al. 2021, "code" its repository, for StarCraft.

    Both have those of :class:`shoal.algorithms.qmix.Config` beside its own.
    """

    mixer_input: Literal["state", "concat"] = "state"
    """What the mixer reads: the global ``state``, or ``concat``, all agents' observations. Paper: state."""
    heads: Depth = 4
    """Attention heads, whose products are added to λ_i. Code: 4; 10 in matrix games."""
    hyper_width: Width = 64
    """Width of the hidden layer of the nets of w_i and b_i. Code: 64."""
    attention_width: Width = 64
    """Width of the hidden layers of the nets of λ_i. Code: 64."""
    attention_layers: Depth = 1
    """Layers of those nets. Code: 1, which is linear; 3 in matrix games."""
    stop_gradient: bool = True
    """Whether no gradient passes through the A_i that are multiplied by λ_i − 1. Code: yes."""


def weights(
    key: Float[Array, "*b K"], agents: Float[Array, "*b N K"], actions: Float[Array, "*b N K"]
) -> Float[Array, "*b N"]:
    """λ_i(s, u) = Σ_k |υ_k| σ(φ_{i,k}) σ(λ_{i,k}) (Wang et al. 2021, eq. 11)."""
    return ((jnp.abs(key) + LEAST)[..., None, :] * jax.nn.sigmoid(agents) * jax.nn.sigmoid(actions)).sum(-1)


def mix(
    q: Float[Array, "*b N"],
    best: Float[Array, "*b N"],
    w: Float[Array, "*b N"],
    b: Float[Array, "*b N"],
    lam: Float[Array, "*b N"],
    alive: Bool[Array, "*b N"],
    stop_gradient: bool,
) -> Float[Array, "*b"]:
    """Q_tot = Σ_i (w_i Q_i + b_i) + Σ_i (λ_i − 1) A_i over living agents (Wang et al. 2021, eq. 10)."""
    w = jnp.abs(w) + LEAST
    advantage = w * (q - best)
    if stop_gradient:
        advantage = jax.lax.stop_gradient(advantage)
    return jnp.where(alive, w * q + b + (lam - 1) * advantage, 0.0).sum(-1)


def make_mixer(spec: EnvSpec, c: Config) -> Mixer:
    """QPLEX's duplex dueling network.

    Raises:
        InputError: the environment has no global state for the mixer to read.
    """
    source = mixer_input(spec, c.mixer_input)
    n, actions, heads = spec.num_agents, spec.action.width, c.heads
    attention = c.attention_width, c.attention_layers
    nets = {
        "w": hypernetwork(source.width, n, c.hyper_width, 2),
        "b": hypernetwork(source.width, n, c.hyper_width, 2),
        "key": hypernetwork(source.width, heads, *attention),
        "agents": hypernetwork(source.width, n * heads, *attention),
        "actions": hypernetwork(source.width + n * actions, n * heads, *attention),
    }

    def init(key: PRNGKeyArray) -> PyTree:
        keys = jax.random.split(key, len(nets))
        return {name: net.init(k) for (name, net), k in zip(nets.items(), keys, strict=True)}

    def apply(params: PyTree, q: Array, best: Array, action: Array, step: Step) -> Float[Array, "*b"]:
        def made(name: str, x: Array) -> Array:
            return team_output(nets[name], params[name], x)

        x = source.features(step)
        u = joint_action(action, step.alive, actions).reshape(*x.shape[:-1], n * actions)
        shape = (*x.shape[:-1], n, heads)
        of_agents, of_actions = made("agents", x), made("actions", jnp.concatenate([x, u], axis=-1))
        lam = weights(made("key", x), of_agents.reshape(shape), of_actions.reshape(shape))
        return mix(q, best, made("w", x), made("b", x), lam, step.alive, c.stop_gradient)

    return Mixer(init, apply, reads_state=c.mixer_input == "state")


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """QPLEX for an environment with discrete actions.

    Raises:
        InputError: actions are continuous, the environment has no global state for the mixer to read, or an
            option is out of its range.
    """
    check_options(config)
    return qmix.make_q_learning(spec, config, scale, make_mixer(spec, config))
