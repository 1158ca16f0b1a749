"""What the documentation says of your own environments and algorithms is what the examples do, and its links lead
somewhere."""

import importlib
import re
import tomllib
from pathlib import Path

import jax
import pytest

import shoal
from shoal import algorithms
from shoal.environments.names import check_name
from shoal.export import files as export
from shoal.export import onnx
from shoal.networks.body import build_body
from shoal.storage import manifest
from shoal.studies import crossplay, record
from shoal.studies.tuning import record as tuning

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
IN_COMMAND = re.compile(r"shoal (?:train [a-z]\S*|check) ([a-z]+/[\w.-]+)")
NAMES = ("own_environment:meeting", "own_parallel:Meeting", "own_gymnasium:Cart", "own_game:Auction")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_stands_in_the_page_as_it_is_in_its_file(name: str) -> None:
    source = (ROOT / "examples" / f"{name.split(':')[0]}.py").read_text(encoding="utf-8")
    body = source.split('"""', 2)[2].split("\nif __name__")[0].strip()
    page = (ROOT / "docs" / "your-environment.md").read_text(encoding="utf-8")
    assert f"```python\n{body}\n```" in page


def test_the_page_of_an_algorithm_has_every_line_of_its_files() -> None:
    """Of the term that is added to MAPPO, which has no more than 15 lines of code, and then of SARSA."""
    term, sarsa = (
        [
            line
            for line in (ROOT / "examples" / name).read_text(encoding="utf-8").split("\nif __name__")[0].splitlines()
            if line
        ]
        for name in ("self_imitation.py", "sarsa.py")
    )
    page = (ROOT / "docs" / "your-algorithm.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    first, *rest = [[line for line in block.splitlines() if line] for block in blocks]
    assert first == term and len(term) <= 15
    assert [line for block in rest for line in block] == sarsa


@pytest.mark.parametrize(
    ("page", "name"), [("agent.md", "agent"), ("continue.md", "curriculum"), ("functional.md", "functional")]
)
def test_a_page_has_its_whole_example(page: str, name: str) -> None:
    source = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    body = source.split('"""', 2)[2].strip()
    assert f"```python\n{body}\n```" in (ROOT / "docs" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["agent", "curriculum", pytest.param("functional", marks=pytest.mark.slow)])
def test_an_example_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unchecked_annotations: None
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.chdir(tmp_path)
    importlib.import_module(name).main(600)


def test_the_page_of_a_network_has_every_line_of_its_file() -> None:
    source = (ROOT / "examples" / "own_network.py").read_text(encoding="utf-8").split('"""', 2)[2]
    page = (ROOT / "docs" / "your-network.md").read_text(encoding="utf-8")
    one, *blocks = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    exec(one, {})
    assert [line for block in blocks for line in block.splitlines() if line] == list(filter(None, source.splitlines()))


@pytest.mark.parametrize("name", ["wide", "residual", "remembering", "convolutional"])
def test_a_network_of_the_page_is_sound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    image = shoal.InputPart((5, 4, 2), "observation", "view")
    layout = shoal.Layout((image, shoal.InputPart((3,)), image._replace(agent=1)))
    body = shoal.Body(network=f"own_network:{name}", recurrent=6 if name == "remembering" else None)
    net = build_body(body, layout, 2, log_std=0.0)  # checks shapes and types
    assert jax.eval_shape(net.init, jax.random.key(0))


@pytest.mark.parametrize("name", NAMES[1:])
def test_an_example_is_sound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pettingzoo" if "parallel" in name else "gymnasium")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    report = shoal.check(name, episodes=20)
    assert report.ok
    assert not [finding for finding in report.findings if finding.level != "note"], str(report)


def heading(line: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            lines = target.read_text(encoding="utf-8").splitlines()
            assert anchor in {heading(line) for line in lines if line.startswith("#")}, link


def test_a_claim_has_a_short_line_a_note_and_a_place_in_the_index() -> None:
    docs = ROOT / "docs"
    page, notes = ((docs / f"{name}.md").read_text(encoding="utf-8") for name in ("studies", "claims-notes"))
    cells = [cell for line in page.splitlines() if line.startswith("|") for cell in line.strip("|").split(" | ")]
    assert [cell for cell in cells if len(re.sub(r"\]\([^)]*\)", "]", cell).split()) > 40] == []
    titles = [heading(line) for line in notes.splitlines() if line.startswith("### ") and "Remarks on" not in line]
    assert re.findall(r"\(claims-notes\.md#([\w-]+)\) \|$", page, re.MULTILINE) == titles
    verdicts = re.findall(r"^\| [^|]+ \| ([^|]+) \|.*\(claims-notes\.md#[\w-]+\) \|$", page, re.MULTILINE)
    kinds = [tuple(re.findall("does not hold|not decided|holds", verdict)) for verdict in verdicts]
    hold, fail, open_ = (kinds.count((kind,)) for kind in ("holds", "does not hold", "not decided"))
    total, rest = len(kinds), len(kinds) - hold - fail - open_
    said = (
        f"Of {total} claims {hold} hold, {fail} do not hold, {open_} are not decided, and the verdict on {rest} differs"
    )
    assert () not in kinds and said in page
    index = (docs / "claims-index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(claims-notes\.md#([\w-]+)\)", index)) == set(titles)


def test_a_claim_without_a_record_is_marked() -> None:
    """A note about records begins with the studies that wrote them, and any other with the commands."""
    docs = ROOT / "docs"
    page, notes = ((docs / f"{name}.md").read_text(encoding="utf-8") for name in ("studies", "claims-notes"))
    claims = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|.*\(claims-notes\.md#([\w-]+)\) \|$", page, re.MULTILINE)
    again = {
        heading(part.partition("\n")[0]): part.partition("**Again:** ")[2].split("\n\n")[0]
        for part in notes.split("\n### ")[1:]
    }
    assert len(claims) > 80
    for number, name in claims:
        text = again[name]
        recorded = "studies/results/" in text if text.startswith("`shoal study ") else text.startswith("[a test](")
        assert recorded != number.endswith("‡"), name


def test_a_claim_is_marked_as_stale_where_its_study_is() -> None:
    """A number that is marked on the page of its study is marked on the line, and a marked line has such a page or no
    record."""
    docs = ROOT / "docs"
    page, notes = ((docs / f"{name}.md").read_text(encoding="utf-8") for name in ("studies", "claims-notes"))
    claims = re.findall(r"^\| [^|]+ \| ([^|]+ \| [^|]+) \|.*\(claims-notes\.md#([\w-]+)\) \|$", page, re.MULTILINE)
    studies = {
        heading(part.partition("\n")[0]): re.findall(r"\(\.\./(studies/results/\w+\.md)\)", part)
        for part in notes.split("\n### ")[1:]
    }
    assert len(claims) > 80
    for said, name in claims:
        pages = "".join((ROOT / path).read_text(encoding="utf-8") for path in studies[name])
        stale = set(re.findall(r"(\S+ \[\S+, \S+\]) †", pages))
        numbers = re.findall(r"\+?(\S+?)(?: %)? [\[(](\S+?)(?:,| to) (\S+)[\])]", said)
        assert "†" in said or not stale & {f"{value} [{low}, {high}]" for value, low, high in numbers}, name
        assert "†" not in said or "†" in pages or said.endswith("‡"), name


def test_the_environments_in_commands_exist() -> None:
    found = {name for page in PAGES for name in IN_COMMAND.findall(page.read_text(encoding="utf-8"))}
    assert len(found) > 30
    for name in found - {"mpe/simple_sprad"}:  # whose message is measured
        check_name(name)


@pytest.mark.slow
def test_the_study_file_of_the_page_is_accepted(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "study-files.md").read_text(encoding="utf-8")
    file = tmp_path / "my_study.toml"
    file.write_text(page.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    assert len(shoal.study(file, dry_run=True, out=tmp_path).states) == 12


def test_the_table_of_formats_has_those_that_are_written() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert f"| file | format of {shoal.__version__} |" in page
    assert page.count(f"| {manifest.RUN_FORMAT} (`run.json`) |") == 2
    assert f"| records of studies | {record.RECORD_FORMAT} |" in page
    assert f"| records of searches (`shoal tune`) | {tuning.TUNING_FORMAT} |" in page
    assert f"| records of a study's cross-play | {crossplay.CROSSPLAY_FORMAT} |" in page
    assert f"| exported policies | {export.VERSION} (" in page and f"operators (version {onnx.OPSET})" in page


def test_the_citation_has_the_version_of_the_package() -> None:
    assert f"\nversion: {shoal.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_each_number_of_the_readmes_speed_is_on_a_page_that_it_links() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Speed\n")[1].split("\n## ")[0]
    paths = {link.partition("#")[0] for link in LINK.findall(section)}
    said, shown = (
        set(re.findall(r"−?\d(?:[\d.,]*\d)?", text))
        for text in (LINK.sub("]", section), "".join((ROOT / path).read_text(encoding="utf-8") for path in paths))
    )
    assert said and said - shown == set()


def test_every_algorithm_has_its_paper_in_the_references() -> None:
    """With the first author and the year that its file names."""
    entries = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8").split("\n@")[1:]
    papers = [dict(re.findall(r"^  (\w+) = \{(.*)\},?$", entry, re.MULTILINE)) for entry in entries]
    named = [name for paper in papers for name in paper["keywords"].split(", ")]
    assert sorted(named) == sorted(algorithms.NAMES)
    keys = [entry.split("{")[1].split(",")[0] for entry in entries]
    assert len(set(keys)) == len(keys)
    for paper in papers:
        assert paper["title"] and (paper.get("booktitle") or paper["journal"])
        first, *others = paper["author"].split(" and ")
        cited = f"{first.split(',')[0]}{' et al.' if others else ''} {paper['year']}"
        for name in paper["keywords"].split(", "):
            file = ROOT / "src" / "shoal" / "algorithms" / f"{name}.py"
            assert f"({cited}" in file.read_text(encoding="utf-8").split('"""')[1], name


def test_the_architecture_has_a_line_about_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for package in (ROOT / "src" / "shoal").glob("*/__init__.py"):
        name = package.parent.name
        assert f"[`{name}/`](../src/shoal/{name}/)" in page


def test_every_page_is_once_in_the_navigation_of_the_site() -> None:
    docs = ROOT / "docs"
    sections = tomllib.loads((docs / "navigation.toml").read_text(encoding="utf-8"))
    listed = [(docs / f"{name}.md").resolve() for names in sections.values() for name in names]
    assert sorted(listed) == [page for page in PAGES if page != docs / "index.md"]


def test_the_front_page_links_every_page_of_its_folder() -> None:
    docs = ROOT / "docs"
    text = (docs / "index.md").read_text(encoding="utf-8")
    names = [str(page.relative_to(docs)) for page in PAGES if page.is_relative_to(docs)]
    assert [name for name in names if f"({name})" not in text and not name.startswith("reference/")] == ["index.md"]


def test_the_reference_has_every_public_name_and_algorithm() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    entries = set(re.findall(r"^\.\. auto\w+:: (\S+)$", text, re.MULTILINE))
    assert {f"shoal.{name}" for name in shoal.__all__} - entries == set()
    assert {f"shoal.algorithms.{name}" for name in algorithms.NAMES} - entries == set()


def test_the_front_page_states_the_number_of_algorithms() -> None:
    assert f"[{len(algorithms.NAMES)} algorithms]" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
