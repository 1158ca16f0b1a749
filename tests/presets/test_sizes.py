"""The default sizes of a run: from the length of an episode where nothing is tuned, from the preset elsewhere."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import faulty
import shoal
from shoal.checking import inspection as suggestions
from shoal.checking.inspection import suggested_sizes
from shoal.errors import InputError
from shoal.presets import PRESETS, preset, sizes_for


@pytest.mark.parametrize(
    ("horizon", "length"), [(1, 16), (16, 16), (17, 32), (25, 32), (50, 64), (100, 128), (500, 128), (10_000, 128)]
)
def test_a_rollout_just_holds_an_episode(horizon: int, length: int) -> None:
    assert sizes_for(horizon) == {"num_envs": 8, "rollout_length": length}
    assert length % 16 == 0  # chunks of recurrent nets, and environments over devices, divide it


def trained(monkeypatch: pytest.MonkeyPatch, folder: Path, algorithm: str, environment: Any, **flags: Any) -> Any:
    """The settings that ``run.json`` holds of a run that ends before its first step."""
    monkeypatch.setattr("shoal.training.trainer.Trainer.run", lambda _: False)
    flags = {"steps": 64, "num_workers": 0, "progress": False, "tensorboard": False} | flags
    shoal.train(algorithm, environment, folder=folder, **flags)
    said = json.loads((folder / "run.json").read_text())["config"]["settings"]
    return said["num_envs"], said["rollout_length"]


def make(horizon: int = 25) -> Any:
    return faulty.HostEnvironment(replace(faulty.SPEC, horizon=horizon), faulty.Game)


CASES: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "short": ("ippo", {"env": {"horizon": 25}}, (8, 32)),
    "long": ("ippo", {"env": {"horizon": 1000}}, (8, 128)),
    "cut": ("ippo", {"env": {"horizon": 1000}, "time_limit": 10}, (8, 16)),
    "one given": ("ippo", {"env": {"horizon": 25}, "num_envs": 2}, (2, 32)),
    "both given": ("ippo", {"num_envs": 16, "rollout_length": 128}, (16, 128)),
    "recurrent": ("ippo", {"recurrent": 4}, (8, 32)),
    "replay": ("vdn", {}, (8, 32)),
}


@pytest.mark.parametrize("case", CASES)
def test_run_json_holds_them(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, flags, expected = CASES[case]
    assert trained(monkeypatch, tmp_path / "run", algorithm, "test_sizes:make", **flags) == expected


def test_every_mixer_has_the_settings_of_pymarl_in_skirmish() -> None:
    for name in ("vdn", "iql", "qplex", "qtran", "shaq"):
        assert preset(name, "skirmish/3m") == preset("qmix", "skirmish/3m")
    assert preset("qmix", "skirmish/3m")["recurrent"] == 64


def test_presets_keep_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trained(monkeypatch, tmp_path / "run", "ippo", "mpe/simple_spread") == (16, 128)
    for rows in PRESETS.values():  # one that has a size has both, or the other would follow from the episode
        for _, flags in rows:
            assert ("num_envs" in flags) == ("rollout_length" in flags)


def test_the_command_line_passes_on_what_is_said(shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def train(found: Any, *_: Any, **__: Any) -> Any:
        asked.append({name: found.flags[name] for name in ("num_envs", "rollout_length") if name in found.flags})
        raise InputError("enough")

    monkeypatch.setattr("shoal.runs.api.train_configured", train)
    derived = ["--num-envs", "None", "--rollout-length", "128"]
    for words in ([], ["--num-envs", "16"], derived):
        assert shoal("train", "mappo", "test_sizes:make", *words)[0] == 2
    assert asked == [{}, {"num_envs": 16}, {"num_envs": None, "rollout_length": 128}]
    assert shoal("train", "mappo", "mpe/simple_spread", *derived)[0] == 2  # over the numbers of a preset
    assert asked[3:] == [{"num_envs": None, "rollout_length": 128}]
    code, out, _ = shoal("train", "mappo", "test_sizes:make", "--help")
    assert code == 0 and "derived from the length of an episode" in " ".join(out.replace("│", " ").split())
    code, out, _ = shoal("train", "mappo", "mpe/simple_spread", "--help")
    shown = " ".join(out.replace("│", " ").split())
    assert code == 0 and "None: derived from the length of an episode. (default: 16" in shown


def test_a_check_suggests_steps_by_speed_and_sizes_by_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestions, "workers_for", lambda envs, workers: 2)
    spec = replace(faulty.SPEC, horizon=25)
    slow, fast = suggested_sizes("own:game", spec, 30.0), suggested_sizes("own:game", spec, 30_000.0)
    assert slow[0] == fast[0] and slow[0][1].startswith("--num-envs 8 --rollout-length 32 ")
    assert "256 steps per update" in slow[0][1]
    assert slow[1][1].startswith("--steps 30000: 117 updates, about 10 minutes") and len(fast) == 1
    assert suggested_sizes("own:game", spec, 0.0) == fast
    assert suggested_sizes("mpe/simple_spread", spec, 0.0)[0][1].startswith("--num-envs 16 --rollout-length 128 ")
    assert preset("mappo", "mpe/simple_spread")["num_envs"] == 16


def test_a_check_suggests_rollouts_of_the_episodes_that_it_saw_end() -> None:
    spec = replace(faulty.SPEC, horizon=10_000)
    (_, ended), (_, not_ended) = (
        suggested_sizes("own:game", spec, 0.0, 30)[0],
        suggested_sizes("own:game", spec, 0.0, None)[0],
    )
    assert ended.startswith("--num-envs 8 --rollout-length 32 (all episodes ended by step 30; the default for the ")
    assert "the default for the horizon is 128)" in ended
    assert not_ended.startswith("--num-envs 8 --rollout-length 128 (mappo's defaults here)")


def test_what_is_suggested_can_be_pasted(shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = suggested_sizes("own:game", replace(faulty.SPEC, horizon=25), 30.0)
    words = shlex.split(rows[0][1].partition(" (")[0] + " " + rows[1][1].partition(":")[0])
    asked: dict[str, Any] = {}

    def train(found: Any, *_: Any, **__: Any) -> Any:
        asked.update(found.flags)
        raise ValueError

    monkeypatch.setattr("shoal.runs.api.train_configured", train)
    with pytest.raises(ValueError):
        shoal("train", "mappo", "test_sizes:make", *words)
    assert asked["num_envs"] == 8 and asked["rollout_length"] == 32 and asked["steps"] >= 1e4
