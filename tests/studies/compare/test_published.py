"""Files of marl-eval's format beside runs of one's own: scores, curves, names, and what does not fit."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal as library
from shoal import statistics
from support.run_folders import refused, run

TASK = "toys:busy"


def published(
    path: Path,
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    metric: str = "return",
    *,
    absolute: Mapping[str, Sequence[float]] | None = None,
    last: int = 192,
) -> Path:
    """A file with two evaluations of each run, of which the first is half the ``scores[env/task][algorithm]``."""
    results: dict[str, Any] = {}
    for name, algorithms in scores.items():
        env, _, task = name.rpartition("/")
        place = results.setdefault(env or "shoal", {}).setdefault(task, {})
        for algorithm, finals in algorithms.items():
            place[algorithm] = {
                f"run_{i}": {
                    "step_0": {"step_count": last // 2, metric: [0.5 * final - 1, 0.5 * final + 1], "length": [9]},
                    "step_1": {"step_count": last, metric: [final], "length": [9]},
                }
                for i, final in enumerate(finals)
            }
            for i, value in enumerate((absolute or {}).get(algorithm, ())):
                place[algorithm][f"run_{i}"]["absolute_metrics"] = {metric: [value - 1, value + 1]}
    path.write_text(json.dumps(results), encoding="utf-8")
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return run(tmp_path / "mine", [3.0, 4.0, 5.0])


def test_algorithms_of_a_file_are_methods_beside_ones_own(mine: Path, tmp_path: Path) -> None:
    finals = {"mappo": [1.0, 2.0, 4.5], "vdn": [2.0, 2.0]}
    file = published(tmp_path / "others.json", {TASK: finals, "smac/3m": {"vdn": [1.0]}})
    found = library.compare([file, mine])
    assert list(found.methods) == ["mappo (others)", "vdn (others)", "mappo"] and found.environments == (TASK,)
    x, y = {TASK: np.array([1.0, 2.0, 4.5])}, {TASK: np.array([3.0, 4.0, 5.0])}
    assert found.scores["mappo (others)"][TASK].tolist() == [1.0, 2.0, 4.5]
    assert found.methods["mappo (others)"].estimates["iqm"] == pytest.approx(statistics.estimate(x, "iqm"))
    pair = next(one for one in found.pairs if (one.x, one.y) == ("mappo (others)", "mappo"))
    assert pair.found.improvement == pytest.approx(statistics.compare(x, y).improvement)
    assert found.curves is not None and found.curves.steps[TASK][[0, -1]].tolist() == [96.0, 192.0]
    line = found.curves.values["vdn (others)"][TASK]
    np.testing.assert_allclose(line, np.stack([found.curves.steps[TASK] / 96.0] * 2, 1))
    assert found.notes == (
        f"The scores of {file} are of the last evaluation of each run.",
        f"Tasks of {file} without other runs are left out: smac/3m.",
        "Brackets are the range over 2 or 3 seeds; those of P(X > Y) are 95% intervals.",
        "The area is that under the curve of evaluations during training, divided by its length.",
    )


def test_one_evaluation_before_training_is_a_curve_of_one_point(tmp_path: Path) -> None:
    def runs(steps: int, score: float) -> dict[str, Any]:
        evaluations = {f"step_{i}": {"step_count": 10 * i, "return": [score + i]} for i in range(steps)}
        return {f"run_{seed}": evaluations for seed in range(2)}

    told = {task: {"a": runs(steps, 1.0), "b": runs(steps, 2.0)} for task, steps in (("one", 1), ("two", 2))}
    (path := tmp_path / "file.json").write_text(json.dumps({"toys": told}))
    found = library.compare([path])
    assert found.curves is not None and found.curves.places[[0, -1]].tolist() == [0.0, 100.0]
    assert found.curves.band("a (file)", "mean").point[[0, -1]].tolist() == [1.0, 1.5]


def test_absolute_metrics_are_taken_where_all_runs_have_them(mine: Path, tmp_path: Path) -> None:
    finals = {"mappo": [1.0, 2.0], "vdn": [2.0, 2.0]}
    file = published(tmp_path / "a.json", {TASK: finals}, absolute={"mappo": [7.0, 8.0], "vdn": [9.0, 5.0]})
    found = library.compare([mine, file])
    assert found.scores["mappo (a)"][TASK].tolist() == [7.0, 8.0] and found.scores["vdn (a)"][TASK].tolist() == [9, 5]
    best = (
        "absolute metrics: in this format of the best policy of each run, in Shoal's files without eval_every of the "
        "last"
    )
    assert f"The scores of {file} are {best}." in found.notes
    file = published(tmp_path / "a.json", {TASK: finals}, absolute={"mappo": [7.0, 8.0], "vdn": [9.0]})
    found = library.compare([mine, file])
    assert found.scores["mappo (a)"][TASK].tolist() == [1.0, 2.0]  # the methods have scores of one kind


def test_runs_of_different_length_are_taken_at_their_last_common_step(mine: Path, tmp_path: Path) -> None:
    file = published(tmp_path / "a.json", {TASK: {"vdn": [2.0, 4.0]}})
    said = json.loads(file.read_text())
    del said["shoal"][TASK]["vdn"]["run_1"]["step_1"]
    file.write_text(json.dumps(said))
    found = library.compare([mine, file])
    assert found.scores["vdn (a)"][TASK].tolist() == [1.0, 2.0]
    assert found.notes[-1] == f"The runs in {TASK} ended after 96 to 192 steps per seed."


def test_a_file_alone_is_compared_on_all_its_tasks(tmp_path: Path) -> None:
    """Also two files, on their common tasks."""
    algorithms = {"mappo": [1.0, 2.0], "vdn": [2.0, 3.0]}
    file = published(tmp_path / "a.json", {"smac/3m": algorithms, "smac/8m": algorithms | {"qtran": [1.0]}})
    found = library.compare([file])
    assert list(found.methods) == ["mappo (a)", "vdn (a)"] and found.environments == ("smac/3m", "smac/8m")
    assert f"Algorithms of {file} that lack an environment are left out: qtran." in found.notes
    (tmp_path / "b").mkdir()
    other = published(tmp_path / "b" / "a.json", {"smac/8m": {"vdn": [2.0]}})
    found = library.compare([file, other])
    assert found.environments == ("smac/8m",)  # the same name twice, so they are named by their paths
    assert list(found.methods) == [*(f"{name} ({file})" for name in ("mappo", "vdn", "qtran")), f"vdn ({other})"]


def test_tasks_and_metrics_with_other_names(tmp_path: Path) -> None:
    mine = run(tmp_path / "mine", [3.0, 4.0], env={"death": 0.1}, won=[0.25, 0.5])
    file = published(tmp_path / "a.json", {"BUSY/dying": {"vdn": [2.0]}}, "mean_episode_return")
    names = {"BUSY/dying": f"{TASK} death=0.1"}
    found = library.compare([file, mine], tasks=names)
    assert found.environments == (f"{TASK} death=0.1",) and list(found.methods) == ["vdn (a)", "mappo"]
    assert f"The scores mean_episode_return of {file} are of the last evaluation of each run." in found.notes
    found = library.compare([file, mine], tasks=names, metric="won", file_metric="length")
    assert [x[f"{TASK} death=0.1"].tolist() for x in found.scores.values()] == [[9.0], [0.25, 0.5]]


def test_a_file_can_be_a_named_method(mine: Path, tmp_path: Path) -> None:
    one = published(tmp_path / "a.json", {TASK: {"vdn": [2.0]}})
    several = published(tmp_path / "b.json", {TASK: {"vdn": [2.0], "iql": [1.0]}})
    found = library.compare({"ours": [mine], "theirs": [one], "others": [several]})
    assert list(found.methods) == ["ours", "theirs", "others, vdn", "others, iql"]


def test_curves_need_evaluations_of_ones_own_runs(tmp_path: Path) -> None:
    mine = run(tmp_path / "mine", [3.0], greedy=False)
    file = published(tmp_path / "a.json", {TASK: {"vdn": [2.0]}})
    found = library.compare([mine, file])
    assert found.curves is None
    assert f"There are no curves and areas, since {file} has evaluations alone, and {mine} none." in found.notes


MISTAKES: dict[str, tuple[dict[str, Any] | str, dict[str, Any], str]] = {
    "no JSON": ('{"e": ', {}, "a.json is not JSON: Expecting value in line 1."),
    "another file": ({"step": 3}, {}, "a.json is neither a record of a study nor a file of marl-eval's format, "),
    "a list": ("[]", {}, "a.json is neither a record of a study nor a file of marl-eval's format, "),
    "a damaged file": ({"e": {"t": {"\x1b[2Ja": []}}}, {}, r"e/t/\x1b[2Ja: an object from run to contents is expected"),
    "another task": (
        {"smac/3m": {"vdn": [1.0]}, "smac/8m": {"vdn": [1.0]}},
        {},
        "a.json has no runs in toys:busy, in which others are compared; it has smac/3m, smac/8m (--tasks "
        "'TASK=toys:busy' if one of them is the same under another name).",
    ),
    "a renamed task": (
        {"smac/3m": {"vdn": [1.0]}},
        {"tasks": {"smac/3s": TASK}},
        "There is no task in the files of results named 'smac/3s'; did you mean 'smac/3m'?",
    ),
    "two tasks that are one": (
        {"smac/3m": {"vdn": [1.0]}, TASK: {"vdn": [1.0]}},
        {"tasks": {"smac/3m": TASK}},
        "a.json would be the environment toys:busy.",
    ),
    "a metric": (
        {TASK: {"vdn": [1.0]}},
        {"metric": "won"},
        "a.json named 'won'; it has return, length, of which --file-metric NAME chooses one.",
    ),
    "a metric of the file": (
        {TASK: {"vdn": [1.0]}},
        {"file_metric": "lenght"},
        "a.json named 'lenght'; did you mean 'length'?",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_sentence(name: str, mine: Path, tmp_path: Path) -> None:
    content, options, sentence = MISTAKES[name]
    file = tmp_path / "a.json"
    if isinstance(content, str):
        file.write_text(content)
    elif all(isinstance(scores, dict) and "vdn" in scores for scores in content.values()):
        published(file, content)
    else:
        file.write_text(json.dumps(content))
    assert sentence in refused([file, mine], **options)


def test_what_cannot_be_compared_is_one_sentence(mine: Path, tmp_path: Path) -> None:
    for options in ({"file_metric": "x"}, {"tasks": {"smac/3m": TASK}}):
        assert "is for files in marl-eval's format, but no such file is given." in refused([mine, mine], **options)
    file = published(tmp_path / "a.json", {TASK: {"vdn": [1.0]}})
    assert refused([file]) == "A comparison needs at least two runs."
    other = published(tmp_path / "b.json", {"smac/3m": {"vdn": [1.0]}})
    assert "a.json has toys:busy, and " in refused([file, other])
    apart = json.loads(file.read_text())
    apart["shoal"][TASK]["vdn"]["run_1"] = {"step_0": {"step_count": 5, "return": 3}}
    file.write_text(json.dumps(apart))
    assert "The runs of vdn in toys:busy of " in refused([file, mine])
    split = published(tmp_path / "c.json", {TASK: {"vdn": [1.0]}, "smac/3m": {"iql": [1.0]}})
    assert "No algorithm in " in refused([split])
    second = run(tmp_path / "second", [1.0], environment="matrix/climbing")
    assert "c.json has no runs in matrix/climbing" in refused([split, mine, second])


def test_the_command(mine: Path, tmp_path: Path, shoal: Callable) -> None:
    file = published(tmp_path / "a.json", {"smac/3m": {"qmix": [2.0, 3.0]}}, "score")
    words = ("compare", file, mine, "--tasks", f"smac/3m={TASK}", "--file-metric", "score")
    code, out, err = shoal(*words, "--output", tmp_path / "c.png")
    assert (code, err) == (0, "") and "| qmix (a) |" in out and "| qmix (a) | mappo |" in out
    assert (tmp_path / "c.png").exists()
    code, out, err = shoal("compare", file, mine, "--tasks", "smac/3m")
    assert (code, out) == (2, "") and "TASK=ENVIRONMENT, not 'smac/3m'." in err
