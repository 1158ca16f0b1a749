"""The browser for all tests of this folder."""

from browser import browser

__all__ = ["browser"]
