"""A gated recurrent unit (Cho et al. 2014) over sequences, with derivatives that keep the kernel out of the loop.

    r = σ(W_r x + U_r h),  z = σ(W_z x + U_z h),  n = tanh(W_n x + r ∘ (U_n h + c)),  h' = (1 − z) ∘ n + z ∘ h

Each gate has arrays of its own: where gates are columns of one array, XLA's loops over a part of the columns are far
slower on a CPU. Differentiating the recurrence as it stands would add an outer product to the gradient of U at
every timestep. Instead, its derivative is written as a linear recurrence whose inputs, among them dU h, are computed
for all timesteps at once: its transpose gives the gradient of U in one product after the loop.
"""

from functools import reduce

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from shoal.networks.dense import of_kernel, product

once = jax.lax.optimization_barrier
"""Without it XLA computes a gate again for each of the arrays that read it."""

Gates = tuple[Array, Array, Array]
"""Arrays for r, z and n."""


def cell(
    h: Float[Array, "R H"], x: Gates, kernel: Gates, bias: Float[Array, " H"]
) -> tuple[Float[Array, "R H"], tuple[Array, ...]]:
    """h' from h and the input products ``x`` = W x; and r, z, n and U_n h + c."""
    r, z = (once(jax.nn.sigmoid(x[i] + h @ kernel[i])) for i in (0, 1))
    u = once(h @ kernel[2] + bias)
    n = once(jnp.tanh(x[2] + r * u))
    return (1 - z) * n + z * h, (r, z, n, u)


@jax.custom_jvp
def recurrence(
    start: Float[Array, "R H"], x: Gates, reset: Bool[Array, "T R 1"], kernel: Gates, bias: Float[Array, " H"]
) -> Float[Array, "T R H"]:
    """The state after every timestep.

    Args:
        start: state before the first timestep.
        x: input products of each gate, [T, R, H].
        reset: where the state is 0 before the timestep.
        kernel: U_r, U_z, U_n, [H, H].
        bias: c.
    """
    return _states(start, x, reset, kernel, bias)[0]


def _states(start: Array, x: Gates, reset: Array, kernel: Gates, bias: Array) -> tuple[Array, tuple[Array, ...]]:
    def turn(h: Array, timestep: tuple[Gates, Array]) -> tuple[Array, tuple[Array, tuple[Array, ...]]]:
        x_t, reset_t = timestep
        h, gates = cell(jnp.where(reset_t, 0.0, h), x_t, kernel, bias)
        return h, (h, gates)

    return jax.lax.scan(turn, start, (x, reset))[1]


@recurrence.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    start, x, reset, kernel, bias = primals
    d_start, d_x, _, d_kernel, d_bias = tangents
    after, (r, z, n, u) = _states(start, x, reset, kernel, bias)
    before = jnp.where(reset, 0.0, jnp.concatenate([start[None], after[:-1]]))

    # dh' = by_r da_r + by_z da_z + by_n dx_n + by_u du + z dh,  with a = x + U h and u = U_n h + c
    by_n = (1 - z) * (1 - n * n)
    by_u = by_n * r
    by_r, by_z = by_u * u * (1 - r), (before - n) * z * (1 - z)
    rows = before.reshape(-1, before.shape[-1])
    d_r, d_z, d_u = (of_kernel(rows, d).reshape(before.shape) for d in d_kernel)
    added = by_r * (d_x[0] + d_r) + by_z * (d_x[1] + d_z) + by_n * d_x[2] + by_u * (d_u + d_bias)

    transposed = tuple(once(k.T) for k in kernel)  # for the transpose of dh U, which then is a plain product

    def move(d_h: Array, timestep: tuple[Array, ...]) -> tuple[Array, Array]:
        added_t, r_t, z_t, u_t, keep_t, reset_t = timestep
        d_h = jnp.where(reset_t, 0.0, d_h)
        by_gate = (jax.lax.dot_general(d_h, k, (((1,), (1,)), ((), ()))) for k in transposed)
        through = reduce(jnp.add, (by * d for by, d in zip((r_t, z_t, u_t), by_gate, strict=True)))
        d_h = added_t + through + keep_t * d_h
        return d_h, d_h

    return after, jax.lax.scan(move, d_start, (added, by_r, by_z, by_u, z, reset))[1]


class Gru(nnx.Module):
    """The layer: a linear map of the inputs of all T timesteps at once, then :func:`recurrence`."""

    def __init__(self, inputs: int, width: int, kernel: nnx.Initializer, rngs: nnx.Rngs) -> None:
        self.width = width
        self.input = nnx.Linear(inputs, 3 * width, kernel_init=kernel, rngs=rngs)
        self.hidden = nnx.Linear(width, 3 * width, kernel_init=kernel, use_bias=False, rngs=rngs)
        self.candidate_bias = nnx.Param(jnp.zeros(width))

    def __call__(
        self, carry: Float[Array, "*b H"], x: Float[Array, "R F"], lead: tuple[int, ...], first: Bool[Array, "T ..."]
    ) -> Float[Array, "T *b H"]:
        """The recurrent state after each timestep; ``x`` has its axes ``lead`` = (T, *b) flattened into R."""

        def gates(columns: Array) -> list[Array]:
            return jnp.split(columns, 3, axis=-1)

        assert self.input.bias is not None
        weights = zip(gates(self.input.kernel[...]), gates(self.input.bias[...]), strict=True)
        inputs = tuple((product(x, kernel) + bias).reshape(lead[0], -1, self.width) for kernel, bias in weights)
        kernel, bias = tuple(gates(self.hidden.kernel[...])), self.candidate_bias[...]
        reset = jnp.broadcast_to(first.reshape(first.shape + (1,) * (len(lead) - first.ndim)), lead)
        reset, start = reset.reshape(lead[0], -1, 1), carry.reshape(-1, self.width)
        if lead[0] == 1:  # acting: a scan of one iteration only hides the step from the compiler
            h = jnp.where(reset[0], 0.0, start)
            after = cell(h, tuple(x[0] for x in inputs), kernel, bias)[0]  # type: ignore[arg-type]
        else:
            after = recurrence(start, inputs, reset, kernel, bias)
        return after.reshape(*lead, self.width)
