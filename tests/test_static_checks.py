"""The static checks catch what they are for, and type checkers of users see Shoal's annotations."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.selection import fitting

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
UNDEFINED = '''"""A module with a mistake."""

from jaxtyping import Array, Float


def more(x: Float[Array, "T *b"]) -> Float[Array, "T N O"]:
    """Add."""
    return x + undefined_name
'''


def command(*words: str | Path, folder: Path = ROOT, text: str = "") -> str:
    """What a command prints."""
    words = (sys.executable, "-P", "-m", *words)
    done = subprocess.run([str(x) for x in words], cwd=folder, input=text, capture_output=True, text=True, timeout=600)
    return done.stdout + done.stderr


def test_ruff_reports_an_undefined_name() -> None:
    words = ("check", "--no-cache", "--output-format", "concise", "--stdin-filename", "src/shoal/mistaken.py", "-")
    found = command("ruff", *words, text=UNDEFINED)
    assert "mistaken.py:8:16: F821 Undefined name `undefined_name`" in found and "Found 1 error." in found


def test_pyright_is_to_report_an_undefined_name() -> None:
    """What it does with this configuration is tested below."""
    settings = PROJECT["tool"]["pyright"]
    assert settings.get("reportUndefinedVariable", "error") == "error"
    assert settings.get("typeCheckingMode", "standard") == "standard" and settings["include"] == [
        "src",
        "tests",
        "examples",
        "benchmarks",
    ]


@pytest.mark.slow
def test_pyright_reports_an_undefined_name(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "mistaken.py").write_text(UNDEFINED, encoding="utf-8")
    found = command("pyright", "--pythonpath", sys.executable, folder=tmp_path)
    assert 'mistaken.py:8:16 - error: "undefined_name" is not defined' in found and "1 error, " in found


def contracts(kind: str) -> list[dict[str, Any]]:
    return [one for one in PROJECT["tool"]["importlinter"]["contracts"] if one["type"] == kind]


def test_contracts_hold_for_modules_that_do_not_exist_yet() -> None:
    (layered,) = contracts("layers")
    assert layered["containers"] == ["shoal"] and layered["exhaustive"]
    only = [one for one in contracts("forbidden") if one["name"].startswith("Only ")]
    assert {"flax", "optax", "matplotlib", "ray"} <= {x for one in only for x in one["forbidden_modules"]}
    for one in only:
        assert one["source_modules"] == ["shoal"], one["name"]
        exempt = {words.split(" -> ")[0].removesuffix(".**") for words in one["ignore_imports"]}
        assert "shoal" not in exempt and all(name.startswith("shoal.") for name in exempt)


def test_an_import_in_a_new_module_breaks_its_contract(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src" / "shoal", tmp_path / "shoal", ignore=shutil.ignore_patterns("__pycache__"))
    only = [one for one in contracts("forbidden") if one["name"].startswith("Only ")]
    libraries = [library for one in only for library in one["forbidden_modules"]]
    (tmp_path / "shoal" / "studies" / "novelty.py").write_text(f"import {', '.join(libraries)}\n", encoding="utf-8")
    (tmp_path / "shoal" / "novelty.py").write_text("", encoding="utf-8")
    code = "from importlinter.cli import lint_imports; lint_imports(no_cache=True)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert f"{len(only) + 1} broken" in done.stdout, done.stdout + done.stderr
    for library in libraries:
        assert f"shoal.studies.novelty -> {library} " in done.stdout
    assert "not listed as layers:\n\n- shoal.novelty" in done.stdout


def test_the_wheel_has_annotations_pages_examples_studies_and_policies(tmp_path: Path) -> None:
    """The marker for type checkers, and what commands and messages look for (``shoal.system.shipped``)."""
    assert (files("shoal") / "py.typed").is_file()
    said = command("hatchling", "build", "-t", "wheel", "-d", tmp_path)
    (wheel,) = [*tmp_path.glob("*.whl")] or pytest.fail(said)
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    assert {"shoal/py.typed", "shoal/__init__.py", "shoal/cli/command_line.py"} <= names
    kept = {"docs": "shoal/docs", "examples": "shoal/examples", "studies": "shoal/studies/shipped", "zoo": "shoal/zoo"}
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "studies").glob("*.toml")]
    sources += [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("notebooks/*.ipynb")]
    sources += [path for path in (ROOT / "zoo").rglob("*") if path.is_file()]
    for folder, place in kept.items():
        expected = {
            f"{place}/{path.relative_to(ROOT / folder)}" for path in sources if path.is_relative_to(ROOT / folder)
        }
        assert {name for name in names if name.startswith(f"{place}/")} == expected


def test_a_release_is_tested_and_needs_no_token() -> None:
    """The job that may ask for the index's trust publishes what the other has tested, and does nothing else."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    for text in texts.values():
        assert "secrets." not in text and "password" not in text
        assert all(re.fullmatch(r"v\d+|release/v\d+", version) for version in re.findall(r"uses: [\w/-]+@(\S+)", text))
    jobs = yaml.safe_load(texts["release.yml"])["jobs"]
    assert {"run": "make test-install"} in jobs["build"]["steps"] and "permissions" not in jobs["build"]
    assert jobs["publish"]["needs"] == "build" and jobs["publish"]["permissions"] == {"id-token": "write"}
    actions = [step["uses"].partition("@")[0] for step in jobs["publish"]["steps"]]
    assert actions == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]


def test_lines_of_slow_tests_mark_no_others() -> None:
    for line in ("a/b.py", "a/b.py::test", "a/b.py::test[alone]"):
        assert fitting("a/b.py::test[alone]", [line]) == [line]
    for line in ("a/b.py::test[alone", "a/b.py::te", "a/b", "a/b.py::test[al]"):
        assert not fitting("a/b.py::test[alone]", [line])
    assert not fitting("a/b.py::test[alone, two steps]", ["a/b.py::test[alone]"])
