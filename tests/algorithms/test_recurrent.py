"""Chunks: trained on pieces of a trajectory, recurrent nets start each from the state they really were in."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.learning import sgd
from shoal.models.actor_critic import Carry
from shoal.networks.body import Body
from shoal.types import Scale
from support import naive
from support.algorithm_cases import BASE
from support.trajectories import acted, compiled, make_spec, make_trajectory, program

LENGTH, ENVS = 4, 2
SPEC = make_spec()
CONFIG = replace(
    BASE,
    network=Body((4,), recurrent=4, orthogonal=False),
    clip=1e-5,
    value_clip=None,
    huber=None,
    value_norm="none",
    normalise_advantage="none",
    epochs=1,
)
FIRST = np.array([[False, True], [True, False], [False, True], [False, False]])
"""Environment 0 starts an episode within a chunk of two, environment 1 at the first moment and between two chunks."""


def chunked(length, kind):
    return program(SPEC, replace(CONFIG, chunk_length=length, critic_input=kind), Scale(ENVS, LENGTH, 10))


@cache
def recorded(kind):
    """A trajectory as acting makes it, from states that are not zero."""
    prog = chunked(LENGTH, kind)
    rng = np.random.default_rng(3)
    carry = jax.tree.map(lambda x: jnp.array(rng.normal(size=x.shape), jnp.float32), prog.algorithm.initial_carry(ENVS))
    traj = make_trajectory(SPEC, 5, carry, LENGTH, ENVS)
    return acted(prog, prog.learner, traj._replace(step=traj.step._replace(first=jnp.array(FIRST))))


@cache
def values_and_targets(kind):
    """What naive loops say of the values on that trajectory."""
    prog = chunked(LENGTH, kind)
    c = replace(CONFIG, critic_input=kind)
    traj, critic = naive.to_numpy(recorded(kind)), naive.to_numpy(prog.learner.critic)
    value = naive.values(SPEC, c, critic, traj.step, traj.carry.critic)
    following = naive.next_values(SPEC, c, critic, traj.step, traj.outcome, traj.carry.critic)
    expected = naive.mask_dead_values(SPEC, value, traj.step.alive)
    following = naive.mask_dead_values(SPEC, following, traj.outcome.alive)
    return (value, *naive.gae(c, expected, following, traj.outcome))


@pytest.mark.parametrize(
    ("length", "kind"), [(1, "local"), (2, "local"), (4, "local"), (2, "concat")], ids=lambda x: str(x)
)
def test_chunks_of_any_length_start_from_the_recurrent_state_of_acting(length, kind):
    """Before any gradient step, every ratio is one and every value that of the unbroken sequence."""
    prog, traj = chunked(length, kind), recorded(kind)
    _, metrics = prog.update(prog.learner, traj, jax.random.key(1))
    assert metrics["clip_fraction"] == 0 and metrics["kl"] < 1e-9
    value, advantage, target = values_and_targets(kind)
    alive = np.asarray(traj.step.alive)
    np.testing.assert_allclose(metrics["policy_loss"], -advantage[alive].mean(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], (0.5 * (value - target) ** 2)[alive].mean(), rtol=1e-4)


def test_recurrent_states_affect_the_outputs():
    prog, traj = chunked(2, "local"), recorded("local")
    for net in Carry._fields:
        lost = traj.carry._replace(**{net: jax.tree.map(jnp.zeros_like, getattr(traj.carry, net))})
        _, metrics = prog.update(prog.learner, traj._replace(carry=lost), jax.random.key(1))
        if net == "actor":
            assert metrics["clip_fraction"] > 0
        else:
            value, _, target = values_and_targets("local")
            right = (0.5 * (value - target) ** 2)[np.asarray(traj.step.alive)].mean()
            assert abs(metrics["value_loss"] - right) > 1e-3


@pytest.mark.parametrize("kind", ["local", "concat"])
def test_acting_carries_actor_and_critic_into_the_next_roll_out(kind):
    prog, traj = chunked(LENGTH, kind), recorded(kind)
    act = compiled(prog.algorithm.act, static_argnums=4)
    carry, critic, actor = traj.carry, naive.to_numpy(prog.learner.critic), naive.to_numpy(prog.learner.policy.actor)
    for t in range(LENGTH):
        carry, _, _ = act(prog.learner, carry, jax.tree.map(lambda x, t=t: x[t], traj.step), jax.random.key(t), False)
    steps = naive.to_numpy(traj.step)
    critic_reads = naive.features(SPEC, steps, kind, True)
    for i, x in enumerate(naive.features(SPEC, steps, "local", True)):
        for params, own, got in ((actor, x, carry.actor), (critic, critic_reads[i], carry.critic)):
            team = got.ndim == 2
            before = np.asarray(traj.carry.critic if team else traj.carry[params is critic][:, i], np.float64)
            params = naive.of_policy(params, 0)
            linear = {**params, "head": {"kernel": np.eye(4), "bias": np.zeros(4)}}
            want = naive.forward(linear, own, before, steps.first)[-1]
            np.testing.assert_allclose(got if team else got[:, i], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 6])
def test_chunks_are_cut_from_one_environment_in_order_of_time(length):
    """The number 10·t + e marks each moment; the state after it carries the same number."""
    number = 10 * np.arange(6)[:, None] + np.arange(2)
    chunks = np.asarray(sgd.items(jnp.array(number), length))
    starts = np.asarray(sgd.chunk_starts(jnp.array([-10, -9]), jnp.array(number), length))
    assert chunks.shape == (12 // length, length) and starts.shape == (12 // length,)
    assert sorted(chunks.ravel()) == sorted(number.ravel())
    for chunk, start in zip(chunks, starts, strict=True):
        assert list(np.diff(chunk)) == [10] * (length - 1)
        assert start == chunk[0] - 10


def test_a_deployed_policy_acts_without_its_critic():
    prog, traj = chunked(4, "local"), recorded("local")
    act = compiled(prog.algorithm.act, static_argnums=4)
    step = jax.tree.map(lambda x: x[0], traj.step)
    whole = act(prog.learner, traj.carry, step, jax.random.key(0), False)
    bare = prog.learner._replace(critic=(), optimiser=(), statistics=())
    carry, action, extras = act(bare, traj.carry, step, jax.random.key(0), False)
    np.testing.assert_array_equal(carry.actor, whole[0].actor)
    np.testing.assert_array_equal(carry.critic, traj.carry.critic)
    np.testing.assert_array_equal(action, whole[1])
    np.testing.assert_array_equal(extras["log_prob"], whole[2]["log_prob"])
    act(bare, Carry(traj.carry.actor, ()), step, jax.random.key(0), False)
