"""The pages for users of other libraries: their commands are accepted, and flags have the defaults that they state."""

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from shoal import algorithms
from shoal.cli.commands import COMMANDS
from shoal.cli.flags import Flag, of_fields, read_words
from shoal.presets import preset
from shoal.training.settings import Settings
from support.selection import quick

ROOT = Path(__file__).parents[1]
PAGES = sorted(ROOT.glob("docs/coming-from/*.md"))
TRAIN = re.compile(r"`shoal train (\S+)`")
IN = re.compile(r"in `(\S+)`")
FLAG = re.compile(r"`(--[a-z][a-z0-9.-]*)[^`]*`")


def commands(text: str) -> Iterator[str]:
    """Commands of a page in blocks and in tables, without comments; one line ends with a backslash if it goes on."""
    text = re.sub(r" *\\\n +", " ", text)
    for found in re.findall(r"^    (shoal .*)$|`(shoal [a-z]+ [^`]*)`", text, re.MULTILINE):
        words = shlex.split(found[0] or found[1], comments=True)
        if not (words[1] == "train" and len(words) == 3):  # the head of a table
            yield shlex.join(words[1:])


FOUND = sorted({(page.stem, command) for page in PAGES for command in commands(page.read_text(encoding="utf-8"))})


QUICK = [found for found in FOUND[::3] if "jaxmarl/" not in found[1]]
"""Importing JaxMARL takes five seconds."""


@pytest.mark.parametrize(("page", "command"), quick(FOUND, *QUICK))
def test_a_command_of_a_page_is_accepted(
    page: str, command: str, shoal: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without training: its flags are read, and the environment and the algorithm of ``train`` are built."""
    del page
    monkeypatch.chdir(ROOT / "examples")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    if "LunarLander" in command:
        pytest.importorskip("Box2D")  # whose first import warns
    name, *words = shlex.split(command)
    if name == "train" and "--resume" not in words:
        code, _, err = shoal("train", *words, *(["--print-config"] if "--print-config" not in words else []))
        if "needs" in err and "pip install" in err:
            pytest.skip(err)
        assert (code, err) == (0, "")
    elif name == "train":
        known = {flag.spelt for flag in [*of_fields(Settings(), "run")["run"], *flags("mappo")]}
        assert {word for word in words if word.startswith("--")} <= known | {"--resume"}
    else:
        found, rest = COMMANDS[name](words)
        read_words(found.prog, [flag for group in found.groups.values() for flag in group], rest)


def flags(algorithm: str) -> list[Flag]:
    """Of ``shoal train ALGORITHM``, with the defaults of the code."""
    groups = [
        of_fields(Settings(), "run"),
        of_fields(algorithms.get(algorithms.canonical(algorithm)).Config(), algorithm),
    ]
    return [flag for some in groups for group in some.values() for flag in group]


def tables(text: str) -> Iterator[list[list[str]]]:
    """The rows of each table, the head first."""
    for block in re.findall(r"(?:^\|.*\|\n)+", text + "\n", re.MULTILINE):
        rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


def stated(head: Sequence[str], row: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """(algorithm, environment or nothing, flag, the value that the page states, or nothing) of a row."""
    for i, title in enumerate(head):
        if (train := TRAIN.fullmatch(title)) is None or not (own := FLAG.findall(row[i])):
            continue
        yield from ((train[1], "", flag, "") for flag in own if not flag.startswith("--env."))
        for cell, value in zip(head[i + 1 :], row[i + 1 :], strict=True):
            if TRAIN.fullmatch(cell):
                break
            environment = IN.fullmatch(cell)
            if (environment or cell == "default") and value and not value.startswith("["):  # a link: it is derived
                yield train[1], environment[1] if environment else "", own[0], value


ROWS = [
    pytest.param(*one, id=f"{page.stem}: {one[2]} of {one[0]} {one[1]}")
    for page in PAGES
    for head, *rows in tables(page.read_text(encoding="utf-8"))
    for row in rows
    for one in stated(head, row)
]


@pytest.mark.parametrize(("algorithm", "environment", "spelt", "value"), ROWS)
def test_a_page_states_the_value_of_a_flag(algorithm: str, environment: str, spelt: str, value: str) -> None:
    known = {flag.spelt: flag for flag in flags(algorithm)}
    assert spelt in known, f"{algorithm} has no flag {spelt}"
    found = preset(algorithms.canonical(algorithm), environment) if environment else {}
    flag = replace(known[spelt], default=found.get(known[spelt].name, known[spelt].default))
    assert value.replace(",", "") in ("", flag.default_text)


@pytest.mark.parametrize(
    ("library", "package", "name", "option", "value"),
    quick(
        [("jaxmarl", "jaxmarl", "spread", "num-agents", "2"), ("mava", "jumanji", "warehouse", "horizon", "20")],
        ("mava", "jumanji", "warehouse", "horizon", "20"),
    ),
)
def test_an_environment_of_a_library_is_made_as_on_its_page(
    library: str,
    package: str,
    name: str,
    option: str,
    value: str,
    shoal: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):  # which the first import replaces
        pytest.importorskip(package)
    page = (ROOT / "docs" / "coming-from" / f"{library}.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    module = f"{library}_env"
    (tmp_path / f"{module}.py").write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, out, err = shoal("train", "mappo", f"{module}:{name}", f"--env.{option}", value, "--print-config")
    assert (code, err) == (0, "") and f"{option.replace('-', '_')} = {value}" in out


def test_ppo_has_the_preset_of_mappo_for_one_agent() -> None:
    """``ppo`` is ``ippo``, whose critic reads what ``mappo`` reads by its preset for a single agent."""
    assert preset("ippo", "gymnasium:LunarLander-v3") == preset("mappo", "gymnasium:LunarLander-v3") != {}
