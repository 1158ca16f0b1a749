"""MAT: the team's joint action is a sequence, decoded agent by agent (Wen et al. 2022).

    L(φ) = E_{m,t}[ max(ℓ(V_φ(ô^{i_m}) − R), ℓ(clip(V_φ, V_old ± ε) − R)) ]                       (eq. 4, clipped)
    L(θ) = −E_{m,t}[ min(r^{i_m} Â, clip(r^{i_m}, 1 ± ε) Â) ],                                       (eq. 5)
           r^{i_m} = π_θ(a^{i_m} | ô^{i_1:n}, a^{i_1:m−1}) / π_old(a^{i_m} | ô^{i_1:n}, a^{i_1:m−1})

The encoder turns observations into representations ô and values, the decoder gives agent i_m its distribution from all
of ô and the actions of the agents before it; L(φ) + L(θ) − σ S is minimised by one optimiser. Acting caches keys and
values, one row per agent; training decodes all agents at once. Deviations from the authors' code: time limits
bootstrap, the global state can be read, the order can be random, continuous actions begin with a start flag and have
one ratio per agent, V of a dead agent is :mod:`shoal.algorithms.mappo`'s. All of them, with equations, options and
results: docs/algorithms/mat.md.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.algorithms.mappo import clipped_loss
from shoal.bounds import Depth, Positive
from shoal.equations.distributions import Distribution
from shoal.equations.reduce import explained_variance, standardise
from shoal.equations.returns import gae
from shoal.equations.surrogate import clipped_value_loss
from shoal.equations.targets import cut_off, make_value_scale, on_unequal_rewards
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import PpoConfig, check_options, no_critic_network
from shoal.learning.optimiser import ByNet, frozen_parameters, optimiser, step_of_one
from shoal.models import on_policy
from shoal.models.actor_critic import Policy, acting_only
from shoal.models.on_policy import Batch
from shoal.models.sequence import SequenceTeam, make_sequence_team, team_input
from shoal.networks.body import Body
from shoal.networks.inputs import CriticInput, init_inputs
from shoal.networks.net import SequenceNet
from shoal.networks.sharing import policy_of
from shoal.networks.transformer import make_transformer
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Scale, Trajectory


@dataclass(frozen=True)
class Config(PpoConfig):
    """MAT's hyper-parameters. "Paper" is Wen et al. 2022 and its authors' scripts, for MPE.

    There ``learning_rate`` is 7e-4, ``gamma`` 0.99, ``lam`` 0.95, ``epochs`` 10, ``minibatches`` 1, ``entropy_coef``
    0.01, ``value_coef`` 1, ``huber`` 10, ``max_grad_norm`` 10 and ``adam_eps`` 1e-5.
    """

    network: Body = field(
        default_factory=lambda: Body(hidden=(64,), activation="gelu", layer_norm=True, input_layer_norm=True)
    )
    """``hidden`` layers embed each agent's input; the width of the last one is the transformer's. Paper: 64, GELU,
    norms."""
    blocks: Depth = 1
    """Blocks of the encoder and of the decoder. Paper: 1."""
    heads: Depth = 1
    """Heads of each attention layer. Paper: 1."""
    critic_input: CriticInput = "local"
    """What the encoder reads of each agent: ``local`` own observation, ``agent`` also the global state, ``pruned`` the
    state and the observation features that it lacks. With the state, acting needs it as well. Paper: local."""
    ratio: Literal["agent", "joint"] = "agent"
    """Clip each agent's ratio r^{i_m}, or their product, the ratio of the joint action. Paper: agent."""
    advantage: Literal["joint", "agent"] = "joint"
    """Â from the mean of the agents' values, or each agent's from its own. Paper: joint; code: agent."""
    order: Literal["fixed", "shuffled"] = "fixed"
    """Agents decode in the environment's order, or in an order drawn at each timestep (greedy: fixed). Paper: fixed."""

    clip: Positive = 0.05
    """ε of the clipped losses. Paper: 0.05."""
    value_clip: Positive | None = 0.05
    """ε of the clipped value loss, in normalised units; None for the plain loss. Paper: equal to clip."""


def log_ratio(c: Config, dist: Distribution, batch: Batch) -> Array:
    """log r^{i_m}, or with ``ratio="joint"`` its sum over living agents, for each agent.

    Each living agent then has the same term of the loss, so timesteps have the same weights as with a ratio per agent.
    """
    log_r = dist.log_prob(batch.action) - batch.extras["log_prob"]
    if c.ratio == "agent":
        return log_r
    joint = jnp.where(batch.step.alive, log_r, 0.0).sum(-1, keepdims=True)
    return jnp.broadcast_to(joint, log_r.shape)


def decoder_loss(
    c: Config, dist: Distribution, batch: Batch, entropy_coef: Array, kl_coef: Array
) -> tuple[Array, Metrics]:
    """L(θ) − σ S over one minibatch, and its metrics (eq. 5). The entropies' sum is an estimate of the joint one."""
    return clipped_loss(c, log_ratio(c, dist, batch), dist, batch, entropy_coef, kl_coef)


def joint_advantage(advantage: Float[Array, "T E N"], alive: Bool[Array, "T E N"]) -> Float[Array, "T E N"]:
    """Â from V̂ = mean of the agents' values (sec. 3.2): GAE is linear, so it is the mean of the agents' advantages."""
    mean = jnp.where(alive, advantage, 0.0).sum(-1, keepdims=True) / jnp.maximum(alive.sum(-1, keepdims=True), 1)
    return jnp.broadcast_to(mean, advantage.shape)


def check_team(spec: EnvSpec, c: Config, name: str) -> None:
    """Refuse what a network that acts for the whole team cannot do.

    Args:
        spec: the environment.
        c: hyper-parameters.
        name: of the algorithm, for messages.

    Raises:
        InputError: it is asked for a recurrent layer, several policies, another network, a critic of its own or PopArt,
            or an option is out of its range.
    """
    check_options(c)
    if any(policy_of(spec, c.sharing)):
        raise InputError(
            f"{name} is one network that acts for the whole team: sharing must be 'shared', not {c.sharing!r}."
        )
    if c.network.recurrent:
        raise InputError(f"{name} cannot have a recurrent layer; mat_dec can have recurrent actors.")
    if c.network.network not in ("auto", "mlp"):
        raise InputError(f"{name} is a network over agents, so it cannot have the network {c.network.network!r}.")
    no_critic_network(c, f"{name} is one network for actors and critic")
    if c.value_norm == "popart":
        raise InputError(
            f"{name}'s values share their network with its policy: value_norm must be running or none, not popart."
        )
    if c.critic_learning_rate is not None:
        raise InputError(f"{name} has one network and one optimiser: leave out critic_learning_rate.")


def make_team(spec: EnvSpec, c: Config) -> SequenceTeam:
    """Encoder and decoder.

    Raises:
        InputError: as :func:`check_team`, or the encoder's input does not exist.
    """
    check_team(spec, c, "MAT")
    source = team_input(spec, c.critic_input, c.agent_id)

    def make_net(tokens: int, outputs: int, std: float | None) -> SequenceNet:
        return make_transformer(
            c.network, c.blocks, c.heads, spec.num_agents, source.width, tokens, outputs, c.output_gain, std
        )

    return make_sequence_team(
        spec, source, make_net, log_std=c.log_std, squash=c.squash, shuffled=c.order == "shuffled"
    )


def make(
    spec: EnvSpec, config: Config, scale: Scale, *, team: SequenceTeam | None = None, length: int | None = None
) -> Algorithm:
    """MAT for an environment.

    Args:
        spec: the environment's description.
        config: hyper-parameters.
        scale: sizes of the run.
        team: another network that decodes a team's actions; None for MAT's.
        length: timesteps of the sequences that it is trained on; None for single timesteps.

    Raises:
        InputError: minibatches do not divide the rollout, or as :func:`make_team`.
    """
    c, team = config, team or make_team(spec, config)
    sgd.check_items(scale, c.minibatches, length)
    steps, frozen = [scale.num_updates * c.epochs * c.minibatches], frozen_parameters(c, team.init)
    adam = optimiser(c.learning_rate, c.lr_final, steps, c.max_grad_norm, c.adam_eps, frozen.actor)
    values = make_value_scale(c.value_norm, c.value_norm_beta)

    def init(key: PRNGKeyArray) -> Learner:
        theta = team.init(jax.random.split(key)[0])
        return on_policy.init_learner(spec, c, values, ByNet(theta), ByNet(adam.init(theta)))

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        # VALUES AND ADVANTAGES
        out, alive = traj.outcome, traj.step.alive
        v = on_policy.denormalise_values(spec, values, learner, traj, team.evaluate(learner, traj))
        advantage, target = gae(out.reward, out.discount, v.now, v.next, cut_off(traj), gamma=c.gamma, lam=c.lam)
        learner = on_policy.update_value_scale(values, learner, target, alive)
        of_all = joint_advantage(advantage, alive) if c.advantage == "joint" else advantage
        standard = standardise(c.normalise_advantage, of_all, alive)
        batch = on_policy.make_batch(c, values, learner, traj, v, standard, target, length)

        # LOSS
        sigma, kappa = on_policy.entropy_coef(c, learner, scale), learner.statistics.coefficients.kl

        def loss(params: PyTree, part: Batch) -> tuple[Array, Metrics]:
            pi, value = team.evaluate_actions(params, part.carry.actor, part.step, part.action, part.extras)
            loss_pi, metrics = decoder_loss(c, pi, part, sigma, kappa)
            error = clipped_value_loss(value, part.value, part.target, c.value_clip, c.huber)
            loss_v = jnp.sum(part.weight * error)  # L(φ)
            return loss_pi + c.value_coef * loss_v, metrics | {"value_loss": loss_v}

        # EPOCHS × MINIBATCHES
        joint = c.ratio == "joint"
        kl_stop = on_policy.kl_limit(spec, c.kl_stop, traj.step.legal, traj.step.alive, joint)
        theta, state, metrics = sgd.sgd(
            loss, step_of_one(adam, "actor_grad_norm"), learner.policy.actor, learner.optimiser.actor, batch, key,
            epochs=c.epochs, minibatches=c.minibatches, block=c.block, kl_stop=kl_stop,
        )  # fmt: skip
        learner = learner._replace(
            policy=learner.policy._replace(actor=theta), optimiser=learner.optimiser._replace(actor=state)
        )

        # END OF THE UPDATE
        def ratio(part: Batch) -> Array:
            pi, _ = team.evaluate_actions(theta, part.carry.actor, part.step, part.action, part.extras)
            return log_ratio(c, pi, part)

        metrics |= on_policy.kl_of_update(c, ratio, batch)
        metrics["explained_variance"] = explained_variance(advantage, target, alive)
        return on_policy.end_update(spec, c, scale, learner, traj, metrics, joint)

    inspect = team.make_inspect(values)
    return Algorithm(init, team.initial_carry, team.act, update, inspect=inspect, **facts(spec, c))


def facts(spec: EnvSpec, c: Config) -> dict[str, Any]:
    """What acting reads, and what is learned from: fields of :class:`shoal.types.Algorithm`."""
    unequal = on_unequal_rewards(spec, "the mean of the living agents' advantages") if c.advantage == "joint" else ""
    acts_on = "team" if c.critic_input == "local" else "state"
    return {"acts_on": acts_on, "unequal_rewards": unequal, "learns_from": "team", "stochastic": True}


def make_policy(spec: EnvSpec, config: Config, team: SequenceTeam | None = None) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make_team`.
    """
    c, team = config, team or make_team(spec, config)

    def init_policy(key: PRNGKeyArray) -> Policy:
        return Policy(team.init(jax.random.split(key)[0]), init_inputs(spec, c.normalise_inputs))

    return acting_only(init_policy, team.initial_carry, team.act, inspect=team.make_inspect(None), **facts(spec, c))
