""".ci/newest-python, by which .ci/run tests with the newest Python on a machine."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "newest-python"


def found(without: str, folder: Path, *versions: str) -> str:
    """What the script prints where ``folder`` has such Pythons, with status 0: .ci/run stops or skips otherwise."""
    for version in versions:
        python = folder / f"python{version.rpartition('.')[0]}"
        python.write_text(f'#!/bin/sh\necho "{version.rpartition(".")[0]} {version} $0"\n', "utf-8")
        python.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.defpath}"
    env = {"PATH": path, "PYENV_ROOT": str(folder / "none"), "HOME": str(folder)}
    done = subprocess.run(["bash", SCRIPT, without], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(("without", "newest"), [("3.11", "3.100"), ("3.100", "3.99")])
def test_it_is_the_highest_version_but_one(without: str, newest: str, tmp_path: Path) -> None:
    assert found(without, tmp_path, "3.99.10", "3.100.2", "3.98.1") == str(tmp_path / f"python{newest}")
