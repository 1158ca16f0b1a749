"""Deployed policies take what PettingZoo's and Gymnasium's environments return, and give what these take."""

import functools
import importlib
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from shoal.algorithms import mappo
from shoal.deploy import Policies
from shoal.environments import registry
from shoal.environments.adapters.spaces import Observation, actions, interface, spec_of_spaces
from shoal.environments.interface import Converter, feature_names, flat, parsed
from shoal.environments.spec_rules import check_spec
from shoal.environments.wrappers import Wrapping, wrap
from shoal.errors import InputError
from shoal.game import HostTimestep, blank, own_actions, refresh
from shoal.options.flags import override
from shoal.spec import Box
from shoal.types import Scale, Step

EXAMPLES = Path(__file__).parents[1] / "examples"
TICTACTOE = "pettingzoo.classic.tictactoe_v3"
pytestmark = pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")

OBSERVATIONS = [
    spaces.Box(-1.0, 1.0, (4,)),
    spaces.Box(0, 255, (2, 3), np.uint8),
    spaces.Discrete(5, start=3),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiDiscrete(np.array([[3, 2], [4, 5]])),
    spaces.MultiBinary(4),
    spaces.Discrete(1),
    spaces.Tuple([spaces.Discrete(3), spaces.Box(0.0, 1.0, (2, 2))]),
    spaces.Dict(
        {"b": spaces.Discrete(2), "a": spaces.Dict({"y": spaces.MultiBinary([2, 2]), "x": spaces.Discrete(3)})}
    ),
    spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (3,)), "action_mask": spaces.MultiBinary(4)}),
    spaces.Dict({"o": spaces.Discrete(3), "p": spaces.Discrete(2), "action_mask": spaces.Box(0, 1, (4,), np.int8)}),
]
CHOICES = [
    [spaces.Discrete(4), spaces.Discrete(3, start=-1)],
    [spaces.MultiDiscrete([3, 2, 4]), spaces.MultiBinary(3), spaces.MultiDiscrete([2, 3], start=[1, -1])],
    [spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([3, 2])])],
    [spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Discrete(5, start=2)})],
]
BOXES = [
    [spaces.Box(-2.0, 2.0, (3,)), spaces.Box(-2.0, 2.0, (1,))],
    [spaces.Box(np.array([0, -1], np.float32), np.array([4, 1], np.float32)), spaces.Box(-1.0, 1.0, (2, 2))],
    [spaces.Box(0, 7, (2,), np.int64)],
]


def converter(observations: list[Any], acts: list[Any], kind: Any = "parallel") -> Converter:
    seen = [Observation(space, "x") for space in observations]
    action, dims, forms = actions(acts, "x")
    names = tuple(f"agent_{i}" for i in range(len(acts)))
    spec = spec_of_spaces("x", names, seen, acts, (action, dims), None, 5)
    spec = replace(spec, interface=interface(kind, [one.space for one in seen], forms))
    check_spec(spec)
    return Converter(spec)


@pytest.mark.parametrize("space", OBSERVATIONS, ids=str)
def test_observations_are_flattened_as_gymnasium_does(space: Any) -> None:
    """Without the mask; a row that is flat already stays as it is, unless it is the space's own."""
    one = converter([space], [spaces.Discrete(4)])
    space.seed(3)
    for _ in range(10):
        seen, plain, rest = (x := space.sample()), x, space
        if isinstance(space, spaces.Dict) and "action_mask" in space.spaces:
            rest = spaces.Dict({key: part for key, part in space.items() if key != "action_mask"})
            plain = {key: part for key, part in x.items() if key != "action_mask"}
        flat = np.asarray(spaces.flatten(rest, plain))
        expected = flat if one.spec.packed else flat.astype(float)
        np.testing.assert_array_equal(one.row(0, seen), expected)
        if space != spaces.Discrete(1):
            np.testing.assert_array_equal(one.row(0, expected), expected)


def everything(space: Any) -> list[Any]:
    """All actions, the last choice varying fastest."""
    if isinstance(space, spaces.Discrete):
        return list(range(int(space.start), int(space.start + space.n)))
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        several = isinstance(space, spaces.MultiDiscrete)
        sizes = space.nvec if several else np.full(space.shape, 2)
        starts = space.start if several else np.zeros(space.shape, int)
        ranges = [range(start, start + n) for start, n in zip(starts.flat, sizes.flat, strict=True)]
        return [np.array(row, space.dtype).reshape(space.shape) for row in itertools.product(*ranges)]
    if isinstance(space, spaces.Dict):
        rows = itertools.product(*map(everything, space.spaces.values()))
        return [dict(zip(space.spaces, row, strict=True)) for row in rows]
    return list(itertools.product(*map(everything, space.spaces)))


@pytest.mark.parametrize("acts", CHOICES, ids=str)
def test_every_index_is_an_action(acts: list[Any]) -> None:
    one = converter([spaces.Box(-1.0, 1.0, (2,))] * len(acts), acts)
    for i, space in enumerate(acts):
        for index, expected in enumerate(everything(space)):
            action = one.action(i, np.int32(index))
            assert space.contains(action) and type(action) is type(expected)
            jax.tree.map(np.testing.assert_array_equal, action, expected)


@pytest.mark.parametrize("acts", BOXES, ids=str)
def test_numbers_reach_the_bounds_of_a_box(acts: list[Any]) -> None:
    """Where all have one pair of bounds, numbers are the actions; else they lie in [-1, 1] and are mapped."""
    one, team = converter([spaces.Box(-1.0, 1.0, (2,))] * len(acts), acts), actions(acts, "x")[0]
    same = len({(low, high) for space in acts for low, high in zip(space.low.flat, space.high.flat, strict=True)}) == 1
    assert isinstance(team, Box) and ((team.low, team.high) != (-1.0, 1.0)) == same
    for i, space in enumerate(acts):
        for share in (0.0, 0.25, 1.0):
            row = np.full(team.dim, team.low + share * (team.high - team.low), np.float32)
            action = one.action(i, row)
            assert space.contains(action)
            expected = space.low + share * (space.high.astype(float) - space.low)
            np.testing.assert_allclose(action, np.rint(expected) if space.dtype.kind == "i" else expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("mask", "allowed"),
    [
        ([1, 0, 0, 1, 1, 0], [0, 3, 4]),  # one entry for each of 3 × 2 combinations
        ([1, 0, 1, 0, 1], [1, 5]),  # or one for each choice: 3, then 2
        (([1, 0, 1], [0, 1]), [1, 5]),
        ([0] * 6, [0]),
    ],
)
def test_masks_of_several_choices(mask: Any, allowed: list[int]) -> None:
    one = converter([spaces.Box(-1.0, 1.0, (2,))], [spaces.MultiDiscrete([3, 2])])
    if isinstance(mask, tuple):
        mask = tuple(np.array(part, np.int8) for part in mask)
    legal = one.legal(0, np.zeros(2), {"action_mask": mask})
    assert legal is not None and np.flatnonzero(legal).tolist() == allowed


def example(name: str) -> Any:
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def meeting() -> Any:
    return example("own_parallel").Meeting(num_scouts=3)


def spread() -> Any:
    return importlib.import_module("mpe2.simple_spread_v3").parallel_env(max_cycles=4)


@pytest.mark.parametrize("make", [meeting, spread])
def test_a_team_is_shown_what_it_was_trained_on(make: Any) -> None:
    """The adapter's game and the plain environment side by side: rows, masks and who is alive, in random play."""
    env: Any = registry.make(functools.partial(make))
    game, plain = env.make(), make()
    spec = game.spec
    one, own = Converter(spec), own_actions(spec)
    rng, out, dead = np.random.default_rng(5), HostTimestep._make(blank(spec)), 0
    for seed in range(6):
        refresh(out, own)
        game.reset(seed, out)
        observations, infos = plain.reset(seed=seed)
        while not out.last:
            seen = one.read(observations, infos, None, plain.agents, None)
            check(spec, seen, out)
            dead += (~out.alive).sum()
            action = np.array([rng.integers(dim) for dim in spec.action_dims], np.int32)
            refresh(out, own)
            game.step(action, out)
            observations, _, _, _, infos = plain.step(
                {name: one.action(i, action[i]) for i, name in seen.names.items()}
            )
        assert not plain.agents
    assert (dead > 0) == (make is meeting)


def check(spec: Any, seen: Any, out: HostTimestep) -> None:
    np.testing.assert_array_equal(seen.alive, out.alive)
    for i, (row, legal) in enumerate(zip(seen.rows, seen.legal, strict=True)):
        width = spec.obs_dims[i]
        np.testing.assert_array_equal(np.zeros(width) if row is None else row.astype(np.float32), out.obs[i, :width])
        mask = np.ones(spec.action_dims[i], bool) if legal is None else legal
        np.testing.assert_array_equal(mask, out.legal[i, : spec.action_dims[i]])


def test_a_single_agents_masks_may_be_a_dict_as_its_actions_are() -> None:
    one = converter(
        [spaces.Box(-1.0, 1.0, (2,))], [spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Discrete(3)})], "one"
    )
    mask = {"a": np.array([1, 0, 1]), "b": np.array([0, 1])}
    for given in (mask, {"agent_0": mask}, np.array([0, 1, 0, 0, 0, 1])):
        (legal,) = one.read(np.zeros(2), None, given, None, None).legal
        assert legal is not None and legal.tolist() == [False, True, False, False, False, True]
    with pytest.raises(InputError, match="There is no agent 'agent_1'"):
        one.read(np.zeros(2), None, {"agent_1": mask}, None, None)


def test_a_single_agents_array_of_both_readings_is_refused_as_in_training() -> None:
    one = converter([spaces.Box(-1.0, 1.0, (2,))], [spaces.MultiDiscrete([2, 2])], "one")
    with pytest.raises(InputError, match="tuple"):
        one.read(np.zeros(2), None, np.array([1, 1, 1, 0]), None, None)
    for given in (([1, 1], [1, 0]), (np.array([1, 0, 1, 0]),)):
        (legal,) = one.read(np.zeros(2), None, given, None, None).legal
        assert legal is not None and legal.tolist() == [True, False, True, False]


def test_turns_are_shown_as_they_were_trained_on() -> None:
    env: Any = registry.make(f"pettingzoo:{TICTACTOE}")
    game = env.make()
    plain = importlib.import_module(TICTACTOE).env()
    spec = game.spec
    one, own = Converter(spec), own_actions(spec)
    rng, out = np.random.default_rng(2), HostTimestep._make(blank(spec))
    for seed in range(4):
        refresh(out, own)
        game.reset(seed, out)
        plain.reset(seed=seed)
        while not out.last:
            agent = plain.agent_selection
            seen = one.read({name: plain.observe(name) for name in plain.agents}, plain.infos, None, None, agent)
            check(spec, seen, out)
            assert list(seen.names.values()) == [agent]
            mover, last = spec.agents.index(agent), plain.last()[0]
            np.testing.assert_array_equal(one.row(mover, last), seen.rows[mover])
            np.testing.assert_array_equal(one.legal(mover, last), seen.legal[mover])
            action = np.array([rng.choice(np.flatnonzero(legal)) for legal in out.legal], np.int32)
            refresh(out, own)
            game.step(action, out)
            plain.step(one.action(mover, action[mover]))
        assert any(plain.terminations.values())


def test_agents_that_are_not_on_turn_have_one_legal_action() -> None:
    """As in training, whatever the environment says of its actions."""
    one = converter([spaces.Box(-1.0, 1.0, (2,))] * 2, [spaces.Discrete(3)] * 2, "turns")
    rows, masks = {"agent_0": np.zeros(2), "agent_1": np.ones(2)}, {"agent_0": [1, 1, 1], "agent_1": [0, 1, 1]}
    legal, names = one.read(rows, None, masks, None, "agent_1")[1::2]
    np.testing.assert_array_equal(legal, [[True, False, False], [False, True, True]])
    assert names == {1: "agent_1"}
    with pytest.raises(InputError, match="It is the turn of 'agent_1', whose observation is missing"):
        one.read({"agent_0": np.zeros(2)}, None, None, None, "agent_1")


def policies(name: Any, wrapping: Wrapping | None = None, **flags: Any) -> tuple[Any, Any, Policies]:
    env = wrap(registry.make(name), wrapping or Wrapping())
    config = override(mappo.Config(), {"hidden": (4,), "output_gain": 5.0, "chunk_length": 1} | flags)
    algorithm = mappo.make(env.spec, config, Scale(1, 1, 1))
    learner = jax.jit(algorithm.init)(jax.random.key(1))
    return env, (algorithm, learner), Policies(env.spec, algorithm, learner.policy, wrapping=wrapping)


@pytest.mark.parametrize("recurrent", [None, 3])
def test_a_team_takes_turns_as_in_training(recurrent: int | None) -> None:
    """The recurrent team also reads its last actions; those at others' moves are index 0."""
    wrapping = Wrapping(last_action=recurrent is not None)
    env, (algorithm, learner), team = policies(f"pettingzoo:{TICTACTOE}", wrapping, recurrent=recurrent)
    alone = {name: team.agent(name) for name in team.agents}
    game, plain = env.make(), importlib.import_module(TICTACTOE).env()
    out, own, act = HostTimestep._make(blank(env.spec)), own_actions(env.spec), jax.jit(algorithm.act, static_argnums=4)
    refresh(out, own)
    game.reset(0, out)
    out.first[...] = True
    plain.reset(seed=0)
    carry, moves, seen = algorithm.initial_carry(1), [], {}
    while not out.last:
        agent = plain.agent_selection
        batch = Step._make(np.array(leaf)[None] for leaf in out[: len(Step._fields)])
        carry, action, _ = act(learner, carry, batch, jax.random.key(0), True)
        seen = {name: plain.observe(name) for name in reversed(plain.agents)}
        chosen = team.act(seen, turn=agent)
        mover = env.spec.agents.index(agent)
        assert chosen == {agent: int(action[0, mover])}
        for name, one in alone.items():
            everything = None if name == agent else np.ones(9, bool)
            assert one.act(seen[name], everything, turn=name == agent) == chosen.get(name, 0)
        if not recurrent:
            assert team.agent(agent).act(plain.last()[0]) == chosen[agent]
        moves.append(chosen)
        refresh(out, own)
        game.step(np.asarray(action[0]), out)
        plain.step(chosen[agent])
    assert len(moves) >= 5
    with pytest.raises(InputError, match="pass turn, for example"):
        team.act(seen)


class Rowers:
    """Two take turns, with two numbers each."""

    metadata = {"is_parallelizable": False}  # noqa: RUF012
    possible_agents = ("left", "right")
    agent_iter = None

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 9.0, (2,))

    def action_space(self, agent: str) -> Any:
        return spaces.Box(-1.0, 1.0, (2,))

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.time, self.agent_selection = list(self.possible_agents), 0, "left"
        self.terminations = self.truncations = dict.fromkeys(self.agents, False)
        self._cumulative_rewards, self.infos = dict.fromkeys(self.agents, 0.0), {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> np.ndarray:
        return np.array([self.time, agent == "left"], np.float32)

    def step(self, action: np.ndarray) -> None:
        self.time += 1
        self.agent_selection = self.possible_agents[self.time % 2]

    def close(self) -> None: ...


def test_agents_that_wait_choose_all_numbers_of_a_box_as_in_training() -> None:
    """Nothing of them is executed, but agents read their last actions."""
    env, (algorithm, learner), team = policies(Rowers, Wrapping(last_action=True))
    alone = [team.agent(name) for name in team.agents]
    game, plain = env.make(), Rowers()
    out, own, act = HostTimestep._make(blank(env.spec)), own_actions(env.spec), jax.jit(algorithm.act, static_argnums=4)
    refresh(out, own)
    game.reset(0, out)
    out.first[...] = True
    plain.reset()
    for _ in range(3):
        batch = Step._make(np.array(leaf)[None] for leaf in out[: len(Step._fields)])
        sent = np.clip(act(learner, algorithm.initial_carry(1), batch, jax.random.key(0), True)[1][0], -1.0, 1.0)
        mover, seen = plain.agent_selection, {name: plain.observe(name) for name in plain.agents}
        chosen = team.act(seen, turn=mover)
        np.testing.assert_allclose(chosen[mover], sent[team.agents.index(mover)], rtol=1e-5)
        each = [one.act(seen[one.name], turn=one.name == mover) for one in alone]
        np.testing.assert_allclose(each, sent, rtol=1e-5)
        refresh(out, own)
        game.step(sent, out)
        plain.step(chosen[mover])


def test_agents_that_are_gone_get_no_action() -> None:
    _, _, team = policies(functools.partial(meeting))
    plain = meeting()
    observations, infos = plain.reset(seed=0)
    everybody = team.act(observations, infos=infos)
    assert list(everybody) == plain.agents and all(plain.action_space(a).contains(x) for a, x in everybody.items())
    team.reset()
    shuffled = dict(reversed(observations.items()))
    assert team.act(shuffled) == everybody
    del shuffled["scout_1"]
    assert team.act(shuffled).keys() == shuffled.keys()
    assert team.act(observations, alive=["carrier"]).keys() == {"carrier"}
    assert team.act(observations, alive={"carrier": True, "scout_0": False}).keys() == {"carrier"}
    with pytest.raises(InputError, match="There is no agent 'nobody'; the agents are scout_0"):
        team.act(observations | {"nobody": np.zeros(3)})
    with pytest.raises(InputError, match="carrier's observation has width 1, not 3"):
        team.act(observations | {"carrier": np.zeros(3)})
    with pytest.raises(InputError, match="carrier's observation is a str, not numbers"):
        team.act(observations | {"carrier": "here"})
    with pytest.raises(InputError, match=r"^carrier's observation holds NaN\.$"):
        team.act(observations | {"carrier": observations["carrier"] * np.nan})
    alone = team.agent("carrier").act(observations["carrier"], info={"action_mask": np.array([0, 1, 0], np.int8)})
    assert alone == 1
    rows = team.act([observations[name] for name in team.agents])
    assert isinstance(rows, np.ndarray), "rows in, rows out"


class Drawers(gymnasium.Env):
    """A team of one with a dict of observations and several choices."""

    observation_space = spaces.Dict({"where": spaces.Discrete(3, start=1), "what": spaces.Box(-1.0, 1.0, (2, 2))})
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 0.0, False, True, {}


def test_one_agent_of_gymnasium_takes_and_gives_its_own() -> None:
    _, _, team = policies(Drawers, agent_id=False)
    env = Drawers()
    seen, _ = env.reset(seed=1)
    action = team.act(seen)
    env.step(action)
    flat = spaces.flatten(env.observation_space, seen)
    team.reset()
    index = int(team.act(np.asarray(flat)[None])[0])
    np.testing.assert_array_equal(action, np.unravel_index(index, (2, 3)))
    np.testing.assert_array_equal(team.agent(0).act(seen), action)
    for other in range(6):  # rows do not say which actions are legal, but infos may
        assert team.act(np.asarray(flat)[None], infos={"action_mask": np.arange(6) == other}).tolist() == [other]
    with pytest.raises(InputError, match="agent_0's observation lacks 'what'"):
        team.act({"where": 1})


class Lifters(gymnasium.Env):
    """A team whose observations are a tuple, one of them with a mask."""

    observation_space = spaces.Tuple(
        [spaces.Dict({"see": spaces.Box(-1.0, 1.0, (2,)), "action_mask": spaces.MultiBinary(3)}), spaces.Discrete(4)]
    )
    action_space = spaces.Tuple([spaces.Discrete(3, start=5), spaces.Discrete(2)])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return ({"see": np.ones(2, np.float32), "action_mask": np.array([0, 0, 1], np.int8)}, 3), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return self.reset()[0], [0.0, 0.0], False, True, {}


def test_a_team_in_a_tuple_gets_a_tuple() -> None:
    _, _, team = policies(Lifters)
    env = Lifters()
    seen, info = env.reset()
    actions = team.act(seen, infos=info)
    env.step(actions)
    assert isinstance(actions, tuple) and actions[0] == 7
    assert team.act(seen, {"agent_0": [0, 1, 0]})[0] == 6 and team.act(seen, [[1, 0, 0], [1, 0]]) == (5, 0)
    rows = team.act(np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]), np.array([[0, 0, 1], [1, 1, 1]]))
    assert rows.tolist() == [2, actions[1]]
    assert team.agent(1).act(3) == actions[1]
    for wrong, said in (((*seen, 1), "2 observations are needed"), ((seen[0], 4), "agent_1's observation 4 lies out")):
        with pytest.raises(InputError, match=said):
            team.act(wrong)
    with pytest.raises(InputError, match="agent_1's action_mask has 3 entries for 2 actions"):
        team.act(seen, {"agent_1": [1, 1, 1]})


PAIR: Any = [
    ["dict", [["a", ["box", [2, 2]]], ["b", ["one_hot", [3], [1]]]]],
    ["indices", [2], [2, 2], [0, 0], "int64"],
]
DAMAGED: list[Any] = [
    None,
    [],
    {},
    {"kind": "parallel"},
    {"kind": ["parallel"], "agents": [PAIR]},
    {"kind": "both", "agents": [PAIR]},
    {"kind": "parallel", "agents": [PAIR], "mask": "m"},
    {"kind": "parallel", "agents": PAIR},
    {"kind": "parallel", "agents": [[*PAIR, PAIR]]},
    *(
        {"kind": "parallel", "agents": [pair]}
        for pair in [
            [["box", [-1]], PAIR[1]],
            [["box", [True]], PAIR[1]],
            [["box", 4], PAIR[1]],
            [["box", [7], None], PAIR[1]],
            [["one_hot", [3, 4], [0]], PAIR[1]],
            [["one_hot", [0], [0]], PAIR[1]],
            [["dict", [[1, ["box", [7]]]]], PAIR[1]],
            [["dict", {"a": ["box", [7]]}], PAIR[1]],
            [["tuple", [["ball", [7]]]], PAIR[1]],
            [["index", 7, 0], PAIR[1]],
            [PAIR[0], ["index", 0, 0]],
            [PAIR[0], ["index", 4, 0.5]],
            [PAIR[0], ["indices", [3], [2, 2], [0, 0], "int64"]],
            [PAIR[0], ["indices", [2], [2, 2], [0, 0], "object"]],
            [PAIR[0], ["indices", [2], [2, 2], [0, 0], ["int64"]]],
            [PAIR[0], ["tuple", [["box", [4], None, None, "float32"]]]],
            [PAIR[0], ["box", [4], None, [1, 1, 1, 1], "float32"]],
            [PAIR[0], ["box", [2], [0, 0], [1, float("nan")], "float32"]],
            [PAIR[0], PAIR[0]],
        ]
    ),
]


def described(said: str) -> Any:
    return replace(converter([spaces.Box(0, 1, (7,))], [spaces.Discrete(4)]).spec, interface=said)


def test_a_sound_description_is_taken() -> None:
    """From which each damaged one below differs in one place."""
    spec = described(json.dumps({"kind": "parallel", "agents": [PAIR]}))
    check_spec(spec)
    assert Converter(spec).action(0, 1).tolist() == [0, 1]


@pytest.mark.parametrize("said", ["nonsense", "[" * 10**5, *map(json.dumps, DAMAGED)], ids=lambda text: text[:70])
def test_a_damaged_description_is_one_sentence(said: str) -> None:
    with pytest.raises(InputError, match=r"^spec\.interface is not the description of an environment's interface\.$"):
        check_spec(described(said))


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([], "other actions"),
        ([PAIR, PAIR], "other actions"),
        ([[PAIR[0], ["index", 5, 0]]], "other actions"),
        ([[PAIR[0], ["box", [4], None, None, "float32"]]], "other actions"),
        ([[["box", [6]], PAIR[1]]], "other spaces"),
    ],
)
def test_a_description_of_other_spaces_is_refused(pairs: Any, said: str) -> None:
    spec = described(json.dumps({"kind": "parallel", "agents": pairs}))
    with pytest.raises(InputError, match=f"spec.interface describes {said} than"):
        check_spec(spec)
        Converter(spec)


def test_a_space_without_a_description_leaves_the_interface_empty() -> None:
    """Such a run is deployed by rows."""
    keys: Any = {("a", 1): spaces.Discrete(2)}
    acts = spaces.Dict(keys)
    assert interface("one", [spaces.Discrete(2)], actions([acts], "x")[2]) == ""
    text, either = spaces.Text(5), spaces.OneOf([spaces.Discrete(2), spaces.Box(0.0, 1.0, (2,))])
    for space in (text, either, spaces.Tuple([spaces.Discrete(2), spaces.Dict({"said": text})])):
        assert interface("one", [space], [["index", 2, 0]]) == ""
        assert Observation(space, "x").parts


@pytest.mark.parametrize("module", ["mpe2.simple_spread_v3", TICTACTOE])
def test_the_example_plays_a_trained_team(module: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    sizes: dict[str, Any] = {"num_envs": 2, "rollout_length": 4, "steps": 8, "hidden": (4,), "minibatches": 1}
    sizes |= {"epochs": 1, "num_workers": 0, "eval_episodes": 0, "tensorboard": False, "progress": False}
    run = shoal.train("ippo", f"pettingzoo:{module}", folder=tmp_path / "run", **sizes)
    example("deploy_pettingzoo").main(str(run.folder), module)
    said = capsys.readouterr().out
    assert said.startswith(f"Policies(ippo in pettingzoo:{module}, seed 0;") and "rewards sum to" in said

    if module == TICTACTOE:
        return
    # A spec without an interface: its policies take names and flat rows.
    path = run.folder / "run.json"
    held = json.loads(path.read_text(encoding="utf-8"))
    flat = {name: np.ones(width) for name, width in zip(run.spec.agents, run.spec.obs_dims, strict=True)}
    new = run.policies().act(flat, turn=run.spec.agents[0])
    held["config"]["spec"]["interface"] = ""
    path.write_text(json.dumps(held), encoding="utf-8")
    before = shoal.open_run(run.folder)
    old = before.policies().act(flat)
    assert new.items() <= old.items() and old.keys() == flat.keys()
    assert before.spec == replace(run.spec, interface="") and before.env.spec == run.spec
    assert shoal.resume(run.folder, steps=16, progress=False).policies().spec.interface == run.spec.interface


def test_numbers_of_a_flat_observation_have_the_names_of_their_keys() -> None:
    food = spaces.Dict({"near": spaces.Box(0.0, 99.0, ()), "kind": spaces.Discrete(3, start=1)})
    both = spaces.Tuple([spaces.Box(0.0, 99.0, (1,)), spaces.MultiDiscrete([2, 2])])
    space = spaces.Dict({"place": spaces.Box(0.0, 99.0, (2, 2)), "food": food, "both": both})
    seen = {"place": [[10, 11], [12, 13]], "food": {"near": 14, "kind": 2}, "both": ([15], [0, 1])}
    (form,) = parsed(interface("one", [space], [["index", 2, 0]])).observations
    assert dict(zip(feature_names(form), flat(form, seen, "it").tolist(), strict=True)) == {
        "place 0, 0": 10,
        "place 0, 1": 11,
        "place 1, 0": 12,
        "place 1, 1": 13,
        "food.near": 14,
        "food.kind = 1": 0,
        "food.kind = 2": 1,
        "food.kind = 3": 0,
        "both.0": 15,
        "both.1 0 = 0": 1,
        "both.1 0 = 1": 0,
        "both.1 1 = 0": 0,
        "both.1 1 = 1": 1,
    }
    (array,) = parsed(interface("one", [spaces.Box(0.0, 1.0, (4,))], [["index", 2, 0]])).observations
    assert feature_names(array) == []
