"""The training loop: call the compiled program, log its metrics, and save checkpoints."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from shoal.environments.spec_rules import COLUMNS
from shoal.environments.starts import with_starts
from shoal.errors import CallbackError, CheckpointError, GameError, InputError, NonFiniteError
from shoal.game import HostEnvironment
from shoal.spec import EnvSpec
from shoal.storage.checkpoint import BuffersError, Checkpoints, to_host
from shoal.storage.log import LOG_FILE, Log, or_none, read_log
from shoal.storage.step_folders import committed_steps
from shoal.system.shipped import page
from shoal.training import checks, ending, evaluation, feed, hosted, hosts
from shoal.training.callbacks import Hooks
from shoal.training.ending import Standing
from shoal.training.hosts import Order
from shoal.training.program import Program, TrainState, compile_program, placed_state
from shoal.training.progress import Progress
from shoal.training.settings import Settings
from shoal.training.sharding import Layout, unequal_copies
from shoal.training.stopping import Stop, Stopped, ready
from shoal.types import Algorithm, AnyEnvironment, EpisodeStats, Learner, PyTree, Seconds

# When checkpoints are saved during training.


SAVING = 20.0
"""The time between two checkpoints is at least this multiple of the time to write one."""


class Pace:
    """Wall time between checkpoints: ``pause`` seconds, and more where writing one is slow (a large replay buffer).

    With ``pause`` 0 every call is followed by a checkpoint.
    """

    def __init__(self, pause: Seconds):
        self._least = self._pause = pause
        self._saved = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self._saved >= self._pause

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure the time that the block takes to write a checkpoint."""
        began = time.monotonic()
        yield
        self._saved = time.monotonic()
        if self._least > 0:
            self._pause = max(self._least, SAVING * (self._saved - began))


# The trainer.


CALL_SECONDS = 1.0
"""Target duration of one call: long enough to hide its overhead, short enough for progress and Ctrl-C."""

CAPACITY = 256
"""Largest number of updates in one call."""

HEARD = 16
"""Number of episodes after which a metric that none of them had is named."""


class Trainer:
    """Trains one algorithm in one environment, and writes to a run folder."""

    def __init__(
        self,
        env: AnyEnvironment,
        algorithm: Algorithm,
        settings: Settings,
        layout: Layout,
        folder: Path,
        shown: bool,
        remake: Callable[[], Algorithm] | None = None,
        run: Mapping[str, Any] | None = None,
        guard: Callable[[], None] = lambda: None,
        key: str = "",
    ):
        """Prepare a run; nothing is compiled or written yet.

        Args:
            env: the environment.
            algorithm: the algorithm.
            settings: the run's settings.
            layout: the layout over devices.
            folder: the run's folder.
            shown: whether progress is shown.
            remake: builds the algorithm again in the process of a Ray actor.
            run: the run's configuration, which checkpoints record.
            guard: called before every write; raises if the folder is no longer the run's.
            key: of the compiled program (:func:`shoal.training.program_cache.key_of`); empty if it is not stored.
        """
        self.env, self.algorithm, self.settings, self.layout, self.guard = env, algorithm, settings, layout, guard
        self._key = key
        self.per_row = max(1, settings.num_updates // settings.rows)
        self._filling = feed.updates_before_learning(algorithm.replay, settings.num_envs, settings.rollout_length)
        """Updates that only fill replay buffers, which takes less time than to learn from them."""
        self.progress = Progress(settings.num_updates * settings.steps_per_update, settings.seeds, shown)
        self.program: Program = self._program(remake or (lambda: algorithm))
        self.crew = hosts.crew()
        self.notes, self.warnings = checks.before(env.spec, algorithm, self.program, settings, layout)
        """Printed when the run starts."""
        self.checkpoints = Checkpoints(folder / "checkpoints", settings.keep, run, guard)
        self.policies = Checkpoints(folder / "policy", 2, run, guard)
        self.log = Log(folder, settings.tensorboard, self.progress.warn, guard)
        self.selection = evaluation.selection_of(env, algorithm, settings, folder, run, guard)
        self.state: TrainState | None = None
        self.at, self.hooks, self._saved, self._unequal = Standing(0), Hooks(), -1, False
        self._restored = False
        """Whether a checkpoint was restored, and the folder is not yet as the checkpoint requires."""
        self._row: dict[str, Any] = {}
        self._episodes, self._known = 0, np.zeros(len(env.spec.metrics))
        """Episodes so far in this process, and how many of them had each metric; −1 once that has been judged."""
        self.stop = Stop(self.progress.warn, lambda: self.update > 0)
        if self.crew and self.crew.leads:
            self.crew.heard = lambda number: None if self.stop.asked else self.stop.ask(number)
            self.program = led(self.program, self.crew)

    def _program(self, remake: Callable[[], Algorithm]) -> Program:
        env = with_starts(self.env, self.settings.num_starts)
        if isinstance(env, HostEnvironment):
            warn = self.progress.warn
            return hosted.compile_host_program(env, self.algorithm, self.layout, self.settings, warn, remake)
        capacity = min(CAPACITY, max(self.settings.num_updates, self.settings.schedule_updates))
        return compile_program(env, self.algorithm, self.layout, self.settings.rollout_length, capacity, self._key)

    def close(self) -> None:
        """Stop worker processes and actors, if any."""
        self.program.close()
        if self.selection:
            self.selection.evaluator.close()

    def restore(self, continue_stopped: bool = False) -> None:
        """Restore the newest intact checkpoint. Nothing is written before :meth:`run`.

        Log rows after this checkpoint remain until the next row or checkpoint is written, and policies that are newer
        until the next checkpoint, unless the run ends here.

        A run that was killed before its first checkpoint starts from the beginning. With ``continue_stopped`` it
        continues where a callback stopped it.

        Raises:
            CheckpointError: none is intact although the run was trained, or it has another configuration.
            InputError: the run was trained on a different mesh of devices or by other Ray actors, or has already passed
                ``steps``.
        """
        if self.checkpoints.latest() is None:
            self.check_untrained()
            self.progress.warn("There is no checkpoint yet: the run starts from the beginning.")
            return
        try:
            state, meta, update = self.checkpoints.restore(self.program.template(), warn=self.progress.warn)
        except BuffersError as error:
            if not isinstance(self.env, HostEnvironment):
                raise
            raise InputError(
                "With Ray each actor has a replay buffer of its own, and those of this run do not fit: it continues "
                "only with the --workers, and with Ray the --num-workers, that it was trained with."
            ) from error
        if self.settings.workers == "ray" and (before := math.prod(meta["shards"].values())) > 1:
            raise InputError(
                f"This run was trained on {before} devices, and with Ray one device trains; it continues without "
                "--workers ray."
            )
        self.layout.check_same(meta["shards"])
        if update > self.settings.num_updates:
            done, end = update * self.settings.steps_per_update, self.settings.steps
            raise InputError(f"This run has already done {done} steps, so it cannot end at {end:g}.")
        self.state = placed_state(state, self.layout)
        if self.crew:
            self.crew.order(Order.RESTORE, update)
        self.at, self._saved = ending.standing(update, meta), update
        self.at = self.at._replace(stopped="") if continue_stopped else self.at
        self._row, self._restored = meta["row"], True
        if self.checkpoints.recorded(update, "spec", "metrics") not in (None, list(self.env.spec.metrics)):
            for name in ("metrics", "known"):  # sums of other metrics than those of now
                self._row.pop(name, None)
        kept = self.checkpoints.file(LOG_FILE, update) or b""
        self.log.resume(self.step, kept, meta.get("rows", 0))
        if self.selection:
            self.selection.restore(self.at, self.state.learner.policy, self.progress.warn)

    def settle(self) -> None:
        """Complete what a crash may have left undone after the checkpoint that was restored, if one was.

        What is newer is removed only if the run ends here: nothing is saved then that would replace it. Otherwise
        newer checkpoints, which are damaged, are set aside, since readers would take what is intact of them.

        Raises:
            WriteError, CheckpointError: the disk is full.
        """
        if not self._restored:
            return
        if self.ended:
            for store in (self.checkpoints, self.policies, *([self.selection.store] if self.selection else [])):
                store.drop_after(self.update)
            self.log.repair()
        else:
            self.checkpoints.set_aside_after(self.update)
        if (self.policies.latest() or 0) <= self.update:
            self._save_policy()  # the crash may have come between the checkpoint and its policy
        self._restored = False

    def check_untrained(self) -> None:
        """Check that a run without a checkpoint was never trained: training would begin again and remove its policies.

        Raises:
            CheckpointError: there are policies, or rows of the log.
        """
        folder = self.log.folder
        policies = [name for name in ("policy", evaluation.BEST_FOLDER) if committed_steps(folder / name)]
        if policies or read_log(folder):
            found = f"policies in {' and '.join(policies)}" if policies else "rows of metrics"
            hint = f"; a new run can start from its policies: --init-from {folder}" if "policy" in policies else ""
            raise CheckpointError(f"{folder} has {found}, but no checkpoint to resume from{hint}.")

    def run(self) -> bool:
        """Train until the run ends; returns False if a signal stopped it before, in which case it is saved.

        Raises:
            NonFiniteError: a metric became NaN or infinite; the last good checkpoint is kept.
            GameError: a host environment raised; the run is saved.
            CallbackError: a callback raised; the run is saved.
        """
        settings, per_update = self.settings, None
        self.settle()
        try:
            with self.log, self.stop.listening():
                if self.state is not None and self.ended:  # restored after the last update
                    self._complete()
                    return True
                with self.stop.at_once():
                    advance = self._begin()
                if self.at.owed:
                    self._repeat_evaluation()
                pace = Pace(settings.checkpoint_seconds)
                while not self.ended and not self.stop.asked:
                    self.hooks.check()
                    n = ending.call_size(settings, self.at, per_update, CALL_SECONDS, self._filling)
                    n = min(n, self.program.capacity)
                    n = min(n, self.selection.until_next(self.update)) if self.selection else n
                    n = self.hooks.call_size(n, self.per_row - self._row.get("count", 0))
                    began = time.monotonic()
                    self.state, results = advance(self.state, np.int32(n))
                    results = jax.tree.map(lambda x, n=n: np.asarray(x, np.float64)[:n], ready(results))
                    spent = time.monotonic() - began
                    self._take(results, n, spent)
                    per_update = spent / n
                    if pace.due():
                        with pace.saving():
                            self.save()
                self.save()
                self.hooks.check()
        except (GameError, CallbackError):
            self.save()
            raise
        except Stopped:
            if self.crew:
                self.crew.abandon()
            return False
        finally:
            self.progress.close()
        return self.ended

    def _begin(self) -> Callable:
        """Initialise the state unless one was restored, and compile; returns the function that advances the state.

        A new run compiles both programs at once.
        """
        began, compiled = time.monotonic(), None
        if self.state is None:
            compiled = self.program.ahead() if self.program.ahead else None
            self.state = self.program.init(self.layout.keys(self.settings.seed))
            self.save()
            self.stop.leave()
        advance = compiled() if compiled else self.program.start(self.state)
        self.progress.say(f"Compiled in {time.monotonic() - began:.1f} s.")
        return advance

    @property
    def update(self) -> int:
        """Updates so far."""
        return self.at.update

    @property
    def step(self) -> int:
        """Environment steps per seed so far."""
        return self.update * self.settings.steps_per_update

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return ending.ended(self.settings, self.at)

    def save(self) -> None:
        """Save a checkpoint and the policy, unless this update is saved already.

        Raises:
            NonFiniteError: a parameter is NaN or infinite; nothing is saved.
            FolderError: the run's folder was deleted, moved or replaced.
            CheckpointError: the disk is full.
        """
        if self._saved == self.update or self.state is None:
            return
        check_learner(self.on_host(self.state.learner), self.update, self.settings.seed, self._saved, self.log.folder)
        self._warn_of_unequal_devices()
        self.log.repair()
        self.log.flush()
        meta = self.at.as_json() | {"row": self._row, "rows": self.log.count, "shards": dict(self.layout.mesh.shape)}
        if self.selection:  # first: policies newer than the checkpoint are removed, but an evaluation is not repeated
            self.selection.save(self.update)
        read = partial(self.crew.read, self.state) if self.crew else to_host
        self.checkpoints.save(self.update, self.state, meta, {LOG_FILE: self.log.kept()}, read)
        self._save_policy()
        self._saved = self.update
        self.hooks.checkpoint(self.checkpoints.folder)

    def _warn_of_unequal_devices(self) -> None:
        """Warn once if the devices that train a seed have learners of their own, of which the first is saved."""
        assert self.state is not None
        if not self._unequal and (name := unequal_copies(self.state.learner)):
            self._unequal = True
            self.progress.warn(
                f"{name} of the learner differs between the devices of a seed: the update has to add gradients and "
                f"means over devices with shoal.equations.reduce ({page('your-algorithm.md')}), or train with "
                f"--devices 1."
            )

    def _save_policy(self) -> None:
        assert self.state is not None
        policy = self.on_host(self.state.learner.policy)
        self.policies.save(self.update, policy, {"env": self.env.spec.name})

    def on_host(self, part: PyTree) -> PyTree:
        """A part of the state; in host memory, but for PRNG keys, if it may be cut over processes."""
        if self.crew is None:
            return part
        leaves, structure = jax.tree.flatten(part)
        read = zip(leaves, self.crew.read(self.state, leaves), strict=True)
        return structure.unflatten(
            jax.random.wrap_key_data(jax.numpy.asarray(x), impl=jax.random.key_impl(leaf))
            if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else x
            for leaf, x in read
        )

    def part(self) -> None:
        """End the other processes of the run, if any, which are not needed for what follows training."""
        if self.crew and not self.crew.ended:
            if self.state is not None:
                self.state = self.state._replace(learner=self.on_host(self.state.learner))
            self.crew.dismiss()

    def _take(self, results: Any, n: int, spent: float) -> None:
        """Add the metrics of n updates to the current row; write the row when it is complete."""
        metrics, stats = results
        check_metrics(metrics, self.update, self.settings.seed, self._saved, self.log.folder)
        own = {column_of(name, self.env.spec): values for name, values in metrics.items()}
        columns, start, written = {**own, **sums_of(stats)}, 0, {}
        while start < n:  # a call may fill several rows, or a part of one
            stop = min(n, start + max(1, self.per_row - self._row.get("count", 0)))
            share = spent * (stop - start) / n
            learned = min(stop - start, max(0, self.update + stop - start - self._filling))
            self._row = add_updates(self._row, columns, start, stop, learned, share)
            self.at = self.at._replace(update=self.update + stop - start, seconds=self.at.seconds + share)
            start = stop
            written = log_row(self._row, self.env.spec, self.settings, self.update, self.at.seconds)
            last = start == n and (ending.spent(self.settings, self.at) or bool(self.hooks.reason))
            if start == n:
                self._end_call(written, last)
            elif self._row["count"] >= self.per_row:
                self._write(written, {})
        score, known = row_means(written, self.env.spec)
        speed = n * self.settings.steps_per_update * self.settings.seeds / max(spent, 1e-9)
        self.progress.update(self.step, score, speed, known, ending.seconds_left(self.settings, self.at))

    def _end_call(self, written: dict[str, Any], last: bool) -> None:
        """Evaluate, if it is time, and write the current row, if it is complete.

        Raises:
            GameError: the evaluation failed; it is repeated when the run goes on.
        """
        try:
            evaluated = self._evaluate(last)
            if evaluated or self._row["count"] >= self.per_row or last:
                self._write(written, evaluated)
        except GameError:
            self.at = self.at._replace(owed=True)
            raise

    def _name_unknown(self) -> None:
        """Warn once of metrics that no episode has had: their names may be misspelt (``--env.metrics``)."""
        if self._episodes < 0 or "known" not in self._row:
            return
        self._episodes += int(np.sum(self._row["episodes"]))
        self._known = self._known + np.sum(self._row["known"], axis=0)
        if self._episodes >= HEARD:
            names = [name for name, count in zip(self.env.spec.metrics, self._known, strict=True) if count == 0]
            if names:
                self.progress.warn(
                    f"None of the first {self._episodes} episodes had the metric {', '.join(names)}. An environment "
                    "gives it with an episode's last step; --env.metrics takes the names in the info."
                )
            self._episodes = -1

    def _write(self, written: dict[str, Any], evaluated: dict[str, Any]) -> None:
        """Write a row of the log, and begin the next."""
        self._name_unknown()
        row = self.hooks.complete(written, evaluated, partial(self._evaluate, True))
        if self.hooks.reason and not self.ended:
            self.at = self.at._replace(stopped=self.hooks.reason)
        self.log.write(row)
        self._row = {}

    def _repeat_evaluation(self) -> None:
        """Make up for the evaluation and the row that an error prevented where the run was saved."""
        self.at = self.at._replace(owed=False)
        self._complete()

    def _complete(self) -> None:
        """Make the evaluation and the row of the last update, where the run was saved without them."""
        if self._row:
            self._end_call(log_row(self._row, self.env.spec, self.settings, self.update, self.at.seconds), True)
        elif self.selection and not has_evaluation(self.log.folder, self.step):
            self._evaluate(True)  # for the best policies; the log has the row of this step already
        else:
            return
        self._saved = -1
        self.save()
        self.hooks.check()

    def _evaluate(self, last: bool) -> dict[str, Any]:
        """The columns of the log from an evaluation, if one is due: also after the last update."""
        if self.selection is None or self.state is None or not (last or self.selection.due(self.update)):
            return {}
        found = self.selection.evaluate(self.on_host(self.state.learner.policy), self.update)
        self.at = self.at._replace(best=ending.higher(self.at.best, self.selection.score))
        if costs := self.selection.costs(self.at.seconds):
            self.progress.warn(costs)
        return found


def led(program: Program, crew: hosts.Crew) -> Program:
    """The program of the leader, which orders the other processes to do what it does."""

    def ordered(advance: Callable[..., Any]) -> Callable[..., Any]:
        def advanced(state: TrainState, n: np.int32) -> tuple[TrainState, Any]:
            crew.order(Order.ADVANCE, int(n))
            return advance(state, n)

        return advanced

    def init(*arguments: Any) -> TrainState:
        crew.order(Order.INIT)
        return program.init(*arguments)

    def start(state: TrainState) -> Callable[..., Any]:
        crew.order(Order.START)
        return ordered(program.start(state))

    def ahead() -> Callable[[], Any]:
        assert program.ahead is not None
        crew.order(Order.AHEAD)
        compiled = program.ahead()

        def finish() -> Callable[..., Any]:
            crew.order(Order.START)
            return ordered(compiled())

        return finish

    return program._replace(init=init, start=start, ahead=ahead if program.ahead else None)


# A trainer that trains in parts and keeps its compiled programs and workers of a host environment in between.


class Continued(Trainer):
    """A trainer whose :meth:`run` may be called again, for more steps."""

    _advance: Callable[..., Any] | None = None

    def begin(self) -> None:
        """Initialise and save a new run, or :meth:`settle` a restored one, without compiling its update."""
        self.settle()
        if self.state is None:
            self.state = self.program.init(self.layout.keys(self.settings.seed))
            self.save()

    def until(self, settings: Settings) -> None:
        """Set the end of the next :meth:`run`; ``settings`` differ from the earlier ones only in ``steps``."""
        self.settings, shown = settings, self.progress.shown
        # Rows are as far apart as those of a run whose schedules have the same length.
        self.per_row = max(1, settings.schedule_updates // settings.rows)
        self.progress = Progress(settings.last_step, settings.seeds, shown)
        self.log.warn, self.stop = self.progress.warn, Stop(self.progress.warn)
        if self.selection:
            self.selection.settings = settings

    def _begin(self) -> Callable[..., Any]:
        if self._advance is None:
            self._advance = super()._begin()
        return self._advance


def check_metrics(metrics: Mapping[str, np.ndarray], update: int, seed: int, saved: int, folder: Path) -> None:
    """Check the metrics of n updates.

    Args:
        metrics: leaves [n, S].
        update: updates before them.
        seed: the run's first.
        saved: the update of the newest checkpoint.
        folder: the run's.

    Raises:
        NonFiniteError: one is NaN or infinite; the message names the first such update.
    """
    broken = [(*where, name) for name, values in metrics.items() for where in np.argwhere(~np.isfinite(values))]
    if broken:
        i, s, name = min(broken, key=lambda found: found[0])
        _refuse(name, seed + int(s), metrics[name][i, s], update + int(i) + 1, saved, folder)


def check_learner(learner: Learner, update: int, seed: int, saved: int, folder: Path) -> None:
    """Check all parameters and other arrays of ``learner`` [S, ...]; see :func:`check_metrics`.

    Raises:
        NonFiniteError: one is NaN or infinite.
    """
    for (path, _), leaf in zip(jax.tree_util.tree_leaves_with_path(learner), to_host(learner), strict=True):
        if not np.isfinite(leaf).all():
            s = int(np.argwhere(~np.isfinite(leaf))[0][0])
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            _refuse(name, seed + s, "not finite", update, saved, folder)


def _refuse(name: str, seed: int, value: Any, update: int, saved: int, folder: Path) -> NoReturn:
    if update == 0:
        raise NonFiniteError(
            f"{name} of seed {seed} is {value} before the first update, so nothing is saved: the algorithm or its "
            f"networks begin with it."
        )
    raise NonFiniteError(
        f"{name} of seed {seed} is {value} after update {update}; the checkpoint after update {saved} is kept. Large "
        f"rewards or inputs (--normalise-rewards, --normalise-inputs), a high learning rate, or an environment that "
        f"shows NaN (shoal check) may be the cause; a new run can start from this one with other values: --init-from "
        f"{folder} --learning-rate RATE."
    )


# Sums of metrics over the updates of one row of the log, and their means when the row is complete.


Sums = dict[str, Any]
"""Sums over the updates of the current row, as JSON values; with the ``count`` of updates, how many of them ``learned``
(the others only filled replay buffers, and their metrics are 0), and the seconds ``spent``."""

_EPISODES = ("episodes", "returns", "lengths", "metrics", "known")
_NO_METRICS = (*_EPISODES, "count", "learned", "spent")


def sums_of(stats: EpisodeStats) -> dict[str, np.ndarray]:
    """The columns that are sums over episodes; leaves [n, S, ...]."""
    return {name: value for name, value in stats._asdict().items() if not isinstance(value, tuple)}


def add_updates(row: Sums, columns: dict[str, np.ndarray], start: int, stop: int, learned: int, spent: float) -> Sums:
    """``row`` plus updates ``start`` to ``stop`` of ``columns`` [n, S, ...], of which the last ``learned`` learned."""
    sums: Sums = {name: _add(row.get(name), values[start:stop]) for name, values in columns.items()}
    before = row.get("count", 0), row.get("learned", row.get("count", 0)), row.get("spent", 0.0)  # older ones lack one
    return sums | {"count": before[0] + stop - start, "learned": before[1] + learned, "spent": before[2] + spent}


def log_row(row: Sums, spec: EnvSpec, settings: Settings, update: int, elapsed: float) -> dict[str, Any]:
    """The log row with means; None for a seed in which no episode ended, or in which a metric is unknown.

    Args:
        row: the sums.
        spec: the environment's.
        settings: the run's.
        update: updates so far.
        elapsed: seconds of training so far.
    """
    count, learned, steps = row["count"], max(1, row.get("learned", row["count"])), settings.steps_per_update
    episodes = np.asarray(row["episodes"])
    with np.errstate(invalid="ignore", divide="ignore"):
        returns = np.asarray(row["returns"]) / episodes[:, None]
        lengths = np.asarray(row["lengths"]) / episodes
        metrics = np.asarray(row["metrics"]) / np.asarray(row["known"]) if "metrics" in row else None
    named = {} if metrics is None else {name: or_none(metrics[:, i]) for i, name in enumerate(spec.metrics)}
    return {
        "step": update * steps,
        "update": update,
        "seconds": round(elapsed, 3),
        "steps_per_second": round(count * steps * settings.seeds / max(row["spent"], 1e-9), 1),
        "return": or_none(spec.scores(returns)),
        **named,
        **{f"return/{name}": or_none(returns[:, i]) for i, name in enumerate(spec.agents)},
        "episode_length": or_none(lengths),
        **{column_of(name, spec): [x / learned for x in row[name]] for name in row if name not in _NO_METRICS},
    }


def has_evaluation(folder: Path, step: int) -> bool:
    """Whether the log in ``folder`` has an evaluation after ``step`` environment steps per seed."""
    rows = read_log(folder, lambda sentence: None)
    return any(row["step"] == step and "greedy/return" in row for row in rows)


def column_of(name: str, spec: EnvSpec) -> str:
    """The log's column of an update's metric; a name that another column also has gets a prefix."""
    taken = (*spec.metrics, *(f"return/{agent}" for agent in spec.agents), *COLUMNS, *_NO_METRICS)
    return f"update/{name}" if name in taken else name


def _add(before: list | None, values: np.ndarray) -> list:
    """``before`` plus ``values`` [n, ...] in order, so that the sum does not depend on how calls divide a row."""
    parts = values if before is None else np.concatenate([np.asarray(before)[None], values])
    return np.add.accumulate(parts)[-1].tolist()


def row_means(row: Mapping[str, Any], spec: EnvSpec) -> tuple[float | None, dict[str, float]]:
    """(return, the environment's known metrics) of a log row, each a mean over the seeds that have a value."""
    means = {name: _mean(row[name]) for name in ("return", *spec.metrics) if name in row}
    score = means.pop("return")
    return score, {name: mean for name, mean in means.items() if mean is not None}


def _mean(seeds: list[float | None]) -> float | None:
    values = [x for x in seeds if x is not None]
    return sum(values) / len(values) if values else None
