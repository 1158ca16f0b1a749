"""What COMA, MAPG and LICA share: the critic's fit to λ-returns, the next joint action in these, the actors' step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from shoal.equations.distributions import Distribution
from shoal.equations.draws import noise
from shoal.equations.targets import update_target
from shoal.equations.value_scale import Stats
from shoal.learning import sgd
from shoal.learning.config import QCriticConfig, check_options
from shoal.learning.optimiser import Init, Optimiser, frozen_parameters, optimiser
from shoal.models.on_policy import Coefficients, init_coefficients
from shoal.types import Learner, Metrics, PyTree, Scale, Trajectory


def check(config: QCriticConfig, scale: Scale) -> None:
    """Refuse options out of range, or a rollout that does not divide.

    Raises:
        InputError: naming the option and its range.
    """
    check_options(config)
    sgd.check_items(scale, config.minibatches, None)
    sgd.check_items(scale, 1, config.chunk)


def make_optimisers(
    c: QCriticConfig, scale: Scale, policies: int, critics: int, actor: Init, critic: Init
) -> tuple[Optimiser, Optimiser]:
    """Adam of the actors, one step per update, and of the critics, without what is frozen.

    Args:
        c: hyper-parameters.
        scale: the run's sizes.
        policies: P of the actors.
        critics: P of the critics.
        actor: initialises the actors.
        critic: initialises the critics.

    Raises:
        InputError: there is no such part to freeze.
    """
    frozen, clip, eps = frozen_parameters(c, actor, critic), c.max_grad_norm, c.adam_eps
    updates, steps = scale.num_updates, scale.num_updates * c.epochs * c.minibatches
    of_actors = optimiser(c.learning_rate, c.lr_final, [updates] * policies, clip, eps, frozen.actor)
    return of_actors, optimiser(c.critic_rate, c.lr_final, [steps] * critics, clip, eps, frozen.critic)


class CriticStatistics(NamedTuple):
    """State of the update beside parameters."""

    value: Stats
    coefficients: Coefficients
    target: PyTree
    """The target network's parameters θ^-."""
    critic_steps: Int[Array, ""]
    """Gradient steps of the critic so far."""


def init_statistics(c: QCriticConfig, value: Stats, critic: PyTree) -> CriticStatistics:
    """The initial statistics; the target network is a copy of the critic."""
    return CriticStatistics(value, init_coefficients(c), jax.tree.map(jnp.array, critic), jnp.int32(0))


def next_action(policy: Distribution, traj: Trajectory, key: PRNGKeyArray) -> Array:
    """u_{t+1}, the joint action in outcome_t [T, E, N ...]: the one taken, or one drawn from ``policy`` at an end.

    Where the episode goes on, outcome_t is step_{t+1} and u_{t+1} was taken in it. At a time limit and at the end of
    the rollout no action was taken: one is drawn from the policy in the outcomes [1, T, E, N ...]. A draw from the
    policy that acted keeps Q(outcome_t, u_{t+1}) an unbiased sample of the state's value.
    """
    drawn = policy.sample_from(noise(policy, key, 2))[0]
    taken = jnp.concatenate([traj.action[1:], drawn[-1:]])
    none = jnp.zeros_like(traj.step.alive[:1])
    acted = jnp.concatenate([traj.step.alive[1:], none]) & ~traj.outcome.last[..., None]
    return jnp.where(acted.reshape(*acted.shape, *(1,) * (drawn.ndim - 3)), taken, drawn)


def fit_critic(
    c: QCriticConfig,
    adam: Optimiser,
    loss: sgd.Loss,
    learner: Learner,
    batch: Any,
    key: PRNGKeyArray,
    net_of: tuple[int, ...] | None = None,
) -> tuple[Learner, Metrics]:
    """Minimise the critic's loss for ``epochs`` passes and update the target network. Metrics are means over steps.

    Args:
        c: hyper-parameters.
        adam: the critic's.
        loss: of the critic's parameters.
        learner: its ``optimiser`` is by net, and its ``statistics`` hold ``target`` and ``critic_steps``.
        batch: see :mod:`shoal.learning.sgd`.
        key: decides the order; the same on every device.
        net_of: the critic of each agent, where the loss is a sum over agents; see :func:`shoal.learning.sgd.gradient`.
    """

    def step(gradient: PyTree, state: tuple, params: PyTree) -> tuple[PyTree, tuple, Metrics]:
        own, target, steps = state
        params, own, norm = adam.step(gradient, own, params)
        target = update_target(target, params, steps + 1, c.target_interval, c.target_rate)
        return params, (own, target, steps + 1), {"critic_grad_norm": norm}

    kept = learner.statistics
    start = learner.optimiser.critic, kept.target, kept.critic_steps
    critic, (state, target, steps), metrics = sgd.sgd(
        loss, step, learner.critic, start, batch, key,
        epochs=c.epochs, minibatches=c.minibatches, block=c.block, net_of=net_of,
    )  # fmt: skip
    return learner._replace(
        critic=critic,
        optimiser=learner.optimiser._replace(critic=state),
        statistics=kept._replace(target=target, critic_steps=steps),
    ), metrics


def actor_step(
    c: QCriticConfig,
    adam: Optimiser,
    loss: sgd.Loss,
    learner: Learner,
    batch: Any,
    policy_of: tuple[int, ...] | None = None,
) -> tuple[Learner, Metrics]:
    """One gradient step of the actors on the whole batch; arguments as of :func:`fit_critic`."""
    gradient, metrics = sgd.gradient(loss, learner.policy.actor, sgd.whole(batch), c.block, policy_of)
    theta, state, norm = adam.step(gradient, learner.optimiser.actor, learner.policy.actor)
    policy, optimisers = learner.policy._replace(actor=theta), learner.optimiser._replace(actor=state)
    return learner._replace(policy=policy, optimiser=optimisers), metrics | {"actor_grad_norm": norm}
