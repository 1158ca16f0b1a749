"""A trainer that trains in parts and keeps its compiled programs and workers of a host environment in between."""

from collections.abc import Callable
from typing import Any

from shoal.training.progress import Progress
from shoal.training.settings import Settings
from shoal.training.stopping import Stop
from shoal.training.trainer import Trainer


class Continued(Trainer):
    """A trainer whose :meth:`run` may be called again, for more steps."""

    _advance: Callable[..., Any] | None = None

    def begin(self) -> None:
        """Initialise and save a new run without compiling its update."""
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
