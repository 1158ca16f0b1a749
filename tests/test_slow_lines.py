"""``slow.txt`` names tests that there are."""

import pytest

from support.selection import UNUSED


def test_each_line_names_a_test(pytestconfig: pytest.Config) -> None:
    """Judged where all tests are collected; with a part of them there is nothing to judge."""
    unused = pytestconfig.stash[UNUSED]
    assert not unused, f"no test has the name in these lines of tests/slow.txt: {unused}"
