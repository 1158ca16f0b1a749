"""How many images a network reads at once, so that memory is that of the images and not of a CNN's activations."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from shoal.types import PyTree

Found = TypeVar("Found")

IMAGE_BYTES = 2**21
"""Largest number of bytes of images in a block. What a CNN keeps for its gradient takes about 30 times as many."""


def image_blocks(step: Any) -> int:
    """Number of blocks of at most :data:`IMAGE_BYTES` of timesteps' images; 0 where observations are not bytes."""
    obs = getattr(step, "obs", None)
    return -(-obs.size // IMAGE_BYTES) if obs is not None and obs.dtype == jnp.uint8 else 0


def over_time(follow: Callable[[PyTree, Any], tuple[PyTree, Found]], carry: PyTree, steps: Any) -> Found:
    """What ``follow`` finds in all timesteps, one block of timesteps after another where they have many images.

    Args:
        follow: (recurrent state, timesteps [T ...]) -> (recurrent state after the last, what it finds [T ...]).
        carry: the recurrent state before the first timestep.
        steps: timesteps, and what belongs to them, for example their outcomes; leaves [T, ...].
    """
    length, needed = steps[0].first.shape[0], image_blocks(steps[0])
    if needed <= 1:
        return follow(carry, steps)[1]
    pieces = next(k for k in range(min(needed, length), length + 1) if length % k == 0)
    cut = jax.tree.map(lambda x: x.reshape(pieces, length // pieces, *x.shape[1:]), steps)
    _, found = jax.lax.scan(follow, carry, cut)
    return jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), found)
