"""How often the enemies of ``skirmish/…`` look for targets."""

from typing import Literal

import jax
import jax.numpy as jnp
import pytest

from shoal.environments.skirmish.battle import NO_OP, STOP
from shoal.environments.skirmish.maps import Group, Map
from shoal.environments.skirmish.tasks import make

MARINES = Map("four", (Group("marine", 2, (14.0, 16.0)),), (Group("marine", 2, (18.0, 16.0)),), 60)


@pytest.mark.parametrize(("search", "health"), [("step", 45.0), ("tick", 39.0)])
def test_an_enemy_whose_target_dies_takes_the_next_one(search: Literal["step", "tick"], health: float) -> None:
    """The first enemy kills the nearer ally in the first tick. The second, whose weapon is ready in the fourth, has no
    target until the next step, or shoots the other ally."""
    batched = make(MARINES, delay_noise=False, target_search=search).batched
    assert batched is not None
    state, _ = batched.reset(jax.random.key(0), 1)
    state = state._replace(
        x=jnp.array([[14.5, 14.0, 18.0, 18.0]]),
        y=jnp.full((1, 4), 16.0).at[0, 3].set(16.8),
        health=state.health.at[0, 0].set(1.0),
        cooldown=state.cooldown.at[0, 3].set(3.0),
    )
    after, outcome = batched.step(jax.random.key(1), state, jnp.full((1, 2), STOP))
    assert after.health[0].tolist() == [0.0, health, 45.0, 45.0]
    assert outcome.legal[0, 0, NO_OP]
