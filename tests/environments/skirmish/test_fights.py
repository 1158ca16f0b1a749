"""Explosions, beams, healing, rewards, ends of battles and weapon noise of ``skirmish/…``, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish.maps import Group, Map
from shoal.environments.skirmish.tasks import make
from support.skirmish_scenes import FACTS, NAMES, STEPS, Played, Scene, play, strength, struck

LARGEST = sum(facts.health + facts.shield + 10 for facts in FACTS.values()) + 200
"""R of the scenes' two armies."""
GROUND = [name for name in NAMES if "flying" not in FACTS[name].attributes]


def scattered(rng: np.random.Generator, spread: float) -> dict[str, tuple[float, float]]:
    """Random places of all enemies around (16, 16)."""
    return {f"enemy {name}": tuple(rng.uniform(16 - spread, 16 + spread, 2).tolist()) for name in NAMES}


def losses(scene: Scene, played: Played, caught: dict[str, bool], attacker: str) -> None:
    """Compare the first step's damage with that of one attack on all that are caught."""
    for name in NAMES:
        facts, hits = FACTS[name], FACTS[attacker].hits
        health, shield = facts.health, facts.shield
        if caught[name]:
            health, shield = struck(health, shield, facts.armour, strength(attacker, name), hits)
        found = [played.of(f"enemy {name}", part)[1] for part in ("health", "shield")]
        regenerated = facts.regeneration / 2 if 0 < health < facts.health else 0.0
        assert found == pytest.approx([health, shield], abs=regenerated + 1e-3), (name, scene.at)


@pytest.mark.parametrize("killed", [False, True])
def test_an_explosion_hits_the_ground_within_its_radius(killed: bool) -> None:
    """Centres within 2.2 of the baneling's: when it attacks, and one tick after it was killed."""
    rng, scenes = np.random.default_rng(killed), []
    for _ in range(40):
        at = scattered(rng, 3.0) | {"baneling": (16.0, 16.0), "marine": (1.0, 1.0)}
        orders: dict[str, str | list[str]] = {"baneling": ["attack marauder", "stop"]}
        values = {("enemy marauder", "x"): 16.5, ("enemy marauder", "y"): 16.0}
        if killed:
            values |= {("baneling", "health"): 0.0, ("baneling", "cooldown"): -1.0}
        scenes.append(Scene(at, orders, values))
    for scene, played in zip(scenes, play(scenes, 4), strict=True):
        places = scene.at | {"enemy marauder": (16.5, 16.0)}
        far = {name: np.hypot(*np.subtract(places[f"enemy {name}"], (16, 16))) for name in NAMES}
        losses(scene, played, {name: name in GROUND and far[name] <= 2.2 for name in NAMES}, "baneling")
        assert not played.of("baneling", "health")[1:].any()


def test_a_killed_baneling_explodes_once_and_one_that_stops_does_not() -> None:
    shot = Scene(
        {"enemy baneling": (12.0, 10.0), "marine": (10.0, 10.0), "zealot": (12.0, 12.3)},
        {"marine": "attack baneling"},
        {("enemy baneling", "health"): 6.0},
    )
    idle = Scene({"enemy baneling": (12.0, 10.0), "marine": (12.8, 10.0)})
    first, second = play([shot, idle])
    assert first.of("marine", "health")[:9].tolist() == [45] + [10] * 8, "20 and 15 more for a light one"
    assert (first.of("zealot", "shield") == 50).all(), "2.3 away"
    assert (second.of("marine", "health") == 45).all() and (second.of("enemy baneling", "health") == 30).all()


def test_an_explosion_that_ends_a_battle_counts_in_whatever_tick_it_begins() -> None:
    """A zergling kills a baneling, which kills the zergling and a baneling, which kills a marine."""
    line = {"zergling": 10.0, "enemy baneling": 10.8, "baneling": 12.5, "enemy marine": 14.4}
    weak = {("enemy baneling", "health"): 1.0, ("baneling", "health"): 10.0, ("enemy marine", "health"): 30.0}
    scenes = [
        Scene(
            {unit: (x, 10.0) for unit, x in line.items()},
            {"zergling": "attack baneling"},
            weak | {("zergling", "cooldown"): tick + 0.5},
        )
        for tick in range(8)
    ]
    *fights, idle = play([*scenes, Scene({"marine": (10.0, 10.0), "enemy marine": (20.0, 10.0)})], 4)
    for tick, played in enumerate(fights):
        assert not played.state.health[1].any() and (played.state.cooldown[1] == 0).all(), tick
        assert played.outcome.last[0] and np.asarray(played.outcome.metrics)[0].tolist() == [0, 0, 10, 10]
        paid = np.array([1 + 30 + 20, 35 + 10 + 20]) * 20 / LARGEST
        np.testing.assert_allclose(played.outcome.reward[0, [0, len(NAMES)]], paid, atol=0.005)
    assert (np.diff(idle.of("marine", "calm")) == 8).all() and (np.diff(idle.of("marine", "health")) == 0).all()


def test_a_beam_hits_what_touches_its_rectangle() -> None:
    """2.8 long across the line of fire and 0.3 wide, centred on the target; discs touch it by their radius."""
    rng, scenes, aims = np.random.default_rng(0), [], []
    for _ in range(90):
        at, angle = scattered(rng, 2.2), rng.uniform(0, 2 * np.pi)
        target = str(rng.choice(GROUND))
        ahead = np.array([np.cos(angle), np.sin(angle)])
        at["colossus"] = tuple((np.array(at[f"enemy {target}"]) - 6.0 * ahead).tolist())
        scenes.append(Scene(at, {"colossus": [f"attack {target}", "stop"]}))
        aims.append((target, ahead))
    corners = 0
    for (target, ahead), scene, played in zip(aims, scenes, play(scenes, 4), strict=True):
        caught = {}
        for name in NAMES:
            off = np.subtract(scene.at[f"enemy {name}"], scene.at[f"enemy {target}"])
            along, across = abs(off @ ahead), abs(off @ (ahead[1], -ahead[0]))
            gap = np.hypot(max(along - 0.15, 0), max(across - 1.4, 0))
            caught[name] = name in GROUND and gap <= FACTS[name].radius
            near = max(along - 0.15, across - 1.4) <= FACTS[name].radius < gap
            corners += near and name in GROUND
        losses(scene, played, caught, "colossus")
    assert corners >= 3


def healing(health: float, most: float, energy: float, regeneration: float) -> list[tuple[float, float]]:
    """Hit points and energy after each step of a medivac beside one hurt unit."""
    working, rows = False, [(health, energy)]
    for tick in range(1, STEPS * 8 + 1):
        working = health < most and energy >= (9 / 16 / 3 if working else 5)
        if working:
            health, energy = min(health + 9 / 16, most), energy - 9 / 16 / 3
        health, energy = min(health + regeneration / 16, most), min(energy + 0.5625 / 16, 200)
        if tick % 8 == 0:
            rows.append((health, energy))
    return rows


def test_healing() -> None:
    cases = [("marine", 20.0, 50.0), ("marine", 44.0, 50.0), ("zealot", 5.0, 4.0), ("marauder", 2.0, 0.0)]
    cases += [("marauder", 2.0, 6.0), ("spine_crawler", 10.0, 50.0), ("marine", 45.0, 199.5)]
    scenes = [
        Scene(
            {"medivac": (10.0, 10.0), name: (13.0, 10.0), "enemy marine": (30.0, 30.0)},
            {"medivac": f"heal {name}"},
            {(name, "health"): health, ("medivac", "energy"): energy},
        )
        for name, health, energy in cases
    ]
    others = ("stalker", "colossus", "medivac")  # not biological
    scenes += [
        Scene({"medivac": (10.0, 10.0), name: (13.0, 10.0)}, {"medivac": f"heal {name}"}, {(name, "health"): 5.0})
        for name in others
    ]
    scenes.append(Scene({"medivac": (10.0, 10.0), "stalker": (20.0, 20.0)}, {"medivac": "heal marine"}))
    *treated, lonely = play(scenes)
    for (name, health, energy), played in zip(cases, treated, strict=False):
        facts = FACTS[name]
        found = np.stack([played.of(name, "health"), played.of("medivac", "energy")], 1)
        np.testing.assert_allclose(
            found, healing(health, facts.health, energy, facts.regeneration), atol=1e-2, err_msg=name
        )
    for name, played in zip(others, treated[len(cases) :], strict=True):
        assert (played.of(name, "health") == 5).all() and played.of("medivac", "energy")[-1] > 50
    assert not lonely.of("marine", "health").any() and np.ptp(lonely.path("medivac"), axis=0).max() == 0


def test_structures_stay_where_they_are() -> None:
    pushed = Scene(
        {"enemy spine_crawler": (13.0, 10.0), "stalker": (10.0, 10.2), "zealot": (13.1, 12.5), "marine": (13.0, 9.0)},
        {"stalker": "east", "zealot": "south", "marine": "north"},
    )
    assert np.ptp(play([pushed])[0].path("enemy spine_crawler"), axis=0).max() < 1e-4


def test_rewards_pay_no_overkill_and_nobody_wins_a_double_defeat() -> None:
    weak = {("enemy marine", "health"): 1.0, ("marine", "health"): 1.0}
    facing = {"marine": (10.0, 10.0), "enemy marine": (13.0, 10.0)}
    orders: dict[str, str | list[str]] = {"marine": "attack marine", "enemy marine": "attack marine"}
    far = {"enemy zealot": (30.0, 30.0)}
    alone = Scene({"medivac": (10.0, 10.0), "enemy medivac": (20.0, 20.0), "enemy marine": (13.0, 10.0)})
    scenes = [
        Scene(facing | far, {"marine": "attack marine"}, weak),
        Scene(facing, {"marine": "attack marine"}, weak),
        Scene(facing, orders, weak),
        alone,
        Scene({**alone.at, "marine": (29.0, 29.0)}, {"marine": "stop"}, {("enemy marine", "health"): 0.0}),
    ]
    ends = [False, True, True, True, True]
    wins = [(0, 0), (1, 0), (0, 0), (0, 1), (1, 0)]
    paid = [(11, 0), (211, 0), (11, 11), (0, 200), (200, 0)]
    for played, end, won, pay in zip(play(scenes), ends, wins, paid, strict=True):
        outcome = played.outcome
        assert bool(outcome.last[0]) == end and np.asarray(outcome.metrics)[0, :2].tolist() == list(won)
        reward = outcome.reward[0, [0, len(NAMES)]]
        np.testing.assert_allclose(reward, np.array(pay) * 20 / LARGEST, rtol=1e-5)
        assert (outcome.discount[0] == 1 - end).all()


def test_the_dead_do_nothing_and_stay_dead() -> None:
    around = {"marine": (15.5, 16.0), "zealot": (16.4, 16.0), "medivac": (16.0, 18.0), "enemy stalker": (20.0, 16.0)}
    orders: dict[str, str | list[str]] = {
        "marine": "attack marine",  # dead at (16, 16)
        "medivac": "heal marauder",
        "stalker": "attack stalker",
        "enemy zealot": "attack marine",
    }
    played = play([Scene(around, orders)])[0]
    for unit in (*around, "stalker", "enemy zealot", "enemy marine", "marauder"):
        assert np.ptp(played.of(unit, "health")) == 0 and np.ptp(played.path(unit), axis=0).max() == 0
    assert played.outcome.alive.sum(1).tolist() == [4] * STEPS


def test_weapon_noise_is_whole_ticks_from_minus_one_to_two() -> None:
    groups = (Group("marine", 2, (10.0, 16.0)),), (Group("marine", 2, (13.0, 16.0)),)
    batched = make(Map("2m", *groups, 60), both=True).batched
    assert batched is not None
    run = jax.jit(lambda key, state, action: batched.step(key, state, action)[0])
    state, _ = jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 256)
    fire = jnp.full((256, 4), 6, jnp.int32)
    first, again, other = (np.asarray(run(jax.random.key(k), state, fire).cooldown) for k in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    late = first[:, [1, 3]] - (16 * 0.8608 - 8)  # the first of each side may be dead
    np.testing.assert_allclose(late, late.round(), atol=1e-4)
    values, counts = np.unique(late.round(), return_counts=True)
    assert values.tolist() == [-1, 0, 1, 2] and counts.min() > 80, "128 of each on average"
