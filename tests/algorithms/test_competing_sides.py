"""Sides that compete: an algorithm that learns from a whole team never has its rivals in the team."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal as library
import toys
from shoal import algorithms
from shoal.environments import registry
from shoal.environments.spec_rules import rivals_of
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.runs.build import acting_algorithm, make_algorithm, told_of_teams
from shoal.sides.opponents import FrozenPolicies, against
from shoal.sides.past_selves import PRESENT
from shoal.sides.sides import narrowed
from shoal.training.crossplay import past_sides
from shoal.training.settings import Settings
from shoal.types import Algorithm, Discrete, EnvSpec, Experience, Learner, Replay, Scale, Step, Trajectory
from support import small_games
from support.selection import quick
from support.trajectories import make_trajectory

T, E, N = 3, 4, 4
SPEC = EnvSpec(
    name="duel",
    agents=("a", "b", "c", "d"),
    obs_dims=(3,) * N,
    state_dim=2,
    action=Discrete(3),
    action_dims=(3,) * N,
    roles=(0,) * N,
    horizon=8,
    shared_reward=False,
    sides=(0, 0, 1, 1),
)
SIDES = ((0, 1), (2, 3))
OF_TEAMS = {"coma", "lica", "magpo", "mapg", "mat", "poca", "pqn_vdn", "qmix", "qplex", "qtran", "sable", "shaq", "vdn"}
OF_TEAMS |= {"facmac", "haddpg", "hasac", "hatd3", "masac"}
ALONE = {"ia2c", "iddpg", "ippo", "ipqn", "iql", "isac", "maa2c", "mappo", "seps"}
PAST = override(Settings(), {"opponents": "past", "past_window": 1})
QUICK = ("happo", "iql", "maddpg", "mappo", "mat", "qmix")
"""Of each kind one that learns from its newest rollout, and one that learns from a replay buffer."""


def is_replay(node: Any) -> bool:
    return isinstance(node, Replay)


@pytest.fixture(scope="module")
def trajectory() -> Trajectory:
    """A past self plays side 2 in environment 0, and side 1 in environment 1."""
    present = np.ones((T, E, N), bool)
    present[:, 0, 2:] = present[:, 1, :2] = False
    traj = make_trajectory(SPEC, length=T, envs=E, dead=0.0)
    return traj._replace(extras={PRESENT: jnp.asarray(present)})


def composed(
    name: str, spec: EnvSpec, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> tuple[Algorithm, list[Trajectory], list[Algorithm]]:
    """A composition whose algorithms learn nothing, a list of what their updates receive, and these algorithms."""
    module, received, parts = algorithms.get(name), [], []
    make = module.make

    def update(learner: Learner, data: Trajectory | Experience, key: Any) -> tuple[Learner, dict[str, Any]]:
        received.append(data if isinstance(data, Trajectory) else data.newest)
        return learner, {}

    def silent(*args: Any) -> Algorithm:
        def init(key: Any) -> Learner:
            return Learner(jnp.zeros(1), (), (), (), jnp.int32(0))

        parts.append(make(*args))
        return parts[-1]._replace(init=init, update=update)

    monkeypatch.setattr(module, "make", silent)
    config = override(module.Config(), {"minibatches": 1, "chunk_length": 1, "hidden": (2,)})
    return make_algorithm(name, spec, config, settings, Scale(E, T, 10)), received, parts


def fed(algorithm: Algorithm, received: list, traj: Trajectory) -> list[Any]:
    traj = traj._replace(carry=algorithm.initial_carry(E))
    samples = jax.tree.map(lambda one: (), algorithm.replay, is_leaf=is_replay)
    key, learner = jax.random.key(0), jax.jit(algorithm.init)(jax.random.key(0))
    received.clear()
    algorithm.update(learner, Experience(traj, samples) if algorithm.replay else traj, key)
    kept = [one.keep(traj) for one in jax.tree.leaves(algorithm.replay, is_leaf=is_replay)]
    return [*received, *kept]


@pytest.mark.parametrize("name", quick(algorithms.NAMES, *QUICK))
def test_a_learner_is_fed_nothing_of_a_frozen_side(
    name: str, trajectory: Trajectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor, where it learns from more than an agent's own rewards, anything of the rivals that it plays itself."""
    algorithm, received, _ = composed(name, SPEC, PAST, monkeypatch)
    seen, absent = fed(algorithm, received, trajectory), ~trajectory.extras[PRESENT]

    def spoilt(step: Step) -> Step:
        return step._replace(
            obs=jnp.where(absent[..., None], jnp.nan, step.obs),
            legal=step.legal ^ absent[..., None],
            reward=jnp.where(absent, jnp.nan, step.reward),
            discount=jnp.where(absent, 7.0, step.discount),
            alive=step.alive ^ absent,
        )

    action = jnp.where(absent, 2 - trajectory.action, trajectory.action)
    other = trajectory._replace(step=spoilt(trajectory.step), outcome=spoilt(trajectory.outcome), action=action)
    jax.tree.map(np.testing.assert_array_equal, seen, fed(algorithm, received, other))

    rewards = jnp.where(absent, 0.0, trajectory.outcome.reward)
    if name in ALONE:
        np.testing.assert_array_equal(seen[0].outcome.reward, rewards)
        return
    for one, who in zip(seen, SIDES, strict=False):
        np.testing.assert_array_equal(one.outcome.reward, rewards[..., np.array(who)])
        assert one.step.obs.shape == (T, E, 2, 3) and one.step.state.shape == (T, E, 2)


@pytest.mark.parametrize("name", ["maddpg", "mat", "qmix"])
def test_a_learner_is_fed_nothing_of_another_runs_policies(
    name: str, trajectory: Trajectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = narrowed(SPEC, SIDES[0])
    learning, received, _ = composed(name, own, Settings(), monkeypatch)
    algorithm = against(learning, SPEC, SIDES[0], FrozenPolicies(learning, jnp.zeros((1, 1))))
    theirs = jnp.array([False, False, True, True])

    def spoilt(step: Step) -> Step:
        reward = jnp.where(theirs, jnp.nan, step.reward)
        return step._replace(
            obs=jnp.where(theirs[:, None], jnp.nan, step.obs), reward=reward, alive=step.alive ^ theirs
        )

    traj = trajectory._replace(extras={})
    other = traj._replace(step=spoilt(traj.step), outcome=spoilt(traj.outcome))
    one, two = (fed(algorithm, received, x) for x in (traj, other))
    jax.tree.map(np.testing.assert_array_equal, one, two)
    assert own.shared_reward and one[0].step.obs.shape == (T, E, 2, 3)


@pytest.mark.parametrize("name", quick(algorithms.NAMES, *QUICK))
def test_competing_sides_without_opponents(name: str, trajectory: Trajectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what learns from a team is made for each side; MADDPG's critics, for example, read all agents' actions."""
    traj = trajectory._replace(extras={})
    algorithm, received, parts = composed(name, SPEC, Settings(), monkeypatch)
    newest = fed(algorithm, received, traj)[: len(received)]
    assert [one.outcome.reward.shape[-1] for one in newest] == ([2, 2] if name in OF_TEAMS else [4])
    assert parts[0].learns_from == learns_from(name)


def learns_from(name: str) -> str:
    return "team" if name in OF_TEAMS else "own" if name in ALONE else "others"


@pytest.mark.parametrize("name", algorithms.NAMES)
def test_what_an_algorithm_learns_from_is_stated(name: str) -> None:
    module = algorithms.get(name)
    config = override(module.Config(), {"minibatches": 1, "chunk_length": 1, "hidden": (2,)})
    made = module.make(SPEC, config, Scale(E, T, 10))
    assert made.learns_from == learns_from(name)
    assert not made.unequal_rewards or made.learns_from == "team"


def test_agents_are_one_team_without_separate_sides(monkeypatch: pytest.MonkeyPatch, trajectory: Trajectory) -> None:
    traj = trajectory._replace(extras={})
    whole = override(Settings(), {"separate_sides": False})
    for spec, settings in ((SPEC, whole), (replace(SPEC, shared_reward=True), Settings())):
        with monkeypatch.context() as patch:
            algorithm, received, _ = composed("vdn", spec, settings, patch)
            fed(algorithm, received, traj)
        assert [one.outcome.reward.shape[-1] for one in received] == [4]
        assert told_of_teams("vdn", spec, algorithms.get("vdn").Config(), settings) == []
    assert told_of_teams("vdn", SPEC, algorithms.get("vdn").Config(), Settings()) == [
        "vdn trains competing sides separately, each as a team (side 1: a, b; side 2: c, d)."
    ]


def test_options_of_agents_and_roles_are_those_of_each_side() -> None:
    spec = replace(SPEC, roles=(0, 1, 1, 2))
    config = override(algorithms.get("maddpg").Config(), {"sharing": (0, 0, 1, 2), "local_roles": (1, 2)})
    algorithm = make_algorithm("maddpg", spec, config, PAST, Scale(E, T, 10))
    shapes = jax.eval_shape(algorithm.init, jax.random.key(0)).policy
    assert [jax.tree.leaves(side.actor)[0].shape[0] for side in shapes] == [1, 2]


def test_competing_sides_are_recognised() -> None:
    tag, comm = registry.make("mpe/simple_tag").spec, registry.make("mpe/simple_world_comm").spec
    assert tag.competing == ((0, 1, 2), (3,)) and comm.competing == ((0, 1, 2, 3), (4, 5))
    assert registry.make("mpe/simple_spread").spec.competing == ((0, 1, 2),)
    assert rivals_of(["ally_0", "ally_1", "enemy_0"]) == (0, 0, 1) and rivals_of(["knight_0", "archer_0"]) is None
    assert narrowed(comm, (0, 4)).competing == ((0,), (1,)) and narrowed(comm, (0, 1)).rivals is None
    with pytest.raises(InputError, match=r"spec\.rivals must be None or give each of the 4 agents a side"):
        registry.check_spec(replace(SPEC, rivals=(0, 1)))


def test_a_learning_side_keeps_the_environments_sides() -> None:
    """Within them rewards are equal, so the value of a dead agent is that of its living partners."""
    both = narrowed(SPEC, (1, 2, 3))
    assert both.sides == (0, 1, 1) == both.reward_groups and both.competing == ((0,), (1, 2))
    assert narrowed(SPEC, (2, 3)).sides is None and narrowed(SPEC, (2, 3)).shared_reward
    assert narrowed(replace(SPEC, sides=None), (1, 2)).reward_groups == (0, 1)


def test_past_selves_play_whole_sides() -> None:
    config = override(algorithms.get("vdn+vdn").Config(), {"sides": (1, 2, 1, 2)})
    assert past_sides(SPEC, (), config) == ((0, 2), (1, 3))
    assert past_sides(SPEC, ("b", 3), config) == ((1, 3), (0, 2))
    with pytest.raises(InputError, match="a, b are a part of side 1, which learns as one team: give --side all agents"):
        past_sides(SPEC, ("a", "b"), config)


FAST = {"hidden": (8,), "chunk_length": 1, "epochs": 2, "minibatches": 1, "learning_rate": 0.01, "gamma": 0.9}
FAST |= {"adam_eps": 1e-5}
OFF_POLICY = {"buffer_size": 4096, "learning_starts": 256, "batch_size": 64, "gradient_steps": 4}


@pytest.mark.slow
@pytest.mark.parametrize("name", algorithms.NAMES)
def test_every_algorithm_plays_what_dominates_for_both_sides(name: str) -> None:
    env, module = toys.duel(), algorithms.get(name)
    own = getattr(module.Config(), "critic_learning_rate", None) is not None
    rates = {"critic_learning_rate": 0.01} if own else {}
    if name == "lica":  # steps of 0.01 from the first values of its mixing critic leave one that ignores actions
        rates = {"critic_learning_rate": 0.003, "epochs": 8}
    config = override(module.Config(), FAST | OFF_POLICY | rates)
    settings = override(Settings(), {"opponents": "past", "past_window": 4})
    teams = small_games.train(
        name, env, config, updates=120, seeds=3, length=8,
        make=lambda scale: make_algorithm(name, env.spec, config, settings, scale),
    )  # fmt: skip
    playing = acting_algorithm(name, env.spec, config, settings)
    step = jax.tree.map(lambda x: jnp.asarray(x)[None], env.reset(jax.random.key(0))[1])

    def greedy(learner: Learner) -> Any:
        return playing.act(learner, playing.initial_carry(1), step, jax.random.key(1), True)[1][0]

    assert np.asarray(jax.jit(jax.vmap(greedy))(teams.after)).tolist() == [[1] * 4] * 3


@pytest.mark.slow
def test_a_run_of_separate_sides_is_stored(tmp_path: Path) -> None:
    """And one of all agents as one team is loaded and resumed as that."""
    flags: dict[str, Any] = {"num_envs": 4, "rollout_length": 4, "hidden": (2,), "learning_starts": 4, "batch_size": 4}
    flags |= {"eval_episodes": 0, "progress": False, "tensorboard": False, "buffer_size": 64}
    run = library.train("vdn", "toys:duel", steps=16, folder=tmp_path / "run", **flags)
    assert run.spec.sides == (0, 0, 1, 1) and len(run._learner().policy) == 2
    acts = library.load(run.folder).act({agent: np.ones(1) for agent in run.spec.agents})
    assert set(acts) == set(run.spec.agents)
    old = library.train("vdn", "toys:duel", steps=16, folder=tmp_path / "old", separate_sides=False, **flags)
    assert library.resume(old.folder, steps=32, progress=False).finished
    assert hasattr(old._learner().policy, "actor")
