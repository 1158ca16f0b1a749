"""Scripted teams: what they choose in positions where the choice is clear, and what they win."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.environments.skirmish import observe, scripts
from shoal.environments.skirmish.battle import EAST, MOVES, NO_OP, STOP, WEST, Battle, State, begun
from shoal.environments.skirmish.drawn import battle_named
from shoal.environments.skirmish.maps import MAPS, Group, Map
from shoal.environments.skirmish.tasks import _last, battle_on, make
from shoal.errors import InputError
from shoal.sides.sides import narrowed
from shoal.training.evaluation import evaluate
from shoal.types import Scale, Step

SCRIPTS = ("random", "stop", "heuristic", "attack-nearest", "focus-fire", "kite", "hold")


@functools.cache
def programs(task: str, only: tuple[scripts.Script, ...], commanded: bool) -> tuple[State, Any]:
    """(a state [1, U], a compiled state -> actions by script and side) on a map."""
    battle = replace(battle_on(MAPS[task]), commanded=commanded)
    kinds = jnp.asarray([[battle.types.index(unit) for unit in battle.units or ()]])
    middle = jnp.full(kinds.shape, 16.0)
    start = jax.jit(lambda: begun(battle, middle, middle, kinds, jnp.zeros((1, 2))))()

    @jax.jit
    def play(s: State) -> Any:
        stats, s = battle.stats(s.kind.T), _last(s)
        state, actions = jnp.moveaxis(observe.state(battle, stats, s), -1, 0), {}
        for side in range(1 + commanded):
            legal = jnp.moveaxis(observe.legal(battle, stats, side, s), -1, 0)
            step = Step(state, state, legal, legal[..., 0], state, state, state, state)
            for script in only:
                actions[script, side] = scripts.chosen(battle, script, step, jax.random.key(0), (side,))
        return actions

    return start, play


def chosen(
    task: str, script: Any, places: list[tuple[float, float]], side: int | None = None, **changes: Any
) -> np.ndarray:
    """The actions of a script with units at these places; ``changes`` are arrays [U] of the state.

    With a ``side``, both armies are agents, and the script plays that one.
    """
    start, play = programs(task, SCRIPTS if task == "3m" else (script,), side is not None)
    places_of = dict(zip("xy", np.array(places, np.float32).T, strict=True))
    values = {name: np.asarray(value)[None] for name, value in (places_of | changes).items()}
    state = start._replace(**{name: value.astype(getattr(start, name).dtype) for name, value in values.items()})
    return np.asarray(play(state)[script, side or 0])[0]


NEAR = [(10.0, 16.0), (10.0, 17.0), (10.0, 18.0), (15.0, 16.0), (14.0, 17.0), (15.5, 18.0)]
"""Three marines, and three enemies in range of all."""


def test_attack_nearest_attacks_the_nearest_and_walks_towards_it():
    assert list(chosen("3m", "attack-nearest", NEAR)) == [7, 7, 7]
    far = [*NEAR[:3], (20.0, 16.0), (21.0, 17.0), (22.0, 18.0)]
    assert list(chosen("3m", "attack-nearest", far)) == [EAST] * 3


def test_attack_nearest_keeps_its_target_while_it_lives():
    kept: dict[str, Any] = {"action": np.array([6, 8, 7])}
    assert list(chosen("3m", "attack-nearest", NEAR, **kept)) == [6, 8, 7]
    health = np.array([45.0, 45, 45, 45, 45, 0])
    assert list(chosen("3m", "attack-nearest", NEAR, health=health, **kept)) == [6, 7, 7]


def test_focus_fire_attacks_the_weakest_in_range():
    health = np.array([45.0, 45, 45, 45, 40, 12])
    assert list(chosen("3m", "focus-fire", NEAR, health=health)) == [8, 8, 8]


def test_shields_count_as_health():
    places = [*[(10.0, 14.0 + i) for i in range(5)], *[(14.0, 14.0 + i) for i in range(5)]]
    shield = np.array([80.0, 80, 50, 50, 50, 0, 80, 50, 50, 50])
    assert list(chosen("2s3z", "focus-fire", places, shield=shield)) == [6] * 5


def test_kite_walks_away_while_the_weapon_is_not_ready():
    places = [(10.0, 16.0), (10.0, 20.0), (10.0, 12.0), (12.0, 16.0), (12.0, 20.0), (12.0, 12.0)]
    cooldown = np.array([9.0, 0, 9.0, 0, 0, 0])
    assert list(chosen("3s_vs_3z", "kite", places, cooldown=cooldown)) == [WEST, 6, WEST]


def test_hold_attacks_only_what_its_weapon_reaches():
    places = [(10.0, 16.0), (10.0, 17.0), (10.0, 18.0), (15.9, 16.0), (25.0, 17.0), (25.0, 18.0)]
    assert list(chosen("3m", "hold", places)) == [STOP] * 3  # 5.9 apart is legal, but 5 + 2 · 0.375 is the reach
    places[3] = (15.7, 16.0)
    assert list(chosen("3m", "hold", places)) == [6, STOP, STOP]


MIRROR: dict[str, Any] = {
    "3m": {"places": NEAR, "health": np.array([45.0, 45, 45, 45, 40, 12]), "action": np.array([6, 8, 7, 8, 8, 6])},
    "3s5z": {
        "places": [*[(10.0, 12.0 + i) for i in range(8)], *[(12.0 + i % 3, 11.5 + i) for i in range(8)]],
        "cooldown": np.array([9.0, 0, 9, 9, 9, 0, 0, 9, 9, 9, 0, 0, 0, 0, 9, 9]),
        "shield": np.array([80.0, 70, 80, 50, 3, 50, 50, 50, 80, 0, 80, 50, 50, 40, 50, 50]),
    },
    "MMM": {
        "places": [*[(10.0, 12.0 + i) for i in range(10)], *[(20.0 - i, 12.3 + i) for i in range(10)]],
        "health": np.array([100.0, 125, *[45.0] * 6, 20, 150, *[125.0] * 2, *[45.0] * 7, 150]),
    },
}
"""Units of two equal armies, and what differs from the start of an episode."""


@pytest.mark.parametrize("script", ["heuristic", "attack-nearest", "focus-fire", "kite", "hold"])
@pytest.mark.parametrize("task", MIRROR)
def test_either_side_is_played_alike(task: str, script: str) -> None:
    """With the sides exchanged on the mirror image of the map, a script chooses the same actions."""
    arrays = dict(MIRROR[task])
    arrays.setdefault("action", np.full(len(arrays["places"]), -1))
    images = [(32.0 - x, y) for x, y in arrays.pop("places")]
    half = len(images) // 2
    exchanged = {name: np.roll(values, half) for name, values in arrays.items()}
    for side in (0, 1):
        expected = chosen(task, script, MIRROR[task]["places"], side, **arrays)
        found = chosen(task, script, images[half:] + images[:half], 1 - side, **exchanged)
        assert list(found) == list(expected), side
    without = {name: values[:half] if name == "action" else values for name, values in arrays.items()}
    assert list(chosen(task, script, MIRROR[task]["places"], 0, **arrays)) == list(
        chosen(task, script, MIRROR[task]["places"], **without)
    )


def test_scripts_play_each_other() -> None:
    """On a map of two equal armies, from one program for both sides and from one for each."""
    env = make("3m", both=True)
    apart = algorithms.get("scripted+scripted")
    scale = Scale(1, 1, 1)
    config = apart.Config(side1=scripts.Config("focus-fire"), side2=scripts.Config("attack-nearest"))
    won = {}
    for name, algorithm in (
        ("focused", apart.make(env.spec, config, scale)),
        ("alike", scripts.make(env.spec, scripts.Config("attack-nearest"), scale)),
    ):
        learner = jax.tree.map(lambda x: x[None], algorithm.init(jax.random.key(0)))
        found = evaluate(env, algorithm, learner, jax.random.key(0), 512).metrics
        won[name] = found["won"].mean() - found["lost"].mean()
    # A standard deviation of 512 battles is 0.044. From 512 others: 0.45 for focused fire, and no difference alike.
    assert won["focused"] > 0.3 and abs(won["alike"]) < 0.15


def test_medivacs_heal_the_nearest_hurt_unit():
    allies = [(10.0, 12.0 + i) for i in range(10)]
    health = np.array([100.0, 125, *[45.0] * 6, 20, 150, *[125.0] * 2, *[45.0] * 7, 150])
    actions = chosen("MMM", "attack-nearest", [*allies, *[(28.0, 12.0 + i) for i in range(10)]], health=health)
    assert actions[9] == 6 + 8 and set(actions[:9]) == {EAST}


def test_the_dead_do_nothing():
    health = np.array([0.0, 45, 45, 45, 45, 45])
    for script in SCRIPTS:
        assert chosen("3m", script, NEAR, health=health)[0] == 0


def test_scripts_are_evaluated_as_policies_are():
    env = make("3m")
    won, killed = {}, {}
    for script in ("random", "heuristic", "focus-fire"):
        algorithm = scripts.make(env.spec, scripts.Config(script=script), Scale(1, 1, 1))  # type: ignore[arg-type]
        learner = jax.tree.map(lambda x: x[None], algorithm.init(jax.random.key(0)))
        metrics = evaluate(env, algorithm, learner, jax.random.key(0), 64).metrics
        won[script], killed[script] = metrics["won"].mean(), metrics["dead_enemies"].mean()
    assert won["random"] < 0.05 and won["focus-fire"] > 0.9
    assert killed["heuristic"] > 1.0 > killed["random"]


class Seen(NamedTuple):
    """One unit as SMAC's heuristic sees it."""

    name: str
    x: float
    y: float
    health: float
    whole: float


def orders(own: Sequence[Seen], others: Sequence[Seen], remembered: list[int | None]) -> list[int]:
    """The actions of SMAC's heuristic, agent by agent, from its description; updates ``remembered``.

    Distances that differ by rounding only are equal, and the first of the nearest units is chosen.
    """
    actions = []
    for agent, unit in enumerate(own):
        if unit.health == 0.0:
            actions.append(NO_OP)
            continue
        kept = remembered[agent]
        if unit.name == "medivac":
            targets = {k: v for k, v in enumerate(own) if v.name != "medivac" and 0.0 < v.health < v.whole}
        else:
            skipped = "medivac" if unit.name == "marauder" else ""
            targets = {k: v for k, v in enumerate(others) if v.health > 0.0 and v.name != skipped}
        if kept not in targets:
            kept, least = None, 32.0 * 2.0**0.5
            for index, target in targets.items():
                apart = ((target.x - unit.x) ** 2 + (target.y - unit.y) ** 2) ** 0.5
                if apart < least - 5e-6:
                    kept, least = index, apart
        remembered[agent] = kept
        actions.append(STOP if kept is None else MOVES + kept)
    return actions


def armies(battle: Battle, s: State, e: int) -> tuple[list[Seen], list[Seen]]:
    """Both sides of environment e of a state [E, U]."""
    kinds = [battle.types[k] for k in np.asarray(s.kind[e])]
    x, y, health = (np.asarray(v[e], np.float64).tolist() for v in (s.x, s.y, s.health))
    units = [Seen(kind.name, x[i], y[i], health[i], kind.hit_points) for i, kind in enumerate(kinds)]
    return units[: battle.num_allies], units[battle.num_allies :]


def step_of(battle: Battle, s: State) -> Step:
    """What a script reads of states [E, U]: the global state."""
    state = jnp.moveaxis(observe.state(battle, battle.stats(s.kind.T), _last(s)), -1, 0)
    legal = jnp.zeros((len(state), s.action.shape[1], max(map(battle.num_actions, battle.agent_sides))), bool)
    return Step(state, state, legal, legal[..., 0], state, state, state, state)


@pytest.mark.parametrize("task", ["MMM2", "3s5z", "terran_5_vs_5"])
def test_the_heuristic_is_smacs(task: str) -> None:
    """Beside the rule in plain Python, on random positions, hit points and last actions, for either side."""
    rng, count = np.random.default_rng(0), 24
    battle = battle_on(MAPS[task]) if task in MAPS else battle_named(task)
    assert battle is not None
    battle = replace(battle, commanded=True)
    units = battle.num_units
    kinds = rng.integers(len(battle.types), size=(count, units))
    if battle.units is not None:
        kinds[:] = [battle.types.index(unit) for unit in battle.units]
    x, y = (jnp.asarray(rng.uniform(6.0, 26.0, (count, units))) for _ in "xy")
    s = begun(battle, x, y, jnp.asarray(kinds), jnp.zeros((count, 2)))
    widths = [[battle.num_actions(side)] * battle.counts(side)[0] for side in (0, 1)]
    s = s._replace(
        health=s.health * rng.choice([0.0, 0.4, 1.0], (count, units)),
        action=jnp.asarray(rng.integers(-1, widths[0] + widths[1], (count, units)), jnp.int32),
    )
    play = jax.jit(lambda s, key: scripts.chosen(battle, "heuristic", step_of(battle, s), key, (0, 1)))
    found = np.asarray(play(s, jax.random.key(0)))
    for e in range(count):
        allies, enemies = armies(battle, s, e)
        remembered = [k - MOVES if k >= MOVES else None for k in np.asarray(s.action[e]).tolist()]
        cut = battle.num_allies
        expected = [*orders(allies, enemies, remembered[:cut]), *orders(enemies, allies, remembered[cut:])]
        assert found[e].tolist() == expected, e


def test_the_heuristic_remembers_its_targets_and_orders_attacks_at_any_distance() -> None:
    """In battles of both sides it chooses at every step what the rule chooses that remembers its targets itself. At the
    start all enemies are out of range of the legal attacks, and the units walk to them."""
    army = (("marine", 2), ("marauder", 1), ("medivac", 1))
    groups = [tuple(Group(name, n, (x, 16.0)) for name, n in army) for x in (9.0, 23.0)]
    env, count, steps = make(Map("four", *groups, limit=100), both=True), 4, 48
    battle, batched = replace(battle_on(Map("four", *groups, limit=100)), commanded=True), env.batched
    assert batched is not None

    @jax.jit
    def run(key: jax.Array) -> Any:
        def body(now: Any, key: jax.Array) -> Any:
            state, step = now
            action = scripts.chosen(battle, "heuristic", step, key, (0, 1))
            return batched.step(key, state, action), (state, step.legal, action)

        return jax.lax.scan(body, batched.reset(key, count), jax.random.split(key, steps))[1]

    states, legal, actions = jax.tree.map(np.asarray, run(jax.random.key(0)))
    fighters = np.array([0, 1, 2, 4, 5, 6])
    assert (actions[0][:, fighters] >= MOVES).all() and (actions[0][:, [3, 7]] == STOP).all()
    assert not legal[0][..., MOVES:][:, fighters].any(), "no attack is legal yet"
    assert (states.x[4][:, :3] > states.x[0][:, :3] + 2.0).all(), "they walk to their targets all the same"
    assert (states.health[-1] == 0.0).any(1).all() and (actions[..., [3, 7]] >= MOVES).any(), "they fight, and heal"
    for e in range(count):
        remembered: list[list[int | None]] = [[None] * 4, [None] * 4]
        for t in range(steps):
            allies, enemies = armies(battle, jax.tree.map(lambda v, t=t: v[t], states), e)
            expected = [*orders(allies, enemies, remembered[0]), *orders(enemies, allies, remembered[1])]
            assert actions[t, e].tolist() == expected, (e, t)


def test_the_heuristic_takes_the_first_of_equally_near_enemies() -> None:
    places = [(10.3, 16.0), (10.3, 17.0), (10.3, 18.0), (20.1, 17.1), (20.1, 16.9), (20.1, 15.1)]
    assert list(chosen("3m", "heuristic", places)) == [7, 6, 6]
    assert list(chosen("3m", "heuristic", [*places[:3], (20.1, 18.9), (20.1, 17.1), (20.1, 16.9)]))[1] == 7


def test_a_map_with_the_name_of_another_is_not_taken_for_it() -> None:
    """Its observations and state may be as wide."""
    known = make("3m").spec
    other = replace(MAPS["3m"], enemies=(Group("hydralisk", 3, (23.0, 16.0)),))
    for variant in (other, replace(MAPS["3m"], gap=0.5), replace(MAPS["3m"], name="terran_3_vs_3")):
        spec = make(variant).spec
        assert spec == replace(known, name=f"skirmish/own:{variant.name}")
        with pytest.raises(InputError, match="not the agents of skirmish/own:"):
            scripts.make(spec, scripts.Config(), Scale(1, 1, 1))
    assert make(replace(MAPS["3m"])).spec == known and make(replace(other, name="mine")).spec.name == "skirmish/mine"


def test_other_environments_are_refused():
    from shoal.environments import registry

    mixed = narrowed(make("3m", both=True).spec, (0, 1, 2, 3))
    for spec in (registry.make("mpe/simple_spread").spec, make("8m").spec, mixed):
        if spec.name == "skirmish/8m":
            spec = narrowed(spec, (0, 1, 2))
        with pytest.raises(InputError, match="scripted plays whole armies on the maps of skirmish"):
            scripts.make(spec, scripts.Config(), Scale(1, 1, 1))
