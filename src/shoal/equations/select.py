"""Choice between two states of many environments."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool


def select(condition: Bool[Array, " E"], yes: Any, no: Any) -> Any:
    """Per environment, the leaves [E, ...] of ``yes`` where ``condition`` is True and of ``no`` elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b), yes, no)
