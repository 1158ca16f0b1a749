"""``shoal check``: plays random legal actions in an environment, or tests an algorithm, and reports errors.

Other packages import :func:`check`, :class:`Finding` and :class:`Report` from here.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.checking.findings import Finding, Report
    from shoal.checking.inspection import check

__all__ = ["Finding", "Report", "check"]


def __getattr__(name: str) -> Any:
    """Import public names lazily, since the process that plays a host environment must not import JAX."""
    if name == "check":
        from shoal.checking.inspection import check

        return check
    if name in ("Finding", "Report"):
        from shoal.checking import findings

        return getattr(findings, name)
    raise AttributeError(f"module 'shoal.checking' has no attribute {name!r}")
