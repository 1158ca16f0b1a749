"""Scripted teams: what they choose in positions where the choice is clear, and what they win."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.composing.sides import narrowed
from shoal.environments.skirmish import observe, scripts
from shoal.environments.skirmish.battle import EAST, STOP, WEST
from shoal.environments.skirmish.build import _last, begun
from shoal.environments.skirmish.maps import MAPS
from shoal.environments.skirmish.tasks import battle_on, make
from shoal.errors import InputError
from shoal.training.evaluation import evaluate
from shoal.types import Scale, Step


def chosen(
    task: str, script: Any, places: list[tuple[float, float]], side: int | None = None, **changes: Any
) -> np.ndarray:
    """The actions of a script with units at these places; ``changes`` are arrays [U] of the state.

    With a ``side``, both armies are agents, and the script plays that one.
    """
    battle = replace(battle_on(MAPS[task]), commanded=side is not None)
    kinds = np.array([battle.types.index(unit) for unit in battle.units or ()])[None]
    at = np.array(places)
    s = begun(battle, jnp.asarray(at[None, :, 0]), jnp.asarray(at[None, :, 1]), jnp.asarray(kinds), jnp.zeros((1, 2)))
    s = s._replace(**{name: jnp.asarray(values)[None] for name, values in changes.items()})
    stats, s = battle.stats(s.kind.T), _last(s)
    legal = jnp.moveaxis(observe.legal(battle, stats, side or 0, s), -1, 0)
    state = jnp.moveaxis(observe.state(battle, stats, s), -1, 0)
    step = Step(state, state, legal, legal[..., 0], state, state, state, state)
    return np.asarray(scripts.chosen(battle, script, step, jax.random.key(0), (side or 0,)))[0]


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


@pytest.mark.parametrize("script", ["attack-nearest", "focus-fire", "kite", "hold"])
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
    assert won["focused"] > 0.5 and abs(won["alike"]) < 0.15, "3.4 standard deviations of 512 battles"


def test_medivacs_heal_the_nearest_hurt_unit():
    allies = [(10.0, 12.0 + i) for i in range(10)]
    health = np.array([100.0, 125, *[45.0] * 6, 20, 150, *[125.0] * 2, *[45.0] * 7, 150])
    actions = chosen("MMM", "attack-nearest", [*allies, *[(28.0, 12.0 + i) for i in range(10)]], health=health)
    assert actions[9] == 6 + 8 and set(actions[:9]) == {EAST}


def test_the_dead_do_nothing():
    health = np.array([0.0, 45, 45, 45, 45, 45])
    for script in ("random", "stop", "attack-nearest", "focus-fire", "kite", "hold"):
        assert chosen("3m", script, NEAR, health=health)[0] == 0


def test_scripts_are_evaluated_as_policies_are():
    env = make("3m")
    won = {}
    for script in ("random", "focus-fire"):
        algorithm = scripts.make(env.spec, scripts.Config(script=script), Scale(1, 1, 1))  # type: ignore[arg-type]
        learner = jax.tree.map(lambda x: x[None], algorithm.init(jax.random.key(0)))
        won[script] = evaluate(env, algorithm, learner, jax.random.key(0), 64).metrics["won"].mean()
    assert won["random"] < 0.05 and won["focus-fire"] > 0.9


def test_other_environments_are_refused():
    from shoal.environments import registry

    mixed = narrowed(make("3m", both=True).spec, (0, 1, 2, 3))
    for spec in (registry.make("mpe/simple_spread").spec, make("8m").spec, mixed):
        if spec.name == "skirmish/8m":
            spec = narrowed(spec, (0, 1, 2))
        with pytest.raises(InputError, match="scripted plays whole armies on the maps of skirmish"):
            scripts.make(spec, scripts.Config(), Scale(1, 1, 1))
