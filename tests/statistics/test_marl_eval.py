"""marl-eval's JSON: read, written and read again; malformed files are answered in one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.errors import InputError, WriteError
from shoal.statistics import iqm, marl_eval
from shoal.statistics.marl_eval import Evaluation, Run

# Names of steps as in marl-eval's own test data; absolute metrics first, as its logger writes them.
TEXT = """{"smac": {"3m": {"qmix": {
  "43289": {
    "absolute_metrics": {"return": [4, 6], "win_rate": [0.5]},
    "STEP_2": {"step_count": 20000, "return": [3, 5.5], "win_rate": 0.25},
    "STEP_1": {"step_count": 10000, "elapsed_time": 1.5, "return": [1, 2]}},
  "seed_1": {
    "step_1": {"step_count": 10000, "return": [0]},
    "step_2": {"step_count": 20000, "return": [2], "win_rate": [1]},
    "step_3": {"step_count": 30000, "return": [4]},
    "absolute_metrics": {"step_count": 30000, "return": [3]}}}}}}"""
RUNS = {
    "43289": Run(
        (
            Evaluation(10000, {"return": (1.0, 2.0)}, 1.5),
            Evaluation(20000, {"return": (3.0, 5.5), "win_rate": (0.25,)}),
        ),
        {"return": (4.0, 6.0), "win_rate": (0.5,)},
    ),
    "seed_1": Run(
        (
            Evaluation(10000, {"return": (0.0,)}),
            Evaluation(20000, {"return": (2.0,), "win_rate": (1.0,)}),
            Evaluation(30000, {"return": (4.0,)}),
        ),
        {"return": (3.0,)},
    ),
}
RESULTS = {"smac": {"3m": {"qmix": RUNS}}}


def test_a_file_is_read_whatever_the_order_and_names_of_steps() -> None:
    assert marl_eval.loads(TEXT) == RESULTS
    assert marl_eval.loads(b"\xef\xbb\xbf" + TEXT.encode()) == RESULTS


def test_results_are_written_and_read_again(tmp_path: Path) -> None:
    more = {**RESULTS, "mpe": {"spread": {"Größe": {"a": Run((Evaluation(0, {}, 0.0),)), "b": RUNS["seed_1"]}}}}
    marl_eval.write(tmp_path / "results.json", more)
    assert marl_eval.read(tmp_path / "results.json") == more
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    raw = json.loads((tmp_path / "results.json").read_text("utf-8"))["smac"]["3m"]["qmix"]["43289"]
    assert raw == {
        "step_0": {"step_count": 10000, "elapsed_time": 1.5, "return": [1.0, 2.0]},
        "step_1": {"step_count": 20000, "return": [3.0, 5.5], "win_rate": [0.25]},
        "absolute_metrics": {"return": [4.0, 6.0], "win_rate": [0.5]},
    }


def test_numbers_of_numpy_are_written() -> None:
    run = Run((Evaluation(np.int64(5), {"return": tuple(np.array([0.5, 1]))}),))  # pyright: ignore[reportArgumentType]
    assert marl_eval.loads(marl_eval.dumps({"e": {"t": {"a": {"r": run}}}}))["e"]["t"]["a"]["r"] == run


def test_an_unfinished_run_has_no_absolute_metrics() -> None:
    data = '{"e": {"t": {"a": {"r": {"absolute_metrics": {}, "step_0": {"step_count": 0, "return": [1]}}}}}}'
    assert marl_eval.loads(data)["e"]["t"]["a"]["r"] == Run((Evaluation(0, {"return": (1.0,)}),))


def test_statistics_take_the_curves_and_absolute_metrics() -> None:
    steps, values = marl_eval.curves(RESULTS, "smac", "qmix", "return")["3m"]
    assert steps.tolist() == [10000, 20000] and values.tolist() == [[1.5, 0.0], [4.25, 2.0]]
    steps, values = marl_eval.curves(RESULTS, "smac", "qmix", "win_rate")["3m"]
    assert steps.tolist() == [20000] and values.tolist() == [[0.25, 1.0]]
    scores = marl_eval.absolute(RESULTS, "smac", "qmix", "return")
    assert scores["3m"].tolist() == [5.0, 3.0] and iqm(scores) == 4.0


def test_names_that_are_not_there_are_one_sentence() -> None:
    with pytest.raises(InputError, match="no environment in these results named 'smca'; did you mean 'smac'"):
        marl_eval.curves(RESULTS, "smca", "qmix", "return")
    with pytest.raises(InputError, match="no algorithm on smac named 'vdn'; known: qmix"):
        marl_eval.absolute(RESULTS, "smac", "vdn", "return")
    with pytest.raises(InputError, match="no metric of qmix on smac/3m named 'retrun'; did you mean 'return'"):
        marl_eval.curves(RESULTS, "smac", "qmix", "retrun")
    with pytest.raises(InputError, match="no absolute metric in all runs of qmix on smac/3m named 'win_rate'"):
        marl_eval.absolute(RESULTS, "smac", "qmix", "win_rate")
    apart = {"a": Run((Evaluation(1, {"x": (1.0,)}),)), "b": Run((Evaluation(2, {"x": (1.0,)}),))}
    with pytest.raises(InputError, match="No step of q on e/t has 'x' in all runs"):
        marl_eval.curves({"e": {"t": {"q": apart}}}, "e", "q", "x")


def a_run(run: str) -> str:
    return '{"e": {"t": {"a": {"r": ' + run + "}}}}"


def a_step(step: str) -> str:
    return a_run('{"step_0": ' + step + "}")


MALFORMED: list[tuple[str | bytes, str]] = [
    (b"\xff\xfe{}", "is not UTF-8 text"),
    ('{"e": ', "is not JSON: Expecting value in line 1"),
    ('{"e": {"t": {}, "t": {}}}', "has the key 't' twice"),
    ("[" * 100_000, "nested too deeply"),
    (a_step('{"step_count": ' + "1" * 5000 + ', "x": [1]}'), "is not JSON that can be read: "),
    ("[1]", r"results.json: an object from environment to contents is expected, not \[1\]"),
    ("{}", "results.json: there is no environment"),
    ('{"e": 1}', "results.json/e: an object from task to contents is expected, not 1"),
    ('{"e": {"t": {}}}', "results.json/e/t: there is no algorithm"),
    ('{"e": {"t": {"a": []}}}', r"e/t/a: an object from run to contents is expected, not \[\]"),
    (a_run("{}"), "e/t/a/r: there is no step"),
    (a_run('{"step_0": [1]}'), r"r/step_0: an object from metric to contents is expected, not \[1\]"),
    (a_step("{}"), "r/step_0: there is no metric"),
    (a_step('{"x": [1]}'), "r/step_0: step_count is missing"),
    (a_step('{"step_count": "7", "x": [1]}'), "step_count: a number is expected, not '7'"),
    (a_step('{"step_count": 1.5, "x": [1]}'), r"step_count is a whole number of at least 0, not 1\.5"),
    (a_step('{"step_count": -1, "x": [1]}'), r"step_count is a whole number of at least 0, not -1\.0"),
    (a_step('{"step_count": true, "x": [1]}'), "step_count: a number is expected, not True"),
    (a_step('{"step_count": 1, "elapsed_time": null}'), "elapsed_time: a number is expected, not None"),
    (a_step('{"step_count": 1, "x": []}'), "step_0/x: the list of values is empty"),
    (a_step('{"step_count": 1, "x": [1, "2"]}'), "step_0/x: a number is expected, not '2'"),
    (a_step('{"step_count": 1, "x": [[1]]}'), r"step_0/x: a number is expected, not \[1\]"),
    (a_step('{"step_count": 1, "x": [NaN]}'), "step_0/x: a value is nan; leave out"),
    (a_step('{"step_count": 1, "x": [1e999]}'), "step_0/x: a value is inf"),
    (a_step('{"step_count": 1, "x": [1' + "0" * 400 + "]}"), "step_0/x: a value is inf"),
    (a_run('{"absolute_metrics": {"x": false}}'), "absolute_metrics/x: a number is expected, not False"),
    (a_run('{"a": {"step_count": 3}, "b": {"step_count": 3}}'), "e/t/a/r: two evaluations have the step_count 3"),
]


@pytest.mark.parametrize(("data", "message"), MALFORMED, ids=[str(i) for i in range(len(MALFORMED))])
def test_a_malformed_file_is_one_sentence(tmp_path: Path, data: str | bytes, message: str) -> None:
    (tmp_path / "results.json").write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(InputError, match=message) as caught:
        marl_eval.read(tmp_path / "results.json")
    text = str(caught.value)
    assert text.startswith(str(tmp_path / "results.json")) and text.endswith(".") and "\n" not in text


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json cannot be read: No such file"):
        marl_eval.read(tmp_path / "none.json")
    with pytest.raises(WriteError, match=r"results\.json cannot be written: "):
        marl_eval.write(tmp_path / "none" / "results.json", RESULTS)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({}, "there is no environment"),
        ({"e": {}}, "there is no environment"),
        ({"e": {"t": {"a, b": RUNS}}}, "no algorithm with a comma in its name, such as 'a, b'"),
        (
            {"e": {"t": {"QMIX": RUNS, "qmix": RUNS}}},
            "cannot tell the algorithms 'QMIX' and 'qmix'",
        ),
        ({"e": {"T": {"a": RUNS}, "t": {"a": RUNS}}}, "cannot tell the tasks 'T' and 't' apart"),
        ({"e": {"t": {"a": {"R": RUNS["43289"], "r": RUNS["43289"]}}}}, "cannot tell the runs 'R' and 'r' apart"),
        ({"E": {"t": {"a": RUNS}}, "e": {"t": {"a": RUNS}}}, "cannot tell the environments 'E' and 'e' apart"),
        ({"e": {"t": {"a": {"r": Run((Evaluation(2, {}), Evaluation(1, {})))}}}}, "in the order of their steps"),
        ({"e": {"t": {"a": {"r": Run((Evaluation(1, {"x": (np.nan,)}),))}}}}, "x: a value is nan"),
        ({"e": {"t": {"a": {"r": Run((Evaluation(1, {"x": ()}),))}}}}, "x: the list of values is empty"),
        ({"e": {"t": {"a": {"r": Run((Evaluation(1, {"step_count": (1.0,)}),))}}}}, "step_count: a number is expected"),
    ],
    ids=str,
)
def test_results_that_could_not_be_read_again_are_not_written(results: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        marl_eval.dumps(results)
