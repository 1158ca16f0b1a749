"""The scale that values are learned on: running normalisation of the targets, PopArt, or none."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
from jaxtyping import Array, Bool, Float

from shoal.equations import normalise
from shoal.types import PyTree

ValueNorm = Literal["running", "popart", "none"]
Stats = normalise.Running | None


class ValueScale(NamedTuple):
    """Converts between the critic's units and rewards' units, for a critic with one scale or with G of them."""

    init: Callable[[], Stats]
    normalise: Callable[[Stats, Float[Array, "..."]], Float[Array, "..."]]
    """(statistics, values [*b], or [*b, G]) -> the same in the critic's units."""
    denormalise: Callable[[Stats, Float[Array, "..."]], Float[Array, "..."]]
    update: Callable[[Stats, PyTree, Float[Array, "..."], Bool[Array, "..."]], tuple[Stats, PyTree]]
    """(statistics, critic parameters, targets, which of them count) -> (statistics, critic parameters)."""


def make_value_scale(kind: ValueNorm, beta: float, scales: int = 1) -> ValueScale:
    """The value scale of a critic with G = ``scales`` outputs, over all of its nets.

    ``running`` is the MAPPO authors' ValueNorm: debiased exponential averages with decay ``beta`` per update, of the
    targets that count, and a variance of at least 0.01.
    ``popart`` also rescales the critic's last layer, so that new statistics do not change its predictions
    (Hessel et al. 2019, eq. 8).
    """
    if kind == "none":
        return ValueScale(lambda: None, lambda _, x: x, lambda _, x: x, lambda stats, params, *_: (stats, params))

    def update(stats: Stats, params: PyTree, target: Array, counts: Array) -> tuple[Stats, PyTree]:
        assert isinstance(stats, normalise.Running)
        if scales == 1:
            target, counts = target.reshape(-1, 1), counts.reshape(-1, 1)
        new = normalise.update(stats, target, counts, beta)
        if kind == "popart":
            shape = params["head"]["bias"].shape  # [P, K] with P · K = G
            old_s, new_s = (jax.tree.map(lambda x: x.reshape(shape), s) for s in (stats, new))
            kernel, bias = normalise.popart(old_s, new_s, params["head"]["kernel"], params["head"]["bias"])
            params = {**params, "head": {"kernel": kernel, "bias": bias}}
        return new, params

    return ValueScale(
        lambda: normalise.init((scales,)),
        lambda stats, x: normalise.normalise(stats, x, normalise.VALUES),  # type: ignore[arg-type]
        lambda stats, x: normalise.denormalise(stats, x, normalise.VALUES),  # type: ignore[arg-type]
        update,
    )
