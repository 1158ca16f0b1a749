"""Greedy evaluations during training, and the selection of the best policy of each seed."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.rollouts.host import Workers
from shoal.storage.checkpoint import Checkpoints
from shoal.training.ending import Standing
from shoal.training.evaluation import Evaluator
from shoal.training.metric_sums import or_none
from shoal.training.settings import SHARE, Settings
from shoal.types import Algorithm, AnyEnvironment, Learner, PyTree, Seconds

NOTICED: Seconds = 5.0
"""Without a warning, evaluations may take this long in total."""

FOLDER = "best"
"""The folder of a run with the best policies; the folder ``policy`` has the last ones."""


class Best(NamedTuple):
    """The policies with the highest score of each seed."""

    policy: PyTree
    """Leaves [S, ...]."""
    score: np.ndarray
    """[S] mean score of the evaluation that selected it: the highest of several, so biased upwards."""
    step: np.ndarray
    """[S] environment steps per seed after which it was evaluated."""


class Selection:
    """Evaluates every ``Settings.eval_every`` steps and, called by the trainer, after the last update."""

    def __init__(
        self,
        evaluator: Evaluator,
        settings: Settings,
        folder: Path,
        run: Mapping[str, Any] | None = None,
        guard: Callable[[], None] = lambda: None,
    ):
        """Prepare; nothing is compiled yet.

        Args:
            evaluator: plays the episodes.
            settings: the run's; ``eval_every`` is not None.
            folder: the run's folder.
            run: the run's configuration, which saved policies record.
            guard: called before every write; raises if the folder is no longer the run's.
        """
        self.evaluator, self.settings = evaluator, settings
        self.every = settings.updates_between
        self.best: Best | None = None
        self.seconds, self.prepared, self.told = 0.0, False, False
        """Time of the evaluations of this process except the first; whether the first was made; whether the warning on
        their cost was printed."""
        self.begun: Seconds = 0.0
        """Seconds of training in earlier processes."""
        # Saved before the checkpoint of the same update: one more, so that each checkpoint has its best policies.
        self.store = Checkpoints(folder / FOLDER, settings.keep + 1, run, guard)

    def until_next(self, update: int) -> int:
        """Number of updates from ``update`` to the next evaluation."""
        return self.every - update % self.every

    def due(self, update: int) -> bool:
        """Whether the policies are evaluated after this update, if it is not the last."""
        return update % self.every == 0

    def evaluate(self, policy: PyTree, update: int) -> dict[str, Any]:
        """Evaluate ``policy`` [S, ...] after ``update`` updates and keep it where it is a seed's best.

        Returns:
            The log's columns ``greedy/return``, ``greedy/METRIC`` (for each seed; None where unknown) and
            ``greedy/seconds``, the wall time of this evaluation. On the device it is without compilation; the first one
            of a host environment has the start of its workers.
        """
        policy = jax.device_get(policy)
        self.evaluator.prepare(learner_of(policy))
        began = time.monotonic()
        found = self.evaluator(learner_of(policy), jax.random.fold_in(jax.random.key(self.settings.seed), update))
        self._select(policy, found.per_seed, update * self.settings.steps_per_update)
        metrics = {f"greedy/{name}": or_none(found.metric(name).per_seed) for name in found.metrics}
        spent = time.monotonic() - began
        self.seconds, self.prepared = self.seconds + spent * self.prepared, True
        return {"greedy/return": or_none(found.per_seed)} | metrics | {"greedy/seconds": round(spent, 3)}

    def costs(self, training: Seconds) -> str:
        """One sentence if the evaluations so far took much of the time, once; otherwise empty.

        Args:
            training: seconds of training of all parts of the run.
        """
        share = self.seconds / max(training - self.begun + self.seconds, 1e-9)
        if self.told or self.seconds < NOTICED or share <= SHARE:
            return ""
        self.told = True
        return (
            f"Evaluations take {share:.0%} of the time of this run: {self.evaluator.episodes} episodes per seed "
            f"every {self.every * self.settings.steps_per_update:,} steps. To reduce this, raise eval_every or lower "
            f"curve_episodes."
        )

    def _select(self, policy: PyTree, score: np.ndarray, step: int) -> None:
        if self.best is None:
            self.best = Best(policy, score, np.full(len(score), step))
            return
        higher = score > self.best.score  # of equal scores, the earlier policy is kept

        def chosen(new: np.ndarray, old: np.ndarray) -> np.ndarray:
            return np.where(higher.reshape(-1, *[1] * (np.ndim(new) - 1)), new, old)

        kept = jax.tree.map(chosen, policy, self.best.policy)
        self.best = Best(kept, chosen(score, self.best.score), np.where(higher, step, self.best.step))

    def save(self, update: int) -> None:
        """Save the best policies, in addition to the checkpoint of the same update."""
        if self.best is not None:
            meta = {"score": self.best.score.tolist(), "step": self.best.step.tolist()}
            self.store.save(update, self.best.policy, meta)

    def restore(self, at: Standing, policy: PyTree) -> None:
        """Restore the best policies at a checkpoint; ``policy`` has the shapes."""
        self.begun = at.seconds
        self.store.drop_after(at.update)
        if self.store.latest() is not None:
            self.best = restored(self.store, policy)


def selection_of(
    env: AnyEnvironment,
    algorithm: Algorithm,
    settings: Settings,
    folder: Path,
    run: Mapping[str, Any] | None,
    guard: Callable[[], None],
) -> Selection | None:
    """The evaluations during training by ``settings``, or None. Other arguments are those of :class:`Selection`."""
    if settings.eval_every is None:
        return None
    workers = Workers(settings.num_workers, settings.worker_timeout)
    evaluator = Evaluator(env, algorithm, settings.episodes_between(env), True, workers)
    return Selection(evaluator, settings, folder, run, guard)


def restored(store: Checkpoints, policy: PyTree) -> Best:
    """The newest intact best policies; ``policy`` has the shapes.

    Raises:
        CheckpointError: there is none.
    """
    found, meta, _ = store.restore(policy)
    return Best(jax.device_get(found), np.array(meta["score"], np.float64), np.array(meta["step"]))


def learner_of(policy: PyTree) -> Learner:
    """A learner that can only act, from policies [S, ...]."""
    return Learner(policy, (), (), (), jnp.zeros(len(jax.tree.leaves(policy)[0]), jnp.int32))
