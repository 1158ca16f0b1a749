"""The live line: steps, speed, return, time left."""

import sys
import time

from shoal.types import Seconds


def readable(number: float | int) -> str:
    """1234567 -> "1.23M"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def clock(seconds: Seconds | int) -> str:
    """75 -> "1:15"."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Progress:
    """Rewrites one line on a terminal; elsewhere prints a line every ``quiet`` seconds."""

    def __init__(self, total_steps: int, seeds: int, shown: bool, quiet: Seconds = 15.0):
        self.total, self.seeds, self.shown, self.quiet = total_steps, seeds, shown, quiet
        self.terminal = sys.stderr.isatty()
        self.began = self.printed = time.monotonic()
        self.score: float | None = None

    def update(self, step: int, score: float | None, speed: float) -> None:
        """Show ``step`` env steps per seed done, the mean score of late, and ``speed`` env steps/s over all seeds."""
        now = time.monotonic()
        self.score = self.score if score is None else score
        if not self.shown or (not self.terminal and now - self.printed < self.quiet and step < self.total):
            return
        self.printed = now
        left = (self.total - step) * self.seeds / max(speed, 1e-9)
        told = "–" if self.score is None else f"{self.score:.2f}"
        per_seed = f" × {self.seeds} seeds" if self.seeds > 1 else ""
        line = (
            f"{readable(step)}/{readable(self.total)} steps{per_seed} · {readable(speed)} steps/s · "
            f"return {told} · {clock(left)} left"
        )
        end = "" if self.terminal else "\n"
        sys.stderr.write(f"\r\033[K{line}{end}" if self.terminal else line + end)
        sys.stderr.flush()

    def say(self, sentence: str) -> None:
        """Print a sentence above the line."""
        if self.shown:
            sys.stderr.write(("\r\033[K" if self.terminal else "") + sentence + "\n")
            sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self.shown and self.terminal:
            sys.stderr.write("\n")
            sys.stderr.flush()
