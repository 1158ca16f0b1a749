"""Rows of observations that consist of several arrays (:class:`shoal.spec.Part`). Does not import JAX.

The functions work on NumPy and JAX arrays alike.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.spec import EnvSpec, Part

FULL = 255
"""The largest ``uint8`` number, which networks read as 1."""


def parts_of(spec: EnvSpec) -> tuple[tuple[Part, ...], ...]:
    """The arrays of each agent's observation; one row of numbers where the spec does not name them."""
    return tuple((Part((width,)),) for width in spec.obs_dims) if spec.parts is None else spec.parts


def width_of_part(part: Part, packed: bool) -> int:
    """Entries of a row that an array takes: numbers, or bytes in a row of bytes."""
    return part.size * (4 if packed and part.dtype == "float32" else 1)


def slices(parts: Sequence[Part], packed: bool) -> list[slice]:
    """Where in a row the arrays stand."""
    ends = np.cumsum([0, *(width_of_part(part, packed) for part in parts)]).tolist()
    return [slice(start, end) for start, end in itertools.pairwise(ends)]


def as_bytes(numbers: Any) -> Any:
    """Numbers [..., F] as the bytes uint8 [..., 4 F] of ``float32`` numbers."""
    return numbers.astype("float32").view("uint8")


def numbers(parts: Sequence[Part], packed: bool, row: np.ndarray) -> list[tuple[Part, np.ndarray]]:
    """The arrays of numbers in rows [..., O_i] of NumPy, each with its part, as ``float32`` [..., F]."""
    found = []
    for part, place in zip(parts, slices(parts, packed), strict=True):
        if part.dtype == "float32":
            piece = row[..., place]
            found.append((part, np.ascontiguousarray(piece).view("<f4") if packed else piece))
    return found


def all_numbers(spec: EnvSpec, obs: np.ndarray) -> np.ndarray:
    """The numbers ``float32`` in observations [..., N, O] of NumPy; those of byte rows with zeros to the longest."""
    if not spec.packed:
        return obs
    found = [numbers(own, True, obs[..., i, :]) for i, own in enumerate(parts_of(spec))]
    flat = [np.concatenate([np.zeros((*obs.shape[:-2], 0)), *(x for _, x in one)], axis=-1) for one in found]
    most = max(x.shape[-1] for x in flat)
    return np.stack([np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, most - x.shape[-1])]) for x in flat], axis=-2)


def part_fields(spec: EnvSpec, parts: Sequence[Sequence[Part]]) -> dict[str, Any]:
    """The fields ``parts`` and ``obs_dims`` of a spec with rows of the same type and these arrays."""
    dims = tuple(sum(width_of_part(part, spec.packed) for part in own) for own in parts)
    return {"parts": tuple(map(tuple, parts)), "obs_dims": dims}


def each(spec: EnvSpec, convert: Callable[[tuple[Part, ...], Any], Any], widths: Sequence[int]) -> Callable[[Any], Any]:
    """A function that converts all agents' rows [N, ..., O] to rows [N, max(widths)].

    Args:
        spec: the rows' spec.
        convert: (an agent's parts, rows [K, ..., O_i] of K agents with these parts) -> [K, new width].
        widths: the new width of each agent; further entries are zero.
    """
    groups: dict[tuple[Part, ...], list[int]] = {}
    for i, own in enumerate(parts_of(spec)):
        groups.setdefault(own, []).append(i)
    order = np.argsort(np.concatenate(list(groups.values())))
    widest, alone = max(widths), len(groups) == 1

    def apply(rows: Any) -> Any:
        xp, found = rows.__array_namespace__(), []
        for own, who in groups.items():
            mine = rows if alone else xp.take(rows, np.array(who), axis=0)
            row = convert(own, mine[..., : spec.obs_dims[who[0]]])
            missing = widest - row.shape[-1]
            padding = [xp.zeros((len(who), missing), row.dtype)] if missing else []
            found.append(xp.concat([row, *padding], axis=-1) if padding else row)
        return found[0] if alone else xp.take(xp.concat(found, axis=0), order, axis=0)

    return apply


def appender(spec: EnvSpec, widths: Sequence[int]) -> Callable[[Any, Any], Any]:
    """A function (rows [N, O], [N, max(widths)]) -> rows in which each agent's own observation is followed by the first
    ``widths[i]`` entries of its second row, and those by zeros. Further entries of the second rows must be zero."""
    if len(set(spec.obs_dims)) == 1:
        return lambda rows, more: rows.__array_namespace__().concat([rows, more], axis=-1)
    own, added = np.array(spec.obs_dims)[:, None], np.array(widths)[:, None]
    total = int((own + added).max())
    entry = np.arange(total) - own  # position in the second row
    real = (entry >= 0) & (entry < added)
    source = np.where(real, entry, 0) + np.arange(spec.num_agents)[:, None] * max(widths)

    def append(rows: Any, more: Any) -> Any:
        xp = rows.__array_namespace__()
        wider = xp.concat([rows, xp.zeros((spec.num_agents, total - spec.obs_dim), rows.dtype)], axis=-1)
        return xp.where(entry < 0, wider, xp.where(real, xp.take(more.reshape(-1), source), 0))

    return append
