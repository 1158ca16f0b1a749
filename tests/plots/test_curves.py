"""A figure shows its runs, bands and reference lines."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shoal.errors import InputError
from shoal.plots import figures
from shoal.plots.curves import plot, series
from shoal.plots.figures import PALETTE
from shoal.storage.log import Log


def write(folder: Path, seeds: int, rows: int = 30, level: float = 10.0) -> Path:
    rng = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    with Log(folder, tensorboard=False) as log:
        for i in range(rows):
            values = level * (1 - np.exp(-i / 8)) + rng.normal(size=seeds)
            log.write({"step": 100_000 * i, "return": values.tolist() if seeds > 1 else float(values[0]), "loss": 1.0})
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {"many": write(folder / "many", 8), "one": write(folder / "one", 1, rows=200, level=5.0)}


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def count(picture: np.ndarray, colour: str, share: float = 1.0) -> int:
    """Pixels of a colour laid on white with that share."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.abs(picture - (255 + share * (rgb - 255))).max(axis=2) <= 2).sum())


@pytest.mark.parametrize("number", ["1e308", "-1e308", "9" * 400, "9" * 5000, "1e999"])
@pytest.mark.parametrize("column", ["step", "return"])
def test_numbers_beyond_single_precision_are_damage(column: str, number: str, tmp_path: Path):
    """Their sums would be infinite."""
    row = {"step": "1", "return": "2.0"}
    lines = [row, {"step": "2", "return": "3.0"} | {column: number}, row | {"step": "3"}]
    texts = ["{" + ", ".join(f'"{name}": {value}' for name, value in line.items()) + "}\n" for line in lines]
    (tmp_path / "metrics.jsonl").write_text("".join(texts))
    steps, values = series(tmp_path, "return")
    assert steps.tolist() == [1, 3] and values.tolist() == [[2.0], [2.0]]


def test_the_name_of_a_folder_is_no_formula(runs: dict[str, Path], tmp_path: Path):
    folder = write(tmp_path / "run$\\frac{1}{$", 2, rows=3)
    assert plot([folder, runs["one"]], tmp_path / "a.png", title="$\\frac{1}{$").exists()


def test_runs_of_folders_with_one_name_have_different_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    folders = [write(tmp_path / name, 2, rows=2) for name in ("a/s3z", "b/s3z", "c")]
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "draw_stacked", lambda panels, path, title: drawn.append(panels) or path)
    plot([*folders, folders[0]], tmp_path / "a.png")
    plot(folders, tmp_path / "a.png")
    names = [[line.name.partition(": ")[0] for line in panels[0].lines] for panels in drawn]
    assert names == [["a/s3z (1)", "b/s3z", "c", "a/s3z (2)"], ["a/s3z", "b/s3z", "c"]]


def test_series_reads_one_metric(runs: dict[str, Path], tmp_path: Path):
    steps, values = series(runs["many"], "return")
    assert steps.shape == (30,) and values.shape == (30, 8) and steps[-1] == 2_900_000
    assert series(runs["one"], "return")[1].shape == (200, 1)
    with pytest.raises(InputError, match="no metric in the log of 'many' named 'retrun'; did you mean 'return'"):
        series(runs["many"], "retrun")
    with pytest.raises(InputError, match="'empty' has no log"):
        series(tmp_path / "empty", "return")
    with Log(tmp_path, tensorboard=False) as log:
        log.write({"step": 1, "return": [1.0, None]})
        log.write({"step": 2, "loss": 1.0})
        log.write({"step": 3, "return": [None, None]})
    steps, values = series(tmp_path, "return")
    np.testing.assert_array_equal(steps, [1])
    np.testing.assert_array_equal(values, [[1.0, np.nan]])
    with Log(tmp_path, tensorboard=False) as log:
        log.write({"step": 4, "return": [1.0]})
    with pytest.raises(InputError, match="number of seeds of 'return' changes"):
        series(tmp_path, "return")


def test_several_seeds_have_a_band_and_one_has_its_raw_line(runs: dict[str, Path]):
    many, one = (pixels(plot(runs[name])) for name in ("many", "one"))
    assert (runs["many"] / "curves.png").exists()
    assert many.shape == one.shape == (820, 1440, 3)
    assert count(many, PALETTE[0]) > 2000 and count(one, PALETTE[0]) > 2000
    assert count(many, PALETTE[0], 0.18) > 10_000 and count(one, PALETTE[0], 0.18) < 3000
    assert count(one, PALETTE[0], 0.35) > 3000


def test_runs_share_a_figure_with_reference_lines(runs: dict[str, Path], tmp_path: Path):
    both = list(runs.values())
    plain = plot(both, tmp_path / "plain.png", names=("A", "B"))
    lined = plot(both, tmp_path / "lined.png", names=("A", "B"), lines={"published": 8.0, "optimal": 8.2})
    picture = pixels(plain)
    assert count(picture, PALETTE[0]) > 2000 and count(picture, PALETTE[1]) > 2000
    assert count(pixels(lined), "#707070") > count(picture, "#707070") + 1000
    assert plot(both).parent == runs["many"].parent
    taller = pixels(plot(both, tmp_path / "two.png", metrics=("return", "loss")))
    assert taller.shape == (1440, 1440, 3) and count(taller[720:], PALETTE[1]) > 1000


def test_drawing_changes_no_global_state_of_matplotlib(runs: dict[str, Path], tmp_path: Path):
    import matplotlib

    before, pyplot = dict(matplotlib.rcParams), "matplotlib.pyplot" in sys.modules
    plot(runs["many"], tmp_path / "curve.svg")
    assert dict(matplotlib.rcParams) == before
    assert pyplot or "matplotlib.pyplot" not in sys.modules
    assert (tmp_path / "curve.svg").read_text().lstrip().startswith("<?xml")


def test_a_single_row_is_still_drawn(tmp_path: Path):
    write(tmp_path, 3, rows=1)
    assert count(pixels(plot(tmp_path)), PALETTE[0]) > 30


def test_a_value_for_all_seeds_is_not_of_one_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "draw_stacked", lambda panels, path, title: drawn.extend(panels) or path)
    for seeds, rows in ((2, 90), (1, 3)):
        plot(write(tmp_path / str(seeds), seeds, rows), metrics=("loss", "return"))
    assert [panel.lines[0].name for panel in drawn] == [
        "one value for all seeds, average of 3 rows",
        "mean of 2 seeds, range",
        "1 seed",
        "1 seed",
    ]


def test_bad_requests_are_one_sentence(runs: dict[str, Path], tmp_path: Path):
    with pytest.raises(InputError, match="at least one run"):
        plot([])
    with pytest.raises(InputError, match="1 runs and 2 names"):
        plot(runs["many"], names=("a", "b"))
    with pytest.raises(InputError, match=r"not 'curves\.bmp'"):
        plot(runs["many"], tmp_path / "curves.bmp")
