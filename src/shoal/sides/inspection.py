"""What the algorithms of several sides tell of their policies, as rows of one team."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from shoal.types import EnvSpec


def of_all_sides(
    spec: EnvSpec, envs: int, told: Sequence[tuple[tuple[int, ...], Mapping[str, Array]]]
) -> dict[str, Array]:
    """``Algorithm.inspect`` of a whole team from its sides'.

    Args:
        spec: the whole team's.
        envs: E.
        told: of each side, its agents, and what its algorithm tells of them; actions beyond a side's own are illegal.

    Returns:
        Everything that any side tells; NaN where a side does not tell it. Attention to agents of other sides is 0.
    """
    n, found = spec.num_agents, {}
    for who, about in told:
        rows = np.array(who)
        for name, x in about.items():
            if name == "attention":
                whole = found.get(name, jnp.full((envs, n, n), jnp.nan)).at[:, rows].set(0.0)
                found[name] = whole.at[:, rows[:, None], rows].set(x)
                continue
            if x.ndim == 3:
                beyond = 0.0 if name == "probabilities" else jnp.nan
                x = jnp.pad(x, ((0, 0), (0, 0), (0, spec.action.width - x.shape[-1])), constant_values=beyond)
            found[name] = found.get(name, jnp.full((envs, n, *x.shape[2:]), jnp.nan)).at[:, rows].set(x)
    return found
