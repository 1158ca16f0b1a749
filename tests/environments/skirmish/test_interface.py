"""Observations, state, legal actions, rewards and victory of ``skirmish/…`` against loops over tables of units."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish import observe, tasks
from shoal.environments.skirmish.battle import Battle, State
from shoal.environments.skirmish.drawn import ARMIES, battle_named
from shoal.environments.skirmish.maps import MAPS
from shoal.environments.skirmish.tasks import battle_on, make
from shoal.environments.skirmish.units import UNITS
from support.selection import quick
from support.skirmish_oracle import CELLS, KINDS, Rules, Table, army

MMM = "2 marauder 7 marine 1 medivac"
TABLE = [
    # map, allies, enemies, limit, actions, observation, state, largest reward
    ("3m", "3 marine", "3 marine", 60, 9, 30, 48, 365),
    ("8m", "8 marine", "8 marine", 120, 14, 80, 168, 640),
    ("25m", "25 marine", "25 marine", 150, 31, 250, 950, 1575),
    ("5m_vs_6m", "5 marine", "6 marine", 70, 12, 55, 98, 530),
    ("8m_vs_9m", "8 marine", "9 marine", 120, 15, 85, 179, 695),
    ("10m_vs_11m", "10 marine", "11 marine", 150, 17, 105, 243, 805),
    ("27m_vs_30m", "27 marine", "30 marine", 180, 36, 285, 1170, 1850),
    ("MMM", MMM, MMM, 150, 16, 160, 290, 1015),
    ("MMM2", MMM, "3 marauder 8 marine 1 medivac", 180, 18, 176, 322, 1205),
    ("2s3z", "2 stalker 3 zealot", "2 stalker 3 zealot", 120, 11, 80, 120, 1020),
    ("3s5z", "3 stalker 5 zealot", "3 stalker 5 zealot", 150, 14, 128, 216, 1510),
    ("3s5z_vs_3s6z", "3 stalker 5 zealot", "3 stalker 6 zealot", 170, 15, 136, 230, 1670),
    ("3s_vs_3z", "3 stalker", "3 zealot", 150, 9, 36, 54, 680),
    ("3s_vs_4z", "3 stalker", "4 zealot", 200, 10, 42, 61, 840),
    ("3s_vs_5z", "3 stalker", "5 zealot", 250, 11, 48, 68, 1000),
    ("1c3s5z", "1 colossus 3 stalker 5 zealot", "1 colossus 3 stalker 5 zealot", 180, 15, 162, 270, 1870),
    ("2m_vs_1z", "2 marine", "1 zealot", 150, 7, 16, 26, 360),
    ("6h_vs_8z", "6 hydralisk", "8 zealot", 150, 14, 78, 140, 1480),
    ("2s_vs_1sc", "2 stalker", "1 spine_crawler", 300, 7, 17, 27, 510),
    ("corridor", "6 zealot", "24 zergling", 400, 30, 156, 282, 1280),
    ("so_many_baneling", "7 zealot", "32 baneling", 100, 38, 202, 397, 1480),
    ("bane_vs_bane", "4 baneling 20 zergling", "4 baneling 20 zergling", 200, 30, 336, 984, 1260),
    ("2c_vs_64zg", "2 colossus", "64 zergling", 400, 70, 332, 342, 3080),
]
"""SMAC's maps."""
ROWS = {row[0]: row for row in TABLE}
TERRAINS = {"2m_vs_1z": "octagon", "bane_vs_bane": "octagon", "corridor": "corridor", "2c_vs_64zg": "ravine"}
MIRRORED = {"2m_vs_1z": "", "corridor": "", "2c_vs_64zg": "", "bane_vs_bane": "y"}
"""Axes on which the second army sees a mirror image; of all other maps here x."""
OPTIONS: dict[str, dict[str, bool]] = {
    "default": {},
    "smac": {"smac_reward": True, "timestep": True},
    "all": {"last_actions": True, "timestep": True, "smac_reward": True, "both": True},
}
COUNT = 24
"""Tables per map."""


def rules_of(name: str, **options: Any) -> Rules:
    _, allies, enemies, limit, *_ = ROWS[name]
    terrain = TERRAINS.get(name, "open" if "3s_vs" in name else "band")
    return Rules(army(allies), army(enemies), terrain, limit, mirrored=MIRRORED.get(name, "x"), **options)


def battle_of(name: str, rules: Rules) -> Battle:
    return replace(
        battle_on(MAPS[name]),
        last_actions=rules.last_actions,
        timestep=rules.timestep,
        smac_reward=rules.smac_reward,
        commanded=rules.both,
    )


def tables(rules: Rules, rng: np.random.Generator, before: Table | None = None) -> Table:
    """One random table. Coordinates are multiples of 1/64, whose distances float32 compares exactly.

    Some tables have only one army, only medivacs or nobody at all. After ``before``, the dead stay dead, and the others
    are hurt or regenerate.
    """
    units, kinds = len(rules.units), [KINDS[name] for name in rules.units]
    spread = rng.choice([3.0, 8.0, 32.0])
    x, y = (rng.uniform(CELLS / 2 - spread / 2, CELLS / 2 + spread / 2, units) for _ in "xy")
    pair = rng.permutation(units)[:2]
    ends = rules.ranges(int(pair[0]))
    y[pair[0]], x[pair[0]] = y[pair[1]], x[pair[1]] - rng.choice(ends)  # at the very ends of the ranges
    border = rng.random(units) < 0.2  # the first or last point of a cell, also of the map's
    rounded = [np.where(border, rng.choice([0, -1 / 64], units) + np.round(v), np.round(v * 64) / 64) for v in (x, y)]
    x, y = np.clip(rounded, 0.0, CELLS - 1 / 64)
    alive = rng.random(units) < rng.choice([0.1, 0.6, 1.0])
    fate = rng.integers(10)
    for side in (0, 1):
        if fate in (side, 2):
            alive[list(rules.army(side))] = False
        if fate == 3 + side:
            alive[[i for i in rules.army(side) if rules.units[i] != "medivac"]] = False
    health, shield = (
        np.array([getattr(kind, part) for kind in kinds]) * rng.random(units) for part in Table._fields[2:4]
    )
    if before is not None:
        rests = rng.random() < 0.3  # nobody is hurt, and all regenerate
        gone = rng.random(units) < (0.0 if rests else 0.8)
        alive = (before.health > 0) & (alive | rests)
        health = np.where(gone, rng.random(units), 1.01) * before.health
        shield = np.where(gone, 0.0, before.shield + shield / 8)
    heals = np.array([name == "medivac" for name in rules.units])
    last = [rng.integers(-1, rules.actions(side), len(rules.army(side))) for side in ((0, 1) if rules.both else (0,))]
    health, shield, cooldown = health * alive, shield * alive, 24 * rng.random(units) * alive
    energy = 200 * rng.random(units) * alive * heals
    return Table(x, y, health, shield, energy, cooldown, np.concatenate(last), int(rng.integers(rules.limit)))


def stacked(battle: Battle, many: list[Table], kinds: np.ndarray | None = None) -> State:
    """The package's state of tables, environments last; ``kinds`` [U, E] are the units' types if they are drawn."""
    arrays = {name: np.stack([getattr(one, name) for one in many], -1).astype(np.float32) for name in Table._fields[:6]}
    none = np.full((battle.num_units, len(many)), -1, np.int32)
    if kinds is None:
        units = [battle.types.index(unit) for unit in battle.units or ()]
        kinds = np.tile(np.array(units)[:, None], (1, len(many)))
    return State(
        **{name: jnp.asarray(value) for name, value in arrays.items()},
        pace=jnp.zeros(none.shape),
        turn=jnp.zeros(none.shape),
        calm=jnp.zeros(none.shape),
        target=jnp.asarray(none),
        shot=jnp.asarray(none),
        action=jnp.asarray(np.stack([one.action for one in many], -1), jnp.int32),
        goal=jnp.zeros((2, len(many))),
        kind=jnp.asarray(kinds, jnp.int32),
        t=jnp.asarray([one.t for one in many], jnp.int32),
    )


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_sizes_are_those_of_smac(row: tuple[Any, ...]) -> None:
    name, allies, enemies, limit, actions, obs, state, largest = row
    spec, battle = make(name).spec, battle_on(MAPS[name])
    assert [unit.name for unit in battle.units or ()] == [*army(allies), *army(enemies)]
    assert (spec.horizon, spec.action.width, spec.obs_dim, spec.state_dim) == (limit, actions, obs, state)
    assert set(spec.obs_dims) == {obs} and set(spec.action_dims or ()) == {actions}
    assert spec.num_agents == len(army(allies)) and len(MAPS) == len(TABLE) + 1  # and COMA's 5m
    assert float(tasks.largest(battle, battle.stats(jnp.zeros((battle.num_units, 1), jnp.int32)), 0)[0]) == largest


SEEN = ["3m", "2s3z", "MMM2", "1c3s5z", "bane_vs_bane", "2c_vs_64zg", "corridor", "27m_vs_30m", "2m_vs_1z", "3s_vs_5z"]
FEW = (("2s3z", "default"), ("MMM2", "all"), ("2c_vs_64zg", "default"), ("corridor", "smac"))
CASES = [(name, options) for name in SEEN for options in OPTIONS]


@pytest.mark.parametrize(("name", "options"), quick(CASES, *FEW))
def test_what_agents_and_critics_see_is_that_of_loops(name: str, options: str) -> None:
    rules, rng = rules_of(name, **OPTIONS[options]), np.random.default_rng(len(name))
    compared(battle_of(name, rules), [rules] * COUNT, rng)


@pytest.mark.parametrize("race", quick(list(ARMIES), "terran"))
def test_what_agents_and_critics_see_of_drawn_armies_is_that_of_loops(race: str) -> None:
    battle, rng = battle_named(f"{race}_4_vs_6"), np.random.default_rng(0)
    assert battle is not None
    battle = replace(battle, commanded=True)
    armies = [tuple(str(name) for name in rng.choice(ARMIES[race], 10)) for _ in range(2 * COUNT)]
    rules = [Rules(army[:4], army[4:], "open", 200, both=True, mirrored="x", race=ARMIES[race]) for army in armies]
    compared(battle, rules, rng, np.array([[ARMIES[race].index(name) for name in army] for army in armies]).T)


def compared(battle: Battle, rules: list[Rules], rng: np.random.Generator, kinds: np.ndarray | None = None) -> None:
    """Compare one table of each set of rules, and the step to another one."""
    before = [tables(each, rng) for each in rules]
    after = [tables(each, rng, one) for each, one in zip(rules, before, strict=True)]
    sides = battle.agent_sides

    @jax.jit
    def looked(s: State, then: State) -> Any:
        stats = battle.stats(s.kind)
        legal = [observe.legal(battle, stats, side, s) for side in sides]
        obs = [observe.observations(battle, stats, side, s, able) for side, able in zip(sides, legal, strict=True)]
        end = tasks.end_of(battle, stats, then)
        won = [end.won(side) for side in sides]
        paid = [tasks.reward(battle, stats, side, s, then, end) for side in sides]
        return legal, obs, observe.state(battle, stats, s), won, end.over, paid

    legal, obs, state, won, over, paid = jax.tree.map(
        np.asarray, looked(stacked(battle, before, kinds), stacked(battle, after, kinds))
    )
    ends = set()
    for e, (each, now, then) in enumerate(zip(rules, before, after, strict=True)):
        for side in sides:
            np.testing.assert_array_equal(legal[side][..., e], each.legal(now, side))
            np.testing.assert_allclose(obs[side][..., e], each.obs(now, side), atol=1e-5)
            rows_are_units(battle, side, obs[side][..., e], now)
            assert bool(won[side][e]) == each.won(then, side)
            np.testing.assert_allclose(paid[side][e], each.reward(now, then, side), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state[..., e], each.state(now), atol=1e-5)
        assert bool(over[e]) == each.over(then)
        ends.add((bool(over[e]), each.won(then, 0)))
    assert ends == {(False, False), (True, False), (True, True)}


@pytest.mark.parametrize("option", ["losses", "sparse"])
@pytest.mark.parametrize("name", ["2s3z", "MMM2"])
def test_other_rewards_are_those_of_loops(name: str, option: str) -> None:
    """SMAC's ``reward_only_positive=False`` and ``reward_sparse``."""
    rules, rng = rules_of(name, both=True, **{option: True}), np.random.default_rng(0)
    battle = replace(battle_of(name, rules), losses=rules.losses, sparse=rules.sparse)
    before = [tables(rules, rng) for _ in range(4 * COUNT)]
    after = [tables(rules, rng, one) for one in before]

    @jax.jit
    def paid(s: State, then: State) -> Any:
        stats = battle.stats(s.kind)
        end = tasks.end_of(battle, stats, then)
        return [tasks.reward(battle, stats, side, s, then, end) for side in (0, 1)]

    found = np.asarray(paid(stacked(battle, before), stacked(battle, after)))
    expected = [[rules.reward(a, b, side) for a, b in zip(before, after, strict=True)] for side in (0, 1)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert (found < 0).any() and (found > 0).any()


def test_options_reach_the_battle(monkeypatch: pytest.MonkeyPatch) -> None:
    made, whole = [], tasks.battle_environment
    monkeypatch.setattr(tasks, "battle_environment", lambda *parts: made.append(parts[1]) or whole(*parts))
    cases: list[dict[str, Any]] = [{}, {"reward": "losses"}, {"reward": "sparse"}, {"leash": 21.0}]
    for options in cases:
        make("3m", **options)
    plain = made[0]
    assert made[1:] == [replace(plain, losses=True), replace(plain, sparse=True), replace(plain, leash=21.0)]


def test_cooldowns_are_scaled_as_in_smac() -> None:
    shown = {name: unit.shown_cooldown for name, unit in UNITS.items() if not unit.heals}
    assert shown == {name: kind.max_cooldown for name, kind in KINDS.items() if name != "medivac"}


def rows_are_units(battle: Battle, side: int, obs: np.ndarray, now: Table) -> None:
    """``EnvSpec.parts`` cuts observations so that each row is a unit: zero, or with the offset of that unit."""
    parts = observe.parts(battle, side)
    cut = np.split(obs, np.cumsum([part.size for part in parts])[:-1], axis=1)
    arrays = {part.name: x.reshape(-1, *part.shape) for part, x in zip(parts, cut, strict=True)}
    armies = [slice(0, battle.num_allies), slice(battle.num_allies, None)]
    mine, theirs = armies[side], armies[1 - side]
    offsets = {"enemies": theirs, "allies": mine}
    for name in offsets.keys() & arrays.keys():
        dx, dy = (at[offsets[name]] - at[mine][:, None] for at in (now.x, now.y))
        rows, apart = arrays[name], np.hypot(dx, dy)
        if name == "allies":
            others = ~np.eye(len(apart), dtype=bool)
            dx, dy, apart = (values[others].reshape(rows.shape[:2]) for values in (dx, dy, apart))
        assert rows.shape[:2] == apart.shape
        seen = (rows != 0).any(-1)
        for offset, feature in ((dx, 2), (dy, 3)):
            sizes = np.abs(rows[..., feature]) * apart, rows[..., 1] * np.abs(offset)  # both over the sight
            np.testing.assert_allclose(sizes[0][seen], sizes[1][seen], atol=1e-3)
    assert arrays["moves"].shape[1] == 4 and ((arrays["own"][:, 0] > 0) == (now.health[mine] > 0)).all()


@pytest.mark.parametrize("option", ["last_actions", "timestep", "both"])
def test_options_change_the_sizes(option: str) -> None:
    chosen: dict[str, Any] = {option: True}
    rules, spec = rules_of("MMM2", **chosen), make("MMM2", **chosen).spec
    now = tables(rules, np.random.default_rng(0))
    sides = [side for side in (0, 1)[: 1 + rules.both] for _ in rules.army(side)]
    assert spec.state_dim == len(rules.state(now))
    assert list(spec.obs_dims) == [rules.obs(now, side).shape[1] for side in sides]
    assert list(spec.action_dims or ()) == [rules.actions(side) for side in sides]
