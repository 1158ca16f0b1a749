"""Completion by the shell: the words that may stand at the cursor."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal import algorithms
from shoal.cli.commands import COMMANDS
from shoal.cli.completion import candidates
from shoal.environments.adapters import jaxmarl, lbf, mamujoco, rware, smac
from shoal.environments.names import FAMILIES
from shoal.environments.skirmish import drawn


def test_commands_and_names() -> None:
    assert set(COMMANDS) <= set(candidates([]))
    assert {*algorithms.NAMES, *algorithms.SCRIPTED, *algorithms.ALONE} == set(candidates(["train"]))
    for words in (["train", "mappo"], ["check"]):
        found = set(candidates(words))
        assert {"mpe/simple_spread", "matrix/climbing", "skirmish/MMM2", "smac/zerg_5_vs_5", "pettingzoo:"} <= found
        assert {prefix for prefix in FAMILIES if prefix in found} == {"gymnasium:", "pettingzoo:"}
    assert candidates(["list"]) == ["algorithms", "environments"]
    assert candidates(["completion"]) == ["bash", "fish", "zsh"]
    assert candidates(["trian"]) == []


def test_names_of_families_are_accepted_by_them() -> None:
    assert set(candidates(["check"], "skirmish/t")) == {f"skirmish/{task}" for task in smac.DRAWN if task[0] == "t"}
    assert all(drawn.NAME.fullmatch(task) for task in smac.DRAWN)
    for family, parsed in {
        "lbf": lbf.parse_lbf_task,
        "rware": rware.parse_rware_task,
        "mamujoco": mamujoco.parsed,
    }.items():
        tasks = [name.removeprefix(f"{family}/") for name in candidates(["check"], f"{family}/")]
        assert len(tasks) > 5 and all(map(parsed, tasks))
    known = {*jaxmarl.FAMILIES, *jaxmarl.ALIASES}
    assert all(name.split("/")[1] in known for name in candidates(["check"], "jaxmarl/"))


def test_names_are_completed_without_jax() -> None:
    program = "import sys; from shoal.cli.completion import candidates; print(len(candidates(['check'])), *sys.modules)"
    words = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert int(words[0]) > 150 and {"jax", "scipy", "flax"}.isdisjoint(words)


def test_flags_and_their_fixed_values() -> None:
    spread = ["train", "mappo", "mpe/simple_spread"]
    found = candidates(spread, "--")
    assert {"--steps", "--gamma", "--env.convention", "--progress", "--no-progress", "--help"} <= set(found)
    assert "--batch-size" in candidates(["train", "qmix", "mpe/simple_spread"], "--") and "--batch-size" not in found
    assert candidates([*spread, "--sharing"]) == ["shared", "role", "independent"]
    assert candidates([*spread, "--steps"]) == [] and candidates([*spread, "--num-workers"]) == ["None"]
    left = candidates([*spread, "--steps", "1e5", "--no-progress"], "-")
    assert not {"--steps", "--progress", "--no-progress"} & set(left) and "--gamma" in left


def test_files_are_left_to_the_shell() -> None:
    for words in (["evaluate"], ["evaluate", "runs/a"], ["study"], ["curves", "a", "b"], ["report"]):
        assert candidates(words) == []
    for flag in ("--resume", "--config", "--folder", "--init-from", "--wandb"):
        assert candidates(["train", "mappo", "mpe/simple_spread", flag]) == [], flag
    assert "--episodes" in candidates(["evaluate", "runs/a"], "--e")


def test_policies_and_studies_that_come_with_shoal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spread = ["train", "mappo", "mpe/simple_spread"]
    for words in (["replay"], ["crossplay", "runs/a"], ["report", "runs/a", "--against"], [*spread, "--init-from"]):
        assert candidates(words, "zoo/sp") == ["zoo/speaker-listener", "zoo/spread"]
    assert {"two_step", "two_state"} == set(candidates(["study"], "two_st"))
    assert candidates(["study"], "zoo/sp") == candidates(["replay"], "two_st") == []
    (tmp_path / "two_step_of_mine.toml").touch()
    assert candidates(["study"], "two_st") == []


def test_nothing_of_ones_own_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pest.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert "--steps" in candidates(["train", "pest", "pest:make"], "--")
    assert "--gamma" in candidates(["train", "mappo", "pest:make", "--config", "pest.toml"], "--")
    assert "pest" not in sys.modules


def test_any_beginning_of_names_is_listed(shoal: Callable) -> None:
    for begun in ("skirmish", "skirmish/2", "mpe", "g"):
        code, out, _ = shoal("list", begun)
        lines = out.splitlines()
        assert code == 0 and len(lines) > 1 and all(line.startswith(begun) for line in lines)
    assert shoal("list", "pettingzoo:")[1].startswith("pettingzoo:…  PettingZoo's environments (https://")


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


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
@pytest.mark.parametrize("words", [[], ["algorithms", "environments"], ["a name", "matrix/climbing"]])
def test_zsh_completes_files_where_there_is_no_word(words: list[str], shoal: Callable) -> None:
    """An empty word would be one that fits, and is completed in place of a file."""
    code, script, _ = shoal("completion", "zsh")
    assert code == 0
    program = f"""
    shoal() {{ printf '%s\\n' {shlex.join(words)} }}
    compadd() {{ print -rl -- "$#found" $found; return $(( $#found == 0 )) }}
    _files() {{ print files }}
    compdef() {{ }}
    {script}
    words=(shoal evaluate "") CURRENT=3
    _shoal"""
    done = subprocess.run(["zsh", "-f", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [str(len(words)), *(words or ["files"])]
