"""Messages that name a page or a study say where it is, in a checkout and where Shoal is installed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.studies import execution, running
from shoal.studies.study_file import shipped as studies_by_name
from shoal.system import shipped
from support.small_studies import GRID, made_record, write_study_file

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "shoal").rglob("*.py"))
PAGE = re.compile(r"\bdocs/[\w/-]+\.md")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package, which has one study; the working directory is another."""
    package = tmp_path / "site-packages" / "shoal"
    write_study_file(package / "studies" / "shipped", GRID)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(shipped, "PACKAGE", package)
    return package


def messages(tree: ast.AST) -> Iterator[ast.Constant]:
    """Texts of a module that are neither docstrings nor the help of a flag, which names the folder at its end."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("page", "Flag"):
            skipped |= {id(one) for one in ast.walk(node)}
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "about":
            skipped |= {id(one) for one in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node


def test_no_message_names_a_page_without_saying_where_it_is() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in messages(ast.parse(path.read_text(encoding="utf-8")))
        if PAGE.search(str(node.value))
    ]
    assert not found


def test_pages_that_the_code_names_exist() -> None:
    named = {name for path in SOURCES for name in PAGE.findall(path.read_text(encoding="utf-8"))}
    assert "docs/tuning.md" in named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_a_page_of_the_checkout_is_named_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shipped.checkout() == ROOT and not shipped.installed(ROOT / "studies" / "two_step.toml")
    monkeypatch.chdir(ROOT)
    assert shipped.page("docs/algorithms/mappo.md") == "docs/algorithms/mappo.md"
    monkeypatch.chdir(tmp_path)
    assert shipped.page("docs/tuning.md") == str(ROOT / "docs" / "tuning.md")


def test_an_installed_package_names_its_own_pages(site: Path) -> None:
    assert shipped.checkout() is None
    assert shipped.page("docs/tuning.md") == str(site / "docs" / "tuning.md")


def test_the_help_says_where_the_pages_are(shoal, site: Path) -> None:
    said = " ".join(shoal("train", "--help")[1].split())
    assert "(docs/hooks.md)" in said and said.endswith(f"The pages of docs/ are in {site / 'docs'}.")
    assert "pages of docs/" not in shoal("list", "--help")[1]
    assert f"documentation begins with {site / 'docs' / 'index.md'}\n" in shoal("--help")[1]


def test_a_study_of_the_package_is_kept_in_the_working_directory(
    shoal, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "run_cell", lambda cell, progress=True: made_record(cell))
    monkeypatch.setattr(running, "check_built", lambda *_: None)
    before = sorted(site.rglob("*"))
    code, out, _ = shoal("study", "demo", "--no-progress")
    page = Path("studies/results/demo.md")
    assert code == 0 and f"results: {page}\n" in out
    assert "missing of demo.toml, which comes with Shoal, and" in page.read_text(encoding="utf-8")
    assert {path.name for path in Path("studies").iterdir()} == {"records", "results"}
    page.unlink()
    assert shoal("results")[1] == f"{page}\n" and page.is_file()
    assert sorted(site.rglob("*")) == before


def test_a_study_of_the_working_directory_comes_before_one_of_the_package(site: Path) -> None:
    assert studies_by_name() == {"demo": site / "studies" / "shipped" / "demo.toml"}
    write_study_file(Path("studies"), GRID)
    assert studies_by_name() == {"demo": Path("studies/demo.toml")}
