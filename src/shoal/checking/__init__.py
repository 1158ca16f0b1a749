"""Plays random legal actions in an environment and says, in words a user can act on, what is wrong with it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.checking.inspection import check
    from shoal.checking.report import Finding, Report

__all__ = ["Finding", "Report", "check"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: the process that plays a host environment needs no JAX."""
    if name == "check":
        from shoal.checking.inspection import check

        return check
    if name in ("Finding", "Report"):
        from shoal.checking import report

        return getattr(report, name)
    raise AttributeError(f"module 'shoal.checking' has no attribute {name!r}")
