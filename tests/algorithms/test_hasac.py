"""Whole updates of HASAC and MASAC against NumPy (naive_team.py), their draws, and their target entropies."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import hasac, masac
from shoal.equations.distributions import TanhGaussian
from shoal.networks.body import Body
from shoal.types import Box
from support.naive_team import assert_like_loops
from support.trajectories import make_spec, make_step

BASE = hasac.Config(
    network=Body((6,), activation="relu", orthogonal=False), gamma=0.9, adam_eps=0.5, learning_rate=3.0,
    critic_learning_rate=0.3, target_rate=0.1, max_grad_norm=0.6, alpha=0.4, alpha_learning_rate=0.2,
)  # fmt: skip
BOX = make_spec(action=Box(2, -2.0, 1.0), shared_reward=True)
CASES: dict[str, tuple[Any, Any]] = {
    "discrete, by role, state, fixed order": (
        make_spec(), replace(BASE, sharing="role", critic_input="state", entropy_share=0.7, order="fixed"),
    ),
    "box, five steps": (BOX, replace(BASE, n_step=5)),
    "masac, box, fixed alpha": (BOX, masac.Config(**vars(replace(BASE, adapt_alpha=False)))),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "masac" in name else ()) for name in CASES]
)
def test_two_updates_are_those_of_numpy(name: str) -> None:
    assert_like_loops(*CASES[name])


def test_densities_of_draws_are_those_of_the_unit_box_and_dead_agents_have_none() -> None:
    rng = np.random.default_rng(0)
    mean, log_std, z = (rng.normal(size=(50, 2)).astype(np.float32) for _ in range(3))
    alive = np.arange(50) > 3
    u, log_prob = jax.jit(drawn)(mean, log_std, z, alive)
    x = mean + np.exp(log_std) * z
    np.testing.assert_allclose(u[alive], np.tanh(x)[alive], rtol=1e-5)
    density = -0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(x.astype(np.float64)) ** 2)
    np.testing.assert_allclose(log_prob[alive], density.sum(-1)[alive], rtol=1e-4)
    assert (np.asarray(u)[~alive] == 0).all() and (np.asarray(log_prob)[~alive] == 0).all()


def drawn(mean: jax.Array, log_std: jax.Array, z: jax.Array, alive: jax.Array) -> tuple[jax.Array, jax.Array]:
    return hasac.soft_draw(TanhGaussian(mean, log_std, -2.0, 1.0, jnp.ones(mean.shape, bool)), z, alive)


def test_a_density_is_finite_and_has_a_gradient_at_the_edge() -> None:
    def log_prob(mean: jax.Array) -> jax.Array:
        return drawn(mean, jnp.zeros(1), jnp.zeros(1), jnp.array(True))[1]

    value, slope = jax.jit(jax.value_and_grad(log_prob))(np.array([30.0], np.float32))
    np.testing.assert_allclose(value, -0.5 * np.log(2 * np.pi) + 2 * (30 - np.log(2)), rtol=1e-5)
    np.testing.assert_allclose(slope, [2.0], rtol=1e-5)


def test_the_target_entropy_of_discrete_actions_counts_legal_ones() -> None:
    step = make_step(np.random.default_rng(0), make_spec(), (20,))
    target = jax.jit(hasac.target_entropy, static_argnums=(0, 1))
    wanted = np.asarray(target(make_spec(), 0.98, step))
    legal, alive = np.asarray(step.legal), np.asarray(step.alive)
    np.testing.assert_allclose(wanted, np.where(alive, 0.98 * np.log(legal.sum(-1)), 0), rtol=1e-5)
    box = make_step(np.random.default_rng(0), BOX, (20,))
    np.testing.assert_array_equal(target(BOX, 0.98, box), np.where(box.alive, -np.array(BOX.action_dims, float), 0))
