"""Scripted teams: what they choose in positions where the choice is clear, and what they win."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish import observe, scripts
from shoal.environments.skirmish.battle import EAST, STOP, WEST
from shoal.environments.skirmish.build import _last, begun
from shoal.environments.skirmish.maps import MAPS
from shoal.environments.skirmish.tasks import battle_on, make
from shoal.errors import InputError
from shoal.training.evaluation import evaluate
from shoal.types import Scale, Step


def chosen(task: str, script: Any, places: list[tuple[float, float]], **changes: Any) -> np.ndarray:
    """The actions of a script with units at these places; ``changes`` are arrays [U] of the state."""
    battle = battle_on(MAPS[task])
    kinds = np.array([battle.types.index(unit) for unit in battle.units or ()])[None]
    at = np.array(places)
    s = begun(battle, jnp.asarray(at[None, :, 0]), jnp.asarray(at[None, :, 1]), jnp.asarray(kinds), jnp.zeros((1, 2)))
    s = s._replace(**{name: jnp.asarray(values)[None] for name, values in changes.items()})
    stats, s = battle.stats(s.kind.T), _last(s)
    legal = jnp.moveaxis(observe.legal(battle, stats, 0, s), -1, 0)
    state = jnp.moveaxis(observe.state(battle, stats, s), -1, 0)
    step = Step(state, state, legal, legal[..., 0], state, state, state, state)
    return np.asarray(scripts.chosen(battle, script, step, jax.random.key(0)))[0]


NEAR = [(10.0, 16.0), (10.0, 17.0), (10.0, 18.0), (15.0, 16.0), (14.0, 17.0), (15.5, 18.0)]
"""Three marines, and three enemies in range of all."""


def test_attack_nearest_attacks_the_nearest_and_walks_towards_it():
    assert list(chosen("3m", "attack-nearest", NEAR)) == [7, 7, 7]
    far = [*NEAR[:3], (20.0, 16.0), (21.0, 17.0), (22.0, 18.0)]
    assert list(chosen("3m", "attack-nearest", far)) == [EAST] * 3


def test_attack_nearest_keeps_its_target_while_it_lives():
    kept = {"action": np.array([6, 8, 7])}
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

    for spec in (registry.make("mpe/simple_spread").spec, make("3m", both=True).spec):
        with pytest.raises(InputError, match="scripted plays the maps of skirmish"):
            scripts.make(spec, scripts.Config(), Scale(1, 1, 1))
