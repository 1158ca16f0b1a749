"""From stored observations to the features that networks read."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from shoal.spec import EnvSpec, Part


def features(spec: EnvSpec, obs: Num[Array, "*b N O"]) -> Float[Array, "*b N F"]:
    """Observations as ``float32`` features, F = ``spec.feature_dim``.

    Rows of numbers are returned unchanged. In rows of bytes (``spec.packed``) a ``uint8`` number is divided by 255, and
    four bytes are one ``float32`` number; features beyond an agent's own are zero.
    """
    if not spec.packed:
        return obs
    assert spec.parts is not None
    if len(set(spec.parts)) == 1:
        return _read(spec.parts[0], obs)
    rows = [
        jnp.pad(row := _read(own, obs[..., i, :]), [(0, 0)] * (row.ndim - 1) + [(0, spec.feature_dim - row.shape[-1])])
        for i, own in enumerate(spec.parts)
    ]
    return jnp.stack(rows, axis=-2)


def _read(parts: tuple[Part, ...], row: Array) -> Array:
    """One agent's features [*b, F_i] from bytes [*b, O]."""
    found, start = [], 0
    for part in parts:
        if part.dtype == "uint8":
            found.append(row[..., start : start + part.size].astype(jnp.float32) / 255.0)
            start += part.size
        else:
            four = row[..., start : start + 4 * part.size].reshape(*row.shape[:-1], part.size, 4)
            found.append(jax.lax.bitcast_convert_type(four, jnp.float32))
            start += 4 * part.size
    return found[0] if len(found) == 1 else jnp.concatenate(found, axis=-1)
