"""Figures of statistics show their algorithms, bands and intervals."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shoal.errors import InputError, WriteError
from shoal.plots import figures
from shoal.plots.style import PALETTE, Vertical
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


@pytest.mark.parametrize("draw", [figures.plot_efficiency, figures.plot_profiles])
def test_lines_have_bands_where_these_are_known(draw, tmp_path: Path) -> None:
    path = draw({"A": (STEPS, WIDE), "B": (STEPS, NONE)}, tmp_path / "lines.png", title="Two")
    assert path == tmp_path / "lines.png"
    assert count(path, PALETTE[0]) > 2000 and count(path, PALETTE[1]) > 2000
    assert count(path, PALETTE[0], 0.18) > 20_000 and count(path, PALETTE[1], 0.18) < 1000
    assert count(path, PALETTE[2]) == 0


def test_a_logarithmic_axis_shows_what_a_linear_one_hides(tmp_path: Path) -> None:
    """A value that grows by a constant factor is a straight line."""

    def middle(vertical: Vertical, low: float) -> float:
        """The mean height of the line in the figure: 0 at the bottom, 1 at the top."""
        point = np.geomspace(low, low * 1e8, 9)
        path = figures.plot_efficiency({"A": (STEPS, Band(point, point, point))}, tmp_path / "a.png", vertical=vertical)
        with Image.open(path) as image:
            picture = np.asarray(image.convert("RGB")).astype(int)
        blue = [int(PALETTE[0][i : i + 2], 16) for i in (1, 3, 5)]
        columns = [np.flatnonzero(column) for column in (np.abs(picture - blue).max(axis=2) <= 2).T]
        return 1 - float(np.mean([rows.mean() for rows in columns if rows.size])) / len(picture)

    assert middle("linear", 1e-4) < 0.35  # on the bottom until its end
    assert 0.45 < middle("log", 1e-4) < 0.65
    assert 0.45 < middle("symlog", 1.0) < 0.65


def test_a_logarithmic_axis_needs_positive_values(tmp_path: Path) -> None:
    """Also of the bands; those that are unknown do not matter."""
    below = Band(POINT, POINT - 0.2, POINT)
    with pytest.raises(InputError, match="but 'B' with its band reaches 0; use symlog, which is linear"):
        figures.plot_efficiency({"A": (STEPS, WIDE), "B": (STEPS, below)}, tmp_path / "a.png", vertical="log")
    assert not (tmp_path / "a.png").exists()
    figures.plot_efficiency({"A": (STEPS, NONE)}, tmp_path / "b.png", vertical="log")
    figures.plot_efficiency({"A": (STEPS, below)}, tmp_path / "c.png", vertical="symlog")
    assert (tmp_path / "b.png").exists() and (tmp_path / "c.png").exists()


def test_estimates_have_a_dot_and_an_interval_in_each_panel(tmp_path: Path) -> None:
    one = {"A": (0.5, 0.2, 0.8), "B": (0.4, float("nan"), float("nan"))}
    single = figures.plot_estimates({"IQM": one}, tmp_path / "one.png")
    double = figures.plot_estimates({"IQM": one, "Mean": dict(reversed(one.items()))}, tmp_path / "two.png", title="T")
    for path, panels in ((single, 1), (double, 2)):
        assert count(path, PALETTE[0]) > 100 * panels and count(path, PALETTE[1]) > 100 * panels
        assert count(path, PALETTE[0], 0.4) > 1000 * panels and count(path, PALETTE[1], 0.4) < 100


def test_improvement_has_a_row_for_each_pair(tmp_path: Path) -> None:
    few = figures.plot_improvement({("A", "B"): (0.7, 0.5, 0.9)}, tmp_path / "few.png")
    pairs = {("A", "B"): (0.7, 0.5, 0.9), ("A", "C"): (1.0, 0.6, 1.0), ("B", "C"): (0.4, 0.1, 0.7)}
    many = figures.plot_improvement(pairs, tmp_path / "many.png", title="Three")
    assert count(many, PALETTE[0], 0.4) > 2 * count(few, PALETTE[0], 0.4) > 2000
    assert count(few, "#707070") > 200  # the line at a half


@pytest.mark.parametrize("name", ["run$\\frac{1}{$", "a$b$c"])
def test_names_are_no_formulas(name: str, tmp_path: Path) -> None:
    from matplotlib.mathtext import MathTextParser

    line, estimate = {name: (STEPS, WIDE)}, (0.7, 0.5, 0.9)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MathTextParser, "parse", lambda *_, **__: pytest.fail("a formula is parsed"))
        for vertical in ("linear", "log"):
            figures.plot_efficiency(line, tmp_path / "a.png", title=name, label=name, vertical=vertical)
        figures.plot_estimates({name: {name: estimate}}, tmp_path / "b.png", title=name)
        figures.plot_improvement({(name, name): estimate}, tmp_path / "c.png")


def test_formats_and_global_state(tmp_path: Path) -> None:
    import matplotlib

    before, pyplot = dict(matplotlib.rcParams), "matplotlib.pyplot" in sys.modules
    path = figures.plot_efficiency({"A": (STEPS[:1], Band(POINT[:1], POINT[:1], POINT[:1]))}, tmp_path / "a.svg")
    assert path.read_text("utf-8").lstrip().startswith("<?xml")
    assert dict(matplotlib.rcParams) == before
    assert pyplot or "matplotlib.pyplot" not in sys.modules


def test_bad_requests_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.png, \.pdf or \.svg, not 'a\.bmp'"):
        figures.plot_efficiency({"A": (STEPS, WIDE)}, tmp_path / "a.bmp")
    for draw in (figures.plot_efficiency, figures.plot_profiles, figures.plot_improvement):
        with pytest.raises(InputError, match="at least one algorithm"):
            draw({}, tmp_path / "a.png")
    with pytest.raises(InputError, match="at least one statistic and one algorithm"):
        figures.plot_estimates({"IQM": {}}, tmp_path / "a.png")
    with pytest.raises(InputError, match="estimates of the same algorithms"):
        figures.plot_estimates({"IQM": {"A": (1.0, 0.0, 2.0)}, "Mean": {"B": (1.0, 0.0, 2.0)}}, tmp_path / "a.png")
    with pytest.raises(InputError, match="line of 'A' has 2 x coordinates, but 9 values"):
        figures.plot_profiles({"A": (STEPS[:2], WIDE)}, tmp_path / "a.png")
    with pytest.raises(WriteError, match=r"a\.png cannot be written"):
        figures.plot_efficiency({"A": (STEPS, WIDE)}, tmp_path / "none" / "a.png")
