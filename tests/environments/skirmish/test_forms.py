"""``skirmish/…`` one at a time and many at once, wrapped, at its step limit, and as ``shoal check`` sees it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.checking import check
from shoal.environments.skirmish.maps import Group, Map, check_map
from shoal.environments.skirmish.tasks import make
from shoal.environments.wrappers import Wrapping, wrap
from shoal.errors import InputError
from support.novel_oracle import check_novel
from support.selection import quick
from support.skirmish_rollouts import rolled, seen

MIXED = Group("stalker", 1, (13.0, 16.0)), Group("medivac", 1, (12.0, 14.0)), Group("marine", 1, (13.0, 18.0))
FACING = Group("zealot", 1, (18.0, 16.0)), Group("marine", 1, (19.0, 15.0))
SMALL = Map("small", MIXED, FACING, 30)


WRAPPED = Wrapping(frame_stack=2, agent_ids=True, time_limit=9)


@pytest.mark.parametrize("wrapping", quick([Wrapping(), WRAPPED], WRAPPED))
def test_one_at_a_time_and_many_at_once_are_the_same(wrapping: Wrapping) -> None:
    """Over episodes with restarts."""
    env, count, steps = wrap(make(SMALL, delay_noise=False), wrapping), 4, 24
    played = rolled(env, count, steps)
    actions, last = np.asarray(played.action), np.asarray(played.outcome.last)
    again, begin = jax.jit(env.step), jax.jit(env.reset)
    key, ends = jax.random.key(5), 0
    for e in range(count):
        state, step = begin(key)
        for t in range(steps):
            assert_same(step, jax.tree.map(lambda x, t=t, e=e: np.asarray(x)[t, e], played.step))
            state, step = again(key, state, jnp.asarray(actions[t, e]))
            assert_same((state, step), jax.tree.map(lambda x, t=t, e=e: x[t, e], (played.after, played.outcome)))
            if last[t, e]:
                state, step = begin(key)
                ends += 1
    assert ends >= (8 if wrapping.time_limit else 0)


def assert_same(found: Any, expected: Any) -> None:
    def same(a: Any, b: Any) -> None:
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), atol=1e-5)

    jax.tree.map(same, found, expected)


@pytest.mark.parametrize(("at_limit", "discount"), [("truncate", 1.0), ("terminate", 0.0)])
def test_the_step_limit(at_limit: Any, discount: float) -> None:
    apart = Map("apart", (Group("marine", 1, (2.0, 9.0)),), (Group("spine_crawler", 1, (28.0, 20.0)),), 3, goal=None)
    env = make(apart, at_limit=at_limit)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    step = jax.jit(env.step)
    for t in (1, 2, 3):
        state, outcome = step(jax.random.key(t), state, jnp.ones(1, jnp.int32))
        assert bool(outcome.last) == (t == 3) and float(outcome.discount[0]) == (discount if t == 3 else 1.0)
        assert np.asarray(outcome.metrics).tolist() == [0, 0, 0] and not outcome.reward.any()


def test_a_check_of_skirmish_has_no_findings() -> None:
    report = check("skirmish/3m")
    assert report.ok and {finding.level for finding in report.findings} == {"note"}, str(report)
    assert {finding.subject for finding in report.findings} == {"agent death", "seed"}, str(report)


def test_the_state_of_a_map_with_medivacs_holds_what_is_not_novel() -> None:
    env = make("MMM")
    # Hardly anybody reaches the ends of the map, where moves to the east or west are not legal.
    check_novel(env.spec, seen(rolled(env, 12, 72).outcome), hidden=True, least=0.95)


@pytest.mark.parametrize("goal", [(float("nan"), 3.0), (16,), (40.0, 16.0), "x", ((1.0, 2.0), (3.0, 99.0))])
def test_a_goal_off_the_map_is_refused(goal: Any, unchecked_annotations: None) -> None:
    del unchecked_annotations
    group = (Group("marine", 1, (10.0, 16.0)),)
    with pytest.raises(InputError, match="goal"):
        check_map(Map("own", group, group, 10, goal=goal))


def test_a_goal_may_be_one_point_in_a_tuple(unchecked_annotations: None) -> None:
    del unchecked_annotations
    goal: Any = ((12.0, 16.0),)
    state, _ = jax.jit(make(Map("own", MIXED, FACING, 10, goal=goal)).reset)(jax.random.key(0))
    assert state.goal.tolist() == [12.0, 16.0]


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (None, "allies of the map own must be a tuple of Group"),
        ((10.0, 16.0, 3.0), "place of a group must be a tuple of two numbers"),
        ([10.0, 16.0], "place of a group must be a tuple of two numbers"),
    ],
)
def test_groups_of_other_forms_are_refused(at: Any, words: str, unchecked_annotations: None) -> None:
    del unchecked_annotations
    groups: Any = ("marine",) if at is None else (Group("marine", 1, at),)
    with pytest.raises(InputError, match=words):
        make(Map("own", groups, FACING, 10))
