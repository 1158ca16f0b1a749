"""A run that is trained in parts, with one trainer as far as possible."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from pathlib import Path

from shoal.errors import InputError, shortened
from shoal.game import HostEnvironment
from shoal.runs.init_from import start_from
from shoal.runs.run import Run
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.lock import Lock, hold
from shoal.training import ending
from shoal.training.callbacks import Given, Hooks, accepted, watched
from shoal.training.settings import Settings
from shoal.training.sharding import one_device_per_core
from shoal.training.trainer import Continued


class Parts:
    """Trains one run in parts. Schedules span ``Settings.schedule_steps``, so that no part changes the program."""

    def __init__(self, run: Run, progress: bool, keep: Callable[[Run], None]):
        """Prepare; nothing is compiled or written.

        Args:
            run: the run.
            progress: whether progress is shown.
            keep: writes the run's ``run.json``.
        """
        self.run, self._progress, self._keep = run, progress, keep
        self._trainer: Continued | None = None
        self._lock: Lock | None = None
        if run.settings.devices != 1:
            one_device_per_core()  # before an evaluation starts JAX: a run continues only on as many devices as it had

    @property
    def saved(self) -> int | None:
        """The update of the newest policies; None if there are none."""
        return Checkpoints(self.run.folder / "policy").latest()

    def begin(self) -> None:
        """Initialise and save the policies, unless there are some; the update is not compiled."""
        if self.saved is None:
            with self._training() as trainer:
                trainer.begin()

    def train(self, steps: float | int, callbacks: Sequence[Given] = ()) -> None:
        """Train for ``steps`` more environment steps per seed; see :meth:`shoal.runs.agent.Agent.train`."""
        if not isinstance(steps, Real) or not steps >= 1:
            raise InputError(f"steps must be at least 1, not {shortened(steps)}.")
        hooks = accepted(callbacks)
        with self._training() as trainer:
            settings, done = self.run.settings, trainer.update
            updates = done - int(-steps // settings.steps_per_update)
            self.run.settings = replace(settings, steps=float(updates * settings.steps_per_update))
            self.run.settings.check()
            beyond = self.run.settings.steps - done * settings.steps_per_update - float(steps)
            trainer.at = trainer.at._replace(beyond=trainer.at.beyond + beyond)  # checkpoints keep it
            self._warn_of_schedule(trainer)
            trainer.until(self.run.settings)
            self._keep(self.run)
            with watched(self.run, trainer, hooks):
                finished = self.run.finished = trainer.run()
            if hooks:  # which have closed the trainer
                trainer.hooks = Hooks()
                if isinstance(self.run.env, HostEnvironment):
                    self.close()
            if finished and trainer.update == done:
                trainer.progress.warn(ending.sentence(self.run.settings, trainer.at))
        if trainer.stop.asked:  # also during the last update: the program must not go on to the next part
            raise trainer.stop.exception(f"Stopped at step {trainer.step:,}; train() goes on from there.")

    def _warn_of_schedule(self, trainer: Continued) -> None:
        settings = self.run.settings
        asked = settings.steps - trainer.at.beyond
        if asked <= (settings.schedule_steps or 0) or getattr(self.run.config, "lr_final", None) != 0:
            return
        end = settings.schedule_updates * settings.steps_per_update
        trainer.progress.warn(
            f"The learning rate is 0 from step {end:,} on (lr_final is 0), so training beyond it changes no parameter. "
            f"Create a new agent with lr_final above 0 or more steps; init_from={str(self.run.folder)!r} starts it "
            f"with these policies."
        )

    @contextmanager
    def _training(self) -> Iterator[Continued]:
        """The trainer, where the run stands, while no other process may train in the folder.

        After an exception it is built again, since its state may be that of an unfinished update.
        """
        with hold(self.run.folder) as lock:
            self._lock = lock
            try:
                newest = Checkpoints(self.run.folder / "checkpoints").latest()
                if self._trainer is None:
                    self._trainer = self._made(newest)
                elif newest not in (None, self._trainer.update):  # somebody else has trained on
                    self._trainer.until(self._reaching(newest))
                    self._trainer.restore()
                yield self._trainer
            except BaseException:
                self.close()
                raise
            finally:
                self._lock = None

    def _made(self, newest: int | None) -> Continued:
        """A trainer of the run, restored from its newest checkpoint."""
        self.run.settings = self._reaching(newest or 0)
        trainer = self.run.trainer(self._progress, self._guard, Continued)
        assert isinstance(trainer, Continued)
        try:
            if newest is not None:
                trainer.restore()
            elif self.run.settings.init_from:
                start_from(trainer, Path(self.run.settings.init_from))
            self._keep(self.run)
            self.run.announce(trainer)
        except BaseException:
            trainer.close()
            raise
        return trainer

    def _reaching(self, update: int) -> Settings:
        """The run's settings, with at least so many updates."""
        settings = self.run.settings
        return replace(settings, steps=float(max(settings.num_updates, update) * settings.steps_per_update))

    def _guard(self) -> None:
        assert self._lock is not None
        self._lock.check()

    def close(self) -> None:
        """Stop worker processes; the next part compiles again."""
        if self._trainer is not None:
            self._trainer.close()
            self._trainer = None
