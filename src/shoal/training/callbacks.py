"""Callbacks: user code that is called on the host during training (docs/hooks.md)."""

import difflib
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from shoal.deploy import Policies
from shoal.errors import CallbackError, InputError, shortened
from shoal.plots.texts import enumerated
from shoal.security import user_modules
from shoal.storage.log import or_none
from shoal.system import notices
from shoal.training import ending
from shoal.training.evaluation import Evaluation, Evaluator, learner_of
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
            metrics: the columns of the evaluation (:meth:`shoal.training.evaluation.Selection.evaluate`).

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
        """The current learner, leaves [S, ...] on the devices of training; with ``--hosts`` in host memory.

        It is valid inside the callback only, since the next update reuses its memory; ``jax.device_get`` copies it.

        Raises:
            InputError: the run has not started: there is none in ``on_start`` of a new run.
        """
        state = self._trainer.state
        if state is None:
            raise InputError("A new run has no policies in on_start; use on_checkpoint for the initial ones.")
        return self._trainer.on_host(state.learner)

    def policies(self, seed: int | None = None, *, greedy: bool = True) -> Policies:
        """A copy of the current policies of one of the run's seeds (None: the first), as :func:`shoal.load` gives.

        Where agents take turns, ``act`` needs the masks of legal actions, which say whose turn it is.

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
            raise InputError(f"The reason must be one line of at most {ending.MAX_REASON} characters.")
        self._reason = self._reason or reason

    def say(self, sentence: str) -> None:
        """Print a note above the progress line; hidden where progress is hidden."""
        self._trainer.progress.say(sentence)

    def warn(self, sentence: str) -> None:
        """Print a warning, also where progress is hidden."""
        self._trainer.progress.warn(sentence)

    def _policy(self) -> PyTree:
        return jax.tree.map(lambda x: x.copy(), jax.device_get(self.learner.policy))

    def _close(self) -> None:
        for evaluator in self._evaluators.values():
            evaluator.close()
        self._evaluators.clear()


# Calls callbacks, and handles their errors.


MAX_METRIC_NAME = 100
"""Largest number of characters of a metric's name."""

Given = Callback | Callable[[Context, Metrics], Mapping[str, Any] | None]
"""A callback, or a function that is its ``on_metrics``."""


class _Function(Callback):
    """A function (context, metrics) as a callback."""

    def __init__(self, function: Callable):
        self.on_metrics = function  # type: ignore[method-assign]
        self.name = getattr(function, "__qualname__", type(function).__name__)


def accepted(callbacks: Any) -> list[Callback]:
    """The callbacks in the order in which they are called; a warning names methods ``on_…`` that training never calls.

    Raises:
        InputError: one is neither a :class:`Callback` nor a function of two arguments, or has a method that is misspelt
            or takes other arguments.
    """
    if isinstance(callbacks, Callback | str | Mapping) or callable(callbacks) or not isinstance(callbacks, Iterable):
        raise InputError(f"callbacks must be a list, such as callbacks=[MyCallback()], not {shortened(callbacks)}.")
    made = [one if isinstance(one, Callback) else _of_function(one) for one in callbacks]
    known = [name for name in vars(Callback) if name.startswith("on_")]
    for one in made:
        others = [name for name in dir(one) if name.startswith("on_") and name not in known]
        for name in others:
            if near := difflib.get_close_matches(name, known, n=1, cutoff=0.8):
                raise InputError(f"{_name(one)}.{name} is never called; did you mean {near[0]!r}?")
        for name in known:
            _, *words = inspect.signature(getattr(Callback, name)).parameters
            if not user_modules.takes(getattr(one, name), len(words)):
                raise InputError(f"{_name(one)}.{name} must take (self, {', '.join(words)}).")
        if uncalled := [name for name in others if callable(getattr(type(one), name, None))]:
            notices.warn(
                f"Training never calls {enumerated(uncalled)} of the callback {_name(one)}: it calls "
                f"{enumerated(known)}."
            )
    return sorted(made, key=lambda one: one.after_others)


def _of_function(given: Any) -> Callback:
    if isinstance(given, type):
        raise InputError(f"The callback {given.__name__} is a class; pass an instance, {given.__name__}().")
    if not callable(given):
        raise InputError(f"A callback is a shoal.Callback or a function (context, metrics), not {shortened(given)}.")
    if not user_modules.takes(given, 2):
        raise InputError(f"The function {_name(_Function(given))} must take (context, metrics).")
    return _Function(given)


def _name(callback: Callback) -> str:
    return callback.name if isinstance(callback, _Function) else type(callback).__name__


class Hooks:
    """The callbacks of a run.

    An error of a callback is stored until :meth:`check`, so that the caller can first complete what it writes; the
    other callbacks are not called any more.
    """

    def __init__(self, callbacks: Sequence[Callback] = (), context: Context | None = None):
        """Prepare; ``context`` is needed if there are callbacks."""
        self.callbacks, self.context = callbacks, context
        self._per_row = any(isinstance(one, _Function) or _overridden(one, "on_metrics") for one in callbacks)
        self._fault: CallbackError | None = None
        self._begun, self.refused = list[Callback](), False
        """Callbacks whose ``on_start`` was called, and whether one of them raised :class:`InputError`."""
        self.started = not callbacks
        """Whether ``on_start`` of all callbacks has returned."""

    @property
    def reason(self) -> str:
        """The reason that a callback gave to stop the run; empty if none did."""
        return self.context._reason if self.context else ""

    def call_size(self, n: int, left_in_row: int) -> int:
        """The number of updates of the next call, at most ``n``.

        Calls end with rows of the log, so that callbacks receive the policies of the row. A run that is to stop makes
        one more update.
        """
        if self.reason:
            return 1
        return max(1, min(n, left_in_row)) if self._per_row else n

    def start(self) -> None:
        """Call ``on_start``.

        Raises:
            InputError: a callback raised it.
            CallbackError: a callback raised something else.
        """
        for callback in self.callbacks:
            self._begun.append(callback)
            self._call(callback, "on_start")
            if self._fault is not None and isinstance(self._fault.__cause__, InputError):
                self._begun.pop()
                self.refused = True
                raise self._fault.__cause__
            self.check()
        self.started = True

    def complete(
        self, row: Mapping[str, Any], evaluated: Mapping[str, Any], evaluate: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """A row of the log with the columns that callbacks add.

        Args:
            row: the means of the updates, with lists over seeds.
            evaluated: the columns of an evaluation; empty if there was none.
            evaluate: evaluates the policies; called if a callback stops the run here and ``evaluated`` is empty.
        """
        found = {**row, **evaluated}
        found = self._stage("on_evaluation", evaluated, found) if evaluated else found
        found = self._stage("on_metrics", found, found)
        if self.reason and not evaluated and (late := evaluate()):
            found = self._stage("on_evaluation", late, {**found, **late})
        return found

    def _stage(self, method: str, given: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
        """``row`` with the columns that callbacks add to what they are ``given``."""
        added: dict[str, Any] = {}
        for callback in self.callbacks:
            found = self._call(callback, method, _arrays({**given, **added}))
            added |= self._checked(callback, method, found, {**row, **added})
        return {**row, **added}

    def checkpoint(self, folder: Path) -> None:
        """Call ``on_checkpoint``."""
        for callback in self.callbacks:
            self._call(callback, "on_checkpoint", folder)

    def check(self) -> None:
        """Raise the error of a callback, if there is one.

        Raises:
            CallbackError: with the callback's exception as its cause.
        """
        if self._fault is not None:
            raise self._fault

    def end(self, status: Status, error: BaseException | None = None) -> None:
        """Call ``on_end`` of all callbacks that were started, once; their exceptions are printed."""
        while self._begun:
            assert self.context is not None
            self.context.status, self.context.error = status, error
            self._fault = None
            try:
                self._call(self._begun.pop(0), "on_end")
            except KeyboardInterrupt:
                self.end(status, error)  # of the others
                raise
            if self._fault is not None:
                notices.warn(f"{self._fault.trace}{self._fault}")

    def _call(self, callback: Callback, method: str, *given: Any) -> Any:
        if self._fault is not None:
            return None
        try:
            return getattr(callback, method)(self.context, *given)
        except (Exception, SystemExit) as error:
            what = f"raised {type(error).__name__}{f': {error}' if str(error) else ''}"
            self._fail(callback, method, what, "".join(traceback.format_exception(error)))
            self._fault.__cause__ = error  # type: ignore[union-attr]
            return None

    def _fail(self, callback: Callback, method: str, what: str, trace: str = "") -> None:
        assert self.context is not None
        where = f"at step {self.context.step:,}"
        self._fault = CallbackError(f"The callback {_name(callback)} {what.rstrip('.')}, in {method} {where}.", trace)

    def _checked(self, callback: Callback, method: str, found: Any, taken: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics that a callback returned, as columns of the log."""
        if found is None or self._fault is not None:
            return {}
        if not isinstance(found, Mapping):
            self._fail(callback, method, f"returned {shortened(found)}, which is neither a dict of metrics nor None")
            return {}
        columns: dict[str, Any] = {}
        for name, value in found.items():
            column = self._column(value)
            if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MAX_METRIC_NAME:
                self._fail(callback, method, f"returned a metric with the name {shortened(name)}")
            elif name in taken:
                self._fail(callback, method, f"returned {name!r}, which is already a column of the log")
            elif column is None:
                what = "which is neither a real number that fits a float nor one per seed"
                self._fail(callback, method, f"returned {shortened(value)} as {name!r}, {what}")
            else:
                columns[name] = column
        return columns if self._fault is None else {}

    def _column(self, value: Any) -> Any:
        """A float or a list with one number or None per seed; None if ``value`` cannot be either."""
        assert self.context is not None
        try:
            given = np.asarray(value)
            # NumPy would drop imaginary parts, and read numbers in texts and dates.
            if given.dtype.kind in "cSUMm" or any(isinstance(x, str | bytes) for x in given.flat):
                return None
            numbers = given.astype(np.float64)
        except (OverflowError, TypeError, ValueError):
            return None
        if value is None or numbers.shape not in ((), (self.context.settings.seeds,)):
            return None
        return or_none(numbers) if numbers.ndim else float(numbers)


def _overridden(callback: Callback, method: str) -> bool:
    found = getattr(callback, method)  # of the class or of the instance
    return getattr(found, "__func__", found) is not getattr(Callback, method)


def _arrays(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose lists are arrays that cannot be written to."""
    found = {}
    for name, value in row.items():
        if isinstance(value, list):
            value = np.array([np.nan if x is None else x for x in value], np.float64)
            value.flags.writeable = False
        found[name] = value
    return found


@contextmanager
def with_callbacks(run: Any, trainer: Any, callbacks: Sequence[Callback]) -> Iterator[None]:
    """Train ``run`` inside the block with these callbacks (of :func:`accepted`).

    Raises:
        InputError: ``on_start`` of a callback raised it.
        CallbackError: a callback raised something else, or returned something that is not a metric.
    """
    if not callbacks:
        yield
        return
    context = Context(run, trainer)
    hooks = trainer.hooks = Hooks(callbacks, context)
    try:
        hooks.start()
        yield
        hooks.end("finished" if run.finished else "interrupted")
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        hooks.end("interrupted" if stopped else "failed", None if stopped else error)
        raise
    finally:
        context._close()
        trainer.close()
