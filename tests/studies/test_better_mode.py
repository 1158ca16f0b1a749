"""Studies and searches that evaluate each run in its better mode of acting."""

from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.studies import execution
from shoal.studies.state import records_folder, records_of_cells
from shoal.studies.study_file import read_study
from support.small_studies import TINY, cells_of, toml, write_study_file

# Two agents should choose different actions. One policy for both does so half of the time if it draws, greedily never.
TEXT = f"""
title = "T"
question = "Q?"
[defaults]
algorithm = "ippo"
environment = "matrix/proposition1"
sharing = "shared"
agent_id = false
{toml(TINY)}
[evaluation]
episodes = 30
greedy = "better"
"""


def test_each_run_acts_in_its_better_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "product_rate", lambda: 1e11)
    path = write_study_file(tmp_path, TEXT)
    report = shoal.study(path, out=tmp_path / "runs", progress=False)
    cells, folder = cells_of(path), records_folder(read_study(path), None)
    record = records_of_cells(folder, cells)[cells[0].name]
    assert record.evaluation["greedy"] is False and record.evaluation["better"] is True
    assert 0.2 < np.mean(record.scores) < 0.8
    assert record.evaluation["other"] == [0.0] * record.seeds
    page = shoal.results(path).read_text(encoding="utf-8")
    assert report.ok and "30 sampled (the better mode) episodes" in page and "in the other mode" in page
    write_study_file(tmp_path, TEXT.replace('"better"', "false"))
    warnings: list[str] = []
    assert records_of_cells(folder, cells_of(path), warnings.append) == {}
    assert warnings[0].endswith("is not used: greedy of its evaluation is better, but False in the study.")


@pytest.mark.slow
def test_trials_of_a_search_act_in_their_better_mode(tmp_path: Path) -> None:
    tuning = "[tuning]\ntrials = 2\nrungs = 1\nseeds = 2\nepisodes = 30\n"
    tuning += "[tuning.ranges]\nlearning_rate = { low = 1e-4, high = 1e-3 }\n"
    variants = '[[variants]]\nname = "tuned"\ntuned = true\n'
    for mode, low, high in (('"better"', 0.2, 0.8), ("true", 0.0, 0.0)):
        path = write_study_file(tmp_path / mode.strip('"'), TEXT.replace('"better"', mode) + variants + tuning)
        report = shoal.tune(path, out=path.parent / "out", progress=False)
        (record,) = report.records.values()
        assert record.tuning["greedy"] is (None if mode != "true" else True)
        assert all(low <= score <= high for trial in record.trials for row in trial["scores"] for score in row[0])
