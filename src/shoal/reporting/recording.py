"""Which seeds of a run are played, and their recorded episodes."""

from collections.abc import Iterable, Mapping, Sequence

import jax
import numpy as np

from shoal.plots.texts import number_text
from shoal.runs.load import learner_with_critic, seed_index
from shoal.runs.run import Run
from shoal.storage import evaluation_file
from shoal.training.episodes import SHOWN_KEY, RecordedEpisode, record_each

MOST_SEEDS = 3
"""Largest number of seeds of a run that are chosen."""

Recorded = Mapping[int, Sequence[RecordedEpisode]]
"""Recorded episodes of a run by seed."""


def recorded_episodes(
    run: Run, seeds: Iterable[int], episodes: int = 2, greedy: bool = True
) -> dict[int, list[RecordedEpisode]]:
    """The episodes that ``Run.replay`` shows of each seed, with the policy's decisions; compiled once for all seeds.

    Args:
        run: whose last policies play.
        seeds: seeds of the run; with none, nothing is compiled.
        episodes: number of episodes per seed.
        greedy: act by the mode of the policy rather than by sampling.

    Raises:
        InputError: the run does not have a seed, its environment cannot be built, or ``episodes`` is below 1.
        CheckpointError: the run has no intact policy.
    """
    seeds = list(dict.fromkeys(int(seed) for seed in seeds))
    rows = [seed_index(run.settings, seed) for seed in seeds]
    if not rows:
        return {}
    env = run.env  # first, since it raises an error for an untrusted folder's own environment
    algorithm = run._acting()
    learner = learner_with_critic(run.folder, algorithm, run.settings.seeds, run._identity())
    each = [jax.tree.map(lambda x, row=row: x[row], learner) for row in rows]
    found = record_each(env, algorithm, each, jax.random.key(SHOWN_KEY), episodes, greedy, decisions=True)
    return dict(zip(seeds, found, strict=True))


def chosen_seeds(run: Run) -> list[tuple[int, str]]:
    """The seeds that a report plays, each with the reason: the best, the median and the worst seed of the final
    evaluation, or the first seeds if there is none."""
    count, first = run.settings.seeds, run.settings.seed
    scores = (evaluation_file.read(run.folder) or {}).get("per_seed")
    try:
        scores = np.array(scores, np.float64)
    except (TypeError, ValueError):
        scores = np.zeros(0)
    if count == 1 or scores.shape != (count,) or not np.isfinite(scores).all():
        return [(first + i, "") for i in range(min(count, MOST_SEEDS))]
    order = np.argsort(-scores, kind="stable").tolist()
    places = {0: "best", count // 2: "median", count - 1: "worst"}
    if count == 2:
        places = {0: "best", 1: "worst"}
    return [
        (first + order[i], f"{why} of {count}, score {number_text(float(scores[order[i]]))}")
        for i, why in places.items()
    ]
