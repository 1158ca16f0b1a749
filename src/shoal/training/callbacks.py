"""Callbacks: user code that is called on the host during training (docs/hooks.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from shoal.deploy import Policies
from shoal.errors import InputError
from shoal.training import ending
from shoal.training.evaluation import Evaluation, Evaluator
from shoal.training.selection import learner_of
from shoal.training.settings import Settings
from shoal.types import Algorithm, EnvSpec, Learner, PyTree, Seconds

Status = Literal["training", "finished", "interrupted", "failed"]
Metrics = Mapping[str, Any]
"""A row of the log: a number, or float64 [S] with one value per seed, NaN where it is unknown."""


class Callback:
    """Methods that are called during training; override those that you need. By default they do nothing.

    Methods are called in the process of training, between calls of compiled programs. An exception stops training: the
    run is saved first, and :class:`shoal.errors.CallbackError` names the callback.
    """

    after_others: bool = False
    """Whether it is called after the callbacks with ``False``, so that it receives the metrics that they add."""

    def on_start(self, context: "Context") -> None:
        """Called once, before compilation; in a resumed run, ``context.step`` is the number of steps so far.

        An :class:`shoal.errors.InputError` is raised unchanged, for an invalid request of the user.
        """

    def on_metrics(self, context: "Context", metrics: Metrics) -> Mapping[str, Any] | None:
        """Called for each row of the log (``rows``, by default 500 in a run) before it is written.

        Args:
            context: the run. Its policies are those after the row's last update.
            metrics: the row, means over the updates since the previous one; with the columns ``greedy/…`` if the
                policies were evaluated here.

        Returns:
            Further metrics, which are written to the log and to TensorBoard: numbers, or arrays [S] with one value per
            seed. None for none.
        """

    def on_evaluation(self, context: "Context", metrics: Metrics) -> Mapping[str, Any] | None:
        """Called after each evaluation during training (``eval_every``), before :meth:`on_metrics` of the same row.

        Args:
            context: the run.
            metrics: the columns of the evaluation: ``greedy/return``, ``greedy/METRIC`` and ``greedy/seconds``.

        Returns:
            Further metrics, as in :meth:`on_metrics`.
        """

    def on_checkpoint(self, context: "Context", folder: Path) -> None:
        """Called after each checkpoint, also the first one, before any update.

        Args:
            context: the run.
            folder: the run's folder ``checkpoints``; the newest checkpoint is the saved one; older ones are removed.
        """

    def on_end(self, context: "Context") -> None:
        """Called once after the final evaluation, also if training failed or was interrupted; only if :meth:`on_start`
        was called.

        An exception is printed and otherwise ignored.
        """


class Context:
    """The state of a run during training, for callbacks."""

    def __init__(self, run: Any, trainer: Any):
        self.run = run
        """The :class:`shoal.Run`. It evaluates and loads the saved policies, which may be ``checkpoint_seconds`` old;
        for the current ones, see :meth:`evaluate` and :meth:`policies`. ``evaluation`` is the final evaluation, set
        before :meth:`Callback.on_end`.
        """
        self.status: Status = "training"
        """In :meth:`Callback.on_end`: ``finished`` (also if the run ended early, see :attr:`ended`), ``interrupted``
        (by a signal; the run is saved) or ``failed``."""
        self.error: BaseException | None = None
        """The exception with which training failed."""
        self._trainer = trainer
        self._evaluators: dict[tuple[int, bool], Evaluator] = {}
        self._reason = ""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.run.folder

    @property
    def spec(self) -> EnvSpec:
        """The spec of the wrapped environment."""
        return self._trainer.env.spec

    @property
    def settings(self) -> Settings:
        """The settings of the run."""
        return self._trainer.settings

    @property
    def config(self) -> Any:
        """The ``Config`` of the algorithm."""
        return self.run.config

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in the order of the axis S."""
        return tuple(range(self.settings.seed, self.settings.seed + self.settings.seeds))

    @property
    def step(self) -> int:
        """Environment steps per seed so far."""
        return self._trainer.step

    @property
    def update(self) -> int:
        """Updates so far."""
        return self._trainer.update

    @property
    def last_step(self) -> int:
        """Environment steps per seed after the last update, if nothing ends the run before."""
        return self.settings.last_step

    @property
    def seconds(self) -> Seconds:
        """Wall time of training so far, the log's column: without compilation, evaluations and callbacks."""
        return self._trainer.at.seconds

    @property
    def ended(self) -> str:
        """Why training ended before its last step, for example by :meth:`stop`; empty if it did not."""
        return ending.reason(self.settings, self._trainer.at)

    @property
    def algorithm(self) -> Algorithm:
        """The functions of the algorithm, for acting with :attr:`learner`."""
        return self._trainer.algorithm

    @property
    def learner(self) -> Learner:
        """The current learner, leaves [S, ...] on the devices of training.

        It is valid inside the callback only, since the next update reuses its memory; ``jax.device_get`` copies it.

        Raises:
            InputError: the run has not started: there is none in ``on_start`` of a new run.
        """
        state = self._trainer.state
        if state is None:
            raise InputError("A new run has no policies in on_start; use on_checkpoint for the initial ones.")
        return state.learner

    def policies(self, seed: int | None = None, *, greedy: bool = True) -> Policies:
        """A copy of the current policies of one of the run's seeds (None: the first), as :func:`shoal.load` gives.

        Raises:
            InputError: the run has no such seed, or see :attr:`learner`.
        """
        seed = self.settings.seed if seed is None else seed
        if seed not in self.seeds:
            raise InputError(f"The run has no seed {seed}; its seeds are {self.seeds[0]} to {self.seeds[-1]}.")
        row = self.seeds.index(seed)
        one = jax.tree.map(lambda x: jnp.asarray(x[row]), self._policy())
        title = f"{self.run.algorithm} in {self.run.environment}, seed {seed}, step {self.step}"
        wrapping = self.settings.wrapping
        return Policies(self.run.spec, self.algorithm, one, greedy=greedy, wrapping=wrapping, title=title)

    def evaluate(self, episodes: int = 32, *, greedy: bool = True, seed: int = 0) -> Evaluation:
        """Play whole episodes with the current policy of each seed; compiled once for each number of episodes.

        Args:
            episodes: per seed.
            greedy: act by the mode of the policy rather than by sampling.
            seed: of the episodes. Training draws from other keys and is not affected.

        Raises:
            InputError: ``episodes`` is below 1 or the episodes do not fit in memory; or see :attr:`learner`.
            GameError: a host environment raised.
        """
        policy = self._policy()
        if (episodes, greedy) not in self._evaluators:
            made = Evaluator(self._trainer.env, self.algorithm, episodes, greedy, self.run._workers())
            self._evaluators[episodes, greedy] = made
        return self._evaluators[episodes, greedy](learner_of(policy), jax.random.key(seed))

    def stop(self, reason: str) -> None:
        """End the run as after its last step: with an evaluation, a checkpoint and the final evaluation.

        If called in ``on_metrics`` or ``on_evaluation``, the run ends immediately, otherwise after the next update. The
        run counts as finished; ``resume(folder, continue_stopped=True)`` continues it. In :meth:`Callback.on_end` it
        has no effect.

        Args:
            reason: the reason, for the summary and :attr:`shoal.Run.ended`: one line of at most 200 characters.

        Raises:
            InputError: ``reason`` is not such a line.
        """
        if not ending.is_reason(reason):
            raise InputError(f"The reason must be one line of at most {ending.LONGEST} characters.")
        self._reason = self._reason or reason

    def say(self, sentence: str) -> None:
        """Print a note above the progress line; hidden where progress is hidden."""
        self._trainer.progress.say(sentence)

    def warn(self, sentence: str) -> None:
        """Print a warning, also where progress is hidden."""
        self._trainer.progress.warn(sentence)

    def _policy(self) -> PyTree:
        return jax.tree.map(np.array, jax.device_get(self.learner.policy))

    def _close(self) -> None:
        for evaluator in self._evaluators.values():
            evaluator.close()
        self._evaluators.clear()
