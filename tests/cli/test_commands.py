"""Commands that are printed to be pasted: the command line reads them back as what they stand for."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import faulty
from shoal import cli
from shoal.checking import check
from shoal.cli import train as cli_train
from shoal.environments.names import commands_with
from shoal.errors import InputError
from shoal.runs.run import Run
from shoal.training.settings import Settings
from unbuilt import typed

asked: list[tuple[str, Any, dict[str, Any]]] = []


DEFAULTS: dict[str, Any] = {**(typed.__kwdefaults__ or {}), "shared_reward": None, "score": None}


@pytest.fixture(autouse=True)
def train(monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(found: Any, *_: Any, **__: Any) -> Any:
        asked.append((found.given, found.environment, found.env))
        raise InputError("enough")

    monkeypatch.setattr("shoal.runs.api.train_configured", recorded)


def pasted(command: str, environment: Any = None, env: Any = None) -> tuple[str, Any, dict[str, Any]]:
    """What a printed command asks for."""
    asked.clear()
    if command.startswith("shoal.train("):
        shoal = SimpleNamespace(train=lambda a, e, env=None: asked.append((a, e, dict(env or {}))))
        eval(command, {"shoal": shoal, "environment": environment, "env": env})
    else:
        program, *words = shlex.split(command)
        assert program == "shoal" and cli.main(words) == 2
    (found,) = asked
    return found


VALUES = [
    ("number", -5),
    ("rate", -0.25),
    ("rate", 1e-7),
    ("rate", float("inf")),
    ("rate", 2),
    ("text", "two words"),
    ("text", ""),
    ("text", 'it\'s "quoted" $HOME `x` \\'),
    ("text", "--steps"),
    ("text", "-1"),
    ("text", "None"),
    ("on", True),
    ("off", False),
    ("perhaps", True),
    ("perhaps", False),
    ("shared_reward", True),
    ("shared_reward", False),
    ("score", "mean"),
    ("size", (10, -10)),
    ("pair", (-1.5, 2.0)),
    ("words", ("a b", "c")),
    ("limit", None),
    ("limit", -1),
    ("title", "a b"),
    ("mode", "slow"),
    ("folder", Path("a b")),
    ("anything", {"a": [1, None], "b": (True, "x")}),
    ("anything", "3"),
    ("anything", "easy going"),
    ("anything", -2.5),
    ("anything", False),
    ("guessed", -7),
    ("shape", (-4, 5, 6)),
]


@pytest.mark.parametrize(("option", "value"), VALUES)
def test_an_option_is_read_back_from_the_command_line(option: str, value: Any) -> None:
    train, check = commands_with("unbuilt:typed", {option: value})
    assert train.startswith("shoal train ") and check == train.replace("train mappo", "check")
    algorithm, environment, env = pasted(train)
    assert (algorithm, environment) == ("mappo", "unbuilt:typed")
    found = (DEFAULTS | env)[option]
    assert (found == value and isinstance(found, type(value))) or (isinstance(value, int) and found == float(value))


FREE = {
    "max_cycles": 30,
    "mode": "easy",
    "on": True,
    "off": False,
    "text": "3",
    "word": "false",
    "shape": [1, -2],
    "none": None,
    "x": -1,
}


def test_options_of_a_flexible_factory_are_read_back() -> None:
    assert pasted(commands_with("unbuilt:flexible", FREE)[0]) == ("mappo", "unbuilt:flexible", FREE)


@pytest.mark.parametrize(
    "options",
    [
        {"text": 3},
        {"size": ()},
        {"words": ()},
        {"words": ("",)},
        {"title": "None"},
        {"words": ("a", "--b")},
        {"pair": (1.0,)},
        {"mode": "other"},
        {"on": None},
    ],
)
def test_a_call_without_command_line_form_is_printed_as_python(options: dict[str, Any]) -> None:
    train, check = commands_with("unbuilt:typed", options)
    assert train.startswith("shoal.train(") and check.startswith("shoal.check(")
    assert pasted(train) == ("mappo", "unbuilt:typed", options)


def test_objects_are_given_by_the_names_of_variables() -> None:
    options = {"anything": {1: object()}}
    assert pasted(commands_with("unbuilt:typed", options)[0], env=options)[2] == options
    assert pasted(commands_with(typed, {"number": 3})[0], environment=typed) == ("mappo", typed, {"number": 3})


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NUMBER = st.floats(allow_nan=False) | st.integers(-(10**6), 10**6)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "number": st.integers(-(10**6), 10**6),
        "rate": st.floats(allow_nan=False),
        "text": TEXT | st.sampled_from(["-", "--", "-h", "--help", "=", "--env.text", "'", "True", "None"]),
        "on": st.booleans(),
        "perhaps": st.none() | st.booleans(),
        "size": st.lists(st.integers(-9, 9), max_size=3).map(tuple),
        "words": st.lists(TEXT, max_size=3).map(tuple),
        "title": st.none() | TEXT,
        "anything": st.none() | st.booleans() | NUMBER | TEXT | st.lists(NUMBER, max_size=2),
        "shared_reward": st.none() | st.booleans(),
    },
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OPTIONS)
def test_any_options_are_read_back(options: dict[str, Any]) -> None:
    _, _, env = pasted(commands_with("unbuilt:typed", options)[0], env=options)
    assert DEFAULTS | env == DEFAULTS | options


def test_the_report_of_a_check_can_be_pasted(shoal: Callable) -> None:
    words = ["--env.shared-reward", "--env.score", "mean", "--env.fault", "alike"]
    code, out, _ = shoal("check", "faulty:make", *words, "--episodes", "1")
    command = out.splitlines()[-1].partition("Next: ")[2]
    assert code == 0 and pasted(command)[1:] == (
        "faulty:make",
        {"fault": "alike", "shared_reward": True, "score": "mean"},
    )
    code, out, _ = shoal("check", "faulty:make", *words[:-1], "no legal", "--episodes", "1")
    again = out.splitlines()[-1].partition("check again: ")[2]
    assert code == 1 and shoal(*shlex.split(again)[1:])[0] == 1
    report = check(faulty.make, env={"fault": "poor"}, episodes=1)
    assert pasted(report.train, environment=faulty.make) == ("mappo", faulty.make, {"fault": "poor"})


@pytest.mark.parametrize("folder", ["runs/plain", "a b", "-x", "it's"])
@pytest.mark.parametrize("program", ["shoal", "/some where/shoal"])
def test_the_end_of_training_can_be_pasted(
    folder: str, program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each command is parsed; what it would do is left out."""
    monkeypatch.setattr("sys.argv", [program])
    run = object.__new__(Run)  # without an environment or a folder
    run.folder, run.algorithm, run.environment, run.final_score = Path(folder), "mappo", "x", None
    run.settings = Settings(steps=12345678.0)
    monkeypatch.setattr(Run, "summary", lambda self: "")
    again = f"{cli_train.program()} train --resume {cli_train.path_words(run.folder)}"
    lines = [x for x in cli_train.summary_text(run, again).splitlines() if re.search(r" (evaluate|replay|train) ", x)]
    assert len(lines) == 3
    opened: list[Path] = []

    def opening(where: Any, *_: Any, **__: Any) -> Any:
        opened.append(Path(where))
        raise InputError("enough")

    monkeypatch.setattr("shoal.runs.api.open_run", opening)
    for line in lines:
        called, *words = shlex.split(line)
        assert called == program and cli.main(words) == 2
    assert opened == [Path(folder)] * 3


def test_an_example_of_sides_can_be_pasted() -> None:
    from shoal.environments import registry
    from shoal.sides.sides import members

    spec = registry.make("grid/stag_hunt", num_agents=4).spec
    with pytest.raises(InputError, match="have one role") as refusal:
        members(spec, 3, None)
    found = re.search(r"--sides ([\d ]+) \(in Python, sides=(.*)\)", str(refusal.value))
    assert found is not None and tuple(map(int, found[1].split())) == eval(found[2])
    assert len(members(spec, 3, eval(found[2]))) == 3
