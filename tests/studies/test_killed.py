"""A study whose process is killed five times at random ends with the tables of one that was not disturbed."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.studies.results import markdown_page
from shoal.studies.state import records_folder, records_of_cells
from shoal.studies.study_file import read_study
from support import trained
from support.small_studies import TINY, cells_of, toml, write_study_file

TEXT = f"""
title = "T"
question = "Q?"
[defaults]
{toml(TINY | {"seeds": 5, "steps": 3000 * 16, "rows": 100})}
[grid]
algorithm = ["mappo", "ippo", "happo"]
environment = ["matrix/climbing", "matrix/two_step"]
[evaluation]
episodes = 8
[[overrides]]
where = {{ algorithm = "happo" }}
gamma = 0.9
"""
KILLS = 5


def begin(path: Path) -> subprocess.Popen[str]:
    words = ["study", str(path), "--out", str(path.parent / "runs")]
    call = f"import sys; from shoal.cli import main; sys.exit(main({words!r}))"
    environment = os.environ | trained.cache_environment() | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", call], env=environment, text=True, stderr=subprocess.PIPE)


def final_page(path: Path) -> str:
    """The page of results with all times and the rates of the machine as 0."""
    study, cells = read_study(path), cells_of(path)
    records = records_of_cells(records_folder(study, None), cells)
    zero = {"training": 0, "other": 0}
    still = {
        name: replace(record, seconds=zero, hardware=record.hardware | {"product_gflops": None})
        for name, record in records.items()
    }
    return markdown_page(study, cells, still)


@pytest.mark.slow
def test_a_study_killed_five_times_has_the_same_records(tmp_path: Path) -> None:
    """Each time another run has begun, at a random time from then on: while it compiles, trains or is evaluated."""
    whole, killed = (write_study_file(tmp_path / name, TEXT) for name in ("whole", "killed"))
    process = begin(whole)
    said = process.communicate()[1]
    assert process.returncode == 0, said
    times = random.Random(0)
    for begun in range(1, KILLS + 1):
        process = begin(killed)
        while len(list(tmp_path.glob("killed/runs/demo/*/run.json"))) < begun:
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.02)
        time.sleep(times.uniform(0.0, 2.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    process = begin(killed)
    said = process.communicate()[1]
    assert process.returncode == 0, said
    page = final_page(whole)
    assert "missing" not in page.split("## Runs")[1] and final_page(killed) == page
