"""How an environment is described: the part of the vocabulary that worker processes need, and so knows no JAX."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Discrete:
    """Each agent picks one of ``n`` actions (the widest agent's count); actions are ``Int[*b N]``."""

    n: int

    @property
    def width(self) -> int:
        """The length A of the ``legal`` axis."""
        return self.n


@dataclass(frozen=True)
class Box:
    """Each agent emits ``dim`` real numbers in ``[low, high]``; actions are ``Float[*b N dim]``."""

    dim: int
    low: float = -1.0
    high: float = 1.0

    @property
    def width(self) -> int:
        """The length A of the ``legal`` axis."""
        return self.dim


@dataclass(frozen=True)
class EnvSpec:
    """What an algorithm may know of an environment before it starts; static and hashable."""

    name: str
    """How :func:`shoal.make` calls it, for example ``mpe/simple_spread``."""
    agents: tuple[str, ...]
    """One name per agent; its length is N."""
    obs_dims: tuple[int, ...]
    """Each agent's true observation width; narrower ones are zero-padded to ``obs_dim``."""
    state_dim: int
    """Width S of the environment's global state."""
    action: Discrete | Box
    """The padded action space that all agents share."""
    action_dims: tuple[int, ...]
    """Each agent's own number of actions (discrete) or action dimensions (box)."""
    roles: tuple[int, ...]
    """A role per agent, numbered from 0: agents of one role are interchangeable."""
    horizon: int
    """Steps after which an episode is cut off (a time limit, not a termination)."""
    shared_reward: bool
    """True where all agents always receive the same reward."""
    score: Literal["sum", "mean"] = "sum"
    """How N agents' returns become the one number people quote: their sum, or one copy (the mean)."""
    metrics: tuple[str, ...] = ()
    """Names of the M numbers that describe an episode beside its return and length. ``won`` is 1 where the episode was
    won and 0 where it was not."""
    novel: tuple[int, ...] | None = None
    """Indices of the observation features that the global state does not hold for every agent, which the ``pruned``
    critic input appends to the state. The state holds a feature that is constant, or that one entry of the state gives
    up to shift, scale and clipping, wherever the agent sees it (each agent may have its own entry). ``()``: the state
    holds all of them; None: unknown, so that ``pruned`` is refused."""
    interface: str = ""
    """What the environment's own interface hands over and takes, in JSON (:mod:`shoal.environments.handover`): trained
    policies can then act on what it returns. Empty where that is arrays of Shoal's form already."""

    def scores(self, returns: Any) -> Any:
        """The number people quote of agents' returns [*b, N]: [*b]."""
        return returns.sum(-1) if self.score == "sum" else returns.mean(-1)

    @property
    def num_agents(self) -> int:
        """N."""
        return len(self.agents)

    @property
    def obs_dim(self) -> int:
        """O, the width of the widest observation."""
        return max(self.obs_dims)


class Scene(NamedTuple):
    """One timestep of an environment as discs on a plane, for replay pictures (host-side, plain numpy)."""

    centres: np.ndarray
    """[K, 2] positions."""
    radii: np.ndarray
    """[K]."""
    colours: np.ndarray
    """[K, 3] RGB in 0..1."""
    hollow: np.ndarray
    """[K] bool: drawn as a ring (landmarks) rather than a disc (agents)."""
    labels: tuple[str, ...]
    """K names."""
    extent: float
    """The picture shows [-extent, extent]²."""
    caption: str = ""
    """One line under the picture, for example what was said."""
