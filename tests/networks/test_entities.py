"""Attention over entities: their order does not matter, and absent ones change nothing."""

import jax.numpy as jnp
import numpy as np
import pytest

from shoal.errors import InputError
from shoal.networks.architecture import Body
from shoal.networks.body import build_body
from shoal.networks.inputs import InputPart, Layout, layout_of_agents, vector_layout
from support.small_nets import apply, noise, random

K, F = 5, 3
LAYOUT = Layout((InputPart((K, F), name="enemies"), InputPart((4,), name="own"), InputPart((2, F), name="friends")))
BODY = Body(hidden=(8,), network="entities", entity_blocks=2, entity_heads=2, orthogonal=False)
NET = build_body(BODY, LAYOUT + vector_layout(2, "id"), 3)
PARAMS = noise(NET)
X = np.array(random(2, 3, LAYOUT.width + 2))
FIRST = np.zeros((2, 3), bool)


def output(x, params=PARAMS):
    return np.asarray(apply(NET, params, (), jnp.array(x), FIRST)[1])


def with_enemies(change):
    x = X.copy()
    x[..., : K * F] = change(x[..., : K * F].reshape(2, 3, K, F)).reshape(2, 3, -1)
    return x


def test_the_order_of_entities_does_not_matter():
    np.testing.assert_allclose(output(with_enemies(lambda x: x[..., [3, 1, 4, 0, 2], :])), output(X), atol=2e-5)
    assert np.abs(output(with_enemies(lambda x: x + 1)) - output(X)).min() > 1e-4


def test_kinds_of_entities_are_told_apart():
    swapped = X.copy()
    start = K * F + 4
    swapped[..., :F], swapped[..., start : start + F] = X[..., start : start + F], X[..., :F]
    assert np.abs(output(swapped) - output(X)).min() > 1e-5


def test_absent_entities_change_nothing():
    """Two of the five are absent: what is left is what a network for three gives."""

    def without(x):
        x = x.copy()
        x[..., [1, 4], :] = 0
        return x

    few = Layout((InputPart((3, F), name="enemies"), *LAYOUT.parts[1:]))
    net, x = build_body(BODY, few + vector_layout(2, "id"), 3), with_enemies(without)
    kept = x[..., : K * F].reshape(2, 3, K, F)[..., [0, 2, 3], :].reshape(2, 3, -1)
    kept = np.concatenate([kept, x[..., K * F :]], axis=-1)
    # The vectors of all agents and the embeddings come first in the layers' input, so widths are the same.
    expected = apply(net, PARAMS, (), jnp.array(kept), FIRST)[1]
    np.testing.assert_allclose(output(x), expected, atol=2e-5)


def test_outputs_are_finite_with_no_visible_entity():
    assert np.isfinite(output(np.zeros_like(X))).all()
    alone = build_body(BODY, Layout((InputPart((K, F)),)), 3)
    assert np.isfinite(apply(alone, noise(alone), (), jnp.zeros((2, 3, K * F)), FIRST)[1]).all()


def test_a_critic_reads_each_agents_entities_by_the_same_layers():
    both, one = build_body(BODY, layout_of_agents(LAYOUT, range(2)), 1), build_body(BODY, LAYOUT, 1)
    assert len(noise(both)["encoder"]["embed"]) == len(noise(one)["encoder"]["embed"]) == 2
    params, x = noise(both), np.array(random(2, 3, 2 * LAYOUT.width))
    y = apply(both, params, (), jnp.array(x), FIRST)[1]
    moved = x.copy()
    moved[..., LAYOUT.width : LAYOUT.width + K * F] = (
        x[..., LAYOUT.width : LAYOUT.width + K * F].reshape(2, 3, K, F)[..., ::-1, :].reshape(2, 3, -1)
    )
    np.testing.assert_allclose(apply(both, params, (), jnp.array(moved), FIRST)[1], y, atol=2e-5)
    moved[..., 0] += 1  # an enemy of the first agent
    assert np.abs(apply(both, params, (), jnp.array(moved), FIRST)[1] - y).min() > 1e-5


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(InputError, match="3 entity_heads do not divide the width of 8, that of the first hidden layer"):
        build_body(Body(hidden=(8,), network="entities", entity_heads=3), LAYOUT, 3)
