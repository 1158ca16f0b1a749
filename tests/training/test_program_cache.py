"""Compiled programs are stored for the next command, in a folder that only this user writes."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from shoal.training import program_cache
from support import trained

COMPILE = """
import jax, jax.numpy as jnp
from shoal.training import program_cache
program_cache.QUICK = 0.0
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
program_cache.use()
jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3)))
print(len(hits))
"""


def compile_in_a_process(folder: Path) -> int:
    """Programs that the process loaded instead of compiling."""
    plain = {k: v for k, v in os.environ.items() if k not in ("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=plain | {program_cache.VARIABLE: str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return int(done.stdout)


def test_a_second_process_compiles_nothing_again(tmp_path: Path) -> None:
    assert compile_in_a_process(tmp_path) == 0
    (folder,) = tmp_path.iterdir()
    entries = sorted(folder.glob("*-cache"))
    assert entries
    assert compile_in_a_process(tmp_path) == len(entries)
    # Killed while it wrote: a part of the program, and nothing that says that it is complete.
    entries[0].write_bytes(entries[0].read_bytes()[:100])
    entries[0].with_name(entries[0].name.removesuffix("-cache") + "-atime").unlink()
    assert compile_in_a_process(tmp_path) == len(entries) - 1
    assert compile_in_a_process(tmp_path) == len(entries), "the program is stored again"
    entries[0].write_bytes(b"no program")
    assert compile_in_a_process(tmp_path) == len(entries) - 1


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """No cache is configured; afterwards everything is as before."""
    names = ["jax_compilation_cache_dir", "jax_compilation_cache_max_size"]
    names += ["jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes"]
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setenv(program_cache.VARIABLE, str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("unset")
def test_the_cache_is_used_unless_it_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(program_cache.VARIABLE, "off")
    program_cache.use()
    assert trained.cache_folder() is None
    monkeypatch.setenv(program_cache.VARIABLE, str(tmp_path))
    program_cache.use()
    assert trained.cache_folder() == str(program_cache.folder())
    assert program_cache.folder().parent == tmp_path


@pytest.mark.usefixtures("unset")
def test_a_cache_of_the_users_own_stays(tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    program_cache.use()
    assert trained.cache_folder() == str(tmp_path / "own")


@pytest.mark.usefixtures("unset")
def test_a_folder_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    program_cache.use()
    assert trained.cache_folder() is None
    said = capsys.readouterr().err
    assert "since it belongs to another user" in said and said.count("\n") == 1


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(mode: int, capsys: pytest.CaptureFixture) -> None:
    program_cache.folder().mkdir(parents=True)
    program_cache.folder().chmod(mode)
    program_cache.use()
    assert trained.cache_folder() is None
    said = capsys.readouterr().err
    assert "other users can write it; choose another folder by SHOAL_CACHE" in said and said.count("\n") == 1
    program_cache.folder().chmod(0o755)
    program_cache.use()
    assert trained.cache_folder() == str(program_cache.folder()) and capsys.readouterr().err == ""


@pytest.mark.usefixtures("unset")
def test_a_folder_that_cannot_be_made_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(program_cache.VARIABLE, str(tmp_path / "file"))
    program_cache.use()
    assert trained.cache_folder() is None


def test_the_folder_follows_the_variable_and_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(program_cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert program_cache.folder().parent == tmp_path / "shoal"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert program_cache.folder().parent == tmp_path / ".cache" / "shoal"
    monkeypatch.setenv(program_cache.VARIABLE, "here")  # relative to the working directory, which may be anybody's
    assert program_cache.folder().parent == tmp_path / ".cache" / "shoal"
    monkeypatch.setenv(program_cache.VARIABLE, "~/own")
    assert program_cache.folder().parent == tmp_path / "own"
