"""Random play: each agent draws uniformly from its legal actions, or from the box of continuous ones.

    shoal train random mpe/simple_spread --eval-episodes 1000

The score is the level of no learning at all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from shoal.models.scripted import make_script
from shoal.types import Algorithm, Box, EnvSpec, Scale, Step


@dataclass(frozen=True)
class Config:
    """Random play has no options."""


def drawn(spec: EnvSpec) -> Callable[[Step, PRNGKeyArray], Array]:
    """(step [E ...], key) -> uniformly drawn actions [E N ...]."""
    space = spec.action

    def actions(step: Step, key: PRNGKeyArray) -> Array:
        noise = jax.random.uniform(key, step.legal.shape)
        if isinstance(space, Box):
            return jnp.where(step.legal, space.low + (space.high - space.low) * noise, 0.0)
        return jnp.where(step.legal, noise, -1.0).argmax(-1).astype(jnp.int32)

    return actions


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """A team that plays at random, as an algorithm that learns nothing."""
    del config, scale
    return make_script(drawn(spec))
