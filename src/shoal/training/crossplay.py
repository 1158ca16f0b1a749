"""Cross-play: separately trained policies play on two sides of one environment, every run with every run."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from shoal.errors import InputError, unknown
from shoal.statistics.intervals import interval
from shoal.training import memory
from shoal.training.evaluation import check_episodes, known_mean
from shoal.training.matches import make_matches
from shoal.types import Algorithm, AnyEnvironment, Environment, EnvSpec, Learner


class Player(NamedTuple):
    """The policies of a trained run."""

    name: str
    """Name in the tables, for example the run folder's name."""
    kind: str
    """Name of the algorithm."""
    algorithm: Algorithm
    learner: Learner
    """Leaves [S, ...], one row per seed; only ``policy`` is filled."""


class CrossPlay(NamedTuple):
    """Undiscounted returns of all ordered pairs of R runs. S_a is the number of seeds of run a.

    Entry (a, b): run a controls side 1 and run b controls side 2, every seed of a with every seed of b.
    """

    names: tuple[str, ...]
    """R names, in the order of rows and columns."""
    algorithms: tuple[str, ...]
    """R names of algorithms, in the same order."""
    sides: tuple[tuple[str, ...], tuple[str, ...]]
    """The names of the agents of each side."""
    returns: tuple[tuple[np.ndarray, ...], ...]
    """``returns[a][b]`` is [S_a, S_b, episodes, 2]: each side's return, the mean over its agents."""
    metrics: Mapping[str, tuple[tuple[np.ndarray, ...], ...]] = MappingProxyType({})
    """``EnvSpec.metrics`` by name: ``metrics[name][a][b]`` is [S_a, S_b, episodes], NaN where unknown."""

    @property
    def mean(self) -> Float[np.ndarray, "R R 2"]:
        """Each side's mean return over pairs of seeds and episodes."""
        return self._entries()[..., 0]

    @property
    def low(self) -> Float[np.ndarray, "R R 2"]:
        """Lower ends of the 95 % intervals of ``mean``; see :func:`pairs_interval`."""
        return self._entries()[..., 1]

    @property
    def high(self) -> Float[np.ndarray, "R R 2"]:
        """Upper ends of the 95 % intervals of ``mean``."""
        return self._entries()[..., 2]

    @property
    def together(self) -> Float[np.ndarray, "R 2 3"]:
        """(mean, low, high) of each run with itself, both sides from the same seed and so trained together.

        The interval is over seeds; with one seed, over episodes.
        """
        rows = [[_own(self.returns[a][a][..., side]) for side in (0, 1)] for a in range(len(self.names))]
        return np.array(rows)

    def as_json(self) -> dict[str, Any]:
        """Names and all numbers of the tables, and the means over episodes of each pair of seeds [S_a, S_b, 2]."""
        result = {
            "names": self.names,
            "algorithms": self.algorithms,
            "sides": self.sides,
            "mean": self.mean,
            "low": self.low,
            "high": self.high,
            "together": self.together,
            "pairs": [[pairs.mean(2) for pairs in row] for row in self.returns],
        }
        if not self.metrics:
            return result
        found = {name: _every_entry(rows) for name, rows in self.metrics.items()}
        ends = ("mean", "low", "high")
        return result | {"metrics": {name: {x: e[..., i] for i, x in enumerate(ends)} for name, e in found.items()}}

    def _entries(self) -> Float[np.ndarray, "R R 2 3"]:
        return np.stack([_every_entry([[p[..., side] for p in row] for row in self.returns]) for side in (0, 1)], 2)

    def __str__(self) -> str:
        """A table for each side and each metric: rows play side 1, columns side 2; runs are abbreviated to letters."""
        count = len(self.names)
        letters = [chr(ord("A") + i) if count <= 26 else str(i + 1) for i in range(count)]
        titles = [f"{x} {name} ({kind})" for x, name, kind in zip(letters, self.names, self.algorithms, strict=True)]
        many = any(self.returns[a][a].shape[0] > 1 for a in range(count))
        heads = [*letters, *["trained together"] * many]
        tables = {
            f"Return of side {side + 1}, mean over its agents ({', '.join(agents)})": [
                [pairs[..., side] for pairs in row] for row in self.returns
            ]
            for side, agents in enumerate(self.sides)
        }
        tables |= {f"{name}, mean over episodes": rows for name, rows in self.metrics.items()}
        lines = []
        for title, rows in tables.items():
            entries = _every_entry(rows)
            cells = [[_cell(*entry) for entry in row] for row in entries]
            if many:
                cells = [[*row, _cell(*_own(rows[a][a]))] for a, row in enumerate(cells)]
            lines += [title, "", *_table(["side 1 \\ side 2", *titles], [heads, *cells]), ""]
        return "\n".join(lines[:-1])


def _every_entry(rows: Sequence[Sequence[np.ndarray]]) -> Float[np.ndarray, "R R 3"]:
    """(mean, low, high) of each run on side 1 with each on side 2, from [S_a, S_b, episodes]."""
    return np.array([[pairs_interval(x, same=a == b) for b, x in enumerate(row)] for a, row in enumerate(rows)])


def _own(pairs: Float[np.ndarray, "S S episodes"]) -> tuple[float, float, float]:
    """(mean, low, high) over the diagonal of pairs of seeds; with one seed, over episodes."""
    seeds = np.diagonal(pairs).T  # [S, episodes]
    values = known_mean(seeds, axis=-1) if len(seeds) > 1 else seeds[0]
    values = values[np.isfinite(values)]
    return interval(values) if values.size else _UNKNOWN


def pairs_interval(values: Float[np.ndarray, "A B episodes"], same: bool) -> tuple[float, float, float]:
    """(mean, low, high): 95 % interval of the mean over all pairs of A seeds and B other seeds.

    Every seed plays with every seed of the other run, so pairs are not independent and A · B is not the sample size.
    With row means r_i, column means c_j and the mean m of all pairs, the mean over resampled seeds is, to first order
    in 1 / A and 1 / B (the projection of a two-sample U-statistic; Hoeffding 1948),

        mean of the r_i + mean of the c_j − m       different runs, whose seeds are resampled independently
        mean of the (r_i + c_i − m)                 a run with itself (``same``): seed i is row i and column i

    :func:`shoal.statistics.intervals.interval` gives its interval, clipped to the lowest and highest pair. If one run
    has a single seed, the interval is over the other's seeds; with a single pair, over episodes. NaN episodes, in which
    a metric is unknown, are left out; if a pair has no others, the interval is NaN.
    """
    if values.shape[:2] == (1, 1):
        known = values[np.isfinite(values)]
        return interval(known) if known.size else _UNKNOWN
    pairs = known_mean(values, axis=2)
    if np.isnan(pairs).any():
        return float(known_mean(values, axis=(0, 1, 2))), math.nan, math.nan
    rows, columns, middle = pairs.mean(1), pairs.mean(0), pairs.mean()
    _, low, high = interval(rows + columns - middle) if same else interval(rows, columns - middle)
    return float(middle), max(low, float(pairs.min())), min(high, float(pairs.max()))


_UNKNOWN = (math.nan, math.nan, math.nan)


def first_side(spec: EnvSpec, chosen: Sequence[str | int] = ()) -> tuple[int, ...]:
    """Indices of the agents of side 1; all others are side 2.

    ``chosen`` are names or indices. By default side 1 is role 0 if there are several roles, otherwise the first half of
    the agents, rounded down.

    Raises:
        InputError: an agent is unknown, or a side would be empty.
    """
    n = spec.num_agents
    if n < 2:
        raise InputError(f"{spec.name} has one agent; two sides need two.")
    if not chosen:
        return tuple(i for i in range(n) if (spec.roles[i] == 0 if any(spec.roles) else i < n // 2))
    known = {name: i for i, name in enumerate(spec.agents)}
    known = {str(i): i for i in range(n)} | known
    for agent in chosen:
        if str(agent) not in known:
            raise unknown("agent", str(agent), spec.agents)
    found = tuple(sorted({known[str(agent)] for agent in chosen}))
    if len(found) == n:
        raise InputError(f"Side 1 has all {n} agents, so side 2 would be empty.")
    return found


def play(
    env: AnyEnvironment,
    players: Sequence[Player],
    side: tuple[int, ...],
    key: Key[Array, ""],
    episodes: int,
    greedy: bool = True,
    num_workers: int | None = None,
) -> CrossPlay:
    """Play ``episodes`` whole episodes for each ordered pair of players and each pair of their seeds.

    ``side`` holds the agents of side 1. The same pair of seeds has the same random numbers in all entries.

    Raises:
        InputError: ``episodes`` is below 1, or the episodes do not fit in memory.
    """
    check_episodes(episodes)
    if isinstance(env, Environment):
        seeds = max(len(jax.tree.leaves(player.learner)[0]) for player in players)
        memory.check_episodes(env.spec, seeds, episodes, env.spec.horizon, "episodes")
    programs: dict[tuple[int, int], Callable] = {}  # players that share an Algorithm object share a compiled program

    def entry(one: Player, two: Player) -> tuple[np.ndarray, np.ndarray]:
        kinds = id(one.algorithm), id(two.algorithm)
        if kinds not in programs:
            programs[kinds] = make_matches(env, (one.algorithm, two.algorithm), side, episodes, greedy, num_workers)
        returns, metrics = programs[kinds](one.learner, two.learner, key)
        return np.asarray(returns, np.float64), np.asarray(metrics, np.float64)

    played = [[entry(one, two) for two in players] for one in players]
    returns = tuple(tuple(returns for returns, _ in row) for row in played)
    metrics = {
        name: tuple(tuple(metrics[..., i] for _, metrics in row) for row in played)
        for i, name in enumerate(env.spec.metrics)
    }
    agents = [tuple(x for i, x in enumerate(env.spec.agents) if (i in side) == mine) for mine in (True, False)]
    names, kinds = tuple(p.name for p in players), tuple(p.kind for p in players)
    return CrossPlay(names, kinds, (agents[0], agents[1]), returns, metrics)


def _cell(mean: float, low: float, high: float) -> str:
    text = f"{mean:.2f}" if np.isnan(low) else f"{mean:.2f} ({low:.2f} … {high:.2f})"
    return text.replace("-", "−")


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with ``names`` in the first column and right-aligned other columns."""
    first = max(map(len, names))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([f"{name:<{first}}", *(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))]).rstrip()
        for name, row in zip(names, rows, strict=True)
    ]
