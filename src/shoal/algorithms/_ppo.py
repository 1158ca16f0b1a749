"""What the PPO family does around its optimisation: values, advantages, the batch, and what follows the last epoch.

An algorithm asks :func:`make_team` for these stages and writes the stage that is its paper's idea itself.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.algorithms import _batches, _coefficients
from shoal.algorithms._actor_critic import (
    ActorCritic,
    Carry,
    Evaluation,
    Policy,
    init_inputs,
    normalised,
    update_inputs,
)
from shoal.algorithms._coefficients import Coefficients
from shoal.algorithms._config import EpochsConfig, ValueConfig
from shoal.algorithms._optimiser import Optimiser, optimiser
from shoal.algorithms._targets import of_the_team
from shoal.algorithms._values import Stats, make_value_scale
from shoal.equations.gae import gae
from shoal.equations.reduce import mean_and_std
from shoal.equations.surrogate import clipped_value_loss, kl_penalty
from shoal.types import EnvSpec, Learner, Metrics, PyTree, Scale, Step, Trajectory

Rows = TypeVar("Rows", bound=Any)


class Batch(NamedTuple):
    """What is learned from; leaves are [items, L, N ...], carries [items, N, H]."""

    step: Step
    """With normalised inputs; without reward, discount and last."""
    action: Array
    extras: dict[str, Array]
    """What ``act`` noted, among it ``log_prob``."""
    advantage: Array
    target: Array
    """Value target, in the normaliser's units."""
    value: Array
    """What the critic put out before this update, in the normaliser's units."""
    weight: Array
    """``alive`` in 0..1; :func:`shoal.algorithms._batches.minibatches` makes each minibatch's add up to one."""
    carry: Carry
    """Recurrent states before each item."""


def time_major(batch: Rows) -> Rows:
    """Items as environments: leaves [L, items, ...], as networks read them; ``carry`` stays [items, ...]."""
    return _batches.time_major(batch._replace(carry=()))._replace(carry=batch.carry)


def standardised(c: ValueConfig, advantage: Float[Array, "T E N"], alive: Array) -> Float[Array, "T E N"]:
    """Advantages with mean 0 and standard deviation 1 over living agents, as ``normalise_advantage`` says."""
    if c.normalise_advantage == "none":
        return advantage
    mean, std = mean_and_std(advantage, alive, None if c.normalise_advantage == "batch" else (0, 1))
    return (advantage - mean) / (std + 1e-5)


def kl_of_update(c: Any, log_ratio: Callable[[Batch], Array], batch: Batch) -> Metrics:
    """``kl_update``, the mean KL(π_old ‖ π) of an update that is done, for ``kl_target``; without one, nothing.

    Args:
        c: hyper-parameters.
        log_ratio: time-major part of a batch -> log π(a|o) − log π_old(a|o) of its actions under the updated policy.
        batch: what was learned from. Its actions are samples of π_old, and the estimator is the penalty's.

    Source: Schulman et al. 2017, Proximal Policy Optimization Algorithms, section 4: d is computed after the epochs.
    """
    if c.kl_target is None:
        return {}

    def of(part: Batch) -> Array:
        part = time_major(part)
        return jnp.sum(part.weight * kl_penalty(log_ratio(part)))

    return {"kl_update": _batches.sums(of, _batches.whole(batch), c.block)}


class Statistics(NamedTuple):
    """What the update keeps beside parameters."""

    value: Stats
    coefficients: Coefficients


class Seen(NamedTuple):
    """What the critic said of a trajectory before the update, in the rewards' units."""

    now: Evaluation
    value: Float[Array, "T E N"]
    advantage: Float[Array, "T E N"]
    target: Float[Array, "T E N"]


class Team(NamedTuple):
    """The stages of an update that do not differ within the family."""

    init: Callable[[PRNGKeyArray], Learner]
    """Fresh parameters, optimisers (actors', critics') and statistics."""
    entropy_coef: Callable[[Learner], Float[Array, ""]]
    look: Callable[[Learner, Trajectory], Seen]
    """Values, advantages and value targets under the learner's critic."""
    prepare: Callable[[Learner, Trajectory], tuple[Learner, Batch, Seen]]
    """Look, count the targets into the value statistics, and lay out the batch."""
    batch: Callable[[Learner, Trajectory, Seen], Batch]
    value_loss: Callable[[PyTree, Batch], Float[Array, ""]]
    """(critic parameters, time-major part of a batch) -> its weighted sum."""
    apply: Callable[[Learner, tuple[PyTree, PyTree]], tuple[Learner, Metrics]]
    """One step of both optimisers along (actors' gradient, critics' gradient)."""
    fit_critic: Callable[[Learner, Batch, PRNGKeyArray], tuple[Learner, Metrics]]
    """All epochs of the critic by itself, for algorithms whose actors have had theirs."""
    finish: Callable[[Learner, Trajectory, Seen, Metrics], tuple[Learner, Metrics]]
    """Adapt coefficients, count inputs into their statistics, and complete the metrics."""
    actor_adam: Optimiser
    critic_adam: Optimiser


def make_team(spec: EnvSpec, c: ValueConfig, scale: Scale, nets: ActorCritic, actor_steps: Sequence[int]) -> Team:
    """The family's stages for given nets.

    Args:
        spec: the environment.
        c: hyper-parameters; those of :class:`EpochsConfig` count as one epoch where it has none.
        scale: the size of the run.
        nets: actors and critics; ``evaluate`` says what they make of a trajectory.
        actor_steps: gradient steps of each policy in one update, for the schedule of their rate.
    """
    epochs, minibatches, value_clip = 1, 1, None
    if isinstance(c, EpochsConfig):
        epochs, minibatches, value_clip = c.epochs, c.minibatches, c.value_clip
    _batches.check_items(scale, minibatches, c.chunk)
    values = make_value_scale(c.value_norm, nets.critic.group_of, c.value_norm_beta)
    policy_steps = [scale.num_updates * steps for steps in actor_steps]
    critic_steps = [scale.num_updates * epochs * minibatches] * nets.critic.num_nets
    actor_adam = optimiser(c.learning_rate, c.lr_final, policy_steps, c.max_grad_norm, c.adam_eps)
    critic_adam = optimiser(c.critic_rate, c.lr_final, critic_steps, c.max_grad_norm, c.adam_eps)

    def init(key: PRNGKeyArray) -> Learner:
        key_actor, key_critic = jax.random.split(key)
        policy = Policy(nets.actor.init(key_actor), init_inputs(spec, c.normalise_inputs))
        critic = nets.critic.init(key_critic)
        optimisers = actor_adam.init(policy.actor), critic_adam.init(critic) if critic else ()
        statistics = Statistics(values.init(), _coefficients.init(c))
        return Learner(policy, critic, optimisers, statistics, jnp.int32(0))

    def entropy_coef(learner: Learner) -> Array:
        return _coefficients.entropy_coef(c, learner.statistics.coefficients, learner.updates, scale)

    def look(learner: Learner, traj: Trajectory) -> Seen:
        now, out = nets.evaluate(learner, traj), traj.outcome
        value, next_value = (
            of_the_team(values.denormalise(learner.statistics.value, v), alive, spec.shared_reward)
            for v, alive in ((now.value, traj.step.alive), (now.next_value, out.alive))
        )
        estimates = gae(out.reward, out.discount, value, next_value, out.last, gamma=c.gamma, lam=c.lam)
        return Seen(now, value, *estimates)

    def prepare(learner: Learner, traj: Trajectory) -> tuple[Learner, Batch, Seen]:
        seen = look(learner, traj)
        stats, params = values.update(learner.statistics.value, learner.critic, seen.target, traj.step.alive)
        learner = learner._replace(critic=params, statistics=learner.statistics._replace(value=stats))
        return learner, to_batch(learner, traj, seen), seen

    def to_batch(learner: Learner, traj: Trajectory, seen: Seen) -> Batch:
        alive, stats = traj.step.alive, learner.statistics.value
        rows = (
            normalised(learner.policy.inputs, traj.step)._replace(reward=(), discount=(), last=()),
            traj.action,
            traj.extras,
            standardised(c, seen.advantage, alive),
            values.normalise(stats, seen.target),
            # The clip holds the net's own output near where it was; PopArt has just moved that output's unit.
            values.normalise(stats, seen.value) if c.value_norm == "popart" else seen.now.value,
            alive.astype(jnp.float32),
        )
        chunk = c.chunk or 1
        starts = (
            _batches.chunk_starts(getattr(traj.carry, net), getattr(seen.now.after, net), chunk)
            for net in Carry._fields
        )
        return Batch(*_batches.items(rows, chunk), Carry(*starts))  # pyright: ignore[reportCallIssue]

    def value_loss(params: PyTree, part: Batch) -> Array:
        """L(φ) of a minibatch (Yu et al. 2022, appendix A)."""
        _, value = nets.critic.values(params, part.carry.critic, part.step)
        return jnp.sum(part.weight * clipped_value_loss(value, part.value, part.target, value_clip, c.huber))

    def apply(learner: Learner, gradients: tuple[PyTree, PyTree]) -> tuple[Learner, Metrics]:
        theta, state, norm = actor_adam.step(gradients[0], learner.optimiser[0], learner.policy.actor)
        learner = learner._replace(policy=learner.policy._replace(actor=theta), optimiser=(state, learner.optimiser[1]))
        metrics = {"actor_grad_norm": norm}
        if learner.critic:
            phi, state, norm = critic_adam.step(gradients[1], learner.optimiser[1], learner.critic)
            learner = learner._replace(critic=phi, optimiser=(learner.optimiser[0], state))
            metrics["critic_grad_norm"] = norm
        return learner, metrics

    def fit_critic(learner: Learner, batch: Batch, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        # Rows that the critic does not read need not be gathered for every epoch.
        batch = batch._replace(action=(), extras={}, advantage=(), carry=batch.carry._replace(actor=()))

        def loss(params: PyTree, part: Batch) -> tuple[Array, Metrics]:
            loss = value_loss(params, time_major(part))
            return c.value_coef * loss, {"value_loss": loss}

        def descend(learner: Learner, part: Batch) -> tuple[Learner, Metrics]:
            gradient, metrics = _batches.gradient(loss, learner.critic, part, c.block, nets.actor.policy_of)
            phi, state, norm = critic_adam.step(gradient, learner.optimiser[1], learner.critic)
            learner = learner._replace(critic=phi, optimiser=(learner.optimiser[0], state))
            return learner, metrics | {"critic_grad_norm": norm}

        def epoch(learner: Learner, key: PRNGKeyArray) -> tuple[Learner, dict[str, Array]]:
            return jax.lax.scan(descend, learner, _batches.minibatches(key, batch, minibatches))

        learner, metrics = jax.lax.scan(epoch, learner, jax.random.split(key, epochs))
        return learner, jax.tree.map(jnp.mean, metrics)

    def finish(learner: Learner, traj: Trajectory, seen: Seen, metrics: Metrics) -> tuple[Learner, Metrics]:
        alive = traj.step.alive
        residual, spread = mean_and_std(seen.advantage, alive)[1], mean_and_std(seen.target, alive)[1]
        metrics = metrics | {
            "entropy_coef": entropy_coef(learner),
            "explained_variance": 1 - (residual / jnp.maximum(spread, 1e-6)) ** 2,
        }
        coefficients = learner.statistics.coefficients
        if "kl_update" in metrics:
            metrics["kl_coef"] = coefficients.kl
        coefficients = _coefficients.adapt(c, coefficients, metrics)
        inputs = update_inputs(spec, learner.policy.inputs, traj.step)
        learner = learner._replace(
            policy=learner.policy._replace(inputs=inputs),
            statistics=learner.statistics._replace(coefficients=coefficients),
            updates=learner.updates + 1,
        )
        return learner, metrics

    return Team(
        init, entropy_coef, look, prepare, to_batch, value_loss, apply, fit_critic, finish, actor_adam, critic_adam
    )
