"""When, how far and among whom the enemies of ``skirmish/…`` look for targets."""

from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish import drawn
from shoal.environments.skirmish.battle import EAST, NO_OP, STOP, Battle, begun, multiplayer
from shoal.environments.skirmish.fighting import acquired
from shoal.environments.skirmish.maps import MAPS, Group, Map
from shoal.environments.skirmish.tasks import battle_on, make
from shoal.errors import InputError

MARINES = Map("four", (Group("marine", 2, (14.0, 16.0)),), (Group("marine", 2, (18.0, 16.0)),), 60)
SEARCHES = ("step", "tick")
COUNT = 400


@pytest.fixture(scope="module")
def battles() -> dict[str, Any]:
    """(the batched form, its compiled step) for each option."""
    made = {name: make(MARINES, delay_noise=False, target_search=name).batched for name in SEARCHES}  # type: ignore[arg-type]
    made["beyond"] = make(MARINES, delay_noise=False, weapons="multiplayer").batched
    return {name: (batched, jax.jit(batched.step)) for name, batched in made.items() if batched is not None}


@pytest.mark.parametrize(("search", "health"), [("step", 45.0), ("tick", 39.0)])
def test_an_enemy_whose_target_dies_takes_the_next_one(
    search: Literal["step", "tick"], health: float, battles: dict[str, Any]
) -> None:
    """The first enemy kills the nearer ally in the first tick. The second, whose weapon is ready in the fourth, has no
    target until the next step, or shoots the other ally."""
    batched, step = battles[search]
    state, _ = jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 64)
    alive, cooldown = np.array(state.health), np.array(state.cooldown)
    alive[:, 0], cooldown[:, 3] = 1.0, 3.0
    x, y = np.tile(np.array([[[14.5, 14, 18, 18]], [[16, 16, 16, 16.8]]], np.float32), (1, 64, 1))
    state = state._replace(
        x=jnp.asarray(x), y=jnp.asarray(y), health=jnp.asarray(alive), cooldown=jnp.asarray(cooldown)
    )
    after, outcome = step(jax.random.key(1), state, jnp.full((64, 2), STOP))
    assert after.health[0].tolist() == [0.0, health, 45.0, 45.0]
    assert outcome.legal[0, 0, NO_OP]


def test_an_enemy_that_walks_stops_where_its_weapon_reaches(battles: dict[str, Any]) -> None:
    """It looks for targets as far as its weapon reaches, so that it may have come up to a tick's way of 0.14 closer, or
    a step's of 1.125 if it looks once in a step. With weapons of multiplayer games it looks half a cell beyond, and
    stops where its weapon just reaches."""
    reach, closest = 5.0 + 2 * 0.375, {}
    for search in battles:
        batched, step = battles[search]
        state, _ = jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 64)
        x = jnp.array([8.0, 1.0, 0.0, 31.0]) + jnp.array([0.0, 0.0, 1.0, 0.0]) * jnp.linspace(15, 16.2, 64)[:, None]
        dead = jnp.array([False, True, False, True])
        state = state._replace(x=x, y=jnp.full((64, 4), 16.0), health=jnp.where(dead, 0.0, state.health))
        state = state._replace(health=state.health.at[:, 0].set(45.0), goal=jnp.full((64, 2), 16.0).at[:, 0].set(9.0))
        for _ in range(5):
            state, _ = step(jax.random.key(1), state, jnp.full((64, 2), STOP).at[:, 1].set(NO_OP))
        assert (state.target[:, 2] == 0).all() and (state.health[:, 0] < 45).all()
        closest[search] = np.asarray(state.x[:, 2] - state.x[:, 0])
    assert all((far <= reach).all() for far in closest.values())
    assert closest["beyond"].min() > reach - 2e-3
    assert reach - 0.12 > closest["tick"].min() > reach - 2.25 / 16 - 1e-3
    assert reach - 0.8 > closest["step"].min() > reach - 1.125 - 1e-3


def targets(battle: Battle, side: int, now: dict[str, np.ndarray], scan: float, beyond: float, order: bool) -> Any:
    """The targets of one side in one environment, by plain loops in double precision."""
    units = [battle.types[kind] for kind in now["kind"]]
    own, others = range(battle.num_allies), range(battle.num_allies, len(units))
    own, others = (own, others) if side == 0 else (others, own)

    def square(i: int, j: int) -> float:
        return (now["x"][i] - now["x"][j]) ** 2 + (now["y"][i] - now["y"][j]) ** 2

    found = []
    for i in own:
        unit, best, chosen, chased = units[i], np.inf, -1, -1
        candidates = own if unit.heals else others
        alive = [j for j in candidates if now["health"][j] > 0]
        for j in alive:
            other, cost = units[j], square(i, j)
            edges = unit.radius + other.radius
            if unit.heals:
                hurt = other.biological and now["health"][j] < other.hit_points
                if not hurt or (battle.ordered and cost > (6.0 + edges) ** 2):
                    continue
            else:
                most = max(unit.reach + beyond, 5.0)
                most = max(most, scan) if now["calm"][i] < 32 else most
                kept = battle.ordered or cost <= (unit.reach + edges) ** 2
                if now["target"][i] == candidates.index(j) and kept:
                    cost = -1.0
                elif (other.flies and not unit.hits_air) or (not battle.hunts and cost > (most + edges) ** 2):
                    if now["target"][i] == candidates.index(j) and battle.leash and cost <= (battle.leash + edges) ** 2:
                        chased = candidates.index(j)
                    continue
            if cost < best:
                best, chosen = cost, candidates.index(j)
        if order and alive and not unit.heals and best >= 0.0:
            nearest = min(alive, key=lambda j: square(i, j))
            if unit.hits_air or not units[nearest].flies:
                chosen = candidates.index(nearest)
        chosen = chased if chosen < 0 else chosen
        found.append(chosen if now["health"][i] > 0 else -1)
    return found


CASES: dict[str, tuple[Battle, int, float]] = {
    "MMM, enemies": (battle_on(MAPS["MMM"]), 1, 9.0),
    "MMM, allies": (battle_on(MAPS["MMM"]), 0, 9.0),
    "marines": (battle_on(MAPS["5m_vs_6m"]), 1, 9.0),
    "2c_vs_64zg": (battle_on(MAPS["2c_vs_64zg"]), 1, 9.0),
    "colossus and others": (battle_on(MAPS["1c3s5z"]), 1, 5.0),
    "leash": (replace(battle_on(MAPS["MMM"]), leash=8.0), 1, 9.0),
    "drawn": (drawn.battle_named("terran_5_vs_6"), 1, 9.0),  # type: ignore[dict-item]
    "drawn, order": (drawn.battle_named("terran_5_vs_6"), 1, 9.0),  # type: ignore[dict-item]
    "multiplayer, drawn": (multiplayer(drawn.battle_named("protoss_5_vs_6")), 1, 0.0),  # type: ignore[arg-type]
    "multiplayer": (multiplayer(battle_on(MAPS["6h_vs_8z"])), 0, 6.0),
}


@pytest.mark.parametrize("case", CASES)
def test_targets_are_those_of_plain_loops(case: str) -> None:
    """Coordinates are multiples of 1/16, so that squares are exact; some units are equally near."""
    battle, side, scan = CASES[case]
    far = 0.5 if case.startswith("multiplayer") else 0.0
    battle = replace(battle, provoked_scan=scan)
    rng, units = np.random.default_rng(0), battle.num_units
    spread = rng.choice([3.0, 8.0, 14.0], (COUNT, 1))
    x, y = (np.round(16 * (16 + rng.uniform(-1, 1, (COUNT, units)) * spread)) / 16 for _ in "xy")
    kind = rng.integers(len(battle.types), size=(COUNT, units))
    if battle.units is not None:
        kind[:] = [battle.types.index(unit) for unit in battle.units]
    state = begun(battle, jnp.asarray(x), jnp.asarray(y), jnp.asarray(kind), jnp.zeros((COUNT, 2)))
    hurt = rng.choice([0.0, 0.5, 1.0], (COUNT, units), p=[0.3, 0.3, 0.4])
    most = max(battle.counts(side))
    fields = {
        "health": np.asarray(state.health) * hurt,
        "calm": rng.choice([0.0, 31.0, 32.0, 1e4], (COUNT, units)),
        "target": rng.integers(-1, most, (COUNT, units)).astype(np.int32),
    }
    heals = np.array([unit.heals for unit in battle.types])[kind]
    of_enemies = np.arange(units) < battle.num_allies
    limit = np.where(of_enemies ^ heals, battle.num_enemies, battle.num_allies)
    fields["target"] = np.minimum(fields["target"], limit - 1).astype(np.int32)
    state = state._replace(
        **{name: jnp.asarray(value, state.x.dtype if name != "target" else None) for name, value in fields.items()}
    )
    flat = jax.tree.map(lambda v: jnp.moveaxis(v, 0, -1), state)
    order = case.endswith("order")
    found = np.asarray(jax.jit(lambda s: acquired(battle, battle.stats(s.kind), side, s, order))(flat)).T
    everything = fields | {"x": x, "y": y, "kind": kind}
    expected = [targets(battle, side, {k: v[e] for k, v in everything.items()}, scan, far, order) for e in range(COUNT)]
    np.testing.assert_array_equal(found, expected)
    had = fields["target"][:, battle.sides[side]]
    assert ((found == had) & (found >= 0)).any() and (found == -1).any() and (found != had).any()


def test_an_enemy_of_drawn_armies_follows_its_target_past_a_nearer_ally() -> None:
    """It is ordered to the nearest ally beyond all scan ranges, and keeps the order when another one is nearer."""
    batched = make("protoss_2_vs_1", delay_noise=False).batched
    assert batched is not None
    state, _ = jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 2)
    step, stop = jax.jit(batched.step), jnp.full((2, 2), STOP)
    state = state._replace(x=jnp.array([[4.0, 2.0, 24.0]] * 2), y=jnp.full((2, 3), 16.0), kind=jnp.full((2, 3), 0))
    state, _ = step(jax.random.key(1), state, stop)
    assert (state.target[:, 2] == 0).all() and (state.x[:, 2] < 23.0).all()
    state = state._replace(x=state.x.at[:, 1].set(jnp.array([20.0, 2.0])), health=state.health.at[1, 0].set(0.0))
    state, _ = step(jax.random.key(1), state, stop.at[1, 0].set(NO_OP))
    assert state.target[:, 2].tolist() == [0, 1]


def test_a_leash_lets_an_enemy_follow_a_target_beyond_its_scan() -> None:
    """A stalker walks away to the east, faster than the zealot, whose goal is in the west."""
    apart = Map(
        "leash", (Group("stalker", 1, (15.9, 16.0)),), (Group("zealot", 1, (10.0, 16.0)),), 60, "open", (2.0, 16.0)
    )
    batched = make(apart, leash=21.0).batched
    assert batched is not None
    state, _ = jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 1)
    step = jax.jit(batched.step)
    for _ in range(5):
        before = state
        state, _ = step(jax.random.key(0), state, jnp.array([[EAST]]))
        assert state.target[0, 1] == 0 and state.x[0, 1] > before.x[0, 1]
    assert state.x[0, 0] - state.x[0, 1] > 5.0 + 0.625 + 0.5


def test_search_options_are_checked() -> None:
    with pytest.raises(InputError, match="leash must be a number from 0 to 32"):
        make("3m", leash=33.0)
    with pytest.raises(InputError, match="provoked_scan must be a number from 0 to 32"):
        make("3m", provoked_scan=-1.0)
    assert battle_on(MAPS["3m"]).every_tick and Battle((), None, 1, 1, "band", 9).every_tick
