"""Actors and critics of policy-gradient algorithms: inputs, nets and distributions.

:func:`make_policy` and :func:`acting_only` make policies without optimiser and critic, which are what deployment and
evaluation need of an algorithm.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.equations.distributions import (
    Categorical,
    DiagGaussian,
    Distribution,
    TanhGaussian,
    described,
    mixed_with_uniform,
)
from shoal.errors import InputError
from shoal.learning.config import PolicyConfig, ValueConfig, check_options
from shoal.learning.optimiser import ByNet
from shoal.learning.sgd import over_time
from shoal.networks.body import Body, build_body
from shoal.networks.inputs import CriticInput, Inputs, Layout, actor_input, critic_input, init_inputs, normalised
from shoal.networks.net import last_carry
from shoal.networks.sharing import TeamNet, for_team, in_turns, per_agent, policy_of
from shoal.types import Algorithm, Box, Discrete, EnvSpec, Learner, Metrics, PyTree, Step, Trajectory


class Policy(NamedTuple):
    """Everything that acting needs; deployment saves this."""

    actor: PyTree
    inputs: Inputs
    epsilon: Float[Array, ""] | None = None
    """ε of exploration: weight of the uniform policy in a mixture (COMA), or of ε-greedy actions (Q-learning)."""


class Actor(NamedTuple):
    """A decentralised stochastic policy for every agent of the team."""

    policy_of: tuple[int, ...]
    """The number of each agent's policy, from 0 to P − 1."""
    init: Callable[[PRNGKeyArray], PyTree]
    initial_carry: Callable[[int], PyTree]
    distribution: Callable[..., tuple[PyTree, Distribution]]
    """(parameters, carry before, normalised step [T E ...], ε or None) -> (carry after each timestep, distribution
    [T E N ...])."""
    act: Callable[[Policy, PyTree, Step, PRNGKeyArray, bool], tuple[PyTree, Array, dict[str, Array]]]
    """(policy, carry, step [E ...], key, greedy) -> (carry, action, extras); the extras hold ``log_prob`` [E N]."""
    inspect: Callable[[Policy, PyTree, Step], dict[str, Array]]
    """(policy, carry, step [E ...]) -> the distributions that ``act`` draws from, by :func:`described`."""
    features: Callable[[Step], Array]
    """Normalised step [*b ...] -> what each agent's net reads, [*b N F]."""
    alone: Callable[[PyTree, PyTree, Array, Array, Array], Distribution]
    """One agent alone: (its policy's parameters without the axis P, carry [b H], features [T b F], legal [T b A],
    first [T b]) -> distribution [T b ...]."""

    @property
    def num_policies(self) -> int:
        """P."""
        return max(self.policy_of) + 1


def make_distribution(spec: EnvSpec, squash: bool) -> Callable[[Array, Array], Distribution]:
    """(a net's output [*b, A or 2 A], legal [*b, A]) -> a distribution over an agent's actions.

    A Categorical over legal actions, or a Gaussian over the real dimensions of a box: the output is then its mean and
    log standard deviation, in units of half the box around its centre, and the rollout clips actions to the box. With
    ``squash`` a tanh maps every action into it instead.

    Raises:
        InputError: the box is not finite, or ``squash`` is given for discrete actions.
    """
    space = spec.action
    if isinstance(space, Box) and not -math.inf < space.low < space.high < math.inf:
        raise InputError(f"{spec.name} has the action box [{space.low:g}, {space.high:g}]; policies need a finite one.")
    if isinstance(space, Discrete) and squash:
        raise InputError(f"squash is for continuous actions; {spec.name} has discrete ones.")

    def to_distribution(output: Array, legal: Array) -> Distribution:
        if isinstance(space, Discrete):
            return Categorical(output, legal)
        mean, log_std = jnp.split(output, 2, axis=-1)
        if squash:
            return TanhGaussian(mean, log_std, space.low, space.high, legal)
        half = (space.high - space.low) / 2
        return DiagGaussian(space.low + half * (1 + mean), log_std + jnp.log(half), legal)

    return to_distribution


LOG_STD_RANGE = (-20.0, 2.0)
"""Bounds of a log standard deviation that is the net's output (Haarnoja et al. 2018)."""


def make_actor(
    spec: EnvSpec,
    body: Body,
    index: tuple[int, ...],
    agent_id: bool,
    output_gain: float,
    log_std: float | None,
    squash: bool,
    team: Callable[[Layout, int, float | None], TeamNet] | None = None,
) -> Actor:
    """A policy for every agent from its own observation, with the distributions of :func:`make_distribution`.

    The log standard deviation of a Gaussian is a parameter that starts at ``log_std``; where this is None, it is the
    net's output within :data:`LOG_STD_RANGE`. ``team``, where agents read each other, makes the net of them all, from
    what each one reads, its number of outputs and ``log_std``; no agent of it acts alone.
    """
    source = actor_input(spec, agent_id and max(index) + 1 < spec.num_agents)
    distribution_of, box = make_distribution(spec, squash), isinstance(spec.action, Box)
    width = spec.action.width * (2 if box and log_std is None else 1)
    log_std_of_box = log_std if box else None
    if team is None:
        one = build_body(body, source.layout, width, output_gain=output_gain, log_std=log_std_of_box, actions=not box)
        each = per_agent(one, index)
        net = TeamNet(each.init, each.initial_carry, in_turns(spec, one, index))
    else:
        one, net = None, team(source.layout, width, log_std_of_box)

    def to_distribution(x: Array, legal: Array) -> Distribution:
        if box and log_std is None:
            mean, spread = jnp.split(x, 2, axis=-1)
            x = jnp.concatenate([mean, jnp.clip(spread, *LOG_STD_RANGE)], axis=-1)
        return distribution_of(x, legal)

    def distribution(
        params: PyTree, carry: PyTree, step: Step, epsilon: Array | None = None
    ) -> tuple[PyTree, Distribution]:
        carry, x = net.apply(params, carry, source.features(step), step)
        return carry, mixed_with_uniform(to_distribution(x, step.legal), epsilon)

    def alone(params: PyTree, carry: PyTree, x: Array, legal: Array, first: Array) -> Distribution:
        if one is None:
            raise TypeError("No agent of this team acts alone.")
        return to_distribution(one.apply(params, carry, x, first)[1], legal)

    def seen_by(policy: Policy, step: Step) -> Step:
        return jax.tree.map(lambda leaf: leaf[None], normalised(policy.inputs, step))

    def decide(policy: Policy, carry: PyTree, step: Step) -> tuple[PyTree, Distribution]:
        seen = seen_by(policy, step)
        carry, x = net.apply(policy.actor, carry, source.features(seen), seen)
        return carry, mixed_with_uniform(to_distribution(x[0], step.legal), policy.epsilon)

    def act(
        policy: Policy, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[PyTree, Array, dict[str, Array]]:
        carry, dist = decide(policy, carry, step)
        action = dist.mode() if greedy else dist.sample(key)
        return last_carry(carry), action, {"log_prob": dist.log_prob(action)}

    def inspect(policy: Policy, carry: PyTree, step: Step) -> dict[str, Array]:
        found = described(decide(policy, carry, step)[1])
        if net.weights is None:
            return found
        seen = seen_by(policy, step)
        return found | {"attention": net.weights(policy.actor, carry, source.features(seen), seen)[0]}

    def initial_carry(num_envs: int) -> PyTree:
        return net.initial_carry((num_envs,))

    return Actor(index, net.init, initial_carry, distribution, act, inspect, source.features, alone)


class Critic(NamedTuple):
    """A state-value function for every agent, in the normaliser's units."""

    init: Callable[[PRNGKeyArray], PyTree]
    initial_carry: Callable[[int], PyTree]
    values: Callable[[PyTree, PyTree, Step], tuple[PyTree, Float[Array, "T E N"]]]
    """(params, carry before, normalised step [T E ...]) -> (carry after each timestep, value)."""
    group_of: tuple[int, ...]
    """Agents whose values share one scale, that is one output of one net, have the same number."""
    num_nets: int
    """P of the parameters: 1 for a team's critic."""
    trains_dead: bool = False
    """Whether V is trained at dead agents too, so that its output is their value."""


def make_critic(
    spec: EnvSpec, body: Body, kind: CriticInput, index: tuple[int, ...], agent_id: bool, death_mask: bool = True
) -> Critic:
    """One net for the team where all agents read the same input, otherwise one per policy.

    The team's net is evaluated once per environment and broadcast; where agents earn different rewards it has one
    output per agent, so that a critic shared by rivals still predicts each one's own return. Without ``death_mask`` it
    reads dead agents' features as they are.
    """
    source = critic_input(spec, kind, agent_id and max(index) + 1 < spec.num_agents)
    if source.per_agent:
        net = per_agent(build_body(body, source.layout, 1), index)
        group_of, num_nets = index, max(index) + 1
    else:
        outputs = 1 if spec.shared_reward else spec.num_agents
        if outputs > 1 and body.network == "universal":
            raise InputError(
                f"{spec.name} gives each agent its own reward, so that the team's critic has an output for each, and "
                f"network 'universal' has the same parameters for any number of agents: use critic_input local."
            )
        net = for_team(build_body(body, source.layout, outputs))
        group_of, num_nets = (0,) * spec.num_agents if spec.shared_reward else tuple(range(spec.num_agents)), 1

    def values(params: PyTree, carry: PyTree, step: Step) -> tuple[PyTree, Array]:
        seen = step if death_mask else step._replace(alive=jnp.ones_like(step.alive))
        carry, x = net.apply(params, carry, source.features(seen), step.first)
        value = x[..., 0] if source.per_agent else jnp.broadcast_to(x, (*x.shape[:-1], spec.num_agents))
        return carry, value

    return Critic(net.init, lambda num_envs: net.initial_carry((num_envs,)), values, group_of, num_nets)


class Carry(NamedTuple):
    """Recurrent states of actors and critics; empty tuples for feed-forward nets and deployed policies."""

    actor: PyTree
    critic: PyTree


class ValueEstimate(NamedTuple):
    """Values of a trajectory under the current critic, in its units, and recurrent states."""

    value: Float[Array, "T E N"]
    next_value: Float[Array, "T E N"]
    """V(outcome), from the recurrent state after the timestep."""
    after: Carry
    """Recurrent states after every timestep."""


class ActorCritic(NamedTuple):
    """Decentralised actors with a state-value critic: functions for a :class:`shoal.types.Algorithm`."""

    actor: Actor
    critic: Critic
    init: Callable[[PRNGKeyArray], ByNet]
    initial_carry: Callable[[int], Carry]
    act: Callable[[Learner, Carry, Step, PRNGKeyArray, bool], tuple[Carry, Array, dict[str, Array]]]
    evaluate: Callable[[Learner, Trajectory], ValueEstimate]


def make_actor_critic(actor: Actor, critic: Critic) -> ActorCritic:
    """Join an actor and a critic; a recurrent critic's state advances while acting, from rollout to rollout."""

    def init(key: PRNGKeyArray) -> ByNet:
        key_actor, key_critic = jax.random.split(key)
        return ByNet(actor.init(key_actor), critic.init(key_critic))

    def initial_carry(num_envs: int) -> Carry:
        return Carry(actor.initial_carry(num_envs), critic.initial_carry(num_envs))

    def act(
        learner: Learner, carry: Carry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[Carry, Array, dict[str, Array]]:
        actor_carry, action, extras = actor.act(learner.policy, carry.actor, step, key, greedy)
        critic_carry = carry.critic
        if learner.critic and jax.tree.leaves(critic_carry):
            seen = jax.tree.map(lambda x: x[None], normalised(learner.policy.inputs, step))
            critic_carry = last_carry(critic.values(learner.critic, critic_carry, seen)[0])
        return Carry(actor_carry, critic_carry), action, extras

    def evaluate(learner: Learner, trajectory: Trajectory) -> ValueEstimate:
        inputs = learner.policy.inputs

        def follow(carry: Carry, steps: tuple[Step, Step]) -> tuple[Carry, ValueEstimate]:
            step, outcome = (normalised(inputs, each) for each in steps)
            critic_after, value = critic.values(learner.critic, carry.critic, step)
            _, next_value = critic.values(learner.critic, critic_after, jax.tree.map(lambda x: x[None], outcome))
            actor_after = ()
            if jax.tree.leaves(carry.actor):
                actor_after, _ = actor.distribution(learner.policy.actor, carry.actor, step)
            after = Carry(actor_after, critic_after)
            return last_carry(after), ValueEstimate(value, next_value[0], after)

        return over_time(follow, trajectory.carry, (trajectory.step, trajectory.outcome))

    return ActorCritic(actor, critic, init, initial_carry, act, evaluate)


def make_nets(spec: EnvSpec, config: ValueConfig, index: tuple[int, ...], death_mask: bool = True) -> ActorCritic:
    """Actors and critics as a :class:`shoal.learning.config.ValueConfig` describes them."""
    c = config
    actor = make_actor(spec, c.network, index, c.agent_id, c.output_gain, c.log_std, c.squash)
    critic = make_critic(spec, c.critic_body, c.critic_input, index, c.agent_id, death_mask)
    return make_actor_critic(actor, critic)


def acting_only(
    init_policy: Callable[[PRNGKeyArray], PyTree],
    initial_carry: Callable[[int], PyTree],
    act: Callable[..., tuple[PyTree, Array, dict[str, Array]]],
    **facts: Any,
) -> Algorithm:
    """An algorithm that acts and cannot learn: its learner has a policy and nothing else.

    Args:
        init_policy: key -> a policy, for its structure; the same as that of the algorithm's ``init`` from this key.
        initial_carry: as ``Algorithm.initial_carry``.
        act: as ``Algorithm.act``.
        facts: further fields of :class:`shoal.types.Algorithm`, as the algorithm itself has them.
    """

    def init(key: PRNGKeyArray) -> Learner:
        return Learner(init_policy(key), (), (), (), jnp.int32(0))

    def update(learner: Learner, data: Any, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        raise TypeError("This algorithm was made by make_policy, for acting only: it cannot learn.")

    return Algorithm(init, initial_carry, act, update, **facts)


def make_policy(
    spec: EnvSpec,
    c: PolicyConfig,
    epsilon: Float[Array, ""] | None = None,
    keys: int = 2,
    actor: Actor | None = None,
    **facts: Any,
) -> Algorithm:
    """Decentralised stochastic policies.

    Args:
        spec: the environment's description.
        c: hyper-parameters.
        epsilon: see :class:`shoal.models.actor_critic.Policy`.
        keys: into so many the algorithm's ``init`` splits its key, of which the first is the actors'.
        actor: the policies; None for those that ``c`` describes.
        facts: see :func:`acting_only`.

    Raises:
        InputError: an option is out of its range, or the environment's actions have no such distribution.
    """
    check_options(c)
    if actor is None:
        index = policy_of(spec, c.sharing)
        actor = make_actor(spec, c.network, index, c.agent_id, c.output_gain, c.log_std, c.squash)

    def init_policy(key: PRNGKeyArray) -> Policy:
        return Policy(actor.init(jax.random.split(key, keys)[0]), init_inputs(spec, c.normalise_inputs), epsilon)

    def act(
        learner: Learner, carry: Carry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[Carry, Array, dict[str, Array]]:
        after, action, extras = actor.act(learner.policy, carry.actor, step, key, greedy)
        return Carry(after, ()), action, extras

    def inspect(
        learner: Learner, carry: Carry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        del action, extras
        return actor.inspect(learner.policy, carry.actor, step)

    return acting_only(
        init_policy, lambda envs: Carry(actor.initial_carry(envs), ()), act, inspect=inspect, stochastic=True, **facts
    )
