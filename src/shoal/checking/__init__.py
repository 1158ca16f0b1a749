"""Plays random legal actions in an environment and says, in words a user can act on, what is wrong with it."""

from shoal.checking.inspection import check
from shoal.checking.report import Finding, Report

__all__ = ["Finding", "Report", "check"]
