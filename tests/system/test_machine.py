"""Relative paths in the environment lead nowhere: the working directory may hold somebody else's files."""

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.system import machine
from shoal.training import program_cache
from shoal.trust import provenance

FOLDERS: list[tuple[Callable[[], Path], str, Path]] = [
    (machine.state_folder, "XDG_STATE_HOME", Path(".local/state")),
    (machine.cache_folder, "XDG_CACHE_HOME", Path(".cache")),
    (provenance.provenance_folder, "XDG_STATE_HOME", Path(".local/state")),
    (program_cache.folder, "XDG_CACHE_HOME", Path(".cache")),
]


@pytest.mark.parametrize(("folder", "variable", "default"), FOLDERS)
def test_relative_paths_are_ignored(
    folder: Callable[[], Path], variable: str, default: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(program_cache.VARIABLE, raising=False)
    real = Path(pwd.getpwuid(os.getuid()).pw_dir)
    monkeypatch.chdir(tmp_path)
    for relative in (".", "here", "", "~"):
        monkeypatch.setenv(variable, relative)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert folder().is_relative_to(tmp_path / "home" / default)
        monkeypatch.setenv("HOME", relative)
        assert folder().is_relative_to(real.resolve() / default)
    monkeypatch.setenv(variable, str(tmp_path / "own"))
    assert folder().is_relative_to(tmp_path / "own")


def test_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setenv("HOME", ".")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(OSError, match="there is no home folder"):
        machine.home_folder()
