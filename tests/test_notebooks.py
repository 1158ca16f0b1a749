"""The notebooks run from top to bottom, without files of a checkout, and show pictures."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
PICTURES = {"first_run": 2, "own_environment": 1, "own_algorithm": 1, "compare_and_report": 2}


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    """The cells of one kind."""
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def test_there_are_four() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(PICTURES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_kept_without_outputs(path: Path) -> None:
    code = cells(path, "code")
    assert not any(cell["outputs"] or cell["execution_count"] is not None for cell in code)
    assert "".join(cells(path, "markdown")[0]["source"]).startswith("# ")
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(path, as_version=4))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_only_the_first_cell_installs_and_only_where_shoal_is_missing(path: Path) -> None:
    first, *others = ["".join(cell["source"]) for cell in cells(path, "code")]
    assert 'found = [*Path().glob("shoal_marl-*.whl"), "shoal-marl"]\n' in first
    assert first.endswith('if importlib.util.find_spec("shoal") is None:\n    %pip install --quiet {found[0]}')
    assert not any("pip" in text for text in others)


def test_the_first_agent_can_be_trained_as_often_as_its_notebook_says() -> None:
    """Its learning rate is 0 after ``steps``."""
    text = "".join("".join(cell["source"]) for kind in ("code", "markdown") for cell in cells(NOTEBOOKS[1], kind))
    (steps,) = re.findall(r"shoal\.agent\(.*steps=(\w+)\)", text)
    parts = re.findall(r"agent\.train\((\w+)\)", text)
    assert len(parts) == 2 and sum(map(float, parts)) <= float(steps)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder. A picture is shown where one should be."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    # The kernel is another process: this one's XLA flags and the source that it tests apply there too.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split()]))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [text for output in outputs for text in output.get("data", {}).values()]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    inline = [text for text in shown if "data:image/" in str(text)]
    assert len(pictures) + len(inline) == PICTURES[path.stem]
    assert not [output for output in outputs if "Traceback" in str(output) or "Warning" in str(output)]
