import re
from pathlib import Path

import pytest

from support import xla_flags


def test_an_unknown_flag_is_left_out_and_the_others_are_kept() -> None:
    wanted = "--xla_no_such_flag=1 --xla_backend_optimization_level=0 --xla_nor_this_one"
    assert xla_flags.known(wanted, "--xla_cpu_multi_thread_eigen=false") == (
        "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0"
    )


def test_an_unknown_flag_of_the_user_is_named() -> None:
    with pytest.raises(RuntimeError, match="--xla_no_such_flag=1"):
        xla_flags.known("--xla_backend_optimization_level=0", "--xla_no_such_flag=1")


def test_flags_that_are_passed_unseen_are_known() -> None:
    """Flags in the code and the benchmarks are not looked up where they are set."""
    root = Path(__file__).parents[1]
    files = [*(root / "src").rglob("*.py"), *(root / "benchmarks").glob("*.py"), root / "tests" / "fuzz.py"]
    flags = {flag for file in files for flag in re.findall(r"--xla_\w+=\w+", file.read_text("utf-8"))}
    assert len(flags) >= 3
    assert set(xla_flags.known(" ".join(sorted(flags))).split()) == flags
