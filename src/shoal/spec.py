"""The description of environments, which worker processes need. Does not import JAX."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Discrete:
    """Each agent chooses one of ``n`` actions (the largest number of any agent); actions are ``Int[*b N]``."""

    n: int

    @property
    def width(self) -> int:
        """The length A of the ``legal`` axis."""
        return self.n


@dataclass(frozen=True)
class Box:
    """Each agent chooses ``dim`` real numbers in ``[low, high]``; actions are ``Float[*b N dim]``."""

    dim: int
    low: float = -1.0
    high: float = 1.0

    @property
    def width(self) -> int:
        """The length A of the ``legal`` axis."""
        return self.dim


class Part(NamedTuple):
    """One array of an agent's observation."""

    shape: tuple[int, ...]
    """Its shape; that of an image is (height, width, channels)."""
    dtype: Literal["float32", "uint8"] = "float32"
    """``float32`` for numbers, or ``uint8`` for images; other types are refused. Networks read ``uint8`` numbers scaled
    from 0 … 255 to 0 … 1."""
    name: str = ""
    """Its key where the observation is a dictionary."""
    source: tuple[int, ...] | None = None
    """Its shape in the environment itself, where wrappers have changed it. Stacked frames follow one another along the
    last axis, oldest first: those of an image are its channels."""

    @property
    def size(self) -> int:
        """Number of its features."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class EnvSpec:
    """The static description of an environment; hashable."""

    name: str
    """Name, for example ``mpe/simple_spread``; see :func:`shoal.make`."""
    agents: tuple[str, ...]
    """Names of the N agents."""
    obs_dims: tuple[int, ...]
    """Each agent's own observation width; narrower ones are zero-padded to ``obs_dim``. In rows of bytes
    (:attr:`packed`) this is the number of bytes."""
    state_dim: int
    """Width S of the environment's global state."""
    action: Discrete | Box
    """The padded action space that all agents share."""
    action_dims: tuple[int, ...]
    """Each agent's own number of actions (discrete) or action dimensions (box)."""
    roles: tuple[int, ...]
    """Role of each agent, numbered from 0; agents of one role are interchangeable."""
    horizon: int
    """Steps after which an episode is cut off (a time limit, not a termination)."""
    shared_reward: bool
    """True if all agents always receive the same reward."""
    score: Literal["sum", "mean"] = "sum"
    """The score of an episode: sum or mean of the N agents' returns."""
    metrics: tuple[str, ...] = ()
    """Names of the M metrics of an episode beside its return and length. ``won`` is 1 if the episode was won, else
    0."""
    novel: tuple[int, ...] | None = None
    """Indices of the observation features that the global state does not contain for every agent; the ``pruned`` critic
    input appends them to the state. A feature is contained if it is constant or, wherever the agent observes it, equals
    an entry of the state up to shift, scale and clipping (the entry may differ by agent). ``()``: the state contains
    all features; None: unknown, so that ``pruned`` is refused."""
    interface: str = ""
    """JSON description of the environment's own observation and action spaces (:mod:`shoal.environments.interface`),
    from which trained policies can act on its observations. Empty if they are arrays of Shoal's form."""
    parts: tuple[tuple[Part, ...], ...] | None = None
    """The arrays of which each agent's observation consists, flattened and in this order; None: one row of numbers. If
    one of them is ``uint8``, observations are rows of bytes, in which a ``float32`` number takes four."""
    sides: tuple[int, ...] | None = None
    """The side of each agent, numbered from 0, where several teams play against each other; agents of one side always
    receive the same reward. None: each role is a side. Read where sides are trained or played separately."""
    rivals: tuple[int, ...] | None = None
    """The team of each agent, numbered from 0, where teams compete and agents of one team may receive different
    rewards; None: as ``sides``. An algorithm that learns from a whole team's rewards is made for each of these teams
    separately (``separate_sides``)."""
    scored: tuple[int, ...] | None = None
    """The agents whose returns make the score, where frozen policies play all others; None: all."""
    turns: bool = False
    """Whether agents take turns: at every timestep at most one agent has more than one legal action. Feed-forward
    policies with shared parameters are then computed for that agent alone (:func:`shoal.networks.sharing.in_turns`)."""
    targets: tuple[tuple[str, int], ...] = ()
    """Sets of entities among ``parts`` that actions target: the name of the part of shape (K, F), and the number of the
    action that targets its first row. The K actions from there on target one row each. Read by ``network="universal"``.
    """

    def scores(self, returns: Any) -> Any:
        """Scores [*b] from agents' returns [*b, N]."""
        if self.scored is not None:
            returns = returns[..., np.array(self.scored)]
        return returns.sum(-1) if self.score == "sum" else returns.mean(-1)

    def role_returns(self, returns: Any) -> dict[str, Any]:
        """``return/ROLE``: the mean return [*b] of each role's agents, from agents' returns [*b, N] (NumPy).

        Empty where there is one role, or all agents always receive the same reward. A role is called as its agents are,
        without their number: ``adversary`` for ``adversary_0`` and ``adversary_1``. Where such names do not tell all
        roles apart, they are ``role_0``, ``role_1`` and so on.
        """
        if self.shared_reward or len(set(self.roles)) < 2:
            return {}
        kinds = {(role, re.sub(r"[\W_]*\d+$", "", name)) for role, name in zip(self.roles, self.agents, strict=True)}
        names = dict(sorted(kinds))
        if len(kinds) > len(names) or len(set(names.values())) < len(names) or "" in names.values():
            names = {role: f"role_{role}" for role in names}
        return {f"return/{name}": returns[..., np.array(self.roles) == role].mean(-1) for role, name in names.items()}

    @property
    def teams(self) -> tuple[int, ...]:
        """The side of each agent: ``sides``, or its role."""
        return self.roles if self.sides is None else self.sides

    @property
    def reward_groups(self) -> tuple[int, ...]:
        """The group of each agent within which all always receive the same reward: one, the ``sides``, or the agent."""
        alone = tuple(range(self.num_agents))
        return (0,) * self.num_agents if self.shared_reward else alone if self.sides is None else self.sides

    @property
    def competing(self) -> tuple[tuple[int, ...], ...]:
        """The agents of each of the teams that are known to compete (``rivals``, else ``sides``); else one team."""
        teams = self.rivals or self.sides
        if self.shared_reward or teams is None:
            return (tuple(range(self.num_agents)),)
        return tuple(tuple(i for i, team in enumerate(teams) if team == number) for number in sorted(set(teams)))

    @property
    def num_agents(self) -> int:
        """N."""
        return len(self.agents)

    @property
    def obs_dim(self) -> int:
        """O, the width of the widest observation."""
        return max(self.obs_dims)

    @property
    def packed(self) -> bool:
        """Whether observations are rows of bytes (``uint8``) rather than of ``float32`` numbers."""
        return self.parts is not None and any(part.dtype == "uint8" for own in self.parts for part in own)

    def parts_among(self, agents: Sequence[int]) -> tuple[tuple[Part, ...], ...] | None:
        """The ``parts`` of some of the agents, whose rows are of the same type as all agents'."""
        if self.parts is None:
            return None
        kept = tuple(self.parts[i] for i in agents)
        pictured = not self.packed or any(part.dtype == "uint8" for own in kept for part in own)
        return kept if pictured else tuple((*own, Part((0,), "uint8")) for own in kept)  # still rows of bytes

    @property
    def feature_dims(self) -> tuple[int, ...]:
        """Number of features of each agent's observation, as networks read them."""
        return self.obs_dims if self.parts is None else tuple(sum(part.size for part in own) for own in self.parts)

    @property
    def feature_dim(self) -> int:
        """The width of the widest agent's features."""
        return max(self.feature_dims)


def equal_agents(
    name: str, agent: str, count: int, *, obs: int, state: int, actions: int, horizon: int, **fields: Any
) -> EnvSpec:
    """The spec of ``count`` agents of one role with the same discrete actions, named after ``agent``.

    Args:
        name: of the environment.
        agent: the first part of each agent's name, to which its number is added.
        count: number of agents.
        obs: width of each observation.
        state: width of the state.
        actions: number of actions.
        horizon: steps of the longest episode.
        fields: other fields of the spec.
    """
    return EnvSpec(
        name=name,
        agents=tuple(f"{agent}_{i}" for i in range(count)),
        obs_dims=(obs,) * count,
        state_dim=state,
        action=Discrete(actions),
        action_dims=(actions,) * count,
        roles=(0,) * count,
        horizon=horizon,
        **fields,
    )


class Scene(NamedTuple):
    """One timestep of an environment as discs and squares on a plane, for pictures (NumPy arrays on the host)."""

    centres: np.ndarray
    """[K, 2] positions; NaN for what is absent."""
    radii: np.ndarray
    """[K]."""
    colours: np.ndarray
    """[K, 3] RGB in [0, 1]."""
    hollow: np.ndarray
    """bool [K]: drawn as a ring (landmarks) rather than a disc (agents)."""
    labels: tuple[str, ...]
    """K names."""
    extent: float
    """The picture shows [-extent, extent]²."""
    caption: str = ""
    """One line under the picture, for example the agents' messages."""
    square: np.ndarray | None = None
    """bool [K]: drawn as a square, of half the width ``radii``; None for discs alone."""


class Outline(NamedTuple):
    """One timestep of an environment in numbers, for a replay whose viewer draws it.

    The rows of ``moving`` are the same things at all timesteps of an episode; what is absent has NaN positions.
    """

    kind: Literal["bodies", "units"]
    """``bodies``: :mod:`shoal.environments.outlines`. ``units``: :mod:`shoal.environments.skirmish.drawing`."""
    fixed: dict[str, Any]
    """JSON values that are the same at all timesteps of an episode. In both kinds ``actions`` [N][A] may name the
    agents' actions, or the components of continuous ones, and ``features`` [N][O] the numbers that each observes."""
    moving: dict[str, np.ndarray]
    """Numbers at this timestep, [K] or [K, …]."""
    caption: str = ""
    """One line of text."""
    messages: tuple[str, ...] = ()
    """What each of the N agents says, if agents talk; empty strings for nothing."""
