"""Teams of MAT and Sable: one network decodes the agents' actions one after the other, each from those before it."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from shoal.equations.distributions import Distribution, described
from shoal.equations.targets import ValueScale, mask_dead_values
from shoal.errors import InputError
from shoal.models.actor_critic import Carry, ValueEstimate, make_distribution
from shoal.networks.body import Body
from shoal.networks.inputs import CriticInput, Input, critic_input, normalised
from shoal.networks.net import SequenceNet
from shoal.networks.transformer import Encoder, make_encoder
from shoal.types import Box, Discrete, EnvSpec, Learner, PyTree, Step, Trajectory


class SequenceTeam(NamedTuple):
    """Encoder and decoder: functions for a :class:`shoal.types.Algorithm`. Only ``carry.actor`` is used."""

    init: Callable[[PRNGKeyArray], PyTree]
    """key -> parameters of both, leaves with a leading axis of length 1; all are the actor's."""
    initial_carry: Callable[[int], Carry]
    act: Callable[[Learner, Carry, Step, PRNGKeyArray, bool], tuple[Carry, Array, dict[str, Array]]]
    evaluate: Callable[[Learner, Trajectory], ValueEstimate]
    evaluate_actions: Callable[
        [PyTree, PyTree, Step, Array, dict[str, Array]], tuple[Distribution, Float[Array, "T E N"]]
    ]
    """(parameters, the actor's carry before, normalised step [T E ...], action, extras) -> (each agent's distribution
    given the actions before it, value), all timesteps and agents at once."""
    make_inspect: Callable[[ValueScale | None], Callable[..., dict[str, Array]]]
    """The values' scale, or None without it -> an ``Algorithm.inspect``, with the distributions given the actions taken
    before, and the encoder's attention."""


def decoding_rank(
    alive: Bool[Array, "*b N"], priority: Float[Array, "*#b N"] | Int[Array, "*#b N"]
) -> Int[Array, "*b N"]:
    """How many agents decode before each: those of lower priority, or of the same and a lower index.

    Dead agents come last, so that no living agent reads the action of a dead one.
    """
    index = jnp.arange(alive.shape[-1])
    own, other = priority[..., :, None], priority[..., None, :]
    sooner = (other < own) | ((other == own) & (index < index[:, None]))
    own, other = alive[..., :, None], alive[..., None, :]
    return jnp.where(own == other, sooner, other).sum(-1, dtype=jnp.int32)


def team_input(spec: EnvSpec, kind: CriticInput, agent_id: bool) -> Input:
    """The encoder's input, a row per agent, with a one-hot id where ``agent_id``.

    Raises:
        InputError: the input is the same for all agents, or the environment lacks it.
    """
    source = critic_input(spec, kind, agent_id and spec.num_agents > 1, agent_id)
    if not source.per_agent:
        raise InputError(
            f"Attention among agents needs a row of each: critic_input must be local, agent or pruned, not {kind!r}."
        )
    return source


def make_team_encoder(
    spec: EnvSpec, body: Body, blocks: int, heads: int, kind: CriticInput, agent_id: bool
) -> tuple[Input, Encoder]:
    """The encoder's input and MAT's encoder.

    Raises:
        InputError: as :func:`team_input`, or the network cannot be built.
    """
    source = team_input(spec, kind, agent_id)
    return source, make_encoder(body, blocks, heads, source.width)


def make_sequence_team(
    spec: EnvSpec,
    source: Input,
    make_net: Callable[[int, int, float | None], SequenceNet],
    *,
    log_std: float,
    squash: bool,
    shuffled: bool,
) -> SequenceTeam:
    """A team whose agents' actions a network decodes one after the other.

    Args:
        spec: the environment.
        source: the encoder's input of each agent.
        make_net: (features of a token, outputs of an agent, initial log standard deviation or None) -> the network.
        log_std: initial log standard deviation of continuous actions.
        squash: see :func:`shoal.models.actor_critic.make_distribution`.
        shuffled: whether the order of decoding is drawn in every timestep.

    Raises:
        InputError: as :func:`make_distribution`, and as ``make_net``.
    """
    n, space = spec.num_agents, spec.action
    to_distribution = make_distribution(spec, squash)
    std, width = (log_std, 2 * space.dim) if isinstance(space, Box) else (None, space.width)
    net = make_net(space.width + 1, space.width, std)

    def token(action: Array, legal: Array) -> Float[Array, "*b F"]:
        """The decoder's input for an action: one-hot, or in units of half the box; the last feature, the start flag, is
        0."""
        if isinstance(space, Discrete):
            x = jax.nn.one_hot(action, space.n)
        else:
            x = jnp.where(legal, (action - space.low) * (2 / (space.high - space.low)) - 1, 0.0)
        return jnp.concatenate([x, jnp.zeros((*x.shape[:-1], 1))], axis=-1)

    def started(tokens: Array, first: Array) -> Array:
        """The start token where ``first``: all features 0 but the flag, which no action has."""
        return jnp.where(first[..., None], jnp.arange(space.width + 1) == space.width, tokens)

    def init(key: PRNGKeyArray) -> PyTree:
        return jax.tree.map(lambda x: x[None], net.init(key))  # P = 1

    def initial_carry(num_envs: int) -> Carry:
        return Carry(net.initial_carry(num_envs), ())

    def evaluate_actions(
        params: PyTree, carry: PyTree, step: Step, action: Array, extras: dict[str, Array]
    ) -> tuple[Distribution, Array]:
        params = _only(params)
        value, rep = net.encode(params, carry, source.features(step), step.alive, step.first)
        rank = extras["rank"] if shuffled else decoding_rank(step.alive, jnp.arange(n))
        done = jnp.where(step.alive[..., None], token(action, step.legal), 0.0)
        before = _take(done, _take(_inverse(rank), jnp.maximum(rank - 1, 0)))
        output = net.decode(params, carry, rep, started(before, rank == 0), rank, step.alive, step.first)
        return to_distribution(output, step.legal), value

    def act(
        learner: Learner, carry: Carry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[Carry, Array, dict[str, Array]]:
        params, step = _only(learner.policy.actor), normalised(learner.policy.inputs, step)
        _, rep, state = net.begin(params, carry.actor, source.features(step), step.alive, step.first)
        key_order, key_action = jax.random.split(key)
        drawn = shuffled and not greedy
        rank = decoding_rank(step.alive, jax.random.uniform(key_order, step.alive.shape) if drawn else jnp.arange(n))
        order, envs = _inverse(rank), rank.shape[0]
        # By rank: [N, E, ...].
        rep, legal, alive = (jnp.swapaxes(_take(x, order), 0, 1) for x in (rep, step.legal, step.alive))
        noise = to_distribution(jnp.zeros((n, envs, width)), legal).noise(key_action)

        def turn(loop: tuple[PyTree, Array], agent: tuple) -> tuple[tuple[PyTree, Array], tuple[Array, Array]]:
            """Decode the agents of rank m, one in each environment."""
            state, before = loop
            m, rep, legal, alive, noise = agent
            state, output = net.step(params, state, m, rep, before, alive)
            dist = to_distribution(output, legal)
            action = dist.mode() if greedy else dist.sample_from(noise)
            return (state, token(action, legal)), (action, dist.log_prob(action))

        start = started(jnp.zeros((envs, space.width + 1)), jnp.ones(envs, bool))
        (state, _), chosen = jax.lax.scan(turn, (state, start), (jnp.arange(n), rep, legal, alive, noise))
        action, log_prob = (_take(jnp.swapaxes(x, 0, 1), rank) for x in chosen)
        after = Carry(net.end(state), ())
        return after, action, {"log_prob": log_prob} | ({"rank": rank} if shuffled else {})

    def evaluate(learner: Learner, traj: Trajectory) -> ValueEstimate:
        params, carry = _only(learner.policy.actor), traj.carry.actor
        step, outcome = (normalised(learner.policy.inputs, x) for x in (traj.step, traj.outcome))
        if not jax.tree.leaves(carry):
            now, then = (net.encode(params, (), source.features(x), x.alive, x.first)[0] for x in (step, outcome))
            return ValueEstimate(now, then, traj.carry)

        def value(carry: PyTree, x: Step) -> tuple[PyTree, Array]:
            """The encoder's part of a timestep; what the decoder keeps has no effect on values."""
            found, _, state = net.begin(params, carry, source.features(x), x.alive, x.first)
            return net.end(state), found

        def follow(carry: PyTree, moment: tuple[Step, Step]) -> tuple[PyTree, tuple[Array, Array]]:
            carry, now = value(carry, moment[0])
            return carry, (now, value(carry, moment[1])[1])

        _, (now, then) = jax.lax.scan(follow, carry, (step, outcome))
        # A sequence is the whole rollout, so no state but the first is read.
        return ValueEstimate(now, then, jax.tree.map(lambda x: x[None], traj.carry))

    def make_inspect(values: ValueScale | None) -> Callable[..., dict[str, Array]]:
        def inspect(
            learner: Learner, carry: Carry, step: Step, action: Array, extras: dict[str, Array]
        ) -> dict[str, Array]:
            params, seen = learner.policy.actor, normalised(learner.policy.inputs, step)
            moment = jax.tree.map(lambda x: x[None], (seen, action, extras))
            dist, value = evaluate_actions(params, carry.actor, *moment)
            found = {name: x[0] for name, x in described(dist).items()}
            if net.attention is not None:
                found["attention"] = net.attention(_only(params), source.features(seen), step.alive)
            if (
                values is not None and learner.statistics
            ):  # the critic is a part of the policy's network, its scale is not
                value = values.denormalise(learner.statistics.value, value[0])
                found["value"] = mask_dead_values(value, step.alive, spec.reward_groups)
            return found

        return inspect

    return SequenceTeam(init, initial_carry, act, evaluate, evaluate_actions, make_inspect)


def _only(params: PyTree) -> PyTree:
    """The one policy's parameters, without the axis P."""
    return jax.tree.map(lambda x: x[0], params)


def _inverse(rank: Int[Array, "*b N"]) -> Int[Array, "*b N"]:
    """The agent of each rank."""
    index = jnp.arange(rank.shape[-1])
    return jnp.where(rank[..., None, :] == index[:, None], index, 0).sum(-1)


def _take(x: Shaped[Array, "..."], index: Int[Array, "*b N"]) -> Array:
    """The rows ``index`` of agents, or of ranks, of x [*b, N, ...]."""
    lead = math.prod(index.shape[:-1])  # one leading axis: JAX gathers otherwise over an axis of 1, unlike ONNX
    rows, flat = x.reshape(lead, *x.shape[index.ndim - 1 :]), index.reshape(lead, -1)
    return jnp.take_along_axis(rows, flat.reshape(*flat.shape, *(1,) * (rows.ndim - 2)), axis=1).reshape(x.shape)
