"""What comparisons decide, by the protocol's rules."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.studies.limits import primary_text
from shoal.studies.study_file import read_study
from shoal.studies.verdicts import Comparison, comparisons_of, verdict_of
from support.small_studies import GRID, cells_of, made_record, write_study_file

TABLE = '\n[[tables]]\nrows = ["algorithm", "gamma"]\nbaseline = { algorithm = "qmix" }\n'
PRIMARY = '\n[primary]\nmetric = "score"\n'
LIMITS = PRIMARY + "floor = 0.0\nceiling = 10.0\n"
LOW, MIDDLE, HIGH = (1.0, 1.2, 1.1, 0.9, 1.0), (4.0, 4.2, 4.1, 3.9, 4.0), (8.0, 8.2, 8.1, 7.9, 8.0)
WIDE = (0.0, 9.0, 1.0, 8.0, 4.0)


@pytest.mark.parametrize(
    ("found", "margin", "sign", "wanted"),
    [
        ((1.0, 0.2, 1.8), 0.0, 1, "better"),
        ((1.0, 0.2, 1.8), 0.0, -1, "worse"),
        ((-1.0, -1.8, -0.2), 0.0, 1, "worse"),
        ((-1.0, -1.8, -0.2), 0.0, -1, "better"),
        ((0.3, 0.2, 0.4), 0.5, 1, "equal"),
        ((0.3, 0.2, 0.6), 0.5, 1, "better"),
        ((0.0, -0.5, 0.5), 0.5, 1, "equal"),
        ((0.0, -0.6, 0.5), 0.5, 1, "undecided"),
        ((0.0, 0.0, 0.0), 0.0, 1, "undecided"),
        ((1.0, math.nan, math.nan), 0.5, 1, "no interval"),
        (None, 0.5, 1, "unknown"),
    ],
)
def test_a_verdict_follows_from_the_interval_and_the_margin(found: Any, margin: float, sign: int, wanted: str) -> None:
    assert verdict_of(found, margin, sign) == wanted


@pytest.mark.parametrize("sign", [1, -1])
def test_without_a_better_direction_a_difference_is_higher_or_lower(sign: int) -> None:
    assert verdict_of((1.0, 0.2, 1.8), 0.0, sign, directed=False) == "higher"
    assert verdict_of((-1.0, -1.8, -0.2), 0.0, sign, directed=False) == "lower"


def compared(folder: Path, text: str, scores: dict[str, Any], left_out: str = "", **changes: Any) -> list[Comparison]:
    """The comparisons of a study whose algorithms have these scores in all tasks."""
    path = write_study_file(folder, GRID.replace("seeds = 2", "seeds = 5").replace(", 0.99]", "]") + text)
    cells = cells_of(path)
    records = {one.name: made_record(one, scores[one.algorithm], **changes) for one in cells if one.name != left_out}
    return comparisons_of(read_study(path), cells, records)


def test_each_row_is_compared_with_the_baseline_in_each_task(tmp_path: Path) -> None:
    found = compared(tmp_path, PRIMARY + TABLE, {"mappo": HIGH, "qmix": LOW})
    assert [(one.what, one.where, one.verdict) for one in found] == [
        ("mappo less qmix (gamma 0.9)", "matrix/climbing", "better"),
        ("mappo less qmix (gamma 0.9)", "matrix/two_step", "better"),
    ]
    for one in found:
        assert one.found is not None and one.found[0] == pytest.approx(np.mean(HIGH) - np.mean(LOW))
        assert one.span == pytest.approx(max(map(abs, one.found))) and [x.algorithm for x in one.cells] == [
            "mappo",
            "qmix",
        ]


def test_equal_settings_need_a_margin(tmp_path: Path) -> None:
    near = tuple(x + 0.1 for x in MIDDLE)
    verdicts = {
        text: {one.verdict for one in compared(tmp_path, text + TABLE, {"mappo": near, "qmix": MIDDLE})}
        for text in (PRIMARY, LIMITS)
    }
    assert verdicts == {PRIMARY: {"undecided"}, LIMITS: {"equal"}}


@pytest.mark.parametrize(("scores", "wanted"), [((0.1,) * 5, "at the floor"), ((9.9,) * 5, "at the ceiling")])
def test_where_all_runs_are_at_a_limit_nothing_is_decided(tmp_path: Path, scores: Any, wanted: str) -> None:
    other = tuple(x + 0.05 for x in scores)
    assert {one.verdict for one in compared(tmp_path, LIMITS + TABLE, {"mappo": other, "qmix": scores})} == {wanted}


def test_lower_is_better_where_the_ceiling_is_below_the_floor(tmp_path: Path) -> None:
    text = PRIMARY + "floor = 10.0\nceiling = 0.0\n" + TABLE
    assert {one.verdict for one in compared(tmp_path, text, {"mappo": HIGH, "qmix": LOW})} == {"worse"}


def test_what_stays_good_is_better_than_what_was_good_before(tmp_path: Path) -> None:
    """Of battles lost the curve's largest rise is compared, of the score its largest fall."""
    stays, spoilt = [[0.9] * 5, [0.1] * 5, [0.1] * 5], [[0.9] * 5, [0.1] * 5, [0.6, 0.7, 0.8, 0.6, 0.7]]
    path = write_study_file(
        tmp_path,
        GRID.replace("seeds = 2", "seeds = 5").replace(", 0.99]", "]")
        + '\n[primary]\nmetric = "lost"\nstatistic = "drop"\n'
        + TABLE
        + 'metric = "lost"\nstatistic = "drop"\n',
    )
    cells, study = cells_of(path), read_study(path)
    for lost, verdict in (((stays, spoilt), "better"), ((spoilt, stays), "worse")):
        of: dict[str, list[list[float]]] = dict(zip(("mappo", "qmix"), lost, strict=True))
        records = {
            one.name: replace(
                made_record(one, HIGH),
                evaluations={"step": [1, 2, 3], "score": of[one.algorithm], "lost": of[one.algorithm]},
            )
            for one in cells
        }
        found = comparisons_of(study, cells, records)
        assert {one.verdict for one in found} == {verdict} and len(found) == 2
        assert found[0].metric == "loss rate, largest rise of the learning curve, in per cent"
        assert abs(found[0].found[0]) == pytest.approx(58.0)  # type: ignore[index]
        assert primary_text(study, cells) == "largest rise of the learning curve of the loss rate, in per cent"


def test_missing_runs_have_no_difference(tmp_path: Path) -> None:
    path = write_study_file(tmp_path, GRID.replace("seeds = 2", "seeds = 5").replace(", 0.99]", "]") + PRIMARY + TABLE)
    first = next(one for one in cells_of(path) if one.algorithm == "qmix")
    found = compared(tmp_path, PRIMARY + TABLE, {"mappo": HIGH, "qmix": LOW}, left_out=first.name)
    assert [(one.where, one.verdict, one.found is None) for one in found] == [
        (first.environment, "missing", True),
        (next(one.where for one in found if one.where != first.environment), "better", False),
    ]


@pytest.mark.parametrize("text", [PRIMARY, LIMITS])
def test_one_seed_decides_nothing_although_its_episodes_have_an_interval(tmp_path: Path, text: str) -> None:
    found = compared(tmp_path, text + TABLE, {"mappo": HIGH[:1], "qmix": LOW[:1]})
    assert {one.verdict for one in found} == {"one seed"}
    assert all(one.found == pytest.approx((7.0, 7.0, 7.0)) for one in found), "as on the study's page"


def test_only_the_primary_metric_decides(tmp_path: Path) -> None:
    other = TABLE + 'metric = "length"\n[[tables]]\n'
    assert compared(tmp_path, PRIMARY + other, {"mappo": HIGH, "qmix": LOW}) == []
    assert len(compared(tmp_path, PRIMARY + TABLE + TABLE, {"mappo": HIGH, "qmix": LOW})) == 2, "each once"


OVER = TABLE + 'over = "environment"\nstatistic = ["iqm", "improvement"]\n'


def scales(worst: float, best: float) -> str:
    where = '[[scales]]\nenvironment = ["matrix/climbing", "matrix/two_step"]\n'
    return f'{where}worst = {worst}\nbest = {best}\nsource = "S"\n'


def test_tasks_are_aggregated_where_the_table_does_so(tmp_path: Path) -> None:
    more = OVER.replace("improvement", "mean")  # the interquartile mean decides also where the mean is listed
    for table in (OVER, more):
        (one,) = compared(tmp_path, PRIMARY + table + "[[tables]]\n", {"mappo": HIGH, "qmix": LOW})
        assert (one.where, one.verdict, one.metric) == ("2 tasks", "better", "score, interquartile mean, normalised")
    assert one.margin == 0.0, "observed scores are no limits"
    assert len(one.cells) == 4


@pytest.mark.parametrize(("worst", "best", "wanted"), [(0.0, 10.0, "better"), (10.0, 0.0, "worse")])
def test_known_worst_and_best_scores_say_what_is_better(tmp_path: Path, worst: float, best: float, wanted: str) -> None:
    text = PRIMARY + OVER + "[[tables]]\n" + scales(worst, best)
    (one,) = compared(tmp_path, text, {"mappo": HIGH, "qmix": LOW})
    assert (one.verdict, one.margin) == (wanted, 0.05)
    raw = compared(tmp_path, PRIMARY + TABLE + scales(worst, best), {"mappo": HIGH, "qmix": LOW})
    assert {(one.verdict, one.margin) for one in raw} == {(wanted, 0.5)}


@pytest.mark.parametrize(("floor", "ceiling", "wanted"), [(0.0, 10.0, "better"), (10.0, 0.0, "worse")])
def test_a_table_over_tasks_has_the_direction_of_each_task(
    tmp_path: Path, floor: float, ceiling: float, wanted: str
) -> None:
    limits = f"{PRIMARY}floor = {floor}\nceiling = {ceiling}\n"
    for table in (TABLE, OVER + "[[tables]]\n"):
        found = compared(tmp_path, limits + table, {"mappo": HIGH, "qmix": LOW})
        assert {one.verdict for one in found} == {wanted}, table


def test_of_two_tables_of_the_same_runs_one_with_a_difference_counts(tmp_path: Path) -> None:
    text = PRIMARY + TABLE + "paired = true\n" + TABLE + '[[overrides]]\nwhere = { algorithm = "mappo" }\nseed = 7\n'
    found = compared(tmp_path, text, {"mappo": HIGH, "qmix": LOW})
    assert [one.verdict for one in found] == ["higher" if one.margin else "better" for one in found] and len(found) == 2


def test_metrics_without_a_better_direction_are_higher_or_lower(tmp_path: Path) -> None:
    """Also where they are normalised."""
    text = '\n[primary]\nmetric = "length"\n' + TABLE + 'metric = "length"\n'
    text += OVER + 'metric = "length"\n'
    path = write_study_file(tmp_path, GRID.replace("seeds = 2", "seeds = 5").replace(", 0.99]", "]") + text)
    cells = cells_of(path)
    records = {}
    for cell in cells:
        record = made_record(cell, LOW)
        long = np.repeat(np.array(HIGH if cell.algorithm == "mappo" else LOW)[:, None], cell.evaluation.episodes, 1)
        records[cell.name] = replace(record, evaluation=record.evaluation | {"lengths": long.tolist()})
    assert {one.verdict for one in comparisons_of(read_study(path), cells, records)} == {"higher"}


def test_axes_that_rows_do_not_name_are_named(tmp_path: Path) -> None:
    columns = (
        '\n[[tables]]\nrows = "algorithm"\ncolumns = ["environment", "gamma"]\nbaseline = { algorithm = "qmix" }\n'
    )
    path = write_study_file(tmp_path, GRID.replace("seeds = 2", "seeds = 5") + PRIMARY + columns)
    found = comparisons_of(read_study(path), cells_of(path), {})
    assert [one.where for one in found] == [
        f"matrix/{game}, gamma {gamma}" for game in ("climbing", "two_step") for gamma in (0.9, 0.99)
    ]
    fixed = TABLE.replace('rows = ["algorithm", "gamma"]', 'where = { gamma = 0.99 }\nrows = "algorithm"')
    path = write_study_file(tmp_path, GRID + PRIMARY + fixed)
    assert {one.where.partition(", ")[2] for one in comparisons_of(read_study(path), cells_of(path), {})} == {
        "gamma 0.99"
    }


def test_rows_of_one_algorithm_name_it(tmp_path: Path) -> None:
    table = '\n[[tables]]\nrows = "gamma"\nwhere = { algorithm = "mappo" }\nbaseline = { gamma = 0.9 }\n'
    path = write_study_file(tmp_path, GRID + PRIMARY + table)
    assert {one.what for one in comparisons_of(read_study(path), cells_of(path), {})} == {
        "gamma 0.99 less gamma 0.9 (mappo)"
    }


def test_runs_that_cannot_be_compared_are_unknown(tmp_path: Path) -> None:
    """Pairs of seeds need equal seeds."""
    text = GRID.replace("seeds = 2", "seeds = 5").replace(", 0.99]", "]") + PRIMARY + TABLE + "paired = true\n"
    path = write_study_file(tmp_path, text + '[[overrides]]\nwhere = { algorithm = "mappo" }\nseed = 7\n')
    cells = cells_of(path)
    records = {cell.name: made_record(cell, HIGH) for cell in cells}
    assert {(one.verdict, one.found) for one in comparisons_of(read_study(path), cells, records)} == {("unknown", None)}


def test_wide_intervals_decide_nothing_and_stale_records_are_marked(tmp_path: Path) -> None:
    found = compared(
        tmp_path, LIMITS + TABLE, {"mappo": WIDE, "qmix": MIDDLE}, behaviour={"algorithm": 0, "environment": 1}
    )
    assert [(one.verdict, one.stale) for one in found] == [("undecided", True)] * 2
