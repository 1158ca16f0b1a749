"""Cross-play: separately trained policies play on two sides of one environment, every run with every run."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from shoal.composing.sides import members
from shoal.errors import InputError, unknown
from shoal.rollouts.recording import WORKERS, Workers
from shoal.statistics.ratings import elo
from shoal.training import memory
from shoal.training.crossplay_tables import cell, every_entry, letters, own_pairs, table
from shoal.training.evaluation import check_episodes
from shoal.training.matches import make_matches
from shoal.types import Algorithm, AnyEnvironment, Environment, EnvSpec, Learner
from shoal.values import several

Sides = tuple[tuple[int, ...], tuple[int, ...]]
"""The agents of side 1 and of side 2."""


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
        rows = [[own_pairs(self.returns[a][a][..., side]) for side in (0, 1)] for a in range(len(self.names))]
        return np.array(rows)

    @property
    def scores(self) -> Float[np.ndarray, "R R"]:
        """Mean result of each run on side 1 with each on side 2: 1 for an episode that side 1 wins, ½ for a draw.

        The side with the higher return wins, unless the environment has the metrics ``won`` and ``lost``, which then
        determine the result.
        """
        decided = {"won", "lost"} <= set(self.metrics)

        def result(a: int, b: int) -> float:
            if decided:
                margin = self.metrics["won"][a][b] - self.metrics["lost"][a][b]
            else:
                margin = self.returns[a][b][..., 0] - self.returns[a][b][..., 1]
            return float(np.nanmean((np.sign(margin) + 1) / 2))

        runs = range(len(self.names))
        return np.array([[result(a, b) for b in runs] for a in runs])

    @property
    def ratings(self) -> tuple[Float[np.ndarray, " R"], float]:
        """Elo ratings of the runs by ``scores``, the first with 0, and the advantage of side 1, in Elo points."""
        games = np.array([[pairs[..., 0].size for pairs in row] for row in self.returns], float)
        return elo(self.scores, games)

    def rating_table(self) -> str:
        """``ratings`` and ``scores`` as a table."""
        (ratings, advantage), scores = self.ratings, self.scores
        heads = ["Elo", *letters(len(self.names))]
        rows = [[f"{r:+.0f}", *(f"{x:.0%}" for x in row)] for r, row in zip(ratings, scores, strict=True)]
        names = [f"{x} {name}" for x, name in zip(heads[1:], self.names, strict=True)]
        return "\n".join(
            [
                "Share of episodes that the row's run wins on side 1 (a draw counts ½), and Elo ratings",
                "",
                *table(["side 1 \\ side 2", *names], [heads, *rows]),
                "",
                f"Side 1 has an advantage of {advantage:+.0f} Elo points.",
            ]
        ).replace("-", "−")

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
            "scores": self.scores,
        }
        if not self.metrics:
            return result
        found = {name: every_entry(rows) for name, rows in self.metrics.items()}
        ends = ("mean", "low", "high")
        return result | {"metrics": {name: {x: e[..., i] for i, x in enumerate(ends)} for name, e in found.items()}}

    def _entries(self) -> Float[np.ndarray, "R R 2 3"]:
        return np.stack([every_entry([[p[..., side] for p in row] for row in self.returns]) for side in (0, 1)], 2)

    def __str__(self) -> str:
        """A table for each side and each metric: rows play side 1, columns side 2; runs are abbreviated to letters."""
        count = len(self.names)
        short = letters(count)
        titles = [f"{x} {name} ({kind})" for x, name, kind in zip(short, self.names, self.algorithms, strict=True)]
        many = any(self.returns[a][a].shape[0] > 1 for a in range(count))
        heads = [*short, *["trained together"] * many]
        tables = {
            f"Return of side {side + 1}, mean over its agents ({', '.join(agents)})": [
                [pairs[..., side] for pairs in row] for row in self.returns
            ]
            for side, agents in enumerate(self.sides)
        }
        tables |= {f"{name}, mean over episodes": rows for name, rows in self.metrics.items()}
        lines = []
        for title, rows in tables.items():
            entries = every_entry(rows)
            cells = [[cell(*entry) for entry in row] for row in entries]
            if many:
                cells = [[*row, cell(*own_pairs(rows[a][a]))] for a, row in enumerate(cells)]
            lines += [title, "", *table(["side 1 \\ side 2", *titles], [heads, *cells]), ""]
        return "\n".join(lines[:-1])


def first_side(spec: EnvSpec, chosen: int | Sequence[str | int] = ()) -> tuple[int, ...]:
    """Indices of the agents of side 1; all others are side 2.

    ``chosen`` are names or indices. By default side 1 is the environment's own side 0 (``EnvSpec.sides``) or role 0
    if there are several, otherwise the first half of the agents, rounded down.

    Raises:
        InputError: an agent is unknown or named twice, or a side would be empty.
    """
    n = spec.num_agents
    if n < 2:
        raise InputError(f"{spec.name} has only one agent; two sides require at least two.")
    chosen = several("side", chosen, (str, int))
    if not chosen:
        return tuple(i for i in range(n) if (spec.teams[i] == 0 if any(spec.teams) else i < n // 2))
    known = {name: i for i, name in enumerate(spec.agents)}
    known = {str(i): i for i in range(n)} | known
    for agent in chosen:
        if str(agent) not in known:
            raise unknown("agent", str(agent), spec.agents)
    found = tuple(sorted(known[str(agent)] for agent in chosen))
    if twice := [i for i, after in itertools.pairwise(found) if i == after]:
        raise InputError(f"side names {spec.agents[twice[0]]} twice; name each agent once.")
    if len(found) == n:
        raise InputError(f"Side 1 has all {n} agents, so side 2 would be empty.")
    return found


def past_sides(spec: EnvSpec, chosen: Sequence[str | int], config: Any) -> Sides:
    """The two sides of self-play against past selves: that of ``chosen``, as in :func:`first_side`, and all others.

    Args:
        spec: the environment's.
        chosen: agents of side 1; by default those of the first side that ``config`` names, if it does.
        config: the algorithm's; one of several sides' algorithms may have ``sides``.

    Raises:
        InputError: see :func:`first_side`; or past selves would play a part of a side that learns as one team.
    """
    sides = getattr(config, "sides", None)
    learning = len([name for name in vars(config) if re.fullmatch(r"side\d+", name)])
    teams = list(members(spec, learning, sides)) if learning else []
    one = first_side(spec, chosen or (teams[0] if teams and sides else ()))
    for number, team in enumerate(teams, 1):
        if 0 < len(set(team) & set(one)) < len(team):
            raise InputError(
                f"Past selves play side 1 or all others, and {', '.join(spec.agents[i] for i in one)} are a part of "
                f"side {number}, which learns as one team: give --side all agents of a side."
            )
    return one, tuple(i for i in range(spec.num_agents) if i not in one)


def play(
    env: AnyEnvironment,
    players: Sequence[Player],
    side: tuple[int, ...],
    key: Key[Array, ""],
    episodes: int,
    greedy: bool = True,
    workers: Workers = WORKERS,
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
            programs[kinds] = make_matches(env, (one.algorithm, two.algorithm), side, episodes, greedy, workers)
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
