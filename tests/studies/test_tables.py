"""Tables over several tasks and figures, judged by the numbers of their records."""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_results import rows_of

from shoal.errors import InputError
from shoal.plots import charts, figures
from shoal.statistics.intervals import interval
from shoal.studies import charts as studies_charts
from shoal.studies.results import draw_figures, markdown_page
from shoal.studies.study_file import read_study
from support.small_studies import GRID, cells_of, made_record, write_study_file

# Worst and best are 0 and 10 in one task, 0 and 2 in the other.
SCALES = """
[[scales]]
environment = "matrix/climbing"
worst = 0
best = 10
source = "S1"

[[scales]]
environment = "matrix/two_step"
worst = 0
best = 2
source = "S2"
"""
OVER = '\n[[tables]]\ntitle = "All"\nrows = "algorithm"\nover = "environment"\nwhere = { gamma = 0.9 }\n'
SCORES = {
    ("mappo", "matrix/climbing"): (2.0, 4.0, 6.0, 8.0, 9.0),
    ("mappo", "matrix/two_step"): (1.0, 1.2, 1.4, 1.6, 2.0),
    ("qmix", "matrix/climbing"): (1.0, 3.0, 5.0, 7.0, 6.0),
    ("qmix", "matrix/two_step"): (0.2, 0.4, 0.6, 0.9, 1.1),
}
CURVE = {"step": [32, 64, 96], "score": [[1.0] * 5, [4.0, 3, 2, 1, 0], [2.0] * 5]}


def studied(folder: Path, text: str, **changes: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    path = write_study_file(folder, GRID.replace("seeds = 2", "seeds = 5") + text)
    cells = cells_of(path)
    records = {cell.name: made_record(cell, SCORES[cell.algorithm, cell.environment], **changes) for cell in cells}
    return read_study(path), cells, records


def entries(folder: Path, text: str, title: str = "## All", **changes: Any) -> list[list[str]]:
    return rows_of(markdown_page(*studied(folder, text, **changes)), title)


def point(entry: str) -> float:
    return float(entry.partition(" [")[0].replace("−", "-"))


def ends(entry: str) -> list[float]:
    return [float(x.replace("−", "-")) for x in entry.partition(" [")[2].rstrip("]").split(", ")]


def scaled(algorithm: str) -> np.ndarray:
    """[tasks, seeds]."""
    climbing, two_step = (np.array(SCORES[algorithm, f"matrix/{game}"]) for game in ("climbing", "two_step"))
    return np.array([climbing / 10, two_step / 2])


def test_an_entry_over_tasks_aggregates_normalised_scores(tmp_path: Path) -> None:
    text = OVER + 'statistic = ["iqm", "mean", "median", "optimality_gap"]\n' + SCALES
    head, _, *rows = entries(tmp_path, text)
    names = ["interquartile mean", "mean", "median over tasks", "optimality gap"]
    assert head == ["algorithm", *names]
    for name, *found in rows:
        x = scaled(name)
        middle = np.sort(x.ravel())[2:-2]  # ⌊10 / 4⌋ are left out at each end
        wanted = [middle.mean(), x.mean(), np.median(x.mean(1)), np.maximum(1 - x, 0).mean()]
        np.testing.assert_allclose([point(entry) for entry in found], wanted, atol=6e-3)
        assert all(low < point(entry) < high for entry in found for low, high in [ends(entry)])
    shown = markdown_page(*studied(tmp_path, text))
    assert "95% stratified bootstrap interval over 5 seeds of 2 tasks" in shown
    assert "normalised by the worst and best ones below" in shown
    assert rows_of(shown, "## Worst and best scores")[2] == ["matrix/climbing", "0", "10", "S1"]


def test_without_known_levels_scores_are_normalised_by_what_was_observed(tmp_path: Path) -> None:
    _, _, *rows = entries(tmp_path, OVER)
    for name, found in rows:
        wanted = []
        for game in ("climbing", "two_step"):
            every = np.concatenate([SCORES[algorithm, f"matrix/{game}"] for algorithm in ("mappo", "qmix")])
            low, high = every.min(), every.max()
            wanted.append(np.mean((np.array(SCORES[name, f"matrix/{game}"]) - low) / (high - low)))
        assert point(found) == pytest.approx(np.mean(wanted), abs=6e-3)


def test_scores_are_normalised_by_known_levels_only_if_all_tasks_have_them(tmp_path: Path) -> None:
    one = SCALES[: SCALES.index("[[scales]]", 5)]
    assert entries(tmp_path, OVER + one) == entries(tmp_path, OVER) != entries(tmp_path, OVER + SCALES)


def test_levels_of_the_score_are_not_those_of_other_metrics(tmp_path: Path) -> None:
    length = OVER + 'metric = "length"\n'
    assert entries(tmp_path, length + SCALES) == entries(tmp_path, length)


def test_levels_are_observed_in_each_column(tmp_path: Path) -> None:
    """The worst and the best score of each task become 0 and 1; where there is one score alone, it becomes 0."""
    study, cells, _ = studied(tmp_path, OVER.replace("where = { gamma = 0.9 }", 'columns = "gamma"'))
    scores = {0.9: {"mappo": (0.0, 4.0), "qmix": (1.0, 3.0)}, 0.99: {"mappo": (10.0, 10.0), "qmix": (10.0, 10.0)}}
    records = {cell.name: made_record(cell, scores[cell.values["gamma"]][cell.algorithm]) for cell in cells}
    _, _, mappo, qmix = rows_of(markdown_page(study, cells, records), "## All")
    assert [point(entry) for entry in (*mappo[1:], *qmix[1:])] == [0.5, 0.0, 0.5, 0.0]
    records |= {cell.name: made_record(cell, (2.0, 4.0)) for cell in cells if cell.algorithm == "mappo"}
    _, _, mappo, qmix = rows_of(markdown_page(study, cells, records), "## All")
    wanted = [2 / 3, 1 / 8, 1 / 3, 1.0]
    np.testing.assert_allclose([point(entry) for entry in (*mappo[1:], *qmix[1:])], wanted, atol=6e-3)


def test_where_environments_are_rows_each_has_its_own_observed_range_for_all_algorithms(tmp_path: Path) -> None:
    """Columns are algorithms then: 0 and 1 are each environment's lowest and highest score, not each algorithm's."""
    text = '\n[[tables]]\ntitle = "All"\nrows = "environment"\nover = "gamma"\n'
    study, cells, _ = studied(tmp_path, text)
    height = {"matrix/climbing": 1.0, "matrix/two_step": 100.0}
    scores = {"mappo": np.array([3.0, 5.0]), "qmix": np.array([1.0, 2.0])}
    records = {cell.name: made_record(cell, height[cell.environment] * scores[cell.algorithm]) for cell in cells}
    head, _, *rows = rows_of(markdown_page(study, cells, records), "## All")
    assert head == ["environment", "mappo", "qmix"]
    assert [[row[0], *map(point, row[1:])] for row in rows] == [[game, 0.75, 0.12] for game in height]


def test_where_less_is_better_the_lowest_observed_score_becomes_1(tmp_path: Path) -> None:
    less = '\n[primary]\nmetric = "score"\nfloor = 10\nceiling = 0\n'
    table = OVER + 'statistic = ["mean", "optimality_gap"]\n'
    _, _, *more = entries(tmp_path, table)
    _, _, *rows = entries(tmp_path, less + table)
    for (name, mean, gap), (_, other, _) in zip(rows, more, strict=True):
        assert point(mean) == pytest.approx(1 - point(other), abs=0.02), name
        assert point(gap) == pytest.approx(1 - point(mean), abs=0.02), name
    assert "normalised by the worst and best score of a seed" in markdown_page(*studied(tmp_path, less + table))
    text = table + table.replace("mean", "improvement") + 'baseline = { algorithm = "qmix" }\n'
    text = text.replace(', "optimality_gap"', "")
    said = "Probability of improvement over algorithm qmix:"
    more_often, less_often = (point(entries(tmp_path, part + text, said)[2][1]) for part in ("", less))
    assert less_often == pytest.approx(1 - more_often, abs=0.02) and more_often > 0.6


@pytest.mark.parametrize("ends", ["", "floor = 0\nceiling = 10", "floor = 10\nceiling = 0"])
def test_equal_observed_scores_become_0(tmp_path: Path, ends: str) -> None:
    """As all are the worst; also where less is better."""
    primary = f'\n[primary]\nmetric = "score"\n{ends}\n'
    study, cells, _ = studied(tmp_path, primary + OVER + 'statistic = ["mean", "optimality_gap"]\n')
    records = {cell.name: made_record(cell, (3.0,) * 5) for cell in cells}
    _, _, *rows = rows_of(markdown_page(study, cells, records), "## All")
    assert [[point(entry) for entry in row[1:]] for row in rows] == [[0.0, 1.0]] * 2


def test_one_task_is_normalised_where_that_is_asked_for(tmp_path: Path) -> None:
    text = '\n[[tables]]\ntitle = "All"\nrows = "algorithm"\nwhere = { gamma = 0.9 }\nscale = "known"\n' + SCALES
    for name, *found in entries(tmp_path, text)[2:]:
        np.testing.assert_allclose([point(entry) for entry in found], scaled(name).mean(1), atol=6e-3)


ONE = '\n[[tables]]\ntitle = "All"\nrows = "algorithm"\nwhere = { gamma = 0.9 }\n'


def test_the_share_of_seeds_that_reach_the_best_score(tmp_path: Path) -> None:
    """One seed of MAPPO has the best score of two_step; 5 of 5 and 0 of 5 would leave out a share of 0.48."""
    _, _, mappo, qmix = entries(tmp_path, ONE + 'statistic = "solved"\nscale = "known"\n' + SCALES)
    assert [point(entry) for entry in (*mappo[1:], *qmix[1:])] == [0.0, 0.2, 0.0, 0.0]
    assert ends(mappo[1]) == [0.0, 0.52] and ends(mappo[2]) == [0.01, 0.72]
    both = entries(tmp_path, OVER + 'statistic = "solved"\nscale = "known"\n' + SCALES)
    assert [point(found) for _, found in both[2:]] == [0.1, 0.0]


def test_values_stand_once_on_a_page(tmp_path: Path) -> None:
    rows = 'rows = ["algorithm", "gamma"]\ncolumns = "environment"\n'
    text = "".join(
        f'\n[[tables]]\ntitle = "Less {one}"\n{rows}baseline = {{ {axis} = {value} }}\n'
        for one, axis, value in [("QMIX", "algorithm", '"qmix"'), ("short", "gamma", 0.9)]
    )
    page = markdown_page(*studied(tmp_path, text))
    _, first, second = page.partition("## Runs")[0].split("## Less ")
    assert "Mean of the score" in first and "Difference from algorithm qmix:" in first
    assert second.startswith('short\n\nThe values are those of "Less QMIX" above.\n\nDifference from gamma 0.9:')
    assert "Mean of the score" not in second and "| mappo " in second


def test_a_difference_of_shares_of_seeds_has_an_interval(tmp_path: Path) -> None:
    """Also where all seeds of one have the best score and none of the other; not of a single seed."""
    text = ONE + 'statistic = "solved"\nscale = "known"\nbaseline = { algorithm = "qmix" }\n' + SCALES
    study, cells, records = studied(tmp_path, text)
    for seeds in (5, 1):
        for cell in cells:
            records[cell.name] = made_record(cell, (10.0,) * (seeds if cell.algorithm == "mappo" else 5))
            if cell.algorithm == "qmix":
                records[cell.name] = made_record(cell, (0.0,) * 5)
        page = markdown_page(study, cells, records)
        found = rows_of(page, "Difference from algorithm qmix:")[2][1].removesuffix(" †")
        if seeds == 5:
            assert point(found) == 1.0 and ends(found) == pytest.approx([1 - 0.5218 * 2**0.5, 1.0], abs=6e-3)
        else:
            assert found.startswith("1") and "[" not in found
            assert "[95% interval over 1 seed or 95% interval over 5 seeds]" in page, "exact, also of one seed"


def test_pairs_of_episodes_leave_out_those_that_one_does_not_know(tmp_path: Path) -> None:
    text = ONE + 'metric = "won"\nbaseline = { algorithm = "qmix" }\npaired = true\n'
    path = write_study_file(tmp_path, GRID.replace("seeds = 2", "seeds = 1") + text)
    cells, records = cells_of(path), {}
    rng, shared = np.random.default_rng(0), np.random.default_rng(1).random(256)
    for cell in cells:
        won = (shared + (0.1 if cell.algorithm == "mappo" else 0.0)).tolist()
        won[int(rng.integers(256))] = None
        record = made_record(cell, (0.0,))
        records[cell.name] = replace(record, evaluation=record.evaluation | {"metrics": {"won": [won]}})
    page = markdown_page(read_study(path), cells, records)
    found = rows_of(page, "Difference from algorithm qmix, by pairs of equal episodes:")[2][1].removesuffix(" †")
    assert point(found) == 10.0 and ends(found) == [10.0, 10.0], "each episode differs by as much"


def test_differences_by_pairs_of_seeds(tmp_path: Path) -> None:
    """In climbing every seed of MAPPO is better than the same seed of QMIX, though not than all of QMIX's."""
    text = ONE + 'baseline = { algorithm = "qmix" }\n'
    said = "Difference from algorithm qmix"
    apart = entries(tmp_path, text, f"{said}:")
    study, cells, records = studied(tmp_path, text + "paired = true\n")
    paired = rows_of(markdown_page(study, cells, records), f"{said}, by pairs of equal seeds:")
    assert point(apart[2][1]) == point(paired[2][1]) and ends(apart[2][1])[0] < 0 < ends(paired[2][1])[0]
    each = np.subtract(SCORES["mappo", "matrix/climbing"], SCORES["qmix", "matrix/climbing"])
    np.testing.assert_allclose(ends(paired[2][1]), interval(each)[1:], atol=0.05)
    for cell in cells:
        if cell.algorithm == "mappo":
            run = records[cell.name].run
            other = run | {"settings": run["settings"] | {"seed": 7}}
            records[cell.name] = replace(records[cell.name], run=other)
    assert rows_of(markdown_page(study, cells, records), f"{said}, by pairs of equal seeds:")[2][1].startswith("–")


def test_a_fall_is_a_share_of_the_distance_between_worst_and_best(tmp_path: Path) -> None:
    """Falls of 0.8 are 0.08 in one task and 0.4 in the other; where less is better it is a rise, of 1.8 on average."""
    less = SCALES.replace("worst = 0\nbest = 10", "worst = 10\nbest = 0")
    both = less.replace("worst = 0\nbest = 2", "worst = 2\nbest = 0")
    fall, rise = (f"largest {what} of the learning curve" for what in ("fall", "rise"))
    for scales, wanted, said in (
        (SCALES, 0.24, fall),
        (less, (0.18 + 0.4) / 2, f"{fall} and, where less is better, {rise}"),
        (both, (0.18 + 0.9) / 2, rise),
    ):
        table = OVER + 'statistic = "drop"\n' + scales
        _, _, *rows = entries(tmp_path, table, curve=CURVE)
        assert [point(found) for _, found in rows] == pytest.approx([wanted, wanted], abs=6e-3)
        page = markdown_page(*studied(tmp_path, table, curve=CURVE))
        assert "normalised by the worst and best" in page and f"\nL{said[1:]} of the score" in page


def test_entries_with_other_tasks_have_no_difference(tmp_path: Path) -> None:
    text = OVER + 'baseline = { algorithm = "qmix" }\n' + SCALES
    left_out = '[[exclude]]\nalgorithm = "mappo"\nenvironment = "matrix/two_step"\n'
    assert entries(tmp_path, text, "Difference from algorithm qmix:")[2][1] != "–"
    assert entries(tmp_path, text + left_out, "Difference from algorithm qmix:")[2][1] == "–"


def test_entries_of_an_environment_have_the_same_decimals(tmp_path: Path) -> None:
    """Also those of a family, where environments are rows; no other entry decides about them."""
    table = '\n[[tables]]\ntitle = "All"\nrows = {}\ncolumns = {}\nwhere = {{ gamma = 0.9 }}\n'
    names = '"algorithm"', '"environment"'
    _, _, *rows = entries(tmp_path, table.format(*names))
    each = [[{len(x.partition(".")[2]) for x in re.findall(r"[\d.]+", entry)} for entry in row[1:]] for row in rows]
    assert each == [[{1}, {2}], [{1}, {2}]]  # half-widths are 3 or more in climbing, and below 1 in two_step
    found = entries(tmp_path, table.format(*names[::-1]))[2:]
    assert {len(x.partition(".")[2]) for row in found for entry in row[1:] for x in re.findall(r"[\d.]+", entry)} == {2}


def test_episodes_of_one_seed_are_no_seeds(tmp_path: Path) -> None:
    """Only in a mean over one task the samples of a single seed are its episodes."""
    table = '\n[[tables]]\ntitle = "{}"\nrows = "algorithm"\n{}where = {{ gamma = 0.9, environment = {} }}\n'
    both, one = '["matrix/climbing", "matrix/two_step"]', '"matrix/climbing"'
    text = table.format("All", 'over = "environment"\nscale = "raw"\nstatistic = "iqm"\n', both)
    text += table.format("One", "", one) + 'baseline = { algorithm = "qmix" }\n'
    path = write_study_file(tmp_path, GRID.replace("seeds = 2", "seeds = 1") + text)
    cells, records = cells_of(path), {}
    for cell in cells:
        record = made_record(cell, (0.0,))
        scores = np.zeros((1, cell.evaluation.episodes))
        scores[0, :64] = 1.0  # a quarter of 256 episodes
        records[cell.name] = replace(record, evaluation=record.evaluation | {"scores": scores.tolist()})
    page = markdown_page(read_study(path), cells, records)
    assert [row[1] for row in rows_of(page, "## All")[2:]] == ["0.2500", "0.2500"]
    assert all(row[1].startswith("0.25") and "[" in row[1] for row in rows_of(page, "## One")[2:4])
    assert "[" in rows_of(page, "Difference from algorithm qmix:")[2][1], "both have episodes of one seed"
    mappo = next(name for name in records if name.startswith("mappo-matrix-climbing-gamma-0.9-"))
    records[mappo] = made_record(next(cell for cell in cells if cell.name == mappo), (0.2, 0.4, 0.6))
    found = rows_of(markdown_page(read_study(path), cells, records), "Difference from algorithm qmix:")[2][1]
    assert found == "0.1500 †", "one seed beside three has no interval"


def test_rows_and_pairs_of_different_tasks_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = '["matrix/climbing", "matrix/two_step"]', '["matrix/climbing", "matrix/two_step", "matrix/penalty"]'
    figure = '\n[[figures]]\nkind = "improvement"\nover = "environment"\nwhere = { gamma = 0.9 }\n'
    figure += "".join(figure.replace("improvement", kind) + 'scale = "raw"\n' for kind in ("profiles", "estimates"))
    out = '[[exclude]]\nalgorithm = "{}"\nenvironment = "matrix/{}"\n'
    text = OVER + 'scale = "raw"\n' + figure
    grid = (GRID.replace("seeds = 2", "seeds = 5") + text).replace(*wide)
    drawn: list[Any] = []
    original = charts.improvement
    monkeypatch.setattr(charts, "improvement", lambda pairs: (drawn.append(pairs), original(pairs))[1])
    for excluded in ("", out.format("mappo", "two_step") + out.format("qmix", "penalty")):
        path = write_study_file(tmp_path, grid + excluded)
        cells = cells_of(path)
        records = {cell.name: made_record(cell, (1.0, 2.0, 3.0, 4.0, 5.0)) for cell in cells}
        study = read_study(path)
        page = markdown_page(study, cells, records)
        assert ("Not all rows have the same tasks" in page) == bool(excluded)
        found = studies_charts.charts_of(study, cells, records)
        said = ["Not all lines have the same tasks" in chart.note for chart in found]
        assert said == ([True, True] if excluded else [False, False, False]), "no pair is left"
    assert [list(pairs) for pairs in drawn] == [[("mappo", "qmix")]], "each pair has its own tasks alone"


def test_raw_scores_are_not_normalised(tmp_path: Path) -> None:
    _, _, *rows = entries(tmp_path, OVER + 'scale = "raw"\n' + SCALES)
    for name, found in rows:
        wanted = np.mean([np.mean(SCORES[name, f"matrix/{game}"]) for game in ("climbing", "two_step")])
        assert point(found) == pytest.approx(wanted, abs=0.06)


def test_improvement_counts_pairs_of_seeds(tmp_path: Path) -> None:
    text = OVER + 'statistic = "improvement"\nbaseline = { algorithm = "qmix" }\n'
    _, _, *rows = entries(tmp_path, text, "Probability of improvement over algorithm qmix:")
    shares = [
        np.mean([(a > b) + 0.5 * (a == b) for a, b in itertools.product(x, y)])
        for x, y in zip(scaled("mappo"), scaled("qmix"), strict=True)
    ]
    assert [name for name, _ in rows] == ["mappo"]
    assert point(rows[0][1]) == pytest.approx(np.mean(shares), abs=6e-3)
    assert 0 <= ends(rows[0][1])[0] < ends(rows[0][1])[1] <= 1


def test_where_less_is_better_it_is_an_improvement(tmp_path: Path) -> None:
    text = 'statistic = "improvement"\nbaseline = { algorithm = "qmix" }\n'
    said = "Probability of improvement over algorithm qmix:"
    less = SCALES.replace("worst = 0\nbest = 10", "worst = 10\nbest = 0")
    higher = [point(entry) for entry in entries(tmp_path, ONE + text + SCALES, said)[2][1:]]
    lower = [point(entry) for entry in entries(tmp_path, ONE + text + less, said)[2][1:]]
    assert lower == pytest.approx([1 - higher[0], higher[1]]) and higher[0] > 0.5
    assert point(entries(tmp_path, OVER + text + less, said)[2][1]) == pytest.approx(np.mean(lower), abs=6e-3)
    study, cells, records = studied(tmp_path, ONE + 'metric = "lost"\n' + text)
    for cell in cells:
        found = records[cell.name].evaluation
        lost = [[0.1 if cell.algorithm == "mappo" else 0.2] * found["episodes"]] * 5
        records[cell.name] = replace(records[cell.name], evaluation=found | {"metrics": {"lost": lost}})
    assert [point(entry) for entry in rows_of(markdown_page(study, cells, records), said)[2][1:]] == [1.0, 1.0]


def test_only_shown_values_are_said_to_be_normalised(tmp_path: Path) -> None:
    text = OVER + 'statistic = "improvement"\nbaseline = { algorithm = "qmix" }\n' + SCALES
    figure = FIGURE.format("improvement") + 'over = "environment"\n'
    study, cells, records = studied(tmp_path, text + figure)
    page = markdown_page(study, cells, records)
    assert (
        "Probability of improvement of the score [95% stratified bootstrap interval over 5 seeds of 2 tasks]." in page
    )
    assert "normalised" not in page
    (chart,) = studies_charts.charts_of(study, cells, records)
    assert chart.note.endswith("scores higher than one of the second; bars: 95% intervals.")


def test_a_caption_promises_only_intervals_that_are_there(tmp_path: Path) -> None:
    """Of one seed only a mean over one task has an interval, over episodes; a curve has no band."""
    text = "".join(f'{ONE}statistic = "{name}"\n' for name in ("mean", "area", "drop", "iqm", "median"))
    study, cells, records = studied(
        tmp_path, text + "".join(FIGURE.format(kind) for kind in ("curves", "profiles", "estimates")), curve=CURVE
    )
    for cell in cells:
        if cell.environment == "matrix/climbing":
            curve = {"step": [32, 64], "score": [[1.0], [0.5]]}
            records[cell.name] = replace(made_record(cell, (1.0,)), curve=curve)
    page = markdown_page(study, cells, records)
    assert "Mean of the score [95% interval over the episodes of 1 seed or 95% interval over 5 seeds]." in page
    assert page.count("[95% interval over 5 seeds].") == 4
    notes = {one.name.removeprefix("demo-"): one.note for one in studies_charts.charts_of(study, cells, records)}
    explores = " Episodes of training, which explores."
    assert notes["1-matrix-climbing"] == "Mean of the score." + explores
    assert notes["1-matrix-two_step"] == "Mean of the score; bands: 95% interval over 5 seeds." + explores
    assert notes["2-matrix-climbing"] == "Share of the seeds whose score exceeds τ, mean over tasks."
    assert notes["2-matrix-two_step"].endswith("; bands: 95% stratified bootstrap intervals.")
    assert notes["3-matrix-climbing"] == "Of the score; bars: 95% interval over the episodes of 1 seed."
    assert notes["3-matrix-two_step"] == "Of the score; bars: 95% interval over 5 seeds."
    one = [cell for cell in cells if cell.environment == "matrix/climbing"]
    page = markdown_page(study, one, records)
    assert "Mean height of the learning curve of the score." in page and "Interquartile mean of the score." in page
    assert "episodes of 1 seed" in page


def test_a_difference_of_interquartile_means(tmp_path: Path) -> None:
    text = OVER + 'statistic = "iqm"\nbaseline = { algorithm = "qmix" }\n' + SCALES
    _, _, row = entries(tmp_path, text, "Difference from algorithm qmix:")
    middle = [np.sort(scaled(name).ravel())[2:-2].mean() for name in ("mappo", "qmix")]
    assert point(row[1]) == pytest.approx(middle[0] - middle[1], abs=6e-3)
    assert ends(row[1])[0] < point(row[1]) < ends(row[1])[1]


def test_statistics_of_the_learning_curve(tmp_path: Path) -> None:
    table = '\n[[tables]]\ntitle = "{0}"\nrows = "algorithm"\nwhere = {{ gamma = 0.9 }}\nstatistic = "{0}"\n'
    text = table.format("drop") + table.format("area")
    _, _, *rows = entries(tmp_path, text, "## drop", curve=CURVE)
    falls = [2.0, 1.0, 0.0, 0.0, 1.0]
    assert point(rows[0][1]) == pytest.approx(np.mean(falls), abs=6e-3)
    heights = [(1 + 2 * x + 2) / 4 for x in (4, 3, 2, 1, 0)]
    _, _, *rows = entries(tmp_path, text, "## area", curve=CURVE)
    assert point(rows[0][1]) == pytest.approx(np.mean(heights), abs=6e-3)
    better = {"step": [32, 96], "score": [[0.0] * 5, [8.0] * 5]}
    _, _, *rows = entries(tmp_path, text, "## area", curve=CURVE, evaluations=better)
    assert point(rows[0][1]) == 4.0  # greedy evaluations, where there are any


def test_curves_of_evaluations_and_of_training_are_told_apart(tmp_path: Path) -> None:
    where = 'where = { gamma = 0.9, environment = "matrix/climbing" }\n'
    text = f'\n[[tables]]\nrows = "algorithm"\n{where}statistic = "area"\n\n[[figures]]\nkind = "curves"\n{where}'
    study, cells, records = studied(tmp_path, text, curve=CURVE)
    mixed = "Curves of some runs are of evaluations"

    def said() -> list[bool]:
        ((note,),) = [[chart.note] for chart in studies_charts.charts_of(study, cells, records)]
        return [one in text for text in (markdown_page(study, cells, records), note) for one in (mixed, "Greedy")]

    assert said() == [False, False, False, False]
    for cell in cells:
        if cell.algorithm == "qmix":
            records[cell.name] = replace(records[cell.name], evaluations=CURVE)
    assert said() == [True, False, True, False]
    records = {name: replace(one, evaluations=CURVE) for name, one in records.items()}
    assert said() == [False, False, False, True]


def test_a_metric_of_training(tmp_path: Path) -> None:
    text = '\n[record]\nmetrics = "grad"\n[[tables]]\ntitle = "All"\nwhere = { gamma = 0.9 }\nmetric = "train/grad"\n'
    _, _, *rows = entries(tmp_path, text, curve=CURVE | {"grad": [[1.0] * 5, [2.0] * 5, [6.0, 6, 6, 6, None]]})
    assert point(rows[0][1]) == pytest.approx(np.mean([3, 3, 3, 3, 1.5]), abs=6e-3)
    assert [row[1:] for row in entries(tmp_path, text)[2:]] == [["–", "–"]] * 2  # these records lack it


def test_an_entry_is_over_all_seeds_or_there_is_none(tmp_path: Path) -> None:
    text = '\n[[tables]]\ntitle = "All"\nwhere = { gamma = 0.9 }\nmetric = "won"\n'
    study, cells, records = studied(tmp_path, text)
    for i, cell in enumerate(cells):
        found = records[cell.name].evaluation
        won = [[x] * found["episodes"] for x in (1.0, 0.0, 1.0, 1.0, None if i else 1.0)]
        records[cell.name] = replace(records[cell.name], evaluation=found | {"metrics": {"won": won}})
    _, _, *rows = rows_of(markdown_page(study, cells, records), "## All")
    shown = [entry for row in rows for entry in row[1:]]
    assert shown[0].startswith("80") and set(shown[1:]) == {"–"}, "the last seed is unknown in all but the first"


FIGURE = '\n[[figures]]\nwhere = {{ gamma = 0.9 }}\nkind = "{}"\n'


def test_figures_are_drawn_beside_the_page(tmp_path: Path) -> None:
    over = 'over = "environment"\n'
    text = FIGURE.format("curves") + FIGURE.format("curves") + over + FIGURE.format("profiles") + over
    text += FIGURE.format("estimates") + over + 'statistic = ["iqm", "mean"]\n' + FIGURE.format("improvement") + over
    study, cells, records = studied(tmp_path, text, curve=CURVE)
    drawn = draw_figures(study, cells, records, tmp_path)
    panels = ["demo-1-matrix-climbing.png", "demo-1-matrix-two_step.png"]
    assert list(drawn) == [*panels, *(f"demo-{i}.png" for i in (2, 3, 4, 5))]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in drawn)
    shown = markdown_page(study, cells, records, drawn)
    assert "![Learning curves, matrix/climbing](demo-1-matrix-climbing.png)" in shown
    assert "Episodes of training, which explores." in shown
    one = next(cell.name for cell in cells if (cell.algorithm, cell.values["gamma"]) == ("qmix", 0.9))
    left = {name: record for name, record in records.items() if name != one}
    assert "demo-5.png" not in draw_figures(study, cells, left, tmp_path)  # a comparison with one line is none


def test_pictures_of_names_without_latin_letters_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[[variants]]\nname = "α"\n[[variants]]\nname = "β"\nnum_envs = 4\n[[variants]]\nname = "2"\nnum_envs = 2\n'
    text += '[[figures]]\nkind = "estimates"\nlines = "algorithm"\npanels = "variant"\n'
    study, cells, records = studied(tmp_path, text + 'where = { gamma = 0.9, environment = "matrix/climbing" }\n')
    monkeypatch.setattr(figures, "draw", lambda panels, path: path)
    drawn = draw_figures(study, cells, records, tmp_path)
    titles = {name: one.title for name, one in drawn.items()}
    assert titles == {"demo-1.png": "Scores, α", "demo-1-2.png": "Scores, β", "demo-1-2-2.png": "Scores, 2"}


def test_names_of_metrics_keep_their_upper_case_letters(tmp_path: Path) -> None:
    where = 'metric = "maxTile"\nwhere = { gamma = 0.9 }\n'
    text = f'\n[[tables]]\n{where}\n[[figures]]\nkind = "estimates"\n{where}'
    study, cells, records = studied(tmp_path, text)
    for cell in cells:
        found = records[cell.name].evaluation
        tiles = [[x] * found["episodes"] for x in (1.0, 2.0, 3.0, 4.0, 5.0)]
        records[cell.name] = replace(records[cell.name], evaluation=found | {"metrics": {"maxTile": tiles}})
    assert "## MaxTile by algorithm and environment\n" in markdown_page(study, cells, records)
    assert {one.panels[0].x for one in studies_charts.charts_of(study, cells, records)} == {"Metric maxTile"}


def test_an_axis_of_a_figure_may_be_logarithmic(tmp_path: Path) -> None:
    text = FIGURE.format("curves") + 'vertical = "log"\n' + FIGURE.format("curves") + 'vertical = "symlog"\n'
    study, cells, records = studied(tmp_path, text, curve=CURVE)
    notes = [one.note for one in draw_figures(study, cells, records, tmp_path).values()]
    assert notes[0].endswith(" The vertical axis is logarithmic.")
    assert notes[-1].endswith(" The vertical axis is linear between -1 and 1, and logarithmic beyond.")
    study, cells, records = studied(tmp_path, text, curve=CURVE | {"score": [[0.0] * 5] * 3})
    with pytest.raises(InputError, match=r"demo\.toml: \[\[figures\]\] 1: a logarithmic axis requires positive values"):
        draw_figures(study, cells, records, tmp_path)


def test_curves_of_several_tasks_are_normalised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(figures, "draw", lambda panels, path: shown.extend(panels) or path)
    scales = SCALES.replace("worst = 0", "worst = -2")
    study, cells, records = studied(tmp_path, FIGURE.format("curves") + 'over = "environment"\n' + scales, curve=CURVE)
    draw_figures(study, cells, records, tmp_path)
    line = next(one for one in shown[0].lines if one.name == "mappo")
    assert shown[0].steps and shown[0].x == "Environment steps per seed"
    means = np.mean(CURVE["score"], axis=1)
    assert line.x.tolist() == CURVE["step"]
    np.testing.assert_allclose(line.band.point, ((means + 2) / 12 + (means + 2) / 4) / 2)


def test_tasks_of_other_lengths_are_joined_by_shares_of_a_run(tmp_path: Path) -> None:
    study, cells, records = studied(tmp_path, FIGURE.format("curves") + 'over = "environment"\nscale = "raw"\n')

    def panel(**steps: list[int]) -> Any:
        """Of curves that rise from 0 to 1 between these steps, and of one point at 1."""
        for cell in cells:
            x = steps[cell.environment.partition("/")[2]]
            curve = {"step": x, "score": [[1.0 * i] * 5 for i in range(2 - len(x), 2)]}
            records[cell.name] = replace(records[cell.name], curve=curve)
        ((found,),) = [one.panels for one in studies_charts.charts_of(study, cells, records)]
        return found

    found = panel(climbing=[10, 20], two_step=[60, 200])
    assert not found.steps and found.x == "Share of the steps (%)"
    line = found.lines[0]
    assert line.x[0] == 50 and line.x[-1] == 100 and len(line.x) == 50  # from the share at which both have begun
    np.testing.assert_allclose(line.band.point, ((line.x - 50) / 50 + (2 * line.x - 60) / 140) / 2, atol=1e-12)
    line = panel(climbing=[20], two_step=[60, 200]).lines[0]
    assert line.x.tolist() == [100] and line.band.point.tolist() == [1]
