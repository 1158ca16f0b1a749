"""Jumanji's environments as device environments, with terminations separated from time limits."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.types import Environment, EnvSpec, Outline, Step


def environment(
    spec: EnvSpec,
    env: Any,
    metrics: Callable[[Any], Float[Array, " M"]] | None = None,
    outline: Callable[[Any], Outline] | None = None,
) -> Environment:
    """A Jumanji environment whose observation holds ``agents_view`` [N O] and ``action_mask`` [N A].

    The state is the concatenation of all observations. Rewards per agent are summed over the team if
    ``spec.shared_reward``; a team reward is given to each agent. Only ``reset`` uses its key: Jumanji's states carry
    their own.

    Args:
        spec: its spec.
        env: the environment, with a time limit beyond ``spec.horizon``, so that every end by itself is a termination
            (Jumanji's RobotWarehouse gives discount 0 at its time limit as well).
        metrics: state -> the values of ``spec.metrics``; None if there are none.
        outline: see :class:`Environment`.
    """
    n = spec.num_agents

    def make_step(state: Any, timestep: Any, first: bool) -> Step:
        view = timestep.observation.agents_view.astype(jnp.float32)
        earned = timestep.reward.astype(jnp.float32)
        over = timestep.last()
        return Step(
            obs=view,
            state=view.reshape(-1),
            legal=timestep.observation.action_mask,
            alive=jnp.ones((n,), bool),
            reward=jnp.broadcast_to(earned.sum(), (n,)) if spec.shared_reward else earned,
            discount=jnp.broadcast_to(jnp.where(over, 0.0, 1.0), (n,)),
            first=jnp.asarray(first),
            last=over | (state.step_count >= spec.horizon),
            metrics=() if metrics is None else metrics(state),
        )

    def reset(key: PRNGKeyArray) -> tuple[Any, Step]:
        state, timestep = env.reset(key)
        return state, make_step(state, timestep, first=True)

    def step(key: PRNGKeyArray, state: Any, action: Int[Array, " N"]) -> tuple[Any, Step]:
        state, timestep = env.step(state, action)
        return state, make_step(state, timestep, first=False)

    return Environment(spec, reset, step, _painter(env), outline=outline)


def _painter(env: Any) -> Callable[[Any], np.ndarray]:
    def paint(state: Any) -> np.ndarray:
        return np.asarray(env.render(state))[..., :3]

    return paint
