"""``grid/pursuit``: step for step what PettingZoo's ``sisl.pursuit_v5`` does, and what only Shoal's own does."""

import importlib
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.grid.field import GONE
from shoal.environments.grid.pursuit import DOWN, LEFT, RIGHT, STAY, UP, State
from shoal.errors import InputError
from shoal.types import Environment
from support.environments import device_env

KEY = jax.random.key(3)
# A small crowded grid, on which there are many captures, at the walls, at the border and in corners.
SMALL: dict[str, Any] = {"num_agents": 7, "num_evaders": 4, "grid": (5, 6), "view": 2, "horizon": 30}
THEIRS = {
    "num_agents": "n_pursuers",
    "num_evaders": "n_evaders",
    "num_catch": "n_catch",
    "horizon": "max_cycles",
}


class Flight:
    """Moves PettingZoo's evaders by given actions, those that are left in order."""

    def __init__(self) -> None:
        self.actions: list[int] = []

    def act(self, state: Any) -> int:
        return self.actions.pop(0)


def anywhere(random: np.random.Generator, walls: np.ndarray, taken: np.ndarray, constraints: Any) -> Any:
    """An open cell, also beside other agents; PettingZoo's own draw does not end where the grid is crowded."""
    cells = np.argwhere(walls != -1)
    return tuple(cells[random.integers(len(cells))])


def theirs(options: dict[str, Any], flight: Flight, monkeypatch: pytest.MonkeyPatch) -> Any:
    pursuit = pytest.importorskip("pettingzoo.sisl.pursuit_v5")
    monkeypatch.setattr("pettingzoo.sisl.pursuit.utils.agent_utils.feasible_position_exp", anywhere)
    named = {THEIRS.get(name, name): value for name, value in options.items() if name not in ("grid", "view")}
    rows, columns = options["grid"]
    if not options.get("freeze_evaders"):
        named["evader_controller"] = flight
    return pursuit.parallel_env(x_size=columns, y_size=rows, obs_range=2 * options["view"] + 1, **named)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shared_reward": False, "tag_reward": 0.7, "catch_reward": 3.0, "urgency_reward": -0.2},
        {"surround": False, "num_catch": 3, "shared_reward": False, "num_agents": 20},
        {"grid": (9, 8), "view": 4, "freeze_evaders": True, "num_agents": 30, "num_evaders": 6, "shared_reward": False},
    ],
    ids=["defaults", "own rewards", "in one cell", "frozen"],
)
def test_every_step_is_pettingzoos(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    options = SMALL | options
    flight = Flight()
    other = theirs(options, flight, monkeypatch)
    env = device_env("grid/pursuit", **options)
    n, m, stride = options["num_agents"], options["num_evaders"], options["grid"][1] + options["view"]
    step, captured, random = jax.jit(env.step), 0, np.random.default_rng(0)
    for episode in range(3):
        other.reset(seed=episode)
        base = other.unwrapped.env
        cells = [
            jnp.array([y * stride + x for x, y in (who.current_position() for who in layer.allies)], jnp.int32)
            for layer in (base.pursuer_layer, base.evader_layer)
        ]
        state = State(cells[0], cells[1], jnp.int32(0))
        for t in range(options["horizon"]):
            key = jax.random.fold_in(KEY, 1000 * episode + t)
            action = random.integers(0, 5, n)
            flights = np.asarray(jax.random.randint(key, (m,), 0, 5))
            before = np.asarray(state.evaders) != GONE
            state, mine = step(key, state, jnp.asarray(action))
            left = np.asarray(state.evaders) != GONE
            captured += int(before.sum() - left.sum())
            flight.actions = flights[left].tolist()
            seen, reward, terminated, truncated, _ = other.step(dict(zip(other.possible_agents, action, strict=True)))
            stacked = np.stack([seen[name].reshape(-1) for name in other.possible_agents])
            np.testing.assert_array_equal(mine.obs, stacked)
            np.testing.assert_array_equal(mine.state, other.state().reshape(-1))
            np.testing.assert_allclose(mine.reward, [reward[name] for name in other.possible_agents], atol=1e-6)
            assert bool(mine.last) == any(terminated.values()) or any(truncated.values())
            assert bool(mine.discount[0]) != (not left.any())
            assert mine.metrics == pytest.approx([1 - left.mean()])
            if mine.last:
                break
        assert mine.last
        if n >= 20 and captured > 3:  # a step of PettingZoo takes long with so many
            break
    assert captured > 3, "the comparison saw captures"


def test_the_published_task() -> None:
    env = device_env("grid/pursuit")
    spec = env.spec
    assert (spec.num_agents, spec.horizon, spec.action.width, spec.score) == (8, 500, 5, "sum")
    assert spec.parts is not None and spec.parts[0][0].shape == (7, 7, 3) and spec.state_dim == 16 * 16 * 3
    state, step = jax.jit(env.reset)(KEY)
    assert (
        state.evaders.shape == (30,)
        and spec.shared_reward
        and not device_env("grid/pursuit", shared_reward=False).spec.shared_reward
    )
    building = np.asarray(step.state).reshape(16, 16, 3)[..., 0]
    rows, columns = np.nonzero(building)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (4, 12, 5, 11) and building.sum() == 63


def test_starts_are_drawn_as_pettingzoos() -> None:
    """Never in the building nor beside one another, and each cell as often as by repeated drawing."""
    options = SMALL | {"num_agents": 4}
    env = device_env("grid/pursuit", **options)
    keys = jax.random.split(KEY, 8_000)
    places = np.asarray(jax.jit(jax.vmap(lambda key: env.reset(key)[0].pursuers))(keys))
    rows, columns = places // 8, places % 8
    apart = np.abs(rows[:, :, None] - rows[:, None]) + np.abs(columns[:, :, None] - columns[:, None])
    assert (apart[:, ~np.eye(4, dtype=bool)] >= 2).all()

    random, first = np.random.default_rng(1), jax.jit(env.reset)(KEY)[1]
    closed = np.asarray(first.state).reshape(5, 6, 3)[..., 0]
    counts = np.zeros((2, 5, 6))
    np.add.at(counts[0], (rows, columns), 1)
    for _ in range(3000):
        taken: list[tuple[int, int]] = []
        while len(taken) < 4:
            row, column = int(random.integers(5)), int(random.integers(6))
            near = [(row, column), (row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
            if not closed[row, column] and not any(cell in taken for cell in near):
                taken.append((row, column))
        np.add.at(counts[1], tuple(zip(*taken, strict=True)), 1)
    assert (counts[:, closed == 1] == 0).all()
    mine, drawn = counts[0] / 8_000, counts[1] / 3000
    assert np.abs(mine - drawn).max() < 0.04, "four standard errors"


def test_a_full_grid_still_starts() -> None:
    """Where no cell is left that is not adjacent to another, cells beside others are taken, each once."""
    env = device_env("grid/pursuit", grid=3, num_agents=5, num_evaders=2, view=1)
    state, step = jax.jit(env.reset)(KEY)
    assert len(set(state.pursuers.tolist())) == 5 and not (np.asarray(step.obs).reshape(5, 9, 3)[:, 4, 0]).any()


def _placed(env: Environment, pursuers: list, evaders: list, action: list[int]) -> Any:
    stride = 6 + 2
    cells = [jnp.array([y * stride + x for x, y in who], jnp.int32) for who in (pursuers, evaders)]
    return jax.jit(env.step)(KEY, State(cells[0], cells[1], jnp.int32(0)), jnp.array(action, jnp.int32))


def test_two_pursuers_capture_in_a_corner() -> None:
    options = SMALL | {"num_agents": 3, "num_evaders": 2, "freeze_evaders": True, "shared_reward": False}
    env = device_env("grid/pursuit", **options)
    near, far = [(0, 2), (2, 0), (5, 4)], [(0, 0), (5, 0)]
    state, step = _placed(env, near, far, [DOWN, LEFT, STAY])
    assert state.evaders[0] == GONE and state.evaders[1] == 5
    np.testing.assert_allclose(step.reward, [5 - 0.1 + 0.01, 5 - 0.1 + 0.01 * 2 / 3, -0.1], atol=1e-6)
    assert not step.last and (step.discount == 1).all() and step.metrics[0] == 0.5
    state, step = _placed(env, near, far, [DOWN, RIGHT, UP])
    assert state.evaders[0] == 0 and (step.reward < 0).all()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"grid": (2, 9)}, "each side of grid must be an integer of at least 3, not 2"),
        ({"grid": 4, "num_evaders": 17}, "17 evaders do not fit into the"),
        ({"num_agents": 0}, "num_agents must be an integer of at least 1, not 0"),
        ({"view": 0}, "view must be an integer of at least 1"),
        ({"catch_reward": float("nan")}, "catch_reward must be a number"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        device_env("grid/pursuit", **options)


def test_pictures_show_walls_and_those_who_are_left() -> None:
    env = device_env("grid/pursuit", **SMALL)
    state, first = jax.jit(env.reset)(KEY)
    assert env.render is not None and env.outline is not None
    state = state._replace(evaders=state.evaders.at[1].set(GONE))
    scene: Any = env.render(state)
    outline = env.outline(state)
    walls = 5 * 6 - int((np.asarray(first.state).reshape(-1, 3)[:, 0] == 0).sum())
    assert len(scene.centres) == 4 + walls + 4 + 7 and scene.caption == outline.caption == "1 of 4 evaders captured"
    assert np.isnan(outline.moving["x"][walls + 1]) and np.isfinite(outline.moving["x"]).sum() == walls + 3 + 7
    assert np.isfinite(scene.centres).all(1).sum() == 4 + walls + 3 + 7
    assert scene.square.sum() == walls + 4 and scene.labels[-7:] == tuple(map(str, range(7)))
    features = outline.fixed["features"][0]
    assert (
        features[12 * 3] == "wall here" and features[0] == "wall 2 down, 2 left" and len(features) == env.spec.obs_dim
    )


def test_the_benchmark_plays_pettingzoos_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors here, and PettingZoo's own module of the name ``pursuit_v5`` warns that it is deprecated."""
    pytest.importorskip("pettingzoo.sisl.pursuit.pursuit")
    monkeypatch.delitem(sys.modules, "pettingzoo.sisl.pursuit_v5", raising=False)
    monkeypatch.delitem(vars(sys.modules["pettingzoo.sisl"]), "pursuit_v5", raising=False)
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    benchmark = importlib.import_module("pursuit")
    game = benchmark.pursuit.parallel_env
    monkeypatch.setattr(benchmark.pursuit, "parallel_env", lambda: game(max_cycles=4))
    speed, score = benchmark.plain_loop()
    assert speed > 0 and np.isfinite(score)


@pytest.mark.parametrize("count", [30, 41, 47])
def test_it_ends_when_all_are_captured_whatever_their_number(count: int) -> None:
    """Compiled, the mean of 41 ones is less than 1."""
    env = device_env("grid/pursuit", num_agents=1, num_evaders=count)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    _, step = jax.jit(env.step)(
        jax.random.key(0), state._replace(evaders=jnp.full(count, GONE, jnp.int32)), jnp.array([4])
    )
    assert bool(step.last) and step.discount.tolist() == [0] and step.metrics.tolist()[0] == 1
