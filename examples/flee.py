"""A scripted opponent: the prey of ``mpe/simple_tag`` runs away from the nearest predator.

    cd examples
    shoal train mappo mpe/simple_tag --opponents flee --steps 1e6

A script is an algorithm without parameters, whose update changes nothing. As ``mappo+flee`` its options are flags
(``--side2-margin 0.8``), and ``shoal crossplay`` accepts it after ``shoal train flee mpe/simple_tag --steps 1``.
"""

from dataclasses import dataclass

import jax.numpy as jnp

from shoal.types import Algorithm, Learner

LEFT, RIGHT, DOWN, UP = 1, 2, 3, 4


@dataclass(frozen=True)
class Config:
    """Options of the script."""

    margin: float = 0.9
    """Distance from the centre beyond which the prey walks back: leaving the field costs reward."""


def make(spec, config, scale):
    """The script for all agents of ``spec``; opponents use the actions of their own agents only."""

    def init(key):
        return Learner({"none": jnp.zeros(1)}, (), (), (), jnp.zeros((), jnp.int32))

    def act(learner, carry, step, key, greedy):
        position, others = step.obs[..., 2:4], step.obs[..., 8:14]  # [E, N, 2] and the three others, relative
        others = others.reshape(*others.shape[:-1], 3, 2)
        nearest = jnp.argmin(jnp.linalg.norm(others, axis=-1), axis=-1)[..., None, None]
        away = -jnp.take_along_axis(others, nearest, axis=-2)[..., 0, :]
        away = jnp.where(jnp.abs(position) > config.margin, -position, away)
        x, y = away[..., 0], away[..., 1]
        sideways = jnp.where(x > 0, RIGHT, LEFT)
        upright = jnp.where(y > 0, UP, DOWN)
        return carry, jnp.where(jnp.abs(x) > jnp.abs(y), sideways, upright), {}

    def update(learner, data, key):
        return learner._replace(updates=learner.updates + 1), {}

    return Algorithm(init, lambda num_envs: (), act, update)
