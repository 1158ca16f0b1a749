"""Teams that play at random or repeat one action, as algorithms and as opponents."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.environments import registry
from shoal.errors import InputError
from shoal.runs.build import opponents_in
from shoal.types import Box, EnvSpec, Scale, Step

SPEC = registry.make("mpe/simple_tag").spec
LEGAL = np.array([[[1, 1, 0, 1, 0], [0, 0, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]]], bool)


def actions(name: str, spec: EnvSpec, legal: np.ndarray, **options: float) -> np.ndarray:
    """What the script does in every environment of ``legal`` [E N A]."""
    module = algorithms.get(name)
    script = module.make(spec, module.Config(**options), Scale(1, 1, 1))
    zeros, ones, flags = jnp.zeros(legal.shape[:2]), jnp.ones(legal.shape[:2]), jnp.zeros(len(legal), bool)
    step = Step(zeros[..., None], zeros, jnp.asarray(legal), ones > 0, zeros, ones, flags, flags)
    return np.asarray(script.act(script.init(jax.random.key(0)), (), step, jax.random.key(1), True)[1])


def test_random_play_is_uniform_over_the_legal_actions() -> None:
    found = actions("random", SPEC, LEGAL.repeat(4000, axis=0))
    shares = (found[..., None] == np.arange(5)).mean(0)
    np.testing.assert_allclose(shares, LEGAL[0] / LEGAL[0].sum(-1, keepdims=True), atol=0.03)
    assert not shares[~LEGAL[0]].any()


def test_one_action_is_repeated_where_it_is_legal() -> None:
    assert actions("constant", SPEC, LEGAL, action=3).tolist() == [[3, 3, 3, 2]]
    assert actions("constant", SPEC, LEGAL).tolist() == [[0, 3, 0, 2]]
    with pytest.raises(InputError, match="have the numbers 0 to 4: 5 is none"):
        actions("constant", SPEC, LEGAL, action=5)


def test_continuous_actions_are_of_the_box() -> None:
    spec = dataclasses.replace(SPEC, action=Box(2, -0.5, 2.0))
    legal = np.ones((4000, 4, 2), bool)
    drawn = actions("random", spec, legal)
    assert drawn.min() >= -0.5 and drawn.max() <= 2.0
    np.testing.assert_allclose(np.quantile(drawn, [0.0, 0.5, 1.0]), [-0.5, 0.75, 2.0], atol=0.05)
    assert (actions("constant", spec, legal[:1], value=1.5) == 1.5).all()
    assert (actions("constant", spec, legal[:1], value=-3.0) == -0.5).all()
    legal[:, 1, 1] = False  # an agent with one dimension
    for name in ("random", "constant"):
        assert not actions(name, spec, legal, **({"value": 1.5} if name == "constant" else {}))[:, 1, 1].any()


@pytest.mark.parametrize("name", ["random", "constant"])
def test_they_are_opponents(name: str) -> None:
    script, policies = opponents_in(name, SPEC).frozen_policies(SPEC)
    assert script.acts_on == "own" and jax.tree.leaves(policies)[0].shape[0] == 1
