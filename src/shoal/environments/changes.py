"""The transformations behind wrappers, as functions over the arrays of one environment. Does not import JAX."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from shoal.environments import rows
from shoal.errors import InputError
from shoal.game import own_actions
from shoal.spec import Discrete, EnvSpec, Part


def _as_chosen(memory: Any, action: Any) -> Any:
    return action


class Change(NamedTuple):
    """One transformation, or several in sequence."""

    spec: EnvSpec
    """The spec of the transformed environment."""
    begin: Callable[[Any], tuple[Any, Any]]
    follow: Callable[[Any, Any, Any], tuple[Any, Any]]
    execute: Callable[[Any, Any], Any] = _as_chosen


def chain(spec: EnvSpec, makers: Sequence[Callable[[EnvSpec], Change]]) -> Change:
    """Several changes in sequence; each is made for the spec that the previous ones result in."""
    parts: list[Change] = []
    for maker in makers:
        parts.append(maker(spec))
        spec = parts[-1].spec

    def begin(step: Any) -> tuple[Any, Any]:
        memories = []
        for part in parts:
            memory, step = part.begin(step)
            memories.append(memory)
        return tuple(memories), step

    def follow(memories: Any, step: Any, action: Any) -> tuple[Any, Any]:
        after = []
        for part, memory in zip(parts, memories, strict=True):
            memory, step = part.follow(memory, step, action)
            after.append(memory)
        return tuple(after), step

    def execute(memories: Any, action: Any) -> Any:
        for part, memory in reversed(list(zip(parts, memories, strict=True))):  # the last change receives it first
            action = part.execute(memory, action)
        return action

    return Change(spec, begin, follow, execute)


def time_limit(spec: EnvSpec, limit: int) -> Change:
    """Truncate episodes after ``limit`` steps: sets ``last`` and keeps ``discount``."""

    def begin(step: Any) -> tuple[Any, Any]:
        xp = step.obs.__array_namespace__()
        return xp.zeros((), xp.int32), step

    def follow(steps: Any, step: Any, action: Any) -> tuple[Any, Any]:
        steps = steps + 1
        return steps, step._replace(last=step.last | (steps >= limit))

    return Change(replace(spec, horizon=min(spec.horizon, limit)), begin, follow)


def limit_terminates(spec: EnvSpec) -> Change:
    """Set ``discount`` to 0 wherever an episode ends, or an agent's own one, so that nothing bootstraps over a time
    limit. A shared reward goes on after an agent's own limit, as after a death."""

    def follow(memory: Any, step: Any, action: Any) -> tuple[Any, Any]:
        xp = step.discount.__array_namespace__()
        leaving = False if spec.shared_reward else getattr(step, "leaving", False)  # only timesteps of the host have it
        ends = step.last | leaving
        return memory, step._replace(discount=xp.where(ends, xp.zeros_like(step.discount), step.discount))

    return Change(spec, lambda step: ((), step), follow)


def reward_scale(spec: EnvSpec, scale: float) -> Change:
    """Multiply rewards by ``scale``."""

    def follow(memory: Any, step: Any, action: Any) -> tuple[Any, Any]:
        return memory, step._replace(reward=step.reward * scale)

    return Change(spec, lambda step: ((), step), follow)


def hidden_mask(spec: EnvSpec) -> Change:
    """Show all of an agent's own actions as legal, and execute its first legal action in place of an illegal one.

    Actions beyond an agent's own stay illegal. Index 0 is executed for an agent without a legal action.

    Raises:
        InputError: actions are continuous.
    """
    if not isinstance(spec.action, Discrete):
        raise InputError(f"--no-action-mask needs discrete actions, but those of {spec.name} are continuous.")
    own, index = own_actions(spec), np.arange(spec.action.n)

    def show(step: Any) -> tuple[Any, Any]:
        xp = step.legal.__array_namespace__()
        return step.legal | False, step._replace(legal=xp.asarray(own))  # a copy, since a game writes in place

    def execute(legal: Any, action: Any) -> Any:
        allowed = (legal & (index == action[:, None])).any(-1)
        xp = allowed.__array_namespace__()
        return xp.where(allowed, action, legal.argmax(-1)).astype(action.dtype)

    return Change(replace(spec, turns=False), show, lambda legal, step, action: show(step), execute)


def shared_reward(spec: EnvSpec) -> Change:
    """Give every agent, also a dead one, the mean of all agents' rewards and the largest discount of those that acted
    or are there now.

    Rewards that are already equal are unchanged bit for bit. Algorithms with one value for the team learn from the same
    reward (``team_reward``).
    """

    def begin(step: Any) -> tuple[Any, Any]:
        return step.alive | False, step  # a copy, since a game writes its arrays in place

    def follow(acted: Any, step: Any, action: Any) -> tuple[Any, Any]:
        xp, reward = step.reward.__array_namespace__(), step.reward
        team = xp.where((reward == reward[0]).all(), reward[0], reward.mean())
        acted = acted | step.alive  # some may have joined as others ended
        acted = acted | ~acted.any()
        discount = xp.where(acted, step.discount, 0.0).max()
        shared = step._replace(
            reward=xp.broadcast_to(team, reward.shape), discount=xp.broadcast_to(discount, reward.shape)
        )
        return step.alive | False, shared

    return Change(replace(spec, shared_reward=True), begin, follow)


def own_rewards(spec: EnvSpec) -> Change:
    """Treat each agent's reward as its own, even if all are equal."""
    return _described(replace(spec, shared_reward=spec.num_agents == 1))


def score(spec: EnvSpec, kind: Literal["sum", "mean"]) -> Change:
    """Set the score to the sum or the mean over agents."""
    return _described(replace(spec, score=kind))


def scored(spec: EnvSpec, agents: tuple[int, ...]) -> Change:
    """Let only some agents' returns make the score."""
    return _described(replace(spec, scored=agents))


def _described(spec: EnvSpec) -> Change:
    """A change of the spec only."""
    return Change(spec, lambda step: ((), step), lambda memory, step, action: (memory, step))


# Changes of observations: stacked frames, the time alone, last actions and agent ids.


def stacked_shape(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The shape of ``count`` arrays, one after the other along their last axis."""
    return (*shape[:-1], count * shape[-1]) if shape else (count,)


def frame_stack(spec: EnvSpec, count: int) -> Change:
    """Concatenate the last ``count`` observations, oldest first; an episode's first observation fills missing ones.

    The arrays of an observation (``spec.parts``) are concatenated each by itself, along its last axis: those of an
    image are its channels. An agent's frames have its own width and are followed by all padding.
    """
    n, width, packed = spec.num_agents, spec.obs_dim, spec.packed
    obs_dims = tuple(count * d for d in spec.obs_dims)

    def joined(parts: tuple[Part, ...], frames: Any) -> Any:
        xp, found = frames.__array_namespace__(), []
        for part, place in zip(parts, rows.slices(parts, packed), strict=True):
            lead, size = math.prod(part.shape[:-1]), place.stop - place.start
            each = frames[:, :, place].reshape(len(frames), count, lead, size // max(lead, 1))
            found.append(xp.moveaxis(each, 1, 2).reshape(len(frames), count * size))
        return found[0] if len(found) == 1 else xp.concat(found, axis=-1)

    stacked = rows.each(spec, joined, obs_dims)

    def show(frames: Any, step: Any) -> Any:
        xp = frames.__array_namespace__()
        seen = stacked(frames.reshape(n, count, width))
        return step._replace(obs=xp.where(step.alive[:, None], seen, 0))  # dead agents observe zeros, earlier ones too

    def begin(step: Any) -> tuple[Any, Any]:
        frames = step.obs.__array_namespace__().concat([step.obs] * count, axis=-1)
        return frames, show(frames, step)

    def follow(frames: Any, step: Any, action: Any) -> tuple[Any, Any]:
        frames = frames.__array_namespace__().concat([frames[:, width:], step.obs], axis=-1)
        return frames, show(frames, step)

    # The state holds the newest observation's features as before, and none of the earlier frames'.
    novel = spec.novel
    if novel is not None and not packed:
        inner, novel = novel, ()
        for own in set(rows.parts_of(spec)):
            size = sum(part.size for part in own)
            at = joined(own, np.arange(count * size).reshape(1, count, size))[0]
            wanted = (at < (count - 1) * size) | np.isin(at - (count - 1) * size, inner)
            novel += tuple(np.flatnonzero(wanted).tolist())
        novel = tuple(sorted(set(novel)))
    fields: dict[str, Any] = {"obs_dims": obs_dims}
    if spec.parts is not None:
        parts = [
            [part._replace(shape=stacked_shape(part.shape, count), source=raw(part)) for part in own]
            for own in spec.parts
        ]
        fields = rows.part_fields(spec, parts)
    return Change(replace(spec, **fields, novel=None if packed else novel), begin, follow)


TIME = Part((1,), "float32", "time")
"""What :func:`blind` shows of the environment."""


def blind(spec: EnvSpec) -> Change:
    """Replace every observation by the time: steps of the episode so far / ``spec.horizon``, at most 1.

    This is the observation of SMACv2's open-loop policies (Ellis et al. 2023). The state, the legal actions and the
    zeros of dead agents are unchanged. The arrays of the environment's observations stay in ``parts`` without entries,
    with their shape as ``source``, so that deployed policies know what the environment returns. ``novel`` is the time,
    since a state need not contain it.
    """
    n, packed = spec.num_agents, spec.packed
    part = np.float32(1.0 / spec.horizon)  # XLA multiplies by it too, so that devices and hosts round alike

    def show(steps: Any, step: Any) -> Any:
        xp = step.obs.__array_namespace__()
        time = xp.broadcast_to(xp.minimum(steps.astype("float32") * part, np.float32(1.0)), (n, 1))
        return step._replace(obs=xp.where(step.alive[:, None], rows.as_bytes(time) if packed else time, 0))

    def begin(step: Any) -> tuple[Any, Any]:
        xp = step.obs.__array_namespace__()
        steps = xp.zeros((), xp.int32)
        return steps, show(steps, step)

    def follow(steps: Any, step: Any, action: Any) -> tuple[Any, Any]:
        steps = steps + 1
        return steps, show(steps, step)

    hidden = [[part._replace(shape=(0,), source=raw(part)) for part in own] for own in rows.parts_of(spec)]
    fields = rows.part_fields(spec, [[*own, TIME] for own in hidden])
    return Change(replace(spec, **fields, novel=None if packed else (0,)), begin, follow)


def raw(part: Part) -> tuple[int, ...]:
    """The shape of an array in the environment itself."""
    return part.shape if part.source is None else part.source


def action_part(spec: EnvSpec, agent: int) -> Part:
    """The array that :func:`last_action` appends to an agent's observation."""
    discrete = isinstance(spec.action, Discrete)
    return Part((spec.action_dims[agent],), "uint8" if spec.packed and discrete else "float32", "last_action")


def id_part(spec: EnvSpec) -> Part:
    """The array that :func:`agent_ids` appends to every agent's observation."""
    return Part((spec.num_agents,), "uint8" if spec.packed else "float32", "agent_id")


def _appended(spec: EnvSpec, parts: Sequence[Part], novel: tuple[int, ...] | None) -> EnvSpec:
    """A spec whose agents observe one more array each."""
    if spec.parts is None:
        added = [rows.width_of_part(part, spec.packed) for part in parts]
        return replace(spec, obs_dims=tuple(d + w for d, w in zip(spec.obs_dims, added, strict=True)), novel=novel)
    fields = rows.part_fields(spec, [[*own, part] for own, part in zip(spec.parts, parts, strict=True)])
    return replace(spec, **fields, novel=None if spec.packed else novel)


def last_action(spec: EnvSpec) -> Change:
    """Append each agent's last executed action to its own observation, before its padding.

    Discrete actions are appended as a one-hot vector over the agent's own actions, continuous ones as its own numbers,
    as the environment received them. Zeros at the first timestep of an episode, and for an agent that was dead when the
    others acted. In rows of bytes a one-hot vector is ``uint8``, with 255 for 1. ``novel`` includes the appended
    features, whatever the state contains.
    """
    parts = [action_part(spec, i) for i in range(spec.num_agents)]
    append = rows.appender(spec, [rows.width_of_part(part, spec.packed) for part in parts])
    own, discrete = own_actions(spec), isinstance(spec.action, Discrete)
    index = np.arange(spec.action.width)

    def show(step: Any, executed: Any) -> Any:
        xp = step.obs.__array_namespace__()
        return step._replace(obs=xp.where(step.alive[:, None], append(step.obs, executed), 0))

    def entries(executed: Any) -> Any:
        """Actions [N, A] as entries of rows."""
        if not spec.packed:
            return executed.astype("float32")
        return (executed * rows.FULL).astype("uint8") if discrete else rows.as_bytes(executed)

    def begin(step: Any) -> tuple[Any, Any]:
        nothing = entries(step.obs.__array_namespace__().zeros(own.shape, "float32"))
        return step.alive | False, show(step, nothing)  # a copy, since a game writes its arrays in place

    def follow(acted: Any, step: Any, action: Any) -> tuple[Any, Any]:
        xp = step.obs.__array_namespace__()
        values = index == action[:, None] if discrete else action
        return step.alive | False, show(step, entries(xp.where(own & acted[:, None], values, 0)))

    novel = spec.novel
    if novel is not None:
        each = zip(spec.obs_dims, spec.action_dims, strict=True)
        novel = tuple(sorted({*novel} | {i for d, a in each for i in range(d, d + a)}))
    return Change(_appended(spec, parts, novel), begin, follow)


def agent_ids(spec: EnvSpec) -> Change:
    """Append a one-hot id to each agent's own observation, before its padding; 255 stands for 1 in rows of bytes.

    ``novel`` is unchanged and leaves out the ids: the critic input that reads it has its own ids.
    """
    n, part = spec.num_agents, id_part(spec)
    append = rows.appender(spec, [n] * n)
    ids = np.eye(n, dtype=part.dtype) * np.array(rows.FULL if spec.packed else 1, part.dtype)

    def show(step: Any) -> Any:
        xp = step.obs.__array_namespace__()
        return step._replace(obs=xp.where(step.alive[:, None], append(step.obs, xp.asarray(ids)), 0))

    outer = _appended(spec, [part] * n, spec.novel)
    return Change(outer, lambda step: ((), show(step)), lambda memory, step, action: (memory, show(step)))
