"""Schedules, adaptive coefficients, the number of gradient steps, and options that mean nothing."""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.algorithms import mappo
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.models.on_policy import Batch
from shoal.networks.body import Body
from shoal.types import Scale
from support.algorithm_cases import BASE, CASES
from support.trajectories import NUM_UPDATES, E, T, assert_trees_equal, distance, make_spec, make_trajectory, program

KEY = jax.random.key(1)


def steps_taken(learner):
    """What the optimisers have counted: every integer in their states."""
    return {int(n) for x in jax.tree.leaves(learner.optimiser) if x.dtype == jnp.int32 for n in x.ravel()}


@pytest.fixture(scope="module")
def short_run():
    """Two updates and two more after the end: the learners, and the order of rows in each epoch."""
    orders, shuffle = [], sgd.shuffle

    def spy(key, n):
        order = shuffle(key, n)
        jax.debug.callback(lambda x: orders.append(np.asarray(x)), order)
        return order

    spec = make_spec()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sgd, "shuffle", spy)
        prog = program(spec, replace(BASE, epochs=3, minibatches=2, lr_final=0.0), Scale(E, T, 2))
        learners = [prog.learner]
        for i in range(4):
            learners.append(prog.update(learners[-1], make_trajectory(spec), jax.random.fold_in(KEY, i))[0])
        jax.effects_barrier()
    return learners, orders


def test_learning_rates_reach_zero_at_the_end_of_the_run(short_run):
    learners, _ = short_run
    pairs = list(pairwise(learners))
    sizes = [(distance(a.policy.actor, b.policy.actor), distance(a.critic, b.critic)) for a, b in pairs]
    assert np.min(sizes[:2]) > 1e-4 and np.max(sizes[2:]) == 0


def test_an_update_takes_epochs_times_minibatches_steps(short_run):
    for i, learner in enumerate(short_run[0]):
        assert steps_taken(learner) == {6 * i}


def test_every_epoch_goes_through_all_rows_once_in_an_order_of_its_own(short_run):
    _, orders = short_run
    assert len(orders) == 4 * 3 and len({tuple(order) for order in orders}) == 12
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(E * T))


def test_entropy_coefficient_is_constant_or_goes_linearly_to_its_end():
    spec, config, _ = CASES["by role"]
    prog, traj = program(spec, config), make_trajectory(spec)
    for done in (0, 5, NUM_UPDATES):
        _, metrics = prog.update(prog.learner._replace(updates=jnp.int32(done)), traj, KEY)
        want = config.entropy_coef + (config.entropy_final - config.entropy_coef) * done / NUM_UPDATES
        np.testing.assert_allclose(metrics["entropy_coef"], want, rtol=1e-5)
    spec, config, _ = CASES["central"]
    prog = program(spec, config)
    _, metrics = prog.update(prog.learner._replace(updates=jnp.int32(7)), make_trajectory(spec), KEY)
    np.testing.assert_allclose(metrics["entropy_coef"], config.entropy_coef, rtol=1e-6)


@pytest.mark.parametrize(("sharpness", "direction"), [(1.0, -1), (50.0, +1)])
def test_entropy_coefficient_moves_towards_its_target_entropy(sharpness, direction):
    """The random policy's entropy lies above the target of 0.7 nats, so σ falls; a sharp one's below it: σ rises."""
    spec, config, _ = CASES["alone"]
    prog = program(spec, config)
    actor = jax.tree.map(lambda x: sharpness * x, prog.learner.policy.actor)
    learner = prog.learner._replace(policy=prog.learner.policy._replace(actor=actor))
    after, metrics = prog.update(learner, make_trajectory(spec), KEY)
    np.testing.assert_allclose(metrics["entropy_coef"], config.entropy_coef, rtol=1e-5)
    error = np.clip(config.target_entropy - metrics["entropy"], -1, 1)
    assert np.sign(error) == direction
    moved = after.statistics.coefficients.log_entropy - learner.statistics.coefficients.log_entropy
    np.testing.assert_allclose(moved, config.target_entropy_rate * error, rtol=1e-4)
    _, later = prog.update(after, make_trajectory(spec), KEY)
    np.testing.assert_allclose(later["entropy_coef"], jnp.exp(after.statistics.coefficients.log_entropy), rtol=1e-5)


def test_coefficients_without_a_target_are_constant():
    spec, config, _ = CASES["central"]
    prog = program(spec, config)
    learner, _ = prog.update(prog.learner, make_trajectory(spec), KEY)
    assert_trees_equal(learner.statistics._replace(value=()), prog.learner.statistics._replace(value=()))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31 - 1), st.sampled_from([1, 2, 3, 8, 33, 64]))
def test_shuffle_is_a_permutation(seed, n):
    np.testing.assert_array_equal(np.sort(sgd.shuffle(jax.random.key(seed), n)), np.arange(n))


def test_shuffle_moves_each_row_to_every_place():
    """Over 600 draws of 6 items, each stands 100 ± 9 times in each place."""
    orders = jax.vmap(lambda key: sgd.shuffle(key, 6))(jax.random.split(KEY, 600))
    counts = np.stack([(np.asarray(orders) == item).sum(0) for item in range(6)])
    assert np.abs(counts - 100).max() < 45


def test_minibatches_hold_each_row_once_and_weigh_one():
    """Item k carries the number k in every leaf, so rows of a minibatch that do not belong together would show."""
    items, length = 12, 2
    number = jnp.arange(items)
    rows = jnp.broadcast_to(number[:, None, None], (items, length, 3)).astype(jnp.float32)
    alive = jnp.array(np.random.default_rng(0).random((items, length, 3)) > 0.3, jnp.float32)
    fields: dict[str, Any] = dict.fromkeys(Batch._fields, rows) | {"weight": alive, "carry": rows[:, 0], "step": rows}
    batch = sgd.shuffled_minibatches(KEY, Batch(**fields), 4)
    order = np.asarray(batch.action[:, :, 0, 0], int)
    assert order.shape == (4, 3) and sorted(order.ravel()) == list(range(items))
    for name in Batch._fields:
        if name != "weight":
            leaf = np.asarray(getattr(batch, name)).reshape(4, 3, -1)
            np.testing.assert_array_equal(leaf, np.broadcast_to(order[..., None], leaf.shape))
    kept = np.asarray(alive)[order]
    np.testing.assert_allclose(batch.weight, kept / kept.sum((1, 2, 3))[:, None, None, None], rtol=1e-6)
    other = sgd.shuffled_minibatches(jax.random.key(2), Batch(**fields), 4)
    assert (np.asarray(other.action[:, :, 0, 0], int) != order).any()


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("block", [1, 5, 7, 12, 10**6])
def test_blocks_of_any_size_add_up_to_the_same_gradient(block, length, monkeypatch):
    """A block smaller than one item (3 or 6 rows here) still holds one."""
    monkeypatch.setattr(sgd, "LEAST_ROWS", 3)
    x = jnp.array(np.random.default_rng(0).normal(size=(7, length, 3)), jnp.float32)
    batch = Batch._make([x] * len(Batch._fields))

    def loss(params, part):
        value = jnp.sum(part.weight * params["w"] * jnp.square(part.action))
        return value, {"value": value}

    grad, metrics = sgd.gradient(loss, {"w": jnp.float32(2.0)}, batch, block)
    np.testing.assert_allclose(grad["w"], (x**3).sum(), rtol=1e-5)
    np.testing.assert_allclose(metrics["value"], 2 * (x**3).sum(), rtol=1e-5)


@pytest.mark.parametrize(
    ("items", "length", "blocks"), [(2048, 1, 8), (128, 16, 8), (16, 128, 2), (4, 128, 1), (8, 1, 1)]
)
def test_a_timestep_of_a_sequence_keeps_enough_rows_in_each_block(items, length, blocks):
    """Of three agents: 768 rows are eight blocks of 6,144, but a timestep has at least 24 rows where it can."""
    batch = Batch._make([jnp.ones((items, length, 3))] * len(Batch._fields))
    assert sgd.blocks(batch, 768).weight.shape == (blocks, items // blocks, length, 3)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 30), st.one_of(st.none(), st.integers(1, 45)))
def test_minibatches_that_do_not_divide_are_refused_with_a_number_that_does(length, envs, minibatches, chunk):
    scale = Scale(envs, length, NUM_UPDATES)
    if length % (chunk or 1):
        with pytest.raises(InputError, match=f"chunk_length {chunk} does not divide") as error:
            sgd.check_items(scale, minibatches, chunk)
        chunk = int(re.search(r"(\d+) would", str(error.value))[1])
    items = length // (chunk or 1) * envs
    if items % minibatches:
        with pytest.raises(InputError, match=f"do not divide into {minibatches} minibatches") as error:
            sgd.check_items(scale, minibatches, chunk)
        minibatches = int(re.search(r"(\d+) would", str(error.value))[1])
    sgd.check_items(scale, minibatches, chunk)
    assert items % minibatches == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"minibatches": 3}, r"20 timesteps per device \(5 steps × 4 environments\) .* 2 would|4 would"),
        ({"network": Body(recurrent=4), "chunk_length": 5, "minibatches": 3}, "4 chunks per device"),
        ({"network": Body(recurrent=4), "chunk_length": 2}, "chunk_length 2 does not divide .* 5 steps; 1 would"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"minibatches": 0}, "minibatches must be at least 1"),
        ({"minibatches": -2}, "minibatches must be at least 1"),
        ({"chunk_length": 0, "network": Body(recurrent=4)}, "chunk_length must be at least 1"),
        ({"block": 0}, "block must be at least 1"),
        ({"dual_clip": 0.9}, "dual_clip must be above 1"),
        ({"kl_target": 0.01}, "kl_coef, which must therefore start above 0"),
        ({"sharing": (0, 0)}, "each of the 3 agents"),
    ],
)
def test_impossible_options_are_refused_before_anything_compiles(options, said):
    with pytest.raises(InputError, match=said):
        mappo.make(make_spec(), replace(BASE, **options), Scale(E, T, NUM_UPDATES))


def test_a_state_critic_needs_an_environment_with_a_state():
    with pytest.raises(InputError, match="has no global state"):
        mappo.make(make_spec(state_dim=0), replace(BASE, critic_input="agent"), Scale(E, T, NUM_UPDATES))


def test_feed_forward_nets_need_no_chunks_that_divide():
    mappo.make(make_spec(), replace(BASE, chunk_length=3), Scale(E, T, NUM_UPDATES))
