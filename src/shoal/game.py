"""Environments that are Python objects: what an adapter writes, and worker processes step. Knows no JAX.

A :class:`Game` is one environment. It writes what the team sees into a :class:`Moment`, whose arrays lie in memory that
the training process reads, so nothing is allocated or pickled between the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from shoal.spec import Box, EnvSpec


class Moment(NamedTuple):
    """What the team sees at one moment: the host's :class:`shoal.types.Step`, to be written in place.

    A game is handed it with everybody alive, each agent's own actions legal, reward 0, discount 1, ``last`` False and
    metrics NaN, and writes what differs. ``obs`` and ``state`` hold what was there before; padding beyond an agent's
    own observation is zero and stays so, unless the game writes there.
    """

    obs: np.ndarray
    """float32 [N, O]."""
    state: np.ndarray
    """float32 [S]."""
    legal: np.ndarray
    """bool [N, A]; at least one in each row."""
    alive: np.ndarray
    """bool [N]."""
    reward: np.ndarray
    """float32 [N], earned on arriving here."""
    discount: np.ndarray
    """float32 [N]: 0 on true termination, 1 otherwise, also at a time limit."""
    first: np.ndarray
    """bool [], an episode starts here; the roll-out's to write."""
    last: np.ndarray
    """bool [], the episode ends here, by termination or by time limit."""
    metrics: np.ndarray = np.zeros(0, np.float32)
    """float32 [M], the values of ``EnvSpec.metrics``, should the episode end here; NaN where one is not known. A game
    that writes them at every step has them right wherever a wrapper cuts the episode off."""


@runtime_checkable
class Game(Protocol):
    """One environment on the host. Never resets by itself."""

    @property
    def spec(self) -> EnvSpec:
        """Its description."""
        ...

    def reset(self, seed: int, out: Moment) -> None:
        """Start an episode that depends on ``seed`` (0 ≤ seed < 2³¹) alone."""
        ...

    def step(self, action: np.ndarray, out: Moment) -> None:
        """Play ``action``, int32 [N] or float32 [N, A] (within the box), and write what it led to."""
        ...

    def render(self) -> np.ndarray | None:
        """An RGB picture uint8 [height, width, 3] of where it stands; None where there is none."""
        ...

    def close(self) -> None:
        """Free what the environment holds."""
        ...


@dataclass(frozen=True)
class HostEnvironment:
    """An environment that worker processes step, each with games of its own."""

    spec: EnvSpec
    make: Callable[..., Game]
    """() -> a new game; ``make(render=True)`` -> one whose ``render`` gives pictures, where it can. Worker processes
    unpickle it, so it is a function of an importable module, or a ``functools.partial`` of one."""


def blank(spec: EnvSpec, *batch: int) -> Moment:
    """Moments of zeros, of nobody; leaves [*batch, ...]."""
    n, width = spec.num_agents, spec.action.width
    return Moment(
        obs=np.zeros((*batch, n, spec.obs_dim), np.float32),
        state=np.zeros((*batch, spec.state_dim), np.float32),
        legal=np.zeros((*batch, n, width), bool),
        alive=np.zeros((*batch, n), bool),
        reward=np.zeros((*batch, n), np.float32),
        discount=np.zeros((*batch, n), np.float32),
        first=np.zeros(batch, bool),
        last=np.zeros(batch, bool),
        metrics=np.zeros((*batch, len(spec.metrics)), np.float32),
    )


def own_actions(spec: EnvSpec) -> np.ndarray:
    """bool [N, A]: which actions, or action dimensions, each agent has at all."""
    return np.arange(spec.action.width) < np.array(spec.action_dims)[:, None]


def refresh(out: Moment, own: np.ndarray) -> None:
    """Write what every moment starts from; ``own`` is :func:`own_actions`."""
    out.legal[...] = own
    out.alive[...] = True
    out.reward[...] = 0.0
    out.discount[...] = 1.0
    out.first[...] = False
    out.last[...] = False
    out.metrics[...] = np.nan


def write_rows(out: np.ndarray, rows: Sequence[np.ndarray | None]) -> None:
    """Each agent's own observation into its padded row of [N, O]; None, for who is gone, clears the row."""
    for i, row in enumerate(rows):
        if row is None:
            out[i] = 0.0
        else:
            out[i, : len(row)] = row


def action_shape(spec: EnvSpec) -> tuple[tuple[int, ...], Any]:
    """Shape and type of one environment's joint action."""
    if isinstance(spec.action, Box):
        return (spec.num_agents, spec.action.dim), np.float32
    return (spec.num_agents,), np.int32
