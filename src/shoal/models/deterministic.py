"""Actors of MADDPG, DDPG and MATD3: deterministic, or discrete and relaxed, with K sub-policies for every agent."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.bounds import LARGEST_INT, Bounds, Fraction, Index, Positive, Rate, Size, Weight
from shoal.equations.distributions import Categorical
from shoal.equations.draws import row_keys
from shoal.equations.relaxation import gumbel_softmax
from shoal.learning.replay import ReplayConfig
from shoal.models.actor_critic import make_distribution
from shoal.networks.body import Body, build
from shoal.networks.input_statistics import Inputs, normalised
from shoal.networks.inputs import actor_input
from shoal.networks.net import last_carry
from shoal.networks.sharing import Sharing, per_agent
from shoal.types import Box, Discrete, EnvSpec, Learner, PyTree, Step


@dataclass(frozen=True)
class DpgConfig(ReplayConfig):
    """Hyper-parameters of the family. "Paper" is Lowe et al. 2017, "code" its repository (openai/maddpg)."""

    sharing: Sharing | tuple[Index, ...] = "independent"
    """Which agents share actor and critic: ``independent``, ``role``, ``shared``, or a vector. Paper: independent."""
    network: Body = field(default_factory=lambda: Body(activation="relu"))
    """Layers of actors and critics; a GRU is the actors' alone. Paper: 64, 64, relu."""
    gamma: Fraction = 0.95
    """Discount γ per step. Paper: 0.95."""
    learning_rate: Rate = 1e-2
    """Adam's step size for actors. Paper: 0.01."""
    critic_learning_rate: Rate | None = None
    """Adam's step size for critics; None for the actors'."""
    max_grad_norm: Positive | None = 0.5
    """Largest gradient norm of one actor or critic. Code: 0.5, of every array by itself."""
    batch_size: Size = 1024
    """Transitions per gradient step and sub-policy. Paper: 1024."""
    buffer_size: Size = 500_000
    """Moments (environment steps) that the replay buffer holds. Paper: 10⁶."""
    learning_starts: Annotated[int, Bounds(least=0, most=LARGEST_INT)] = 25_600
    """Environment steps before the first gradient step. Code: 1024 episodes of 25."""
    target_rate: Fraction | None = 0.01
    """τ: target networks move by this fraction at each gradient step. Paper: 0.01."""
    relaxation: Literal["straight_through", "soft"] = "straight_through"
    """Discrete actions that the actors' gradient passes through: one-hot samples with the gradient of the relaxed ones,
    or the relaxed ones themselves. Code: soft, and soft in the environment too."""
    temperature: Annotated[float, Bounds(least=1e-3, most=1e3)] = 1.0
    """τ of the Gumbel-softmax. Code: 1."""
    logit_coef: Weight = 1e-3
    """Weight of the mean square of the actors' outputs, without which logits drift off and Q with them. Code: 1e-3."""
    noise: Weight = 0.1
    """Standard deviation of the noise on continuous actions, in units of half their box."""
    critic_input: Literal["concat", "state", "local"] = "concat"
    """What Q^i reads beside actions: ``concat`` all observations, ``state``; or ``local``, its own observation and its
    own action only, which is DDPG. Paper: concat."""
    local_roles: tuple[Index, ...] = ()
    """Roles whose critics are local while the others' are not: DDPG prey against MADDPG predators."""

    @property
    def critic_rate(self) -> float:
        """The critics' step size."""
        return self.learning_rate if self.critic_learning_rate is None else self.critic_learning_rate


class Policy(NamedTuple):
    """All that acting needs; this is what deployment saves."""

    actor: PyTree
    """Parameters [P · K, ...] of every policy's K sub-policies."""
    inputs: Inputs
    noise: Float[Array, ""]
    """Standard deviation of the exploration of continuous actions, in units of half their box."""


class Carry(NamedTuple):
    """What lasts from step to step."""

    actor: PyTree
    """Recurrent state of all sub-policies [E, N · K, H]."""
    member: Int[Array, "E N"] | tuple[()]
    """Which sub-policy each agent plays in this episode; an empty tuple where there is one."""


class Actors(NamedTuple):
    """Deterministic policies, or relaxable discrete ones, with K sub-policies per agent."""

    init: Callable[[PRNGKeyArray], PyTree]
    initial_carry: Callable[[int], Carry]
    output: Callable[[PyTree, PyTree, Step], tuple[PyTree, Float[Array, "T E N K A"]]]
    """(θ, recurrent state, normalised step) -> (recurrent state after each moment, logits or raw actions)."""
    act: Callable[..., tuple[Carry, Array, dict[str, Array]]]
    """As ``Algorithm.act``; notes ``member`` [E, N] where there are several."""


def virtual(index: tuple[int, ...], copies: int) -> tuple[int, ...]:
    """Every agent ``copies`` times, side by side, each copy with parameters of its own."""
    return tuple(p * copies + k for p in index for k in range(copies))


def chosen(x: Float[Array, "*b N K A"], member: Int[Array, "*b N"] | tuple[()]) -> Float[Array, "*b N A"]:
    """Each agent's row of the sub-policy that it plays."""
    if isinstance(member, tuple):
        return x[..., 0, :]
    return jnp.where((member[..., None] == jnp.arange(x.shape[-2]))[..., None], x, 0.0).sum(-2)


def squashed(box: Box, x: Float[Array, "*b A"], real: Array) -> Float[Array, "*b A"]:
    """A raw output as an action inside the box; padded dimensions are 0."""
    half = (box.high - box.low) / 2
    return jnp.where(real, box.low + half * (1.0 + jnp.tanh(x)), 0.0)


def make_actors(spec: EnvSpec, c: DpgConfig, index: tuple[int, ...], members: int) -> Actors:
    """Actors from each agent's own observation.

    Raises:
        InputError: continuous actions have no finite box.
    """
    make_distribution(spec, False)  # refuses boxes without bounds
    space, n = spec.action, spec.num_agents
    source = actor_input(spec, c.agent_id and max(index) + 1 < n)
    net = per_agent(build(c.network, source.width, space.width, output_gain=0.01), virtual(index, members))

    def output(params: PyTree, carry: PyTree, step: Step) -> tuple[PyTree, Array]:
        x = jnp.repeat(source.features(step), members, axis=-2)
        carry, x = net.apply(params, carry, x, step.first)
        return carry, x.reshape(*x.shape[:-2], n, members, space.width)

    def act(
        learner: Learner, carry: Carry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[Carry, Array, dict[str, Array]]:
        policy: Policy = learner.policy
        key_member, key_noise = jax.random.split(key)
        member = carry.member
        if not isinstance(member, tuple):  # drawn anew for each episode
            drawn = jax.random.randint(key_member, member.shape, 0, members)
            member = jnp.where(step.first[:, None], drawn, member)
        seen = jax.tree.map(lambda x: x[None], normalised(policy.inputs, step))
        after, x = output(policy.actor, carry.actor, seen)
        x = chosen(x[0], member)
        if isinstance(space, Box):
            action = squashed(space, x, step.legal)
            if not greedy:
                half = (space.high - space.low) / 2
                blur = policy.noise * half * jax.random.normal(key_noise, x.shape)
                action = jnp.where(step.legal, jnp.clip(action + blur, space.low, space.high), 0.0)
        else:
            dist = Categorical(x, step.legal)
            action = dist.mode() if greedy else dist.sample(key_noise)
        noted = {} if isinstance(member, tuple) else {"member": member}
        return Carry(last_carry(after), member), action, noted

    def initial_carry(num_envs: int) -> Carry:
        member = jnp.zeros((num_envs, n), jnp.int32) if members > 1 else ()
        return Carry(net.initial_carry((num_envs,)), member)

    return Actors(net.init, initial_carry, output, act)


def relax(
    space: Discrete | Box, c: DpgConfig, x: Float[Array, "*b A"], legal: Array, noise: Float[Array, "*b A"]
) -> Float[Array, "*b A"]:
    """Outputs as critics read actions: a tanh, or a Gumbel-softmax sample made of standard Gumbel noise."""
    if isinstance(space, Box):
        return jnp.where(legal, jnp.tanh(x), 0.0)
    hard = c.relaxation == "straight_through"
    return gumbel_softmax(x, legal, noise, temperature=c.temperature, straight_through=hard)


def draw(space: Discrete | Box, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "L B ..."]:
    """Noise for :func:`relax` or for blurring target actions [L, B, ...], the same on however many devices."""
    kind = jax.random.normal if isinstance(space, Box) else jax.random.gumbel
    keys = row_keys(key, shape[1])
    return jax.vmap(lambda k: kind(k, (shape[0], *shape[2:])), out_axes=1)(keys)


def delayed(
    f: Callable[..., tuple[Any, ...]], delay: int, step: Int[Array, ""], before: tuple[Any, ...]
) -> tuple[Any, ...]:
    """``f(*before)`` at every ``delay``-th step (from 1), which gives the new ``before`` and metrics.

    Otherwise all stays and metrics are 0; those of a step that is made count ``delay`` times, so that the mean over all
    steps is the mean over those that were made.
    """
    if delay == 1:
        return f(*before)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(f, *before)[-1])
    *after, metrics = jax.lax.cond(step % delay == 0, f, lambda *same: (*same, nothing), *before)
    return *after, {name: x * delay for name, x in metrics.items()}
