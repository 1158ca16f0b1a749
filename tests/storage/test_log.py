"""The log survives a kill, resumes from a checkpoint's step, and is valid JSON whatever the numbers."""

import json
import math
import struct
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

from shoal.errors import InputError
from shoal.storage.log import LOG_FILE, Log, read_log


def events(folder: Path) -> list[Any]:
    """Every event of the run, file after file, read without TensorBoard: length, checksum, data, checksum."""
    found = []
    for path in sorted((folder / "tensorboard").iterdir()):
        assert path.name.startswith("events.out.tfevents.")
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            for start, count in ((at, 8), (at + 12, length)):
                assert struct.unpack_from("<I", data, start + count) == (masked_crc32c(data[start : start + count]),)
            found.append(event_pb2.Event.FromString(data[at + 12 : at + 12 + length]))  # pyright: ignore
            at += 16 + length
    return found


def test_rows_come_back_whatever_their_numbers(tmp_path: Path):
    rows = [
        {"step": 100, "return": [1.5, -2.0], "entropy": 0.25, "episodes": 3},
        {"step": np.int64(200), "return": jnp.array([1.0, 3.0]), "entropy": jnp.float32(0.5), "flag": True},
        {"step": 300, "return": [math.nan, math.inf], "loss": -math.inf},
    ]
    with Log(tmp_path) as log:
        for row in rows:
            log.write(row)
    first, second, third = Log.read(tmp_path)
    assert first == rows[0]
    assert second == {"step": 200, "return": [1.0, 3.0], "entropy": 0.5, "flag": True}
    assert math.isnan(third["return"][0]) and third["return"][1] == math.inf and third["loss"] == -math.inf
    lines = (tmp_path / LOG_FILE).read_text().splitlines()

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    assert json.loads(lines[2], parse_constant=refuse)["return"] == ["NaN", "Infinity"]


def test_a_row_is_on_file_as_soon_as_it_is_written(tmp_path: Path):
    with Log(tmp_path, tensorboard=False) as log:
        log.write({"step": 1})
        assert read_log(tmp_path) == [{"step": 1}]
    assert not (tmp_path / "tensorboard").exists()
    assert read_log(tmp_path / "nowhere") == []


@pytest.mark.parametrize("row", [{"return": 1.0}, {"step": 1.5}, {"step": "1"}, {"step": None}])
def test_every_row_needs_a_step(tmp_path: Path, row: dict[str, Any]):
    with Log(tmp_path) as log, pytest.raises(InputError, match="integer 'step'"):
        log.write(row)
    assert read_log(tmp_path) == []


def test_a_value_without_json_form_is_named(tmp_path: Path):
    with Log(tmp_path) as log, pytest.raises(InputError, match=r"row\.bad\[1\] is a object"):
        log.write({"step": 1, "bad": [1, object()]})
    assert read_log(tmp_path) == []


def test_a_half_written_line_is_left_out_and_then_dropped(tmp_path: Path):
    with Log(tmp_path) as log:
        log.write({"step": 1})
        log.write({"step": 2})
    with (tmp_path / LOG_FILE).open("a") as file:
        file.write('{"step": 3, "retu')
    assert [row["step"] for row in read_log(tmp_path, warn=pytest.fail)] == [1, 2]
    with Log(tmp_path, warn=pytest.fail) as log:
        log.resume(2)
        log.write({"step": 3})
    assert [row["step"] for row in read_log(tmp_path)] == [1, 2, 3]


def test_a_log_that_is_one_half_line_starts_anew(tmp_path: Path):
    (tmp_path / LOG_FILE).write_text('{"st')
    with Log(tmp_path, tensorboard=False) as log:
        log.resume(0)
        log.write({"step": 1})
    assert (tmp_path / LOG_FILE).read_text() == '{"step": 1}\n'


def test_resuming_drops_what_came_after_the_checkpoint(tmp_path: Path):
    with Log(tmp_path) as log:
        for step in (10, 20, 30, 40):
            log.write({"step": step, "return": math.nan if step == 10 else float(step)})
        with (tmp_path / LOG_FILE).open("a") as file:
            file.write('{"step": 5')
        log.resume(20)
        assert [row["step"] for row in read_log(tmp_path)] == [10, 20, 30, 40]
        log.write({"step": 30, "return": -1.0})
    rows = read_log(tmp_path)
    assert [row["step"] for row in rows] == [10, 20, 30]
    assert math.isnan(rows[0]["return"]) and rows[2]["return"] == -1.0
    starts = [event for event in events(tmp_path) if event.HasField("session_log")]
    assert [(event.step, event.session_log.status) for event in starts] == [(21, 1)]


def test_a_killed_run_keeps_the_events_before_its_checkpoint(tmp_path: Path):
    log = Log(tmp_path)
    for step in (10, 20, 30):
        log.write({"step": step, "loss": 1.0})
        if step == 20:
            log.flush()
            kept, count = log.kept(), log.count
    resumed = Log(tmp_path)  # the other was never closed
    resumed.resume(20, kept, count)
    with resumed:
        resumed.write({"step": 30, "loss": 2.0})
    assert [event.step for event in events(tmp_path) if event.HasField("summary")] == [10, 20, 30]
    assert [row["step"] for row in Log.read(tmp_path)] == [10, 20, 30]


def test_tensorboard_gets_every_seed_and_their_mean(tmp_path: Path):
    with Log(tmp_path) as log:
        log.write(
            {"step": 7 * 10**11, "return": [1.0, 3.0], "loss/actor": 0.5, "bad": math.nan, "some": [math.nan, 4.0]}
        )
    head, row = events(tmp_path)
    assert head.file_version == "brain.Event:2"
    assert row.step == 7 * 10**11 and abs(row.wall_time - time.time()) < 60
    assert {value.tag: value.simple_value for value in row.summary.value} == {
        "return": 2.0,
        "return/seed0": 1.0,
        "return/seed1": 3.0,
        "loss/actor": 0.5,
        "some": 4.0,
        "some/seed1": 4.0,
    }
