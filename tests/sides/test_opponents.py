"""Frozen players: who plays where, what the learner is told, and what a run keeps of its opponents."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counters
import shoal as library
import toys
from shoal import cli
from shoal.algorithms import get, ippo
from shoal.errors import CheckpointError, InputError
from shoal.options.flags import override
from shoal.runs import api
from shoal.runs import build as building
from shoal.runs import open as opening
from shoal.runs.build import acting_algorithm, opponents_in
from shoal.runs.load import past_selves
from shoal.runs.run import Run
from shoal.sides.opponents import FrozenPolicies, OpponentOptions, act_frozen, against
from shoal.sides.past_selves import PRESENT, PastStatistics, against_past, put
from shoal.storage.checkpoint import Checkpoints
from shoal.training import crossplay as playing
from shoal.training import hosts, pretraining
from shoal.training.settings import Settings
from shoal.types import Algorithm, Learner, Step, Trajectory
from support import trained
from support.past_pools import PAST, noted_intervals

SPEC = toys.busy().spec
N = SPEC.num_agents
TINY: dict[str, Any] = {
    "num_envs": 8, "rollout_length": 4, "hidden": (4,), "orthogonal": False, "eval_episodes": 4, "progress": False,
}  # fmt: skip


def steps(num_envs: int) -> Step:
    """Steps whose observations tell the environment's number."""
    obs = jnp.broadcast_to(jnp.arange(num_envs, dtype=jnp.float32)[:, None, None], (num_envs, N, SPEC.obs_dim))
    return Step(
        obs,
        jnp.zeros((num_envs, 3)),
        jnp.ones((num_envs, N, 4), bool),
        jnp.ones((num_envs, N), bool),
        jnp.zeros((num_envs, N)),
        jnp.ones((num_envs, N)),
        jnp.zeros(num_envs, bool),
        jnp.zeros(num_envs, bool),
    )


def counting() -> Algorithm:
    """Every agent's action is its policy's number plus 100 for each environment; the carry counts the steps. An update
    adds 1 to the policy, and its metric is the number of living agents that it was shown."""

    def act(learner: Learner, carry: Any, step: Step, key: Any, greedy: bool) -> tuple[Any, Any, dict[str, Any]]:
        action = learner.policy + 100 * step.obs[..., 0].astype(jnp.int32)
        return carry + 1, action, {"shown": step.alive}

    def update(learner: Learner, traj: Trajectory, key: Any) -> tuple[Learner, dict[str, Any]]:
        assert set(traj.extras) == {"shown"} and traj.carry.shape == traj.step.first.shape[1:]
        metrics = {"alive": traj.step.alive.sum() + 0.0, "after": traj.outcome.alive.sum() + 0.0}
        return learner._replace(policy=learner.policy + 1, updates=learner.updates + 1), metrics

    zero = jnp.zeros((), jnp.int32)
    return Algorithm(lambda key: Learner(zero, (), (), (), zero), lambda n: jnp.zeros(n, jnp.int32), act, update)


def test_each_opponent_plays_in_its_own_environments() -> None:
    algorithm = counting()
    three = FrozenPolicies(algorithm, jnp.array([10, 20, 30]))
    after, action = act_frozen(three, jnp.arange(7), steps(7), jax.random.key(0), False)
    assert after.tolist() == [1, 2, 3, 4, 5, 6, 7], "each environment has its own state"
    wanted = [10, 20, 30, 10, 20, 30, 10]
    assert action.tolist() == [[guest + 100 * env] * N for env, guest in enumerate(wanted)]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", ["happo", "iql"])
def test_frozen_policies_with_nets_for_each_agent_act_as_they_do_alone(name: str, count: int) -> None:
    """They are in host memory, as those that a run has read from a folder."""
    config = override(get(name).Config(), {"hidden": (4,), "sharing": "independent"})
    made = acting_algorithm(name, SPEC, config, Settings(), None)
    learners = [jax.jit(made.init)(jax.random.key(i)) for i in range(count)]
    policies = jax.tree.map(lambda *x: np.stack(x), *(learner.policy for learner in learners))
    frozen = FrozenPolicies(made, policies)
    _, action = jax.jit(lambda key: act_frozen(frozen, made.initial_carry(4), steps(4), key, True))(jax.random.key(0))
    for i, learner in enumerate(learners):
        alone = made.act(learner, made.initial_carry(4), steps(4), jax.random.key(0), True)[1]
        np.testing.assert_array_equal(action[i::count], alone[i::count])


def test_a_pool_holds_the_newest_policies_at_their_ages() -> None:
    size, every = 3, 2
    pool, ages = jnp.zeros(size, jnp.int32), jnp.zeros(size, jnp.int32)
    entered: list[int] = []
    for update in range(1, 20):
        pool, ages = put(PastStatistics((), pool, ages), jnp.int32(1000 + update), jnp.int32(update), every)
        if update % every == 0:
            entered.append(update)
        newest = entered[-size:]
        missing = size - len(newest)
        wanted = sorted(newest + [newest[-1] if newest else 0] * missing)
        assert sorted(ages.tolist()) == wanted
        assert all(int(p) == (1000 + age if age else 0) for p, age in zip(pool, ages.tolist(), strict=True))


def test_a_pool_keeps_its_policies_if_they_enter_at_other_intervals() -> None:
    """As in a run that is resumed with more steps."""
    pool, ages = jnp.array([1012, 1024, 1036, 1048]), jnp.array([12, 24, 36, 48])
    for update, wanted in ((60, [12, 24, 36, 48]), (120, [120, 24, 36, 48]), (240, [120, 240, 36, 48])):
        pool, ages = put(PastStatistics((), pool, ages), jnp.int32(1000 + update), jnp.int32(update), 120)
        assert ages.tolist() == wanted and pool.tolist() == [1000 + age for age in wanted]
    half = PastStatistics((), jnp.array([1012, 1024, 1024, 1024]), jnp.array([12, 24, 24, 24]))
    assert put(half, jnp.int32(1040), jnp.int32(40), 40)[1].tolist() == [12, 24, 40, 40]


@pytest.mark.parametrize(("count", "num_envs"), [(8, 18), (8, 9), (5, 8), (2, 7)])
def test_all_opponents_play_equally_often(count: int, num_envs: int) -> None:
    policies = FrozenPolicies(counting(), jnp.arange(count))
    carry = policies.algorithm.initial_carry(num_envs)
    carry, action = act_frozen(policies, carry, steps(num_envs), jax.random.key(0), True)
    played = np.bincount(np.asarray(action[:, 0]) % 100, minlength=count)
    assert played.min() >= num_envs // count and played.max() - played.min() <= 1
    again, other = act_frozen(policies, carry, steps(num_envs), jax.random.key(0), True)
    assert (again == 2).all() and (other == action).all(), "each keeps its state"


def test_past_selves_play_one_side_and_the_learner_does_not_see_it() -> None:
    window, num_envs = 2, 8
    self_play = against_past(counting(), SPEC, (0, 2), window, every=1, share=0.5, active=True)
    learner = self_play.init(jax.random.key(0))._replace(policy=jnp.int32(5))
    learner = learner._replace(statistics=learner.statistics._replace(pool=jnp.array([1, 2])))
    carry = self_play.initial_carry(num_envs)
    now = steps(num_envs)
    after, action, extras = self_play.act(learner, carry, now, jax.random.key(1), False)
    present = np.ones((num_envs, N), bool)
    present[[0, 1]] = [True, False, True]  # each past policy plays side 2 and then side 1
    present[[2, 3]] = [False, True, False]
    past = np.array([1, 2, 1, 2, 0, 0, 0, 0])[:, None]
    wanted = np.where(present, 5, past) + 100 * np.arange(num_envs)[:, None]
    np.testing.assert_array_equal(action, wanted)
    np.testing.assert_array_equal(extras[PRESENT], present)
    np.testing.assert_array_equal(extras["shown"], present)
    assert after.past.tolist() == [1] * 4 + [0] * 4 and after.own.shape == (num_envs,)

    reward = jnp.zeros((num_envs, N)).at[2].set(jnp.array([1.0, 7.0, 2.0]))  # the learner's agent 1 earns 7
    one = jax.tree.map(lambda x: x[None], (now, now._replace(reward=reward), extras))
    traj = Trajectory(one[0], action[None], one[2], one[1], after)
    learner, metrics = self_play.update(learner, traj, jax.random.key(2))
    assert metrics["alive"] == metrics["after"] == present.sum()
    assert float(metrics["past/margin"]) == pytest.approx((7 - 1.5) / 4)
    assert learner.policy == 6 and learner.statistics.pool.tolist() == [6, 6]  # the first fills the empty place too

    deployed = Learner(learner.policy, (), (), (), jnp.int32(0))
    passive = against_past(counting(), SPEC, (0, 2), window, every=1, share=0.5, active=False)
    for acting, of in ((self_play, deployed), (passive, learner)):
        _, action, extras = acting.act(of, acting.initial_carry(num_envs), now, jax.random.key(1), False)
        assert (action == 6 + 100 * jnp.arange(num_envs)[:, None]).all() and extras[PRESENT].all()


def test_the_other_side_is_played_by_frozen_policies() -> None:
    opposed = against(counting(), SPEC, (1,), FrozenPolicies(counting(), jnp.array([10, 20])))
    learner = opposed.init(jax.random.key(0))._replace(policy=jnp.int32(5))
    carry, action, extras = opposed.act(learner, opposed.initial_carry(4), steps(4), jax.random.key(1), True)
    assert (action - 100 * jnp.arange(4)[:, None]).tolist() == [[10, 5, 10], [20, 5, 20], [10, 5, 10], [20, 5, 20]]
    assert extras["side1/shown"].shape == (4, 1)
    one = jax.tree.map(lambda x: x[None], (steps(4), extras))
    learner, metrics = opposed.update(
        learner, Trajectory(one[0], action[None], one[1], one[0], carry), jax.random.key(2)
    )
    assert metrics["alive"] == 4 and learner.policy == 6


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opponents") / "early"
    flags: dict[str, Any] = TINY | {"seeds": 2, "opponents": "past", "past_window": 1, "eval_episodes": 0}
    library.train("ippo", "toys:busy", steps=64, folder=folder, **flags)
    return folder


def test_a_run_keeps_its_opponents(early: Path, tmp_path: Path) -> None:
    opponents = tmp_path / "opponents"
    shutil.copytree(early, opponents)
    flags: dict[str, Any] = {"opponents": str(opponents), "side": ("agent_2",), "learning_starts": 8} | TINY
    flags["steps"] = 64
    run = library.train("iql", "toys:busy", folder=tmp_path / "a", **flags)
    assert run.evaluation is not None
    # agent_2 alone learns, and makes the score
    np.testing.assert_allclose(run.evaluation.scores, run.evaluation.returns[..., 2])
    shorter: dict[str, Any] = flags | {"steps": 32}
    half = library.train("iql", "toys:busy", folder=tmp_path / "b", **shorter)
    shutil.rmtree(opponents)
    again = library.resume(half.folder, steps=64, progress=False)
    assert again.finished and again.evaluation is not None
    whole = library.open_run(run.folder)
    assert whole.evaluate(4).per_seed == run.evaluation.per_seed
    assert library.load(run.folder).spec.num_agents == N
    shown = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))["config"]["settings"]
    assert shown["opponents"] == str(opponents) and shown["side"] == ["agent_2"]


@pytest.mark.slow
def test_self_play_resumes_bit_for_bit(early: Path, tmp_path: Path) -> None:
    flags: dict[str, Any] = {"seeds": 2, "opponents": "past", "past_window": 1, "past_every": 1, **TINY}
    flags["schedule_steps"] = 96  # the step size falls
    whole = library.train("ippo", "toys:busy", steps=96, folder=tmp_path / "whole", **flags)
    library.train("ippo", "toys:busy", steps=64, folder=tmp_path / "part", **flags)
    part = library.resume(tmp_path / "part", steps=96, progress=False)
    one, two = (past_selves(run.folder, run._acting(), run.settings, run._identity()) for run in (whole, part))
    assert list(one) == list(two) == [3]
    jax.tree.map(np.testing.assert_array_equal, one[3].policy, two[3].policy)
    jax.tree.map(np.testing.assert_array_equal, one[3].policy, whole._learner().policy)


def test_past_selves_take_part_in_cross_play(early: Path) -> None:
    result = library.crossplay([early], episodes=2, past=True)
    assert result.names == ("early after 64 steps", "early") and result.runs == (0, 0)
    np.testing.assert_array_equal(result.mean[0], result.mean[1])  # the newest past self is the last policy
    assert "advantage" in result.rating_table()


@pytest.mark.parametrize(("name", "flags", "every"), [("ippo", {}, 50), ("iql", {"learning_starts": 320}, 45)])
def test_the_pool_spans_the_run_and_not_its_schedules(
    name: str, flags: dict[str, Any], every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 rollouts, nine only fill the buffer of iql."""
    asked = noted_intervals(monkeypatch)
    settings = override(Settings(), PAST | {"steps": 3200, "schedule_steps": 32_000})
    config = override(get(name).Config(), {"hidden": (4,)} | flags)
    building.build(name, building.wrapped_environment(toys.busy(), settings), config, settings)
    assert asked[-1] == every


def test_the_steps_of_past_selves_count_those_that_fill_a_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = override(get("iql").Config(), {"hidden": (4,), "learning_starts": 320})
    run = Run(tmp_path / "run", "iql", "toys:busy", {}, override(Settings(), PAST), config, toys.busy())
    names: list[str] = []

    def play(env: Any, players: Any, *_: Any) -> Any:
        names.extend(player.name for player in players)
        raise InputError("nothing is played")

    monkeypatch.setattr(Run, "_learner", lambda _: None)
    monkeypatch.setattr(api, "past_selves", lambda *_: {0: None, 5: None})
    monkeypatch.setattr(playing, "play_matches", play)
    with pytest.raises(InputError, match="nothing is played"):
        library.crossplay(run, past=True)
    assert names == ["run after 0 steps", "run after 448 steps", "run"]


def test_the_pool_of_each_run_is_read_as_the_run_has_stored_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that act alike share an algorithm, but one that normalises rewards has statistics that others lack."""
    config = override(get("ippo").Config(), {"hidden": (4,)})
    runs = [
        Run(tmp_path / str(i), "ippo", "toys:busy", {}, override(Settings(), PAST | flags), config, toys.busy())
        for i, flags in enumerate(({"normalise_rewards": True}, {}))
    ]
    read: list[Any] = []

    def pool(folder: Path, algorithm: Algorithm, *_: Any) -> Any:
        read.append(jax.tree.structure(jax.eval_shape(algorithm.init, jax.random.key(0))))
        return {}

    monkeypatch.setattr(Run, "_learner", lambda _: None)
    monkeypatch.setattr(api, "past_selves", pool)
    monkeypatch.setattr(playing, "play_matches", lambda *_: (_ for _ in ()).throw(InputError("nothing is played")))
    with pytest.raises(InputError, match="nothing is played"):
        library.crossplay(runs, past=True)
    assert read[0] != read[1]


@pytest.mark.slow
def test_runs_without_past_selves_take_part_too(early: Path, tmp_path: Path) -> None:
    other = library.train("ippo", "toys:busy", steps=64, folder=tmp_path / "other", seeds=2, **TINY).folder
    result = library.crossplay([early, other], episodes=2, past=True)
    assert result.names == ("early after 64 steps", "early", "other") and result.runs == (0, 0, 2)
    with pytest.raises(InputError, match="other was not trained against past selves"):
        library.crossplay([other], past=True)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"opponents": "pst"}, "neither a run folder, nor 'past', nor the name of an algorithm"),
        ({"past_window": 4}, "past_window needs opponents"),
        ({"opponents": "scripted", "past_share": 0.2}, "past_share needs opponents 'past'"),
        ({"opponents": "past", "side": ("nobody",)}, "nobody"),
        ({"opponents": "past"}, "needs at least 16: raise num_envs to (32|64) or past_share, or lower past_window"),
        ({"opponents": "past", "past_share": 0.0}, "past_share"),
        ({"opponents": "past", "dead_value": "masked"}, "dead_value 'masked' trains values at dead agents"),
        (
            {"opponents": "past", "side2_dead_value": "masked", "algorithm": "mappo+mappo"},
            "dead_value 'masked' trains values at dead agents",
        ),
    ],
)
def test_impossible_options_are_refused(flags: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        name = flags.pop("algorithm", "mappo" if "dead_value" in flags else "ippo")
        library.train(name, "toys:busy", steps=64, folder=tmp_path / "run", **TINY, **flags)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"opponents": "constant"}, "seps collects experience of all agents before training, .* set sharing, or leave"),
        ({"opponents": "past"}, "past_window 8 needs at least 16: raise num_envs"),
        ({"opponents": "past", "side": ("nobody",)}, "nobody"),
    ],
)
def test_opponents_are_checked_before_experience_is_collected(
    flags: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect(*_: Any) -> Any:
        raise AssertionError("experience was collected")

    monkeypatch.setattr(pretraining, "collect", collect)
    with pytest.raises(InputError, match=reason):
        library.train("seps", "toys:duel", steps=64, folder=tmp_path / "run", **TINY, **flags)


def test_opponents_of_another_environment(early: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="cannot be opponents in toys/busy as it is configured here: the time limits differ"
    ):
        library.train("ippo", "toys:busy", env={"horizon": 9}, opponents=str(early), folder=tmp_path / "run", **TINY)
    with pytest.raises(InputError, match="trained in toys/busy, so its policies cannot be opponents in mpe/simple_tag"):
        library.train("ippo", "mpe/simple_tag", opponents=str(early), folder=tmp_path / "run", **TINY)


def test_recurrent_opponents_play_in_halves_that_their_number_does_not_divide(tmp_path: Path) -> None:
    """Policies act for one half of a host's environments while the other is stepped; halves are joined afterwards."""
    flags: dict[str, Any] = TINY | {"num_envs": 6, "steps": 48, "num_workers": 0, "eval_episodes": 0, "devices": 1}
    flags |= {"recurrent": 3, "chunk_length": 4, "minibatches": 1}
    guests = library.train("ippo", counters.hosted(), seeds=2, folder=tmp_path / "guests", **flags).folder
    for name, more in (
        ("against", {"opponents": str(guests), "side": ("0",)}),
        ("past", {"opponents": "past", "past_window": 1, "past_share": 0.9}),
    ):
        assert library.train("ippo", counters.hosted(), folder=tmp_path / name, seeds=1, **flags, **more).finished


@pytest.mark.parametrize(("workers", "together"), [("processes", 16), ("ray", 8)])
def test_past_selves_play_either_side_in_each_part_of_a_host(workers: str, together: int, tmp_path: Path) -> None:
    flags: dict[str, Any] = TINY | {"num_envs": 32, "num_workers": 4, "workers": workers, "devices": 1, "steps": 256}
    held, enough = together // 2, 32 * (32 // together)
    with pytest.raises(
        InputError,
        match=rf"^Past selves play in {held} of {together} environments .* at least 16: raise num_envs to {enough} or",
    ):
        library.train("ippo", counters.hosted(), folder=tmp_path / "run", opponents="past", **flags)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_opponents_that_cannot_be_copied_leave_no_run(early: Path, tmp_path: Path) -> None:
    opponents = shutil.copytree(early, tmp_path / "opponents")
    os.mkfifo(opponents / "policy" / "pipe")
    flags = TINY | {"opponents": str(opponents), "side": ("0",)}
    with pytest.raises(
        InputError, match=r"^The opponents in .* cannot be copied into the run's folder: .*named pipe\.$"
    ):
        library.train("ippo", "toys:busy", steps=64, folder=tmp_path / "run", **flags)
    assert not (tmp_path / "run").exists()


def settings_against(opponents: str) -> Settings:
    return Settings(opponent_options=OpponentOptions(opponents=opponents, side=("0",)))


def test_opponents_are_copied_once(early: Path, tmp_path: Path) -> None:
    """An agent keeps its run after every part."""
    opponents = shutil.copytree(early, tmp_path / "opponents")
    run = Run(tmp_path / "run", "ippo", "toys:busy", {}, settings_against(str(opponents)), ippo.Config(), toys.busy)
    opening._keep_opponents(run)
    (opponents / "policy" / "later").touch()
    opening._keep_opponents(run)
    copied = run.folder / "opponents"
    assert (copied / "run.json").is_file() and any((copied / "policy").iterdir())
    assert not (copied / "policy" / "later").exists()
    with pytest.raises(InputError, match=r"contains opponents of a run, but no run\.json"):
        library.train("ippo", "toys:busy", steps=64, folder=run.folder, **TINY)


def test_a_run_plays_its_copy_of_opponents_that_train_on(
    early: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opponents, loaded, plain = shutil.copytree(early, tmp_path / "opponents"), [], api.trainer_of

    def trainer_of(run: Run, *rest: Any) -> Any:
        loaded.append(run._opponents())
        trainer, theirs = plain(run, *rest), library.open_run(opponents)
        newer = jax.tree.map(lambda x: x + 1, theirs._learner().policy)
        Checkpoints(opponents / "policy", 2, theirs._identity()).save(9, newer, {"env": "toys:busy"})
        return trainer

    monkeypatch.setattr(api, "trainer_of", trainer_of)
    monkeypatch.setattr(api, "_trained", lambda run, *_: run)
    flags = TINY | {"opponents": str(opponents), "side": ("0",)}
    run = library.train("ippo", "toys:busy", steps=64, folder=tmp_path / "run", **flags)
    kept = opponents_in(str(run.folder / "opponents"), SPEC)
    jax.tree.map(np.testing.assert_array_equal, loaded[0].policies, kept.policies)


def test_an_agent_is_built_from_its_copy_of_opponents(
    early: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, there = tmp_path / "run" / "opponents" / "run.json", []

    def trainer_of(*_: Any) -> Any:
        there.append(copy.is_file())
        raise InputError("nothing is built")

    monkeypatch.setattr("shoal.runs.agent.trainer_of", trainer_of)
    agent = library.agent("ippo", "toys:busy", folder=tmp_path / "run", opponents=str(early), side=("0",), **TINY)
    with pytest.raises(InputError, match="nothing is built"):
        agent.train(32)
    assert there == [True] and not (tmp_path / "run").exists()
    opening.keep_run_json(agent.run)  # as of a run that was killed before its first checkpoint
    with pytest.raises(InputError, match="nothing is built"):
        library.agent(folder=tmp_path / "run", progress=False).train(32)
    assert there == [True, True] and copy.is_file()


@pytest.mark.parametrize(("devices", "gained"), [(None, 1), (2, 0)])
def test_processes_of_a_new_run_play_the_opponents_that_the_first_has_read(
    devices: int | None, gained: int, early: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a resumed one each reads the run's copy."""
    crew = hosts.Crew()
    monkeypatch.setattr(crew, "share", lambda arrays: jax.tree.map(lambda x: x + 1, arrays))
    monkeypatch.setattr(hosts, "crew", lambda: crew)
    opponents, settings = opponents_in(str(early), SPEC), override(settings_against(str(early)), {"num_envs": 8})
    env = building.wrapped_environment(toys.busy(), settings)
    made = building.build("ippo", env, ippo.Config(), settings, opponents=opponents, devices=devices)
    played = made.make.keywords["opponents"]  # pyright: ignore[reportFunctionMemberAccess]
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y + gained), played.policies, opponents.policies)


def test_arrays_that_processes_share_are_what_they_were() -> None:
    arrays = {"a": np.array([1, 200], np.uint8), "b": np.array([True]), "c": jax.random.key(3)}
    found = hosts.Crew().share(arrays)
    assert {name: x.dtype for name, x in found.items()} == {name: x.dtype for name, x in arrays.items()}
    assert found["a"].tolist() == [1, 200] and found["b"].tolist() == [True] and found["c"] == arrays["c"]


def test_a_configuration_is_checked_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of the user's own may have the name of a folder's copy of opponents."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "opponents").mkdir(parents=True)
    words = ["ippo", "toys:busy", "--opponents", "random", "--side", "0", "--print-config"]
    assert cli.main(["train", *words]) == 0 and 'opponents = "random"' in capsys.readouterr().out


def test_a_run_that_learned_one_side_plays_no_other(early: Path, tmp_path: Path) -> None:
    with trained.untrained():
        flags = TINY | {"opponents": str(early), "side": ("0",), "eval_episodes": 0}
        one = library.train("ippo", "toys:busy", steps=64, folder=tmp_path / "one", **flags)
    with pytest.raises(InputError, match=r"one trained only agent_0, so it cannot play agent_2: choose the agents"):
        library.train(
            "ippo", "toys:busy", steps=64, opponents=str(one.folder), side=("1",), folder=tmp_path / "x", **TINY
        )
    assert not (tmp_path / "x").exists()

    shutil.rmtree(one.folder / "opponents")
    description = one.folder / "run.json"
    text = json.loads(description.read_text(encoding="utf-8"))
    text["config"]["settings"]["opponents"] = str(one.folder)  # its own
    description.write_text(json.dumps(text), encoding="utf-8")
    with pytest.raises(CheckpointError, match="lacks opponents/, the copy of the policies"):
        library.train(
            "ippo", "toys:busy", steps=64, opponents=str(one.folder), side=("1", "2"), folder=tmp_path / "z", **TINY
        )


@pytest.mark.slow
def test_each_run_acts_by_its_own_opponents(early: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In cross-play; runs without opponents share a program. A team plays beside the first of its opponents, also as a
    model."""
    runs = {}
    with trained.untrained():
        flags: Any = TINY | {"eval_episodes": 0, "steps": 64}
        for name, more in (
            ("one", {"opponents": str(early), "side": ("0",)}),
            ("two", {"opponents": "random", "side": ("0",)}),
            ("three", {}),
            ("four", {"seed": 5}),
            ("five", {"separate_sides": False}),
        ):
            runs[name] = library.train("ippo", "toys:busy", folder=tmp_path / name, **(flags | more)).folder
    players: list[Any] = []

    def play(_: Any, given: Any, *__: Any) -> None:
        players.extend(given)
        raise KeyboardInterrupt

    monkeypatch.setattr(playing, "play_matches", play)
    with pytest.raises(KeyboardInterrupt):
        library.crossplay(list(runs.values()))
    made = {player.name: player.algorithm for player in players}
    assert made["three"] is made["four"]
    assert len({id(algorithm) for algorithm in made.values()}) == 4
    team = library.load(runs["one"])
    assert team.export(tmp_path / "team.stablehlo", format="stablehlo").stat().st_size
    model = jax.export.deserialize(bytearray((tmp_path / "team.stablehlo").read_bytes()))
    obs = np.random.default_rng(0).normal(size=(N, SPEC.obs_dim)).astype(np.float32)
    asked = [port["name"] for port in json.loads((tmp_path / "team.stablehlo.json").read_text())["inputs"]]
    obs[np.arange(SPEC.obs_dim) >= np.array(SPEC.obs_dims)[:, None]] = 0
    rows = {"observation": obs, "legal": np.arange(4) < np.array(SPEC.action_dims)[:, None]}
    inputs = {name: np.stack([rows[name]] * 3) for name in asked}
    actions = np.asarray(model.call(inputs)["action"])
    np.testing.assert_array_equal(actions, [team.act(obs, rows["legal"])] * 3)  # whatever its place in the batch
    with pytest.raises(InputError, match=r"draws random numbers"):
        library.load(runs["two"]).export(tmp_path / "other.stablehlo", format="stablehlo")


def test_a_script_is_no_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "random").mkdir()
    assert opponents_in("random", SPEC).algorithm == "random"
    (tmp_path / "random" / "run.json").touch()
    run = Run(tmp_path / "run", "ippo", "toys:busy", {}, settings_against("random"), ippo.Config(), toys.busy)
    opening._keep_opponents(run)
    assert not run.folder.exists(), "nothing was copied"


def test_opponents_with_other_wrappers(early: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="was trained with last_action False and this run has True"):
        library.train("ippo", "toys:busy", last_action=True, opponents=str(early), folder=tmp_path / "run", **TINY)
