"""What networks read: layouts, features of stored observations, inputs of actors and critics, and statistics.

Death mask: a dead agent's features are zero, its id stays (Yu et al. 2022).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from shoal.equations import normalise
from shoal.errors import InputError, unknown
from shoal.spec import EnvSpec, Part
from shoal.types import Box, Discrete, Step

# Where images, entities and vectors are among the features.


Kind = Literal["observation", "state", "id", "action"]


class InputPart(NamedTuple):
    """One array among the features of a network's input."""

    shape: tuple[int, ...]
    """Its shape: (height, width, channels) of an image, (entities, features) of a set of entities, (features,) of a
    vector."""
    kind: Kind = "observation"
    """``state`` is the environment's global state, ``id`` the agent's one-hot number."""
    name: str = ""
    """Its key where the observation is a dictionary."""
    agent: int | None = None
    """Index of the agent that it belongs to, where a network reads several agents' features; None: the network's own
    agent, or the team."""
    target: int | None = None
    """The action that targets the first of its entities, those that follow target the others; None: no action does."""

    @property
    def size(self) -> int:
        """Number of its features."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The arrays that make up a network's input, flattened and in this order."""

    parts: tuple[InputPart, ...]

    @property
    def width(self) -> int:
        """F, the number of features."""
        return sum(part.size for part in self.parts)

    def split(self, x: Float[Array, "*b F"]) -> list[Array]:
        """The parts of features [*b, F], each in its own shape [*b, *shape]."""
        ends = np.cumsum([part.size for part in self.parts]).tolist()
        return [
            x[..., end - part.size : end].reshape(*x.shape[:-1], *part.shape)
            for part, end in zip(self.parts, ends, strict=True)
        ]

    def __add__(self, other: "Layout") -> "Layout":
        """The features of both, one after the other."""
        return Layout(self.parts + other.parts)


def vector_layout(width: int, kind: Kind = "observation", agent: int | None = None) -> Layout:
    """``width`` numbers."""
    return Layout((InputPart((width,), kind, agent=agent),))


def observation_layout(spec: EnvSpec) -> Layout:
    """An agent's observation; one vector where the agents' observations consist of different arrays."""
    if spec.parts is None or len(set(spec.parts)) > 1:
        return vector_layout(spec.feature_dim)
    targets = dict(spec.targets)
    return Layout(
        tuple(InputPart(part.shape, "observation", part.name, None, targets.get(part.name)) for part in spec.parts[0])
    )


def layout_of_agents(layout: Layout, agents: Iterable[int]) -> Layout:
    """The layout once for each agent."""
    return Layout(tuple(part._replace(agent=agent) for agent in agents for part in layout.parts))


# Features of stored observations.


def observation_features(spec: EnvSpec, obs: Num[Array, "*b N O"]) -> Float[Array, "*b N F"]:
    """Observations as ``float32`` features, F = ``spec.feature_dim``.

    Rows of numbers are returned unchanged. In rows of bytes (``spec.packed``) a ``uint8`` number is divided by 255, and
    four bytes are one ``float32`` number; features beyond an agent's own are zero.
    """
    if not spec.packed:
        return obs
    assert spec.parts is not None
    if len(set(spec.parts)) == 1:
        return _features_of_bytes(spec.parts[0], obs)
    rows = [
        jnp.pad(
            row := _features_of_bytes(own, obs[..., i, :]),
            [(0, 0)] * (row.ndim - 1) + [(0, spec.feature_dim - row.shape[-1])],
        )
        for i, own in enumerate(spec.parts)
    ]
    return jnp.stack(rows, axis=-2)


def _features_of_bytes(parts: tuple[Part, ...], row: Array) -> Array:
    """One agent's features [*b, F_i] from bytes [*b, O]."""
    found, start = [], 0
    for part in parts:
        if part.dtype == "uint8":
            found.append(row[..., start : start + part.size].astype(jnp.float32) / 255.0)
            start += part.size
        else:
            four = row[..., start : start + 4 * part.size].reshape(*row.shape[:-1], part.size, 4)
            found.append(jax.lax.bitcast_convert_type(four, jnp.float32))
            start += 4 * part.size
    return found[0] if len(found) == 1 else jnp.concatenate(found, axis=-1)


# Inputs of actors and critics.


CriticInput = Literal["local", "concat", "state", "agent", "pruned"]
DeadValue = Literal["team", "masked", "unmasked"]
"""Where V of a dead agent comes from: see :class:`shoal.algorithms.mappo.Config`."""


class Input(NamedTuple):
    """A function from a Step to features, with their layout."""

    layout: Layout
    features: Callable[[Step], Array]
    per_agent: bool
    """Whether the features are [*b, N, F] or, the same for the whole team, [*b, F]."""

    @property
    def width(self) -> int:
        """F."""
        return self.layout.width


def _seen(spec: EnvSpec, step: Step) -> Array:
    return observation_features(spec, step.obs)


def _alive(step: Step, x: Array) -> Array:
    return jnp.where(step.alive[..., None], x, 0.0)


def _with_id(x: Array) -> Array:
    n = x.shape[-2]
    return jnp.concatenate([x, jnp.broadcast_to(jnp.eye(n, dtype=x.dtype), (*x.shape[:-1], n))], axis=-1)


def _with_state(step: Step, x: Array | None, ids: bool) -> Array:
    n = step.obs.shape[-2]
    state = jnp.broadcast_to(step.state[..., None, :], (*step.state.shape[:-1], n, step.state.shape[-1]))
    found = _alive(step, state if x is None else jnp.concatenate([state, x], axis=-1))
    return _with_id(found) if ids else found


def actor_input(spec: EnvSpec, agent_id: bool) -> Input:
    """The agent's own observation, and with ``agent_id`` a one-hot id."""
    own = observation_layout(spec)
    if agent_id:
        layout = own + vector_layout(spec.num_agents, "id")
        return Input(layout, lambda step: _with_id(_alive(step, _seen(spec, step))), True)
    return Input(own, lambda step: _alive(step, _seen(spec, step)), True)


def critic_input(spec: EnvSpec, kind: CriticInput, agent_id: bool, state_ids: bool = True) -> Input:
    """The five critic inputs (Yu et al. 2022, §5.2).

    ``local``: own observation (IPPO). ``concat`` (CL): all observations. ``state`` (EP): the environment's state.
    ``agent`` (AS): state, own observation and id. ``pruned`` (FP): AS without observation features that the state
    contains (``spec.novel`` lists the others; where there are none, it is state and id).

    Args:
        spec: the environment's description.
        kind: one of the five.
        agent_id: whether ``local`` has the id.
        state_ids: whether ``agent`` and ``pruned`` have the id, which is a part of the paper's AS and FP.

    Raises:
        InputError: ``kind`` reads a state that the environment does not have, it is ``pruned`` and ``spec.novel`` is
            None, or there is no such input.
    """
    if kind not in get_args(CriticInput):
        raise unknown("critic input", kind, get_args(CriticInput))
    n, own = spec.num_agents, observation_layout(spec)
    state = vector_layout(spec.state_dim, "state")
    if kind in ("state", "agent", "pruned") and spec.state_dim == 0:
        raise InputError(f"{spec.name} has no global state: critic_input {kind!r} needs one; use one of observations.")
    if kind == "local":
        return actor_input(spec, agent_id)
    if kind == "concat":
        layout, mark = layout_of_agents(own, range(n)), _mark_of_living(own)

        def all_observations(step: Step) -> Array:
            seen = _seen(spec, step)
            if mark is not None:
                seen = jnp.where((seen != 0).any(-1, keepdims=True), seen, mark)
            return _alive(step, seen).reshape(*step.obs.shape[:-2], layout.width)

        return Input(layout, all_observations, False)
    if kind == "state":
        return Input(state, lambda step: step.state, False)
    if kind == "agent":
        return _state_input(n, state + own, lambda step: _seen(spec, step), state_ids)
    if spec.novel is None:
        raise InputError(
            f"{spec.name} does not declare which observation features its state lacks (EnvSpec.novel), so critic_input "
            f"'pruned' cannot leave out the others: use 'agent', which reads the state and the whole observation."
        )
    if not spec.novel:
        return _state_input(n, state, lambda step: None, state_ids)
    novel = np.array(spec.novel)
    layout = state + vector_layout(len(novel))
    return _state_input(n, layout, lambda step: _seen(spec, step)[..., novel], state_ids)


def _state_input(num_agents: int, layout: Layout, own: Callable[[Step], Array | None], ids: bool) -> Input:
    """The state and what is each agent's own, and with ``ids`` a one-hot id."""
    layout = layout + vector_layout(num_agents, "id") if ids else layout
    return Input(layout, lambda step: _with_state(step, own(step), ids), True)


def _mark_of_living(own: Layout) -> Float[np.ndarray, " F"] | None:
    """What stands for the features of a living agent that are all 0, where a network of the team knows dead agents by
    that: one feature of a vector, since one of an entity would say that it is there. None without sets of entities,
    which such networks read, or without vectors."""
    parts = [np.zeros(part.shape, np.float32) for part in own.parts]
    vector = next((part for part in parts if part.ndim == 1 and part.size), None)
    if vector is None or all(part.ndim != 2 for part in parts):
        return None
    vector[0] = _THERE
    return np.concatenate([part.reshape(-1) for part in parts])


def encode_actions(space: Discrete | Box, u: Array, step: Step) -> Float[Array, "*b N A"]:
    """Actions as features of size 1: one-hot, or a box's real dimensions in [-1, 1]; 0 for dead agents."""
    if isinstance(space, Box):
        half = (space.high - space.low) / 2
        x = jnp.where(step.legal, jnp.clip((u - space.low) / half - 1.0, -1.0, 1.0), 0.0)
    else:
        x = (u[..., None] == jnp.arange(space.width)).astype(jnp.float32)
    return jnp.where(step.alive[..., None], x, 0.0)


# Running statistics of observations and states.


class Inputs(NamedTuple):
    """Running statistics of raw features; None where they are not normalised.

    Agents are of one kind if they have the same role and the same arrays: their observations are counted together,
    those of different kinds apart. Entities of a set are counted together, so that their order does not matter.
    """

    obs: normalise.Running | tuple[normalise.Running, ...] | None = None
    """[O] where all agents are of one kind, otherwise [N, O]. With sets of entities, one for each part of the
    observation: [A, K, F] of K entities and [A, size] of other parts, where A is 1 or N."""
    state: normalise.Running | None = None


def normalised(inputs: Inputs, step: Step) -> Step:
    """The step with observation and state brought to zero mean and unit variance, clipped to ±10.

    The variance is at least 1e-6 and a millionth of the mean square. A feature that has always had one value is 0;
    another value that appears later is clipped to ±10 at first, and scaled as the statistics take it up. Padding and
    absent entities, whose features are all 0, stay 0.
    """
    return step._replace(obs=_scaled_observation(inputs.obs, step.obs), state=_scaled(inputs.state, step.state))


def _scaled(stats: normalise.Running | None, x: Array) -> Array:
    return x if stats is None else jnp.clip(normalise.normalise(stats, x, normalise.INPUTS), -10.0, 10.0)


def _scaled_observation(stats: normalise.Running | tuple[normalise.Running, ...] | None, obs: Array) -> Array:
    if stats is None or isinstance(stats, normalise.Running):
        return _scaled(stats, obs)
    found = []
    for part, x in zip(stats, _parts_of(stats, obs), strict=True):
        scaled = _scaled(part, x)
        if part.mean.ndim == 3:  # what is there has a number that is not 0, by which networks know it
            scaled = jnp.where(_present(scaled), scaled, _THERE)
            scaled = jnp.where(_present(x), scaled, 0.0)
        found.append(scaled.reshape(*obs.shape[:-1], -1))
    return jnp.concatenate(found, axis=-1)


_THERE = 1e-6
"""The features of an entity that is there and whose own are all at their means, and one of such an agent."""


def _parts_of(stats: tuple[normalise.Running, ...], obs: Num[Array, "*b O"]) -> list[Array]:
    """The observation's parts in the shapes of their statistics, [*b, K, F] or [*b, size]."""
    shapes = [part.mean.shape[1:] for part in stats]
    return Layout(tuple(InputPart(shape) for shape in shapes)).split(obs)


def _present(x: Float[Array, "*b K F"]) -> Array:
    """Which entities are there [*b, K, 1]."""
    return (x != 0).any(-1, keepdims=True)


def _kinds(spec: EnvSpec) -> list[int]:
    """The kind of each agent, by its first agent."""
    parts = spec.parts or (None,) * spec.num_agents
    kinds = list(zip(spec.roles, spec.obs_dims, parts, strict=True))
    return [kinds.index(kind) for kind in kinds]


def init_inputs(spec: EnvSpec, normalise_inputs: bool) -> Inputs:
    """Empty statistics, or None in both fields; rows of bytes have none, since networks scale them."""
    if not normalise_inputs:
        return Inputs()
    agents, parts = spec.num_agents if len(set(_kinds(spec))) > 1 else 1, observation_layout(spec).parts
    if spec.packed:
        obs = None
    elif any(len(part.shape) == 2 for part in parts):
        obs = tuple(normalise.init((agents, *(p.shape if len(p.shape) == 2 else (p.size,)))) for p in parts)
    else:
        obs = normalise.init((agents, spec.obs_dim) if agents > 1 else (spec.obs_dim,))
    return Inputs(obs, normalise.init((spec.state_dim,)))


def update_inputs(spec: EnvSpec, inputs: Inputs, step: Step, freeze: tuple[str, ...] = ()) -> Inputs:
    """The statistics with a batch of steps [T E ...] added, but for dead agents' observations, padding and absent
    entities.

    They stay as they are if ``freeze`` names them (``inputs``).
    """
    if "inputs" in freeze:
        return inputs
    obs, alive, kinds = inputs.obs, step.alive[..., None], _kinds(spec)
    if isinstance(obs, normalise.Running):
        real = jnp.arange(spec.obs_dim) < jnp.array(spec.obs_dims)[:, None]
        obs = _counted(kinds, obs, step.obs, alive & real)
    elif obs is not None:
        parts = zip(obs, _parts_of(obs, step.obs), strict=True)
        obs = tuple(
            (_entities_counted if x.ndim > alive.ndim else _counted)(kinds, part, x, alive) for part, x in parts
        )
    state = None if inputs.state is None else normalise.update(inputs.state, step.state, beta=None)
    return Inputs(obs, state)


def _counted(kinds: list[int], stats: normalise.Running, x: Num[Array, "*b N F"], weight: Array) -> normalise.Running:
    """Statistics [F], or [A, F] with those of each agent's kind."""
    if stats.mean.ndim == 1:
        return normalise.update(stats, x, weight, beta=None)
    of_kind = {}
    for kind in set(kinds):
        who = np.flatnonzero(np.array(kinds) == kind)
        before = jax.tree.map(lambda leaf, kind=kind: leaf[kind], stats)
        of_kind[kind] = normalise.update(before, x[..., who, :], weight[..., who, :], beta=None)
    rows = [of_kind[kind] for kind in kinds[: len(stats.mean)]]
    return jax.tree.map(lambda *row: jnp.stack(row), *rows)


def _entities_counted(
    kinds: list[int], stats: normalise.Running, x: Float[Array, "*b N K F"], alive: Array
) -> normalise.Running:
    """Statistics [A, K, F], the same for all K entities."""
    seen = alive[..., None] & _present(x)
    rows = (jnp.swapaxes(y, -3, -2) for y in (x, seen))  # entities before agents
    counted = _counted(kinds, jax.tree.map(lambda leaf: leaf[:, 0], stats), *rows)
    return jax.tree.map(lambda new, old: jnp.broadcast_to(new[:, None], old.shape), counted, stats)
