"""Comparison of runs from their folders and records: grouping, numbers, refusals, and that nothing is executed."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shoal as library
from shoal import statistics
from shoal.storage import manifest
from shoal.studies import archive, record
from shoal.studies.compare import sources
from support.run_folders import refused, run
from support.small_studies import GRID, cells_of, made_record, records_of, write_study_file


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    return run(tmp_path / "a", [3.0, 4.0, 5.0, 6.0, 7.0]), run(tmp_path / "b", [1.0, 2.0, 3.0, 4.0, 2.5], "ippo")


def test_numbers_are_those_of_the_statistics_package(two: tuple[Path, Path], tmp_path: Path) -> None:
    more = run(tmp_path / "a2", [1.0, 2.0, 2.0], environment="matrix/climbing", steps=(50, 100))
    less = run(tmp_path / "b2", [0.0, 1.0, 4.0], "ippo", "matrix/climbing", steps=(50, 100))
    found = library.compare(
        [*two, more, less], statistic="mean", normalise={"toys:busy": (0, 10), "matrix/climbing": (-1, 4)}
    )
    x = {"toys:busy": np.array([3, 4, 5, 6, 7]) / 10, "matrix/climbing": (np.array([1, 2, 2]) + 1) / 5}
    y = {"toys:busy": np.array([1, 2, 3, 4, 2.5]) / 10, "matrix/climbing": (np.array([0, 1, 4]) + 1) / 5}
    assert list(found.methods) == ["mappo", "ippo"] and found.environments == ("toys:busy", "matrix/climbing")
    for name, scores in (("mappo", x), ("ippo", y)):
        for task in scores:
            np.testing.assert_allclose(found.scores[name][task], scores[task])
        for statistic in ("mean", "median", "iqm", "optimality_gap"):
            assert found.methods[name].estimates[statistic] == pytest.approx(statistics.estimate(scores, statistic))
    (pair,) = found.pairs
    expected = statistics.compare(x, y)
    assert (pair.x, pair.y, pair.found.runs) == ("mappo", "ippo", expected.runs)
    assert pair.found.difference == pytest.approx(expected.difference)
    assert pair.found.improvement == pytest.approx(expected.improvement)
    assert found.curves is not None and not found.curves.same_steps and len(found.curves.places) == 50
    assert found.curves.places[[0, -1]].tolist() == [50.0, 100.0]  # of 192 and 100 steps
    share = found.curves.places / 100
    np.testing.assert_allclose(found.curves.band("mappo", "mean").point, (0.5 * share + (5 / 3 * share + 1) / 5) / 2)
    # Lines from step 48 of 192, and from 50 of 100, to the score: their mean heights are 5/8 and 3/4 of it.
    area = {"toys:busy": np.array([3, 4, 5, 6, 7]) * 0.0625, "matrix/climbing": (np.array([1, 2, 2]) * 0.75 + 1) / 5}
    assert found.methods["mappo"].area == pytest.approx(statistics.estimate(area, "mean"))


def test_the_text_has_a_row_for_each_method_and_each_pair(two: tuple[Path, Path], tmp_path: Path) -> None:
    found = library.compare([*two, run(tmp_path / "c", [9.0], "qmix")])
    text = str(found)
    head, _, *lines = text.splitlines()
    assert head == "Final return in toys:busy"
    columns = ["method", "seeds", "mean", "median", "IQM", "area (IQM)"]
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == columns
    assert [line.split()[1] for line in lines[2:5]] == ["mappo", "ippo", "qmix"]
    assert "| mappo  |     5 | 5.0 [" in text and "| qmix   |     1 |              9 |" in text
    assert [line.split()[1:4:2] for line in lines[8:11]] == [["mappo", "ippo"], ["mappo", "qmix"], ["ippo", "qmix"]]
    assert found.notes == (
        "Brackets are the 95% interval over 5 seeds.",
        "The area is that under the curve of greedy evaluations during training, divided by its length.",
        "qmix has one seed in toys:busy, so it has no intervals.",
    )


def test_the_kind_of_brackets_is_named(tmp_path: Path) -> None:
    few, many = run(tmp_path / "few", [1.0, 2.0, 4.0]), run(tmp_path / "many", [1.0, 2.0, 4.0, 3.0, 2.5], "qmix")
    both = (
        "Brackets are the range over 3 seeds, and the 95% interval over 5 seeds; those of P(X > Y) are 95% intervals."
    )
    assert both in library.compare([few, many]).notes
    more = [run(tmp_path / name, [1.0, 2.0], name, "matrix/climbing") for name in ("mappo", "qmix")]
    found = library.compare([few, many, *more]).notes
    assert "Brackets are 95% stratified bootstrap intervals over the seeds of 2 environments." in found
    alone = [run(tmp_path / f"alone {name}", [1.0], name) for name in ("mappo", "qmix")]
    assert not any("Brackets" in note for note in library.compare(alone).notes)


def test_runs_of_one_method_are_put_together(tmp_path: Path) -> None:
    """Also where they differ in what does not change training."""
    one = run(tmp_path / "one", [1.0, 2.0])
    two = run(tmp_path / "two", [3.0], seed=2, rows=7, keep=9, tensorboard=False)
    found = library.compare([one, two])
    assert list(found.methods) == ["mappo"] and found.pairs == ()
    assert found.scores["mappo"]["toys:busy"].tolist() == [1.0, 2.0, 3.0]
    assert found.methods["mappo"].estimates["mean"][1:] == (1.0, 3.0)


@pytest.mark.parametrize(
    ("algorithm", "part", "gone", "flags", "names"),
    [
        ("mappo", "settings", ("num_starts", "limit_terminates"), {}, ["mappo"]),
        ("mappo", "settings", ("num_starts",), {"num_starts": 3}, ["mappo, num_starts None", "mappo, num_starts 3"]),
        ("mappo", "config", ("kl_stop",), {}, ["mappo"]),
        ("mappo", "config", ("baseline_from",), {"baseline": "counterfactual", "baseline_from": "q"}, ["mappo"]),
        ("own_idea:make", "settings", ("time_budget",), {}, ["own_idea:make"]),
    ],
)
def test_a_setting_that_a_run_lacks_is_what_it_did(
    algorithm: str, part: str, gone: tuple[str, ...], flags: dict[str, Any], names: list[str], tmp_path: Path
) -> None:
    """Run folders and records of versions that did not have it."""
    here = algorithm if ":" not in algorithm else "mappo"
    old = run(tmp_path / "old", [1.0, 2.0], here, **{key: x for key, x in flags.items() if key not in gone})
    new = run(tmp_path / "new", [3.0], here, seed=2, **flags)
    for folder in (old, new):
        said = json.loads((folder / "run.json").read_text())
        said["config"]["algorithm"] = algorithm
        for name in gone if folder == old else ():
            del said["config"][part][name]
        (folder / "run.json").write_text(json.dumps(said))
    assert list(library.compare([old, new]).methods) == names


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ([{}, {"gamma": 0.5}], ["mappo, gamma 0.99", "mappo, gamma 0.5"]),
        ([{"hidden": (4, 4)}, {"num_envs": 8}], ["mappo, hidden 4 4, num_envs 4", "mappo, hidden 64 64, num_envs 8"]),
        ([{}, {"gamma": 0.5, "lam": 0.5, "clip": 0.1, "epochs": 1}], ["r0", "r1"]),
        ([{}, {}], ["r0", "r1"]),  # the same seeds again
        ([{}, {"env": {"death": 0.1}, "seed": 9}], None),
    ],
)
def test_other_settings_are_another_method(
    flags: list[dict[str, Any]], names: list[str] | None, tmp_path: Path
) -> None:
    runs = [run(tmp_path / f"r{i}", [1.0, 2.0 + i], **some) for i, some in enumerate(flags)]
    if names is None:  # one method in two environments
        assert library.compare(runs).environments == ("toys:busy", "toys:busy death=0.1")
        return
    found = library.compare(runs)
    assert list(found.methods) == names and len(found.pairs) == 1


def test_what_an_algorithm_decided_is_not_compared(tmp_path: Path, shoal: Callable) -> None:
    """Other seeds and other environments of SePS may find other groups of agents."""
    runs = [run(tmp_path / f"r{i}", [1.0, 2.0], "seps", seed=5 * i, sharing=(0, i)) for i in range(2)]
    assert list(library.compare(runs).methods) == ["seps, sharing 0 0", "seps, sharing 0 1"], "asked for"
    for folder in runs:
        (folder / "preparation.json").write_text("{}")
    assert list(library.compare(runs).methods) == ["seps"]
    independent = run(tmp_path / "independent", [3.0], "seps", sharing="independent")
    assert list(library.compare([*runs, independent]).methods) == ["seps, sharing learned", "seps, sharing independent"]
    records = Path(__file__).parents[3] / "studies" / "records"
    code, out, _ = shoal("compare", records / "sharing_groups" / "records.jsonl.xz")
    names = [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("| seps, ")]
    assert code == 0 and names[:2] == ["seps, a network for each agent (NoPS)", "seps, learned (SePS)"]


def test_long_values_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    folder = "/home/somebody/projects/teams/runs/mappo-mpe-simple_spread"
    runs = [
        run(tmp_path / f"r{i}", [1.0, 2.0 + i], init_from=f"{folder}-{i}", seed=5 * i, steps=(48, 96)) for i in range(2)
    ]
    names = [f"mappo, init_from /home/some…{f'{folder}-{i}'[-39:]}" for i in range(2)]
    assert list(library.compare(runs).methods) == names
    middle = [f"/home/somebody/projects{i}/teams/of/agents/runs/mappo-mpe-simple_spread" for i in range(2)]
    runs = [run(tmp_path / f"s{i}", [1.0, 2.0], init_from=middle[i], seed=5 * i) for i in range(2)]
    assert list(library.compare(runs).methods) == ["s0", "s1"], "they differ in the part that is left out"


def test_two_archives_of_one_study_are_compared(tmp_path: Path) -> None:
    text = GRID.replace('"matrix/climbing", "matrix/two_step"', '"matrix/climbing"')
    paths = []
    for name in ("old", "new"):
        cells, folder = cells_of(write_study_file(tmp_path / name, text)), tmp_path / name / "records"
        for cell, one in zip(cells, records_of(cells).values(), strict=True):
            record.write_record(folder / f"{cell.name}.json", one)
        archive.gather(folder)
        paths.append(folder / archive.ARCHIVE_FILE)
    found = library.compare(paths)
    assert len(found.methods) == 8 and all(any(f"({path})" in name for path in paths) for name in found.methods)


def test_of_several_records_of_a_run_the_newest_is_compared(tmp_path: Path) -> None:
    """An archive keeps those of runs that the study had before a default changed."""
    text = GRID.replace(", 0.99]", "]")
    cells, folder = cells_of(write_study_file(tmp_path, text)), tmp_path / "records"
    wanted = {}
    for number, cell in enumerate(cells):
        now = replace(made_record(cell, (5.0, 6.0)), versions={"shoal": "0.10.0"})
        was = made_record(cell, (-5.0, -6.0))
        run = was.run | {"config": {name: x for name, x in was.run["config"].items() if name != "kl_stop"}}
        old = replace(was, versions={"shoal": "0.9.0"}, run=run)
        first, second = (old, now) if number % 2 else (now, old)
        for name, one in ((f"{cell.name}0", first), (f"{cell.name}1", second)):
            record.write_record(folder / f"{name}.json", one)
        wanted[cell.algorithm] = {"matrix/climbing": [5.0, 6.0], "matrix/two_step": [5.0, 6.0]}
    archive.gather(folder)
    found = library.compare([path := folder / archive.ARCHIVE_FILE])
    assert {name: {task: x.tolist() for task, x in tasks.items()} for name, tasks in found.scores.items()} == wanted
    said = f"4 of the 8 records in {path} are left out, since the same runs have newer ones."
    assert said in found.notes


def test_methods_can_be_named(two: tuple[Path, Path], tmp_path: Path) -> None:
    third = run(tmp_path / "c", [2.0], seed=5)
    found = library.compare({"ours": [two[0], third], "theirs": [two[1]]}, metric="won")
    assert list(found.methods) == ["ours", "theirs"] and found.methods["ours"].seeds == {"toys:busy": 6}
    assert found.methods["ours"].estimates["mean"] == (0.5, 0.5, 0.5)
    assert found.curves is None and "has no scores of training" in found.notes[0]
    again = run(tmp_path / "d", [2.0], seed=3)
    assert "both have seed 3 of ours in toys:busy; leave one of them out." in refused({"ours": [two[0], again]})


def test_training_returns_are_taken_where_a_run_was_not_evaluated(two: tuple[Path, Path], tmp_path: Path) -> None:
    other = run(tmp_path / "c", [1.0, None, 3.0][:1], "qmix", greedy=False, steps=(30, 100, 160))
    found = library.compare([*two, other])
    assert found.curves is not None and found.curves.kind == sources.TRAINING and found.curves.same_steps
    assert found.curves.places[[0, -1]].tolist() == [48.0, 160.0] and len(found.curves.places) == 50
    line = found.curves.values["qmix"]["toys:busy"][:, 0]
    np.testing.assert_allclose(line, found.curves.places / 160 - 1)
    assert found.notes[-1] == "The runs in toys:busy ended after 160 to 192 steps per seed."


def test_records_of_studies(two: tuple[Path, Path], tmp_path: Path) -> None:
    config = manifest.read_run_json(two[0])["config"]
    scores = [[1.0, 3.0], [2.0, 4.0]]
    fields: dict[str, Any] = {
        "study": "s",
        "cell": {},
        "run": config | {"settings": config["settings"] | {"seeds": 2}, "algorithm": "mat"},
        "versions": {},
        "commit": None,
        "changed": False,
        "platform": "p",
        "hardware": {"processor": "p", "cores": 2, "memory_gib": 1.0, "devices": [], "product_gflops": None},
        "seconds": {"training": 1.0, "other": 1.0},
        "curve": {"step": [60, 192], "score": [[None, 1.0], [2.0, 3.0]]},
        "evaluation": {
            "episodes": 2,
            "greedy": True,
            "seed": 0,
            "step": 192,
            "scores": scores,
            "lengths": scores,
            "metrics": {"won": [[None, 1.0], [0.0, 1.0]]},
        },
    }
    path = tmp_path / "mat-1.json"
    record.write_record(path, record.Record(**fields))
    found = library.compare([path, two[0]])
    assert found.scores["mat"]["toys:busy"].tolist() == [2.0, 3.0]
    assert found.curves is not None and found.curves.places.tolist() == [192.0]  # a seed is unknown before
    assert library.compare([path, two[0]], metric="won").scores["mat"]["toys:busy"].tolist() == [1.0, 0.5]
    assert "the episodes of training" in str(found)
    evaluated = {"step": [60, 192], "score": [[0.0, 1.0], [4.0, 5.0]], "won": [[0.0, 0.0], [1.0, 1.0]]}
    more: dict[str, Any] = fields | {"evaluations": evaluated}
    record.write_record(path, record.Record(**more))
    assert sources.read_source(path, "return").curves[sources.GREEDY][1].tolist() == evaluated["score"]
    assert sources.read_source(path, "won").curves[sources.GREEDY][1].tolist() == evaluated["won"]
    assert not any("stale" in note for note in found.notes)
    earlier: dict[str, Any] = {"behaviour": {"algorithm": 0, "environment": 1}}
    record.write_record(path, record.Record(**fields | earlier))
    (said,) = (note for note in library.compare([path, two[0]]).notes if "stale" in note)
    assert said.startswith("mat-1 is stale: mat had an earlier or unknown behaviour version and has ")
    modes = {"greedy": False, "better": True, "other": [0.5, 1.5]}
    better: dict[str, Any] = {"evaluation": fields["evaluation"] | modes}
    record.write_record(path, record.Record(**fields | better))
    found = library.compare([path, two[0]])
    assert found.scores["mat"]["toys:busy"].tolist() == [0.5, 1.5], "the mode of the folder, in which both are known"
    assert "All scores are greedy, also of 1 evaluation whose other mode is better." in found.notes
    assert refused([path, two[0]], metric="won") == (
        f"The final evaluation of {path} is sampled, its better mode, and that of {two[0]} is greedy; only the return "
        f"of {path} is known in both."
    )
    second = tmp_path / "mat-2.json"
    alike = better["evaluation"] | {"greedy": True, "scores": [[5.0, 5.0], [6.0, 6.0]]}
    there = fields["run"] | {"settings": fields["run"]["settings"] | {"seed": 7}}
    record.write_record(second, record.Record(**fields | {"run": there, "evaluation": alike}))
    found = library.compare([path, second])
    assert found.scores["mat"]["toys:busy"].tolist() == [2.0, 3.0, 5.0, 6.0]
    assert "Each run acts in its better mode: 1 of 2 sampled, the others greedily." in found.notes
    steps = {"step_0": {"step_count": 32, "return": [1.0]}, "step_1": {"step_count": 64, "return": [2.0]}}
    (published := tmp_path / "paper.json").write_text(json.dumps({"shoal": {"toys:busy": {"vdn": {"run_0": steps}}}}))
    assert (
        "Each run acts in its better mode: 1 of 3 sampled, the others greedily, but for 1 whose mode is not known."
        in library.compare([path, second, published]).notes
    )
    record.write_record(path, record.Record(**fields | {"evaluation": fields["evaluation"] | {"greedy": False}}))
    assert refused([path, two[0]]) == (f"The final evaluation of {path} is sampled and that of {two[0]} is greedy.")


def test_a_note_says_that_folders_act_otherwise_by_default(two: tuple[Path, Path], tmp_path: Path) -> None:
    folder = run(tmp_path / "sampled", [3.0, 5.0], "qmix")
    sampled = json.loads((folder / "evaluation.json").read_text("utf-8"))
    greedy = {"mean": 1.0, "low": 1.0, "high": 1.0, "per_seed": [1.0, 1.0]}
    (folder / "evaluation.json").write_text(json.dumps(sampled | {"greedy": False, "other": greedy}), encoding="utf-8")
    found = library.compare([folder, two[0]])
    assert found.scores["qmix"]["toys:busy"].tolist() == [1.0, 1.0]
    assert "All scores are greedy, also of 1 evaluation whose other mode is better." in found.notes
    assert not any("All scores" in note for note in library.compare(two).notes)


def test_records_whose_variants_differ_in_many_flags_are_named_by_their_axes(shoal: Callable) -> None:
    records = Path(__file__).parents[3] / "studies" / "records"
    code, out, _ = shoal("compare", records / "one_policy" / "records.jsonl.xz")
    names = [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("| mappo, ")]
    assert code == 0 and names[:2] == ["mappo, a policy each", "mappo, one policy"]


def test_a_figure_has_what_there_is(two: tuple[Path, Path], tmp_path: Path) -> None:
    library.compare(two, output=tmp_path / "new" / "three.png")
    library.compare(two, metric="won", output=tmp_path / "two.png")  # without curves
    same = run(tmp_path / "c", [2.0], seed=5)
    library.compare([two[0], same], metric="won", output=tmp_path / "one.svg")
    widths = []
    for name in ("new/three.png", "two.png"):
        with Image.open(tmp_path / name) as picture:
            widths.append(picture.width)
    assert widths[0] == pytest.approx(1.5 * widths[1], rel=0.01) and (tmp_path / "one.svg").stat().st_size > 1000


MISTAKES: dict[str, tuple[Callable[[Path, Path, Path], tuple[Any, dict[str, Any]]], str]] = {
    "one run": (lambda a, b, t: ([a], {}), "A comparison needs at least two runs."),
    "none": (lambda a, b, t: ({"x": []}, {}), "A comparison needs at least two runs."),
    "not a run": (lambda a, b, t: ([a, t / "nothing"], {}), "There is no run.json in "),
    "not a record": (lambda a, b, t: ([a, t / "no.json"], {}), "There is no record "),
    "no archive": (lambda a, b, t: ([a, t / "no.jsonl.xz"], {}), "There is no archive of records "),
    "a metric": (lambda a, b, t: ([a, b], {"metric": "wom"}), "There is no metric in the final evaluation of "),
    "a statistic": (lambda a, b, t: ([a, b], {"statistic": "modus"}), "There is no statistic of curves named 'modus'"),
    "a missing cell": (
        lambda a, b, t: ([a, b, run(t / "c", [1.0], environment="matrix/climbing")], {}),
        "Methods are compared on the same environments, but ippo has no run in matrix/climbing, and mappo has.",
    ),
    "no evaluation": (
        lambda a, b, t: ([a, (b / "evaluation.json").unlink() or b], {}),
        "b has no final evaluation: shoal train --resume ",
    ),
    "training since": (
        lambda a, b, t: ([a, (b / "policy" / "5").mkdir(parents=True) or b], {}),
        "b has trained on to step 240 since its final evaluation: shoal train --resume ",
    ),
    "a checkpoint since": (
        lambda a, b, t: ([a, (b / "checkpoints" / "5").mkdir(parents=True) or b], {}),
        "b has trained on to step 240 since its final evaluation: shoal train --resume ",
    ),
    "an unknown score": (
        lambda a, b, t: ([a, run(t / "c", [1.0, None], "qmix")], {}),
        "return of seed 1 in ",
    ),
    "equal bounds": (lambda a, b, t: ([a, b], {"normalise": (1, 1)}), "are two different numbers, not (1, 1)."),
    "a missing bound": (lambda a, b, t: ([a, b], {"normalise": {"x": (0, 1)}}), "score of toys:busy are missing."),
    "a figure": (
        lambda a, b, t: ([a, b], {"output": "x.gif"}),
        "The name of a figure must end in .png, .pdf or .svg, not 'x.gif'.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_sentence(name: str, two: tuple[Path, Path], tmp_path: Path) -> None:
    made, sentence = MISTAKES[name]
    runs, options = made(*two, tmp_path)
    assert sentence in refused(runs, **options)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("algorithm",), "\x1b[2Jevil"),
        (("settings", "seeds"), 10**9),
        (("settings", "seed"), "0"),
        (("settings", "num_envs"), "4"),
        (("env",), []),
        (("config",), None),
    ],
)
def test_a_folder_of_somebody_else_is_read_with_care(
    where: tuple[str, ...], value: Any, two: tuple[Path, Path]
) -> None:
    said = json.loads((two[0] / "run.json").read_text())
    inside = said["config"]
    for key in where[:-1]:
        inside = inside[key]
    inside[where[-1]] = value
    (two[0] / "run.json").write_text(json.dumps(said))
    assert "does not describe a run" in refused(two)


def test_nothing_that_a_folder_names_is_imported(two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shoal.environments.registry.make", "shoal.algorithms.get", "shoal.security.user_modules.imported"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("something was imported"))
    for folder in two:
        said = json.loads((folder / "run.json").read_text())
        said["config"]["algorithm"] = f"evil_{folder.name}:make"
        said["config"]["environment"] = "evil:factory"
        (folder / "run.json").write_text(json.dumps(said))
    assert list(library.compare(two).methods) == ["evil_a:make", "evil_b:make"]


def test_the_command(two: tuple[Path, Path], tmp_path: Path, shoal: Callable) -> None:
    code, out, err = shoal("compare", *map(str, two), "--normalise", "-10", "10", "--output", str(tmp_path / "c.png"))
    assert (code, err) == (0, "")
    assert out.startswith("Final normalised return in toys:busy\n") and "optimality gap" in out
    assert out.endswith(f"\n\nfigure: {tmp_path / 'c.png'}\n") and (tmp_path / "c.png").exists()
    code, out, err = shoal("compare", str(two[0]))
    assert (code, out, err) == (2, "", "shoal: A comparison needs at least two runs.\n")
    code, _, err = shoal("compare", *map(str, two), "--statistic", "modus")
    assert code == 2 and "modus" in err and err.count("\n") == 1


def test_its_help_does_not_import_jax() -> None:
    check = "import sys; from shoal.cli import main; main(['compare', '--help']); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0
