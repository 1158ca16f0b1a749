"""The transformations behind wrappers, as functions over the arrays of one environment. Does not import JAX.

    begin(step) -> (memory, step)                     at the start of an episode
    execute(memory, action) -> action                 the joint action that the environment receives
    follow(memory, step, action) -> (memory, step)    afterwards; ``action`` is the one that the environment received

``step`` is a :class:`shoal.types.Step` (JAX arrays) or a :class:`shoal.game.HostTimestep` (NumPy arrays); the functions
use the arrays' own namespace. ``action`` is ``Int[N]`` or ``Float[N, A]``; continuous actions are within their bounds.
:mod:`shoal.environments.wrappers` applies them to environments.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from shoal.errors import InputError
from shoal.game import own_actions
from shoal.spec import Discrete, EnvSpec


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

    return Change(spec, show, lambda legal, step, action: show(step), execute)


def shared_reward(spec: EnvSpec) -> Change:
    """Give every agent, also a dead one, the mean of all agents' rewards and the largest discount of those that acted.

    Rewards that are already equal are unchanged bit for bit. Algorithms with one value for the team learn from the same
    reward (``team_reward``).
    """

    def begin(step: Any) -> tuple[Any, Any]:
        return step.alive | False, step  # a copy, since a game writes its arrays in place

    def follow(acted: Any, step: Any, action: Any) -> tuple[Any, Any]:
        xp, reward = step.reward.__array_namespace__(), step.reward
        team = xp.where((reward == reward[0]).all(), reward[0], reward.mean())
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
