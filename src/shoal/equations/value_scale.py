"""The scale that values are learned on: running normalisation of the targets, PopArt, or none."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from shoal.equations import normalise
from shoal.types import PyTree

ValueNorm = Literal["running", "popart", "none"]
Stats = normalise.Running | None


class ValueScale(NamedTuple):
    """Converts between the critic's units and rewards' units, one scale per group of agents."""

    init: Callable[[], Stats]
    normalise: Callable[[Stats, Float[Array, "*b N"]], Float[Array, "*b N"]]
    denormalise: Callable[[Stats, Float[Array, "*b N"]], Float[Array, "*b N"]]
    update: Callable[[Stats, PyTree, Float[Array, "*b N"], Bool[Array, "*b N"]], tuple[Stats, PyTree]]
    """(statistics, critic parameters, targets, alive) -> (statistics, critic parameters)."""


def make_value_scale(kind: ValueNorm, group_of: tuple[int, ...], beta: float) -> ValueScale:
    """The value scale of a critic; agents with the same number in ``group_of`` share statistics.

    ``running`` is the MAPPO authors' ValueNorm: debiased exponential averages with decay ``beta`` per update, of living
    agents' targets, and a variance of at least 0.01.
    ``popart`` also rescales the critic's last layer, so that new statistics do not change its predictions
    (Hessel et al. 2019, eq. 8).
    """
    index = jnp.array(group_of)
    groups = max(group_of) + 1

    if kind == "none":
        return ValueScale(lambda: None, lambda _, x: x, lambda _, x: x, lambda stats, params, *_: (stats, params))

    def of_agents(stats: Stats) -> normalise.Running:
        return jax.tree.map(lambda x: x[index], stats)

    def update(stats: Stats, params: PyTree, target: Array, alive: Array) -> tuple[Stats, PyTree]:
        assert isinstance(stats, normalise.Running)
        if groups == 1:
            new = normalise.update(stats, target.reshape(-1, 1), alive.reshape(-1, 1), beta)
        elif group_of == tuple(range(len(group_of))):
            new = normalise.update(stats, target, alive, beta)
        else:
            member = alive[..., None] & (index[:, None] == jnp.arange(groups))
            spread = jnp.broadcast_to(target[..., None], member.shape)
            new = normalise.update(stats, spread, member, beta)
        if kind == "popart":
            shape = params["head"]["bias"].shape  # [P, K] with P · K = groups
            old_s, new_s = (jax.tree.map(lambda x: x.reshape(shape), s) for s in (stats, new))
            kernel, bias = normalise.popart(old_s, new_s, params["head"]["kernel"], params["head"]["bias"])
            params = {**params, "head": {"kernel": kernel, "bias": bias}}
        return new, params

    return ValueScale(
        lambda: normalise.init((groups,)),
        lambda stats, x: normalise.normalise(of_agents(stats), x, normalise.VALUES),
        lambda stats, x: normalise.denormalise(of_agents(stats), x, normalise.VALUES),
        update,
    )
