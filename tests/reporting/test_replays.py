"""Documents of played episodes: what was played is what the player is told, within what may be rounded."""

import base64
import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from PIL import Image

import shoal
from shoal.errors import InputError
from shoal.reporting import replays as module
from shoal.reporting.replays import Detail, chosen_seeds, document_bytes, pack, replays
from shoal.reporting.scenes import Seen
from shoal.runs import api as training
from shoal.runs.load import learner_with_critic
from shoal.runs.run import Run
from shoal.spec import Part
from shoal.system.files import dumps
from shoal.training.episodes import SHOWN_KEY, record_episodes
from shoal.training.trainer import Trainer
from support.environments import device_env
from support.trained import untrained
from support.unplayed_episodes import (
    bare,
    battle,
    episode_of,
    long_battle,
    made_of,
    painted,
    pushing,
    run_in,
    talking,
)

TINY: dict[str, Any] = {
    "env": {"horizon": 6},
    "num_envs": 4,
    "rollout_length": 6,
    "steps": 48,
    "hidden": (4,),
    "epochs": 1,
    "minibatches": 1,
    "eval_episodes": 0,
    "tensorboard": False,
    "progress": False,
    "devices": 1,
}


class Trained(NamedTuple):
    run: Run
    trainer: Any


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder, made = tmp_path_factory.mktemp("runs"), []
    with pytest.MonkeyPatch.context() as patch, untrained():
        patch.setattr(training, "Trainer", lambda *args: made.append(Trainer(*args)) or made[-1])
        run = shoal.train("mappo", "mpe/simple_spread", folder=folder / "mappo", seeds=2, **TINY)
    return Trained(run, made[0])


@pytest.fixture(scope="module")
def document(trained: Trained) -> dict[str, Any]:
    """Of the run under two names; its seeds are two policies."""
    found = replays([("one", trained.run), ("<b>two</b>", trained.run)], episodes=2)
    assert found is not None
    return json.loads(json.dumps(found, allow_nan=False))


def unpacked(packed: dict[str, Any]) -> dict[str, np.ndarray]:
    """As replays.py says it, in plain loops."""
    data, found = zlib.decompress(base64.b64decode(packed["data"])), {}
    for name, entry in packed["index"].items():
        size, at = int(np.prod(entry["shape"])), entry["at"]
        row = int(np.prod(entry["shape"][1:]))
        values = []
        for i in range(size):
            if entry["type"] == "bits":
                values.append(bool(data[at + i // 8] >> (7 - i % 8) & 1))
                continue
            most = 255 if entry["type"] == "u8" else 65535
            change = data[at + i] if most == 255 else 256 * data[at + i] + data[at + size + i]
            code = (change + (values[i - row][0] if i >= row else 0)) % (most + 1)
            column = i % entry["shape"][-1] if isinstance(entry["first"], list) else None
            first, unit = (entry[k] if column is None else entry[k][column] for k in ("first", "unit"))
            values.append((code, np.nan if entry["gaps"] and code == most else (first + code) * unit))
        numbers = values if entry["type"] == "bits" else [value for _, value in values]
        for k, column in enumerate(entry.get("floats", ())):
            rows = len(numbers[column :: entry["shape"][-1]])
            start = at + 2 * size + 4 * k * rows
            numbers[column :: entry["shape"][-1]] = struct.unpack(f"<{rows}f", data[start : start + 4 * rows])
        found[name] = np.array(numbers).reshape(entry["shape"])
    return found


def test_numbers_survive_packing() -> None:
    rng = np.random.default_rng(0)
    fine = rng.normal(size=(7, 3, 4)) * [1.0, 100.0, 0.01, 0.0]
    fine[2, 1, 0], fine[:, :, 1] = np.nan, np.where(rng.random((7, 3)) < 0.5, 0.0, fine[:, :, 1])
    arrays = {
        "fine": fine,
        "coarse": fine,
        "bits": rng.random((7, 5)) < 0.5,
        "small": rng.integers(-3, 200, (7, 2)),
        "wide": rng.integers(-1000, 60_000, (7, 2)),
        "same": np.full((7, 1), -123.456),
        "missing": np.full((7, 1), np.nan),
    }
    packed = json.loads(json.dumps(pack(arrays, frozenset({"coarse"})), allow_nan=False))
    found = unpacked(packed)
    for name in ("bits", "small", "wide"):
        np.testing.assert_array_equal(found[name], arrays[name])
    np.testing.assert_allclose(found["same"], -123.456, rtol=1e-6)
    assert np.isnan(found["missing"]).all() and packed["index"]["coarse"]["type"] == "u8"
    np.testing.assert_array_equal(np.isnan(found["fine"]), np.isnan(fine))
    column = np.nanmax(fine, (0, 1)) - np.nanmin(fine, (0, 1))
    assert (np.nanmax(np.abs(found["fine"] - fine), (0, 1)) <= column / 130_000 + 1e-12).all()
    assert (np.nanmax(np.abs(found["coarse"] - fine), (0, 1)) <= column / 490 + 1e-12).all()
    assert (found["fine"][fine == 0] == 0).all() and (found["coarse"][fine == 0] == 0).all()


def test_large_features_do_not_change_the_others() -> None:
    rng = np.random.default_rng(0)
    obs = (rng.normal(size=(60, 2, 4)) * [0.1, 1.0, 1e4, 1.0]).astype(np.float32)
    obs[7, 0, 3], obs[8, 1, 3] = 1e9, np.nan  # one that stands for "nothing there"
    rare = np.full((60, 40, 1), 1e9)
    rare[5, :3, 0] = (0.1, 0.2, 0.3)
    packed = json.loads(json.dumps(pack({"obs": obs, "rare": rare, "legal": obs > 0}), allow_nan=False))
    found = unpacked(packed)
    span = np.ptp(obs[..., :3], axis=(0, 1))
    assert (np.abs(found["obs"] - obs)[..., :3].max((0, 1)) <= span / 130_000).all()
    np.testing.assert_array_equal(found["obs"][..., 3], obs[..., 3])
    np.testing.assert_allclose(found["rare"], rare, rtol=1e-6)
    np.testing.assert_array_equal(found["legal"], obs > 0)
    assert packed["index"]["obs"]["floats"] == [3], "16 bits suffice for values of one size"


def test_all_runs_play_from_the_same_starts(document: dict[str, Any]) -> None:
    assert document["same_start"] and document["notes"] == [] and document["format"] == 1
    assert [[seed["seed"] for seed in run["seeds"]] for run in document["runs"]] == [[0, 1], [0, 1]]
    starts = [
        [unpacked(episode["packed"])["scene/x"][0] for episode in seed["episodes"]]
        for run in document["runs"]
        for seed in run["seeds"]
    ]
    for other in starts[1:]:
        np.testing.assert_allclose(other, starts[0], atol=1e-3)
    assert np.abs(starts[0][0] - starts[0][1]).max() > 0.05


def test_the_replay_has_the_recorded_numbers(trained: Trained, document: dict[str, Any]) -> None:
    """Against a recording of its own, with the critic that the trainer holds in memory."""
    one = jax.tree.map(lambda x: x[1], trained.trainer.state.learner._replace(optimiser=()))
    algorithm = trained.run._with_critic()
    expected = record_episodes(trained.run.env, algorithm, one, jax.random.key(SHOWN_KEY), 2, decisions=True)
    for episode, told in zip(expected, document["runs"][0]["seeds"][1]["episodes"], strict=True):
        found, decisions = unpacked(told["packed"]), episode.decisions
        assert decisions is not None and decisions.keys() == found.keys() - {"rewards", "actions", "scene/x", "scene/y"}
        np.testing.assert_array_equal(found["actions"], episode.actions)
        for name in ("legal", "alive"):
            np.testing.assert_array_equal(found[name], decisions[name])
        for name in ("obs", "probabilities", "value"):
            np.testing.assert_allclose(found[name], decisions[name], atol=2e-4)
        np.testing.assert_allclose(found["rewards"], episode.rewards, atol=2e-4)
        places = np.stack([state.pos for state in episode.states])
        shown = np.stack([found["scene/x"], found["scene/y"]], -1)[:, :3]
        np.testing.assert_allclose(shown, places, atol=2e-4)
        assert abs(told["score"] - episode.rewards.sum()) < 1e-3 and told["length"] == 6
    fixed = document["fixed"][document["runs"][0]["seeds"][0]["episodes"][0]["fixed"]]
    assert fixed["actions"]["names"] == ["stay", "left", "right", "down", "up"]


def test_a_critic_is_read_without_the_rest_of_its_checkpoint(trained: Trained, tmp_path: Path) -> None:
    run, held = trained.run, trained.trainer.state.learner
    identity = run._identity()
    found = learner_with_critic(run.folder, run._with_critic(), 2, identity)
    for part in ("policy", "critic", "statistics"):
        jax.tree.map(np.testing.assert_array_equal, getattr(found, part), getattr(held, part))
    (tmp_path / "policy").symlink_to(run.folder / "policy")
    bare = learner_with_critic(tmp_path, run._with_critic(), 2, identity)
    assert bare.critic == () and bare.statistics == ()
    jax.tree.map(np.testing.assert_array_equal, bare.policy, held.policy)


def test_what_cannot_be_played_is_refused(trained: Trained) -> None:
    assert replays([]) is None
    with pytest.raises(InputError, match="no seed 7"):
        replays([("one", trained.run)], seeds=[7])


def test_seeds_are_chosen_by_the_final_evaluation(tmp_path: Path) -> None:
    run, _ = painted(tmp_path)
    run.settings = replace(run.settings, seeds=5, seed=10)
    assert chosen_seeds(run) == [(10, ""), (11, ""), (12, "")]
    path = tmp_path / "evaluation.json"
    path.write_text(dumps({"per_seed": [-3.0, -1.0, -2.0, -5.0, -4.0]}, "evaluation"))
    why = ("best of 5, score −1", "median of 5, score −3", "worst of 5, score −5")
    assert chosen_seeds(run) == list(zip((11, 10, 13), why, strict=True))
    assert run.best_seed() == 11, "without playing"
    for damaged in ('{"per_seed": ["x", {}]}', '{"per_seed": [1, 2]}', "[]", "{"):
        path.write_text(damaged)
        assert chosen_seeds(run)[0] == (10, "")


def test_seeds_are_not_chosen_by_the_scores_of_earlier_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = bare(tmp_path)
    run.settings = replace(run.settings, seeds=3)
    step = 4 * run.settings.steps_per_update
    (tmp_path / "evaluation.json").write_text(dumps({"per_seed": [1.0, 3.0, 2.0], "step": step}, "evaluation"))
    (tmp_path / "policy" / "4").mkdir(parents=True)
    assert [seed for seed, _ in chosen_seeds(run)] == [1, 2, 0] and run.best_seed() == 1
    (tmp_path / "policy" / "5").mkdir()
    assert chosen_seeds(run) == [(0, ""), (1, ""), (2, "")]
    monkeypatch.setattr(Run, "evaluate", lambda *_, **__: SimpleNamespace(per_seed=np.array([0.0, 1.0, 2.0])))
    assert run.best_seed() == 2


def test_numbers_that_are_not_of_json_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NumPy's integers, and numbers that are not finite."""
    run, episode = pushing(tmp_path)
    spec = replace(run.spec, action=replace(run.spec.action, low=-np.inf, high=np.inf))
    for name in ("obs_dims", "action_dims"):  # as in a user's own spec, whose types nothing checks
        object.__setattr__(spec, name, tuple(map(np.int64, getattr(spec, name))))
    episode.rewards[0] = np.nan
    made_of(monkeypatch, [episode])
    monkeypatch.setattr(Run, "_with_critic", lambda _: SimpleNamespace(guided=False))
    found = replays([("one", run_in(tmp_path, replace(run.env, spec=spec)))], episodes=1)
    assert found is not None
    (told,) = json.loads(json.dumps(found, allow_nan=False))["runs"]
    assert told["obs_dims"] == list(run.spec.obs_dims) and told["seeds"][0]["episodes"][0]["score"] == "NaN"
    assert told["space"] == {"kind": "box", "low": "-Infinity", "high": "Infinity"}


def test_one_of_several_pictures_is_kept_whatever_the_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of 1,001 timesteps every second is shown, and every sixth and the last have a picture."""
    run, _ = bare(tmp_path)
    made_of(monkeypatch, [episode_of(run.env, [None] * 1001)._replace(states=[])])
    pictures = tuple(Image.new("RGB", (2, 2), (i, 0, 0)) for i in range(168))
    shown = Seen("pictures", {}, {}, pictures=pictures, shown=np.append(np.arange(0, 1000, 6), 1000))
    monkeypatch.setattr(module, "seen", lambda *_: shown)
    monkeypatch.setattr(module, "DETAILS", (Detail(picture_stride=2),))
    found = replays([("long", run)], episodes=1)
    assert found is not None and "Every second picture is kept, to keep the file small." in found["notes"]
    told = found["runs"][0]["seeds"][0]["episodes"][0]
    numbers = unpacked(told["packed"])["picture"].astype(int)
    assert len(told["steps"]) == 501 and len(told["pictures"]) == 84
    np.testing.assert_array_equal(numbers, np.array(told["steps"]) // 12)


def test_ordinal_numbers_have_their_endings() -> None:
    words = {2: "second", 3: "third", 4: "4th", 11: "11th", 21: "21st", 22: "22nd", 33: "33rd", 112: "112th"}
    assert {number: module._th(number) for number in words} == words


def test_a_replay_has_the_numbers_of_a_battle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, episode = battle(tmp_path)
    made_of(monkeypatch, [episode])
    found = replays([("battle", run)], episodes=1)
    assert found is not None
    told = found["runs"][0]["seeds"][0]["episodes"][0]
    arrays, fixed = unpacked(told["packed"]), found["fixed"][told["fixed"]]
    assert told["kind"] == "units" and told["result"] == "won"
    for name in ("x", "y", "health"):
        expected = np.stack([getattr(state, name) for state in episode.states])
        np.testing.assert_allclose(arrays[f"scene/{name}"], expected, atol=2e-3)
    assert arrays["scene/shot"][1].tolist() == [3, -1, -1, -1, -1, -1]  # ally 0 attacked enemy 0, which is unit 3
    assert arrays["scene/health"][2][3] == 0.0
    assert [unit["side"] for unit in fixed["units"]] == [0, 0, 0, 1, 1, 1] and fixed["allies"] == 3
    rows = [[fixed["actions"]["names"][k] for k in row] for row in fixed["actions"]["rows"]]
    assert rows[0][6:] == ["attack enemy_0", "attack enemy_1", "attack enemy_2"]
    features = [fixed["features"]["names"][k] for k in fixed["features"]["rows"][1]]
    assert features[19:21] == ["ally_0: visible", "ally_0: distance"] and features[-1] == "own health"
    assert sum(count for _, _, count in fixed["ground"]["floor"]) == 16 * 32


def test_a_replay_has_attention_and_messages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, episode = talking(tmp_path, 1)
    made_of(monkeypatch, [episode])
    found = replays([("talk", run)], episodes=1)
    assert found is not None and episode.decisions is not None
    told = found["runs"][0]["seeds"][0]["episodes"][0]
    arrays = unpacked(told["packed"])
    np.testing.assert_allclose(arrays["attention"], episode.decisions["attention"], atol=2e-4)
    said = np.array(told["messages"])[arrays["message"].astype(int)]
    assert said.shape == (9, 2) and (said == ["C", "F"]).all()


@pytest.mark.parametrize("by", ["interface", "parts"])
def test_observations_that_are_dicts_name_their_features(
    by: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run, episode = bare(tmp_path)
    agents = run.spec.num_agents
    form = ["dict", [["place", ["box", [2]]], ["food", ["box", []]]]]
    own = {"interface": json.dumps({"kind": "parallel", "agents": [[form, ["index", 2, 0]]] * agents})}
    parts = {"parts": ((Part((2,), name="place"), Part((), name="food")),) * agents}
    spec = replace(run.spec, obs_dims=(3,) * agents, **(own if by == "interface" else parts))
    run = run_in(tmp_path, replace(run.env, spec=spec))
    obs = np.zeros((*episode.rewards.shape, 3), np.float32)
    made_of(monkeypatch, [episode._replace(decisions=(episode.decisions or {}) | {"obs": obs})])
    found = replays([("dicts", run)], episodes=1)
    assert found is not None
    features = found["fixed"][found["runs"][0]["seeds"][0]["episodes"][0]["fixed"]]["features"]
    assert [features["names"][k] for k in features["rows"][0]] == ["place 0", "place 1", "food"]


def test_equal_pictures_are_stored_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, episode = painted(tmp_path)
    made_of(monkeypatch, [episode])
    found = replays([("painted", run)], episodes=1)
    assert found is not None
    told = found["runs"][0]["seeds"][0]["episodes"][0]
    assert told["kind"] == "pictures" and unpacked(told["packed"])["picture"].tolist() == [0, 1, 1, 2]
    assert len(told["pictures"]) == 3 and all(one.startswith("data:image/webp;base64,") for one in told["pictures"])


def test_a_replay_keeps_its_budget_and_states_what_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, episodes = long_battle(tmp_path)
    made_of(monkeypatch, episodes)
    sizes = []
    for budget, words in ((3_000_000, ""), (700_000, "rounded"), (120_000, "Observations are omitted")):
        found = replays([("long", run)], episodes=2, budget=budget)
        assert found is not None
        sizes.append(document_bytes(found))
        assert sizes[-1] <= budget and words in " ".join(found["notes"]) and found["runs"]
    assert sizes == sorted(sizes, reverse=True)
    short = replays([("long", run)], episodes=2, budget=20_000)
    assert short is not None and document_bytes(short) <= 20_000
    kept = short["runs"][0]["seeds"][0]["episodes"]
    said = " ".join(short["notes"])
    assert len(kept) == 1 and "At most 1 episode of each seed" in said and "every" in said
    steps = kept[0]["steps"]
    assert steps[0] == 0 and steps[-1] == len(episodes[0].rewards)
    rewards = unpacked(kept[0]["packed"])["rewards"]
    np.testing.assert_allclose(rewards.sum(0), episodes[0].rewards.sum(0), rtol=1e-3)
    nothing = replays([("long", run)], episodes=2, budget=1000)
    assert nothing is not None and nothing["runs"] == [] and "and 1,000 are left" in nothing["notes"][0]


def test_every_outline_fits_its_environment() -> None:
    for name, options in (
        ("grid/stag_hunt", {"num_hares": 2, "num_stags": 2, "num_agents": 3}),
        ("mpe/simple_reference", {}),
        ("mpe/simple_world_comm", {"continuous_actions": True}),
    ):
        env = device_env(name, **options)
        state, _ = jax.device_get(jax.jit(env.reset)(jax.random.key(0)))
        outline = env.outline(state)
        count = len(outline.fixed["bodies"])
        assert all(values.shape == (count,) for values in outline.moving.values())
        agents = [body["agent"] for body in outline.fixed["bodies"] if body["agent"] is not None]
        assert agents == list(range(env.spec.num_agents))
        names = outline.fixed["actions"]
        assert tuple(map(len, names)) == env.spec.action_dims
        if "features" in outline.fixed:
            assert tuple(map(len, outline.fixed["features"])) == env.spec.obs_dims
        json.dumps(outline.fixed, allow_nan=False)
