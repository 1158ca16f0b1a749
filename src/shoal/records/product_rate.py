"""The speed of this machine, as the rate of a matrix product, with which published times are compared."""

import time
from functools import cache


@cache
def product_rate() -> float:
    """FLOP/s of a 2048³ float32 product on one JAX device, median of nine; measured once per process."""
    import jax
    import jax.numpy as jnp

    a = jax.random.normal(jax.random.key(0), (2048, 2048), jnp.float32)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    jax.block_until_ready(product(a))
    times = []
    for _ in range(9):
        began = time.perf_counter()
        jax.block_until_ready(product(a))
        times.append(time.perf_counter() - began)
    return 2 * 2048**3 / sorted(times)[4]
