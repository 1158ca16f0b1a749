"""Played episodes for the page."""

from collections.abc import Sequence
from typing import Any

from shoal.run import Run


def replays(
    runs: Sequence[tuple[str, Run]],
    *,
    episodes: int = 2,
    seeds: Sequence[int] | None = None,
    budget: int = 3_000_000,
    greedy: bool = True,
) -> dict[str, Any] | None:
    """Episodes of one or several labelled runs as a JSON value; None if there is nothing to show.

    Args:
        runs: labels and runs.
        episodes: of each seed.
        seeds: of the runs; None for a choice.
        budget: most bytes of the JSON.
        greedy: act by the mode of the policy rather than by sampling.
    """
    del runs, episodes, seeds, budget, greedy
    return None
