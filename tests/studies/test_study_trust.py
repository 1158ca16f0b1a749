"""What only reads a study file imports no module that it names without being told to: the file may be a stranger's."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shoal as library
from shoal.errors import InputError
from shoal.studies import user_modules
from small_studies import GRID, written

TUNING = "\n[tuning]\nseeds = 2\ntrials = 9\n[tuning.ranges]\ngamma = { values = [0.9, 0.99] }\n"


@pytest.fixture(autouse=True)
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path('pwned').touch()\nraise RuntimeError('ran')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_modules, "_permitted", set())
    yield
    assert "evil" not in sys.modules


NAMES = {
    "algorithm": ('"mappo"', '"evil"'),
    "algorithm with make": ('"mappo"', '"evil:make"'),
    "environment": ('"matrix/climbing"', '"evil:make"'),
}
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
    file = written(Path("theirs"), text.replace(*change))
    code, out, err = shoal(words[0], file, *words[1:])
    assert (code, out) == (2, "") and "would import the module 'evil'" in err and "--trust" in err
    assert err.count("\n") == 1 and not Path("pwned").exists()
    code, _, err = shoal(words[0], file, *words[1:], "--trust")
    assert code == 2 and "RuntimeError: ran" in err and Path("pwned").exists()


BUILT = {
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
    file = written(Path("theirs"), GRID.replace('"qmix"', '"ippo"').replace(old, new))
    with pytest.raises(InputError, match=f"would .*{said}"):
        library.study(file, dry_run=True)
    assert not Path("pwned").exists()


def test_what_was_run_or_imported_needs_no_more_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(Path("mine"), GRID.replace('"mappo"', '"evil"'))
    study = library.studies.study_file.read_study(file)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="'evil'"):
        user_modules.check_imports(study, False)
    monkeypatch.setitem(sys.modules, "evil", sys)
    user_modules.check_imports(study, False)
    monkeypatch.delitem(sys.modules, "evil")
    user_modules.permit_imports(study)
    user_modules.check_imports(study, False)


def test_the_title_of_a_page_is_text(tmp_path: Path) -> None:
    title, question = "A <script>alert(1)</script>", "Why <img src=x onerror=alert(1)>?"
    file = written(Path("theirs"), GRID.replace('"T"', f'"{title}"').replace('"Q?"', f'"{question}"'))
    text = library.results(file).read_text()
    assert "&lt;script>alert(1)&lt;/script>" in text and "<script" not in text and "<img" not in text


@pytest.mark.parametrize(("algorithm", "environment"), [("evil", "matrix/climbing"), ("ippo", "evil:make")])
def test_help_of_a_configuration_imports_nothing(algorithm: str, environment: str, shoal: Callable) -> None:
    Path("c.toml").write_text(f'algorithm = "{algorithm}"\nenvironment = "{environment}"\n')
    code, out, _ = shoal("train", "--config", "c.toml", "--help")
    assert code == 0 and "--trust" in out and not Path("pwned").exists()
    code, out, err = shoal("train", "--config", "c.toml", "--print-config")
    assert (code, out) == (2, "") and "which --print-config would import" in err and not Path("pwned").exists()
    code, _, err = shoal("train", "--config", "c.toml", "--help", "--trust")
    assert code == 2 and "RuntimeError: ran" in err
