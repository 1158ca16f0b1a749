"""Runs whose sides are trained by different algorithms: made, kept, resumed, deployed and refused like any other."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal as library
from shoal import algorithms
from shoal.environments import registry
from shoal.environments.wrappers import Wrapping
from shoal.errors import InputError
from shoal.options.flags import check_names, flags_of, override
from shoal.presets import PRESETS, preset
from shoal.sides import sides as composite
from shoal.storage import log, manifest
from shoal.storage.checkpoint import Checkpoints
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from support import trained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> library.Run:
    """Q-learning with a replay buffer beside PPO, environments cut over two devices."""
    flags = {"num_envs": 4, "rollout_length": 6, "steps": 4 * 24, "rows": 4, "seeds": 1, "devices": 2}
    flags |= {"eval_episodes": 4, "tensorboard": False, "checkpoint_seconds": 0.0, "keep": 100, "progress": False}
    own = {"sides": (2, 1), "hidden": (6,), "gamma": 0.5, "side2_gamma": 0.75, "epochs": 1}
    own |= {"buffer_size": 96, "learning_starts": 24, "batch_size": 8}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.training.trainer.CALL_SECONDS", 0.0)  # a checkpoint after every update
        folder = tmp_path_factory.mktemp("sides") / "run"
        return library.train("iql+mappo", "toys:tempting", folder=folder, **flags, **own)


def test_sides_are_trained_and_stored(run: library.Run) -> None:
    assert run.finished and run.evaluation is not None and run.evaluation.returns.max() <= 3.0
    rows = log.read_log(run.folder)
    assert [row["update"] for row in rows] == list(range(1, 5))
    assert all(np.isfinite(row["side2/entropy"]).all() for row in rows) and rows[-1]["side1/td_loss"][0] > 0
    said = manifest.read_run_json(run.folder)["config"]["config"]
    assert (said["side1_gamma"], said["side2_gamma"], said["side2_hidden"]) == (0.5, 0.75, [6])
    assert library.open_run(run.folder).config == run.config


def test_sides_resume_bit_for_bit(run: library.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Trainer] = []
    begin = Trainer._begin
    monkeypatch.setattr(Trainer, "_begin", lambda self: made.append(self) or begin(self))
    stopped = trained.copied(run.folder, tmp_path / "stopped")
    for part in ("checkpoints", "policy"):
        for later in [path for path in (stopped / part).iterdir() if path.name.isdigit() and int(path.name) > 2]:
            shutil.rmtree(later)
    assert library.resume(stopped, progress=False, eval_episodes=0).finished
    template = made[0].program.template()

    def arrays(folder: Path) -> list[bytes]:
        state, _, update = Checkpoints(folder / "checkpoints").restore(template)
        assert update == 4 and len(jax.tree.leaves(state.feed)) > 5
        return [np.asarray(x).tobytes() for x in jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))]

    assert arrays(stopped) == arrays(run.folder)


def test_sides_are_deployed_and_play_cross_play(run: library.Run) -> None:
    policies, spec = library.load(run.folder), run.env.spec
    seen = {agent: np.ones(width) for agent, width in zip(spec.agents, spec.obs_dims, strict=True)}
    legal = {agent: np.arange(width) == 1 for agent, width in zip(spec.agents, spec.action_dims, strict=True)}
    assert policies.act(seen, legal) == dict.fromkeys(spec.agents, 1)
    assert policies.agent("agent_1").act(np.ones(4)) == library.load(run.folder).act(seen)["agent_1"]
    found = library.crossplay([run, run.folder], episodes=3)
    assert found.sides == (("agent_0",), ("agent_1",)) and found.algorithms == ("iql+mappo",) * 2


# Configurations and what is refused


def test_flags_for_all_sides_and_for_one() -> None:
    config = algorithms.get("mappo+mat").Config()
    changed = override(config, {"hidden": (3,), "gamma": 0.5, "side1_gamma": 0.25, "sides": (1, 2)})
    assert (changed.side1.network.hidden, changed.side1.gamma, changed.side2.gamma) == ((3,), 0.25, 0.5)
    assert override(config, flags_of(changed)) == changed and hash(changed) != hash(config)
    check_names({"gamma", "side2_gamma", "hidden", "sides"}, config)
    with pytest.raises(InputError, match="did you mean 'side2_gamma'"):
        check_names({"side2_gama"}, config)


def test_each_side_has_its_own_preset() -> None:
    """Also of a preset that changes the environment, which belongs to the run."""
    known = {*flags_of(Settings()), *flags_of(Wrapping())}
    for one, kinds in PRESETS.items():
        for pattern, flags in kinds:
            of_run = {name: value for name, value in flags.items() if name in known}
            composed = preset(f"{one}+{one}", pattern)
            expected = {f"side{i}_{name}": value for i in (1, 2) for name, value in flags.items() if name not in known}
            assert composed == of_run | expected, (one, pattern)
    tuned, alone = preset("mappo+ia2c", "mpe/simple_tag"), preset("ia2c", "mpe/simple_tag")
    assert tuned["rollout_length"] == 128 != alone["rollout_length"]
    config = override(algorithms.get("mappo+ia2c").Config(), tuned)
    assert (config.side1.epochs, config.side2.entropy_coef) == (8, alone["entropy_coef"])


def test_agents_belong_to_the_named_sides() -> None:
    tag, comm = registry.make("mpe/simple_tag").spec, registry.make("mpe/simple_world_comm").spec
    assert composite.members(tag, 2, None) == ((0, 1, 2), (3,))
    assert composite.members(comm, 2, None) == ((0,), (1, 2, 3, 4, 5))
    assert composite.members(comm, 2, (1, 1, 1, 1, 2, 2)) == ((0, 1, 2, 3), (4, 5))
    predators = composite.narrowed(tag, (0, 1, 2))
    assert (predators.roles, predators.state_dim, predators.agents) == ((0, 0, 0), tag.state_dim, tag.agents[:3])


@pytest.mark.parametrize(
    ("names", "environment", "flags", "said"),
    [
        ("mappo+mapo", "mpe/simple_tag", {}, "no algorithm 'mapo'; did you mean 'mappo'"),
        ("mappo+", "mpe/simple_tag", {}, "no algorithm ''"),
        ("mappo+ippo+ia2c", "mpe/simple_tag", {}, "has 2 roles, too few for 3 sides"),
        ("ippo+ippo+ippo+ippo", "mpe/simple_tag", {}, "names 4 sides; there are at most 3"),
        ("mappo+seps", "mpe/simple_tag", {}, "seps collects experience before training"),
        ("mappo+ippo", "mpe/simple_spread", {}, "have one role: give each of the 3"),
        ("mappo+ippo", "mpe/simple_tag", {"sides": (1, 1, 1, 1)}, "a side from 1 to 2"),
        ("mappo+ippo", "mpe/simple_tag", {"side2_minibatches": 7}, "Side 2 (ippo): "),
        ("mappo+ippo", "mpe/simple_tag", {"side3_gamma": 0.5}, "no setting 'side3_gamma'; did you mean 'side"),
    ],
)
def test_invalid_input_is_refused(
    tmp_path: Path, names: str, environment: str, flags: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        library.train(names, environment, folder=tmp_path / "run", progress=False, **flags)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_command_line(shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def train(found: Any, *_: Any, **__: Any) -> Any:
        given.update(found.flags)
        raise InputError("x")

    monkeypatch.setattr("shoal.runs.api.train_configured", train)
    same = str(preset("ippo", "mpe/simple_tag")["gamma"])
    words = ["--gamma", "0.5", "--side2-gamma", same, "--side1-hidden", "8", "8", "--sides", "1", "1", "1", "2"]
    shoal("train", "mappo+ippo", "mpe/simple_tag", *words, "--max-grad-norm", "None")
    assert given == {"gamma": 0.5, "side2_gamma": float(same), "side1_hidden": (8, 8), "sides": (1, 1, 1, 2)}
    code, out, _ = shoal("train", "mappo+ippo", "mpe/simple_tag", "--help")
    assert code == 0 and "--side2-learning-rate NUMBER" in out and "--learning-rate NUMBER|None" in out
