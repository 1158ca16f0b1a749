"""Figures of statistics show their algorithms, bands and intervals."""

import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shoal.errors import InputError, WriteError
from shoal.plots import charts, figures
from shoal.plots.charts import Vertical
from shoal.plots.figures import PALETTE
from shoal.reporting.charts import lines_data
from shoal.statistics.scores import Band

STEPS = np.linspace(0, 4e6, 9)
POINT = np.linspace(0.2, 0.9, 9)
WIDE = Band(POINT, POINT - 0.1, POINT + 0.1)
NONE = Band(POINT[::-1], np.full(9, np.nan), np.full(9, np.nan))


def count(path: Path, colour: str, share: float = 1.0) -> int:
    """Pixels of a colour laid on white with that share."""
    with Image.open(path) as image:
        picture = np.asarray(image.convert("RGB")).astype(int)
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.abs(picture - (255 + share * (rgb - 255))).max(axis=2) <= 2).sum())


@pytest.mark.parametrize("chart", [charts.efficiency, charts.profiles])
def test_lines_have_bands_where_these_are_known(chart, tmp_path: Path) -> None:
    path = figures.draw([chart({"A": (STEPS, WIDE), "B": (STEPS, NONE)})], tmp_path / "lines.png", "Two")
    assert path == tmp_path / "lines.png"
    assert count(path, PALETTE[0]) > 2000 and count(path, PALETTE[1]) > 2000
    assert count(path, PALETTE[0], 0.18) > 20_000 and count(path, PALETTE[1], 0.18) < 1000
    assert count(path, PALETTE[2]) == 0


@pytest.mark.parametrize("stacked", [False, True])
def test_a_legend_of_many_lines_covers_none(stacked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: found.append(figure))
    lines = charts.efficiency({f"method {i} of a long name, 1 seed": (STEPS, NONE) for i in range(12)})
    (figures.draw_stacked if stacked else figures.draw)([lines], tmp_path / "a.png")
    (figure,) = found
    figure.draw_without_rendering()
    (legend,), (axes,) = figure.legends, figure.axes
    box, whole = legend.get_window_extent(), figure.bbox
    assert not box.overlaps(axes.get_tightbbox()) and axes.bbox.height > 0.4 * whole.height
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1 and whole.y0 <= box.y0


NAMES = {
    "folders": [f"mappo-mpe-simple_spread-20251128-01530{i}" for i in range(2)],
    "settings": [f"mappo, entropy_coef 0.0{i}, gamma 0.9{i}, learning_rate 0.00{i}" for i in range(3)],
    "long": [f"{i}_{'a_name_of_flags_' * 11}" for i in range(3)],
}


@pytest.mark.filterwarnings("error:constrained_layout not applied")
@pytest.mark.parametrize("kind", ["stacked", "beside", "statistics"])
@pytest.mark.parametrize("length", NAMES)
def test_long_names_leave_room(length: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cut or covered, and panels stay wide."""
    found: list[Any] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: found.append(figure))
    names, score = NAMES[length], (0.7, 0.5, 0.9)
    lines = charts.efficiency(dict.fromkeys(names, (STEPS, NONE)), "IQM of return, evaluated")
    if kind == "stacked":
        figures.draw_stacked([lines], tmp_path / "a.png", names[0])
    elif kind == "beside":
        profiles = charts.profiles(dict.fromkeys(names, (STEPS / 4e6, WIDE)), "Final return τ")
        pairs = {(x, y): score for i, x in enumerate(names) for y in names[i + 1 :]}
        figures.draw([lines, profiles, charts.improvement(pairs)], tmp_path / "a.png")
    else:
        each = dict.fromkeys(names, score)
        figures.draw(charts.estimates({"IQM": each, "Mean": each}), tmp_path / "a.png")
    (figure,) = found
    figure.draw_without_rendering()
    whole, boxes = figure.bbox, [axes.get_tightbbox() for axes in figure.axes]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    for box in boxes:
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1 and whole.y0 <= box.y0 < box.y1 <= whole.y1
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(axes.bbox.width > 1.5 * figure.dpi and axes.bbox.height > 0.6 * figure.dpi for axes in figure.axes)


def test_points_between_unknown_ones_are_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are not, since the line passes through them."""
    found: list[Any] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: found.append(figure))
    known = np.array([1, 0, 1, 1, 0, 1, 0, 0, 1], bool)
    points = {"A": np.where(known, POINT, np.nan), "B": POINT}
    lines = {name: (STEPS, Band(point, *NONE[1:])) for name, point in points.items()}
    figures.draw([charts.efficiency(lines)], tmp_path / "a.png")
    some, none = found[0].axes[0].lines
    assert some.get_marker() == "o" and some.get_markevery() == [0, 5, 8] and none.get_marker() == "None"


@pytest.mark.parametrize("number", [2, 7])
def test_lines_of_each_panel_have_names(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels with the names of the first do not repeat them."""
    found: list[Any] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: found.append(figure))
    lines = [[charts.Line(f"{i}: {what}", STEPS, NONE) for i in range(number)] for what in ("5 seeds", "1 seed")]
    panels = [charts.learning_curves(each, "return") for each in (*lines, lines[0])]
    figures.draw_stacked(panels, tmp_path / "a.png")
    names = [[line.name for line in each] for each in lines]
    legends = [axes.get_legend() for axes in found[0].axes]
    texts = [[text.get_text() for text in one.get_texts()] for one in (*legends, *found[0].legends) if one]
    assert texts == (names if number < 6 else [[*names[0], *names[1]]])


def test_a_logarithmic_axis_shows_what_a_linear_one_hides(tmp_path: Path) -> None:
    """A value that grows by a constant factor is a straight line."""

    def middle(vertical: Vertical, low: float) -> float:
        """The mean height of the line in the figure: 0 at the bottom, 1 at the top."""
        point = np.geomspace(low, low * 1e8, 9)
        chart = charts.efficiency({"A": (STEPS, Band(point, point, point))}, vertical=vertical)
        path = figures.draw([chart], tmp_path / "a.png")
        with Image.open(path) as image:
            picture = np.asarray(image.convert("RGB")).astype(int)
        blue = [int(PALETTE[0][i : i + 2], 16) for i in (1, 3, 5)]
        columns = [np.flatnonzero(column) for column in (np.abs(picture - blue).max(axis=2) <= 2).T]
        return 1 - float(np.mean([rows.mean() for rows in columns if rows.size])) / len(picture)

    assert middle("linear", 1e-4) < 0.35  # on the bottom until its end
    assert 0.45 < middle("log", 1e-4) < 0.65
    assert 0.45 < middle("symlog", 1.0) < 0.65


def test_a_logarithmic_axis_needs_positive_values() -> None:
    """Also of the bands; those that are unknown do not matter."""
    below = Band(POINT, POINT - 0.2, POINT)
    with pytest.raises(InputError, match="but 'B' with its band reaches 0; use symlog, which is linear"):
        charts.efficiency({"A": (STEPS, WIDE), "B": (STEPS, below)}, vertical="log")
    charts.efficiency({"A": (STEPS, NONE)}, vertical="log")
    charts.efficiency({"A": (STEPS, below)}, vertical="symlog")


@pytest.mark.parametrize("vertical", ["linear", "log", "symlog"])
def test_names_of_reference_values_stand_beside_their_lines(
    vertical: Vertical, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On each scale, where the lines are far enough apart."""
    found: list[Any] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: found.append(figure))
    point = np.geomspace(1.0, 1000.0, 9)
    marks = {"low": 100.0, "high": 600.0} if vertical == "linear" else {"low": 2.0, "middle": 10.0, "high": 500.0}
    chart = charts.efficiency({"A": (STEPS, Band(point, point, point))}, vertical=vertical, marks=marks)
    figures.draw([chart], tmp_path / "a.png")
    found[0].draw_without_rendering()
    (axes,) = found[0].axes
    for text in axes.texts:
        box, line = text.get_window_extent(), axes.transData.transform((0.0, marks[text.get_text().strip()]))[1]
        assert box.y0 < line < box.y1


def test_estimates_have_a_dot_and_an_interval_in_each_panel(tmp_path: Path) -> None:
    one = {"A": (0.5, 0.2, 0.8), "B": (0.4, float("nan"), float("nan"))}
    single = figures.draw(charts.estimates({"IQM": one}), tmp_path / "one.png")
    both = charts.estimates({"IQM": one, "Mean": dict(reversed(one.items()))})
    double = figures.draw(both, tmp_path / "two.png", "T")
    for path, panels in ((single, 1), (double, 2)):
        assert count(path, PALETTE[0]) > 100 * panels and count(path, PALETTE[1]) > 100 * panels
        assert count(path, PALETTE[0], 0.4) > 1000 * panels and count(path, PALETTE[1], 0.4) < 100


def test_improvement_has_a_row_for_each_pair(tmp_path: Path) -> None:
    few = figures.draw([charts.improvement({("A", "B"): (0.7, 0.5, 0.9)})], tmp_path / "few.png")
    pairs = {("A", "B"): (0.7, 0.5, 0.9), ("A", "C"): (1.0, 0.6, 1.0), ("B", "C"): (0.4, 0.1, 0.7)}
    many = figures.draw([charts.improvement(pairs)], tmp_path / "many.png", "Three")
    assert count(many, PALETTE[0], 0.4) > 2 * count(few, PALETTE[0], 0.4) > 2000
    assert count(few, "#707070") > 200  # the line at a half


@pytest.mark.parametrize("name", ["run$\\frac{1}{$", "a$b$c"])
def test_names_are_not_read_as_formulas(name: str, tmp_path: Path) -> None:
    from matplotlib.mathtext import MathTextParser

    line, estimate = {name: (STEPS, WIDE)}, (0.7, 0.5, 0.9)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MathTextParser, "parse", lambda *_, **__: pytest.fail("a formula is parsed"))
        for vertical in ("linear", "log"):
            figures.draw([charts.efficiency(line, name, vertical=vertical)], tmp_path / "a.png", name)
        figures.draw(charts.estimates({name: {name: estimate}}), tmp_path / "b.png", name)
        figures.draw([charts.improvement({(name, name): estimate})], tmp_path / "c.png")


def test_formats_of_figures_change_no_global_state(tmp_path: Path) -> None:
    import matplotlib

    before, pyplot = dict(matplotlib.rcParams), "matplotlib.pyplot" in sys.modules
    chart = charts.efficiency({"A": (STEPS[:1], Band(POINT[:1], POINT[:1], POINT[:1]))})
    path = figures.draw([chart], tmp_path / "a.svg")
    assert path.read_text("utf-8").lstrip().startswith("<?xml")
    assert dict(matplotlib.rcParams) == before
    assert pyplot or "matplotlib.pyplot" not in sys.modules


def test_bad_requests_are_one_sentence(tmp_path: Path) -> None:
    one = [charts.efficiency({"A": (STEPS, WIDE)})]
    with pytest.raises(InputError, match=r"must end in \.png, \.pdf or \.svg, not 'a\.bmp'"):
        figures.draw(one, tmp_path / "a.bmp")
    for chart in (charts.efficiency, charts.profiles, charts.improvement):
        with pytest.raises(InputError, match="at least one algorithm"):
            chart({})
    with pytest.raises(InputError, match="at least one panel"):
        figures.draw([], tmp_path / "a.png")
    with pytest.raises(InputError, match="at least one statistic and one algorithm"):
        charts.estimates({"IQM": {}})
    with pytest.raises(InputError, match="estimates of the same algorithms"):
        charts.estimates({"IQM": {"A": (1.0, 0.0, 2.0)}, "Mean": {"B": (1.0, 0.0, 2.0)}})
    with pytest.raises(InputError, match="line of 'A' has 2 x coordinates, but 9 values"):
        charts.profiles({"A": (STEPS[:2], WIDE)})
    with pytest.raises(WriteError, match=r"a\.png cannot be written"):
        figures.draw(one, tmp_path / "none" / "a.png")


def test_a_picture_and_a_page_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Titles of axes, names of lines and the scale are those of the chart in both renderers."""
    chart = charts.learning_curves([charts.Line("A", STEPS, WIDE), charts.Line("B", STEPS, NONE)], "won", {"best": 0.8})
    shown: list[Any] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: shown.append(figure.axes[0]))
    figures.draw_stacked([chart], tmp_path / "a.png")
    (axes,), data = shown, lines_data(chart)
    assert axes.get_xlabel() == f"{data['x']} (millions)" == "Environment steps per seed (millions)"
    assert axes.get_ylabel() == data["y"] == "Win rate (%)" and data["percent"]
    assert axes.yaxis.get_major_formatter()(0.5, 0) == "50"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [line["name"] for line in data["lines"]]
    assert [len(line["low"]) for line in data["lines"]] == [9, 0]
    assert [text.get_text() for text in axes.texts] == [" best"]
