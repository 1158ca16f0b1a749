"""Progress of a run on standard error: the progress line, notes, and warnings."""

import math
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from shoal.plots.texts import decimals, metric_text
from shoal.system import notices
from shoal.types import Seconds


def readable(number: float | int) -> str:
    """1234567 -> "1.23M"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * size:  # what rounds to 1000 of the smaller unit
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def clock(seconds: Seconds | int) -> str:
    """75 -> "1:15"."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Progress:
    """Rewrites one line on a terminal; elsewhere prints a line every ``quiet`` seconds.

    With ``shown`` False (``--no-progress``), the progress line and notes are hidden; warnings are always printed.
    """

    def __init__(self, total_steps: int, seeds: int, shown: bool, quiet: Seconds = 15.0):
        self.total, self.seeds, self.shown, self.quiet = total_steps, seeds, shown, quiet
        self.terminal = notices.on_terminal()
        self.began = self.printed = time.monotonic()
        self.score: float | None = None
        self.metrics: dict[str, float] = {}

    def update(
        self,
        step: int,
        score: float | None,
        speed: float,
        metrics: Mapping[str, float] = MappingProxyType({}),
        at_most: Seconds = math.inf,
    ) -> None:
        """Show ``step`` (environment steps per seed so far), the latest mean score, ``won`` or else the first of
        ``metrics``, ``speed`` (environment steps per second over all seeds), and the time left: the estimate for the
        remaining steps, but ``at_most`` this; 0 if the run has ended."""
        now = time.monotonic()
        self.score = self.score if score is None else score
        self.metrics.update(metrics)
        left = min(at_most, (self.total - step) * self.seeds / max(speed, 1e-9))
        if not self.shown or (not self.terminal and now - self.printed < self.quiet and left > 0):
            return
        self.printed = now
        score_text = ""  # before an episode has ended
        if self.score is not None:
            score_text = f" · return {self.score:.{decimals(self.score)}f}"
        name = "won" if "won" in self.metrics else next(iter(self.metrics), "")
        metric = f" · {metric_text(name, self.metrics[name])}" if name else ""
        per_seed = f" × {self.seeds} seeds" if self.seeds > 1 else ""
        line = (
            f"{readable(step)}/{readable(self.total)} steps{per_seed} · {readable(speed)} steps/s"
            f"{score_text}{metric} · {clock(left)} left"
        )
        end = "" if self.terminal else "\n"
        notices.write_stderr(line + end, clear=self.terminal)

    def say(self, sentence: str) -> None:
        """Print a note above the progress line; hidden where progress is hidden."""
        if self.shown:
            self.warn(sentence)

    def warn(self, sentence: str) -> None:
        """Print a warning above the progress line, also where progress is hidden."""
        notices.warn(sentence, clear=self.shown and self.terminal)

    def tell(self, notes: Sequence[str], warnings: Sequence[str]) -> None:
        """Print the notes and warnings of a run that starts."""
        for sentence in notes:
            self.say(sentence)
        for sentence in warnings:
            self.warn(sentence)

    def close(self) -> None:
        """End the progress line."""
        if self.shown and self.terminal:
            notices.write_stderr("\n")
