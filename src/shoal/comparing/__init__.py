"""Comparison of trained runs: what a run folder or a study's record says, which of them are one method, and statistics.

Nothing in a folder is imported or executed: only its ``run.json``, ``evaluation.json``, log and checkpoints' copies of
the log are read.
"""

from shoal.comparing.command import compare
from shoal.comparing.result import MethodSummary, Pair, RunComparison

__all__ = ["MethodSummary", "Pair", "RunComparison", "compare"]
