"""A folder of another person holds pipes and links where files are expected: nothing waits, nothing else is written."""

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.config import config_files
from shoal.errors import InputError
from shoal.statistics import marl_eval
from shoal.storage import log, manifest, step_folders
from shoal.studies import study_file
from shoal.system import files
from shoal.system.files import write_text

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")


@pytest.fixture(autouse=True)
def alarmed() -> Iterator[None]:
    """Whoever waits for a pipe is woken."""

    def stop(*_: Any) -> None:
        raise TimeoutError("it waits for a pipe")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["pipe", "link"])
@pytest.mark.parametrize("name", ["curves.png", ".curves.tmp.png"])
def test_what_has_the_name_of_an_output(name: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("theirs")
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to(tmp_path / "other")
    write_text(tmp_path / "curves.png", "mine")
    found = tmp_path / "curves.png"
    assert found.read_text() == "mine" and found.is_file() and not found.is_symlink()
    assert (tmp_path / "other").read_text() == "theirs"
    assert {path.name for path in tmp_path.iterdir()} == {"other", "curves.png", name}


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_temporary_name_that_is_taken(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0")
    taken = tmp_path / ".0.tmp.png"
    os.mkfifo(taken) if kind == "pipe" else taken.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        files.create_beside(tmp_path / "curves.png")
    with pytest.raises(InputError, match=r"^curves\.png cannot be written: File exists\.$"):
        write_text(tmp_path / "curves.png", "mine")
    assert not (tmp_path / "elsewhere").exists() and os.path.lexists(taken)


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_text(tmp_path / "new", "")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_results_for_marl_eval(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".results.json.tmp")
    run = marl_eval.Run((marl_eval.Evaluation(1, {"return": (1.0,)}),))
    marl_eval.write(tmp_path / "results.json", {"env": {"task": {"mappo": {"seed_0": run}}}})
    assert (tmp_path / "results.json").is_file()


READERS: dict[str, Callable[[Path], Any]] = {
    manifest.RUN_JSON: lambda path: manifest.read_run_json(path.parent),
    "config.toml": config_files.read_config,
    "study.toml": study_file.read_study,
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_not_read(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError):
        READERS[name](tmp_path / name)


def test_a_log_that_is_a_pipe_has_no_rows(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / log.LOG_FILE)
    assert log.read_log(tmp_path, lambda _: None) == []


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_checkpoint_with_something_else_is_damaged(kind: str, tmp_path: Path) -> None:
    with step_folders.commit(tmp_path, 1, 1) as work:
        (work / "index.json").write_text("{}")
    found: list[str] = []
    assert step_folders.newest_sound(tmp_path, None, found.append) == tmp_path / "1" and not found
    if kind == "pipe":
        os.mkfifo(tmp_path / "1" / "arrays")
    else:
        (tmp_path / "1" / "arrays").symlink_to(tmp_path)
    with pytest.raises(OSError, match="arrays is neither a file nor a folder"):
        files.file_digests(tmp_path / "1")
    with pytest.raises(InputError, match="that is not damaged"):
        step_folders.newest_sound(tmp_path, None, found.append)
    assert len(found) == 1
