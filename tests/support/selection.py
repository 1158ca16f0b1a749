"""The cases of a parametrised test that run with ``make test``; the others are ``slow``."""

import re
from collections.abc import Collection, Iterable
from typing import Any

import pytest

# The lines of ``slow.txt`` that fit no test, where all tests are collected.
UNUSED = pytest.StashKey[list[str]]()


def quick(cases: Iterable[Any], *few: Any) -> list[Any]:
    """The cases as parameters, all but ``few`` of them marked slow. A tuple is a case of several arguments."""
    cases = list(cases)
    assert set(few) <= set(cases), set(few) - set(cases)

    def of(case: Any) -> Any:
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values, marks=() if case in few else pytest.mark.slow)

    return [of(case) for case in cases]


def fitting(name: str, lines: Collection[str]) -> list[str]:
    """The lines of ``slow.txt`` that name a test: its file, the test with all its cases, or this case."""
    shorter = (name[: cut.start()] for cut in re.finditer(r"::|\[", name))
    return [line for line in (*shorter, name) if line in lines]
