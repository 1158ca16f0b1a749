"""What every algorithm of the registry must do, whatever its idea: masks, shards, types, chunks.

An algorithm that cannot do something refuses it with a sentence; which ones do is written down here.
"""

import re
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.equations.reduce import DEVICES
from shoal.errors import InputError
from shoal.training import sharding
from shoal.types import Discrete, Scale, Trajectory
from support.algorithm_kinds import WITHOUT_BOX, config_of, spec_of
from support.selection import quick
from support.trajectories import (
    E,
    T,
    acted,
    assert_trees_close,
    compiled,
    distance,
    from_trajectories,
    make_spec,
    make_trajectory,
    program,
)

KEY = jax.random.key(1)
OWN = "sarsa"
"""Not of the registry: an on-policy value method, in a file outside the package (docs/your-algorithm.md)."""
NAMES = (*algorithms.NAMES, OWN)
ONE_REWARD = (*algorithms.ONE_REWARD, OWN)
REFUSING_BOX = WITHOUT_BOX | {OWN}
WITHOUT_RECURRENCE = {"facmac", "haddpg", "hasac", "hatd3", "masac", "mat", "sable"}
KINDS = ("discrete", "box", "recurrent")
MEMBERS = {"haa2c", "hatd3", "ia2c", "iddpg", "ippo", "ipqn", "iql", "maa2c", "masac", "seps", "vdn"}
"""Another one's program under another configuration, or with another loss: one kind of each is enough."""
DISTINCT = [name for name in NAMES if name not in MEMBERS]
WITH_BLOCKS = [name for name in DISTINCT if "block" in {field.name for field in fields(algorithms.get(name).Config)}]


def refused(name: str, kind: str) -> bool:
    return (kind == "box" and name in REFUSING_BOX) or (kind == "recurrent" and name in WITHOUT_RECURRENCE)


CASES = [
    (name, kind)
    for name in NAMES
    for kind in KINDS
    if not refused(name, kind) and (name in DISTINCT or kind == "discrete")
]
REFUSED = [(name, kind) for name in NAMES for kind in KINDS if refused(name, kind)]
QUICK = [*(("mappo", kind) for kind in KINDS), *((name, "discrete") for name in ("mapg", "qmix", "maddpg"))]
"""MAPPO in every form, and one of each other family; the others are slow tests here, and have files of their own."""
every_case = pytest.mark.parametrize(("name", "kind"), quick(CASES, *QUICK), ids=[f"{n}-{k}" for n, k in CASES])


@cache
def played(name: str, kind: str) -> tuple[Any, Trajectory]:
    """The compiled algorithm, and a trajectory with the actions and extras of its own ``act``."""
    prog = program(spec_of(kind), config_of(name, kind))
    traj = make_trajectory(spec_of(kind), carry=prog.algorithm.initial_carry(E))
    return prog, acted(prog, prog.learner, traj)


@pytest.mark.parametrize(("name", "kind"), REFUSED, ids=[f"{n}-{k}" for n, k in REFUSED])
def test_an_unsupported_environment_is_refused(name: str, kind: str) -> None:
    with pytest.raises(InputError, match=r"^[^.]+[^ ]\.$|^[A-Z].+\.$"):
        algorithms.get(name).make(spec_of(kind), config_of(name, kind), Scale(E, T, 10))


@every_case
def test_an_update_learns_and_keeps_its_types(name: str, kind: str) -> None:
    """So that a loop can be compiled around it and a checkpoint be restored into it."""
    prog, traj = played(name, kind)
    learner, metrics = prog.update(prog.learner, traj, KEY)
    before = jax.eval_shape(prog.algorithm.init, KEY)
    after, _ = jax.eval_shape(prog.algorithm.update, before, traj, KEY)
    assert jax.tree.structure(after) == jax.tree.structure(before)
    for (path, x), y in zip(jax.tree.leaves_with_path(after), jax.tree.leaves(before), strict=True):
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type), jax.tree_util.keystr(path)
    assert all(x.shape == () and jnp.isfinite(x) for x in metrics.values()), metrics
    assert {"entropy", "epsilon"} & metrics.keys() or prog.algorithm.replay
    assert distance(learner.policy.actor, prog.learner.policy.actor) > 1e-5
    assert int(learner.updates) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_notice_about_unequal_rewards_is_true(name: str) -> None:
    prog, traj = played(name, "discrete")
    mean = jnp.broadcast_to(traj.outcome.reward.mean(-1, keepdims=True), traj.outcome.reward.shape)
    learners = [
        prog.update(prog.learner, traj._replace(outcome=traj.outcome._replace(reward=reward)), KEY)[0]
        for reward in (traj.outcome.reward, mean)
    ]
    said = prog.algorithm.unequal_rewards
    assert bool(said) == (name in ONE_REWARD)
    if said == "the mean of all agents' rewards at each step":
        assert_trees_close(*learners, atol=1e-5)
    else:
        assert said == ("the mean of the living agents' advantages" if name == "mat" else "")
        assert distance(*learners) > 1e-5


def test_there_is_no_notice_about_shared_rewards() -> None:
    scale = Scale(E, T, 10)
    for name in ONE_REWARD:
        for spec in (make_spec(shared_reward=True), make_spec(1, action=Discrete(3), action_dims=(3,))):
            assert not algorithms.get(name).make(spec, config_of(name, "discrete"), scale).unequal_rewards
    assert algorithms.get("mapg").make(make_spec(), config_of("mapg", "discrete"), scale).unequal_rewards
    own = config_of("mapg", "discrete", critic="independent")
    assert not algorithms.get("mapg").make(make_spec(), own, scale).unequal_rewards
    own = config_of("mat", "discrete", advantage="agent")
    assert not algorithms.get("mat").make(make_spec(), own, scale).unequal_rewards
    sides = algorithms.get("qmix+iql+lica")
    made = sides.make(make_spec(4, roles=(0, 0, 1, 2)), sides.Config(), Scale(16, 16, 10))
    assert made.unequal_rewards == "the mean of all agents' rewards at each step (side 1)"


@every_case
def test_dead_agents_and_what_they_see_and_do_change_nothing(name: str, kind: str) -> None:
    """Neither what they saw (NaN), nor what they did, nor what was noted of it."""
    prog, traj = played(name, kind)
    dead = ~np.asarray(traj.step.alive)
    assert 0.1 < dead.mean() < 0.6

    def spoil(x: Any, where: np.ndarray, by: Any) -> Any:
        return jnp.where(where.reshape(where.shape + (1,) * (x.ndim - 3)), by, x)

    step = traj.step._replace(obs=spoil(traj.step.obs, dead, jnp.nan))
    gone = ~np.asarray(traj.outcome.alive)
    outcome = traj.outcome._replace(obs=spoil(traj.outcome.obs, gone, jnp.nan))
    action = spoil(traj.action, dead, (traj.action + 1) % 4 if kind != "box" else 0.5)
    extras = {note: spoil(x, dead, 7.0) for note, x in traj.extras.items()}
    spoiled = traj._replace(step=step, outcome=outcome, action=action.astype(traj.action.dtype), extras=extras)
    assert_trees_close(prog.update(prog.learner, spoiled, KEY), prog.update(prog.learner, traj, KEY), 1e-4, 1e-5)


@cache
def greedy(name: str, kind: str) -> Trajectory:
    """The steps that were played, with the actions and extras of its greedy ``act``."""
    prog, traj = played(name, kind)
    return acted(prog, prog.learner, traj, greedy=True)


@every_case
def test_no_illegal_action_is_taken(name: str, kind: str) -> None:
    for least, traj in ((4, played(name, kind)[1]), (2, greedy(name, kind))):
        legal = np.asarray(traj.step.legal)
        if kind == "box":
            assert not np.asarray(traj.action)[~legal].any()
        else:
            chosen = np.take_along_axis(legal, np.asarray(traj.action)[..., None], -1)[..., 0]
            assert chosen.all() and len(np.unique(traj.action)) >= least


@every_case
def test_acting_needs_the_policy_only(name: str, kind: str) -> None:
    """A deployed learner holds nothing else; greedy action and log-probability are those of the whole learner."""
    prog, traj = played(name, kind)
    bare = acted(prog, prog.learner._replace(critic=(), optimiser=(), statistics=()), traj, greedy=True)
    np.testing.assert_array_equal(bare.action, greedy(name, kind).action)
    for note, x in greedy(name, kind).extras.items():
        np.testing.assert_allclose(bare.extras[note], x, rtol=1e-5)


@pytest.mark.parametrize("name", quick(DISTINCT, "qmix"))  # and MAPPO in test_mappo_update.py
def test_training_on_two_devices_equals_training_on_one(name: str) -> None:
    """One update of one learner: all environments on one device, and half of them on each of two."""
    prog, traj = played(name, "discrete")
    config, module = config_of(name, "discrete"), algorithms.get(name)
    half = from_trajectories(module.make(spec_of("discrete"), config, Scale(E // 2, T, 10)))
    each: Any = jax.P(None, DEVICES)
    cut = Trajectory(each, each, each, each, jax.P(DEVICES))  # the recurrent state has no axis of timesteps
    shard = partial(jax.shard_map, mesh=sharding.plan_layout(1, E, 2).mesh, check_vma=False)
    over_two = compiled(shard(half.update, in_specs=(jax.P(), cut, jax.P()), out_specs=jax.P()))
    one, two = prog.update(prog.learner, traj, KEY), over_two(prog.learner, traj, KEY)
    assert_trees_close(two, one, 5e-4, 5e-5)


@pytest.mark.parametrize("name", quick(WITH_BLOCKS, "qmix"))  # and MAPPO in test_mappo_update.py
def test_the_size_of_blocks_does_not_change_the_update(name: str) -> None:
    prog, traj = played(name, "discrete")
    config = replace(config_of(name, "discrete"), block=12)
    cut = compiled(from_trajectories(algorithms.get(name).make(spec_of("discrete"), config, Scale(E, T, 10))).update)
    assert_trees_close(cut(prog.learner, traj, KEY), prog.update(prog.learner, traj, KEY), 1e-4, 1e-5)


def test_the_page_of_all_algorithms_has_a_true_row_for_each() -> None:
    page = (Path(__file__).parents[2] / "docs" / "algorithms" / "index.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in page.splitlines() if "[`" in line]
    found = {name: row for row in rows for name in re.findall(r"\[`(\w+)`\]", row[0])}
    assert sorted(found) == sorted(algorithms.NAMES)
    sharing = {"shared": "shared", "own": "independent", "one net of the team": "shared"}
    for name, (_, _, parameters, actions, recurrent, *_) in found.items():
        assert sharing.get(parameters, "learned") == algorithms.get(name).Config().sharing, name
        assert actions == ("discrete" if name in WITHOUT_BOX else "discrete, continuous"), name
        assert (recurrent == "yes") == (name not in WITHOUT_RECURRENCE), name
