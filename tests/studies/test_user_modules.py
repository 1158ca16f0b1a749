"""What only reads a study file imports no module that it names without being told to: the file may be a stranger's."""

import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import shoal as library
from shoal.errors import InputError
from shoal.options.flags import flags_of
from shoal.runs import api
from shoal.storage import manifest
from shoal.studies import execution, running, user_modules
from shoal.studies.plan import Cell, plan
from shoal.studies.record import read_record, write_record
from shoal.studies.results import markdown_page
from shoal.studies.state import record_path
from shoal.studies.study_file import read_study as read_study
from shoal.studies.tuning.record import winner
from shoal.studies.user_modules import module_digests
from support.run_folders import run
from support.small_studies import GRID, cells_of, made_record, write_study_file

TUNING = "\n[tuning]\nseeds = 2\ntrials = 9\n[tuning.ranges]\ngamma = { values = [0.9, 0.99] }\n"


@pytest.fixture(autouse=True)
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path('pwned').touch()\nraise RuntimeError('ran')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands are processes, which do not search each other's folders
    monkeypatch.setattr(user_modules, "_permitted", set())
    monkeypatch.setattr("shoal.security.user_modules._sources", {})  # of files that this process has tested before
    yield
    assert "evil" not in sys.modules


NAMES = {
    "algorithm": ('"mappo"', '"evil"'),
    "algorithm with make": ('"mappo"', '"evil:make"'),
    "environment": ('"matrix/climbing"', '"evil:make"'),
}
NAMESAKE = {"algorithm": ('"mappo"', '"vdn:make"'), "one side's algorithm": ('"mappo"', '"mappo+vdn:make"')}
READ: dict[str, tuple[str, ...]] = {
    "results": ("results",),
    "report": ("report", "--no-replays"),
    "study": ("study", "--dry-run"),
    "tune": ("tune", "--dry-run"),
}


@pytest.mark.parametrize("words", READ.values(), ids=READ)
@pytest.mark.parametrize("change", NAMES.values(), ids=NAMES)
def test_reading_imports_nothing(change: tuple[str, str], words: tuple[str, ...], shoal: Callable) -> None:
    text = GRID.replace("gamma = [0.9, 0.99]", "seed = [0]") + TUNING if words[0] == "tune" else GRID
    file = write_study_file(Path("theirs"), text.replace(*change))
    code, out, err = shoal(words[0], file, *words[1:])
    assert (code, out) == (2, "") and "would import the module 'evil'" in err and "--trust" in err
    assert err.count("\n") == 1 and not Path("pwned").exists()
    code, _, err = shoal(words[0], file, *words[1:], "--trust")
    assert code == 2 and "RuntimeError: ran" in err and Path("pwned").exists()


@pytest.mark.parametrize("change", NAMESAKE.values(), ids=NAMESAKE)
def test_a_module_with_the_name_of_an_algorithm_is_the_users(change: tuple[str, str]) -> None:
    Path("evil.py").rename("vdn.py")
    file = write_study_file(Path("theirs"), GRID.replace(*change))
    with pytest.raises(InputError, match="would import the module 'vdn'"):
        library.results(file)


BUILT = {
    "a loaded library": ('"matrix/climbing"', '"numpy:load"', "import the module 'numpy'"),
    "a part of Shoal": ('"matrix/climbing"', '"shoal:train"', "import the module 'shoal'"),
    "network": ("steps = 64", 'steps = 64\nnetwork = "evil:net"', "import the module 'evil'"),
    "a module of PettingZoo's form": ('"matrix/climbing"', '"pettingzoo:evil"', "import the module 'evil'"),
    "a registered name": ('"matrix/climbing"', '"gymnasium:evil:X-v0"', "import the module 'evil'"),
    "an option": (
        'environment = ["matrix/climbing", "matrix/two_step"]',
        'environment = ["gymnasium:Ant-v5"]\n"env.xml_file" = ["evil.xml"]',
        "hand it 'evil.xml'",
    ),
}


@pytest.mark.parametrize(("old", "new", "said"), BUILT.values(), ids=BUILT)
def test_a_dry_run_builds_nothing_that_imports(old: str, new: str, said: str) -> None:
    file = write_study_file(Path("theirs"), GRID.replace('"qmix"', '"ippo"').replace(old, new))
    with pytest.raises(InputError, match=f"would .*{said}"):
        library.study(file, dry_run=True)
    assert not Path("pwned").exists()


def test_a_dry_run_of_a_search_builds_no_value_that_imports() -> None:
    ranges = TUNING.replace("gamma = { values = [0.9, 0.99] }", 'network = { values = ["evil:net", "mlp"] }')
    file = write_study_file(Path("theirs"), GRID.replace("gamma = [0.9, 0.99]", "seed = [0]") + ranges)
    for read in (library.tune, library.study):
        with pytest.raises(InputError, match="would import the module 'evil'"):
            read(file, dry_run=True)


@pytest.mark.parametrize("value", ["evil:net", ("evil:net",), {"name": "evil:net"}])
def test_a_record_of_a_search_gives_only_texts_that_the_file_tries(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = searched({"network": value}, 'network = { values = ["auto", "mlp"] }', monkeypatch)
    with pytest.raises(InputError, match=r"search has a network that \[tuning\] does not try"):
        library.study(file, dry_run=True)


def test_the_winner_of_a_search_may_be_the_first_trial_with_values_that_are_not_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    won = {"gamma": 0.97, "hidden": (64, 64), "network": "auto"}
    ranges = "gamma = { values = [0.9, 0.99] }\nhidden = { values = [[32], [128]] }\nnetwork = { values = ["
    file = searched(won, ranges + '"mlp", "entities"] }', monkeypatch)
    study = read_study(file)
    cells = plan(study, Path(), winner(study, Path()))
    assert [{name: cell.flags[name] for name in won} for cell in cells] == [won] * len(cells) and cells


def searched(won: dict[str, Any], ranges: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study file whose search has a record with these values of the winner."""

    def held(folder: Path, found: Any) -> dict[str, Any]:
        return {method.name: SimpleNamespace(flags=won) for method in found}

    monkeypatch.setattr("shoal.studies.tuning.record.tuning_records", held)
    text = GRID.replace("gamma = [0.9, 0.99]", "seed = [0]").replace("seeds = 2", "seeds = 2\ntuned = true")
    return write_study_file(Path("theirs"), text + TUNING.replace("gamma = { values = [0.9, 0.99] }", ranges))


def test_a_dry_run_calls_only_what_is_declared_to_make_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("good.py").write_text("def wipe() -> None:\n    import pathlib\n    pathlib.Path('pwned').touch()\n")
    monkeypatch.syspath_prepend(str(Path().resolve()))
    importlib.import_module("good")
    try:
        file = write_study_file(Path("theirs"), GRID.replace('"matrix/climbing"', '"good:wipe"'))
        with pytest.raises(InputError, match="would call 'good:wipe', which is not declared to return an environment"):
            library.study(file, dry_run=True)
    finally:
        del sys.modules["good"]
    assert not Path("pwned").exists()


def test_a_report_plays_no_episodes_of_a_run_folder_that_would_import() -> None:
    pytest.importorskip("gymnasium")
    text = GRID.replace('["matrix/climbing", "matrix/two_step"]', '["gymnasium:evil:X-v0"]')
    file = write_study_file(Path("theirs"), text)
    cell = next(cell for cell in cells_of(file, "runs") if cell.algorithm == "mappo")
    run(cell.folder, (1.0, 2.0), cell.algorithm, cell.environment)
    page = library.report(file, runs="theirs/runs", out="report.html").read_text("utf-8")
    assert "The episodes cannot be played: " in page and "would import the module" in page
    assert not Path("pwned").exists()


def test_modules_that_were_run_or_imported_need_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_study_file(Path("mine"), GRID.replace('"mappo"', '"evil"'))
    study = library.studies.study_file.read_study(file)  # type: ignore[attr-defined]
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match="'evil'"):
        user_modules.check_imports(study, False)
    monkeypatch.setitem(sys.modules, "evil", sys)
    user_modules.check_imports(study, False)
    monkeypatch.delitem(sys.modules, "evil")
    user_modules.permit_imports(study)
    user_modules.check_imports(study, False)


def test_the_title_of_a_page_is_text(tmp_path: Path) -> None:
    title, question = "A <script>alert(1)</script>", "Why <img src=x onerror=alert(1)>?"
    file = write_study_file(Path("theirs"), GRID.replace('"T"', f'"{title}"').replace('"Q?"', f'"{question}"'))
    text = library.results(file).read_text()
    assert "&lt;script>alert(1)&lt;/script>" in text and "<script" not in text and "<img" not in text


@pytest.mark.parametrize(("algorithm", "environment"), [("evil", "matrix/climbing"), ("ippo", "evil:make")])
def test_help_of_a_configuration_imports_nothing(algorithm: str, environment: str, shoal: Callable) -> None:
    Path("c.toml").write_text(f'algorithm = "{algorithm}"\nenvironment = "{environment}"\n')
    code, out, _ = shoal("train", "--config", "c.toml", "--help")
    assert code == 0 and "--trust" in out and not Path("pwned").exists()
    for flag in ("--print-config", "--print_config", "--print-config=True"):
        code, out, err = shoal("train", "--config", "c.toml", flag)
        assert (code, out) == (2, "") and not Path("pwned").exists()
        assert "which --print-config would import: pass --trust if the file is yours or you trust its author" in err
    code, _, err = shoal("train", "--config", "c.toml", "--help", "--trust")
    assert code == 2 and "RuntimeError: ran" in err


# A study says which modules of the user's own have changed since its runs were recorded. Nothing trains.


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
    monkeypatch.setattr(manifest, "describe_machine", lambda: {"hardware": {}})
    yield write_study_file(tmp_path / "studies", STUDY)
    for name in ("study_idea", "study_nets", "study_game"):
        sys.modules.pop(name, None)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keep(file: Path, cells: list[Cell], **changes: object) -> Path:
    folder = file.parent / "records" / "demo"
    for cell in cells:
        write_record(record_path(folder, cell), made_record(cell, **({"sources": module_digests(cell)} | changes)))
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


def test_a_run_is_continued_with_permission_for_what_its_study_names(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy of opponents may name other modules."""
    asked: list[bool] = []

    def resume(*_: Any, trust: bool, **how: Any) -> Any:
        asked.append(trust)
        raise InputError("nothing is trained")

    monkeypatch.setattr(api, "resume", resume)

    def keep_run(folder: Path, **config: str) -> None:
        run = made_record(cell).run
        run = run | {"config": run["config"] | config}
        folder.mkdir(parents=True)
        text = json.dumps({"format": manifest.RUN_FORMAT, "config": run, "made_with": {}})
        (folder / "run.json").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="nothing is trained"):
            execution._trained(cell, False)

    for cell in cells_of(file):
        keep_run(cell.folder)
    assert asked == [True, True, True, False], "own algorithm and network, own algorithm, own network, neither"
    cell = cells_of(file)[2]
    keep_run(cell.folder / "opponents")
    keep_run(cell.folder / "opponents" / "opponents", network="evil:net")
    assert asked[4:] == [True, False]


@pytest.mark.parametrize(("there", "permitted"), [("./ant.xml", True), ("./evil.xml", False)])
def test_a_run_is_continued_with_the_files_that_its_study_names(
    there: str, permitted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a folder that is not recorded as the user's own, such as one that was moved; each file is read once."""
    text = GRID.replace('["matrix/climbing", "matrix/two_step"]', '["gymnasium:Ant-v5"]\nenv.xml_file = ["./ant.xml"]')
    cell = cells_of(write_study_file(tmp_path, text))[0]
    config = made_record(cell).run | {"env": {"xml_file": there}}
    cell.folder.mkdir(parents=True)
    text = json.dumps({"format": manifest.RUN_FORMAT, "config": config, "made_with": {}})
    (cell.folder / "run.json").write_text(text, encoding="utf-8")
    found = cell.merged()
    flags = flags_of(found.settings) | flags_of(found.config)
    read: list[Path] = []
    config_of_run = execution.config_of_run
    monkeypatch.setattr(execution, "config_of_run", lambda folder: read.append(folder) or config_of_run(folder))
    assert execution.requested(cell, flags, cell.folder) == permitted and read == [cell.folder]
    assert not execution.requested(replace(cell, env={}), flags, cell.folder)


def test_a_record_has_what_was_imported(file: Path) -> None:
    cell = cells_of(file)[1]
    Path("study_idea.py").write_text(IDEA + "# changed while the study runs\n")
    assert module_digests(cell, imported=True) == {"study_idea": digest(IDEA)} != module_digests(cell)
    sys.modules.pop("study_idea")
    cell = cells_of(file)[1]
    assert module_digests(cell, imported=True) == module_digests(cell) != {"study_idea": digest(IDEA)}


def test_a_changed_module_is_stated(file: Path, shoal: Callable) -> None:
    cells = cells_of(file)
    keep(file, cells)
    _, out, _ = shoal("study", file, "--dry-run", "--trust")
    assert [line.split()[0] for line in out.splitlines()] == ["demo:", *["recorded"] * 4]
    Path("study_idea.py").write_text(IDEA + "# another\n")
    _, out, err = shoal("study", file, "--dry-run", "--trust")
    head, *lines, said = out.splitlines()
    assert head == "demo: 4 runs, 4 recorded, 0 to run" and err == ""
    assert [line.split()[0] for line in lines] == ["changed", "changed", "recorded", "recorded"]
    assert said == (
        "The module 'study_idea' has changed since 2 runs were recorded. What is recorded is used as before; `--renew` "
        "trains it again."
    )
    _, out, _ = shoal("study", file, "--dry-run", "--trust", "--renew")
    assert [line.split()[0] for line in out.splitlines()[:-1]] == ["demo:", "stale", "stale", "recorded", "recorded"]
    code, out, err = shoal("study", file, "--only", "algorithm=study_idea", "variant=own")
    assert code == 0 and err.splitlines()[0] == (
        "The module 'study_idea' has changed since 1 run was recorded. What is recorded is used as before; `--renew` "
        "trains it again."
    )
    text = (file.parent / "results" / "demo.md").read_text()
    assert "\n**The module study_idea has changed since 2 runs were recorded.**\n" in text.replace("'", "")
    report = library.report(file, records=file.parent / "records")
    assert "has changed since 2 runs were recorded" in report.read_text()


def test_a_record_without_digests_is_not_compared(file: Path) -> None:
    cells = cells_of(file)
    folder = keep(file, cells, sources={})
    records = {cell.name: read_record(record_path(folder, cell)) for cell in cells}
    assert "has changed" not in markdown_page(read_study(file), cells, records)
