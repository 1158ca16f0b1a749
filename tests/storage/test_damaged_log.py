"""Whatever becomes of metrics.jsonl, its rows are read and a run goes on; what a checkpoint keeps comes back."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.errors import FolderTakenError, WriteError
from shoal.plots import curves
from shoal.plots.texts import summary
from shoal.storage import log as log_rows
from shoal.storage import log as logs
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.folders import check_free
from shoal.storage.log import DROPPED_FILE, LOG_FILE, Log, read_log

LINES = [
    f'{{"step": {step}, "return": [{step / 8}, {step / 3:.3f}], "loss": "NaN"}}\n'.encode()
    for step in range(10, 70, 10)
]
KEPT = b"".join(LINES[:4])
"""What the checkpoint of step 40 keeps."""

DAMAGE: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "nonsense": lambda x: [x[0], b"nonsense\n", *x[1:]],
    "a line of nonsense instead": lambda x: [x[0], b"nonsense\n", *x[2:]],
    "not an object": lambda x: [x[0], b"[1]\n", b"7\n", b"null\n", *x[1:]],
    "no step": lambda x: [*x[:2], b'{"return": [1.0, 2.0]}\n', *x[2:]],
    "a step that is none": lambda x: [b'{"step": true}\n{"step": 1.5}\n{"step": -10}\n{"step": "20"}\n', *x],
    "empty lines": lambda x: [x[0], b"\n\n", *x[1:]],
    "a lost row": lambda x: [x[0], *x[2:]],
    "a lost tail": lambda x: x[:2],
    "a lost head": lambda x: x[2:],
    "a lost file": lambda x: [],
    "cut inside a line": lambda x: [x[0], x[1][:20]],
    "two rows on one line": lambda x: [x[0], x[1].strip(), *x[2:]],
    "twice the same": lambda x: [x[0], x[1], x[1], *x[2:]],
    "twice the whole": lambda x: [*x, *x],
    "another order": lambda x: [x[2], x[0], x[1], *x[3:]],
    "another number": lambda x: [x[0], x[1].replace(b"2.5", b"9.5"), *x[2:]],
    "a step too large": lambda x: [x[0], x[1].replace(b'"step": 20', b'"step": 99999'), *x[2:]],
    "bytes that are no text": lambda x: [x[0], bytes(range(11, 256)) + b"\n", *x[1:]],
    "zeros": lambda x: [x[0], bytes(10_000), b"\n", *x[1:]],
    "a nest": lambda x: [x[0], b"[" * 100_000 + b"\n", *x[1:]],
    "a number too long": lambda x: [x[0], b'{"step": ' + b"1" * 10_000 + b"}\n", *x[1:]],
    "a line too long": lambda x: [x[0], b'{"step": 15, "x": "' + b"y" * 5000 + b'"}\n', *x[1:]],
}


def checkpoint(folder: Path) -> None:
    Checkpoints(folder / "checkpoints").save(1, {"x": np.zeros(2)}, {}, {LOG_FILE: KEPT})


def values(lines: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def plain(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"loss": "NaN"} for row in found]


@pytest.mark.parametrize("name", DAMAGE)
def test_readers_skip_damaged_lines(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the checkpoint keeps are all there, and those after it as far as they survived."""
    monkeypatch.setattr(log_rows, "MAX_LINE_BYTES", 3000)
    checkpoint(tmp_path)
    lines = DAMAGE[name](LINES)
    (tmp_path / LOG_FILE).write_bytes(b"".join(lines))
    said: list[str] = []
    found = plain(read_log(tmp_path, warn=said.append))
    survived = [line for line in LINES[4:] if line in lines]
    assert found == values(LINES[:4] + survived) and len(survived) == (2 if len(lines) > 2 else 0)
    assert len(said) == 1 and said[0].startswith(f"{LOG_FILE} of {tmp_path.name!r} is damaged: ")
    summary(tmp_path)
    assert curves.series(tmp_path, "return")[0].tolist() == [row["step"] for row in found]
    assert (tmp_path / LOG_FILE).read_bytes() == b"".join(lines), "reading changes nothing"


@pytest.mark.parametrize("name", DAMAGE)
def test_a_resumed_run_mends_the_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rows, "MAX_LINE_BYTES", 3000)
    lines = DAMAGE[name](LINES)
    (tmp_path / LOG_FILE).write_bytes(b"".join(lines))
    said: list[str] = []
    with Log(tmp_path, tensorboard=False, warn=said.append) as log:
        log.resume(40, KEPT, 4)
        assert (tmp_path / LOG_FILE).read_bytes() == b"".join(lines) and said == []
        log.repair()
        assert (tmp_path / LOG_FILE).read_bytes() == KEPT
        later = [line for line in LINES[4:] if line in lines]
        assert aside(tmp_path) == b"".join(later)
        assert len(said) == 1 + bool(later) and said[0].startswith(f"{LOG_FILE} is damaged: ")
        log.write({"step": 50})
        assert log.kept() == KEPT + b'{"step": 50}\n' == (tmp_path / LOG_FILE).read_bytes() and log.count == 5
    assert len(said) == 1 + bool(later)


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    checkpoint(tmp_path)

    def said(lines: list[bytes]) -> str:
        (tmp_path / LOG_FILE).write_bytes(b"".join(lines))
        told: list[str] = []
        read_log(tmp_path, warn=told.append)
        return "".join(told).removeprefix(f"{LOG_FILE} of {tmp_path.name!r} is damaged: ")

    assert said(LINES) == said(LINES[:4]) == said([*LINES, b'{"step": 7']) == ""
    assert said(LINES[1:]) == "1 row is restored."
    assert said([]) == "4 rows are restored."
    assert said([b"x\n", *LINES]) == "1 line is left out."
    assert said(DAMAGE["another number"](LINES)) == "1 row is restored and 1 line is left out."


def aside(folder: Path) -> bytes:
    """The rows that were set aside."""
    path = folder / DROPPED_FILE
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize("first", ["a row", "a checkpoint"])
def test_rows_after_the_checkpoint_are_set_aside_when_the_run_writes_again(first: str, tmp_path: Path) -> None:
    """A resumed run may fail before that, for example by a tracker that refuses."""
    before, said = b"".join(LINES) + b'{"step": 7', list[str]()
    (tmp_path / LOG_FILE).write_bytes(before)
    log = Log(tmp_path, tensorboard=False, warn=said.append)
    log.resume(40, KEPT, 4)
    assert [path.name for path in tmp_path.iterdir()] == [LOG_FILE] and said == []
    assert (tmp_path / LOG_FILE).read_bytes() == before
    log.write({"step": 50}) if first == "a row" else log.repair()
    assert (tmp_path / LOG_FILE).read_bytes() == KEPT + (b'{"step": 50}\n' if first == "a row" else b"")
    assert aside(tmp_path) == b"".join(LINES[4:])
    assert said == [f"2 rows after step 40 are set aside in {DROPPED_FILE}; training from there repeats them."]
    with pytest.raises(FolderTakenError, match=f"contains {DROPPED_FILE} of a run"):
        (tmp_path / LOG_FILE).unlink()
        check_free(tmp_path)


def test_rows_are_set_aside_once_and_none_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the disk is full when the file is cut, and if the run is killed again."""
    (tmp_path / LOG_FILE).write_bytes(b"".join(LINES))
    log = Log(tmp_path, tensorboard=False, warn=lambda sentence: None)
    log.resume(40, KEPT, 4)
    with monkeypatch.context() as patch, pytest.raises(WriteError):
        patch.setattr(logs, "write_bytes", lambda *_: (_ for _ in ()).throw(WriteError("full")))
        log.repair()
    assert (tmp_path / LOG_FILE).read_bytes() == b"".join(LINES)
    log.write({"step": 50})
    assert aside(tmp_path) == b"".join(LINES[4:])
    again, said = Log(tmp_path, tensorboard=False), list[str]()
    again.warn = said.append
    again.resume(40, KEPT, 4)
    again.repair()
    assert aside(tmp_path) == b"".join(LINES[4:]) + b'{"step": 50}\n'
    assert said == [f"1 row after step 40 is set aside in {DROPPED_FILE}; training from there repeats it."]
    assert plain(read_log(tmp_path)) == values(LINES[:4]), "readers leave the other file alone"


@pytest.mark.parametrize("name", DAMAGE)
def test_valid_rows_are_kept_without_a_checkpoint(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with one that was written before checkpoints kept rows."""
    monkeypatch.setattr(log_rows, "MAX_LINE_BYTES", 3000)
    lines = DAMAGE[name](LINES)
    (tmp_path / LOG_FILE).write_bytes(b"".join(lines))
    found = read_log(tmp_path, warn=lambda sentence: None)
    steps = [row["step"] for row in found]
    assert steps == sorted(set(steps))
    there = {json.loads(line)["step"] for line in LINES if line in lines}
    assert len(there - set(steps)) <= (name in ("another order", "two rows on one line")) and set(steps) <= there | {20}
    log = Log(tmp_path, warn=lambda sentence: None)
    log.resume(40)
    log.repair()
    assert [row["step"] for row in read_log(tmp_path, warn=pytest.fail)] == [step for step in steps if step <= 40]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 60), st.binary(max_size=12) | st.sampled_from([b"\n", *LINES])),
        max_size=4,
    )
)
def test_any_bytes_at_all(tmp_path: Path, edits: list[tuple[int, int, bytes]]) -> None:
    data = b"".join(LINES)
    for at, length, new in edits:
        data = data[:at] + new + data[at + length :]
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / LOG_FILE).write_bytes(data)
    steps = [row["step"] for row in read_log(folder, warn=lambda sentence: None)]
    assert steps == sorted(set(steps))
    log = Log(folder, tensorboard=False, warn=lambda sentence: None)
    log.resume(40, KEPT, 4)
    log.repair()
    assert (folder / LOG_FILE).read_bytes() == KEPT and log.count == 4
    assert plain(read_log(folder, warn=pytest.fail)) == values(LINES[:4])


def test_a_step_that_is_wrong_takes_no_others_along(tmp_path: Path) -> None:
    """The oracle tries every part of the rows."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        steps = rng.integers(0, 12, rng.integers(0, 9)).tolist()
        found = log_rows.parse_rows([f'{{"step": {step}}}\n'.encode() for step in steps])
        parts = [[s for i, s in enumerate(steps) if mask >> i & 1] for mask in range(2 ** len(steps))]
        longest = max(len(part) for part in parts if part == sorted(set(part)))
        got = [row.step for row in found.rows]
        assert got in parts and got == sorted(set(got)) and len(got) == longest
        assert found.dropped == len(steps) - longest


def test_a_log_that_is_not_a_file_counts_as_missing(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / LOG_FILE).mkdir()
    said: list[str] = []
    assert plain(read_log(tmp_path, warn=said.append)) == values(LINES[:4]) and len(said) == 1


@pytest.mark.parametrize("damage", ["arrays", LOG_FILE, "sha256.json", "folder"])
def test_a_checkpoint_that_is_damaged_itself(damage: str, tmp_path: Path) -> None:
    """Its rows are used as long as they are sound; an earlier one's are after that."""
    checkpoint(tmp_path)
    Checkpoints(tmp_path / "checkpoints").save(2, {"x": np.zeros(2)}, {}, {LOG_FILE: b"".join(LINES[:5])})
    step = tmp_path / "checkpoints" / "2"
    if damage == "arrays":
        shutil.rmtree(step / "arrays")
    elif damage == "folder":
        shutil.rmtree(step)
    else:
        (step / damage).write_bytes(b"{}\n")
    found = read_log(tmp_path, warn=lambda sentence: None)
    assert plain(found) == values(LINES[: 5 if damage == "arrays" else 4])


def test_a_file_that_is_changed_while_the_run_writes(tmp_path: Path) -> None:
    said: list[str] = []
    log = Log(tmp_path, tensorboard=False, warn=said.append)
    for step in (10, 20):
        log.write({"step": step})
    (tmp_path / LOG_FILE).unlink()
    log.write({"step": 30})
    assert (tmp_path / LOG_FILE).read_bytes() == b'{"step": 10}\n{"step": 20}\n{"step": 30}\n'
    with (tmp_path / LOG_FILE).open("a") as file:
        file.write("from elsewhere\n")
    log.repair()
    assert [row["step"] for row in read_log(tmp_path, warn=pytest.fail)] == [10, 20, 30]
    assert said == [
        f"{LOG_FILE} is damaged: 2 rows are restored.",
        f"{LOG_FILE} is damaged: 1 line is left out.",
    ]


def test_more_rows_than_a_checkpoint_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are kept; older ones are what the file still has, and what it lacks is said."""
    monkeypatch.setattr(logs, "MAX_KEPT_BYTES", 40)
    said: list[str] = []
    log = Log(tmp_path, tensorboard=False, warn=said.append)
    for step in range(10, 90, 10):
        log.write({"step": step})
    kept = log.kept()
    assert kept == b'{"step": 60}\n{"step": 70}\n{"step": 80}\n' and log.count == 8
    lines = (tmp_path / LOG_FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / LOG_FILE).write_bytes(b"".join([lines[0], b"x\n", *lines[3:6]]))
    again = Log(tmp_path, tensorboard=False, warn=said.append)
    again.resume(80, kept, 8)
    again.repair()
    assert [row["step"] for row in read_log(tmp_path)] == [10, 40, 50, 60, 70, 80]
    assert said == [
        f"{LOG_FILE} is damaged: 2 rows are restored and 1 line is left out.",
        f"2 of 8 rows of {LOG_FILE} are missing, also in the checkpoint.",
    ]
