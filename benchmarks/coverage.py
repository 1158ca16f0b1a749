"""How often intervals of :mod:`shoal.statistics` hold the true value, in simulations.

    python benchmarks/coverage.py

prints the tables of the docstrings of ``estimate`` and ``improvement``: the share of simulated studies whose 95 %
interval holds the true value. The true value of each statistic is that of 100,000 runs a task.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from shoal.statistics import estimate, improvement, probability_of_improvement
from shoal.statistics.aggregates import reduction

RUNS = (3, 5, 10)
TASKS = (1, 3, 10)
MANY = 100_000
RESAMPLES = 2000
"""Of each interval; fewer than by default, which saves time and makes intervals of few runs slightly narrower."""
Draw = Callable[[np.random.Generator, int, int], np.ndarray]
"""(generator, task, runs) -> scores."""


def normal(rng: np.random.Generator, task: int, runs: int) -> np.ndarray:
    """Tasks half a standard deviation apart."""
    return rng.normal(task / 2, 1.0, runs)


def exponential(rng: np.random.Generator, task: int, runs: int) -> np.ndarray:
    """Skewed; every other task has twice the scale."""
    return (1 + task % 2) * rng.exponential(size=runs)


def failing(rng: np.random.Generator, task: int, runs: int) -> np.ndarray:
    """2 runs in 10 score 0, the others about 1."""
    return np.where(rng.random(runs) < 0.2, 0.0, rng.normal(1 + 0.1 * (task % 3), 0.1, runs))


KINDS: dict[str, Draw] = {"normal": normal, "exponential": exponential, "2 in 10 fail": failing}
SHIFTS = (0.0, 1.0, 2.5)


def shifted(shift: float, rng: np.random.Generator, task: int, runs: int) -> np.ndarray:
    """Normal scores, ``shift`` standard deviations above the other algorithm's."""
    return rng.normal(shift, 1.0, runs)


def held(draw: Draw, statistic: str, tasks: int, runs: int, tries: int, rng: np.random.Generator) -> float:
    """The share of simulated studies whose interval of an aggregate holds the true value."""
    true = float(reduction(statistic)(*(draw(rng, task, MANY) for task in range(tasks))))
    found = [
        estimate([draw(rng, task, runs) for task in range(tasks)], statistic, resamples=RESAMPLES) for _ in range(tries)
    ]
    return float(np.mean([low <= true <= high for _, low, high in found]))


def held_improvement(shift: float, tasks: int, runs: int, tries: int, rng: np.random.Generator) -> float:
    """The share of simulated comparisons whose interval of the probability of improvement holds the true value."""
    draw = partial(shifted, shift)
    true = probability_of_improvement(*(one(rng, 0, 5000)[:, None] for one in (draw, partial(shifted, 0.0))))
    true = 0.5 if shift == 0 else true
    found = []
    for _ in range(tries):
        x, y = ([one(rng, t, runs) for t in range(tasks)] for one in (draw, partial(shifted, 0.0)))
        found.append(improvement(x, y, resamples=RESAMPLES))
    return float(np.mean([low <= true <= high for _, low, high in found]))


def line(name: str, shares: Sequence[float]) -> str:
    """A row of a table."""
    cells = [f"{100 * share:.0f} %" for share in shares]
    groups = [cells[i : i + len(RUNS)] for i in range(0, len(cells), len(RUNS))]
    return f"{name:<24}" + "   ".join(" ".join(f"{cell:>5}" for cell in group) for group in groups)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=500, help="simulated studies for each number")
    tries = parser.parse_args().tries
    started, rng = time.perf_counter(), np.random.default_rng(0)
    every = [(tasks, runs) for tasks in TASKS for runs in RUNS]
    print(f"{'tasks':<24}" + "   ".join(f"{tasks:<17}" for tasks in TASKS).rstrip())
    print(f"{'runs':<24}" + "   ".join(" ".join(f"{runs:>5}" for runs in RUNS) for _ in TASKS))
    for statistic in ("iqm", "median", "mean"):
        for kind, draw in KINDS.items():
            shares = [held(draw, statistic, tasks, runs, tries, rng) for tasks, runs in every]
            print(line(f"{statistic}, {kind}", shares), flush=True)
    print("\nprobability of improvement, normal scores")
    rng = np.random.default_rng(0)
    for shift in SHIFTS:
        shares = [held_improvement(shift, tasks, runs, tries, rng) for tasks, runs in every]
        print(line(f"{shift} standard deviations", shares), flush=True)
    print(f"{tries} tries each, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
