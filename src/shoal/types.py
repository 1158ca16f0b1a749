"""The vocabulary of Shoal: every word that two rooms share, with a shape on each field.

Axes stand everywhere in this order: **T** time, **E** environments, **N** agents, then features
(**O** observation, **S** state, **A** actions, **H** hidden). ``*b`` is ``()``, ``(E,)`` or ``(T, E)``.
**P** policies is a leading axis of *parameters*. Seeds and devices never appear in these shapes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.game import HostEnvironment
from shoal.spec import Box, Discrete, EnvSpec, Scene

__all__ = [
    "Algorithm",
    "AnyEnvironment",
    "Box",
    "Discrete",
    "EnvSpec",
    "Environment",
    "EpisodeStats",
    "Experience",
    "Learner",
    "Metrics",
    "PyTree",
    "Replay",
    "Scale",
    "Scene",
    "Seconds",
    "Step",
    "Trajectory",
]

PyTree = Any
Metrics = dict[str, Float[Array, ""]]
Seconds = float


class Step(NamedTuple):
    """What the team sees at one timestep."""

    obs: Float[Array, "*b N O"]
    """Observations, zero-padded to the widest agent."""
    state: Float[Array, "*b S"]
    """The environment's global state s."""
    legal: Bool[Array, "*b N A"]
    """Legal actions (discrete) or an agent's real action dimensions (box)."""
    alive: Bool[Array, "*b N"]
    """Agents that take part; a dead agent changes no number."""
    reward: Float[Array, "*b N"]
    """Earned on arriving here; zero on the first step of an episode."""
    discount: Float[Array, "*b N"]
    """0 on true termination, 1 otherwise, also at a time limit."""
    first: Bool[Array, "*b"]
    """An episode starts here: recurrent state resets."""
    last: Bool[Array, "*b"]
    """The episode ends here, by termination or by time limit."""
    metrics: Float[Array, "*b M"] | tuple[()] = ()
    """Values of ``EnvSpec.metrics``, should the episode end here; NaN where one is not known. They are read in the
    outcome that ends an episode. Empty where the environment names none, and in everything an algorithm is given."""


class Trajectory(NamedTuple):
    """T steps of E environments. ``outcome[t]`` is what ``action[t]`` led to, BEFORE any auto-reset."""

    step: Step
    action: Int[Array, "T E N"] | Float[Array, "T E N A"]
    extras: dict[str, Array]
    """What the algorithm's ``act`` noted beside the action, for example its log-probability."""
    outcome: Step
    carry: PyTree
    """The policy's recurrent state before ``step[0]``; leaves are [E, N, H], or an empty tuple."""


class Replay(NamedTuple):
    """What an off-policy algorithm wants stored of its experience, and how it draws from it; sizes are per seed."""

    keep: Callable[[Trajectory], PyTree]
    """Trajectory -> what is stored of every timestep, leaves [T, E, ...]."""
    capacity: int
    """Timesteps stored, over all environments; then the oldest are overwritten."""
    warm_up: int
    """Timesteps collected before learning begins."""
    draws: int
    """G: batches drawn after every rollout."""
    batch: int
    """B: sequences per batch, over all devices."""
    length: int
    """L: timesteps per sequence. A sequence may run over the end of an episode."""
    period: int
    """Sequences start at every so many timesteps of what is stored."""


class Experience(NamedTuple):
    """What an off-policy algorithm learns from."""

    newest: Trajectory
    """The rollout that was just collected, and stored."""
    samples: PyTree
    """A tree like ``Algorithm.replay`` of what each ``keep`` gave; leaves [G, L, B, ...]."""


class EpisodeStats(NamedTuple):
    """Sums over the episodes that ended in one rollout; divide by ``episodes`` for the mean."""

    episodes: Float[Array, ""]
    returns: Float[Array, " N"]
    """Sum over ended episodes of each agent's undiscounted return."""
    lengths: Float[Array, ""]
    metrics: Float[Array, " M"] | tuple[()] = ()
    """Sum over ended episodes of each of ``EnvSpec.metrics``, where it is known (finite); an empty tuple where the
    environment names none."""
    known: Float[Array, " M"] | tuple[()] = ()
    """Ended episodes in which each metric is known."""


class Learner(NamedTuple):
    """Everything an algorithm learns. ``policy`` is all that acting needs, and the only part that is deployed."""

    policy: PyTree
    critic: PyTree
    optimiser: PyTree
    statistics: PyTree
    """Running quantities that are not trained by gradient: normalisers, adaptive coefficients."""
    updates: Int[Array, ""]
    """Calls of ``update`` so far."""


class Scale(NamedTuple):
    """The size of a run, as far as an algorithm may know it."""

    num_envs: int
    """E, on one device."""
    rollout_length: int
    """T."""
    num_updates: int
    """Calls of ``update`` in the whole run, for schedules. There is none while a replay buffer waits to be filled."""


class Algorithm(NamedTuple):
    """An algorithm is three pure functions."""

    init: Callable[[PRNGKeyArray], Learner]
    initial_carry: Callable[[int], PyTree]
    """E -> the policy's recurrent state at the start of an episode."""
    act: Callable[[Learner, PyTree, Step, PRNGKeyArray, bool], tuple[PyTree, Array, dict[str, Array]]]
    """(learner, carry, step [E ...], key, greedy) -> (carry, action [E N ...], extras). A deployed learner holds
    nothing but its policy."""
    update: Callable[[Learner, Any, PRNGKeyArray], tuple[Learner, Metrics]]
    """One update from a :class:`Trajectory`, or from an :class:`Experience` where there is ``replay``. Metrics are a
    flat dict of scalars."""
    acts_on: Literal["own", "team", "state"] = "own"
    """What an agent's action depends on: its own observation, all agents' observations, or the global state as well."""
    replay: PyTree = ()
    """A :class:`Replay`, or a tuple of them; an empty tuple where each trajectory is used once and forgotten."""
    unequal_rewards: str = ""
    """What is learned from, in words, where agents may earn different rewards and do not each learn from their own; an
    empty text otherwise."""


@dataclass(frozen=True)
class Environment:
    """A device environment: pure functions of one environment; rollouts add the E axis.

    ``step`` never resets: the rollout does, so that the observation before the reset is kept.
    """

    spec: EnvSpec
    reset: Callable[[PRNGKeyArray], tuple[PyTree, Step]]
    step: Callable[[PRNGKeyArray, PyTree, Array], tuple[PyTree, Step]]
    """(key, state, action) -> (state, outcome); action is ``Int[N]`` or ``Float[N A]``."""
    render: Callable[[PyTree], "Scene | np.ndarray"] | None = None
    """state -> a :class:`Scene`, or an RGB picture ``uint8[height, width, 3]``; None draws rewards and actions."""


AnyEnvironment = Environment | HostEnvironment
"""On the device, or stepped by worker processes."""
