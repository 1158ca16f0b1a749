"""Terrain of ``skirmish/…``: where armies start, ways around cliffs, moves beside walls, and walks over whole maps."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish import maps
from shoal.environments.skirmish.battle import State
from shoal.environments.skirmish.maps import MAPS, Group, Map, starts
from shoal.environments.skirmish.tasks import make
from support.selection import quick
from support.skirmish_oracle import FREE, KINDS

SIDE = 32
WINDING = ("octagon", "arena_a", "arena_b", "corridor", "diagonal", "ravine")
"""Terrains that are not bands."""
COLLISIONS = {"zealot": 0.375, "colossus": 0.75, "stalker": 0.625, "marauder": 0.5, "medivac": 0.75}
COLLISIONS |= {"hydralisk": 0.5, "spine_crawler": 0.875}
"""Radii of bodies; 0.375 of the others."""


@pytest.mark.parametrize("name", MAPS)
def test_armies_start_apart_on_walkable_cells(name: str) -> None:
    chosen = MAPS[name]
    places = np.concatenate([starts(chosen, side) for side in ("allies", "enemies")])
    units = [unit.name for unit in chosen.ally_units + chosen.enemy_units]
    cells = maps.walkable(chosen.terrain)
    assert all(cells[int(x), int(y)] for x, y in places)
    body = np.array([COLLISIONS.get(unit, 0.375) for unit in units])
    apart = np.hypot(*(places[:, None] - places[None]).T) + 99 * np.eye(len(units))
    assert (apart > body[:, None] + body[None]).all() and set(units) <= set(KINDS)
    for side in ("allies", "enemies"):
        groups = getattr(chosen, side)
        points = np.array([group.at for group in groups for _ in range(group.count)])
        for at in np.unique(points, axis=0):
            here = starts(chosen, side)[(points == at).all(1)]
            assert np.hypot(*(here.mean(0) - at)) < 2.0, "a clump around its point"


@pytest.mark.parametrize("gap", [0.05, 0.5, 1.0])
def test_no_cliff_divides_a_group(gap: float) -> None:
    zerglings = starts(replace(MAPS["2c_vs_64zg"], gap=gap), "enemies")
    assert len(zerglings) == 64 and zerglings[:, 1].max() < 12.0, "none starts beside the colossi, behind the cliff"
    climbers = Map("within", (Group("marine", 4, (16.0, 12.5)),), (Group("colossus", 4, (16.0, 12.5)),), 9, "ravine")
    assert len(starts(climbers, "allies")) == 4, "around a point in the cliff"
    assert len(set(starts(climbers, "enemies")[:, 1] > 12.5)) == 2, "colossi stand on both sides"


@pytest.mark.parametrize("name", FREE)
def test_walkable_cells_are_those_of_the_archives(name: str) -> None:
    expected = np.zeros((SIDE, SIDE), bool)
    for rows, columns in FREE[name]:
        expected[columns.start : columns.stop, rows.start : rows.stop] = True
    np.testing.assert_array_equal(maps.walkable(name), expected)
    cliffs = np.argwhere(maps.climbable(name) & ~expected).tolist()
    assert cliffs == ([[x, y] for x in range(4, 28) for y in (12, 13)] if name == "ravine" else [])


def blocked_part(cells: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The longest piece of each straight line [P, 2] between centres that lies in one blocked cell."""
    ahead = (end - start).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        borders = np.arange(1, SIDE)[None, :, None]
        cuts = ((borders - start[:, None] - 0.5) / ahead[:, None]).reshape(len(start), -1)
    cuts = np.sort(np.where((cuts > 0) & (cuts < 1), cuts, 1.0), 1)
    cuts = np.concatenate([np.zeros((len(cuts), 1)), cuts, np.ones((len(cuts), 1))], 1)
    middle, length = (cuts[:, 1:] + cuts[:, :-1]) / 2, np.diff(cuts) * np.hypot(*ahead.T)[:, None]
    at = (start[:, None] + 0.5 + middle[..., None] * ahead[:, None]).astype(int)
    free = cells[at[..., 0], at[..., 1]] | (length < 1e-6)
    return np.where(free, 0.0, length).max(1)


def shortest(cells: np.ndarray, goal: tuple[int, int]) -> np.ndarray:
    """Lengths of the ways to a cell over its eight neighbours, not around blocked corners; by relaxation."""
    far = np.full((SIDE + 2, SIDE + 2), np.inf)
    free = np.pad(cells, 1)
    far[goal[0] + 1, goal[1] + 1] = 0.0
    steps = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    inner = slice(1, SIDE + 1)
    while True:
        best = far[inner, inner].copy()
        for i, j in steps:
            there = (slice(1 + i, SIDE + 1 + i), slice(1 + j, SIDE + 1 + j))
            corners = free[there[0], inner] & free[inner, there[1]]
            best = np.minimum(best, np.where(corners, far[there] + np.hypot(i, j), np.inf))
        best = np.where(cells, best, np.inf)
        if (best == far[inner, inner]).all():
            return best
        far[inner, inner] = best


@pytest.mark.parametrize(
    ("name", "every"),
    quick([("corridor", 6), ("ravine", 6), *((name, 1) for name in WINDING)], ("corridor", 6), ("ravine", 6)),
)
def test_stops_lead_from_everywhere_to_everywhere(name: str, every: int) -> None:
    cells = maps.walkable(name)
    number, stops = maps.waypoints(name)
    free = np.argwhere(cells)
    for goal in free[::every]:
        at, walked = free.copy(), np.zeros(len(free))
        for _ in range(12):
            stop = stops[number[goal @ (SIDE, 1)], number[at @ np.array([SIDE, 1])]].astype(int)
            then = np.stack([stop // SIDE, stop % SIDE], 1)
            assert cells[then[:, 0], then[:, 1]].all()
            assert blocked_part(cells, at, then).max() < 0.25, "a line may cut a corner by a quarter of a cell"
            walked += np.hypot(*(then - at).T)
            at = then
        assert (at == goal).all()
        least = shortest(cells, tuple(goal.tolist()))[free[:, 0], free[:, 1]]
        assert (walked <= least + 1e-6).all() and (walked >= np.hypot(*(free - goal).T) - 1e-6).all()


def alone(name: str) -> Any:
    """A compiled step of a battle of a marine and a marine on a terrain."""
    at = {"corridor": (20.5, 20.5), "ravine": (16.5, 16.5)}.get(name, (14.5, 14.5))
    army = (Group("marine", 1, at),)
    batched = make(Map("alone", army, army, 999, name, None), delay_noise=False).batched
    assert batched is not None
    return batched, jax.jit(batched.step)


@pytest.mark.parametrize("name", quick(WINDING, "corridor"))
def test_a_legal_move_goes_straight(name: str) -> None:
    """Half the speed in cells, as far as all of the way is walkable; and along a wall or up to it otherwise."""
    batched, step = alone(name)
    cells, rng, count = maps.walkable(name), np.random.default_rng(0), 512
    free = np.argwhere(cells)
    places = free[rng.integers(len(free), size=count)] + rng.uniform(0.01, 0.99, (count, 2))
    state, _ = jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), count)
    health = np.asarray(state.health) * [1.0, 0.0]
    x, y = (np.stack([places[:, k], np.full(count, 16.0)], 1) for k in (0, 1))
    state = state._replace(x=jnp.asarray(x, jnp.float32), y=jnp.asarray(y, jnp.float32), health=jnp.asarray(health))
    for action, ahead in enumerate(((0, 1), (0, -1), (1, 0), (-1, 0)), 2):
        after, _ = step(jax.random.key(0), state, jnp.full((count, 1), action))
        found = np.stack([after.x[:, 0], after.y[:, 0]], 1)
        ends = [places + part * np.array(ahead) for part in (1.0, 1.125)]
        inside = [((end > 0) & (end < SIDE - 1e-2)).all(1) for end in ends]
        near, there = (np.floor(np.clip(end, 0, SIDE - 1)).astype(int) for end in ends)
        legal = inside[0] & cells[near[:, 0], near[:, 1]]
        clear = legal & inside[1] & cells[there[:, 0], there[:, 1]]
        np.testing.assert_allclose(found[clear], ends[1][clear], atol=1e-3)
        walked = (found - places) @ np.array(ahead)
        assert (walked[legal] > 0.95).all() and cells[tuple(np.floor(found).astype(int).T)].all()


def test_zerglings_of_the_corridor_walk_to_their_goal() -> None:
    ally, enemies = (Group("zealot", 1, (11.8, 2.2)),), (Group("zergling", 6, (27.91, 28.24)),)
    batched = make(Map("few", ally, enemies, 400, "corridor", (4.47, 4.33))).batched
    assert batched is not None
    cells = maps.walkable("corridor")

    @jax.jit
    def idle(state: State) -> State:
        body = lambda state, key: (batched.step(key, state, jnp.ones((1, 1), jnp.int32))[0],) * 2  # noqa: E731
        return jax.lax.scan(body, state, jax.random.split(jax.random.key(0), 48))[1]

    states = jax.tree.map(np.asarray, idle(jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 1)[0]))
    x, y = states.x[:, 0, 1:], states.y[:, 0, 1:]
    assert cells[np.floor(x).astype(int), np.floor(y).astype(int)].all()
    assert np.hypot(x[-1] - 4.47, y[-1] - 4.33).max() < 1.5
    assert states.health[-1, 0, 0] == 100, "the hidden zealot is not found"


def test_zerglings_of_the_ravine_reach_colossi_on_the_plateau_and_on_the_cliff() -> None:
    batched = make("2c_vs_64zg").batched
    assert batched is not None

    @jax.jit
    def idle(state: State) -> State:
        body = lambda state, key: (batched.step(key, state, jnp.ones((3, 2), jnp.int32))[0],) * 2  # noqa: E731
        return jax.lax.scan(body, state, jax.random.split(jax.random.key(0), 40))[1]

    state = jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 3)[0]
    high = jnp.array([[16.0, 13.5, 12.5]]).T + jnp.zeros((3, 2))
    states = jax.tree.map(np.asarray, idle(state._replace(y=state.y.at[:, :2].set(high))))
    cells = maps.walkable("ravine")
    x, y = states.x[:, :, 2:], states.y[:, :, 2:]
    assert cells[np.floor(x).astype(int), np.floor(y).astype(int)].all()
    assert (states.health[-1, :, :2] < 200).all(), states.health[-1, :, :2]
