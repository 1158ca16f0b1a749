"""Records in marl-eval's format: names, steps and values survive, and the reader of the format gives them back."""

from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.errors import InputError
from shoal.statistics import marl_eval
from shoal.studies.record import write_record
from shoal.studies.state import record_path
from support.small_studies import GRID, cells_of, made_record, write_study_file


def test_records_survive_the_format(tmp_path: Path) -> None:
    path = write_study_file(tmp_path, GRID)
    cells = cells_of(path)
    folder = tmp_path / "records" / "demo"
    greedy = {"step": [32, 64], "score": [[1, None], [3, 4]], "won": [[0, 0], [0.5, 1]]}
    for cell in cells:
        record = made_record(cell, (7.0, 8.0))
        if cell.algorithm == "qmix":
            best = {
                "step": [32, 64],
                "scores": [[9.0] * 256, [10.0] * 256],
                "lengths": [[1.0] * 256] * 2,
                "metrics": {"won": [[0.0, 1.0] * 128, [None, 1.0] * 128]},
            }
            last = record.evaluation | {"metrics": {"won": [[0.0] * 256] * 2}}
            record = made_record(cell, (7.0, 8.0), evaluations=greedy, evaluation=last | {"best": best})
        write_record(record_path(folder, cell), record)
    shoal.results(path, marl_eval=tmp_path / "out" / "all.json")
    found = marl_eval.read(tmp_path / "out" / "all.json")
    assert list(found) == ["matrix"] and sorted(found["matrix"]) == ["climbing", "two_step"]
    names = [f"{algorithm} gamma={gamma}" for algorithm in ("mappo", "qmix") for gamma in (0.9, 0.99)]
    assert sorted(found["matrix"]["climbing"]) == names
    runs = found["matrix"]["climbing"]["qmix gamma=0.9"]
    assert list(runs) == ["seed_0", "seed_1"]
    assert [one.steps for one in runs["seed_0"].evaluations] == [32, 64]
    assert dict(runs["seed_0"].evaluations[1].metrics) == {"return": (3.0,), "won": (0.5,)}
    assert dict(runs["seed_1"].evaluations[0].metrics) == {"won": (0.0,)}  # the unknown score is left out
    scores = marl_eval.absolute(found, "matrix", "qmix gamma=0.9", "return")
    np.testing.assert_array_equal(scores["climbing"], [9, 10])  # of the best policies
    scores = marl_eval.absolute(found, "matrix", "qmix gamma=0.9", "won")
    np.testing.assert_array_equal(scores["climbing"], [0.5, 1])  # unknown values are left out, and zeros are not
    scores = marl_eval.absolute(found, "matrix", "mappo gamma=0.9", "return")
    np.testing.assert_array_equal(scores["two_step"], [7, 8])  # of the last ones


def test_an_export_is_compared_with_the_records_it_is_of(tmp_path: Path) -> None:
    """The names of environments survive, also those with options."""
    flags = '[defaults]\nseed = 5\nseeds = 2\n"env.horizon" = 4\n'
    axes = '[grid]\nalgorithm = ["vdn", "iql"]\nenvironment = ["matrix/two_state"]\n'
    path = write_study_file(tmp_path, f'title = "T"\nquestion = "Q?"\n{flags}{axes}')
    folder = tmp_path / "records" / "demo"
    kept = [record_path(folder, cell) for cell in cells_of(path)]
    for cell, place in zip(cells_of(path), kept, strict=True):
        write_record(place, made_record(cell, (7.0, 8.0) if cell.algorithm == "vdn" else (1.0, 2.0)))
    shoal.results(path, marl_eval=tmp_path / "all.json")
    runs = marl_eval.read(tmp_path / "all.json")["matrix"]["two_state horizon=4"]["vdn"]
    assert list(runs) == ["seed_5", "seed_6"]
    found = shoal.compare([tmp_path / "all.json", *kept])
    assert list(found.methods) == ["vdn (all)", "iql (all)", "vdn", "iql"]
    assert found.environments == ("matrix/two_state horizon=4",)
    scores = [tasks["matrix/two_state horizon=4"].tolist() for tasks in found.scores.values()]
    assert scores == [[7.0, 8.0], [1.0, 2.0]] * 2


def test_runs_that_differ_only_by_a_comma_do_not_replace_each_other(tmp_path: Path) -> None:
    variants = "".join(
        f'[[variants]]\nname = "{name}"\ngamma = {gamma}\n' for name, gamma in (("1,0", 0.9), ("10", 0.8))
    )
    text = GRID.replace('algorithm = ["mappo", "qmix"]', 'algorithm = ["mappo"]').replace("gamma = [0.9, 0.99]", "")
    path = write_study_file(tmp_path, text + variants)
    for cell in cells_of(path):
        write_record(record_path(tmp_path / "records" / "demo", cell), made_record(cell))
    with pytest.raises(InputError, match=r"without them two runs in matrix/climbing would be 'mappo 10'"):
        shoal.results(path, marl_eval=tmp_path / "all.json")
    assert not (tmp_path / "all.json").exists()


def test_seeds_of_an_axis_are_runs_of_one_algorithm(tmp_path: Path) -> None:
    text = GRID.replace("gamma = [0.9, 0.99]", "seed = [0, 2]")
    path, out = write_study_file(tmp_path / "two", text), tmp_path / "all.json"
    for cell in cells_of(path):
        values = cell.values["seed"] + np.arange(2.0)
        write_record(record_path(path.parent / "records" / "demo", cell), made_record(cell, values))
    shoal.results(path, marl_eval=out)
    found = marl_eval.read(out)
    assert sorted(found["matrix"]["climbing"]) == ["mappo", "qmix"]
    assert list(found["matrix"]["climbing"]["qmix"]) == [f"seed_{seed}" for seed in range(4)]
    scores = marl_eval.absolute(found, "matrix", "qmix", "return")
    np.testing.assert_array_equal(scores["climbing"], range(4))
    path = write_study_file(tmp_path / "again", text.replace("[0, 2]", "[0, 1]"))
    for cell in cells_of(path):
        write_record(record_path(path.parent / "records" / "demo", cell), made_record(cell))
    with pytest.raises(InputError, match=r"Two runs of 'mappo' in matrix/climbing have seed 1; "):
        shoal.results(path, marl_eval=out)


def test_without_records_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run is recorded"):
        shoal.results(write_study_file(tmp_path, GRID), marl_eval=tmp_path / "all.json")
    assert not (tmp_path / "all.json").exists()
    with pytest.raises(InputError, match=r"There is no folder '.*recods' of records"):
        shoal.results(write_study_file(tmp_path, GRID), records=tmp_path / "recods")
    with pytest.raises(InputError, match=r"There is no folder '.*recods' of records"):
        shoal.report(write_study_file(tmp_path, GRID), records=tmp_path / "recods", replays=False)
    assert not list(tmp_path.rglob("*.md"))
