"""A headless browser for tests of pages: one for a session, in a thread of its own.

Playwright runs an event loop in the thread that starts it, where orbax could then not start one.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def executable() -> str | None:
    """The system's Chromium or Chrome: ``SHOAL_CHROMIUM``, or the first of :data:`NAMES` on the path."""
    return os.environ.get("SHOAL_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """Opens pages in the browser's thread."""

    def __init__(self, thread: ThreadPoolExecutor, chromium: Any):
        self._thread, self._chromium = thread, chromium

    def open(
        self, path: Path, do: Callable[[Any], T], *, width: int = 1200, height: int = 800, scheme: str = "light"
    ) -> T:
        """Load a page and return ``do(page)``; ``page`` is Playwright's, and may only be used within ``do``.

        Raises:
            AssertionError: the page wrote an error or a warning to the console, raised, opened a dialog, or asked for
                anything but itself and data within it.
        """
        return self._thread.submit(self._open, path, do, width, height, scheme).result()

    def _open(self, path: Path, do: Callable[[Any], T], width: int, height: int, scheme: str) -> T:
        wrong: list[str] = []
        here = path.resolve().as_uri()
        viewport = {"width": width, "height": height}
        context = self._chromium.new_context(viewport=viewport, color_scheme=scheme)
        try:
            page = context.new_page()
            page.set_default_timeout(30_000)
            page.on("console", lambda said: said.type in ("error", "warning") and wrong.append(said.text))
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
            page.on("request", lambda request: _outside(request.url, here) and wrong.append(request.url))
            page.goto(here)
            found = do(page)
            page.wait_for_timeout(50)  # for what the last action started
            assert not wrong, "; ".join(wrong)
            return found
        finally:
            context.close()


def until(page: Any, condition: str, given: Any = None) -> None:
    """Wait until a function of ``given`` in JavaScript is true.

    Playwright's ``wait_for_function`` evaluates text in the page when it asks again, which the pages' policy forbids.
    """
    end = time.monotonic() + 30.0
    while not page.evaluate(condition, given):
        assert time.monotonic() < end, f"not true after 30 s: {condition}"
        page.wait_for_timeout(20)


def _outside(url: str, here: str) -> bool:
    return url.partition("#")[0] != here and not url.startswith(("data:", "blob:"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser; tests are skipped where there is none that starts."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra 'browser' is not installed")
    where = executable()
    if where is None:
        pytest.skip("there is no Chromium or Chrome; SHOAL_CHROMIUM may name one")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with ThreadPoolExecutor(1) as thread:
        driver = thread.submit(lambda: playwright.sync_playwright().start()).result()
        try:
            options: dict[str, Any] = {"executable_path": where, "args": ["--no-sandbox"] if root else []}
            try:
                chromium = thread.submit(lambda: driver.chromium.launch(**options)).result()
            except playwright.Error as error:
                pytest.skip(f"{where} does not start: {str(error).splitlines()[0]}")
            try:
                yield Browser(thread, chromium)
            finally:
                thread.submit(chromium.close).result()
        finally:
            thread.submit(driver.stop).result()
