"""Actors of MADDPG, DDPG and MATD3: deterministic, or discrete and relaxed; and ensembles of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.equations.distributions import Categorical, described
from shoal.equations.draws import row_keys
from shoal.equations.relaxation import gumbel_softmax
from shoal.models.actor_critic import make_distribution
from shoal.networks.body import Body, build
from shoal.networks.inputs import Inputs, actor_input, normalised
from shoal.networks.net import last_carry
from shoal.networks.sharing import copies, per_agent
from shoal.types import Box, Discrete, EnvSpec, Learner, PyTree, Step


class Policy(NamedTuple):
    """Everything that acting needs; deployment saves this."""

    actor: PyTree
    """Parameters [P, ...] of every policy."""
    inputs: Inputs
    noise: Float[Array, ""]
    """Standard deviation of the exploration of continuous actions, in units of half their box."""


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
    extras: tuple[str, ...] = ()
    """Names of the extras of ``act`` that the other functions read."""


def squashed(box: Box, x: Float[Array, "*b A"], real: Array) -> Float[Array, "*b A"]:
    """A raw output as an action inside the box; padded dimensions are 0."""
    half = (box.high - box.low) / 2
    return jnp.where(real, box.low + half * (1.0 + jnp.tanh(x)), 0.0)


Start = Callable[[Carry, Step, PRNGKeyArray], tuple[Carry, dict[str, Array]]]
"""(carry, step [E ...], key) -> (carry, extras of acting from it)."""


def acting(
    space: Discrete | Box, output: Callable[..., Any], start: Start = lambda carry, step, key: (carry, {})
) -> Callable[..., tuple[Carry, Array, dict[str, Array]]]:
    """An ``Algorithm.act`` from the actors' ``output``; ``start`` is called first in every timestep."""

    def act(
        learner: Learner, carry: Carry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[Carry, Array, dict[str, Array]]:
        policy: Policy = learner.policy
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
        return carry._replace(actor=last_carry(after)), action, extras

    return act


def make_inspect(space: Discrete | Box, output: Callable[..., Any]) -> Callable[..., dict[str, Array]]:
    """An ``Actors.inspect``: probabilities of the relaxed samples, or actions and the deviation of their noise."""

    def inspect(learner: Learner, carry: Carry, step: Step, extras: dict[str, Array]) -> dict[str, Array]:
        policy: Policy = learner.policy
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
    net, nets = per_agent(build(body, source.layout, spec.action.width, output_gain=0.01), index), jnp.array(index)

    def output(params: PyTree, carry: PyTree, step: Step, extras: dict[str, Array]) -> tuple[PyTree, Array]:
        return net.apply(params, carry, source.features(step), step.first)

    def initial_carry(num_envs: int) -> Carry:
        return Carry(net.initial_carry((num_envs,)))

    act, inspect = acting(spec.action, output), make_inspect(spec.action, output)
    return Actors(net.init, initial_carry, output, act, inspect, lambda extras: nets, max(index) + 1)


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
    net = per_agent(build(body, source.layout, width, output_gain=0.01), copies(index, members))
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

    act, inspect = acting(spec.action, output, start), make_inspect(spec.action, output)
    nets = members * (max(index) + 1)
    return Actors(net.init, initial_carry, output, act, inspect, net_of, nets, ("member",))


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


def draw(space: Discrete | Box, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "L B ..."]:
    """Noise for :func:`gumbel_actions` or for target actions [L, B, ...], the same on any number of devices."""
    kind = jax.random.normal if isinstance(space, Box) else jax.random.gumbel
    keys = row_keys(key, shape[1])
    return jax.vmap(lambda k: kind(k, (shape[0], *shape[2:])), out_axes=1)(keys)


def delayed(
    f: Callable[..., tuple[Any, ...]], delay: int, step: Int[Array, ""], before: tuple[Any, ...]
) -> tuple[Any, ...]:
    """``f(*before)``, the new ``before`` and metrics, at every ``delay``-th step (from 1).

    At other steps ``before`` does not change and metrics are 0; the metrics of ``f`` are multiplied by ``delay``, so
    that their mean over all steps is the mean over the calls.
    """
    if delay == 1:
        return f(*before)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(f, *before)[-1])
    *after, metrics = jax.lax.cond(step % delay == 0, f, lambda *same: (*same, nothing), *before)
    return *after, {name: x * delay for name, x in metrics.items()}
