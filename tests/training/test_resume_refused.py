"""What a run is not resumed for, and what is never saved: one sentence, and nothing changes on the disk."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shoal
from shoal.errors import CheckpointError, InputError, NonFiniteError
from shoal.runs.api import trainer_of
from support import trained
from support.trained import Whole, damage


def test_no_sound_checkpoint_is_an_error(copy: Path) -> None:
    for path in (copy / "checkpoints").iterdir():
        damage(path)
    with pytest.raises(CheckpointError, match="not damaged"):
        shoal.resume(copy, progress=False)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"steps": 480}, "has already done 19200 steps"),
        ({"seeds": 4}, "seeds cannot change"),
        ({"init_from": "other"}, "init_from cannot change .*a new run that starts from it may have another value"),
        ({"learning_rate": 1e-3}, "learning_rate cannot change"),
        ({"nonsense": 1}, "nonsense cannot change"),
        ({"steps": -5}, "steps must be at least 1"),
        ({"keep": 0}, "keep must be at least 1"),
        ({"eval_episodes": -1}, "must be at least 0"),
        ({"steps": "many"}, "steps must be a number, not 'many'"),
    ],
)
def test_what_a_resumed_run_refuses(whole: Whole, flags: dict[str, Any], said: str) -> None:
    before = (whole.folder / "run.json").read_bytes()
    with pytest.raises(InputError, match=said):
        shoal.resume(whole.folder, progress=False, **flags)
    assert (whole.folder / "run.json").read_bytes() == before


def test_fewer_devices_are_refused_in_one_sentence(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    with pytest.raises(
        InputError, match=r"trained on 1 × 2 .* cannot continue bit-exactly on 1 × 1 .* it needs --devices 2 "
    ) as caught:
        shoal.resume(whole.folder, progress=False, steps=2 * trained.UPDATES * 48)
    assert "\n" not in str(caught.value)


def change(folder: Path, part: str, **values: Any) -> None:
    said = json.loads((folder / "run.json").read_text())
    said["config"][part] |= values
    (folder / "run.json").write_text(json.dumps(said))


def test_an_environment_that_changed_is_refused(copy: Path) -> None:
    change(copy, "env", horizon=9)
    longer = 2 * trained.UPDATES * 48
    for call in (
        lambda: shoal.open_run(copy, trust=True).evaluate(2),
        lambda: shoal.resume(copy, trust=True, steps=longer),
    ):
        with pytest.raises(InputError, match=r"toys:busy is not the environment it was .*: its horizon is 9 and was 7"):
            call()


def test_a_configuration_that_changed_is_refused(copy: Path) -> None:
    change(copy, "config", hidden=[9])
    for call in (shoal.resume, shoal.load, lambda folder: shoal.open_run(folder).evaluate(2)):
        with pytest.raises(CheckpointError, match=r"step 400 was saved: config.hidden is \[9\] and was \[8\]"):
            call(copy)


def test_a_configuration_that_the_parameters_do_not_show_is_refused(copy: Path) -> None:
    """Nothing but the record could tell a learning rate that was changed by hand, or an option that was dropped."""
    was = json.loads((copy / "run.json").read_text())["config"]["config"]["learning_rate"]
    change(copy, "config", learning_rate=2 * was)
    for call in (shoal.resume, shoal.load):
        with pytest.raises(CheckpointError, match=rf"config.learning_rate is {2 * was} and was {was}"):
            call(copy)
    change(copy, "config", learning_rate=was)
    change(copy, "env", death=0.5)
    with pytest.raises(CheckpointError, match=r"env.death is 0.5 and was missing"):
        shoal.resume(copy)


def test_a_renamed_key_is_refused(copy: Path) -> None:
    """It would be a default, which trains another run."""
    said = json.loads((copy / "run.json").read_text())
    said["config"]["config"]["learning_rat"] = said["config"]["config"].pop("learning_rate")
    (copy / "run.json").write_text(json.dumps(said))
    for call in (shoal.open_run, shoal.resume, shoal.load):
        with pytest.raises(InputError, match="no key in 'config' named 'learning_rat'; did you mean 'learning_rate'"):
            call(copy)
    assert json.loads((copy / "run.json").read_text()) == said


def test_a_broken_parameter_is_not_saved(copy: Path) -> None:
    """The last gradient step of a call comes after the last metric: a checkpoint must not rely on metrics alone."""
    trainer = trainer_of(shoal.open_run(copy), False)
    trainer.restore()
    assert trainer.state is not None
    leaves, tree = jax.tree.flatten(trainer.state.learner.critic)
    leaves[0] = leaves[0].at[2].set(jnp.inf)
    trainer.state = trainer.state._replace(
        learner=trainer.state.learner._replace(critic=jax.tree.unflatten(tree, leaves))
    )
    trainer.at = trainer.at._replace(update=trainer.update + 1)
    with pytest.raises(NonFiniteError, match=f"critic.* of seed 7 .* update {trained.UPDATES} is kept"):
        trainer.save()
    assert trainer.checkpoints.latest() == trainer.policies.latest() == trained.UPDATES
