"""What holds of every step of random play on ``skirmish/2s3z``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.skirmish.fighting import acquired
from shoal.environments.skirmish.maps import MAPS
from shoal.environments.skirmish.tasks import battle_on, make
from shoal.types import Environment
from support.contract import broken_rules
from support.novel_oracle import check_novel
from support.skirmish_oracle import Rules, army
from support.skirmish_rollouts import Play, rolled, seen, table

TEXT = "2 stalker 3 zealot"
RULES = Rules(army(TEXT), army(TEXT), "band", 120)
ENVS, STEPS = 64, 72
FULL = np.array([80.0] * 2 + [100.0] * 3), np.array([80.0] * 2 + [50.0] * 3)


@pytest.fixture(scope="module")
def env() -> Environment:
    return make("2s3z")


@pytest.fixture(scope="module")
def played(env: Environment) -> Play:
    return rolled(env, ENVS, STEPS)


def test_units_stay_on_the_ground_and_within_their_strength(played: Play) -> None:
    after = played.after
    for values, most in ((after.health, FULL[0]), (after.shield, FULL[1])):
        assert (values >= 0).all() and (values <= np.tile(most, 2) + 1e-4).all()
    assert (after.y >= 8).all() and (after.y < 24).all() and (after.x >= 0).all() and (after.x < 32).all()
    assert (after.cooldown >= 0).all() and (after.calm >= 0).all()


def test_dead_units_stay_dead_and_are_not_attacked(played: Play) -> None:
    before, after = played.before, played.after
    assert not after.health[before.health <= 0].any() and (before.health <= 0).sum() > 1000
    dead = before.health <= 0
    moved = np.hypot(after.x - before.x, after.y - before.y)
    assert not moved[dead].any() and moved[~dead].max() > 1
    for units, others in ((slice(0, 5), slice(5, 10)), (slice(5, 10), slice(0, 5))):
        for name in ("target", "shot"):
            index = getattr(after, name)[..., units]
            alive = np.take_along_axis(np.asarray(before.health)[..., others], np.maximum(index, 0), -1) > 0
            assert alive[index >= 0].all()
            assert (index[dead[..., units]] == -1).all()
    assert (played.outcome.alive == (after.health[..., :5] > 0)).all()


def test_something_is_always_legal(played: Play) -> None:
    legal, alive = played.outcome.legal, played.outcome.alive
    assert legal.any(-1).all() and (legal[..., 0] == ~alive).all() and (legal[..., 1] == alive).all()
    assert not legal[~alive][:, 1:].any()


def test_play_breaks_a_rule_of_check(env: Environment, played: Play) -> None:
    """The first episode in each environment, of which many end within these steps."""
    metrics = np.asarray(played.outcome.metrics)[0]
    start = jax.tree.map(lambda x: x[0], played.step)._replace(metrics=metrics)
    whole = jax.tree.map(lambda a, b: np.concatenate([a[None], b]), start, played.outcome)
    assert broken_rules(env.spec, [jax.tree.map(lambda x, e=e: x[:, e], whole) for e in range(ENVS)]) == []


def test_steps_are_those_of_the_oracle(played: Play) -> None:
    """Also the last of an episode, which keeps its own observation."""
    ends = 0
    for e in range(6):
        for t in range(STEPS):
            before, after = table(played.before, t, e), table(played.after, t, e)
            outcome = [np.asarray(leaf)[t, e] for leaf in played.outcome]
            obs, state, legal, alive, reward, discount, first, last, metrics = outcome
            np.testing.assert_allclose(obs, RULES.obs(after, 0), atol=2e-5)
            np.testing.assert_allclose(state, RULES.state(after), atol=2e-5)
            np.testing.assert_array_equal(legal, RULES.legal(after, 0))
            np.testing.assert_allclose(reward, np.full(5, RULES.reward(before, after, 0)), atol=1e-4)
            assert not first and bool(last) == (RULES.over(after) or after.t == 120) and after.t == before.t + 1
            assert (discount == 1 - RULES.over(after)).all()
            fallen = (after.health.reshape(2, 5) <= 0).sum(1)
            assert metrics.tolist() == [RULES.won(after, 0), *fallen] and (alive == (after.health[:5] > 0)).all()
            np.testing.assert_array_equal(after.action, played.action[t, e])
            ends += bool(last)
    assert ends > 3


def test_restarts_begin_the_episodes_that_ended_and_no_others(played: Play) -> None:
    last = np.asarray(played.outcome.last)[:-1]
    assert 0.005 < last.mean() < 0.2
    for name in played.before._fields:
        then, after = getattr(played.before, name)[1:], getattr(played.after, name)[:-1]
        np.testing.assert_array_equal(then[~last], after[~last])
        np.testing.assert_array_equal(then[last], np.broadcast_to(getattr(played.before, name)[0, 0], then[last].shape))
    for now, after in zip(played.step, played.outcome, strict=True):
        start, then = np.asarray(now)[0, 0], np.asarray(now)[1:]
        np.testing.assert_array_equal(then[~last], np.asarray(after)[:-1][~last])
        np.testing.assert_array_equal(then[last], np.broadcast_to(start, then[last].shape))
    assert played.step.first[1:][last].all() and not played.step.first[1:][~last].any()


def test_returns_are_bounded_by_what_enemies_regenerate(played: Play) -> None:
    total, regenerated, checked = np.zeros(ENVS), np.zeros(ENVS), 0
    strength = [state.health[..., 5:] + state.shield[..., 5:] for state in (played.before, played.after)]
    for t in range(STEPS):
        total += played.outcome.reward[t, :, 0]
        regenerated += np.maximum(strength[1][t] - strength[0][t], 0).sum(-1)
        assert (played.outcome.reward[t] >= 0).all()
        assert (total <= 20 * (1 + regenerated / 1020) + 1e-3).all()
        ended = played.outcome.last[t]
        checked += ended.sum()
        total[ended], regenerated[ended] = 0.0, 0.0
    assert checked > 50


def test_enemies_attack_the_nearest_ally_and_keep_it_within_reach(played: Play) -> None:
    """The targets of the next tick, from every state of the play: so they do not always attack the first ally first."""
    battle, before = battle_on(MAPS["2s3z"]), played.before
    units = jax.tree.map(lambda v: jnp.moveaxis(jnp.asarray(v).reshape(ENVS * STEPS, *v.shape[2:]), 0, -1), before)
    found = jax.jit(lambda s: acquired(battle, battle.stats(s.kind), 1, s))(units)
    off_x, off_y = (np.asarray(v[..., 5:, None] - v[..., None, :5]) for v in (before.x, before.y))
    distance = np.where(before.health[..., None, :5] > 0, np.hypot(off_x, off_y), np.inf)
    radius = np.array([0.625] * 2 + [0.5] * 3)
    edge, reach = distance - radius[:, None] - radius, np.array([6.0] * 2 + [0.1] * 3)[:, None]
    scan = np.where(before.calm[..., 5:, None] < 32, 9.0, np.maximum(reach, 5.0))
    had = np.arange(5) == before.target[..., 5:, None]
    cost = np.where(had & (edge <= reach), -1.0, np.where(edge <= scan, distance, np.inf))
    expected = np.where((before.health[..., 5:] > 0) & (cost.min(-1) < np.inf), cost.argmin(-1), -1)
    assert (np.asarray(found).T.reshape(expected.shape) != expected).mean() < 1e-3, "but for rounding"
    target = np.asarray(played.after.target)[..., 5:]
    began = (target >= 0).any(2).argmax(0)
    first = np.array([target[t, e].max() for e, t in enumerate(began.tolist())])
    shares = np.bincount(first, minlength=5) / ENVS
    assert (first >= 0).all() and shares.max() < 0.7 and (shares > 0).sum() >= 3


def test_a_key_gives_one_episode(env: Environment, played: Play) -> None:
    again, other = rolled(env, ENVS, STEPS), rolled(env, ENVS, STEPS, seed=1)
    np.testing.assert_array_equal(again.after.x, played.after.x)
    np.testing.assert_array_equal(again.after.cooldown, played.after.cooldown)
    assert (other.after.x[20] != played.after.x[20]).any()


def test_the_state_holds_what_is_not_novel(env: Environment, played: Play) -> None:
    # Hardly anybody reaches the ends of the map, where moves to the east or west are not legal.
    check_novel(env.spec, seen(played.outcome), hidden=True, least=0.95)
