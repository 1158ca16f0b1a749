"""Units of ``skirmish/…`` against closed forms of the game's numbers: movement, weapons, damage, regeneration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish.battle import MOVES, STOP, multiplayer
from shoal.environments.skirmish.maps import Group, Map
from shoal.environments.skirmish.tasks import battle_on, make
from support.skirmish_oracle import RANGES
from support.skirmish_scenes import FACTS, NAMES, STEPS, TICKS, Played, Scene, beside, play, shots, strength, struck

PAIRS = [(a, b) for a in NAMES for b in NAMES if FACTS[a].damage]
STEP = 0.5
"""Seconds."""


@pytest.fixture(scope="module")
def duels() -> dict[tuple[str, str], Played]:
    """Every armed type attacks every type, which stands still."""
    scenes = [
        Scene(
            {a: (10.0, 10.0), f"enemy {b}": beside(a, b), "marine": (30.0, 30.0)} | {a: (10.0, 10.0)},
            {a: f"attack {b}"},
        )
        for a, b in PAIRS
    ]
    return dict(zip(PAIRS, play(scenes), strict=True))


@pytest.mark.parametrize("attacker", [name for name in NAMES if FACTS[name].damage])
def test_damage_of_each_weapon_to_each_type(attacker: str, duels: dict[tuple[str, str], Played]) -> None:
    for victim in NAMES:
        own, other, played = FACTS[attacker], FACTS[victim], duels[attacker, victim]
        health, shield, hurt = other.health, other.shield, -999
        fired, damage, expected = shots(own.cooldown), strength(attacker, victim), [(health, shield)]
        for tick in range(STEPS * TICKS):
            if tick in fired and damage and health:
                health, shield = struck(health, shield, other.armour, damage, own.hits)
                hurt = tick
            health = min(health + other.regeneration / 16, other.health) if health else 0.0
            shield = min(shield + (tick - hurt >= 160) / 8, other.shield) if health else 0.0
            if tick % TICKS == TICKS - 1:
                expected.append((health, shield))
        found = np.stack([played.of(f"enemy {victim}", part) for part in ("health", "shield")], 1)
        np.testing.assert_allclose(found, expected, atol=2e-3, err_msg=f"{attacker} attacks {victim}")


def test_a_marine_needs_eight_shots_for_a_marine(duels: dict[tuple[str, str], Played]) -> None:
    # The shots fall on ticks 0, 13, 27, 41, 55, 68, 82 and 96: the last is in the 13th step.
    health = duels["marine", "marine"].of("enemy marine", "health")
    assert health[:15].tolist() == [45, 39, 33, 33, 27, 27, 21, 15, 15, 9, 9, 3, 3, 0, 0]


def test_weapons_of_multiplayer_games() -> None:
    """Only the weapons differ, and all that agents observe stays the same."""
    table = {
        "marine": {"scan": (5, 5.5)},
        "marauder": {"scan": (6, 6.5)},
        "stalker": {"damage": (10, 13), "armoured_bonus": (4, 5), "cooldown": (23.04, 29.92), "scan": (6, 6.5)},
        "colossus": {
            "damage": (20, 10),
            "light_bonus": (0, 5),
            "reach": (6, 7),
            "cooldown": (35.2, 24),
            "scan": (6, 7.5),
        },
        "hydralisk": {"cooldown": (13.28, 13.2), "scan": (5, 5.5)},
        "spine_crawler": {"cooldown": (25.6, 29.6)},
    }
    groups = tuple(Group(name, 1, (16.0, 16.0)) for name in NAMES)
    battle = battle_on(Map("zoo", groups, groups, 60, "open", None))
    kind = np.arange(len(NAMES), dtype=np.int32)[:, None]
    both = [each.stats(jnp.asarray(kind))._asdict() for each in (battle, multiplayer(battle))]
    for name in both[0]:
        found = [np.broadcast_to(stats[name], (2 * len(NAMES), 1))[:, 0] for stats in both]
        for i, unit in enumerate(2 * NAMES):
            had, has = table.get(unit, {}).get(name, (found[0][i],) * 2)
            assert (found[0][i], found[1][i]) == pytest.approx((had, has)), (unit, name)
    reach = dict(zip(NAMES, both[0]["legal_reach"][:, 0].tolist(), strict=False))
    ordered = {name: max(reach[name], 2.0) for name in RANGES}
    assert ordered == {name: far for name, (far, _) in RANGES.items()}, "SMACv2's, whatever the weapon's range"
    for task in ("1c3s5z", "zerg_5_vs_5"):
        assert make(task, weapons="multiplayer").spec == make(task).spec


@pytest.mark.parametrize(("race", "kinds"), [(None, ()), ("protoss", (0, 0))])
def test_the_option_weapons_reaches_battles_on_maps_and_of_drawn_armies(
    race: str | None, kinds: tuple[int, ...]
) -> None:
    """A stalker's first shot at a stalker, and when it is ready again."""
    facing = (Group("stalker", 1, (13.0, 16.0)),), (Group("stalker", 1, (16.0, 16.0)),)
    task = "protoss_1_vs_1" if race else Map("two", *facing, 60, "open")
    batched = make(task, weapons="multiplayer", delay_noise=False, both=True).batched
    assert batched is not None
    state, _ = jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 1)
    if race:
        x = jnp.array([[13.0, 16.0]])
        unhurt = jnp.full((1, 2), 80.0)
        state = state._replace(x=x, y=x * 0 + 16, kind=jnp.array([kinds]), health=unhurt, shield=unhurt)
    after, _ = jax.jit(batched.step)(jax.random.key(0), state, jnp.array([[MOVES, STOP]]))
    assert after.shield[0].tolist() == [80, 80 - 18] and after.cooldown[0, 0] == pytest.approx(1.87 * 16 - 8, abs=1e-4)


def flown(seconds: np.ndarray) -> np.ndarray:
    """The way of a medivac that began to fly so long ago: it accelerates evenly to its speed, and then keeps it."""
    speed, acceleration = FACTS["medivac"].speed, 2.3125
    growing = np.minimum(seconds, speed / acceleration)
    return acceleration * growing**2 / 2 + speed * (seconds - growing)


def test_free_movement() -> None:
    """Turns do not change the speed."""
    scenes = [
        Scene({name: (16.25, 15.5)}, {name: ["north", "east", "south", "south", "west", "stop"]}) for name in NAMES
    ]
    for name, played in zip(NAMES, play(scenes), strict=True):
        times = STEP * np.arange(6)
        pace = np.diff(flown(times) if name == "medivac" else FACTS[name].speed * times)
        ways = np.array([(0, 1), (1, 0), (0, -1), (0, -1), (-1, 0)]) * pace[:, None]
        steps = np.concatenate([np.zeros((1, 2)), ways, np.zeros((2, 2))])
        np.testing.assert_allclose(played.path(name)[:8], np.array([16.25, 15.5]) + np.cumsum(steps, 0), atol=2e-4)
    assert FACTS["marine"].speed * STEP == 1.125 and flown(np.array(0.5)) == 2.3125 / 8


def test_a_medivac_that_has_stopped_accelerates_again() -> None:
    """It has arrived where it can heal, stops at once, and starts at speed 0 in another direction."""
    orders = ["heal marine"] * 8 + ["east", "east", "stop", "east", "north"]
    flies = Scene({"medivac": (10.0, 10.0), "marine": (16.0, 10.0)}, {"medivac": orders}, {("marine", "health"): 1.0})
    played = play([flies])[0]
    path, pace, health = played.path("medivac"), played.of("medivac", "pace"), played.of("marine", "health")
    near = 16.0 - 4.0 - 0.375 - 0.75
    np.testing.assert_allclose(path[:3, 0], 10 + np.minimum(flown(STEP * np.arange(3)), near - 10), atol=2e-3)
    np.testing.assert_allclose(path[3:9, 0], near, atol=2e-3)
    assert (health[:2] == 1).all() and health[4] > 4, "it heals from where it has arrived"
    assert pace[1] == pytest.approx(2.3125 / 2 / 16, abs=1e-5) and not pace[3:9].any() and not pace[11]
    ways = flown(STEP * np.arange(3))
    np.testing.assert_allclose(path[9:13, 0] - near, ways[[1, 2, 2, 2]] + [0, 0, 0, ways[1]], atol=2e-3)
    np.testing.assert_allclose(path[13] - path[12], [0.0, ways[2] - ways[1]], atol=2e-4)
    assert not np.delete(played.state.pace, 2, axis=1).any(), "all others reach their speed at once"


def test_an_attack_on_a_distant_target_walks_to_it_and_stop_does_nothing() -> None:
    names = ["marine", "zealot", "stalker", "baneling", "colossus"]
    scenes = [Scene({name: (6.0, 10.0), "enemy marauder": (20.0, 10.0)}, {name: "attack marauder"}) for name in names]
    idle = Scene({"marine": (9.0, 10.0), "enemy marine": (11.0, 10.0), "zealot": (11.0, 10.9)})
    *walks, still = play([*scenes, idle])
    for name, played in zip(names, walks, strict=True):
        own, other = FACTS[name], FACTS["marauder"]
        near = own.radius + other.radius + own.reach
        walked = np.minimum(own.speed * STEP * np.arange(STEPS + 1), 14.0 - near)
        path, health = played.path(name), played.of("enemy marauder", "health")
        np.testing.assert_allclose(path[:, 0] - 6.0, walked, atol=2e-2)
        np.testing.assert_allclose(path[:, 1], 10.0, atol=1e-4)
        arrived = int(np.ceil((14.0 - near) / (own.speed * STEP)))
        assert (health[:arrived] == 125).all() and health[arrived + 1] < 125
    for unit in ("marine", "enemy marine", "zealot"):
        assert np.ptp(still.path(unit), axis=0).max() == 0 and np.ptp(still.of(unit, "health")) == 0
    assert (still.of("enemy marine", "shot") == -1).all() and (still.of("marine", "target") == -1).all()


def test_a_hit_passes_what_the_shield_leaves() -> None:
    """Of two hits of 8, armour is subtracted from those that pass the shield."""
    shields = [0.0, 2.0, 4.0, 7.0, 7.6, 8.0, 10.0, 15.0, 16.0, 17.0]
    scenes = [
        Scene(
            {"zealot": (10.0, 10.0), "enemy stalker": beside("zealot", "stalker")},
            {"zealot": ["attack stalker", "stop"]},
            {("enemy stalker", "shield"): shield},
        )
        for shield in shields
    ]
    for shield, played in zip(shields, play(scenes), strict=True):
        found = [played.of("enemy stalker", part)[1] for part in ("health", "shield")]
        np.testing.assert_allclose(found, struck(80, shield, 1, 8, 2))
    assert [struck(80, shield, 1, 8, 2)[0] for shield in (10, 2, 0)] == [75, 68, 66]


def test_regeneration_of_shields_and_of_zerg() -> None:
    once = Scene(
        {"marine": (10.0, 10.0), "enemy stalker": (14.0, 10.0)},
        {"marine": ["attack stalker", "stop"]},
        {("enemy stalker", "shield"): 60.0, ("enemy stalker", "health"): 50.0},
    )
    zerg = ("zergling", "baneling", "hydralisk", "spine_crawler")
    hurt = Scene(
        {name: (4.0 * i + 2, 4.0) for i, name in enumerate(NAMES)}, {}, {(name, "health"): 28.0 for name in NAMES}
    )
    first, second = play([once, hurt])
    ticks = TICKS * np.arange(1, STEPS + 1)
    # The shot is in tick 0; ten seconds later, from tick 160 on, the shield gains two points a second.
    np.testing.assert_allclose(first.of("enemy stalker", "shield")[1:], 54 + np.maximum(ticks - 160, 0) / 8, atol=1e-3)
    assert (first.of("enemy stalker", "health") == 50).all()
    for name in NAMES:
        gain = 0.2734 * STEP * np.arange(STEPS + 1) if name in zerg else 0.0
        np.testing.assert_allclose(second.of(name, "health"), np.minimum(28 + gain, FACTS[name].health), atol=1e-3)
    assert second.of("baneling", "health")[-1] == 30
