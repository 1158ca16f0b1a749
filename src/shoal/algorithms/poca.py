"""MA-POCA: multi-agent posthumous credit assignment (Cohen et al. 2022).

    V(s) = v( RSA({g(o_j)}_j) ),    b_i(s, a^{-i}) = v( RSA({g(o_i)} ∪ {f(o_j, a_j)}_{j ≠ i}) )    over living agents j
    min_φ  E[ max(ℓ(V − y), ℓ(clip(V, V_old ± ε) − y)) + c_b max(ℓ(b_i − y), ℓ(clip(b_i, b_old ± ε) − y)) ]
    max_θ  E[ min(r_i A_i, clip(r_i, 1 ± ε) A_i) + σ S(π_i) ],    A_i = y − b_i

with y the team's λ-return, which goes on after the death of agent i, so that it learns from what its team earns
afterwards. RSA is residual self-attention over a set, whose size may change from step to step: no input stands for a
dead agent. The baseline b_i does not depend on a_i. All other stages are those of :mod:`shoal.algorithms.mappo`.

Deviations from the authors' code (Unity ML-Agents): a team has one λ-return, of the mean of its agents' rewards and
with V of living agents, where the code adds rewards up, and ends the return of an agent that leaves with V of its last
observation and of the agents that stay; the critic reads one timestep, where the code's is recurrent if actors are, and
by default ids of agents; the number of living agents is divided by the number in the team, not by the largest one seen;
norms have scales and biases, and scores are divided by the root of a head's width; a ratio is that of the whole action;
actors and critic have each an optimiser and a clip of gradients, and ε and σ need not decay; values are learned on
normalised targets (``value_norm``), as in mappo.py. Equations and options: docs/algorithms/poca.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.algorithms import mappo
from shoal.bounds import Depth, Positive, Weight
from shoal.equations.returns import gae
from shoal.equations.surrogate import clipped_value_loss
from shoal.equations.targets import learned_from, team_mean, team_reward
from shoal.errors import InputError
from shoal.learning.config import EpochsConfig, ValueConfig, check_options, no_critic_network
from shoal.models import actor_critic
from shoal.models.actor_critic import ActorCritic, Critic, make_actor, make_actor_critic
from shoal.models.on_policy import Batch, TrajectoryValues
from shoal.models.sequence import team_input
from shoal.networks.inputs import CriticInput, encode_actions, normalised
from shoal.networks.layers import (
    apply_linear,
    attend,
    init_attention,
    init_layers,
    init_linear,
    init_norm,
    layer_norm,
    layers,
)
from shoal.networks.sharing import policy_of
from shoal.networks.transformer import check_transformer
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Step, Trajectory


@dataclass(frozen=True)
class Config(mappo.Config):
    """MA-POCA's hyper-parameters. "Code" is Unity ML-Agents, with the settings of Push Block. The layers of ``network``
    make the actors; those of the critic follow the attention, whose width is that of the first one.

    The code has ``hidden`` 256 256, ``activation`` silu, ``learning_rate`` 3e-4, ``epochs`` 3, and neither
    ``value_norm`` nor ``huber``.
    """

    critic_input: CriticInput = "local"
    """What g and f read of each agent: ``local`` own observation, ``agent`` also the global state, ``pruned`` the state
    and the observation features that it lacks. Code: local."""
    heads: Depth = 1
    """Heads of the attention. Code: 4."""
    baseline_coef: Weight = 0.5
    """Weight c_b of the baseline's loss, relative to that of V. Code: 0.5."""
    value_clip: Positive | None = 0.2
    """ε of the clipped losses of V and b, in normalised units; None for the plain losses. Code: 0.2."""


class Entities(NamedTuple):
    """What each entity brings into the attention, before it depends on others."""

    features: Float[Array, "*b N D"]
    query: Float[Array, "*b N D"]
    memory: Float[Array, "*b N D2"]
    """Keys and values."""


class SetCritic(NamedTuple):
    """V and the agents' baselines, from one net over sets of agents. Parameters have a leading axis P = 1."""

    init: Callable[[PRNGKeyArray], PyTree]
    values: Callable[[PyTree, PyTree, Step], tuple[PyTree, Float[Array, "*b N"]]]
    """See :class:`shoal.models.actor_critic.Critic`; V(s) is the same for all agents."""
    baselines: Callable[[PyTree, Step, Array], Float[Array, "*b N"]]
    """(params, normalised step [*b ...], actions [*b N ...]) -> b_i of every agent."""


def make_set_critic(spec: EnvSpec, c: Config) -> SetCritic:
    """V and b.

    Raises:
        InputError: the critic's input is the same for all agents, the environment lacks it, ``hidden`` is empty, or
            heads do not divide its first width.
    """
    source = team_input(spec, c.critic_input, c.agent_id)
    body, n, action = c.network, spec.num_agents, spec.action
    check_transformer(replace(body, hidden=body.hidden[:1]), c.heads)
    width = body.hidden[0]

    def init(key: PRNGKeyArray) -> PyTree:
        own, other, attention, hidden, head = jax.random.split(key, 5)
        params = {
            "input_norm": [init_norm(source.width)] if body.input_layer_norm else [],
            "embed": init_layers(own, body, (source.width, width)),
            "embed_with_action": init_layers(other, body, (source.width + action.width, width)),
            "embedding_norm": init_norm(width),
            "attention": init_attention(attention, body, width, 1.0),
            "residual_norm": init_norm(width),
            "hidden": init_layers(hidden, body, (width, *body.hidden)),
            "head": init_linear(head, body, body.hidden[-1] + 1, 1, 1.0),
        }
        return jax.tree.map(lambda x: x[None], params)

    def entities(params: PyTree, embed: PyTree, x: Float[Array, "*b N F"]) -> Entities:
        rows = layers(embed, body, x.reshape(-1, x.shape[-1]))
        rows = layer_norm(params["embedding_norm"], rows)
        p = params["attention"]
        parts = rows, apply_linear(p["query"], rows), apply_linear(p["memory"], rows)
        return Entities(*(part.reshape(*x.shape[:-1], -1) for part in parts))

    def of_set(params: PyTree, found: Entities, present: Bool[Array, "*b N"]) -> Float[Array, "*b"]:
        """v(RSA(·)) of the entities that are present."""
        mask = present.reshape(-1, 1, n)
        near = attend(found.query.reshape(-1, n, width), found.memory.reshape(-1, n, 2 * width), mask, c.heads)
        rows = apply_linear(params["attention"]["output"], near.reshape(-1, width)) + found.features.reshape(-1, width)
        rows = layer_norm(params["residual_norm"], rows).reshape(-1, n, width)
        count = mask.sum(-1)
        pooled = jnp.where(mask[:, 0, :, None], rows, 0.0).sum(1) / jnp.maximum(count, 1)
        last = jnp.concatenate([layers(params["hidden"], body, pooled), 2.0 * count / n - 1.0], axis=-1)
        return apply_linear(params["head"], last).reshape(present.shape[:-1])

    def seen(params: PyTree, step: Step) -> tuple[PyTree, Float[Array, "*b N F"]]:
        one, x = jax.tree.map(lambda x: x[0], params), source.features(step)
        for norm in one["input_norm"]:
            x = layer_norm(norm, x)
        return one, x

    def values(params: PyTree, carry: PyTree, step: Step) -> tuple[PyTree, Array]:
        one, x = seen(params, step)
        v = of_set(one, entities(one, one["embed"], x), step.alive)
        return carry, jnp.broadcast_to(v[..., None], step.alive.shape)

    def baselines(params: PyTree, step: Step, u: Array) -> Array:
        one, x = seen(params, step)
        own = entities(one, one["embed"], x)
        with_action = jnp.concatenate([x, encode_actions(action, u, step)], axis=-1)
        other = entities(one, one["embed_with_action"], with_action)

        @jax.checkpoint
        def of_agent(i: Array) -> Array:
            itself = jnp.arange(n) == i
            found = jax.tree.map(lambda a, b: jnp.where(itself[:, None], a, b), own, other)
            return of_set(one, found, step.alive | itself)

        return jnp.moveaxis(jax.lax.map(of_agent, jnp.arange(n)), 0, -1)  # N sets after one another, not N² entities

    return SetCritic(init, values, baselines)


def team_returns(c: ValueConfig, traj: Trajectory, v: TrajectoryValues) -> tuple[Array, Array]:
    """(y − V, y): y of the team, the same for all its agents, in the rewards' units [T, E, N]."""
    alive = traj.step.alive
    now, then = team_mean(v.now, alive), team_mean(v.next, traj.outcome.alive)
    found = gae(*team_reward(traj), now, then, traj.outcome.last, gamma=c.gamma, lam=c.lam)
    a, y = (jnp.broadcast_to(x[..., None], alive.shape) for x in found)
    return a, y


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """MA-POCA for an environment.

    Raises:
        InputError: minibatches or chunks do not divide the rollout, the critic's input does not exist or is the same
            for all agents, the option ``baseline`` is not ``value``, ``dead_value`` is not ``team``, or an option is
            out of its range.
    """
    c = config
    _check(c)
    critic, index = make_set_critic(spec, c), policy_of(spec, c.sharing)
    actor = make_actor(spec, c.network, index, c.agent_id, c.output_gain, c.log_std, c.squash)
    team = Critic(critic.init, lambda num_envs: (), critic.values, (0,) * spec.num_agents, 1)

    def baseline(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> Float[Array, "T E N"]:
        """b_i, in the critic's units."""
        return critic.baselines(learner.critic, normalised(learner.policy.inputs, traj.step), traj.action)

    def critic_loss(c: EpochsConfig, nets: ActorCritic, params: PyTree, batch: Batch) -> tuple[Array, Metrics]:
        """The losses of V and of b on the same targets."""
        loss_v, metrics = mappo.value_loss(c, nets, params, batch)
        b = critic.baselines(params, batch.step, batch.action)
        loss_b = clipped_value_loss(b, batch.extras["baseline"], batch.target, c.value_clip, c.huber)
        loss_b = jnp.sum(batch.weight * loss_b)
        return loss_v + config.baseline_coef * loss_b, metrics | {"baseline_loss": loss_b}

    nets = make_actor_critic(actor, team)
    made = mappo.make(spec, c, scale, critic_loss=critic_loss, advantage=team_returns, baseline=baseline, nets=nets)
    return made._replace(**learned_from(spec, team=True))


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    _check(config)
    return actor_critic.make_policy(spec, config, **learned_from(spec, team=True))


def _check(c: Config) -> None:
    check_options(c)
    if c.baseline != "value":
        raise InputError(f"MA-POCA has a baseline of its own: the option baseline must be value, not {c.baseline!r}.")
    if c.dead_value != "team":
        raise InputError(f"MA-POCA's critic reads living agents alone: dead_value must be team, not {c.dead_value!r}.")
    no_critic_network(c, "MA-POCA's critic attends over agents")
