"""One action for ever.

    shoal train constant mpe/simple_spread --eval-episodes 1000
    shoal train constant skirmish/3m --action 1 --eval-episodes 1000
    shoal train constant mamujoco/HalfCheetah-2x3 --eval-episodes 20

With the action of standing still the score is that of a team that does nothing.
"""

from dataclasses import dataclass
from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from shoal.bounds import Bounds
from shoal.errors import InputError
from shoal.models.scripted import make_script
from shoal.types import Algorithm, Box, EnvSpec, Scale, Step


@dataclass(frozen=True)
class Config:
    """Which action."""

    action: Annotated[int, Bounds(least=0)] = 0
    """Number of the discrete action; an agent to which it is not legal takes its first legal one."""
    value: float = 0.0
    """Every dimension of a continuous action, in the environment's units. A value outside the box is moved into it."""


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """A team whose agents repeat one action, as an algorithm that learns nothing.

    Raises:
        InputError: no agent has the action.
    """
    del scale
    space = spec.action
    if not isinstance(space, Box) and config.action >= space.n:
        raise InputError(f"The actions of {spec.name} have the numbers 0 to {space.n - 1}: {config.action} is none.")

    def actions(step: Step, key: PRNGKeyArray) -> Array:
        del key
        if isinstance(space, Box):
            return jnp.where(step.legal, jnp.clip(config.value, space.low, space.high), 0.0)
        return (2 * step.legal + (jnp.arange(space.n) == config.action)).argmax(-1).astype(jnp.int32)

    return make_script(actions)
