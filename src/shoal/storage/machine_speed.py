"""The speed of this machine as the rate of a matrix product, for comparison of times on different machines."""

import contextlib
import time
from functools import cache
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.security import reading
from shoal.storage import manifest
from shoal.system.files import dumps, write_text

SIZE = 2048
"""Rows and columns of the matrices."""
SPEED_FILE = "product_rate.json"
"""In a run's folder: the rate of the machine that the run was trained on."""


@cache
def product_rate() -> float:
    """FLOP/s of a 2048³ float32 product on one JAX device, median of nine; measured once per process."""
    import jax
    import jax.numpy as jnp

    a = jax.random.normal(jax.random.key(0), (SIZE, SIZE), jnp.float32)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    jax.block_until_ready(product(a))
    times = []
    for _ in range(9):
        began = time.perf_counter()
        jax.block_until_ready(product(a))
        times.append(time.perf_counter() - began)
    return 2 * SIZE**3 / sorted(times)[4]


def rate_of(folder: Path, hardware: Any) -> float | None:
    """:func:`product_rate` of the machine of the run in ``folder``, in FLOP/s; None if this is another machine.

    The first call measures the rate and saves it in the folder, so that later calls return the same number; it is not
    saved if the folder cannot be written.

    Args:
        folder: the run's.
        hardware: the machine in its ``run.json``.
    """
    if (known := _kept(folder, hardware)) is not None:
        return known
    if hardware != manifest.describe_machine()["hardware"]:
        return None
    rate = float(f"{product_rate():.4g}")
    with contextlib.suppress(InputError):
        path = reading.own_file(folder, SPEED_FILE)
        write_text(path, dumps({"hardware": hardware, "flops": rate}, "product rate", indent=1) + "\n")
    return rate


def _kept(folder: Path, hardware: Any) -> float | None:
    try:
        found = reading.parse_json(reading.read_bytes(folder / SPEED_FILE, reading.MIB))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("hardware") != hardware:
        return None
    rate = found.get("flops")
    return rate if isinstance(rate, float) and rate > 0 else None
