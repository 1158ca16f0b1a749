"""The browser for all tests of this folder."""

from support.browser import browser

__all__ = ["browser"]
