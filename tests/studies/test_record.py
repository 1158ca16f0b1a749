"""Records: what is written is read back, in few bytes, and what is damaged or foreign is refused in one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.errors import InputError, NonFiniteError
from shoal.runs.run import Run
from shoal.studies import execution
from shoal.studies.execution import evaluations, learning_curve
from shoal.studies.record import Record, read_record, rounded_numbers, write_record
from shoal.training.evaluation import Evaluation
from support.small_studies import cells_of, made_record, write_study_file


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Five seeds of 256 episodes, with scores of many digits and a metric that is unknown in some episodes."""
    rng = np.random.default_rng(0)
    one = made_record(cells_of(write_study_file(tmp_path_factory.mktemp("studies")))[0], np.zeros(5))
    scores, won = rng.normal(-123.456, 10.0, (5, 256)), (rng.random((5, 256)) < 0.5).astype(float)
    won[0, :3] = np.nan
    found = one.evaluation | {"scores": rounded_numbers(scores), "metrics": {"won": rounded_numbers(won)}}
    curve = {"step": list(range(1, 51)), "score": rounded_numbers(rng.normal(size=(50, 5)))}
    return made_record(
        cells_of(write_study_file(tmp_path_factory.mktemp("studies")))[0], np.zeros(5), evaluation=found, curve=curve
    )


def test_a_record_is_read_back_as_written(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "records" / "demo" / "one.json"
    write_record(path, record)
    assert read_record(path) == record and path.stat().st_size < 50_000
    assert record.scores.shape == (5, 256) and record.seeds == 5
    won = record.values("won")
    assert won is not None and np.isnan(won).sum() == 3 and record.values("unheard") is None
    before = path.read_bytes()
    write_record(path, read_record(path))
    assert path.read_bytes() == before and before.endswith(b"}\n")
    assert [line.split('"')[1] for line in before.decode().splitlines() if line.startswith(' "')] == sorted(
        json.loads(before)
    )
    assert json.loads(before)["run"]["config"]["learning_rate"] == record.run["config"]["learning_rate"]


def test_measured_numbers_are_rounded_to_six_digits() -> None:
    assert rounded_numbers([123.4567891, np.float32(-0.00012345678), 8.0, None, np.nan]) == [
        123.457,
        -0.000123457,
        8,
        None,
        None,
    ]
    assert repr(rounded_numbers(8.0)) == "8" and rounded_numbers(np.array([[1234567.0]])) == [[1234570.0]]


def test_a_long_log_is_averaged_into_fifty_points() -> None:
    rows: list[dict[str, Any]] = [{"step": i, "return": [float(i), None if i < 10 else 2.0]} for i in range(1, 101)]
    found = learning_curve(rows, {"score": "return"}, 2)
    assert found["step"] == list(range(2, 101, 2))
    assert found["score"][0] == [1.5, None] and found["score"][-1] == [99.5, 2]
    assert learning_curve([], {"score": "return"}, 2) == {"step": [], "score": []}


def test_a_metric_that_is_called_score_does_not_replace_the_return_of_evaluations() -> None:
    rows = [{"step": 8, "greedy/return": [1.0, 2.0], "greedy/score": [5.0, 6.0], "greedy/seconds": 0.1}]
    assert evaluations(rows, 2) == {"step": [8], "score": [[1, 2]]}


def changed(**changes: Any) -> Any:
    def change(found: dict[str, Any]) -> None:
        for path, value in changes.items():
            *parts, last = path.split("__")
            part = found
            for name in parts:
                part = part[name]
            part[last] = value

    return change


DAMAGE = {
    "newer": (changed(format=9), "its format 9 is of a newer version of Shoal; this one reads 4."),
    "older": (
        changed(format=3),
        "its format 3 is of a version of Shoal before 0.2.0; delete it and run the study again.",
    ),
    "no format": (lambda found: found.pop("format"), "it is not a JSON object with a format."),
    "a kind": (changed(kind=None), "it is of the kind None."),
    "a wrong format": (changed(format="1"), "its format is '1'."),
    "a key is missing": (lambda found: found.pop("commit"), "'record' lacks 'commit'."),
    "an unknown key": (changed(titel=1), "There is no key in 'record' named 'titel'; known: "),
    "a commit": (changed(commit="rm -rf"), "commit cannot be 'rm -rf'."),
    "control characters": (changed(platform="a\x1b[2J"), "platform cannot be 'a\\x1b[2J'."),
    "not a number": (changed(seconds__training="1"), "seconds.training must be a number, not '1'."),
    "hardware": (changed(hardware__devices=[3]), "a device cannot be 3."),
    "an episode is missing": (
        lambda found: found["evaluation"]["scores"][1].pop(),
        "evaluation.scores must hold 2 lists of 256 numbers.",
    ),
    "a seed is missing": (lambda found: found["evaluation"]["lengths"].pop(), "evaluation.lengths must hold 2 lists"),
    "a score is text": (
        lambda found: found["evaluation"]["scores"][0].__setitem__(0, "8"),
        "evaluation.scores must be a number, not '8'.",
    ),
    "a score is unknown": (
        lambda found: found["evaluation"]["scores"][0].__setitem__(0, None),
        "evaluation.scores must be a number, not None.",
    ),
    "a curve": (lambda found: found["curve"]["step"].pop(), "curve.score must hold 1 lists of 2 numbers."),
    "a list for a table": (changed(cell=[]), "cell cannot be []."),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused_in_one_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_record(path, made_record(cells_of(write_study_file(tmp_path))[0]))
    found = json.loads(path.read_text())
    change, sentence = DAMAGE[damage]
    change(found)
    path.write_text(json.dumps(found))
    with pytest.raises(InputError) as caught:
        read_record(path)
    assert str(caught.value).startswith(f"{path} is not a record of a run: {sentence}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "cannot be read as JSON."),
        ('{"format": 1, "format": 1}', "has the key 'format' twice."),
        ("[" * 100 + "]" * 100, "is nested too deeply."),
    ],
)
def test_a_record_that_is_no_json_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_record(path)
    assert str(caught.value) == f"The record {path} {sentence}"


def test_a_score_that_is_no_number_is_not_recorded(tmp_path: Path) -> None:
    (cell, *_) = cells_of(write_study_file(tmp_path))
    whole = np.zeros((2, 3))
    for value in (np.nan, np.inf, 1e39):
        scores = whole.copy()
        scores[1, 2] = value
        found = Evaluation(scores[..., None], whole, scores)
        with pytest.raises(NonFiniteError, match=r"mappo in matrix/climbing.*is NaN, infinite or beyond float32"):
            execution.record_of(cell, object.__new__(Run), found, None, 1.0)


def test_rows_of_the_log_may_lack_a_column() -> None:
    rows = [{"step": 8, "return": [1.0, 2.0]}, {"step": 16, "return": [3.0, 4.0], "greedy/won": [0.0, 1.0]}]
    found = learning_curve(rows, {"score": "return", "greedy/won": "greedy/won"}, 2)
    assert found == {"step": [8, 16], "score": [[1, 2], [3, 4]], "greedy/won": [[None, None], [0, 1]]}
