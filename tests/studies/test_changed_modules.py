"""A study says which modules of the user's own have changed since its runs were recorded. Nothing trains."""

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shoal as library
from shoal.storage import manifest
from shoal.studies import running
from shoal.studies.plan import Cell
from shoal.studies.record import read, write
from shoal.studies.results import markdown_page
from shoal.studies.state import record_path
from shoal.studies.study_file import read_study as read_study
from shoal.studies.user_modules import module_digests
from small_studies import GRID, cells_of, made, written

HEAD = GRID.partition("[grid]")[0]
STUDY = f"""{HEAD}
[grid]
algorithm = ["study_idea", "mappo"]
environment = ["matrix/climbing"]

[[variants]]
name = "own"
network = "study_nets:conv"

[[variants]]
name = "built in"
"""
IDEA = "from shoal.algorithms.mappo import Config, make\n"
NETS = "def conv(inputs, outputs, body): ...\n"
GAME = "import shoal\ndef game(): return shoal.make('matrix/climbing')\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in (("study_idea", IDEA), ("study_nets", NETS), ("study_game", GAME)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(running, "check_built", lambda *_: None)
    monkeypatch.setattr(manifest, "describe", lambda: {"hardware": {}})
    yield written(tmp_path / "studies", STUDY)
    for name in ("study_idea", "study_nets", "study_game"):
        sys.modules.pop(name, None)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keep(file: Path, cells: list[Cell], **changes: object) -> Path:
    folder = file.parent / "records" / "demo"
    for cell in cells:
        write(record_path(folder, cell), made(cell, **({"sources": module_digests(cell)} | changes)))
    return folder


def test_the_modules_of_a_run(file: Path) -> None:
    own, plain, networks, neither = cells_of(file)
    assert module_digests(own) == {"study_idea": digest(IDEA), "study_nets": digest(NETS)}
    assert module_digests(plain) == {"study_idea": digest(IDEA)} and module_digests(networks) == {
        "study_nets": digest(NETS)
    }
    assert module_digests(neither) == {} and "study_nets" not in sys.modules
    file.write_text(STUDY.replace("matrix/climbing", "study_game:game"))
    assert module_digests(cells_of(file)[3]) == {"study_game": digest(GAME)}


def test_a_record_has_what_was_imported(file: Path) -> None:
    cell = cells_of(file)[1]
    Path("study_idea.py").write_text(IDEA + "# changed while the study runs\n")
    assert module_digests(cell, imported=True) == {"study_idea": digest(IDEA)} != module_digests(cell)
    sys.modules.pop("study_idea")
    cell = cells_of(file)[1]
    assert module_digests(cell, imported=True) == module_digests(cell) != {"study_idea": digest(IDEA)}


def test_a_change_is_said(file: Path, shoal: Callable) -> None:
    cells = cells_of(file)
    folder = keep(file, cells)
    _, out, _ = shoal("study", file, "--dry-run", "--trust")
    assert [line.split()[0] for line in out.splitlines()] == ["demo:", *["recorded"] * 4]
    Path("study_idea.py").write_text(IDEA + "# another\n")
    _, out, err = shoal("study", file, "--dry-run", "--trust")
    head, *lines, said = out.splitlines()
    assert head == "demo: 4 runs, 4 recorded, 0 to run" and err == ""
    assert [line.split()[0] for line in lines] == ["changed", "changed", "recorded", "recorded"]
    assert said == (
        "The module 'study_idea' has changed since 2 runs were recorded. Their records are used as before; to run one "
        f"again, delete its record and its folder, for example {folder / cells[0].name}.json."
    )
    run = Path("runs/studies/demo") / cells[0].name
    run.mkdir(parents=True)
    code, out, err = shoal("study", file, "--only", "algorithm=study_idea", "variant=own")
    assert code == 0 and err.splitlines()[0] == (
        f"The module 'study_idea' has changed since 1 run was recorded. Its record is used as before; to run it again, "
        f"delete {folder / cells[0].name}.json and {run}."
    )
    text = (file.parent / "results" / "demo.md").read_text()
    assert "\n**The module study_idea has changed since 2 runs were recorded.**\n" in text.replace("'", "")
    report = library.report(file, records=file.parent / "records")
    assert "has changed since 2 runs were recorded" in report.read_text()


def test_an_earlier_record_is_not_compared(file: Path) -> None:
    cells = cells_of(file)
    folder = keep(file, cells, sources={})
    path = record_path(folder, cells[0])
    earlier = (
        path.read_text()
        .replace('"format": 4', '"format": 2')
        .replace(' "sources": {},\n', "")
        .replace(' "behaviour": {},\n', "")
    )
    path.write_text(earlier)
    assert "sources" not in path.read_text() and read(path).sources == {}
    records = {cell.name: read(record_path(folder, cell)) for cell in cells}
    assert "has changed" not in markdown_page(read_study(file), cells, records)
