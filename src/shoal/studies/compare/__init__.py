"""Comparison of trained runs: what a run folder or a study's record says, which of them are one method, and statistics.

Other packages import :func:`compare` and its result from here.

Nothing in a folder is imported or executed: only its ``run.json``, ``evaluation.json``, log and checkpoints' copies of
the log are read.
"""

from shoal.studies.compare.comparison import MethodSummary, Pair, RunComparison, compare

__all__ = ["MethodSummary", "Pair", "RunComparison", "compare"]
