"""Arrays of numbers as short text: rounded to levels, differences over time, compressed, base64.

The form of :func:`pack`'s result, which ``assets/player_data.js`` reads:

* ``data``: base64 of a zlib stream of bytes.
* ``index``: for each array its ``shape``, ``type``, and ``at``, the position of its first byte. The value of code c is
  ``(first + c) · unit``, so that 0 is exact; both are numbers, or lists with one for each entry of the last axis. The
  largest code of the type is NaN if ``gaps`` is true.

A ``bits`` array has eight entries per byte, the first in the highest bit. Codes of ``u8`` and ``u16`` are stored as
differences, modulo 256 or 65,536, from the codes one step (first axis) before; those of ``u16`` as all high bytes, then
all low bytes. Differences are small and alike, which compresses well.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

FINE, COARSE = 16, 8
"""Bits of a number: an error of at most 1 / 130,000 or 1 / 500 of the range."""


def pack(arrays: Mapping[str, np.ndarray], coarse: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Arrays [T, …] as JSON values.

    Args:
        arrays: by name; truth values, integers or floating-point numbers. Infinities count as NaN.
        coarse: names of arrays whose floating-point numbers have 8 bits, over the range of each entry of the last axis.
            The others have 16 bits over the range of the whole array. Integers are exact up to a range of 65,534.
    """
    index, parts, at = {}, [], 0
    for name, values in arrays.items():
        entry, data = _encoded(np.asarray(values), COARSE if name in coarse else FINE)
        index[name] = {"shape": list(np.shape(values)), "at": at} | entry
        parts.append(data)
        at += len(data)
    return {"index": index, "data": base64.b64encode(zlib.compress(b"".join(parts), 9)).decode("ascii")}


def _encoded(x: np.ndarray, bits: int) -> tuple[dict[str, Any], bytes]:
    if x.dtype == bool:
        return {"type": "bits"}, np.packbits(x.reshape(-1)).tobytes()
    whole = np.issubdtype(x.dtype, np.integer)
    x = np.where(np.isfinite(x), x, np.nan).astype(np.float64)
    low, high = (_over(x, edge, bits == COARSE and not whole and x.ndim > 1) for edge in (np.fmin, np.fmax))
    if whole:
        bits = COARSE if np.max(high - low, initial=0) < 255 else FINE
    codes = 2**bits - 1
    unit = np.asarray(np.ones_like(low)) if whole else _unit(low, high, codes - 2)
    first = np.asarray(np.floor(low / unit))
    code = np.where(np.isnan(x), codes, np.clip(np.rint(np.nan_to_num(x) / unit - first), 0, codes - 1))
    change = np.diff(code.astype(np.int64), axis=0, prepend=np.zeros_like(code[:1], np.int64)) % (codes + 1)
    entry = {"type": f"u{bits}", "first": first.tolist(), "unit": unit.tolist(), "gaps": bool(np.isnan(x).any())}
    if bits == COARSE:
        return entry, change.astype(np.uint8).tobytes()
    return entry, (change >> 8).astype(np.uint8).tobytes() + (change & 255).astype(np.uint8).tobytes()


def _over(x: np.ndarray, edge: np.ufunc, columns: bool) -> np.ndarray:
    """The least or largest number, of the whole or of each column; 0 where all are NaN."""
    if not x.size:
        return np.zeros(())
    found = edge.reduce(x.reshape(-1, x.shape[-1]), axis=0) if columns else edge.reduce(x.reshape(-1))
    return np.asarray(np.nan_to_num(found), np.float64)


def _unit(low: np.ndarray, high: np.ndarray, most: int) -> np.ndarray:
    """The step between codes, such that ``most`` steps cover the range, rounded up to few digits."""
    unit = np.asarray(high - low) / most
    unit = np.where(unit > 1e-12 * np.abs(low), unit, np.abs(low))  # all numbers are equal
    unit = np.where(unit > 0.0, unit, 1.0)
    scale = 10.0 ** (6 - np.floor(np.log10(unit)))
    return np.array([float(f"{value:.7g}") for value in np.ravel(np.ceil(unit * scale) / scale)]).reshape(unit.shape)
