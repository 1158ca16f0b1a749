"""What Shoal tells people to install is never a package that it does not know."""

import re
import tomllib
from pathlib import Path

import pytest

from shoal.extras import EXTRAS, install

ROOT = Path(__file__).parents[1]
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
    assert optional.keys() - EXTRAS.keys() == {"cuda", "browser", "test", "dev"}
    assert install("rware") == "pip install 'jumanji>=1.1' 'rware>=2.0'"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nobody_is_told_to_install_shoal_from_the_index(path: Path) -> None:
    """The name ``shoal`` on the Python Package Index belongs to somebody else."""
    found = re.search(r"pip install [^`#\n]*(?<![\w./-])shoal\b(?![\w./])", path.read_text(encoding="utf-8"))
    assert found is None, found
