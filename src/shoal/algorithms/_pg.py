"""What the families with a learned Q share: λ-returns of one team reward, the target network, the critic's descent.

Small functions; COMA, MAPG and LICA call them in the order of their papers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.algorithms import _batches, _coefficients
from shoal.algorithms._actor_critic import Actor, Policy
from shoal.algorithms._coefficients import Coefficients
from shoal.algorithms._config import PolicyConfig, check_options
from shoal.algorithms._optimiser import Optimiser, optimiser
from shoal.algorithms._targets import follow, team_reward
from shoal.algorithms._values import Stats
from shoal.bounds import Count, Decay, Fraction, Positive, Rate, Size, Weight
from shoal.equations.distributions import Distribution
from shoal.equations.returns import td_lambda
from shoal.networks.inputs import CriticInput
from shoal.types import Learner, Metrics, PyTree, Scale, Step, Trajectory


@dataclass(frozen=True)
class PgConfig(PolicyConfig):
    """And an action-value critic, fitted to λ-returns that a target network bootstraps. "Paper" is Foerster et al.
    2018, "code" their repository (pymarl), unless a subclass says otherwise."""

    lam: Fraction = 0.8
    """λ of the critic's TD(λ) targets. Paper: 0.8."""
    learning_rate: Rate = 5e-4
    """Adam's step size for actors. Paper: 5e-4 (RMSprop)."""
    entropy_coef: Weight = 0.0
    """Weight σ of the entropy bonus. Paper: none."""
    critic_input: CriticInput = "concat"
    """What the centralised Q reads beside the actions: ``concat`` all observations, ``state``, ``agent`` (state and own
    observation) or ``pruned``. Paper: agent."""
    value_norm: Literal["running", "none"] = "none"
    """Scale of the critic's targets: ``running`` statistics or ``none``. Paper: none."""
    value_norm_beta: Decay = 0.99999
    """Decay per update of those statistics."""
    huber: Positive | None = None
    """Width δ of a Huber loss of the critic, in the targets' units; None for ½e². Paper: None."""
    target_interval: Size = 200
    """C: the target network becomes a copy of the critic every so many critic steps, where ``target_rate`` is None.
    Paper: 150; code: 200."""
    target_rate: Fraction | None = None
    """If given, the target moves by this fraction τ towards the critic after each critic step instead."""
    epochs: Count = 1
    """Passes of the critic over each batch. Paper: 1."""
    minibatches: Count = 4
    """Critic steps per pass, each on as many moments. Code: one step per time index."""


def check_pg(config: PgConfig, scale: Scale) -> None:
    """Refuse options that mean nothing, or a roll-out that does not divide.

    Raises:
        InputError: naming the option and its range.
    """
    check_options(config)
    _batches.check_items(scale, config.minibatches, None)
    _batches.check_items(scale, 1, config.chunk)


def make_optimisers(c: PgConfig, scale: Scale, policies: int, critics: int) -> tuple[Optimiser, Optimiser]:
    """Adam of the actors, one step per update, and of the critics."""
    steps = scale.num_updates * c.epochs * c.minibatches
    actor = optimiser(c.learning_rate, c.lr_final, [scale.num_updates] * policies, c.max_grad_norm, c.adam_eps)
    return actor, optimiser(c.critic_rate, c.lr_final, [steps] * critics, c.max_grad_norm, c.adam_eps)


class Statistics(NamedTuple):
    """What the update keeps beside parameters."""

    value: Stats
    coefficients: Coefficients
    target: PyTree
    """The target network's parameters θ^-."""
    critic_steps: Int[Array, ""]
    """Gradient steps of the critic so far."""


def init_statistics(c: PgConfig, value: Stats, critic: PyTree) -> Statistics:
    """The statistics to start from; the target network is a copy of the critic."""
    return Statistics(value, _coefficients.init(c), jax.tree.map(jnp.array, critic), jnp.int32(0))


def team_mean(x: Float[Array, "*b N"], alive: Array) -> Float[Array, "*b"]:
    """The mean over living agents, 0 where there are none."""
    return jnp.where(alive, x, 0.0).sum(-1) / jnp.maximum(alive.sum(-1), 1)


def td_targets(c: PgConfig, traj: Trajectory, next_q: Float[Array, "T E"]) -> Float[Array, "T E"]:
    """The critic's TD(λ) targets y_t of the team's reward, given Q(outcome_t, u_{t+1}; θ^-) in rewards' units.

        y_t = r_t + γ d_t [(1 − λ_t) Q(outcome_t, u_{t+1}; θ^-) + λ_t y_{t+1}]

    λ_t is 0 where the episode or the roll-out ends. :func:`next_action` gives u_{t+1} (Foerster et al. 2018, sec. 4).
    """
    return td_lambda(*team_reward(traj), next_q, traj.outcome.last, gamma=c.gamma, lam=c.lam)


def noise(dist: Distribution, key: PRNGKeyArray, axis: int) -> Float[Array, "..."]:
    """The noise of one draw per row of ``dist``, whose environments stand on ``axis``; for ``dist.sample_from``.

    Each environment has a key of its own; see :func:`shoal.algorithms._batches.row_keys`.
    """
    keys = _batches.row_keys(key, jax.tree.leaves(dist)[0].shape[axis])
    return jax.vmap(lambda one, key: one.noise(key), (axis, 0), axis)(dist, keys)


Behaviour = Callable[[PyTree, PyTree, Step], tuple[PyTree, Distribution]]
"""(policy, carry before, step [T E ...]) -> (carry after each moment, distribution): ``Actor.distribution``."""


def next_action(distribution: Behaviour, policy: PyTree, traj: Trajectory, after: PyTree, key: PRNGKeyArray) -> Array:
    """u_{t+1}, the joint action in outcome_t [T, E, N ...]: the one taken, or one drawn from the policy at an end.

    Where the episode goes on, outcome_t is step_{t+1} and u_{t+1} was taken in it. At a time limit and at the end of
    the roll-out nothing was: the policy is asked, from its recurrent state ``after`` the moment t [T, E, N, H]. A draw
    from the policy that acted keeps Q(outcome_t, u_{t+1}) an unbiased sample of the state's value.
    """
    ahead = jax.tree.map(lambda x: x[None], traj.outcome)
    _, dist = distribution(policy, after, ahead)
    drawn = dist.sample_from(noise(dist, key, 2))[0]
    taken = jnp.concatenate([traj.action[1:], drawn[-1:]])
    nobody = jnp.zeros_like(traj.step.alive[:1])
    acted = jnp.concatenate([traj.step.alive[1:], nobody]) & ~traj.outcome.last[..., None]
    return jnp.where(acted.reshape(*acted.shape, *(1,) * (drawn.ndim - 3)), taken, drawn)


def carry_after(actor: Actor, policy: Policy, traj: Trajectory) -> PyTree:
    """The actors' recurrent state after each moment [T, E, N, H], or an empty tuple."""
    if not jax.tree.leaves(traj.carry.actor):
        return ()
    return actor.distribution(policy, traj.carry.actor, traj.step)[0]


def fit(
    c: PgConfig,
    adam: Optimiser,
    loss: Callable[[PyTree, Any], tuple[Array, Metrics]],
    learner: Learner,
    batch: Any,
    key: PRNGKeyArray,
    net_of: tuple[int, ...] | None = None,
) -> tuple[Learner, Metrics]:
    """Descend the critic's loss for ``epochs`` passes; the target network follows. Metrics are means over steps.

    Args:
        c: hyper-parameters.
        adam: the critic's.
        loss: (critic parameters, minibatch [items, L, ...]) -> (sum of rows times ``weight``, metrics of that kind).
        learner: its ``optimiser`` is (actors', critics') and its ``statistics`` hold ``target`` and ``critic_steps``.
        batch: a NamedTuple of leaves [items, L, ...] with a ``weight``, as :mod:`shoal.algorithms._batches` has them.
        key: decides the order; the same on every device.
        net_of: the critic of each agent, where the loss is a sum over agents; see :func:`_batches.gradient`.
    """

    def descend(learner: Learner, part: Any) -> tuple[Learner, Metrics]:
        gradient, metrics = _batches.gradient(loss, learner.critic, part, c.block, net_of)
        critic, state, norm = adam.step(gradient, learner.optimiser[1], learner.critic)
        steps = learner.statistics.critic_steps + 1
        target = follow(c, learner.statistics.target, critic, steps)
        statistics = learner.statistics._replace(target=target, critic_steps=steps)
        learner = learner._replace(critic=critic, optimiser=(learner.optimiser[0], state), statistics=statistics)
        return learner, metrics | {"critic_grad_norm": norm}

    def epoch(learner: Learner, key: PRNGKeyArray) -> tuple[Learner, dict[str, Array]]:
        return jax.lax.scan(descend, learner, _batches.minibatches(key, batch, c.minibatches))

    learner, metrics = jax.lax.scan(epoch, learner, jax.random.split(key, c.epochs))
    return learner, jax.tree.map(jnp.mean, metrics)


def climb(
    c: PgConfig,
    adam: Optimiser,
    loss: Callable[[PyTree, Any], tuple[Array, Metrics]],
    learner: Learner,
    batch: Any,
    policy_of: tuple[int, ...] | None = None,
) -> tuple[Learner, Metrics]:
    """One step of the actors along −``loss`` of the whole batch; arguments as :func:`fit` has them."""
    gradient, metrics = _batches.gradient(loss, learner.policy.actor, _batches.whole(batch), c.block, policy_of)
    theta, state, norm = adam.step(gradient, learner.optimiser[0], learner.policy.actor)
    learner = learner._replace(policy=learner.policy._replace(actor=theta), optimiser=(state, learner.optimiser[1]))
    return learner, metrics | {"actor_grad_norm": norm}
