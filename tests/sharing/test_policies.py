"""A policy folder is what acting needs of a run, and says how the run was trained."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import shoal
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.runs.run import Run
from shoal.sharing.policies import keep_policies
from shoal.storage import zoo
from shoal.storage.folders import read_evaluation
from support.trained import copied, untrained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    tiny = {"steps": 8, "num_envs": 2, "rollout_length": 4, "minibatches": 1, "hidden": (4,), "eval_episodes": 0}
    with untrained():
        return shoal.train(
            "ippo", "matrix/climbing", folder=folder, tensorboard=False, progress=False, devices=1, **tiny
        )


def test_a_policy_folder_is_a_run_without_its_training(run: Run, tmp_path: Path) -> None:
    folder = keep_policies(run, tmp_path / "new" / "kept", licence="MIT", episodes=6)
    assert sorted(path.name for path in folder.iterdir()) == ["card.json", "evaluation.json", "policy", "run.json"]
    card, found = zoo.check_files(folder), read_evaluation(folder)
    assert card.command == (
        "shoal train ippo matrix/climbing --steps 8 --num-envs 2 --rollout-length 4 --eval-episodes 0 --no-tensorboard "
        "--hidden 4"
    )
    assert found is not None and (found["episodes"], found["step"]) == (6, 8) and "other" in found
    again = shoal.open_run(folder)
    assert again.acts_greedily == found["greedy"]
    assert again.evaluate(6).mean == found["mean"] == run.evaluate(6).mean
    for one, other in zip(jax.tree.leaves(run._learner()), jax.tree.leaves(again._learner()), strict=True):
        assert np.array_equal(one, other)
    assert zoo.described(folder).startswith(f"{folder}\n  ippo in matrix/climbing, 8 steps, ")


def test_a_folder_that_exists_and_an_unfinished_run_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    with pytest.raises(InputError, match="exists already"):
        keep_policies(run, tmp_path / "kept")
    longer = shoal.open_run(run.folder)
    object.__setattr__(longer.settings, "steps", 80.0)
    with pytest.raises(InputError, match="has not finished"):
        keep_policies(longer, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["opponents/key", "opponents/all", "policy/1/key"])
def test_nothing_outside_the_run_is_published_through_a_link(run: Run, name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("private")
    copy = copied(run.folder, tmp_path / "copy")
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).symlink_to(tmp_path / "secret" / ("" if name.endswith("all") else "key"))
    with pytest.raises(InputError, match=f"{name} is a symbolic link that leads out of the run's folder"):
        keep_policies(shoal.open_run(copy), tmp_path / "kept", episodes=2)
    assert not (tmp_path / "kept").exists()


def test_only_the_parts_of_a_run_are_published(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of opponents their policies and run.json, and only where the run has opponents."""
    copy = copied(run.folder, tmp_path / "copy")
    shutil.copytree(run.folder, copy / "opponents")
    found = run.evaluate(2)
    monkeypatch.setattr(Run, "_evaluated", lambda *_: found)  # the opponents are a copy of the run itself
    kept = keep_policies(shoal.open_run(copy), tmp_path / "alone", episodes=2)
    assert not (kept / "opponents").exists()
    faced = shoal.open_run(copy)
    faced.settings = override(faced.settings, {"opponents": "some/run", "side": ("0",)})
    kept = keep_policies(faced, tmp_path / "faced", episodes=2)
    assert sorted(path.name for path in (kept / "opponents").iterdir()) == ["policy", "run.json"]


def test_policies_that_come_with_shoal_are_no_run_to_finish(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds policies without their training"):
        keep_policies(shoal.open_run("zoo/3m"), tmp_path / "kept")


def test_nothing_remains_of_a_folder_that_cannot_be_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copy", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        keep_policies(run, tmp_path / "kept", episodes=2)
    assert not (tmp_path / "kept").exists()
