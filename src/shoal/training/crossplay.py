"""Cross-play: separately trained policies play on two sides of one environment, every run with every run."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from shoal.errors import InputError, unknown
from shoal.game import HostEnvironment
from shoal.options.convert import items_of
from shoal.plots.charts import metric_words
from shoal.plots.texts import decimals
from shoal.rollouts import fused
from shoal.rollouts.host import WORKERS, HostRollout, Parallelism, Workers
from shoal.sides.sides import members
from shoal.statistics.comparison import elo
from shoal.statistics.intervals import Estimate, interval
from shoal.training import memory
from shoal.training.evaluation import ENVS, check_episodes, first_episodes, known_mean
from shoal.training.stopping import call
from shoal.types import Algorithm, AnyEnvironment, Environment, EnvSpec, Learner, PyTree, Step

# Episodes of two trained algorithms, each of which controls one side: every seed of one with every of the other.


Matches = Callable[
    [Learner, Learner, Array],
    tuple[Float[Array | np.ndarray, "A B episodes 2"], Float[Array | np.ndarray, "A B episodes M"]],
]
"""(learners [A, ...] of one, learners [B, ...] of the other, key) -> (each side's returns, means over its agents; the
episodes' metrics)."""


def make_matches(
    env: AnyEnvironment,
    teams: tuple[Algorithm, Algorithm],
    side: tuple[int, ...],
    episodes: int,
    greedy: tuple[bool, bool],
    workers: Workers,
) -> Matches:
    """A function that plays ``episodes`` whole episodes per pair; ``side`` holds the agents of the first algorithm, and
    ``greedy`` the mode of each."""
    mine = np.isin(np.arange(env.spec.num_agents), side)
    act = _both(teams, mine, greedy)

    def carry(num_envs: int) -> tuple[PyTree, PyTree]:
        return teams[0].initial_carry(num_envs), teams[1].initial_carry(num_envs)

    if isinstance(env, Environment):
        return _on_device(env, act, carry(episodes), mine, episodes)
    return _on_host(env, act, carry, mine, episodes, workers)


def _both(teams: tuple[Algorithm, Algorithm], mine: np.ndarray, greedy: tuple[bool, bool]) -> fused.Act:
    """Both algorithms act for all agents, each in its mode; each agent's action is taken from its side's."""
    one, two = teams

    def act(
        learners: tuple[Learner, Learner], carry: PyTree, step: Step, key: PRNGKeyArray, told: bool
    ) -> tuple[PyTree, Array, dict[str, Array]]:
        del told
        keys = jax.random.split(key)
        first, ours, _ = one.act(learners[0], carry[0], step, keys[0], greedy[0])
        second, theirs, _ = two.act(learners[1], carry[1], step, keys[1], greedy[1])
        ours_acts = mine.reshape(-1, *(1,) * (ours.ndim - 2))
        return (first, second), jnp.where(ours_acts, ours, theirs), {}

    return act


def keys_of_pairs(key: Array, rows: int, columns: int) -> Array:
    """A key [rows, columns] for each pair of seeds, which does not depend on the number of seeds."""
    each = jax.vmap(jax.random.fold_in, (None, 0))
    return jax.vmap(each, (0, None))(each(key, jnp.arange(rows)), jnp.arange(columns))


def _on_device(env: Environment, act: fused.Act, carry: PyTree, mine: np.ndarray, episodes: int) -> Matches:
    games = first_episodes(env, act, carry, episodes, True)

    def pair(ours: Learner, theirs: Learner, key: Array) -> tuple[Array, Array]:
        returns, _, metrics = games((ours, theirs), key)
        return jnp.stack([returns[:, mine].mean(-1), returns[:, ~mine].mean(-1)], -1), metrics

    def every_pair(ours: Learner, theirs: Learner, key: Array) -> tuple[Array, Array]:
        keys = keys_of_pairs(key, *(len(jax.tree.leaves(learner)[0]) for learner in (ours, theirs)))

        def row(turn: tuple[Learner, Array]) -> tuple[Array, Array]:
            return jax.vmap(pair, (None, 0, 0), axis_name=fused.SEEDS)(turn[0], theirs, turn[1])

        return jax.lax.map(row, (ours, keys))

    return partial(call, jax.jit(every_pair))


def _on_host(
    env: HostEnvironment,
    act: fused.Act,
    carry: Callable[[int], PyTree],
    mine: np.ndarray,
    episodes: int,
    workers: Workers,
) -> Matches:
    def every_pair(ours: Learner, theirs: Learner, key: Array) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = (len(jax.tree.leaves(learner)[0]) for learner in (ours, theirs))
        pairs = (
            jax.tree.map(lambda x: jnp.repeat(x, columns, axis=0), ours),
            jax.tree.map(lambda x: jnp.concatenate([x] * rows), theirs),
        )
        parallelism = Parallelism(rows * columns, min(episodes, ENVS), *workers)
        with closing(HostRollout(env, carry, parallelism, 1)) as rollout:
            returns, _, metrics = rollout.play(act, pairs, keys_of_pairs(key, rows, columns).reshape(-1), episodes)
        both = np.stack([returns[..., mine].mean(-1), returns[..., ~mine].mean(-1)], -1)
        return both.reshape(rows, columns, episodes, 2), metrics.reshape(rows, columns, episodes, -1)

    return every_pair


# Entries and lines of the tables of cross-play.


def run_letters(count: int) -> list[str]:
    """Short names of the runs in tables."""
    return [chr(ord("A") + i) if count <= 26 else str(i + 1) for i in range(count)]


def every_entry(rows: Sequence[Sequence[np.ndarray]], runs: Sequence[int] = ()) -> Float[np.ndarray, "R R 3"]:
    """(mean, low, high) of each run on side 1 with each on side 2, from [S_a, S_b, episodes]; see
    :attr:`CrossPlay.runs`."""
    of = runs or range(len(rows))
    return np.array([[pairs_interval(x, of[a] == of[b]) for b, x in enumerate(row)] for a, row in enumerate(rows)])


def own_pairs(pairs: Float[np.ndarray, "S S episodes"]) -> tuple[float, float, float]:
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
        mean of the (r_i + c_i − m)                 a run with itself or a past self (``same``): seed i is row i and
                                                    column i

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


def pairs_difference(
    one: Float[np.ndarray, "A B"], other: Float[np.ndarray, "C D"], runs: tuple[tuple[str, str], tuple[str, str]]
) -> Estimate:
    """(difference, low, high): 95 % interval of the difference of the means over all pairs of seeds of two entries.

    Seed i of the run in a row changes the mean m of its entry by r_i − m in mean over resampled seeds, and seed j of
    the run in a column by c_j − m, as in :func:`pairs_interval`. A run of several of the four places, for example the
    column of both entries, has the sum of its seeds' changes, those in ``other`` with the opposite sign; these sums are
    independent samples.

    Args:
        one: each pair of seeds of an entry, NaN where unknown.
        other: those of the entry that is subtracted.
        runs: the names of the run in the row and of that in the column, of each entry.

    Returns:
        Without an interval, so NaN, if a run has one seed: how far it is from others is not known. Also if a pair is
        unknown; the means are then over the known pairs.
    """
    value = float(known_mean(one, axis=(0, 1)) - known_mean(other, axis=(0, 1)))
    if min(*one.shape, *other.shape) < 2 or not (np.isfinite(one).all() and np.isfinite(other).all()):
        return value, math.nan, math.nan
    changes: dict[str, np.ndarray] = {}
    for sign, pairs, places in ((1.0, one, runs[0]), (-1.0, other, runs[1])):
        for run, means in zip(places, (pairs.mean(1), pairs.mean(0)), strict=True):
            changes[run] = changes.get(run, np.zeros(len(means))) + sign * (means - pairs.mean())
    _, low, high = interval(*changes.values())
    return value, value + low, value + high


_UNKNOWN = (math.nan, math.nan, math.nan)


def cell(mean: float, low: float, high: float) -> str:
    """A mean with its interval as text."""
    digits = decimals(mean, low, high)
    text = f"{mean:.{digits}f}" + ("" if np.isnan(low) else f" ({low:.{digits}f} … {high:.{digits}f})")
    return text.replace("-", "−")


def score_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with ``names`` in the first column and right-aligned other columns."""
    first = max(map(len, names))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([f"{name:<{first}}", *(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))]).rstrip()
        for name, row in zip(names, rows, strict=True)
    ]


# Cross-play.


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
    greedy: bool = True
    """Whether it acts by the mode of its policies rather than by sampling, unless all are told how."""
    run: str = ""
    """Where it was trained: past selves have the seeds of their run. Empty: apart from all others."""


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
    greedy: tuple[bool, ...] = ()
    """For each run whether its actions were greedy rather than sampled."""
    won: int = 0
    """How the metrics ``won`` and ``lost``, which are those of the environment's own side 0, count for side 1: 1 if it
    is that side, −1 if it is all others, 0 if neither, so that they decide nothing."""
    runs: tuple[int, ...] = ()
    """For each run the number of the first one with the same seeds, as its past selves have; empty if all differ."""

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

        The side with the higher return wins, unless the environment has the metrics ``won`` and ``lost`` and side 1 is
        its own side 0 or all others; these metrics then determine the result.
        """
        decided = self.won and {"won", "lost"} <= set(self.metrics)

        def result(a: int, b: int) -> float:
            if decided:
                margin = self.won * (self.metrics["won"][a][b] - self.metrics["lost"][a][b])
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
        heads = ["Elo", *run_letters(len(self.names))]
        elos = [f"{points:+z.0f}".replace("-", "−") for points in (*ratings, advantage)]
        rows = [[elo, *(f"{x:.0%}" for x in row)] for elo, row in zip(elos, scores, strict=False)]
        names = [f"{x} {name}" for x, name in zip(heads[1:], self.names, strict=True)]
        return "\n".join(
            [
                "Share of episodes that the row's run wins on side 1 (a draw counts ½), and Elo ratings",
                "",
                *score_table(["side 1 \\ side 2", *names], [heads, *rows]),
                "",
                f"Side 1 has an advantage of {elos[-1]} Elo points.",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """Names and all numbers of the tables, and the means over episodes of each pair of seeds [S_a, S_b, 2]."""
        result = {
            "names": self.names,
            "algorithms": self.algorithms,
            "greedy": self.greedy,
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
        found = {name: every_entry(rows, self.runs) for name, rows in self.metrics.items()}
        ends = ("mean", "low", "high")
        return result | {"metrics": {name: {x: e[..., i] for i, x in enumerate(ends)} for name, e in found.items()}}

    def _entries(self) -> Float[np.ndarray, "R R 2 3"]:
        sides = [[[pairs[..., side] for pairs in row] for row in self.returns] for side in (0, 1)]
        return np.stack([every_entry(rows, self.runs) for rows in sides], 2)

    def __str__(self) -> str:
        """A table for each side and each metric: rows play side 1, columns side 2; runs are abbreviated to letters."""
        count = len(self.names)
        short = run_letters(count)
        modes = ["" if greedy else ", sampled" for greedy in self.greedy or [True] * count]
        runs = zip(short, self.names, self.algorithms, modes, strict=True)
        titles = [f"{x} {name} ({kind}{mode})" for x, name, kind, mode in runs]
        many = any(self.returns[a][a].shape[0] > 1 for a in range(count))
        heads = [*short, *["trained together"] * many]
        tables = {
            f"Return of side {side + 1}, mean over its agents ({', '.join(agents)})": [
                [pairs[..., side] for pairs in row] for row in self.returns
            ]
            for side, agents in enumerate(self.sides)
        }
        tables |= {f"{metric_words(name)}, mean over episodes": rows for name, rows in self.metrics.items()}
        lines = []
        for title, rows in tables.items():
            entries = every_entry(rows, self.runs)
            cells = [[cell(*entry) for entry in row] for row in entries]
            if many:
                cells = [[*row, cell(*own_pairs(rows[a][a]))] for a, row in enumerate(cells)]
            lines += [title, "", *score_table(["side 1 \\ side 2", *titles], [heads, *cells]), ""]
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
    chosen = items_of("side", chosen, (str, int))
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


def play_matches(
    env: AnyEnvironment,
    players: Sequence[Player],
    side: tuple[int, ...],
    key: Key[Array, ""],
    episodes: int,
    greedy: bool | None = None,
    workers: Workers = WORKERS,
) -> CrossPlay:
    """Play ``episodes`` whole episodes for each ordered pair of players and each pair of their seeds.

    ``side`` holds the agents of side 1. Each player acts in its mode, unless ``greedy`` says how all act. The same pair
    of seeds has the same random numbers in all entries.

    Raises:
        InputError: ``episodes`` is below 1, or the episodes do not fit in memory.
    """
    check_episodes(episodes)
    if isinstance(env, Environment):
        seeds = max(len(jax.tree.leaves(player.learner)[0]) for player in players)
        memory.check_episode_memory(env.spec, seeds, episodes, env.spec.horizon, "episodes")
    programs: dict[tuple, Callable] = {}  # players that share an Algorithm object and a mode share a compiled program
    players = [p if greedy is None else p._replace(greedy=greedy) for p in players]

    def entry(one: Player, two: Player) -> tuple[np.ndarray, np.ndarray]:
        modes = one.greedy, two.greedy
        kinds = id(one.algorithm), id(two.algorithm), *modes
        if kinds not in programs:
            programs[kinds] = make_matches(env, (one.algorithm, two.algorithm), side, episodes, modes, workers)
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
    modes, own = tuple(p.greedy for p in players), [team == 0 for team in env.spec.teams]
    chosen = [i in side for i in range(env.spec.num_agents)]
    won = 1 if chosen == own else -1 if chosen == [not mine for mine in own] else 0
    trained = [player.run or i for i, player in enumerate(players)]
    runs = tuple(trained.index(run) for run in trained)
    return CrossPlay(names, kinds, (agents[0], agents[1]), returns, metrics, modes, won, runs)
