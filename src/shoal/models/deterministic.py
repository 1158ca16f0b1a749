"""Actors and critics of MADDPG, DDPG and MATD3, and of HADDPG and HATD3; critics of ISAC and HASAC.

Actors are deterministic, or discrete and relaxed, also as ensembles; critics are of joint actions, one or several per
agent or for the team.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.equations.distributions import Categorical, described, gumbel_softmax, row_keys
from shoal.equations.reduce import total
from shoal.equations.schedules import annealed
from shoal.equations.targets import RewardNorm, mask_dead_values, of_a_living_team, unscaled
from shoal.errors import InputError, unknown
from shoal.learning.config import ExplorationConfig
from shoal.learning.optimiser import Adam, Optimiser
from shoal.models.actor_critic import make_distribution
from shoal.networks.body import Body, build_body
from shoal.networks.inputs import (
    Inputs,
    Layout,
    actor_input,
    critic_input,
    encode_actions,
    init_inputs,
    layout_of_agents,
    normalised,
    vector_layout,
)
from shoal.networks.net import Net, last_carry
from shoal.networks.sharing import copies, per_agent
from shoal.types import Box, Discrete, EnvSpec, Learner, Metrics, PyTree, Step


class DeterministicPolicy(NamedTuple):
    """Everything that acting needs; deployment saves this."""

    actor: PyTree
    """Parameters [P, ...] of every policy."""
    inputs: Inputs
    noise: Float[Array, ""]
    """Standard deviation of the exploration of continuous actions, in units of half their box."""
    random: Bool[Array, ""] | None = None
    """Whether actions are still drawn uniformly; None without ``random_start``."""


def init_policy(spec: EnvSpec, c: ExplorationConfig, actor: PyTree) -> DeterministicPolicy:
    """The policy at the start of training, with the parameters ``actor``."""
    random = jnp.bool_(True) if c.random_start else None
    return DeterministicPolicy(actor, init_inputs(spec, c.normalise_inputs), jnp.float32(c.noise), random)


def end_update(learner: Learner, c: ExplorationConfig, num_updates: int) -> Learner:
    """The learner after an update: the next exploration, and one more update counted."""
    policy: DeterministicPolicy = learner.policy
    updates = learner.updates + 1
    if c.noise_final is not None:
        noise = annealed(c.noise, c.noise_final, c.noise_fraction, updates, num_updates)
        policy = policy._replace(noise=noise)
    if policy.random is not None:
        policy = policy._replace(random=jnp.bool_(False))
    return learner._replace(policy=policy, updates=updates)


class Carry(NamedTuple):
    """State between timesteps."""

    actor: PyTree
    """Recurrent state of the actors [E, N, H]."""
    member: Int[Array, "E N"] | None = None
    """The sub-policy that each agent uses in this episode; see :func:`make_ensemble`."""


class Actors(NamedTuple):
    """Deterministic policies, or discrete ones with differentiable samples."""

    init: Callable[[PRNGKeyArray], PyTree]
    initial_carry: Callable[[int], Carry]
    output: Callable[..., tuple[PyTree, Float[Array, "T E N A"]]]
    """(θ, recurrent state, normalised step, extras [T E ...]) -> (recurrent state after each timestep, logits or raw
    actions)."""
    act: Callable[..., tuple[Carry, Array, dict[str, Array]]]
    """As ``Algorithm.act``."""
    inspect: Callable[[Learner, Carry, Step, dict[str, Array]], dict[str, Array]]
    """(learner, carry, step [E ...], extras of ``act``) -> the policies in numbers; see ``Algorithm.inspect``."""
    net_of: Callable[[dict[str, Array]], Int[Array, "*#b N"]]
    """Extras [*b ...] -> which of the nets chose each action."""
    num_nets: int
    features: Callable[[Step], Float[Array, "*b N F"]]
    """Normalised step -> what each agent's net reads."""
    alone: Callable[[PyTree, Float[Array, "T b F"], Array], Float[Array, "T b A"]]
    """One feed-forward net alone: (its parameters without the axis P, features, first [T b]) -> its output."""
    extras: tuple[str, ...] = ()
    """Names of the extras of ``act`` that the other functions read."""


def squashed(box: Box, x: Float[Array, "*b A"], real: Array) -> Float[Array, "*b A"]:
    """A raw output as an action inside the box; padded dimensions are 0."""
    half = (box.high - box.low) / 2
    return jnp.where(real, box.low + half * (1.0 + jnp.tanh(x)), 0.0)


def uniform_action(space: Discrete | Box, legal: Array, key: PRNGKeyArray) -> Array:
    """Actions [*b N] or [*b N A] drawn uniformly from the legal ones, or from the box; padded dimensions are 0."""
    if isinstance(space, Discrete):
        return Categorical(jnp.zeros(legal.shape, jnp.float32), legal).sample(key)
    drawn = jax.random.uniform(key, legal.shape, minval=space.low, maxval=space.high)
    return jnp.where(legal, drawn, 0.0)


Start = Callable[[Carry, Step, PRNGKeyArray], tuple[Carry, dict[str, Array]]]
"""(carry, step [E ...], key) -> (carry, extras of acting from it)."""


def make_act(
    space: Discrete | Box, output: Callable[..., Any], start: Start = lambda carry, step, key: (carry, {})
) -> Callable[..., tuple[Carry, Array, dict[str, Array]]]:
    """An ``Algorithm.act`` from the actors' ``output``; ``start`` is called first in every timestep."""

    def act(
        learner: Learner, carry: Carry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[Carry, Array, dict[str, Array]]:
        policy: DeterministicPolicy = learner.policy
        key_start, key_noise = jax.random.split(key)
        carry, extras = start(carry, step, key_start)
        ahead = jax.tree.map(lambda x: x[None], (normalised(policy.inputs, step), extras))
        after, x = output(policy.actor, carry.actor, *ahead)
        x = x[0]
        if isinstance(space, Box):
            action = squashed(space, x, step.legal)
            if not greedy:
                half = (space.high - space.low) / 2
                blur = policy.noise * half * jax.random.normal(key_noise, x.shape)
                action = jnp.where(step.legal, jnp.clip(action + blur, space.low, space.high), 0.0)
        else:
            dist = Categorical(x, step.legal)
            action = dist.mode() if greedy else dist.sample(key_noise)
        if policy.random is not None and not greedy:
            anything = uniform_action(space, step.legal, jax.random.fold_in(key_noise, 1))
            action = jnp.where(policy.random, anything, action)
        return carry._replace(actor=last_carry(after)), action, extras

    return act


def make_inspect_actors(space: Discrete | Box, output: Callable[..., Any]) -> Callable[..., dict[str, Array]]:
    """An ``Actors.inspect``: probabilities of the relaxed samples, or actions and the deviation of their noise."""

    def inspect(learner: Learner, carry: Carry, step: Step, extras: dict[str, Array]) -> dict[str, Array]:
        policy: DeterministicPolicy = learner.policy
        ahead = jax.tree.map(lambda x: x[None], (normalised(policy.inputs, step), extras))
        x = output(policy.actor, carry.actor, *ahead)[1][0]
        if isinstance(space, Discrete):
            return described(Categorical(x, step.legal))
        std = jnp.broadcast_to(policy.noise * (space.high - space.low) / 2, x.shape)
        mean = squashed(space, x, step.legal)
        return {"mean": jnp.where(step.legal, mean, jnp.nan), "std": jnp.where(step.legal, std, jnp.nan)}

    return inspect


def make_actors(spec: EnvSpec, body: Body, index: tuple[int, ...], agent_id: bool) -> Actors:
    """Actors from each agent's own observation; those with the same number in ``index`` share a net.

    Raises:
        InputError: continuous actions have no finite box.
    """
    make_distribution(spec, False)  # refuses boxes without bounds
    source = actor_input(spec, agent_id and max(index) + 1 < spec.num_agents)
    one = build_body(body, source.layout, spec.action.width, output_gain=0.01, actions=True)
    net, nets = per_agent(one, index), jnp.array(index)

    def output(params: PyTree, carry: PyTree, step: Step, extras: dict[str, Array]) -> tuple[PyTree, Array]:
        return net.apply(params, carry, source.features(step), step.first)

    def initial_carry(num_envs: int) -> Carry:
        return Carry(net.initial_carry((num_envs,)))

    act, inspect = make_act(spec.action, output), make_inspect_actors(spec.action, output)
    count, alone = max(index) + 1, output_alone(one)
    return Actors(net.init, initial_carry, output, act, inspect, lambda extras: nets, count, source.features, alone)


def output_alone(one: Net) -> Callable[[PyTree, Array, Array], Array]:
    """An ``Actors.alone``."""
    return lambda params, x, first: one.apply(params, (), x, first)[1]


# Ensembles of K sub-policies per agent, one of which acts in an episode (Lowe et al. 2017, section 4.3, eq. 9).


def make_ensemble(spec: EnvSpec, body: Body, index: tuple[int, ...], agent_id: bool, members: int) -> Actors:
    """K = ``members`` sub-policies for each agent; agents with the same number in ``index`` share theirs.

    ``act`` draws each agent's sub-policy at the start of an episode and returns its number as the extra ``member``.
    D_i^(k) holds the episodes in which agent i's k-th sub-policy acted: one buffer stores them all, with ``member``
    beside each timestep, and each sub-policy learns from its own rows. The factor 1/K of equation 9 is left out: Adam
    would cancel it.

    Raises:
        InputError: continuous actions have no finite box.
    """
    make_distribution(spec, False)  # refuses boxes without bounds
    n, width = spec.num_agents, spec.action.width
    source = actor_input(spec, agent_id and max(index) + 1 < n)
    one = build_body(body, source.layout, width, output_gain=0.01, actions=True)
    net = per_agent(one, copies(index, members))
    first_net = jnp.array(index) * members

    def output(params: PyTree, carry: PyTree, step: Step, extras: dict[str, Array]) -> tuple[PyTree, Array]:
        carry, x = net.apply(params, carry, jnp.repeat(source.features(step), members, axis=-2), step.first)
        plays = extras["member"][..., None] == jnp.arange(members)
        return carry, jnp.where(plays[..., None], x.reshape(*x.shape[:-2], n, members, width), 0.0).sum(-2)

    def start(carry: Carry, step: Step, key: PRNGKeyArray) -> tuple[Carry, dict[str, Array]]:
        assert carry.member is not None
        drawn = jax.random.randint(key, carry.member.shape, 0, members)
        member = jnp.where(step.first[:, None], drawn, carry.member)
        return carry._replace(member=member), {"member": member}

    def initial_carry(num_envs: int) -> Carry:
        return Carry(net.initial_carry((num_envs,)), jnp.zeros((num_envs, n), jnp.int32))

    def net_of(extras: dict[str, Array]) -> Array:
        return first_net + extras["member"]

    act, inspect = make_act(spec.action, output, start), make_inspect_actors(spec.action, output)
    nets = members * (max(index) + 1)
    alone = output_alone(one)
    return Actors(net.init, initial_carry, output, act, inspect, net_of, nets, source.features, alone, ("member",))


# What critics read.


def gumbel_actions(
    space: Discrete | Box,
    x: Float[Array, "*b A"],
    legal: Array,
    alive: Array,
    noise: Float[Array, "*b A"],
    *,
    temperature: float,
    straight_through: bool,
) -> Float[Array, "*b A"]:
    """The actors' outputs as actions that critics read; 0 for dead agents.

    A tanh for continuous actions, a Gumbel-softmax sample from standard Gumbel noise for discrete ones.
    """
    if isinstance(space, Box):
        action = jnp.where(legal, jnp.tanh(x), 0.0)
    else:
        action = gumbel_softmax(x, legal, noise, temperature=temperature, straight_through=straight_through)
    return jnp.where(alive[..., None], action, 0.0)


def draw_noise(space: Discrete | Box, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "L B ..."]:
    """Noise for :func:`gumbel_actions` or for target actions [L, B, ...], the same on any number of devices."""
    kind = jax.random.normal if isinstance(space, Box) else jax.random.gumbel
    keys = row_keys(key, shape[1])
    return jax.vmap(lambda k: kind(k, (shape[0], *shape[2:])), out_axes=1)(keys)


def delayed(
    f: Callable[..., tuple[Any, ...]], delay: int, step: Int[Array, ""], before: tuple[Any, ...], noted: Metrics
) -> tuple[Any, ...]:
    """``f(*before)``, the new ``before`` and metrics, at every ``delay``-th step (from 1).

    At other steps ``before`` does not change, and metrics are ``noted``, those of the last call.
    """
    if delay == 1:
        return f(*before)
    return jax.lax.cond(step % delay == 0, f, lambda *same: (*same, noted), *before)


CRITIC_INPUTS = ("concat", "state", "local")


class Critics(NamedTuple):
    """C critics Q^i(x, a_1 … a_N) of every agent."""

    init: Callable[[PRNGKeyArray], PyTree]
    values: Callable[[PyTree, Step, Float[Array, "T E N N A"]], Float[Array, "T E N C"]]
    """(parameters, normalised step, encoded joint action that each agent's critic reads) -> Q."""
    first: Callable[[PyTree, Step, Float[Array, "T E N N A"]], Float[Array, "T E N"]]
    """The same of each agent's first critic alone."""


def make_critics(
    spec: EnvSpec,
    body: Body,
    index: tuple[int, ...],
    agent_id: bool,
    *,
    kind: str,
    local_roles: tuple[int, ...] = (),
    count: int = 1,
) -> Critics:
    """Feed-forward critics.

    Args:
        spec: the environment.
        body: layers; a GRU is left out.
        index: which agents share critics.
        agent_id: whether critics that several agents share read the agent's number.
        kind: ``concat``, ``state`` or ``local``.
        local_roles: roles whose critics read their own agent's observation and action only.
        count: C.

    Raises:
        InputError: there is no such input or role, or the environment has no global state to read.
    """
    n, width = spec.num_agents, spec.action.width
    if kind not in CRITIC_INPUTS:  # the others contain one agent's observation beside the state
        raise unknown("critic input", kind, CRITIC_INPUTS)
    source = critic_input(spec, kind, agent_id=False)
    if local_roles and kind != "concat":
        raise InputError(f"local_roles needs critic_input concat, not {kind}.")
    missing = [role for role in local_roles if role not in spec.roles]
    if missing:
        here = f"the agents to train in {spec.name} have roles 0 to {max(spec.roles)}"
        raise InputError(f"local_roles has {missing[0]}; {here}.")
    alone = [kind == "local" or role in local_roles for role in spec.roles]
    visible = jnp.array([[i == j or not alone[i] for j in range(n)] for i in range(n)], jnp.float32)  # [critic, agent]
    ids = agent_id and max(index) + 1 < n
    own = source.per_agent  # a local input is one observation, read with one action
    acts = vector_layout(width, "action")
    layout = source.layout + (acts if own else layout_of_agents(acts, range(n)))
    layout += vector_layout(n, "id") if ids else Layout(())
    net = build_body(replace(body, recurrent=None), layout, 1)
    nets, firsts = per_agent(net, copies(index, count)), per_agent(net, index)

    def features(step: Step, joint: Array) -> Float[Array, "*b N F"]:
        lead = joint.shape[:-3]
        if own:
            x, u = source.features(step), jnp.diagonal(joint, axis1=-3, axis2=-2).swapaxes(-1, -2)
        else:
            x = jnp.broadcast_to(source.features(step)[..., None, :], (*lead, n, source.width))
            if kind == "concat" and any(alone):
                x = (x.reshape(*lead, n, n, spec.feature_dim) * visible[..., None]).reshape(x.shape)
            u = (joint * visible[..., None]).reshape(*lead, n, n * width)
        return jnp.concatenate([x, u] + ([jnp.broadcast_to(jnp.eye(n), (*lead, n, n))] if ids else []), -1)

    def values(params: PyTree, step: Step, joint: Array) -> Array:
        x = jnp.repeat(features(step, joint), count, axis=-2)
        q = nets.apply(params, (), x, step.first)[1][..., 0]
        return q.reshape(*joint.shape[:-3], n, count)

    def first(params: PyTree, step: Step, joint: Array) -> Array:
        params = jax.tree.map(lambda p: p[::count], params)
        return firsts.apply(params, (), features(step, joint), step.first)[1][..., 0]

    return Critics(nets.init, values, first)


class TeamCritics(NamedTuple):
    """C critics Q(x, a_1 … a_N) of the team."""

    init: Callable[[PRNGKeyArray], PyTree]
    values: Callable[[PyTree, Step, Float[Array, "T E N A"]], Float[Array, "T E C"]]
    """(parameters, normalised step, encoded joint action) -> Q."""
    first: Callable[[PyTree, Step, Float[Array, "T E N A"]], Float[Array, "T E"]]
    """The same of the first critic alone."""
    optimiser: Callable[[Adam, frozenset[str]], Optimiser]
    """(optimiser of P nets, names of frozen arrays) -> the critics' optimiser."""


def make_team_critics(spec: EnvSpec, body: Body, kind: str, count: int) -> TeamCritics:
    """``count`` feed-forward critics of the team's return; ``kind`` is ``concat`` or ``state``.

    Raises:
        InputError: there is no such input, or the environment has no global state to read.
    """
    if kind not in ("concat", "state"):
        raise unknown("critic input", kind, ("concat", "state"))
    n, source = spec.num_agents, critic_input(spec, kind, agent_id=False)  # type: ignore[arg-type]
    layout = source.layout + layout_of_agents(vector_layout(spec.action.width, "action"), range(n))
    net = build_body(replace(body, recurrent=None), layout, 1)
    nets, one = per_agent(net, tuple(range(count))), per_agent(net, (0,))

    def features(step: Step, joint: Array) -> Float[Array, "T E 1 F"]:
        return jnp.concatenate([source.features(step), joint.reshape(*joint.shape[:-2], -1)], -1)[..., None, :]

    def values(params: PyTree, step: Step, joint: Array) -> Array:
        x = features(step, joint)
        x = jnp.broadcast_to(x, (*x.shape[:-2], count, x.shape[-1]))
        return nets.apply(params, (), x, step.first)[1][..., 0]

    def first(params: PyTree, step: Step, joint: Array) -> Array:
        params = jax.tree.map(lambda p: p[:1], params)
        return one.apply(params, (), features(step, joint), step.first)[1][..., 0, 0]

    return TeamCritics(nets.init, values, first, lambda adam, frozen: adam(count, frozen))


def lesser(q: Float[Array, "*b 2"]) -> Float[Array, "*b"]:
    """The lesser of two critics' values, for actors' losses.

    A selection: the gradient of ``min`` divides by the number of values that equal it, which is 0 where XLA computes
    them twice with other rounding; the gradient is then NaN.
    """
    return jnp.where(q[..., 0] < q[..., 1], q[..., 0], q[..., 1])


def read_by_all(u: Float[Array, "*b N A"]) -> Float[Array, "*b N N A"]:
    """One joint action, as every agent's critic reads it."""
    return jnp.broadcast_to(u[..., None, :, :], (*u.shape[:-2], *u.shape[-2:-1], *u.shape[-2:]))


def taken(spec: EnvSpec, action: Array, step: Step) -> Float[Array, "*b N N A"]:
    """The joint action that was taken, as every agent's critic reads it."""
    return read_by_all(encode_actions(spec.action, action, step))


def make_inspect_critics(
    spec: EnvSpec, actors: Actors, critics: Critics, reward_norm: RewardNorm
) -> Callable[..., dict[str, Array]]:
    """An ``Algorithm.inspect``: the actors', and :func:`inspect_values`."""

    def inspect(
        learner: Learner, carry: Carry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        found = actors.inspect(learner, carry, step, extras)
        return found | inspect_values(spec, critics, reward_norm, learner, step, action)

    return inspect


def inspect_values(
    spec: EnvSpec, critics: Critics, reward_norm: RewardNorm, learner: Learner, step: Step, action: Array
) -> dict[str, Array]:
    """``value`` of an ``Algorithm.inspect``: each agent's first critic's value of the actions, if there are critics."""
    if not (learner.critic and learner.statistics) or reward_norm == "standardise":
        return {}
    seen, u = jax.tree.map(lambda x: x[None], (normalised(learner.policy.inputs, step), action))
    value = critics.first(learner.critic, seen, taken(spec, u, seen))[0]
    value = mask_dead_values(value, step.alive, spec.reward_groups)
    return {"value": unscaled(learner.statistics.reward, value)}


def inspect_team_value(
    spec: EnvSpec, critics: TeamCritics, reward_norm: RewardNorm, learner: Learner, step: Step, action: Array
) -> dict[str, Array]:
    """``value`` of an ``Algorithm.inspect``: the first critic's value of the actions, if the learner has critics."""
    if not (learner.critic and learner.statistics) or reward_norm == "standardise":
        return {}
    seen = jax.tree.map(lambda x: x[None], normalised(learner.policy.inputs, step))
    q = critics.first(learner.critic, seen, encode_actions(spec.action, action[None], seen))[0]
    value = unscaled(learner.statistics.reward, of_a_living_team(q, step.alive))
    return {"value": jnp.broadcast_to(value[..., None], step.alive.shape)}


def per_net(mask: Array, net_of: Int[Array, "*#b N"], nets: int) -> Float[Array, "*b N"]:
    """Weights of rows that add up to 1 over the rows in ``mask`` of each net, on all devices.

    The gradient of each net is then that of the mean over its own rows, whatever the number of other rows.
    """
    mine = mask[..., None] & (net_of[..., None] == jnp.arange(nets))
    count = total(mine.sum(tuple(range(mine.ndim - 1))).astype(jnp.float32))
    return (mine / jnp.maximum(count, 1.0)).sum(-1)
