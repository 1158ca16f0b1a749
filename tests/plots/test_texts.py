"""Numbers in words: rounding, tables, and the summary of a finished run."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from shoal.errors import InputError
from shoal.plots.texts import (
    decimals,
    duration_text,
    estimate_text,
    estimate_texts,
    markdown_table,
    number_text,
    summary,
)
from shoal.statistics.intervals import interval
from shoal.storage import manifest
from shoal.storage.log import Log


def test_numbers_are_rounded_to_what_is_readable():
    numbers = {
        0: "0",
        2_000_000: "2,000,000",
        -16.4321: "−16.43",
        1234.567: "1,235",
        0.0123412: "0.01234",
        1.2345e-5: "1.234e−05",
        math.inf: "inf",
        -3.4e38: "−3.400e+38",
        10**15 - 1: "999,999,999,999,999",
    }
    assert {value: number_text(value) for value in numbers} == numbers


@pytest.mark.parametrize(
    "estimate, digits",
    [
        ((12.3,), 2),
        ((0.004,), 4),
        ((0.0,), 2),
        ((np.nan,), 2),
        ((0.004, 0.001, 0.009), 3),
        ((21.5, 20.9, 22.1), 2),
        ((21.5, 21.5, 21.5), 2),
        ((20.0, 20.0000012, 20.0000014), 2),
        ((1e-12, 0.0, 3e-12), 6),
        ((1.0, np.nan, np.nan), 2),
        ((-np.inf, -np.inf, 2.0), 2),
    ],
)
def test_decimals(estimate, digits):
    assert decimals(*estimate) == digits
    estimates = {(-16.43, -17.1, -15.66): "−16.43 [−17.10, −15.66]", (1234.5, 1111.0, 1358.0): "1,234 [1,111, 1,358]"}
    assert {value: estimate_text(value) for value in estimates} == estimates
    assert estimate_text((2.0, math.nan, math.nan)) == "2"
    assert estimate_text(interval(np.array([0.7] * 6))) == "0.70 [0.70, 0.70]"
    assert estimate_texts([interval(np.array([0.7] * 6))]) == ["0.7000 [0.7000, 0.7000]"]
    assert estimate_text((2.0, 2.0, 2.0)) == "2.00 [2.00, 2.00]"
    won, mixed = (
        [(100.0, 100.0, 100.0), (15.2, 10.9, 19.9)],
        [(4855.2, 4628.0, 5191.0), (-0.41, -0.62, 0.1), (9.5, 8.1, 11.0)],
    )
    assert estimate_texts(won, typical=True) == ["100.0 [100.0, 100.0]", "15.2 [10.9, 19.9]"]
    assert estimate_texts(mixed, typical=True) == ["4,855.2 [4,628.0, 5,191.0]", "−0.4 [−0.6, 0.1]", "9.5 [8.1, 11.0]"]
    assert estimate_texts(mixed) == ["4,855 [4,628, 5,191]", "0 [−1, 0]", "10 [8, 11]"]
    assert estimate_texts([(1.0, 1.0, 1.0), (0.0, 0.0, 0.0)], typical=True) == ["1 [1, 1]", "0 [0, 0]"]
    sides = {
        (-2.6, -5.3, -0.02): "−2.6 [−5.3, −0.02]",
        (2.6, 3e-9, 5.3): "2.6 [0.0, 5.3]",
        (2.6, 0.0, 5.3): "2.6 [0.0, 5.3]",
    }
    assert {value: estimate_text(value) for value in sides} == sides
    assert estimate_texts([(-2.6, -5.3, -0.02), (3.1, -0.02, 5.1)], typical=True) == [
        "−2.6 [−5.3, −0.02]",
        "3.1 [0.0, 5.1]",
    ]
    steep = [(-0.2, -0.4, -0.1), (2000.0, 1900.0, 2100.0), (2100.0, 1900.0, 2300.0)]
    assert estimate_texts(steep, typical=True)[0] == "0 [0, 0]"
    durations = {41.23: "41.2 s", 133: "2 min 13 s", 3600: "1 h 00 min", 11_100: "3 h 05 min"}
    assert {value: duration_text(value) for value in durations} == durations


def test_a_table_is_markdown():
    rows = [{"algorithm": "MAPPO", "return": (-16.43, -17.1, -15.66)}, {"algorithm": "A|B", "seeds": 8}]
    assert markdown_table(rows).splitlines() == [
        "| algorithm |                  return | seeds |",
        "| --------- | ----------------------: | ----: |",
        "| MAPPO     | −16.43 [−17.10, −15.66] |     – |",
        "| A\\|B      |                       – |     8 |",
    ]
    assert markdown_table(rows, ["seeds"]).splitlines()[0] == "| seeds |"
    with pytest.raises(InputError, match="at least one row"):
        markdown_table([])


def test_a_summary_tells_what_was_reached(tmp_path: Path):
    with Log(tmp_path, tensorboard=False) as log:
        for i in range(40):
            final = [90.0, -90.0, 0.0] if i < 38 else [1.0, 2.0, 3.0] if i < 39 else [1.0, None, 3.0]
            log.write({"step": 1000 * (i + 1), "return": final, "seconds": 1.5 * (i + 1)})
    manifest.write_run_json(tmp_path, {})
    lines = dict(line.split("  ", 1) for line in summary(tmp_path).splitlines())
    text = {name.strip(): value.strip() for name, value in lines.items()}
    assert text["final return"] == "2.0 [1.0, 3.0]  (range over 3 seeds; mean of the last 2 rows)"
    assert text["steps"] == "40,000 per seed, 120,000 in total"
    assert text["speed"] == "2,000 environment steps per second"
    assert text["time"] == "1 min 00 s"
    assert re.search("cores?; devices: 2 × ", text["on"])


def test_an_unknown_metric_leaves_the_rest_of_a_summary(tmp_path: Path):
    with Log(tmp_path, tensorboard=False) as log:
        log.write({"step": 10, "return": [1.5], "spent": [None]})
    manifest.write_run_json(tmp_path, {"spec": {"metrics": ["spent"]}})
    assert summary(tmp_path).splitlines()[:2] == [
        "final return  1.500  (1 seed; last row)",
        "final spent   unknown in all episodes",
    ]


def test_a_summary_of_one_seed_claims_no_interval(tmp_path: Path):
    with Log(tmp_path, tensorboard=False) as log:
        log.write({"step": 10, "return": np.float32(1.5)})
    assert summary(tmp_path) == "final return  1.500  (1 seed; last row)\nsteps         10 per seed\n"
    with Log(tmp_path, tensorboard=False) as log:
        log.write({"step": 20, "return": math.nan})
    assert "nan" in summary(tmp_path)
    with pytest.raises(InputError, match="did you mean 'return'"):
        summary(tmp_path, "returns")
