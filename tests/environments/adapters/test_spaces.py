"""Values at the edges of others' spaces and outside them: actions, observations, masks, and what is no environment."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces  # noqa: E402

from shoal.checking import check  # noqa: E402
from shoal.checking.play import random_action  # noqa: E402
from shoal.environments import registry  # noqa: E402
from shoal.environments.adapters.spaces import Observation, choice_form  # noqa: E402
from shoal.environments.interface import Converter, flat, joint_mask, parsed  # noqa: E402
from shoal.errors import InputError  # noqa: E402
from shoal.game import HostEnvironment, HostTimestep, blank, own_actions, refresh  # noqa: E402
from shoal.spec import Box  # noqa: E402

PAIR = ("a_0", "a_1")
MASKED = spaces.Dict(observation=spaces.Box(-9, 9, (2,)), action_mask=spaces.MultiBinary(2))


class Parallel:
    """Two agents of PettingZoo's interface, which see ``seen`` and say ``info``, and check their actions."""

    metadata = {"name": "parallel"}  # noqa: RUF012
    possible_agents = PAIR
    max_cycles = 3

    def __init__(self, act: Any = None, view: Any = None, seen: Any = None, info: Any = None):
        self.act, self.view = act or spaces.Discrete(2), view or spaces.Box(-9, 9, (2,))
        self.seen, self.info = np.zeros(2) if seen is None else seen, info or {}

    def observation_space(self, agent: str) -> Any:
        return self.view

    def action_space(self, agent: str) -> Any:
        return self.act

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.time, self.agents = 0, list(PAIR)
        return dict.fromkeys(PAIR, self.seen), dict.fromkeys(PAIR, self.info)

    def step(self, actions: Any) -> Any:
        assert all(self.act.contains(action) for action in actions.values()), actions
        self.time += 1
        over = dict.fromkeys(PAIR, self.time == 3)
        self.agents = [] if self.time == 3 else self.agents
        return (
            dict.fromkeys(PAIR, self.seen),
            dict.fromkeys(PAIR, 1.0),
            dict.fromkeys(PAIR, False),
            over,
            dict.fromkeys(PAIR, self.info),
        )

    def close(self) -> None:
        pass


class Solo(gymnasium.Env):
    """One agent, or two where ``several``; the rest as in :class:`Parallel`."""

    def __init__(self, act: Any = None, view: Any = None, seen: Any = None, several: bool = False):
        self.one, view = act or spaces.Discrete(2), view or spaces.Box(-9, 9, (2,))
        self.action_space: Any = spaces.Tuple([self.one] * 2) if several else self.one
        self.observation_space: Any = spaces.Tuple([view] * 2) if several else view
        seen = np.zeros(2) if seen is None else seen
        self.seen, self.reward = ([seen] * 2, [1.0] * 2) if several else (seen, 1.0)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.seen, {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        return self.seen, self.reward, False, False, {}


class SoloTeam(Solo):
    def __init__(self, **options: Any):
        super().__init__(**options, several=True)


def played(kind: Any, action: Any = None, **options: Any) -> HostTimestep:
    env = registry.make(kind, **options)
    assert isinstance(env, HostEnvironment)
    game, out, own = env.make(), blank(env.spec), own_actions(env.spec)
    refresh(out, own)
    game.reset(0, out)
    if action is not None:
        refresh(out, own)
        game.step(action, out)
    return out


@pytest.mark.parametrize(
    "act",
    [
        spaces.Box(-0.3, 0.3, (1,), np.float64),  # single precision rounds both outwards
        spaces.Box(-np.pi, np.pi, (1,), np.float64),
        spaces.Box(0, 2**31 - 1, (1,), np.int32),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [Parallel, Solo, SoloTeam])
def test_actions_at_the_bounds_lie_in_the_space(kind: Any, act: Any) -> None:
    spec = registry.make(kind, act=act).spec
    assert isinstance(spec.action, Box) and (spec.action.low, spec.action.high) == (act.low[0], act.high[0])
    for bound in (spec.action.low, spec.action.high):
        action = np.full((spec.num_agents, 1), bound, np.float32)  # as rollouts clip it
        played(kind, action, act=act)
        assert act.contains(Converter(spec).action(0, action[0]))


def test_random_play_reaches_the_bounds_of_actions() -> None:
    spec = registry.make(Solo, act=spaces.Box(-2.0, 1.0, (3,))).spec
    rng, step = np.random.default_rng(0), blank(spec)
    refresh(step, own_actions(spec))
    drawn = np.array([random_action(spec, step, rng) for _ in range(200)])
    assert drawn.min() == -2 and drawn.max() == 1
    assert all(0.05 < share < 0.15 for share in ((drawn == -2).mean(), (drawn == 1).mean()))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (spaces.Discrete(4), -1),
        (spaces.Discrete(4), 4),
        (spaces.Discrete(4), 1.5),
        (spaces.Discrete(4), None),
        (spaces.Discrete(4, start=2), np.int64(1)),
        (spaces.MultiDiscrete([3, 3]), np.array([3, 0])),
        (spaces.MultiDiscrete([3, 3]), np.array([0, 3])),
        (spaces.MultiDiscrete([3, 3]), np.array([0, -1])),
        (spaces.MultiDiscrete([3, 3]), np.array([0])),
    ],
)
def test_a_choice_outside_its_space_is_refused(space: Any, seen: Any, packed: bool) -> None:
    shown = np.asarray(seen).tolist()
    with pytest.raises(ValueError, match="which lies outside") as told:
        Observation(space, "x").reader(packed, "a_0's observation", set())(seen)
    assert str(told.value).startswith(f"a_0's observation is {shown}, which")
    with pytest.raises(ValueError, match=r"^a_0's observation\['of'\] is "):
        Observation(spaces.Dict(of=space), "x").reader(packed, "a_0's observation", set())({"of": seen})


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (spaces.Dict(a=spaces.Box(-9, 9, (2,), np.int64), b=spaces.Discrete(2)), {"a": np.array([0.7, -0.3]), "b": 1}),
        (spaces.Dict(a=spaces.Box(0, 100, (2,), np.uint8)), {"a": np.array([-50, 300])}),
        (spaces.Tuple([spaces.MultiBinary(2), spaces.Box(0, 1, (1,))]), ([0.5, 1], 0.25)),
        (spaces.Dict(a=spaces.Box(0, 9, (2, 2)), b=spaces.Dict(c=spaces.MultiDiscrete([2, 3], start=[1, 0]))), None),
    ],
)
def test_parts_of_observations_are_not_cast_to_the_types_of_their_spaces(space: Any, seen: Any) -> None:
    """Training reads the numbers that deployed policies read."""
    seen = space.sample() if seen is None else seen
    form = parsed(registry.make(Solo, view=space, seen=seen).spec.interface).observations[0]
    row = np.asarray(played(Solo, view=space, seen=seen).obs[0])
    np.testing.assert_array_equal(row, flat(form, seen, "x").astype(np.float32))
    bytes_ = Observation(space, "x").reader(True, "x", set())(seen)
    np.testing.assert_array_equal(bytes_.view(np.float32), row)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"a": np.zeros(3), "b": np.zeros(2)}, r"seen\['a'\] has 3 numbers, but its space has 2"),
        ({"a": np.zeros(2)}, "seen lacks 'b'"),
        ({"a": np.zeros(2), "b": np.array(["1", "2", "3"])}, r"seen\['b'\] is an array of <U1"),
        (np.zeros(5), "seen lacks 'a'"),
        ((np.zeros(2), np.zeros(3), 0), "seen has 3 parts, but its space has 2"),
        ((np.zeros(2),), "seen lacks 1"),
    ],
)
def test_wrong_parts_of_observations_are_named(seen: Any, words: str, packed: bool) -> None:
    parts: Any = {"a": spaces.Box(-9, 9, (2,)), "b": spaces.Box(-9, 9, (3,))}
    space = spaces.Tuple(parts.values()) if isinstance(seen, tuple) else spaces.Dict(parts)
    with pytest.raises(ValueError, match=words):
        Observation(space, "x").reader(packed, "seen", set())(seen)


@pytest.mark.parametrize("kind", [Parallel, Solo, SoloTeam])
@pytest.mark.parametrize("lost", ["observation", "action_mask"])
def test_an_observation_without_its_mask_or_its_numbers_is_refused(kind: Any, lost: str) -> None:
    seen = {"observation": np.zeros(2), "action_mask": np.array([1, 0], np.int8)}
    np.testing.assert_array_equal(played(kind, view=MASKED, seen=seen).legal[0], [True, False])
    del seen[lost]
    with pytest.raises(ValueError, match=f"observation lacks '{lost}'"):
        played(kind, view=MASKED, seen=seen)


SQUARE = spaces.MultiDiscrete([2, 2])


@pytest.mark.parametrize("mask", [[1, 1, 1, 0], np.array([1, 1, 1, 0]), np.array([[1, 1], [1, 0]])])
@pytest.mark.parametrize("space", [SQUARE, spaces.MultiBinary(2), spaces.Tuple([spaces.Discrete(2)] * 2)])
def test_a_mask_that_could_be_of_joint_actions_or_of_each_choice_is_refused(space: Any, mask: Any) -> None:
    form = choice_form(space)
    assert form is not None
    with pytest.raises(InputError, match="give a tuple with a mask for each choice, or with the mask of joint actions"):
        joint_mask(form, mask)
    assert joint_mask(form, ([1, 1], [1, 0])).tolist() == [True, False, True, False]
    assert joint_mask(form, (np.ravel(mask),)).tolist() == [True, True, True, False]


def test_an_ambiguous_mask_is_one_sentence_of_the_check_and_of_deployed_policies() -> None:
    mask = np.array([1, 1, 1, 0], np.int8)
    report = check(Parallel, env={"act": SQUARE, "info": {"action_mask": mask}}, episodes=1, isolate=False)
    (error,) = [finding for finding in report.findings if finding.level == "error"]
    assert "An action_mask of 4 entries could be" in error.sentence and not error.detail
    one = Converter(registry.make(Parallel, act=SQUARE).spec)
    with pytest.raises(InputError, match="An action_mask of 4 entries could be"):
        one.legal(0, np.zeros(2), {"action_mask": mask})
    given = one.legal(0, np.zeros(2), mask=mask)  # which is of the agent's joint actions
    assert given is not None and given.tolist() == [True, True, True, False]


@pytest.mark.parametrize("mask", [[0.0, -np.inf, 0.0], [0, -10, 0], [np.nan, 1.0, 1.0]])
def test_a_mask_that_is_added_to_logits_is_refused(mask: Any) -> None:
    """It would be inverted, since its legal actions have a 0."""
    report = check(Parallel, env={"info": {"action_mask": np.array(mask)}}, episodes=1, isolate=False)
    (error,) = [finding for finding in report.findings if finding.level == "error"]
    assert "An action_mask is 1 for legal actions and 0 for others, and one here has" in error.sentence
    with pytest.raises(InputError, match="An action_mask is 1 for legal"):
        joint_mask(["indices", [2], [3, 2], [0, 0], "int64"], (mask, None))


def test_an_entry_of_several_bits_outside_0_and_1_is_reported() -> None:
    report = check(
        Solo, env={"view": spaces.MultiBinary(2), "seen": np.array([0, 2])}, episodes=1, steps=3, isolate=False
    )
    assert any("outside [0, 1], the bounds of its observation space" in one.sentence for one in report.findings)


def vector() -> Any:
    return gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")


def test_a_vector_of_environments_is_refused() -> None:
    with pytest.raises(InputError, match="is a vector of 3 environments; give one of them"):
        registry.make(vector)


class Helpful(Parallel):
    """PettingZoo's interface, with methods that have the names of SMAC's."""

    def get_obs(self) -> Any:
        return dict.fromkeys(PAIR, self.seen)

    get_state = get_avail_actions = get_obs


def test_methods_with_names_of_smac_do_not_hide_pettingzoos_interface() -> None:
    assert registry.make(Helpful).spec.agents == PAIR


class Stateful(Parallel):
    def __init__(self, error: type[Exception]):
        super().__init__()
        self.error = error

    def state(self) -> Any:
        raise self.error("no map yet")


@pytest.mark.parametrize("error", [KeyError, AssertionError, ZeroDivisionError])
def test_a_state_that_fails_after_reset_is_one_sentence(error: type[Exception]) -> None:
    with pytest.raises(InputError, match=r"Stateful: state\(\) must return the state after reset.*no map yet"):
        registry.make(Stateful, error=error)
    assert registry.make(Stateful, error=NotImplementedError).spec.state_dim == 4  # all observations
