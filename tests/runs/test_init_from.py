"""Runs that start from earlier ones; programs of updates are compiled only where runs are trained."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal as library
import toys
from shoal.algorithms import get
from shoal.config.resolve import configured
from shoal.errors import CheckpointError, InputError
from shoal.options.flags import override
from shoal.runs import init_from
from shoal.runs.api import new_run, trainer_of
from shoal.runs.open import keep_run_json, open_run
from shoal.runs.run import Run
from shoal.training import pretraining
from shoal.training.program import TrainState
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.types import Scale
from support.algorithm_kinds import config_of, spec_of

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 6,
    "steps": 24,
    "hidden": (4,),
    "orthogonal": False,
    "epochs": 1,
    "minibatches": 1,
    "normalise_inputs": True,
    "tensorboard": False,
    "devices": 1,
}


def run_of(folder: Path, algorithm: str = "mappo", **flags: Any) -> Run:
    settings, config = (override(x, SMALL | flags) for x in (Settings(), get(algorithm).Config()))
    return Run(folder, algorithm, "toys:busy", {}, settings, config, toys.busy())


def initial(trainer: Trainer) -> TrainState:
    return trainer.program.init(trainer.layout.keys(trainer.settings.seed))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """An IPPO run of two seeds with noise for its learner, after one update; and its arrays by name."""
    run = run_of(tmp_path_factory.mktemp("source") / "run", "ippo", seeds=2)
    run.folder.mkdir()
    keep_run_json(run)
    trainer, rng = trainer_of(run, False), np.random.default_rng(0)
    state = initial(trainer)
    learner = jax.tree.map(lambda x: jax.numpy.asarray(rng.random(x.shape), x.dtype), state.learner)
    trainer.state, trainer.at = state._replace(learner=learner), trainer.at._replace(update=1)
    trainer.save()
    return run.folder, {name: np.asarray(x) for name, x in init_from.arrays_by_name(learner).items()}


def begun(run: Run, source: Path) -> tuple[Trainer, dict[str, np.ndarray]]:
    """A trainer that starts from a run, and the new learner's arrays."""
    run.folder.mkdir(exist_ok=True)
    trainer = trainer_of(run, False)
    init_from.start_from(trainer, source)
    state = initial(trainer)
    template = trainer.program.template()
    assert jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), state.learner) == jax.tree.map(
        lambda x: (x.shape, x.dtype, x.weak_type), template.learner
    )
    return trainer, {name: np.asarray(x) for name, x in init_from.arrays_by_name(state.learner).items()}


def test_numbers_come_from_the_checkpoint(source: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    folder, values = source
    trainer, found = begun(run_of(tmp_path / "new", "ippo", seeds=3), folder)
    assert trainer.notes[-1] == f"Starts from {folder} (ippo in toys:busy, step 24): actor, critic, inputs, statistics."
    account = json.loads((tmp_path / "new" / init_from.INIT_FROM_FILE).read_text(encoding="utf-8"))
    assert account["run"] == "ippo in toys:busy, step 24" and account["not_taken"] == {}
    assert "actor.layers.0.kernel" in account["taken"] and "inputs.obs" in account["taken"]
    taken = [name for name in values if "coefficients" not in name and name != "updates"]
    groups = {name.removesuffix("/mean") for name in taken if name.endswith("/mean")}
    plain = [name for name in taken if name.rpartition("/")[0] not in groups]
    assert len(plain) + len(groups) == len(account["taken"])
    for name in taken:
        assert (found[name] == values[name][[0, 1, 0]]).all()
    assert (found["updates"] == 0).all()


def test_a_run_on_two_devices_starts_from_one_on_one(
    source: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    folder, values = source
    trainer, found = begun(run_of(tmp_path / "new", "ippo", devices=2), folder)
    assert trainer.layout.mesh.size == 2
    assert (found["policy/actor/head/kernel"] == values["policy/actor/head/kernel"][:1]).all()


def test_a_critic_of_another_shape_is_reported(source: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    trainer, found = begun(run_of(tmp_path / "new", "mappo", hidden=(4, 4), normalise_inputs=False), source[0])
    assert (found["policy/actor/layers/0/kernel"] == source[1]["policy/actor/layers/0/kernel"][:1]).all()
    said = trainer.warnings[-1].splitlines()
    assert said[0].endswith("4 of 13 arrays are taken (4 of 6 of actor).")
    assert "critic.layers.0.kernel is 1 × 18 × 4 here and 1 × 9 × 4 there." in said
    assert [
        line for line in said if line.startswith("There is no such array there: ") and "actor.layers.1.kernel" in line
    ]
    assert said[-1] == "Only one of the two runs normalises its inputs, so that networks read or give other numbers."
    account = json.loads((tmp_path / "new" / init_from.INIT_FROM_FILE).read_text(encoding="utf-8"))
    assert len(account["taken"]) == 4 and len(account["not_taken"]) == 9 and account["account"] == said
    assert account["not_taken"]["critic.layers.0.kernel"]["reason"] == init_from.SHAPES
    assert account["not_taken"]["critic.layers.0.bias"]["reason"] == init_from.LAYER
    assert any(line.startswith(f"{init_from.LAYER}: ") and "critic.layers.0.bias" in line for line in said)


def test_another_activation_is_named(source: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    for activation in ("tanh", "relu"):
        trainer = begun(run_of(tmp_path / activation, "ippo", activation=activation), source[0])[0]
        said = "The activation is 'relu' here and 'tanh' there, so that networks compute something else."
        assert (said in "\n".join(trainer.warnings)) == (activation == "relu")
        assert any("Starts from" in line for line in trainer.notes) == (activation == "tanh")


def test_every_array_that_is_not_taken_has_a_reason() -> None:
    left: Any = {
        "policy/actor/head/bias": ((2,), (2,)),
        "policy/actor/head/kernel": ((4, 2), (3, 2)),
        "policy/actor/layers/1/bias": ((4,), None),
        "statistics/value": ((1,), (1,)),
    }
    given = init_from.Transfer({"policy/inputs/obs": "policy/inputs/obs"}, left, ("critic/head/bias",), (), 1, {})
    found = init_from.parts_of_account(given)
    assert found["taken"] == ["inputs.obs"]
    assert {name: one["reason"] for name, one in found["not_taken"].items()} == {
        "actor.head.bias": init_from.LAYER,
        "actor.head.kernel": init_from.SHAPES,
        "actor.layers.1.bias": init_from.ABSENT,
        "statistics.value": init_from.SCALE,
        "critic.head.bias": init_from.SCALE,
    }


def test_first_layers_that_differ_in_their_width_alone_read_the_same_inputs() -> None:
    spec, source = toys.busy().spec, init_from.Source(Path("there"), "mappo", toys.busy().spec, None, {})  # type: ignore[arg-type]
    left: Any = {"policy/actor/layers/0/kernel": ((1, 9, 4), (1, 9, 8))}
    said = init_from.account(source, init_from.Transfer({}, left, (), (), 0, {}), spec)
    assert said[1] == "actor.layers.0.kernel is 1 × 9 × 4 here and 1 × 9 × 8 there."
    left = {"policy/actor/layers/0/kernel": ((1, 9, 4), (1, 12, 4))}
    assert "agent_id" in init_from.account(source, init_from.Transfer({}, left, (), (), 0, {}), spec)[1]


def learner_shapes(name: str, kind: str, **flags: Any) -> Any:
    """Of an algorithm's new learner with one seed."""
    made = get(name).make(spec_of(kind), config_of(name, kind, **flags), Scale(4, 6, 10))
    return jax.eval_shape(jax.vmap(made.init), jax.random.split(jax.random.key(0), 1))


def matched(source: Any, target: Any) -> init_from.Transfer:
    there = {name: x.shape for name, x in init_from.arrays_by_name(source).items()}
    return init_from.match_arrays(there, target)


def test_twin_critics_do_not_start_as_copies_of_one() -> None:
    found = matched(learner_shapes("haddpg", "box"), learner_shapes("hatd3", "box"))
    assert not any(name.startswith("critic/") for name in found.taken) and not found.complete
    assert any(name.startswith("policy/actor/") for name in found.taken)


def test_the_guider_of_magpo_keeps_its_actions_where_values_have_another_scale() -> None:
    flags = {"guider": "mat", "guider_width": 4}
    found = matched(*(learner_shapes("magpo", "discrete", value_norm=x, **flags) for x in ("running", "none")))
    assert [name for name in found.rescaled if "decoder" in name] == [] and found.rescaled
    assert any(name.startswith("critic/decoder/head") for name in found.taken)


def test_a_policy_of_another_shape_is_refused(source: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^Nothing that .+ has learned .+ actor\.head\.kernel is 1 × 7 × 4 here and 1 × 4"
    ):
        begun(run_of(tmp_path / "new", "ippo", hidden=(7,)), source[0])
    with pytest.raises(InputError, match="no run"):
        begun(run_of(tmp_path / "new", "ippo"), tmp_path)


def test_policies_without_a_checkpoint(source: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(source[0], tmp_path / "copy"))
    shutil.rmtree(copy / "checkpoints")
    trainer, found = begun(run_of(tmp_path / "new", "ippo"), copy)
    assert (found["policy/actor/head/kernel"] == source[1]["policy/actor/head/kernel"][:1]).all()
    assert (found["policy/inputs/obs/mean"] == source[1]["policy/inputs/obs/mean"][:1]).all()
    assert "arrays are taken (actor, inputs)" in trainer.warnings[-1]
    shutil.rmtree(copy / "policy")
    with pytest.raises(CheckpointError, match="has no checkpoint or policy yet"):
        begun(run_of(tmp_path / "newer", "ippo"), copy)


def test_training_starts_there_and_a_killed_run_starts_there_again(
    source: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step size at which nothing changes in single precision: the new policies are the old ones."""
    folder, values = source
    flags = SMALL | {"learning_rate": 1e-30, "freeze": ("inputs",), "eval_episodes": 6, "progress": False}
    monkeypatch.chdir(folder.parent)
    run = library.train("ippo", toys.busy, init_from=folder.name, folder=tmp_path / "new", seeds=2, **flags)
    assert run.settings.init_from == str(folder)
    assert run.evaluation is not None
    earlier = open_run(folder, toys.busy).evaluate(6)
    assert (run.evaluation.returns == earlier.returns).all()
    assert (np.asarray(run._learner().policy.actor["head"]["kernel"]) == values["policy/actor/head/kernel"]).all()

    again = tmp_path / "new"
    monkeypatch.chdir(tmp_path)
    for name in ("checkpoints", "policy", "tensorboard"):
        shutil.rmtree(again / name, ignore_errors=True)
    (again / "metrics.jsonl").unlink()
    (again / init_from.INIT_FROM_FILE).unlink()
    resumed = library.resume(again, environment=toys.busy, progress=False)
    assert resumed.evaluation is not None and (resumed.evaluation.returns == earlier.returns).all()
    assert (again / init_from.INIT_FROM_FILE).is_file()
    with pytest.raises(InputError, match="init_from cannot change"):
        library.resume(again, environment=toys.busy, init_from=str(folder))
    shutil.rmtree(again / "checkpoints")
    monkeypatch.setattr("shoal.runs.open.own_record", lambda *_: None)  # as if a stranger had written it
    with pytest.raises(InputError, match="would start from"):
        library.resume(again, environment=toys.busy, progress=False)


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_folder_without_a_run_is_refused_before_experience_is_collected(
    in_parts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect(*_: Any) -> Any:
        raise AssertionError("experience was collected")

    monkeypatch.setattr(pretraining, "collect", collect)
    flags: dict[str, Any] = {"folder": tmp_path / "run", "init_from": tmp_path, "num_envs": 8, "rollout_length": 4}
    with pytest.raises(InputError, match="not the folder of a run"):
        if in_parts:
            library.agent("seps", "toys:duel", **flags).train(32)
        else:
            library.train("seps", "toys:duel", steps=32, progress=False, **flags)


def test_a_part_of_a_folder_stands_for_its_run(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "run.json").touch()
    (tmp_path / "policy").mkdir()
    for name in ("run", "run/run.json", "run/checkpoints", "run/policy"):
        found = new_run(configured("ippo", toys.busy, flags={"init_from": tmp_path / name}), tmp_path / "new")
        assert found.settings.init_from == str(tmp_path / "run")
    found = new_run(configured("ippo", toys.busy, flags={"init_from": tmp_path / "policy"}), tmp_path / "new")
    assert found.settings.init_from == str(tmp_path / "policy"), "a folder that is called so"


@pytest.mark.parametrize("name", ["", "a\x1b[2J"])
def test_a_name_without_a_folder_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="init_from must be the name"):
        Settings(init_from=name).check()
