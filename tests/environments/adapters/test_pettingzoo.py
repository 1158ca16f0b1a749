import functools
import importlib
import itertools
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("pettingzoo")
gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402
from gymnasium.spaces import flatten  # noqa: E402

from shoal.checking import check  # noqa: E402
from shoal.environments import registry  # noqa: E402
from shoal.environments.adapters.spaces import Observation, choice_form  # noqa: E402
from shoal.environments.interface import acted, joint_mask  # noqa: E402
from shoal.environments.wrappers import Wrapping, wrap  # noqa: E402
from shoal.equations.returns import td_lambda  # noqa: E402
from shoal.equations.targets import cut_off, mask_dead_values  # noqa: E402
from shoal.errors import InputError  # noqa: E402
from shoal.game import HostEnvironment, blank, own_actions, refresh  # noqa: E402
from shoal.rollouts.host import HostRollout, Parallelism  # noqa: E402
from shoal.spec import Box, Discrete  # noqa: E402


def made(name, **options) -> HostEnvironment:
    env = registry.make(name, **options)
    assert isinstance(env, HostEnvironment)
    return env


def started(env: HostEnvironment, seed: int = 0):
    game, timestep, own = env.make(), blank(env.spec), own_actions(env.spec)
    refresh(timestep, own)
    game.reset(seed, timestep)

    def step(action):
        refresh(timestep, own)
        game.step(np.asarray(action), timestep)

    return timestep, step, game


def drawn(rng, timestep, spec):
    if isinstance(spec.action, Box):
        return rng.uniform(spec.action.low, spec.action.high, timestep.legal.shape).astype(np.float32)
    return np.array([rng.choice(np.flatnonzero(row)) for row in timestep.legal], np.int32)


@pytest.mark.parametrize(
    ("module", "options", "roles"),
    [
        ("simple_spread_v3", {"N": 2}, (0, 0)),
        ("simple_spread_v3", {"continuous_actions": True}, (0, 0, 0)),
        ("simple_speaker_listener_v4", {}, (0, 1)),
        ("simple_tag_v3", {}, (0, 0, 0, 1)),
    ],
)
def test_a_parallel_environment_is_the_packages_own(module, options, roles):
    pytest.importorskip("mpe2")
    env = made(f"pettingzoo:mpe2.{module}", **options)
    raw = __import__(f"mpe2.{module}", fromlist=["x"]).parallel_env(**options)
    assert (env.spec.roles, env.spec.horizon) == (roles, 25)
    timestep, step, _ = started(env, seed=7)
    seen, _ = raw.reset(seed=7)
    rng = np.random.default_rng(0)
    rewards, cut = {}, {}
    for t in range(26):
        for i, agent in enumerate(raw.possible_agents):
            width = env.spec.obs_dims[i]
            np.testing.assert_array_equal(timestep.obs[i, :width], seen[agent])
            assert not timestep.obs[i, width:].any()
            assert timestep.legal[i].sum() == env.spec.action_dims[i]
            assert timestep.reward[i] == np.float32(rewards.get(agent, 0.0))
        np.testing.assert_array_equal(timestep.state, raw.state())
        assert timestep.last == any(cut.values())
        assert timestep.discount.all() and timestep.alive.all()
        if t == 25:
            break
        action = drawn(rng, timestep, env.spec)
        step(action)
        rows = [row[:dim] if row.ndim else int(row) for row, dim in zip(action, env.spec.action_dims, strict=True)]
        seen, rewards, _, cut, _ = raw.step(dict(zip(raw.possible_agents, rows, strict=True)))
    assert timestep.last


@pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")
def test_pistonball_is_the_packages_own():
    from pettingzoo.butterfly import pistonball_v6

    options = {"n_pistons": 8, "max_cycles": 3, "continuous": False}
    env, raw = made("pettingzoo:butterfly.pistonball_v6", **options), pistonball_v6.parallel_env(**options)
    assert env.spec.packed and env.spec.parts is not None and env.spec.parts[0][0].shape == (457, 120, 3)
    timestep, step, _ = started(env, seed=3)
    seen, _ = raw.reset(seed=3)
    rewards: dict[str, float] = {}
    for t in range(4):
        for i, agent in enumerate(raw.possible_agents):
            np.testing.assert_array_equal(timestep.obs[i], np.ravel(seen[agent]))
            assert timestep.reward[i] == np.float32(rewards.get(agent, 0.0))
        assert timestep.last == (t == 3) and timestep.discount.all()
        if t < 3:
            action = np.array([0, 2, 1, 1, 2, 0, 0, 2], np.int32)
            step(action)
            seen, rewards, *_ = raw.step(dict(zip(raw.possible_agents, action.tolist(), strict=True)))


@pytest.mark.parametrize("module", ["tictactoe_v3", "connect_four_v3"])
def test_a_game_of_turns_is_the_packages_own(module):
    pytest.importorskip("pygame")
    package = pytest.importorskip(f"pettingzoo.classic.{module}")
    env, raw = made(f"pettingzoo:classic.{module}"), package.env()
    rng = np.random.default_rng(1)
    for seed in range(3):
        timestep, step, _ = started(env, seed)
        raw.reset(seed=seed)
        earned = dict.fromkeys(raw.possible_agents, 0.0)
        for agent in raw.agent_iter():
            seen, reward, over, _, _ = raw.last()
            assert earned[agent] == reward
            if over:
                assert timestep.last
                assert not timestep.discount.any()
                raw.step(None)
                continue
            assert not timestep.last
            i = raw.possible_agents.index(agent)
            np.testing.assert_array_equal(timestep.obs[i], seen["observation"].reshape(-1))
            np.testing.assert_array_equal(timestep.legal[i], seen["action_mask"].astype(bool))
            np.testing.assert_array_equal(np.flatnonzero(timestep.legal[1 - i]), [0])
            earned[agent] = 0.0
            action = drawn(rng, timestep, env.spec)
            step(action)
            raw.step(int(action[i]))
            for j, other in enumerate(raw.possible_agents):
                earned[other] += timestep.reward[j]


class Expedition:
    """Three walkers: ``walker_0`` dies on step 2, ``walker_1`` is cut off on step 3, ``walker_2`` on step 5."""

    metadata = {"name": "expedition"}  # noqa: RUF012
    possible_agents = ("walker_0", "walker_1", "walker_2")

    def __init__(self, ends: int = 5, late: bool = False, dies: bool = False):
        self.ends, self.late, self.dies = ends, late, dies

    @functools.cache  # noqa: B019
    def observation_space(self, agent):
        inner = {"where": spaces.Discrete(3), "when": spaces.Box(-9, 9, (2, 1), np.float64)}
        return spaces.Dict({**inner, "action_mask": spaces.MultiBinary(6)})

    @functools.cache  # noqa: B019
    def action_space(self, agent):
        return spaces.MultiDiscrete([2, 3])

    def _seen(self):
        mask = np.array([1, 0, 0, 1, 1, 1], np.int8)
        row = {"where": 1, "when": np.full((2, 1), float(self.time)), "action_mask": mask}
        return {agent: dict(row) for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.time, self.played = 0, []
        self.agents = list(self.possible_agents[: 2 if self.late else 3])
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        assert list(actions) == self.agents
        self.played.append(actions)
        if self.late and self.time == 1:
            self.agents.append("walker_2")
        seen = self._seen()
        rewards = {agent: 1.0 + i for i, agent in enumerate(self.agents)}
        dead = {a: (a == "walker_0" and self.time == 2) or (self.dies and self.time == self.ends) for a in self.agents}
        cut = {a: self.time == {"walker_1": 3}.get(a, self.ends) and not dead[a] for a in self.agents}
        self.agents = [agent for agent in self.agents if not (dead[agent] or cut[agent])]
        return seen, rewards, dead, cut, {agent: {} for agent in seen}

    def close(self):
        pass


def test_termination_truncation_and_death_of_single_agents():
    env = made(Expedition)
    assert env.spec.action == Discrete(6)
    assert env.spec.obs_dims == (5, 5, 5)
    assert env.spec.roles == (0, 0, 0)
    timestep, step, game = started(env)
    np.testing.assert_array_equal(timestep.obs[0], [0, 0, 0, 1, 0])  # "when", then "where", one-hot
    np.testing.assert_array_equal(timestep.legal[2], [True, False, False, True, True, True])
    rows = []
    for _ in range(5):
        step(np.array([5, 4, 3], np.int32))
        rows.append(
            (timestep.alive.tolist(), timestep.discount.tolist(), timestep.reward.tolist(), bool(timestep.last))
        )
        assert timestep.legal.any(1).all()
        assert timestep.leaving.tolist() == [False, len(rows) == 3, False]
        if len(rows) == 3:  # who is cut off is still there and shows what it saw last; who died shows nothing
            assert timestep.obs[1].any()
            assert not timestep.obs[0].any()
    assert rows == [
        ([True, True, True], [1, 1, 1], [1, 2, 3], False),
        ([False, True, True], [0, 1, 1], [1, 2, 3], False),
        ([False, True, True], [1, 1, 1], [0, 1, 2], False),
        ([False, False, True], [1, 1, 1], [0, 0, 1], False),
        ([False, False, True], [1, 1, 1], [0, 0, 1], True),
    ]
    np.testing.assert_array_equal(vars(game)["_env"].played[0]["walker_0"], [1, 2])
    assert not timestep.obs[1].any()


@pytest.mark.parametrize("shared", [False, True])
def test_a_time_limit_of_one_agent_bootstraps_from_its_last_observation(shared):
    """``walker_1``'s on step 3. A reward that is shared goes on after it, so there the walker counts as dead."""
    env, length = made(Expedition, shared_reward=shared), 5

    def act(policy, carry, step, key, greedy):
        return carry, jnp.argmax(step.legal, -1).astype(jnp.int32), {}

    with closing(HostRollout(env, lambda envs: (), Parallelism(1, 1, 0), length)) as rollout:
        rollout.init(jax.random.split(jax.random.key(0), 1))
        traj = jax.tree.map(
            lambda x: jnp.asarray(x[0]), rollout.collect(act, (), jax.random.split(jax.random.key(1), 1))[0]
        )
    assert traj.step.alive[:, 0, 1].tolist() == [True] * 3 + [False] * 2
    assert traj.outcome.alive[:, 0, 1].tolist() == [True] * 2 + [not shared] + [False] * 2
    assert traj.outcome.discount[:, 0, 1].tolist() == [1.0] * 5
    assert traj.outcome.obs[2, 0, 1].any() == (not shared) and not traj.step.obs[3, 0, 1].any()
    if shared:
        return
    value = mask_dead_values(traj.outcome.obs.sum(-1), traj.outcome.alive, (0, 1, 2))  # any function of the observation
    out = traj.outcome
    target = td_lambda(out.reward, out.discount, value, cut_off(traj), gamma=0.9, lam=0.5)
    expected = 0.0
    for t in (2, 1, 0):  # the rewards of walker_1 are 2, and 1 when it is the first of two
        v = float(out.obs[t, 0, 1].sum())
        later = v if t == 2 else 0.5 * v + 0.5 * expected
        expected = float(out.reward[t, 0, 1]) + 0.9 * later
        assert v > 0 and float(target[t, 0, 1]) == pytest.approx(expected)


def test_a_check_does_not_count_an_agent_as_dead_that_is_cut_off_alone():
    found = [finding for finding in check(Expedition, isolate=False).findings if finding.subject == "agent death"]
    assert [(finding.level, finding.sentence.split()[0]) for finding in found] == [("note", "walker_0")]


def test_the_last_ones_death_is_a_termination():
    timestep, step, _ = started(made(Expedition, dies=True))
    for _ in range(5):
        step(np.array([5, 4, 3], np.int32))
    assert timestep.last
    assert not timestep.discount.any()


def test_an_agent_that_joins_later_is_absent_before():
    timestep, step, _ = started(made(Expedition, late=True))
    np.testing.assert_array_equal(timestep.alive, [True, True, False])
    assert not timestep.obs[2].any()
    step(np.array([5, 4, 3], np.int32))
    assert timestep.alive.all()
    assert timestep.obs[2].any()


def test_a_time_limit_is_no_termination():
    timestep, step, _ = started(made("pettingzoo:mpe2.simple_spread_v3", time_limit=2))
    step(np.zeros(3, np.int32))
    assert not timestep.last
    step(np.zeros(3, np.int32))
    assert timestep.last
    assert timestep.discount.all()
    assert timestep.alive.all()


class Mixed(Expedition):
    def action_space(self, agent):
        return spaces.Box(-1, 1, (2,)) if agent == "walker_0" else spaces.Discrete(2)


class Huge(Expedition):
    def action_space(self, agent):
        return spaces.MultiDiscrete([17, 17, 17])


class Ragged(Expedition):
    def action_space(self, agent):
        return spaces.Box(np.array([0.0, -2.0], np.float32), np.array([4.0, 2.0], np.float32))


def test_bounds_that_differ_are_reached_from_one_box():
    env = made(Ragged)
    assert env.spec.action == Box(2)
    _, step, game = started(env)
    step(np.array([[-1, -1], [1, 1], [0, 0.5]], np.float32))
    sent = vars(game)["_env"].played[0]
    np.testing.assert_allclose([sent[a] for a in Ragged.possible_agents], [[0, -2], [4, 2], [2, 1]])


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (Mixed, {}, "mixes agents with discrete and with continuous"),
        (Huge, {}, "4913 joint actions"),
        ("pettingzoo:nowhere_v0", {}, "no module"),
        ("pettingzoo:classic.tictactoe_v2", {}, "did you mean 'tictactoe_v3'"),
        ("pettingzoo:mpe2.simple_spread_v3", {"unknown": 1}, "unknown"),
        ("pettingzoo:mpe2.simple_spread_v3", {"time_limit": 0}, "time_limit"),
    ],
)
def test_impossible_options_are_refused(name, options, words):
    with pytest.raises(InputError, match=words):
        registry.make(name, **options)


def test_a_missing_package_says_what_installs_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pettingzoo", None)
    with pytest.raises(InputError, match=r"pip install 'pettingzoo[^']*>="):
        registry.make("pettingzoo:mpe2.simple_spread_v3")


def test_a_missing_dependency_names_the_extra_of_its_family(monkeypatch):
    modules = __import__("sys").modules
    for name in [name for name in modules if name.startswith(("pymunk", "pettingzoo.butterfly.pistonball"))]:
        monkeypatch.delitem(modules, name)
    monkeypatch.setitem(modules, "pymunk", None)
    with pytest.raises(InputError, match=r"'\w+', which is not installed: pip install 'pettingzoo\[butterfly\]'"):
        registry.make("pettingzoo:butterfly.pistonball_v6")


class Narrowing(Expedition):
    """``state()`` has a number for each walker that is still there."""

    def state(self):
        return np.full(len(self.agents), 2.5)


def test_a_state_of_another_width_is_an_error_and_none_is_no_state():
    timestep, step, _ = started(made(Narrowing))
    assert timestep.state.tolist() == [2.5, 2.5, 2.5]
    with pytest.raises(ValueError, match=r"state\(\) has 2 numbers, but its space has 3"):
        for _ in range(3):
            step(np.array([5, 4, 3], np.int32))

    class Stub(Expedition):
        def state(self):
            return None

    env = made(Stub)
    assert env.spec.state_dim == 15  # all observations


class Misled(Expedition):
    """``state()`` fails in some way, or says that there is none."""

    def __init__(self, error: type[Exception] | None = None):
        super().__init__()
        self.error = error

    def state(self) -> Any:
        if self.error is not None:
            raise self.error("of the walkers")
        return {"walkers": 3}


@pytest.mark.parametrize(
    ("error", "how"),
    [(TypeError, "raises TypeError: of the walkers"), (None, "returns a dict that is no array of numbers")],
)
def test_a_state_that_fails_is_replaced_with_one_warning(error, how, capsys):
    for _ in range(2):
        assert made(functools.partial(Misled, error)).spec.state_dim == 15
    assert capsys.readouterr().err == (
        f"functools:partial: its state is all observations in a row, since its state() {how}.\n"
    )
    assert made(functools.partial(Misled, NotImplementedError)).spec.state_dim == 15
    own_parallel: Any = importlib.import_module("own_parallel")  # has no metadata, which PettingZoo's state() reads
    assert made(own_parallel.Meeting).spec.state_dim == 7
    assert not capsys.readouterr().err


class Unseen(Expedition):
    """``walker_1`` is cut off without an observation."""

    def step(self, actions) -> Any:
        seen, *rest = super().step(actions)
        return {agent: row for agent, row in seen.items() if agent != "walker_1" or self.time < 3}, *rest


def test_the_check_asks_for_the_last_observation_of_an_agent_that_is_cut_off_alone():
    (finding,) = [one for one in check(Unseen, episodes=2, isolate=False).findings if "walker_1 dies" in one.sentence]
    assert (
        finding.level == "warning" and "return its last observation in the step that truncates it" in finding.sentence
    )
    assert not any("walker_1 dies" in one.sentence for one in check(Expedition, episodes=2, isolate=False).findings)


@pytest.mark.parametrize("shared", [False, True])
def test_a_limit_of_one_agent_terminates_where_limits_do(shared):
    """A reward that is shared goes on after it, as after a death."""
    env = wrap(made(Expedition, shared_reward=shared), Wrapping(limit_terminates=True))
    timestep, step, _ = started(env)
    for _ in range(3):
        step(np.array([5, 4, 3], np.int32))
    assert timestep.leaving.tolist() == [False, True, False]
    assert timestep.discount.tolist() == [1, shared, 1]


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (spaces.MultiDiscrete([2, 2]), ([1, 0], [1, 1])),
        (spaces.MultiDiscrete([1, 2, 3]), ([1], [0, 1], [1, 0, 1])),
        (spaces.MultiBinary(2), ([0, 1], [1, 1])),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), ([1, 0], [0, 1])),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]), ([1, 0], [0, 1, 1])),
        (spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(3)), {"a": [0, 1], "b": [1, 0, 1]}),
    ],
)
def test_masks_of_each_choice_allow_the_joint_actions_that_all_allow(space: spaces.Space, mask: Any):
    arrays = {k: np.array(x) for k, x in mask.items()} if isinstance(mask, dict) else tuple(map(np.array, mask))
    form = choice_form(space)
    assert form is not None
    allowed = joint_mask(form, arrays)
    sizes = [len(x) for x in (mask.values() if isinstance(mask, dict) else mask)]
    each = list(mask.values()) if isinstance(mask, dict) else list(mask)
    wanted = [all(each[i][k] for i, k in enumerate(place)) for place in itertools.product(*map(range, sizes))]
    assert allowed.tolist() == wanted


PAIRS, TRIPLE = spaces.MultiDiscrete([2, 2]), spaces.MultiDiscrete([2, 3])


def marks(*entries: int) -> np.ndarray:
    return np.array(entries, np.int8)


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (spaces.Dict(a=PAIRS), {"a": (marks(1, 0), marks(1, 1))}),
        (spaces.Tuple([PAIRS]), ((marks(1, 0), marks(1, 1)),)),
        (spaces.Dict(a=TRIPLE, b=spaces.Discrete(2)), {"b": marks(0, 1), "a": (marks(1, 1), marks(1, 0, 1))}),
        (spaces.Dict(a=TRIPLE, b=spaces.Discrete(3)), {"a": None, "b": marks(1, 0, 1)}),
        (spaces.Tuple([PAIRS, TRIPLE]), (None, (marks(0, 1), marks(1, 1, 0)))),
        (spaces.Tuple([spaces.Dict(a=PAIRS), spaces.Discrete(2)]), ({"a": (marks(0, 1), marks(1, 1))}, marks(1, 0))),
        (spaces.MultiDiscrete(np.array([[2, 3], [1, 2]])), ((marks(1, 0), marks(1, 0, 1)), (marks(1), marks(1, 1)))),
        (spaces.MultiDiscrete(np.array([[2, 2]])), ((marks(1, 0), marks(1, 1)),)),
        (spaces.Dict(a=spaces.MultiBinary(2), b=spaces.Discrete(2)), {"a": None, "b": marks(1, 0)}),
        (PAIRS, None),
    ],
)
def test_a_nested_mask_allows_what_gymnasium_samples_with_it(space: spaces.Space, mask: Any) -> None:
    form = choice_form(space)
    assert form is not None
    space.seed(0)
    sampled = {tuple(flatten(space, space.sample(mask=mask))) for _ in range(300)}
    allowed = joint_mask(form, mask)
    chosen = [acted(form, Discrete(len(allowed)), i) for i in np.flatnonzero(allowed)]
    assert {tuple(flatten(space, action)) for action in chosen} == sampled


@pytest.mark.parametrize(
    ("space", "mask", "words"),
    [
        (spaces.Dict(a=PAIRS), {"a": [1, 0, 1, 1]}, "could be of joint actions"),
        (spaces.Dict(a=PAIRS), {"b": ([1, 0], [1, 1])}, "has other parts than its action space"),
        (spaces.Dict(a=TRIPLE, b=spaces.Discrete(2)), {"a": [1, 1], "b": [1, 1]}, "has other parts than"),
        (spaces.MultiDiscrete([1, 3]), ([1, 1], [1, 1]), "has other parts than"),
        (TRIPLE, ([1, 0, 1], [1, 1]), "has other parts than"),
        (spaces.Tuple([spaces.MultiBinary(3), spaces.Discrete(2)]), (marks(1, 2, 0), marks(1, 1)), "has other parts"),
    ],
)
def test_a_nested_mask_with_other_parts_is_refused(space: spaces.Space, mask: Any, words: str) -> None:
    form = choice_form(space)
    assert form is not None
    with pytest.raises(InputError, match=words):
        joint_mask(form, mask)


def test_parts_of_a_nested_mask_may_be_joint_or_concatenated() -> None:
    form = choice_form(spaces.Dict(a=TRIPLE, b=spaces.Discrete(2)))
    assert form is not None
    wanted = joint_mask(form, {"a": ([1, 0], [1, 0, 1]), "b": [0, 1]}).tolist()
    assert sum(wanted) == 2
    for a in ([1, 0, 1, 0, 1], [1, 0, 1, 0, 0, 0], ([1, 0, 1, 0, 0, 0],)):
        assert joint_mask(form, {"a": a, "b": [0, 1]}).tolist() == wanted
    assert joint_mask(form, [1, 0, 1, 0, 1, 0, 1]).tolist() == wanted  # all choices, concatenated
    assert joint_mask(form, wanted).tolist() == wanted
    tables = [[[1, 1, 1], [1, 0, 1]], ([[1, 1, 1], [1, 0, 1]],), np.array([[1, 1, 1], [1, 0, 1]])]
    assert all(joint_mask(form[1][0][1], table).tolist() == [1, 1, 1, 1, 0, 1] for table in tables)


def test_a_mask_of_actions_alone_is_no_observation() -> None:
    space = spaces.Dict({"action_mask": spaces.MultiBinary(3)})
    with pytest.raises(InputError, match="agent_0 observes nothing but an action mask"):
        Observation(space, "agent_0")
