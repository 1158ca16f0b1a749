"""Pictures show where units are, of which type and how hurt they are, and whom they attacked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shoal.environments.skirmish import drawing
from shoal.environments.skirmish.battle import Battle, State
from shoal.environments.skirmish.drawing import (
    BLUE,
    CLIFF,
    CYAN,
    FINE,
    GREEN,
    RAISED,
    VERMILION,
    VIOLET,
    BattlePictures,
    battle_outline,
    battle_picture,
    heat,
    view_around,
    view_of,
)
from shoal.environments.skirmish.units import UNITS

Names = Sequence[str]


def battle_of(allies: Names, enemies: Names, terrain: str = "band", drawn: bool = False, **rules: Any) -> Battle:
    units = tuple(UNITS[name] for name in (*allies, *enemies))
    types = tuple(dict.fromkeys(units))
    return Battle(types, None if drawn else units, len(allies), len(enemies), terrain, limit=60, **rules)


def state_of(battle: Battle, allies: Names, enemies: Names, **changes: Any) -> State:
    """Allies in a column at x = 9, enemies at x = 14, two cells apart; leaves replaced by ``changes``."""
    units = [UNITS[name] for name in (*allies, *enemies)]
    rows = [*range(len(allies)), *range(len(enemies))]
    count = len(units)
    leaves: dict[str, Any] = {
        "x": np.array([9.0] * len(allies) + [14.0] * len(enemies)),
        "y": 12.0 + 2.0 * np.array(rows),
        "health": np.array([unit.hit_points for unit in units]),
        "shield": np.array([unit.shield for unit in units]),
        "energy": np.array([50.0 if unit.heals else 0.0 for unit in units]),
        "cooldown": np.zeros(count),
        "pace": np.zeros(count),
        "turn": np.zeros(count),
        "calm": np.full(count, 1e4),
        "target": np.full(count, -1),
        "shot": np.full(count, -1),
        "action": np.full(len(allies), -1),
        "goal": np.zeros(2),
        "kind": np.array([battle.types.index(unit) for unit in units]),
        "t": np.array(5),
    }
    leaves |= {name: np.array(value) for name, value in changes.items()}
    return State(**leaves)


def drawn(allies: Names, enemies: Names, terrain: str = "band", **changes: Any) -> np.ndarray:
    battle = battle_of(allies, enemies, terrain)
    return battle_picture(battle, state_of(battle, allies, enemies, **changes))


def count(frame: np.ndarray, colour: tuple[int, int, int]) -> int:
    """Pixels of exactly this colour on the map."""
    return int((frame[drawing.HEAD :] == colour).all(-1).sum())


def around(battle: Battle, frame: np.ndarray, x: float, y: float, reach: float) -> np.ndarray:
    """The square of the picture within ``reach`` cells of a point of the map."""
    view = view_of(battle)
    column, row = (round(part / FINE) for part in view.at(x, y))
    pixels = round(reach * view.scale / FINE)
    return frame[row - pixels : row + pixels, column - pixels : column + pixels]


TWO = (["marine", "marine"], ["marine"])


@pytest.mark.parametrize("terrain", ["band", "open", "corridor", "ravine"])
def test_a_picture_is_rgb_of_one_size(terrain: str):
    battle = battle_of(*TWO, terrain)
    first = battle_picture(battle, state_of(battle, *TWO))
    later = battle_picture(battle, state_of(battle, *TWO, x=[3.0, 8.0, 29.0], t=60))
    assert first.dtype == np.uint8 and first.ndim == 3 and first.shape[2] == 3
    assert first.shape == later.shape and 450 <= first.shape[0] <= 640 and 480 <= first.shape[1] <= 960
    assert (first != later).any()


def test_the_same_state_gives_the_same_picture():
    assert (drawn(*TWO, shot=[0, -1, 1]) == drawn(*TWO, shot=[0, -1, 1])).all()


def test_discs_have_their_true_radius_and_the_side_s_colour():
    area = np.pi * (UNITS["marine"].radius * view_of(battle_of(*TWO)).scale / FINE) ** 2
    frame = drawn(*TWO)
    assert 0.7 < count(frame, BLUE) / (2 * area) < 1.0  # the rim is darker
    assert 0.7 < count(frame, VERMILION) / area < 1.0


def test_a_dead_unit_has_a_cross_instead_of_a_disc():
    alive, dead = drawn(*TWO), drawn(*TWO, health=[45, 0, 45])
    assert 0.45 < count(dead, BLUE) / count(alive, BLUE) < 0.55
    assert count(dead, GREEN) < count(alive, GREEN)
    battle = battle_of(*TWO)
    cross = around(battle, dead, 9, 14, 0.3)
    assert len(np.unique(cross.reshape(-1, 3), axis=0)) > 1 and cross.min() > 60  # something, and faint


def test_bars_are_as_long_as_health_shield_and_energy():
    armies = (["stalker"], ["medivac"])
    whole = drawn(*armies)
    assert 0 < count(whole, VIOLET) < 0.3 * count(drawn(*armies, energy=[0, 200]), VIOLET)
    hurt = drawn(*armies, health=[40, 150], shield=[0, 0])
    assert count(whole, CYAN) > 50 and count(hurt, CYAN) == 0
    assert count(drawn(*armies, health=[80, 75]), GREEN) < count(whole, GREEN)
    assert count(hurt, GREEN) < count(whole, GREEN)
    one = [count(drawn(["zealot"], ["marine"], health=[health, 0], shield=[0, 0]), GREEN) for health in (100, 50, 5)]
    assert one[0] > 1.8 * one[1] > 3 * one[2] > 0


def test_attacks_are_lines_from_the_attacker_to_its_target():
    battle = battle_of(*TWO)
    still, fired, answered = drawn(*TWO), drawn(*TWO, shot=[0, -1, -1]), drawn(*TWO, shot=[-1, -1, 1])
    assert count(fired, BLUE) > count(still, BLUE) + 50
    assert count(answered, VERMILION) > count(still, VERMILION) + 50
    assert (around(battle, fired, 11.5, 12, 0.3) != around(battle, still, 11.5, 12, 0.3)).any()
    assert (around(battle, fired, 11.5, 13, 0.3) == around(battle, still, 11.5, 13, 0.3)).all()
    assert (around(battle, answered, 11.5, 13, 0.3) != around(battle, still, 11.5, 13, 0.3)).any()


def test_a_healer_s_line_goes_to_its_own_side():
    armies = (["medivac", "marine"], ["marine", "marine"])
    battle = battle_of(*armies)
    still, healed = drawn(*armies), drawn(*armies, shot=[1, -1, -1, -1])
    assert count(healed, GREEN) > count(still, GREEN)
    assert (around(battle, still, 11.5, 13, 1) == around(battle, healed, 11.5, 13, 1)).all()


def test_a_beam_is_as_wide_as_it_is():
    armies = (["colossus"], ["zergling"])
    battle = battle_of(*armies)
    still, fired = drawn(*armies), drawn(*armies, shot=[0, -1])
    for away, changed in ((1.2, True), (1.8, False)):
        place = (14.0, 12.0 - away, 0.1)
        assert (around(battle, still, *place) != around(battle, fired, *place)).any() == changed


def test_an_explosion_fades():
    armies = (["zealot"], ["baneling", "baneling"])
    battle = battle_of(*armies)
    place = (15.5, 12.0, 0.3)

    def light(**changes: Any) -> int:
        frame = drawn(*armies, health=[100, 0, 30], **changes)
        return int(around(battle, frame, *place).astype(int).sum())

    plain = light()
    assert light(calm=[0, 4, 0]) < light(calm=[0, 12, 0]) < light(calm=[0, 20, 0]) < plain
    assert light(calm=[0, 60, 0]) == plain  # long ago
    for calm, age in ((0, 1), (7, 1), (8, 2), (12, 2), (20, 3), (60, 0)):
        state = state_of(battle, *armies, health=[0, 0, 30], calm=[4, calm, 4])
        assert battle_outline(battle, state).moving["burst"].tolist() == [0, age, 0]


def test_types_have_letters_where_there_are_several():
    def inside(allies: Names, enemies: Names) -> np.ndarray:
        return around(battle_of(allies, enemies), drawn(allies, enemies), 9, 12, 0.2)

    alone = inside(["marine"], ["marine"])
    assert (alone == BLUE).all()
    marine, zergling = inside(["marine"], ["zergling"]), inside(["zergling"], ["marine"])
    assert (marine == 255).all(-1).any() and (marine != zergling).any()


def test_drawn_types_are_those_of_the_state():
    armies = (["marine"], ["stalker"])
    battle, fixed = battle_of(*armies, drawn=True), battle_of(*armies)
    state = state_of(battle, *armies)
    assert (battle_picture(battle, state) == battle_picture(fixed, state)).all()
    swapped = battle_picture(battle, state_of(battle, *armies, kind=[1, 0]))
    assert count(swapped, BLUE) > 2 * count(battle_picture(battle, state), BLUE)


def test_a_ravine_has_a_cliff_and_high_ground():
    frame = drawn(*TWO, terrain="ravine")
    assert count(frame, CLIFF) > 10_000 and count(frame, RAISED) > 10_000
    assert count(drawn(*TWO), CLIFF) == count(drawn(*TWO), RAISED) == 0


@pytest.mark.parametrize(
    ("health", "t", "both", "text"),
    [
        ([45, 45], 5, False, "step 5 of 60"),
        ([45, 0], 5, False, "WON at step 5 of 60"),
        ([0, 45], 5, False, "LOST at step 5 of 60"),
        ([0, 0], 5, False, "LOST at step 5 of 60"),
        ([45, 45], 60, False, "TIME at step 60 of 60"),
        ([45, 0], 60, True, "ALLIES WON at step 60 of 60"),
        ([0, 0], 5, True, "DRAW at step 5 of 60"),
    ],
)
def test_the_head_says_how_the_battle_stands(
    health: list[float], t: int, both: bool, text: str, monkeypatch: pytest.MonkeyPatch
):
    said = []
    write = "shoal.environments.skirmish.drawing.write_label"
    monkeypatch.setattr(write, lambda pen, spot, text, *rest: said.append(text))
    battle = battle_of(["marine"], ["marine"], commanded=both)
    battle_picture(battle, state_of(battle, ["marine"], ["marine"], health=health, t=t))
    assert said == [f"allies {int(health[0] > 0)} of 1", f"enemies {int(health[1] > 0)} of 1", text]


def test_a_heat_map_is_strongest_where_most_units_were():
    battle = battle_of(*TWO)
    map_of = heat(battle, np.array([[9.1, 9.1], [9.1, 20.1]]), np.array([[12.1, 12.1], [12.1, np.nan]]))
    frame = np.concatenate([np.zeros((drawing.HEAD, *map_of.shape[1:]), np.uint8), map_of])
    assert (around(battle, frame, 9.25, 12.25, 0.1) == BLUE).all()
    assert (around(battle, frame, 20.25, 12.25, 0.1) == drawing.PAPER).all()
    few = heat(battle, np.array([9.1, 9.1, 9.1, 20.1]), np.array([12.1, 12.1, 12.1, 12.1]))
    frame = np.concatenate([np.zeros((drawing.HEAD, *few.shape[1:]), np.uint8), few])
    pale = around(battle, frame, 20.25, 12.25, 0.1).astype(int)
    assert (pale > np.array(BLUE)).all() and (pale < np.array(drawing.PAPER)).all()


def test_a_video_shows_the_part_of_the_map_where_units_are() -> None:
    battle = battle_of(["stalker"], ["zealot"], terrain="open")
    states = [
        state_of(battle, ["stalker"], ["zealot"], x=[x, 20.0], y=[y, 16.0]) for x, y in ((9.0, 16.0), (12.0, 14.0))
    ]
    whole, part = view_of(battle), view_around(battle, states)
    assert part.scale > 1.5 * whole.scale
    for state in states:
        for x, y in zip(state.x, state.y, strict=True):
            across, down = (z / side for z, side in zip(part.at(x, y), part.ground.size, strict=True))
            assert 0.05 < across < 0.95 and 0.05 < down < 0.95
    draw = BattlePictures(battle).fitted(states)
    one, other = map(draw, states)
    assert one.shape == other.shape and (one != other).any()
    np.testing.assert_array_equal(BattlePictures(battle)(states[0]), battle_picture(battle, states[0]))
    edge = state_of(battle, ["stalker"], ["zealot"], x=[0.5, 31.5], y=[0.5, 31.5])
    assert view_around(battle, [edge]).ground.size == whole.ground.size, "not beyond the whole map"
