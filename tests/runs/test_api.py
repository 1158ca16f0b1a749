"""The public face: one's own environment from end to end, what is refused before anything happens, what is kept."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

import shoal
import toys
from shoal import cli
from shoal.algorithms import mappo
from shoal.environments import registry
from shoal.errors import CheckpointError, InputError
from shoal.options.convert import items_of, mapping
from shoal.runs import api
from shoal.security import user_modules
from shoal.storage import log
from shoal.storage.folders import path_of
from shoal.system.files import from_json
from shoal.training.settings import Settings
from support import trained

OWN = '''
"""A user's environment: two agents on a line, who like to be at 0; no global state."""
import jax
import jax.numpy as jnp
import shoal


def walk(horizon: int = 8, width: float = 2.0):
    spec = shoal.EnvSpec(
        name="myteam/walk", agents=("left", "right"), obs_dims=(1, 1), state_dim=0,
        action=shoal.Box(1, -0.5, 0.5), action_dims=(1, 1), roles=(0, 0), horizon=horizon, shared_reward=True,
        metrics=("won", "apart"),
    )

    def look(state, first):
        place, t = state
        return shoal.Step(
            obs=place[:, None], state=jnp.zeros(0), legal=jnp.ones((2, 1), bool), alive=jnp.ones(2, bool),
            reward=jnp.full(2, 0.0 if first else -jnp.abs(place).sum()), discount=jnp.ones(2),
            first=jnp.asarray(first), last=t >= horizon,
            metrics=jnp.stack([jnp.float32(jnp.abs(place).max() < 0.5), jnp.abs(place[0] - place[1])]),
        )

    def reset(key):
        state = jax.random.uniform(key, (2,), minval=-width, maxval=width), jnp.int32(0)
        return state, look(state, True)

    def step(key, state, action):
        after = state[0] + action[:, 0], state[1] + 1
        return after, look(after, False)

    return shoal.Environment(spec, reset, step)
'''


class Own(NamedTuple):
    folder: Path
    package: Path
    run: shoal.Run


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Own:
    """Trained in ``myteam.games:walk``."""
    root, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("own") / "run"
    (root / "myteam").mkdir()
    (root / "myteam" / "games.py").write_text(OWN)
    flags = trained.QUICK | {"eval_episodes": 8, "learning_rate": 3e-3, "tensorboard": True, "seed": 1}
    sys.path.insert(0, str(root))
    run = shoal.train("ippo", "myteam.games:walk", env={"width": 1.5}, folder=folder, **flags)
    return Own(folder, root, run)


def test_a_users_environment_trains_and_resumes(own: Own, tmp_path: Path) -> None:
    folder = trained.copied(own.folder, tmp_path / "run")
    run = shoal.resume(folder, progress=False, steps=60 * 128)
    rows = log.read_log(folder)
    assert (
        run.finished and rows[:25] == log.read_log(own.folder) and [row["update"] for row in rows] == list(range(1, 61))
    )
    assert np.mean(rows[-1]["return"]) > np.mean(rows[0]["return"]) + 2.0  # 35 updates more have taught it something
    assert run.env_options == {"width": 1.5} and run.settings.steps == 60 * 128
    assert len(list((folder / "tensorboard").iterdir())) == 2  # one of the first part, one of the second


def test_a_finished_run_has_its_files(own: Own) -> None:
    said = json.loads((own.folder / "run.json").read_text())
    assert said["config"]["algorithm"] == "ippo" and said["config"]["environment"] == "myteam.games:walk"
    assert said["config"]["config"]["critic_input"] == "local" and said["config"]["settings"]["seeds"] == 2
    assert said["config"]["spec"]["agents"] == ["left", "right"]
    assert {"python", "jax", "shoal"} <= said["made_with"]["versions"].keys()
    judged = from_json(json.loads((own.folder / "evaluation.json").read_text()))
    assert judged["step"] == 25 * 128 and judged["episodes"] == 8 and len(judged["per_seed"]) == 2
    assert judged["mean"] == pytest.approx(own.run.evaluate(8).mean)
    assert judged["low"] <= judged["mean"] <= judged["high"]
    won = judged["metrics"]["won"]
    assert won["mean"] == pytest.approx(np.mean(won["per_seed"])) and 0 <= won["mean"] <= 1 and won["episodes"] == 16
    assert log.read_log(own.folder)[-1].keys() >= {"won", "apart", "return"}
    assert len(list((own.folder / "tensorboard").iterdir())) == 1


def test_summaries_and_pictures_of_a_run(own: Own, tmp_path: Path) -> None:
    with Image.open(own.run.replay(tmp_path / "walk.gif", episodes=2)) as picture:
        assert getattr(picture, "n_frames", 1) >= 8
    with Image.open(own.run.curves(tmp_path / "curves.png")) as picture:
        assert picture.width > 200
    with Image.open(shoal.curves([own.run, own.folder], tmp_path / "both.png")) as picture:
        assert picture.width > 200
    with Image.open(own.run.curves(tmp_path / "metrics.png", ["return", "won", "apart"])) as picture:
        assert picture.height > 1000
    summary = own.run.summary()
    assert [line.split("  ")[0] for line in summary.splitlines()[:3]] == [
        "final return",
        "final win rate",
        "final apart",
    ]
    assert "ippo" in repr(own.run) and "myteam.games:walk" in repr(own.run)


def test_functions_that_need_no_environment_build_none(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Curves, summaries, comparisons, policies and help come from the folder's records alone."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the environment was asked for")

    for name in ("make", "factory_of", "options_of"):
        monkeypatch.setattr(registry, name, refuse)
    monkeypatch.setattr(user_modules, "imported", refuse)
    run = shoal.open_run(own.folder)
    assert run.spec.agents == ("left", "right") and run.env_options == {"width": 1.5}
    assert run.curves(tmp_path / "curves.png").exists() and "final return" in run.summary()
    assert shoal.curves([run, own.folder], tmp_path / "both.png").exists()
    assert shoal.load(own.folder).agents == run.policies(seed=2).agents == ("left", "right")
    assert cli.main(["curves", str(own.folder), "--output", str(tmp_path / "one.png")]) == 0
    assert cli.main(["train", "--resume", str(own.folder), "--help"]) == 0
    assert "--learning-rate NUMBER" in (said := capsys.readouterr().out) and "--env." not in said
    with pytest.raises(AssertionError, match="the environment was asked for"):
        run.evaluate(2)


def test_a_folder_of_other_metrics_is_the_same_run(own: Own, tmp_path: Path) -> None:
    folder = trained.copied(own.folder, tmp_path / "run")
    said = json.loads((folder / "run.json").read_text())
    said["config"]["spec"]["metrics"] = ["reached"]
    (folder / "run.json").write_text(json.dumps(said))
    run = shoal.open_run(folder)
    assert run.env.spec.metrics == run.spec.metrics == ("won", "apart")
    assert shoal.load(folder).agents == ("left", "right")


def test_policies_need_no_environment(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = own.run.policies(seed=2).act({"left": [0.7], "right": [-0.2]})
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(own.package)])
    for module in [name for name in sys.modules if name.split(".")[0] == "myteam"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(user_modules, "instead", lambda folder: None)  # finds it where it was in training
    with pytest.raises(InputError, match="There is no module 'myteam'"):
        shoal.open_run(own.folder).evaluate(2)
    policies = shoal.load(own.folder, seed=2)
    without = policies.act({"left": [0.7], "right": [-0.2]})
    assert {name: value.tolist() for name, value in without.items()} == {k: v.tolist() for k, v in with_it.items()}
    assert policies.agent("right").act([-0.2]) == without["right"]
    assert shoal.load(own.folder, seed=1).act({"left": [0.7], "right": [-0.2]}) != without


@pytest.mark.parametrize("seed", [0, 3, -1])
def test_a_seed_that_the_run_does_not_have(own: Own, seed: int) -> None:
    with pytest.raises(InputError, match=f"no seed {seed}; its seeds are 1 to 2"):
        shoal.load(own.folder, seed=seed)
    with pytest.raises(InputError, match=f"no seed {seed}"):
        own.run.replay(seed=seed)


def test_a_policy_that_is_damaged_or_not_there(own: Own, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(own.folder, tmp_path / "run"))
    for path in (copy / "policy").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="not damaged"):
        shoal.load(copy)
    shutil.rmtree(copy / "policy")
    with pytest.raises(CheckpointError, match="has no trained policy yet"):
        shoal.load(copy)
    with pytest.raises(InputError, match=r"There is no run.json in .*nowhere"):
        shoal.load(tmp_path / "nowhere")


def test_a_folder_holds_one_run(own: Own) -> None:
    before = (own.folder / "run.json").read_bytes()
    with pytest.raises(InputError, match="already contains a run"):
        shoal.train("mappo", "toys:coordination", folder=own.folder, **trained.QUICK)
    assert (own.folder / "run.json").read_bytes() == before


@pytest.mark.parametrize("name", ["report.html", "replay.gif", "evaluation.json", "init_from.json", "wandb.json"])
def test_a_users_own_file_is_not_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"contains {name}, which a run would replace; choose another folder"):
        shoal.train("mappo", "toys:coordination", folder=tmp_path, **trained.QUICK)
    assert {path.name for path in tmp_path.iterdir()} == {name, ".lock"} and (tmp_path / name).read_text() == "mine"


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("something else")
    with pytest.raises(InputError, match="is a file, not a folder"):
        shoal.train("mappo", "toys:coordination", folder=tmp_path / "run", **trained.QUICK)


def test_a_tilde_is_the_home_folder(own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python passes it on as it is, and so does a shell in ``--folder=~/run``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match=f"^{tmp_path}/run is a file, not a folder for a run"):
        shoal.train("mappo", "toys:busy", folder="~/run", **trained.QUICK)
    assert api._absolute("~/other") == str(tmp_path / "other")
    (tmp_path / "trained").symlink_to(own.run.folder)
    assert shoal.open_run("~/trained").folder == tmp_path / "trained"
    assert path_of("~no_such_user/run") == Path("~no_such_user/run")
    monkeypatch.chdir(tmp_path)
    assert shoal.curves("~/trained", "~/figures/curves.png") == tmp_path / "figures" / "curves.png"
    assert own.run.policies().export("~/policy.stablehlo", format="stablehlo") == tmp_path / "policy.stablehlo"
    assert shoal.MLflowLogger("~/store")._store()[0] == f"sqlite:///{tmp_path.resolve()}/store/mlflow.db"
    assert not (tmp_path / "~").exists()


def test_what_a_state_holds_may_be_described_otherwise_unless_a_critic_is_pruned(tmp_path: Path) -> None:
    env = toys.coordination()
    before = replace(env.spec, novel=(0,), metrics=("won",))

    def opened(kind: Any) -> Any:
        config = mappo.Config(critic_input=kind)
        return api.Run(tmp_path, "mappo", "toys:coordination", {}, Settings(), config, env, before)

    assert opened("agent").env is env
    with pytest.raises(InputError, match=r"is not the environment it was .*: its novel is None and was \[0\]"):
        opened("pruned").env  # noqa: B018
    now = api.Run(tmp_path, "mappo", "toys:coordination", {}, Settings(), mappo.Config(), env)
    api.check_same_environment(opened("pruned"), now)


def test_an_environment_that_is_an_object(tmp_path: Path) -> None:
    """A name would build another one: its options are not known."""
    env = toys.coordination()
    run = shoal.train("mappo", env, folder=tmp_path, **trained.QUICK)
    assert run.finished and run.environment == "toys/coordination"
    calls: list[Callable[..., Any]] = [
        lambda folder, **named: shoal.open_run(folder, **named).evaluate(2),
        shoal.resume,
    ]
    for call in calls:
        with pytest.raises(InputError, match="in an Environment object"):
            call(tmp_path, **({"steps": 1e6} if call is shoal.resume else {}))
        with pytest.raises(InputError, match=r"is not the environment it was .*: its name is 'toys/memory' and was"):
            call(tmp_path, environment=toys.memory())
    assert shoal.open_run(tmp_path, environment=env).evaluate(16).per_seed.tolist() == [2.0, 2.0]
    assert shoal.resume(tmp_path, environment=env, progress=False).finished
    assert shoal.load(tmp_path).act(np.ones((2, 1))).tolist() == [2, 2]


WRONG: list[tuple[str, str, dict[str, Any], str]] = [
    ("mapo", "toys:busy", {}, "no algorithm 'mapo'; did you mean 'mappo'"),
    ("mappo", "mpe/simple_spred", {}, "no environment 'mpe/simple_spred'; did you mean 'mpe/simple_spread'"),
    ("mappo", "toys:bussy", {}, "has no attribute 'bussy'; did you mean 'busy'"),
    ("mappo", "no_such_module:env", {}, "no module 'no_such_module'"),
    ("mappo", "toys:busy", {"lerning_rate": 1.0}, "no setting 'lerning_rate'; did you mean 'learning_rate'"),
    ("mappo", "toys:busy", {"env": {"horizn": 3}}, "takes no option 'horizn'; it accepts 'horizon'"),
    ("mappo", "toys:busy", {"learning_rate": "fast"}, "learning_rate must be a number, not 'fast'"),
    ("mappo", "toys:busy", {"steps": 0}, "steps must be at least 1"),
    ("mappo", "toys:busy", {"steps": float("inf")}, "steps must be at least 1 and at most 1e15, not inf"),
    ("mappo", "toys:busy", {"minibatches": 7}, "do not divide into 7 minibatches; 8 would"),
    ("mappo", "toys:busy", {"recurrent": 4, "chunk_length": 3}, "chunk_length 3 does not divide the rollout of 8"),
    ("mappo", "toys:coordination", {"critic_input": "state"}, "has no global state"),
    ("mappo", "toys:busy", {"sharing": (0, 1)}, "must give each of the 3 agents a policy"),
    ("mappo", "toys:busy", {"devices": 3}, "devices is 3, but this machine has only 2"),
    ("mappo", "toys:busy", {"devices": 2, "seeds": 1, "num_envs": 15}, "num_envs 15 is not divisible by the 2 devices"),
    ("mappo", "toys:busy", {"seed": -1}, "seed must be at least 0 and at most 2147483647"),
]


@pytest.mark.parametrize(("algorithm", "environment", "flags", "said"), WRONG)
def test_refused_before_anything_happens(
    tmp_path: Path, algorithm: str, environment: str, flags: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        shoal.train(algorithm, environment, folder=tmp_path / "run", **(trained.QUICK | flags))
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_rewards_are_not_scaled_twice(tmp_path: Path) -> None:
    said = "normalise_rewards and reward_norm scale would both scale rewards; set reward_norm to none, or remove "
    with pytest.raises(InputError, match=said):
        shoal.train("qmix", "toys:busy", folder=tmp_path / "run", reward_norm="scale", normalise_rewards=True)
    with pytest.raises(InputError, match=r"and side2_reward_norm standardise would both"):
        flags = {"side2_reward_norm": "standardise", "normalise_rewards": True}
        shoal.train("mappo+iql", "toys:busy", folder=tmp_path / "run", **flags)
    assert not (tmp_path / "run").exists()


def test_one_run_alone_is_a_list_of_one(own: Own, tmp_path: Path) -> None:
    """The letters of a path or of a name are no runs and no metrics."""
    assert shoal.curves(own.run, tmp_path / "one.png", metrics="won").stat().st_size > 1000
    for call in (shoal.curves, shoal.crossplay, shoal.compare):
        with pytest.raises(InputError, match="nowhere"):
            call("nowhere")


@pytest.mark.parametrize("value", ["ab", b"ab", bytearray(b"ab"), {"a": 1}, 3, None], ids=str)
def test_a_value_that_is_no_list_or_mapping_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="runs must be a list, not"):
        items_of("runs", value, Path)
    if not isinstance(value, dict | None):
        with pytest.raises(InputError, match="env must map names to values, such as"):
            mapping("env", value)
    assert items_of("runs", ["ab"], Path) == ("ab",) and items_of("runs", "ab", str) == ("ab",)


def test_new_folders_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20250101-000000")
    names = []
    for _ in range(3):
        folder = api.new_folder("mappo", "myteam.games:walk")
        assert not folder.exists()
        folder.mkdir(parents=True)
        names.append(str(folder))
    first = str(Path("runs") / "mappo-myteam.games-walk-20250101-000000")
    assert names == [first, f"{first}-2", f"{first}-3"]


def test_policies_of_a_run_that_was_opened_with_trust_are_loaded_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: Path, **options: object) -> None:
        raise InputError(str(options["trust"]))

    monkeypatch.setattr("shoal.runs.run.load", load)
    run = object.__new__(shoal.Run)
    run.folder = Path("x")
    for trusted in (True, False):
        run.trusted = trusted
        with pytest.raises(InputError, match=str(trusted)):
            run.policies()


@pytest.mark.parametrize(("devices", "order"), [(None, ["devices", "environment"]), (1, ["environment"])])
def test_devices_start_before_an_environment_does(
    devices: int | None, order: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries such as JaxMARL compute when they are imported, and then JAX has as many devices as it has."""
    happened: list[str] = []

    def build(*_: Any, **__: Any) -> Any:
        happened.append("environment")
        raise InputError("no environment")

    monkeypatch.setattr(api, "one_device_per_core", lambda: happened.append("devices"))
    monkeypatch.setattr(registry, "make", build)
    with pytest.raises(InputError, match="no environment"):
        shoal.train("mappo", "mpe/simple_spread", devices=devices, folder=tmp_path / "run", progress=False)
    assert happened == order


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: shoal.load(None), "A run's folder is named by text or a path, not None."),  # pyright: ignore
        (lambda: shoal.open_run(3), "A run's folder is named by text or a path, not 3."),  # pyright: ignore
        (lambda: shoal.train(3, "matrix/climbing"), "An algorithm is given by its name, not 3."),  # pyright: ignore
        (
            lambda: shoal.train("mappo", 3),  # pyright: ignore
            "An environment is given by its name, a factory or an Environment, not 3.",
        ),
        (
            lambda: shoal.train("mappo", SimpleNamespace(step=1)),  # pyright: ignore
            "An environment is given by its name, a factory or an Environment, not namespace(step=1): give its class, "
            "SimpleNamespace, and its options.",
        ),
        (
            lambda: shoal.report("zoo/3m", episodes=1.5),  # pyright: ignore
            "episodes must be a whole number, not 1.5; use replays=False for a page without replays.",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked_annotations")
def test_an_argument_of_another_type_is_one_sentence(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == sentence
