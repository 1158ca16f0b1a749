"""Long random play on ``skirmish/…``: walls on every terrain, and teams that do nothing or anything and never win."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish import maps
from shoal.environments.skirmish.maps import MAPS, Group, Map
from shoal.environments.skirmish.tasks import make
from support.selection import quick
from support.skirmish_rollouts import rolled

CENTRES = {
    "open": ((2.0, 2.0), (5.0, 4.0)),
    "band": ((2.0, 10.0), (4.0, 13.0)),
    "octagon": ((13.0, 14.0), (18.0, 17.0)),
    "arena_a": ((12.0, 13.0), (16.0, 14.0)),
    "arena_b": ((12.0, 13.0), (15.0, 18.0)),
    "corridor": ((10.0, 10.0), (20.0, 20.0)),
    "diagonal": ((9.0, 9.0), (13.0, 13.0)),
    "ravine": ((14.0, 16.0), (14.0, 9.0)),
}
"""Where allies and enemies start on each terrain."""
FEW = ("corridor", 24, 60)
SWEEPS = [FEW, *((name, 256, 400) for name in CENTRES)]
COLOSSUS, MEDIVAC = 7, 8


def crowd(name: str) -> Map:
    """Units of all kinds of movement that push each other beside walls."""
    ours, theirs = CENTRES[name]
    allies = (
        Group("stalker", 3, ours),
        Group("zergling", 4, ours),
        Group("colossus", 1, ours),
        Group("medivac", 1, ours),
    )
    return Map("crowd", allies, (Group("zealot", 4, theirs), Group("zergling", 6, theirs)), 60, name, ours)


@pytest.mark.parametrize(("name", "count", "steps"), quick(SWEEPS, FEW))
def test_no_unit_enters_an_unwalkable_cell(name: str, count: int, steps: int) -> None:
    """100,000 steps of random play on every terrain. Medivacs may be anywhere, colossi also on the cliff."""
    cells = maps.walkable(name)
    cliff = cells | maps.climbable(name)
    played = rolled(make(crowd(name)), count, steps)
    x, y, alive = played.after.x, played.after.y, played.after.health > 0
    assert (x >= 0).all() and (x < 32).all() and (y >= 0).all() and (y < 32).all()
    at = np.floor(x).astype(int), np.floor(y).astype(int)
    walks = np.arange(x.shape[-1]) != MEDIVAC
    free = np.where(np.arange(x.shape[-1]) == COLOSSUS, cliff[at], cells[at])
    assert free[..., walks].all()
    assert not alive.all() and np.isfinite(played.outcome.obs).all()
    assert len(np.unique(at[0][..., walks] * 32 + at[1][..., walks])) > 0.15 * cells.sum()


@pytest.mark.parametrize("name", ["8m", "2s3z", "3s5z", "5m_vs_6m"])
def test_random_play_wins_nothing(name: str) -> None:
    env = make(name)
    outcome = rolled(env, 256, env.spec.horizon).outcome
    metrics, last = np.asarray(outcome.metrics), np.asarray(outcome.last)
    assert last.any(0).all() and metrics[last][:, 0].sum() == 0


@pytest.mark.parametrize("name", [name for name in MAPS if name != "2s_vs_1sc"])
def test_a_team_that_does_nothing_is_defeated(name: str) -> None:
    """Enemies find a team that waits where it starts; the spine crawler of 2s_vs_1sc cannot walk."""
    env = make(name)
    batched = env.batched
    assert batched is not None

    @jax.jit
    def idle(state: Any) -> Any:
        def body(now: Any, key: jax.Array) -> Any:
            state, alive = now
            state, outcome = batched.step(key, state, alive.astype(jnp.int32))
            return (state, outcome.alive), (outcome, state.target)

        alive = jnp.ones((4, env.spec.num_agents), bool)
        return jax.lax.scan(body, (state, alive), jax.random.split(jax.random.key(0), env.spec.horizon - 1))[1]

    outcome, target = jax.tree.map(np.asarray, idle(jax.jit(batched.reset, static_argnums=1)(jax.random.key(0), 4)[0]))
    assert outcome.last.any(0).all() and not outcome.metrics[..., 0].any() and (outcome.discount.min((0, 2)) == 0).all()
    assert not outcome.reward.any() or "bane" in name, "banelings pay for themselves"
    if len(MAPS[name].ally_units) > 3:  # at first contact not all attack the first ally
        allies = env.spec.num_agents
        chosen = [set(row[row >= 0].tolist()) for row in target[:, 0, allies:] if (row >= 0).sum() > 1]
        assert any(len(row) > 1 for row in chosen)
