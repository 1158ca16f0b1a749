"""Policies that do not learn, as algorithms."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from shoal.types import Algorithm, Experience, Learner, Metrics, Step, Trajectory


def make_script(actions: Callable[[Step, PRNGKeyArray], Array]) -> Algorithm:
    """An algorithm without parameters, whose update changes nothing.

    Args:
        actions: (step [E ...], key) -> actions [E N ...].
    """

    def init(key: PRNGKeyArray) -> Learner:
        del key
        return Learner({"script": jnp.zeros(1)}, (), (), (), jnp.zeros((), jnp.int32))

    def act(
        learner: Learner, carry: Any, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[Any, Array, dict[str, Array]]:
        del learner, greedy
        return carry, actions(step, key), {}

    def update(learner: Learner, data: Trajectory | Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        del data, key
        return learner._replace(updates=learner.updates + 1), {}

    return Algorithm(init, lambda num_envs: (), act, update)
