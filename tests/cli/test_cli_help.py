"""The command line, in process: what it lists and how it explains itself."""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from shoal import algorithms
from shoal.cli.flags import argument_docs, attribute_docs
from shoal.networks.body import Body
from shoal.presets import preset
from shoal.training.settings import Settings
from shoal.types import EnvSpec

SPREAD = ["train", "mappo", "mpe/simple_spread"]
TUNED = preset("mappo", "mpe/simple_spread")


def test_the_lists_of_names(shoal: Callable) -> None:
    code, out, _ = shoal("list", "algorithms")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == [
        *sorted(algorithms.NAMES),
        *sorted(algorithms.SCRIPTED),
        *sorted(algorithms.ALONE),
    ]
    code, out, _ = shoal("list", "environments")
    assert code == 0 and "mpe/simple_spread            Cooperative navigation (Lowe et al. 2017).\n" in out
    assert all(len(line.split(maxsplit=1)) == 2 for line in out.splitlines()), "every environment says what it is"


# Help


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_names_every_command(shoal: Callable, words: list[str]) -> None:
    code, out, _ = shoal(*words)
    assert code == 0
    assert all(f"  {name} " in out for name in ("train", "evaluate", "replay", "curves", "list"))


def test_version(shoal: Callable) -> None:
    code, out, _ = shoal("--version")
    assert code == 0 and out.startswith("shoal ")


def test_help_of_training_grows_with_what_is_named(shoal: Callable) -> None:
    code, out, _ = shoal("train", "--help")
    assert code == 0 and "--num-envs" in out and "--gamma" not in out
    assert out.startswith("usage: shoal train ALGORITHM ENVIRONMENT [OPTIONS]\n")
    code, out, _ = shoal("train", "mappo", "--help")
    assert code == 0 and "--gamma NUMBER" in out and "--env." not in out
    assert out.startswith("usage: shoal train mappo ENVIRONMENT [OPTIONS]\n")
    code, out, _ = shoal(*SPREAD, "--help")
    plain = " ".join(out.replace("│", " ").split())
    assert code == 0 and f"Paper: 0.99. (default: {TUNED['gamma']:g}; in [0, 1])" in plain, (
        "the preset's value is the default shown"
    )
    assert out.startswith("usage: shoal train mappo mpe/simple_spread [OPTIONS]\n")
    assert "\nwrapping options:\n" in out and "\nopponent options:\n" in out
    assert "--env.convention mpe2|openai" in out and "--hidden INT..." in out and "``" not in out


def test_help_of_training_begins_with_what_matters(shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for words, first in (
        (
            ["train", "mappo"],
            ["--steps", "--seeds", "--num-envs", "--rollout-length", "--learning-rate", "--gamma", "--hidden"],
        ),
        (
            ["train", "qmix"],
            ["--steps", "--seeds", "--num-envs", "--rollout-length", "--learning-rate", "--gamma", "--hidden"],
        ),
        (["train"], ["--steps", "--seeds", "--num-envs", "--rollout-length"]),
        (["train", "mappo+qmix", "mpe/simple_tag"], ["--steps", "--seeds", "--num-envs", "--rollout-length"]),
    ):
        code, out, _ = shoal(*words, "--help")
        flags = re.findall(r"^\W (--[a-z0-9.-]+)", out, re.MULTILINE)
        assert code == 0 and flags[: len(first)] == first and len(set(flags)) == len(flags)
        assert max(map(len, out.splitlines()[1:])) <= 60, "every line fits the terminal"
        assert out.split("\n\n")[1].count("\n") >= 1, "the first paragraph is wrapped"


def test_every_hyper_parameter_has_help() -> None:
    from shoal.algorithms import ippo, mappo

    for kind in (Settings, Body, mappo.Config, ippo.Config):
        assert set(kind.__dataclass_fields__) == set(attribute_docs(kind))
    assert "local" in attribute_docs(ippo.Config)["critic_input"]
    assert attribute_docs(EnvSpec)["name"].startswith("Name, for example mpe")


def test_argument_docs() -> None:
    doc = "What.\n\nArgs:\n    one: 1,\n        more.\n    two: ``x`` of :func:`~a.b`.\n\nRaises:\n    Error: 0."
    assert argument_docs(doc) == {"one": "1, more.", "two": "x of a.b."}
    assert argument_docs("Nothing.") == {}


# Bad input: one sentence, exit code 2, and no run folder.


def test_a_closed_pipe_is_no_error() -> None:
    closed = "import os; r, w = os.pipe(); os.close(r); os.dup2(w, 1)\n"
    call = "from shoal.cli import main; main(['list', 'environments'])"
    # Its standard output is a pipe from the start: Python remembers whether a stream can seek.
    done = subprocess.run([sys.executable, "-c", closed + call], capture_output=True, text=True, check=False)
    assert done.stderr == ""
