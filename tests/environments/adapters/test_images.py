"""Environments of Gymnasium and PettingZoo whose observations are images, or have them beside numbers."""

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from shoal.environments.adapters import gymnasium as of_gymnasium
from shoal.environments.adapters import pettingzoo
from shoal.environments.images import arranged_image, arrangement
from shoal.environments.interface import Converter
from shoal.environments.spec_rules import check_spec
from shoal.errors import InputError
from shoal.game import Game, HostTimestep, blank, own_actions, refresh
from shoal.spec import Part

RGB = spaces.Box(0, 255, (6, 5, 3), np.uint8)
MIXED = spaces.Dict({"view": RGB, "speed": spaces.Box(-9.0, 9.0, (2,)), "gear": spaces.Discrete(3, start=1)})


class Solo(gymnasium.Env):
    """Observes random elements of a space."""

    def __init__(self, space: Any):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def _seen(self) -> Any:
        self.last = self.observation_space.sample()
        return self.last

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.observation_space.seed(seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        return self._seen(), 1.0, False, False, {}


class Pair:
    """Two agents, one of which observes numbers only, for three steps."""

    metadata = {"name": "pair"}  # noqa: RUF012
    possible_agents: tuple[str, ...] = ("camera_0", "radio_0")

    def __init__(self, views: tuple[Any, Any], state: Any = None):
        self.views, self.global_state = dict(zip(self.possible_agents, views, strict=True)), state
        self.calls = 0

    def observation_space(self, agent: str) -> Any:
        return self.views[agent]

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def _seen(self) -> Any:
        self.last = {agent: self.views[agent].sample() for agent in self.agents}
        return self.last

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents, self.time = list(self.possible_agents), 0
        for space in self.views.values():
            space.seed(seed)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.time += 1
        seen, here, over = self._seen(), self.agents, self.time == 3
        flags = dict.fromkeys(here, False)
        self.agents = [] if over else here
        return seen, dict.fromkeys(here, 1.0), flags, dict.fromkeys(here, over), {agent: {} for agent in here}

    def state(self) -> Any:
        if self.global_state is None:
            raise NotImplementedError
        return self.global_state

    def close(self) -> None:
        pass


def started(game: Game, seed: int = 3) -> HostTimestep:
    check_spec(game.spec)
    out = blank(game.spec)
    refresh(out, own_actions(game.spec))
    game.reset(seed, out)
    return out


def numbers(row: np.ndarray) -> np.ndarray:
    return np.frombuffer(row.tobytes(), "<f4")


def test_an_image_is_stored_as_bytes() -> None:
    env = Solo(RGB)
    game = of_gymnasium.wrap(env, "solo", time_limit=4)
    assert game.spec.parts == ((Part((6, 5, 3), "uint8"),),) and game.spec.packed
    assert game.spec.obs_dims == (90,) and game.spec.state_dim == 0 and game.spec.novel is None
    out = started(game)
    assert out.obs.dtype == np.uint8
    np.testing.assert_array_equal(out.obs[0].reshape(6, 5, 3), env.last)
    refresh(out, own_actions(game.spec))
    game.step(np.zeros(1, np.int32), out)
    np.testing.assert_array_equal(out.obs[0].reshape(6, 5, 3), env.last)


def test_images_beside_numbers() -> None:
    """A dict's parts have its keys as names; its numbers take four bytes each."""
    env = Solo(MIXED)
    game = of_gymnasium.wrap(env, "solo", time_limit=4)
    image, speed, gear = Part((6, 5, 3), "uint8", "view"), Part((2,), name="speed"), Part((3,), name="gear")
    assert game.spec.parts is not None
    order = {part.name: part for part in game.spec.parts[0]}
    assert order == {"view": image, "speed": speed, "gear": gear}
    assert [*order] == [*spaces.Dict(MIXED.spaces).spaces]
    row, at = started(game).obs[0], 0
    wanted = {"view": env.last["view"], "speed": env.last["speed"], "gear": np.eye(3)[env.last["gear"] - 1]}
    for name, part in order.items():
        size = part.size * (1 if name == "view" else 4)
        found = row[at : at + size] if name == "view" else numbers(row[at : at + size])
        np.testing.assert_array_equal(found, np.ravel(wanted[name]))
        at += size
    assert at == len(row)


@pytest.mark.parametrize(
    ("space", "part", "arrange"),
    [
        (spaces.Box(0, 255, (6, 5), np.uint8), (6, 5, 1), lambda x: x[..., None]),
        (spaces.Box(0, 255, (3, 8, 9), np.uint8), (8, 9, 3), lambda x: np.moveaxis(x, 0, -1)),
        (spaces.Box(0, 255, (3, 4, 8), np.uint8), (3, 4, 8), lambda x: x),
        (spaces.Box(0, 255, (2, 8, 9, 3), np.uint8), (8, 9, 6), lambda x: np.concatenate([*x], axis=-1)),
        (spaces.Box(0, 255, (2, 1, 8, 9), np.uint8), (8, 9, 2), lambda x: np.moveaxis(x[:, 0], 0, -1)),
    ],
    ids=["flat", "first", "last", "frames", "grey frames"],
)
def test_axes_become_height_width_and_channels(space: Any, part: Any, arrange: Any) -> None:
    env = Solo(space)
    game = of_gymnasium.wrap(env, "solo", time_limit=4)
    assert game.spec.parts == ((Part(part, "uint8"),),)
    out = started(game)
    np.testing.assert_array_equal(out.obs[0].reshape(part), arrange(env.last))
    converter = Converter(game.spec)
    np.testing.assert_array_equal(converter.row(0, env.last), out.obs[0])


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (30,), np.uint8),
        spaces.Box(0, 1, (3, 4), np.uint8),
        spaces.Box(0, 255, (3, 4), np.int32),
        spaces.Box(0.0, 1.0, (7, 7, 3)),
    ],
    ids=str,
)
def test_other_arrays_are_numbers_with_a_shape(space: Any) -> None:
    env = Solo(space)
    game = of_gymnasium.wrap(env, "solo", time_limit=4)
    assert game.spec.parts == (None if len(space.shape) == 1 else ((Part(space.shape),),))
    out = started(game)
    assert out.obs.dtype == np.float32 and game.spec.state_dim == space.low.size and game.spec.novel == ()
    np.testing.assert_array_equal(out.obs[0], np.ravel(env.last).astype(np.float32))
    np.testing.assert_array_equal(out.state, out.obs[0])


def test_a_team_of_which_one_agent_observes_images() -> None:
    env = Pair((RGB, spaces.Box(-1.0, 1.0, (3,))))
    game = pettingzoo.wrap(env, "pair")
    assert game.spec.parts == ((Part((6, 5, 3), "uint8"),), (Part((3,)),))
    assert game.spec.obs_dims == (90, 12) and game.spec.state_dim == 0
    out = started(game)
    np.testing.assert_array_equal(out.obs[0].reshape(6, 5, 3), env.last["camera_0"])
    np.testing.assert_array_equal(numbers(out.obs[1, :12]), env.last["radio_0"])
    assert not out.obs[1, 12:].any()


def test_a_state_of_numbers_is_kept_and_a_picture_is_not() -> None:
    views = RGB, RGB
    kept = pettingzoo.wrap(Pair(views, np.arange(4)), "pair")
    assert kept.spec.state_dim == 4 and kept.spec.novel is None
    np.testing.assert_array_equal(started(kept).state, np.arange(4))
    assert pettingzoo.wrap(Pair(views, np.zeros((9, 9, 3), np.uint8)), "pair").spec.state_dim == 0
    plain = spaces.Box(0.0, 1.0, (2,)), spaces.Box(0.0, 1.0, (2,))
    assert pettingzoo.wrap(Pair(plain, np.zeros((9, 9, 3), np.uint8)), "pair").spec.state_dim == 4


@pytest.mark.parametrize(
    "made",
    [functools.partial(Solo, MIXED), functools.partial(Pair, (MIXED, spaces.Box(-1.0, 1.0, (3,))))],
    ids=["gymnasium", "pettingzoo"],
)
def test_deployed_policies_read_the_same_rows(made: Any) -> None:
    env = made()
    wrap = pettingzoo.wrap if hasattr(env, "possible_agents") else of_gymnasium.wrap
    game = wrap(env, "x", time_limit=9)
    out, converter = started(game), Converter(game.spec)
    read = converter.read(env.last, None, None, None, None)
    for row, wanted, width in zip(read.rows, out.obs, game.spec.obs_dims, strict=True):
        assert row is not None and row.dtype == np.uint8
        np.testing.assert_array_equal(row, wanted[:width])
    np.testing.assert_array_equal(converter.row(0, out.obs[0, : game.spec.obs_dims[0]]), read.rows[0])


def test_what_is_no_image_is_refused() -> None:
    converter = Converter(of_gymnasium.wrap(Solo(RGB), "solo", time_limit=4).spec)
    whole = np.full((6, 5, 3), 200, np.int64)
    np.testing.assert_array_equal(converter.row(0, whole), whole.ravel())
    for wrong in (whole / 255, whole + 100, "picture", np.zeros((6, 5), np.uint8), np.zeros((5, 6, 3), np.uint8)):
        with pytest.raises(InputError, match="agent_0 observes what is not an image of its space"):
            converter.row(0, wrong)
    for wrong in (np.ones((6, 5, 3), np.float32), np.ones((6, 5, 3), bool)):
        with pytest.raises(InputError, match=f"pass uint8 numbers from 0 to 255, not {wrong.dtype}"):
            converter.row(0, wrong)
    mixed = Converter(of_gymnasium.wrap(Solo(MIXED), "solo", time_limit=4).spec)
    with pytest.raises(InputError, match="not a dict with the parts of its space"):
        mixed.row(0, whole)


def test_an_arranged_image_is_accepted_as_it_is() -> None:
    shape = (3, 8, 9)
    order, stored = arrangement(shape)
    image = np.arange(216, dtype=np.uint8).reshape(shape)
    once = arranged_image(image, shape).reshape(stored)
    np.testing.assert_array_equal(once, image.transpose(order))
    np.testing.assert_array_equal(arranged_image(once, shape).reshape(stored), once)
