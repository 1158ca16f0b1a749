"""The attacks of one tick of ``skirmish/…``, all at once or one after the other."""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish import fighting
from shoal.environments.skirmish.battle import State
from shoal.environments.skirmish.maps import Group, Map
from shoal.environments.skirmish.tasks import make

Damage = Literal["simultaneous", "sequential"]
UNITS = ("marine", "marine", "baneling", "colossus", "marine", "zergling", "zergling", "zergling")
COUNT, STOP = 256, 1
MINES = Map(
    "order",
    (Group("marine", 2, (10.0, 16.0)), Group("baneling", 1, (8.0, 16.0)), Group("colossus", 1, (5.0, 16.0))),
    (Group("marine", 1, (14.0, 16.0)), Group("zergling", 3, (20.0, 16.0))),
    60,
    "open",
    None,
)
FULL = np.array([45.0, 45, 30, 200, 45, 35, 35, 35])


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    """(the batched form, its compiled step) for each option; with weapons of which a beam kills no zergling."""
    options: dict[str, Any] = {"both": True, "delay_noise": False, "weapons": "multiplayer"}
    made = {name: make(MINES, damage=name, **options).batched for name in get_args(Damage)}
    return {name: (batched, jax.jit(batched.step)) for name, batched in made.items() if batched is not None}


def played(
    programs: dict[str, Any],
    damage: str,
    at: dict[int, tuple[float, float]],
    health: dict[int, float],
    orders: dict[int, int],
) -> State:
    """One step in each of many environments in which only the units ``at`` live; the others stop."""
    batched, step = programs[damage]
    state, _ = jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), COUNT)
    x, y, life = (np.zeros((COUNT, len(UNITS)), np.float32) for _ in range(3))
    x[:], y[:] = 30.0, 30.0
    for unit, place in at.items():
        x[:, unit], y[:, unit], life[:, unit] = *place, health.get(unit, FULL[unit])
    action = np.zeros((COUNT, len(UNITS)), np.int32)
    for unit in at:
        action[:, unit] = orders.get(unit, STOP)
    shield = np.where(life > 0, np.asarray(state.shield), 0)
    state = state._replace(x=jnp.asarray(x), y=jnp.asarray(y), health=jnp.asarray(life), shield=jnp.asarray(shield))
    return jax.tree.map(np.asarray, step(jax.random.key(3), state, jnp.asarray(action))[0])


def test_two_that_kill_each_other_both_die_only_if_they_shoot_at_once(programs: dict[str, Any]) -> None:
    at, weak, orders = {0: (10.0, 16.0), 4: (14.0, 16.0)}, {0: 1.0, 4: 1.0}, {0: 6, 4: 6}
    dead = played(programs, "simultaneous", at, weak, orders).health[:, [0, 4]] <= 0
    assert dead.all()
    after = played(programs, "sequential", at, weak, orders)
    dead = after.health[:, [0, 4]] <= 0
    assert (dead.sum(1) == 1).all()
    assert 0.37 < dead[:, 0].mean() < 0.63, "four standard errors about a half"
    ready = after.cooldown[:, [0, 4]] == 0
    np.testing.assert_array_equal(ready, dead, err_msg="only the survivor has fired")


def test_no_unit_attacks_a_dead_unit(programs: dict[str, Any]) -> None:
    """Of two that attack a weak enemy both fire at once, and one in turn."""
    at, orders = {0: (10.0, 16.0), 1: (10.0, 17.0), 5: (14.0, 16.0)}, {0: 6 + 1, 1: 6 + 1}
    for damage, shots in (("simultaneous", 2), ("sequential", 1)):
        after = played(programs, damage, at, {5: 6.0}, orders)
        assert (after.health[:, 5] == 0).all()
        fired = after.cooldown[:, :2] > 0
        assert (fired.sum(1) == shots).all(), damage
    assert 0.37 < fired[:, 0].mean() < 0.63


def test_orders_are_random_permutations() -> None:
    order = np.asarray(fighting.turns(jax.random.key(0), (5, 2000)))
    np.testing.assert_array_equal(np.sort(order, axis=0), np.tile(np.arange(5)[:, None], 2000))
    shares = np.array([[(order[k] == unit).mean() for unit in range(5)] for k in range(5)])
    np.testing.assert_allclose(shares, 0.2, atol=0.04)


@pytest.mark.parametrize("beam", [False, True])
def test_damage_without_deaths_does_not_depend_on_the_order(beam: bool, programs: dict[str, Any]) -> None:
    at = {0: (10.0, 16.0), 1: (10.0, 17.0), 4: (14.0, 16.0), 5: (14.0, 17.0), 6: (14.0, 18.0)}
    orders = {0: 6, 1: 6 if beam else 6 + 1, 4: 6 + 1}
    if beam:
        at, orders = at | {3: (8.0, 17.0)}, orders | {3: 6 + 1}
    one, two = (played(programs, damage, at, {}, orders) for damage in get_args(Damage))
    for name in ("health", "shield", "calm", "cooldown", "x", "y", "shot"):
        np.testing.assert_allclose(getattr(two, name), getattr(one, name), atol=1e-4, err_msg=name)
    lost = FULL - one.health[0]
    # 2 · (10 + 5) for each light unit that the beam touches; a tenth of a point is regenerated.
    expected = [42.0, 30.0, 30.0] if beam else [6.0, 6.0, 0.0]
    assert lost[[4, 5, 6]] == pytest.approx(expected, abs=0.2) and lost[1] == 6.0


@pytest.mark.parametrize("damage", get_args(Damage))
def test_a_baneling_explodes_once_whoever_comes_first(damage: str, programs: dict[str, Any]) -> None:
    """It attacks a zergling while a marine kills it: it explodes in its turn, or one tick after it was killed. One
    zergling is beside it, one within 2.2 and one beyond."""
    at = {2: (10.0, 16.0), 4: (14.0, 16.0), 5: (10.8, 16.0), 6: (10.0, 18.1), 7: (10.0, 18.4)}
    after = played(programs, damage, at, {2: 6.0, 7: 35.0}, {2: 6 + 1, 4: 6 + 2})
    assert (after.health[:, [2, 5, 6]] == 0).all() and (after.health[:, 7] == 35).all()
    fired = after.cooldown[:, 4] > 0
    assert fired.all() if damage == "simultaneous" else 0.37 < fired.mean() < 0.63
    ticks = after.calm[:, 5]  # since the zergling died
    assert set(np.unique(ticks[~fired])) <= {7.0} and set(np.unique(ticks)) == (
        {7.0} if damage == "simultaneous" else {6.0, 7.0}
    )
