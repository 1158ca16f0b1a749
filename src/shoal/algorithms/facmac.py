"""FACMAC: factored multi-agent centralised policy gradients (Peng et al. 2021).

    Q_tot(s, a) = g_ψ( s, Q_1(o_1, a_1), …, Q_N(o_N, a_N) )
    min E[ (Q_tot(s, a) − y)² ],   y = r + γ d Q_tot'(s', μ_1'(o_1'), …, μ_N'(o_N'))
    max_θ E_{s~D}[ Q_tot(s, μ_1(o_1), …, μ_N(o_N)) ]              with all actions from the current policies

g is QMIX's mixing network. No arg-max is taken over Q_tot, so that g need not be monotone: without ``monotone`` its
weights may be negative. Q_i is a net for each policy, of the agent's own observation and action. All actors take one
gradient step together; targets, critics' step and all else are :mod:`shoal.algorithms.haddpg`'s.

Deviations from the authors' code (oxwhirl/facmac): one clip of gradients for the Q_i, one for the mixer; the weight of
squared outputs is that of logits and for discrete actions only (the code has 1e-3 of squared continuous actions, too);
discrete actors learn from a buffer with n-step targets (the code: from episodes, with TD(λ)); dead agents have Q_i 0;
and those of :mod:`shoal.algorithms.haddpg`. Equations, options and results: docs/algorithms/facmac.md.
"""

from dataclasses import dataclass, field
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.algorithms import haddpg, qmix
from shoal.bounds import Depth, Fraction, Index, Positive, Rate, Size, Tiny, Width
from shoal.learning.optimiser import by_part
from shoal.learning.replay import check_windows
from shoal.models.deterministic import TeamCritics, make_critics
from shoal.models.utilities import mixer_input
from shoal.networks.body import Body
from shoal.networks.sharing import Sharing, policy_of
from shoal.types import Algorithm, EnvSpec, PyTree, Scale, Step

make_policy = haddpg.make_policy


@dataclass(frozen=True)
class Config(haddpg.ActorConfig):
    """FACMAC's hyper-parameters. "Code" is oxwhirl/facmac, for MA-MuJoCo."""

    sharing: Sharing | tuple[Index, ...] = "shared"
    """Which agents share actor and Q_i: ``independent``, ``role``, ``shared``, or a vector. Code: shared."""
    network: Body = field(default_factory=lambda: Body(hidden=(400, 400), activation="relu"))
    """Layers of actors and Q_i, which are feed-forward. Code: 400, 400, relu."""
    learning_rate: Rate = 1e-3
    """Adam's step size for actors. Code: 1e-3."""
    adam_eps: Tiny = 0.01
    """Adam's ε. Code: 0.01."""
    max_grad_norm: Positive | None = 0.5
    """Largest gradient norm of one actor, one Q_i or the mixer. Code: 0.5."""
    batch_size: Size = 100
    """Transitions per gradient step. Code: 100."""
    target_rate: Fraction | None = 0.001
    """τ: target networks move by this fraction at each gradient step. Code: 0.001."""
    critic_input: Literal["concat", "state"] = "state"
    """What the mixing network's weights depend on: the global ``state``, or ``concat``, all observations. Code:
    state."""
    monotone: bool = True
    """Whether the mixing network's weights are nonnegative. Code: yes; without it, its ablation."""
    mixing_width: Width = 64
    """Width of the mixing layer. Code: 64."""
    hyper_width: Width = 64
    """Width of the hidden layer of the networks of the mixing weights. Code: 64."""
    hyper_layers: Depth = 2
    """Layers of those networks. Code: 2."""


def make_factored_critic(spec: EnvSpec, c: Config) -> TeamCritics:
    """Q_tot; its parameters are ``utilities`` [P ...] and ``mixer`` [1 ...].

    Raises:
        InputError: the mixing network would read a state that the environment does not have.
    """
    n, index = spec.num_agents, policy_of(spec, c.sharing)
    utilities = make_critics(spec, c.critic_body, index, c.agent_id, kind="local")
    sizes = qmix.Config(
        mixer_input=c.critic_input, mixing_width=c.mixing_width, hyper_width=c.hyper_width, hyper_layers=c.hyper_layers
    )
    mixer_input(spec, c.critic_input, "critic_input")  # for its errors, which name this option
    mixer = qmix.make_mixer(spec, sizes, c.monotone)

    def init(key: PRNGKeyArray) -> PyTree:
        key_utilities, key_mixer = jax.random.split(key)
        return {"utilities": utilities.init(key_utilities), "mixer": mixer.init(key_mixer)}

    def value(params: PyTree, step: Step, joint: Array) -> Float[Array, "T E"]:
        every = jnp.broadcast_to(joint[..., None, :, :], (*joint.shape[:-1], n, joint.shape[-1]))
        q = jnp.where(step.alive, utilities.first(params["utilities"], step, every), 0.0)
        return mixer.apply(params["mixer"], q, q, q, step)

    return TeamCritics(
        init,
        lambda params, step, joint: value(params, step, joint)[..., None],
        value,
        lambda adam, frozen: by_part(adam, {"utilities": max(index) + 1, "mixer": 1}, frozen),
    )


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """FACMAC for a team.

    Raises:
        InputError: an option is out of its range, or needs what the environment does not have.
    """
    check_windows(config)
    return haddpg.make_ddpg(spec, config, scale, make_factored_critic(spec, config))
