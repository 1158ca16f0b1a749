"""Completion by the shell: the words that may stand at the cursor."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal import algorithms
from shoal.cli.commands import COMMANDS
from shoal.cli.completion import candidates


def test_commands_and_names() -> None:
    assert set(COMMANDS) <= set(candidates([]))
    assert {*algorithms.NAMES, *algorithms.SCRIPTED, *algorithms.ALONE} == set(candidates(["train"]))
    for words in (["train", "mappo"], ["check"]):
        assert {"mpe/simple_spread", "matrix/climbing", "skirmish/", "pettingzoo:"} <= set(candidates(words))
    assert candidates(["list"]) == ["algorithms", "environments"]
    assert candidates(["completion"]) == ["bash", "fish", "zsh"]
    assert candidates(["trian"]) == []


def test_flags_and_their_fixed_values() -> None:
    spread = ["train", "mappo", "mpe/simple_spread"]
    found = candidates(spread, "--")
    assert {"--steps", "--gamma", "--env.convention", "--progress", "--no-progress", "--help"} <= set(found)
    assert "--batch-size" in candidates(["train", "qmix", "mpe/simple_spread"], "--") and "--batch-size" not in found
    assert candidates([*spread, "--sharing"]) == ["shared", "role", "independent"]
    assert candidates([*spread, "--steps"]) == []
    left = candidates([*spread, "--steps", "1e5", "--no-progress"], "-")
    assert not {"--steps", "--progress", "--no-progress"} & set(left) and "--gamma" in left


def test_files_are_left_to_the_shell() -> None:
    for words in (["evaluate"], ["evaluate", "runs/a"], ["study"], ["curves", "a", "b"], ["report"]):
        assert candidates(words) == []
    assert "--episodes" in candidates(["evaluate", "runs/a"], "--e")


def test_nothing_of_ones_own_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pest.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert "--steps" in candidates(["train", "pest", "pest:make"], "--")
    assert "--gamma" in candidates(["train", "mappo", "pest:make", "--config", "pest.toml"], "--")
    assert "pest" not in sys.modules


def test_an_unknown_shell_is_refused(shoal: Callable) -> None:
    code, _, err = shoal("completion", "bsh")
    assert code == 2 and "bash" in err and len(err.splitlines()) == 1


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_what_is_begun(shoal: Callable) -> None:
    code, script, _ = shoal("completion", "bash")
    assert code == 0
    program = f"""
    shoal() {{ "{sys.executable}" -c 'import sys; from shoal.cli import main; sys.exit(main(sys.argv[1:]))' "$@"; }}
    {script}
    COMP_WORDS=(shoal train mappo mpe/simple_sp); COMP_CWORD=3; _shoal; echo "${{COMPREPLY[@]}}"
    COMP_WORDS=(shoal eval); COMP_CWORD=1; _shoal; echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["mpe/simple_speaker_listener mpe/simple_spread", "evaluate"], done.stderr
