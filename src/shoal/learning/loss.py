"""Losses of parameters and a part of a batch, which may be the user's own."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from shoal.errors import InputError
from shoal.types import Metrics, PyTree

Loss = Callable[[PyTree, Any], tuple[Float[Array, ""], Metrics]]
"""(parameters, time-major part of a batch) -> (sum over rows times ``weight``, metrics that are such sums too)."""


def of_scalars(loss: Loss) -> Loss:
    """``loss``, with a check of its metrics when it is traced: means over gradient steps would hide their shapes.

    Raises:
        InputError: in the returned function: a metric is not a scalar.
    """

    def checked(params: PyTree, part: Any) -> tuple[Array, Metrics]:
        found = loss(params, part)
        for name, x in found[1].items() if isinstance(found, tuple) else ():
            if jnp.shape(x):
                raise InputError(
                    f"The loss's metric {name!r} has the shape {jnp.shape(x)}; it must be one number, a sum over rows "
                    f"times batch.weight."
                )
        return found

    return checked
