"""Action-value critics, and what COMA, MAPG and LICA share in an update.

Nets: critics that read the others' actions, Q(s, u^{-a}, o^a, a; u^a), and the options of an agent. Update: the
critic's fit to λ-returns, the next joint action in these, and the actors' step.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.equations.baselines import gaussian_score_square, softmax_score_square
from shoal.equations.distributions import Categorical, DiagGaussian, Distribution, TanhGaussian, noise
from shoal.equations.targets import Stats, update_target
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.learning.config import QCriticConfig, check_options
from shoal.learning.optimiser import Init, Optimiser, frozen_parameters, optimiser
from shoal.models.on_policy import Coefficients, init_coefficients
from shoal.networks.body import Body, build_body
from shoal.networks.inputs import (
    CriticInput,
    Input,
    Layout,
    actor_input,
    critic_input,
    encode_actions,
    layout_of_agents,
    vector_layout,
)
from shoal.networks.sharing import per_agent
from shoal.types import Box, EnvSpec, Learner, Metrics, PyTree, Scale, Step, Trajectory


class Options(NamedTuple):
    """K options of an agent's action, the others' held fixed; see :mod:`shoal.equations.baselines`.

    For discrete actions they are all A actions, for continuous ones K draws from the agent's policy.
    """

    q: Float[Array, "T E N K"]
    p: Float[Array, "T E N K"]
    square: Float[Array, "T E N K"]
    """‖∇ log π‖² with respect to the actor's output."""


class ActionCritic(NamedTuple):
    """An action-value function for every agent, feed-forward, in the normaliser's units."""

    init: Callable[[PRNGKeyArray], PyTree]
    taken: Callable[[PyTree, Step, Array], Float[Array, "T E N"]]
    """(params, normalised step [T E ...], joint action u) -> Q(s, u)."""
    options: Callable[[PyTree, Step, Array, Distribution, PRNGKeyArray, int, Any], Options]
    """(params, normalised step, u, the agents' policies, key, draws K, ε) -> the agents' options."""
    group_of: tuple[int, ...]
    """Agents whose values share one scale have the same number."""
    num_nets: int
    """P of the parameters."""


def make_action_critic(
    spec: EnvSpec, body: Body, kind: CriticInput, index: tuple[int, ...], agent_id: bool
) -> ActionCritic:
    """A centralised Q where ``kind`` reads the team, and with ``local`` an independent Q^a(o^a, u^a).

    The centralised one also reads the agent's observation and number and the living others' actions. With discrete
    actions it outputs the values of all the agent's actions in one pass (Foerster et al. 2018, section 4), and its
    input does not depend on the agent's own action. With continuous actions the agent's own is an input. Agents with
    the same number in ``index`` share a net.

    Raises:
        InputError: ``kind`` reads a state that the environment does not have, or there is no such input.
    """
    central = kind != "local"
    n, space = spec.num_agents, spec.action
    source = critic_input(spec, kind, agent_id and max(index) + 1 < n)
    if not source.per_agent:
        source = _with_own(source, spec)
    box = space if isinstance(space, Box) else None
    layout = source.layout + (
        layout_of_agents(vector_layout(space.width, "action"), range(n)) if central else Layout(())
    )
    layout += vector_layout(space.width, "action") if box else Layout(())
    body = replace(body, recurrent=None)
    # Initial values are nearly equal for all actions, so that an untrained net has no preference.
    net = per_agent(build_body(body, layout, 1 if box else space.width, output_gain=0.01), index)

    def context(step: Step, u: Array) -> Array:
        """The input of Q without the agent's own action, [T, E, N, F]."""
        x = source.features(step)
        if not central:
            return x
        others = encode_actions(space, u, step)[..., None, :, :] * (1.0 - jnp.eye(n))[..., None]
        return jnp.concatenate([x, others.reshape(*x.shape[:-1], n * space.width)], -1)

    def of_own(params: PyTree, x: Array, step: Step, own: Array) -> Array:
        """Q of the agent's own continuous action."""
        return net.apply(params, (), jnp.concatenate([x, encode_actions(space, own, step)], -1), step.first)[1][..., 0]

    def taken(params: PyTree, step: Step, u: Array) -> Array:
        x = context(step, u)
        if box:
            return of_own(params, x, step, u)
        q = net.apply(params, (), x, step.first)[1]
        return jnp.where(u[..., None] == jnp.arange(space.width), q, 0.0).sum(-1)

    def options(
        params: PyTree, step: Step, u: Array, dist: Distribution, key: PRNGKeyArray, draws: int, epsilon: Any
    ) -> Options:
        x = context(step, u)
        if isinstance(dist, Categorical):
            pi = dist.probabilities()
            return Options(net.apply(params, (), x, step.first)[1], pi, softmax_score_square(pi, dist.legal, epsilon))
        assert isinstance(dist, DiagGaussian | TanhGaussian) and isinstance(space, Box)
        half = 1.0 if isinstance(dist, TanhGaussian) else (space.high - space.low) / 2
        log_std = dist.log_std - jnp.log(half)  # the actor's output is in units of half the box

        def draw(key: PRNGKeyArray) -> tuple[Array, Array]:
            z = noise(dist, key, 1)
            return of_own(params, x, step, dist.sample_from(z)), gaussian_score_square(z, log_std, dist.real)

        q, square = jax.lax.map(draw, jax.random.split(key, draws))
        return Options(*(jnp.moveaxis(y, 0, -1) for y in (q, jnp.full_like(q, 1 / draws), square)))

    return ActionCritic(net.init, taken, options, index, max(index) + 1)


def _with_own(source: Input, spec: EnvSpec) -> Input:
    """A team's input, followed by each agent's own observation and number."""
    own = actor_input(spec, agent_id=True)

    def features(step: Step) -> Array:
        x, mine = source.features(step)[..., None, :], own.features(step)
        return jnp.concatenate([jnp.broadcast_to(x, (*mine.shape[:-1], source.width)), mine], -1)

    return Input(source.layout + own.layout, features, True)


def needs_team(kind: CriticInput) -> None:
    """Refuse ``local`` for a centralised critic.

    Raises:
        InputError: it is ``local``.
    """
    if kind == "local":
        raise InputError(
            "A centralised critic reads the team: critic_input must be 'concat', 'state', 'agent' or 'pruned'."
        )


def check_q_critic(config: QCriticConfig, scale: Scale) -> None:
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


def fit_action_critic(
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
    """One gradient step of the actors on the whole batch; arguments as of :func:`fit_action_critic`."""
    gradient, metrics = sgd.gradient(loss, learner.policy.actor, sgd.whole(batch), c.block, policy_of)
    theta, state, norm = adam.step(gradient, learner.optimiser.actor, learner.policy.actor)
    policy, optimisers = learner.policy._replace(actor=theta), learner.optimiser._replace(actor=state)
    return learner._replace(policy=policy, optimiser=optimisers), metrics | {"actor_grad_norm": norm}
