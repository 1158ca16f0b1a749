"""Factories with options of every type, for tests that name environments and never build them."""

from pathlib import Path
from typing import Any, Literal

from shoal.game import HostEnvironment


def typed(
    *,
    number: int = 1,
    rate: float = 0.5,
    text: str = "a",
    on: bool = False,
    off: bool = True,
    perhaps: bool | None = None,
    size: tuple[int, ...] = (3,),
    pair: tuple[float, float] = (0.0, 1.0),
    words: tuple[str, ...] = (),
    limit: int | None = 5,
    title: str | None = None,
    mode: Literal["fast", "slow"] | None = None,
    folder: Path | None = None,
    anything=None,
    guessed=2,
    shape=(3, 3),
) -> HostEnvironment:
    raise AssertionError("never built")


def flexible(**options: Any) -> HostEnvironment:
    raise AssertionError("never built")
