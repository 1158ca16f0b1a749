"""``shoal check``: plays random legal actions in an environment and reports what is wrong with it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.checking.inspection import check
    from shoal.checking.report import Finding, Report

__all__ = ["Finding", "Report", "check"]


def __getattr__(name: str) -> Any:
    """Import public names lazily, since the process that plays a host environment must not import JAX."""
    if name == "check":
        from shoal.checking.inspection import check

        return check
    if name in ("Finding", "Report"):
        from shoal.checking import report

        return getattr(report, name)
    raise AttributeError(f"module 'shoal.checking' has no attribute {name!r}")
