from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import mappo
from shoal.equations.normalise import Running
from shoal.models import on_policy
from shoal.models.actor_critic import Policy, make_critic
from shoal.networks.body import Body
from shoal.networks.inputs import Inputs
from shoal.types import Learner
from support.trajectories import (
    FEED_FORWARD,
    E,
    N,
    T,
    assert_trees_equal,
    compiled,
    make_spec,
    make_step,
    make_trajectory,
)

RNG = np.random.default_rng(0)
ALIVE = RNG.random((T, E, N)) > 0.3
# Agents whose returns lie far apart, and garbage where nobody is alive.
TARGET = np.where(ALIVE, RNG.normal(size=(T, E, N)) * [1, 3, 9] + [0, 20, -50], 1e4).astype(np.float32)
BODY = Body((4,), orthogonal=False)

CRITICS: dict[str, tuple[Any, tuple[int, ...], bool, tuple[int, ...]]] = {
    "one for all": ("state", (0, 1, 2), True, (0, 0, 0)),
    "one output per agent": ("concat", (0, 0, 0), False, (0, 1, 2)),
    "shared": ("local", (0, 0, 0), False, (0, 0, 0)),
    "by role": ("local", (0, 0, 1), False, (0, 0, 1)),
    "independent": ("local", (0, 1, 2), True, (0, 1, 2)),
    "out of order": ("agent", (1, 0, 1), False, (1, 0, 1)),
}


def members(group, g):
    return [i for i, other in enumerate(group) if other == g]


@pytest.mark.parametrize("kind", ["running", "popart"])
@pytest.mark.parametrize("name", CRITICS)
def test_statistics_are_those_of_each_group_and_popart_moves_no_prediction(kind, name):
    source, index, shared_reward, group = CRITICS[name]
    spec = make_spec(shared_reward=shared_reward)
    critic = make_critic(spec, BODY, source, index, True)
    assert critic.group_of == group
    scale = on_policy.scale_of_agents(kind, group, 0.9)
    params = compiled(critic.init)(jax.random.key(0))
    step = make_step(np.random.default_rng(1), spec, (T, E))
    values = compiled(lambda params: critic.values(params, critic.initial_carry(E), step)[1])

    new, moved = scale.update(scale.init(), params, jnp.array(TARGET), jnp.array(ALIVE))
    for g in range(max(group) + 1):
        seen = TARGET[..., members(group, g)][ALIVE[..., members(group, g)]].astype(np.float64)
        # Debiased: the first batch counts in full, whatever the decay.
        np.testing.assert_allclose(new.mean[g], seen.mean(), rtol=1e-4)
        np.testing.assert_allclose(new.square[g], (seen**2).mean(), rtol=1e-4)
        for i in members(group, g):
            given = jnp.array(TARGET)
            np.testing.assert_allclose(
                scale.normalise(new, given)[..., i], (TARGET[..., i] - seen.mean()) / seen.std(), rtol=1e-3, atol=1e-3
            )
    np.testing.assert_allclose(scale.denormalise(new, scale.normalise(new, jnp.array(TARGET))), TARGET, rtol=1e-4)

    if kind == "running":
        assert_trees_equal(moved, params)
        return
    before = scale.denormalise(scale.init(), values(params))
    np.testing.assert_allclose(scale.denormalise(new, values(moved)), before, rtol=1e-3, atol=1e-3)
    again, moved_again = scale.update(new, moved, jnp.array(TARGET) * 3 + 1, jnp.array(ALIVE))
    assert jnp.abs(again.mean - new.mean).min() > 0.1
    np.testing.assert_allclose(scale.denormalise(again, values(moved_again)), before, rtol=1e-3, atol=2e-3)


def test_later_batches_are_averaged_with_decay():
    scale = on_policy.scale_of_agents("running", (0, 0, 0), 0.9)
    stats = scale.init()
    for batch in (1.0, 2.0, 4.0):
        stats, _ = scale.update(stats, {}, jnp.full((T, E, N), batch), jnp.ones((T, E, N), bool))
    weights = np.array([0.81, 0.9, 1.0])
    np.testing.assert_allclose(stats.mean, [weights @ [1, 2, 4] / weights.sum()], rtol=1e-5)


def test_a_batch_without_living_agents_changes_no_statistics():
    scale = on_policy.scale_of_agents("popart", (0, 0, 0), 0.9)
    critic = make_critic(make_spec(), BODY, "local", (0, 0, 0), False)
    params = compiled(critic.init)(jax.random.key(0))
    stats, moved = scale.update(scale.init(), params, jnp.array(TARGET), jnp.zeros((T, E, N), bool))
    assert_trees_equal((stats, moved), (scale.init(), params))


def test_value_norm_none_does_not_scale():
    scale = on_policy.scale_of_agents("none", (0, 1, 2), 0.9)
    stats, params = scale.update(None, {"w": 1}, jnp.array(TARGET), jnp.array(ALIVE))
    assert (scale.init(), stats, params) == (None, None, {"w": 1})
    assert_trees_equal(scale.normalise(None, jnp.array(TARGET)), TARGET)
    assert_trees_equal(scale.denormalise(None, jnp.array(TARGET)), TARGET)


@pytest.mark.parametrize("kind", ["running", "popart"])
def test_the_value_clip_compares_in_the_unit_of_the_critic_s_output(kind):
    """PopArt has just changed that unit, so the old value is V in the new one; else it is the output as it was."""
    mean, std = np.array([1.0, -20.0, 3.0], np.float32), np.array([2.0, 5.0, 0.5], np.float32)
    stats = Running(*(jnp.array(x) for x in (mean, mean**2 + std**2, np.ones(N, np.float32))))
    traj, config = make_trajectory(make_spec()), mappo.Config(value_norm=kind)
    learner = Learner(
        Policy((), Inputs()), (), (), on_policy.Statistics(stats, on_policy.init_coefficients(config)), jnp.int32(0)
    )
    now, output, target = jnp.array(TARGET), jnp.array(TARGET[::-1]), jnp.array(RNG.normal(size=(T, E, N)), jnp.float32)
    v = on_policy.TrajectoryValues(now, now, output, FEED_FORWARD)
    scale = on_policy.scale_of_agents(kind, (0, 1, 2), 0.9)
    batch = on_policy.make_batch(config, scale, learner, traj, v, jnp.zeros((T, E, N)), target)
    expected = (TARGET - mean) / std if kind == "popart" else TARGET[::-1]
    np.testing.assert_allclose(batch.value.reshape(T, E, N), expected, rtol=1e-4)
    np.testing.assert_allclose(batch.target.reshape(T, E, N), (target - mean) / std, rtol=1e-4, atol=1e-5)
