"""MAPPO: multi-agent PPO with a centralised critic (Yu et al. 2022); with ``critic_input="local"`` it is IPPO.

    max_θ  E[ min(r A, clip(r, 1 ± ε) A) + σ S(π_θ) − κ KL(π_old ‖ π_θ) ]      (Yu et al. 2022, appendix A, L(θ))
    min_φ  E[ max(ℓ(V_φ − R), ℓ(clip(V_φ, V_old ± ε) − R)) ]                    (Yu et al. 2022, appendix A, L(φ))

with r = π_θ(a|o) / π_old(a|o), A from GAE (Schulman et al. 2016, eq. 16) and R = A + V, every mean taken over alive
agents. Values are learned on normalised targets. Deviations from the authors' code: a time limit bootstraps; value
statistics change once per update, before the losses that read them; V(s) is one output per agent where rewards differ.
Equations, options and results: docs/algorithms/mappo.md.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.algorithms import _ppo
from shoal.algorithms._actor_critic import (
    Carry,
    Evaluation,
    Inputs,
    Policy,
    init_inputs,
    make_actor,
    make_actor_critic,
    make_critic,
    normalised,
    update_inputs,
)
from shoal.algorithms._values import Stats, ValueNorm, make_value_scale
from shoal.equations.distributions import Distribution
from shoal.equations.gae import gae
from shoal.equations.reduce import mean_and_std
from shoal.equations.surrogate import clip_fraction, clipped_surrogate, clipped_value_loss, kl_penalty
from shoal.networks.body import Body
from shoal.networks.inputs import CriticInput
from shoal.networks.sharing import Sharing, policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, Scale, Trajectory


@dataclass(frozen=True)
class Config:
    """MAPPO's hyper-parameters. "Paper" is Yu et al. 2022, Tables 7–15, for MPE; "code" its authors' repository."""

    critic_input: CriticInput = "concat"
    """What V reads: ``local`` (IPPO), ``concat`` (CL), ``state`` (EP), ``agent`` (AS) or ``pruned`` (FP). Paper: AS/FP
    in SMAC, CL in MPE."""
    sharing: Sharing | tuple[int, ...] = "shared"
    """Which agents share parameters: ``shared``, ``role``, ``independent``, or an index vector such as (0, 0, 1)."""
    agent_id: bool = True
    """Append a one-hot id to what agents with shared parameters read."""
    network: Body = field(default_factory=Body)
    """Layers of actors and critics. Paper: 64 wide."""
    output_gain: float = 0.01
    """Gain of the actor's orthogonal output layer. Paper: 0.01."""
    log_std: float = -0.5
    """Initial log standard deviation of a Gaussian policy, in units of half the action box."""
    squash: bool = False
    """Squash Gaussian actions into their box with tanh instead of clipping them on their way out."""
    normalise_inputs: bool = False
    """Bring observations and state to zero mean and unit variance with running statistics."""

    gamma: float = 0.99
    """Discount γ per step. Paper: 0.99."""
    lam: float = 0.95
    """GAE's λ. Paper: 0.95."""
    clip: float = 0.2
    """ε of the clipped policy loss. Paper: 0.2 (0.05 on hard SMAC maps)."""
    dual_clip: float | None = None
    """c > 1: bounds the objective from below by c·A where A < 0 (Ye et al. 2020, eq. 5)."""
    value_clip: float | None = 0.2
    """ε of the clipped value loss, in normalised units; None for the plain loss. Paper: equal to clip."""
    huber: float | None = 10.0
    """Width δ of the Huber value loss, in normalised units; None for ½e². Paper: 10."""
    value_coef: float = 1.0
    """Weight of the value loss (it matters only through the gradient-norm clip and Adam's ε). Paper: 1."""
    value_norm: ValueNorm = "running"
    """Scale of the value targets: ``running`` statistics, ``popart`` or ``none``. Paper: running."""
    value_norm_beta: float = 0.99999
    """Decay per update of the value statistics. Code: 0.99999."""
    normalise_advantage: Literal["batch", "agent", "none"] = "batch"
    """Standardise advantages over the whole batch, or for each agent by itself (rivals on different scales)."""
    entropy_coef: float = 0.01
    """Weight σ of the entropy bonus. Paper: 0.01."""
    entropy_final: float | None = None
    """If given, σ goes linearly from entropy_coef to this over the run."""
    target_entropy: float | None = None
    """If given (nats per agent), σ is adapted so that the policies' entropy approaches it, starting at entropy_coef."""
    target_entropy_rate: float = 0.05
    """Step of log σ per update and nat when target_entropy is given."""
    kl_coef: float = 0.0
    """Weight κ of the soft trust-region penalty KL(π_old ‖ π) (Hsu et al. 2020)."""
    kl_target: float | None = None
    """If given, κ is doubled or halved when KL leaves [target/1.5, 1.5·target] (Schulman et al. 2017, eq. 8)."""

    learning_rate: float = 7e-4
    """Adam's step size for actors. Paper: 7e-4."""
    critic_learning_rate: float | None = None
    """Adam's step size for critics; None for the actors'."""
    lr_final: float = 1.0
    """Both rates go linearly to this fraction of themselves over the run: 1 constant, 0 annealed away. Paper: 1."""
    adam_eps: float = 1e-5
    """Adam's ε. Paper: 1e-5."""
    max_grad_norm: float | None = 10.0
    """Largest gradient norm of one policy or critic; None for no clip. Paper: 10."""
    epochs: int = 10
    """Passes over each batch. Paper: 5 to 15."""
    minibatches: int = 1
    """Minibatches per pass. Paper: 1."""
    chunk_length: int = 16
    """L: recurrent nets are trained on chunks of this many steps; it must divide the roll-out. Paper: 10."""
    recompute_advantages: bool = False
    """Recompute values and advantages with the current critic before every epoch but the first (Andrychowicz et al.
    2021); the value clip then holds each epoch near where it began."""
    block: int = 1024
    """Most rows (moments × agents) whose activations are held at once, to fit a core's cache; changes no result."""


class Statistics(NamedTuple):
    """What the update keeps beside parameters."""

    value: Stats
    log_entropy_coef: Float[Array, ""]
    kl_coef: Float[Array, ""]


def policy_loss(
    c: Config, dist: Distribution, batch: _ppo.Batch, entropy_coef: Array, kl_coef: Array
) -> tuple[Array, Metrics]:
    """−L(θ) over one minibatch, and its metrics (Yu et al. 2022, appendix A)."""
    log_ratio = dist.log_prob(batch.action) - batch.log_prob  # log r_{θ,i}
    surrogate = clipped_surrogate(log_ratio, batch.advantage, c.clip, c.dual_clip)
    entropy, kl = dist.entropy(), kl_penalty(log_ratio)
    loss = -jnp.sum(batch.weight * (surrogate + entropy_coef * entropy - kl_coef * kl))
    clipped = clip_fraction(log_ratio, c.clip)
    metrics = {"policy_loss": -surrogate, "entropy": entropy, "kl": kl, "clip_fraction": clipped}
    return loss, {name: jnp.sum(batch.weight * x) for name, x in metrics.items()}


def value_loss(c: Config, value: Array, batch: _ppo.Batch) -> Array:
    """L(φ) over one minibatch (Yu et al. 2022, appendix A)."""
    return jnp.sum(batch.weight * clipped_value_loss(value, batch.value, batch.target, c.value_clip, c.huber))


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """MAPPO for an environment.

    Raises:
        InputError: minibatches or chunks do not divide the roll-out, the critic input does not exist, or an option is
            out of its range.
    """
    c, index = config, policy_of(spec, config.sharing)
    _ppo.check_options(c)
    chunk = c.chunk_length if c.network.recurrent else 1
    _ppo.check_items(scale, c.minibatches, c.chunk_length if c.network.recurrent else None)
    actor = make_actor(spec, c.network, index, c.agent_id, c.output_gain, c.log_std, c.squash)
    critic = make_critic(spec, c.network, c.critic_input, index, c.agent_id)
    nets = make_actor_critic(actor, critic)
    values = make_value_scale(c.value_norm, critic.group_of, c.value_norm_beta)
    gradient_steps = scale.num_updates * c.epochs * c.minibatches
    actor_adam = _ppo.optimiser(c.learning_rate, c.lr_final, gradient_steps, c.max_grad_norm, c.adam_eps)
    critic_rate = c.learning_rate if c.critic_learning_rate is None else c.critic_learning_rate
    critic_adam = _ppo.optimiser(critic_rate, c.lr_final, gradient_steps, c.max_grad_norm, c.adam_eps)

    def init(key: PRNGKeyArray) -> Learner:
        key_actor, key_critic = jax.random.split(key)
        policy = Policy(actor.init(key_actor), init_inputs(spec, c.normalise_inputs))
        params = critic.init(key_critic)
        statistics = Statistics(values.init(), jnp.log(jnp.float32(c.entropy_coef + 1e-8)), jnp.float32(c.kl_coef))
        optimisers = actor_adam.init(policy.actor), critic_adam.init(params)
        return Learner(policy, params, optimisers, statistics, jnp.int32(0))

    def entropy_coef(learner: Learner) -> Array:
        if c.target_entropy is not None:
            return jnp.exp(learner.statistics.log_entropy_coef)
        final = c.entropy_coef if c.entropy_final is None else c.entropy_final
        return c.entropy_coef + (final - c.entropy_coef) * learner.updates / scale.num_updates

    def targets(learner: Learner, traj: Trajectory) -> tuple[Evaluation, Array, Array, Array]:
        now, out = nets.evaluate(learner, traj), traj.outcome
        value, next_value = (values.denormalise(learner.statistics.value, v) for v in (now.value, now.next_value))
        return now, value, *gae(out.reward, out.discount, value, next_value, out.last, gamma=c.gamma, lam=c.lam)

    def to_batch(
        learner: Learner, traj: Trajectory, now: Evaluation, value: Array, advantage: Array, target: Array
    ) -> _ppo.Batch:
        alive, stats = traj.step.alive, learner.statistics.value
        if c.normalise_advantage != "none":
            mean, std = mean_and_std(advantage, alive, None if c.normalise_advantage == "batch" else (0, 1))
            advantage = (advantage - mean) / (std + 1e-5)
        # The clip holds the net's own output near where it was; PopArt has just moved that output's unit.
        old = values.normalise(stats, value) if c.value_norm == "popart" else now.value
        rows = (
            normalised(learner.policy.inputs, traj.step)._replace(reward=(), discount=(), last=()),
            *(traj.action, traj.extras["log_prob"], advantage, values.normalise(stats, target), old),
            alive.astype(jnp.float32),
        )
        starts = (_ppo.chunk_starts(getattr(traj.carry, net), getattr(now.after, net), chunk) for net in Carry._fields)
        return _ppo.Batch(*_ppo.items(rows, chunk), *starts)

    def descend(learner: Learner, batch: _ppo.Batch) -> tuple[Learner, Metrics]:
        """One gradient step on one minibatch."""
        sigma, kappa = entropy_coef(learner), learner.statistics.kl_coef

        def loss(params: tuple, part: _ppo.Batch) -> tuple[Array, Metrics]:
            part = _ppo.time_major(part)
            _, dist = actor.distribution(Policy(params[0], Inputs()), part.actor_carry, part.step)
            _, value = critic.values(params[1], part.critic_carry, part.step)
            loss_pi, metrics = policy_loss(c, dist, part, sigma, kappa)
            loss_v = value_loss(c, value, part)
            return loss_pi + c.value_coef * loss_v, metrics | {"value_loss": loss_v}

        (g_actor, g_critic), metrics = _ppo.gradient(loss, (learner.policy.actor, learner.critic), batch, c.block)
        theta, actor_state, actor_norm = actor_adam.step(g_actor, learner.optimiser[0], learner.policy.actor)
        phi, critic_state, critic_norm = critic_adam.step(g_critic, learner.optimiser[1], learner.critic)
        learner = learner._replace(
            policy=learner.policy._replace(actor=theta), critic=phi, optimiser=(actor_state, critic_state)
        )
        return learner, metrics | {"actor_grad_norm": actor_norm, "critic_grad_norm": critic_norm}

    def update(learner: Learner, traj: Trajectory, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        now, value, advantage, target = targets(learner, traj)
        alive = traj.step.alive
        stats, params = values.update(learner.statistics.value, learner.critic, target, alive)
        learner = learner._replace(critic=params, statistics=learner.statistics._replace(value=stats))
        batch = to_batch(learner, traj, now, value, advantage, target)

        def epoch(learner: Learner, turn: tuple[Array, PRNGKeyArray]) -> tuple[Learner, dict[str, Array]]:
            fresh, (index, key) = batch, turn
            if c.recompute_advantages:  # before the first epoch nothing has changed but the unit of value
                fresh = jax.lax.cond(index > 0, lambda: to_batch(learner, traj, *targets(learner, traj)), lambda: batch)
            return jax.lax.scan(descend, learner, _ppo.minibatches(key, fresh, c.minibatches))

        sigma = entropy_coef(learner)
        learner, metrics = jax.lax.scan(epoch, learner, (jnp.arange(c.epochs), jax.random.split(key, c.epochs)))
        metrics = jax.tree.map(jnp.mean, metrics)
        residual, spread = mean_and_std(advantage, alive)[1], mean_and_std(target, alive)[1]
        metrics |= {"entropy_coef": sigma, "explained_variance": 1 - (residual / jnp.maximum(spread, 1e-6)) ** 2}
        statistics = _ppo.adapt_coefficients(learner.statistics, metrics, c)
        inputs = update_inputs(spec, learner.policy.inputs, traj.step)
        policy = learner.policy._replace(inputs=inputs)
        return learner._replace(policy=policy, statistics=statistics, updates=learner.updates + 1), metrics

    return Algorithm(init, nets.initial_carry, nets.act, update)
