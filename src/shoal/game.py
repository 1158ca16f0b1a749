"""Interface of environments that are Python objects and run in worker processes. Does not import JAX.

A :class:`Game` is one environment. It writes each timestep into a :class:`HostTimestep`, whose arrays lie in memory
shared with the training process, so nothing is allocated or pickled between the two.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from shoal.spec import Box, EnvSpec
from shoal.system import notices
from shoal.system.time_limit import returns_within


class HostTimestep(NamedTuple):
    """One timestep of a host environment, written in place; the counterpart of :class:`shoal.types.Step`.

    A game receives it with all agents alive, each agent's own actions legal, reward 0, discount 1, ``last`` False and
    metrics NaN, and writes what differs. ``obs`` and ``state`` hold earlier values and must be written whole, except
    for padding beyond an agent's own observation, which is zero.
    """

    obs: np.ndarray
    """float32 [N, O], or uint8 where the observations are bytes (``EnvSpec.packed``)."""
    state: np.ndarray
    """float32 [S]."""
    legal: np.ndarray
    """bool [N, A]; at least one in each row."""
    alive: np.ndarray
    """bool [N]."""
    reward: np.ndarray
    """float32 [N], received on arriving at this timestep."""
    discount: np.ndarray
    """float32 [N]: 0 on true termination, 1 otherwise, also at a time limit."""
    first: np.ndarray
    """bool [], True at the first timestep of an episode; written by the rollout, not by the game."""
    last: np.ndarray
    """bool [], True if the episode ends at this timestep, by termination or by time limit."""
    metrics: np.ndarray = np.zeros(0, np.float32)
    """float32 [M], the values of ``EnvSpec.metrics`` if the episode ends here; NaN if unknown. Write them at every
    step, so that they are right where a wrapper cuts the episode off."""
    leaving: np.ndarray = np.zeros(0, bool)
    """bool [N]: agents that are cut off here while the episode goes on, and are gone from the next timestep on. Like an
    episode's time limit this is no death: ``alive`` is True here, ``discount`` 1, and ``obs`` and ``legal`` are the
    agent's last, from which its own reward's target bootstraps."""


@runtime_checkable
class Game(Protocol):
    """One environment on the host. It never resets itself."""

    @property
    def spec(self) -> EnvSpec:
        """Description of the environment."""
        ...

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode that depends only on ``seed`` (0 ≤ seed < 2³¹)."""
        ...

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play ``action``, int32 [N] or float32 [N, A] (within the box), and write the resulting timestep."""
        ...

    def render(self) -> np.ndarray | None:
        """The current state as an RGB picture uint8 [height, width, 3]; None without a renderer."""
        ...

    def close(self) -> None:
        """Free the environment's resources."""
        ...


@dataclass(frozen=True)
class HostEnvironment:
    """An environment that worker processes step; each process builds its own games."""

    spec: EnvSpec
    make: Callable[..., Game]
    """() -> a new game; ``make(render=True)`` -> one whose ``render`` returns pictures if it can. Worker processes
    unpickle it, so it must be a function of an importable module, or a ``functools.partial`` of one."""


CLOSING = 2.0
"""Seconds that games have to be closed."""

LEFT_OPEN = f"{{}} is left open, since its close() did not return within {CLOSING:g} seconds."
"""Warning, with the environment's name."""


def close_example(game: Game) -> None:
    """Close a game that was built for its spec alone. What it raises is left to the games that are played, whose
    rollout warns of it; if it hangs, the user is told so, and it stays open."""
    with contextlib.suppress(Exception, SystemExit):
        if not returns_within(CLOSING, game.close):
            notices.warn(LEFT_OPEN.format(game.spec.name))


def blank(spec: EnvSpec, *batch: int) -> HostTimestep:
    """Timesteps filled with zeros and False; leaves [*batch, ...]."""
    n, width = spec.num_agents, spec.action.width
    return HostTimestep(
        obs=np.zeros((*batch, n, spec.obs_dim), np.uint8 if spec.packed else np.float32),
        state=np.zeros((*batch, spec.state_dim), np.float32),
        legal=np.zeros((*batch, n, width), bool),
        alive=np.zeros((*batch, n), bool),
        reward=np.zeros((*batch, n), np.float32),
        discount=np.zeros((*batch, n), np.float32),
        first=np.zeros(batch, bool),
        last=np.zeros(batch, bool),
        metrics=np.zeros((*batch, len(spec.metrics)), np.float32),
        leaving=np.zeros((*batch, n), bool),
    )


def own_actions(spec: EnvSpec) -> np.ndarray:
    """bool [N, A]: the actions, or action dimensions, that each agent has."""
    return np.arange(spec.action.width) < np.array(spec.action_dims)[:, None]


def refresh(out: HostTimestep, own: np.ndarray) -> None:
    """Set the values that a game may leave unwritten; ``own`` is :func:`own_actions`."""
    out.legal[...] = own
    out.alive[...] = True
    out.reward[...] = 0.0
    out.discount[...] = 1.0
    out.first[...] = False
    out.last[...] = False
    out.metrics[...] = np.nan
    out.leaving[...] = False


def departed(timesteps: HostTimestep) -> HostTimestep:
    """Timesteps [*b, ...] in which the agents that leave there are gone already, as in the step that follows."""
    if not timesteps.leaving.any():
        return timesteps
    obs = np.where(timesteps.leaving[..., None], np.zeros((), timesteps.obs.dtype), timesteps.obs)
    return timesteps._replace(obs=obs, alive=timesteps.alive & ~timesteps.leaving)


def entry_name(spec: EnvSpec, name: str, index: Sequence[int]) -> str:
    """What an entry of a timestep's field is, as text, for example ``feature 3 of agent_1's observation``.

    Args:
        spec: that of the environment.
        name: the field: ``obs``, ``state``, or another one with an entry for each agent.
        index: the entry's, without an axis of environments.
    """
    if name == "state":
        return f"feature {index[0]} of the state"
    if name == "obs":
        return f"feature {index[1]} of {spec.agents[index[0]]}'s observation"
    return f"{spec.agents[index[0]]}'s {name}"


def write_rows(out: np.ndarray, rows: Sequence[np.ndarray | None]) -> None:
    """Write each agent's observation into its padded row of ``out`` [N, O]; None (a dead agent) clears the row."""
    for i, row in enumerate(rows):
        if row is None:
            out[i] = 0.0
        else:
            out[i, : len(row)] = row


def action_shape(spec: EnvSpec) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of one environment's joint action."""
    if isinstance(spec.action, Box):
        return (spec.num_agents, spec.action.dim), np.float32
    return (spec.num_agents,), np.int32
