"""What Shoal tells people to install is never a package that it does not know."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from shoal.system.extras import EXTRAS, install, lacking

ROOT = Path(__file__).parents[2]
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").rglob("*.md"),
    *(path for folder in ("src", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")),
]


def test_the_requirements_are_those_of_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = {name: tuple(needs) for name, needs in project["optional-dependencies"].items()}
    assert {name: optional[name] for name in EXTRAS} == EXTRAS
    assert optional.keys() - EXTRAS.keys() == {"cuda", "browser", "docs", "notebooks", "test", "dev"}
    assert install("rware") == "pip install 'jumanji>=1.1' 'rware>=2.0'"


def needed(extra: str, optional: dict[str, list[str]]) -> set[str]:
    """The requirements of an extra of Shoal's, with those of the extras that it names."""
    own = [re.fullmatch(r"shoal-marl\[([\w,]+)\]", requirement) for requirement in optional[extra]]
    inner = [needed(name, optional) for match in own if match for name in match[1].split(",")]
    return {text for text, match in zip(optional[extra], own, strict=True) if not match}.union(*inner)


def test_what_the_tests_import_is_installed() -> None:
    """Tests of a missing library are skipped: in an environment with all of the extra ``test`` none is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    every = needed("test", project["optional-dependencies"])
    names = {re.split(r"[\[<>=]", text)[0] for text in every}
    names |= {"brax"} if "jaxmarl[mabrax]>=0.2" in every else set()
    missing = [name for name in sorted(names) if not any(metadata.distributions(name=name))]
    assert not missing, f"pip install -e '.[test]' installs {', '.join(missing)}"


def test_a_missing_dependency_of_a_library_is_named() -> None:
    """And not the command that installs the library, which is there."""
    command, modules = install("hanabi"), ("pyspiel",)
    absent = ModuleNotFoundError("No module named 'pyspiel.x'", name="pyspiel.x")
    assert lacking("hanabi/…", "OpenSpiel", absent, command, modules) == f"hanabi/… needs OpenSpiel: {command}."
    absent = ModuleNotFoundError("No module named 'attr'", name="attr")
    said = "hanabi/… needs the module 'attr', which OpenSpiel imports and which is not installed."
    assert lacking("hanabi/…", "OpenSpiel", absent, command, modules) == said
    said = "hanabi/… needs OpenSpiel, which cannot be imported: no symbol x."
    assert lacking("hanabi/…", "OpenSpiel", ImportError("no\n symbol x."), command, modules) == said


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_message_installs_shoal_from_the_package_index(path: Path) -> None:
    """The name ``shoal`` on the Python Package Index belongs to somebody else."""
    found = re.search(r"pip install [^`#\n]*(?<![\w./-])shoal\b(?![\w./-])", path.read_text(encoding="utf-8"))
    assert found is None, found
