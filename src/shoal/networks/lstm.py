"""A long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000) over sequences.

    i = σ(W_i x + U_i h),  f = σ(W_f x + U_f h),  g = tanh(W_g x + U_g h),  o = σ(W_o x + U_o h)
    c' = f ∘ c + i ∘ g,    h' = o ∘ tanh(c')

The state that is kept between timesteps is h and c side by side, S = 2 H numbers. As in :mod:`shoal.networks.gru`, the
derivative is a linear recurrence whose inputs, among them dU h, are computed for all timesteps at once.
"""

from functools import reduce

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from shoal.networks.dense import of_kernel, product
from shoal.networks.gru import once

Gates = tuple[Array, Array, Array, Array]
"""Arrays for i, f, g and o."""

FORGET_BIAS = 1.0
"""Initial bias of the forget gate, so that memories last at first (Jozefowicz et al. 2015)."""


def cell(state: Float[Array, "R S"], x: Gates, kernel: Gates) -> tuple[Float[Array, "R S"], tuple[Array, ...]]:
    """h' and c' from h and c and the input products ``x`` = W x; and i, f, g, o and tanh(c')."""
    h, c = jnp.split(state, 2, axis=-1)
    i, f, o = (once(jax.nn.sigmoid(x[k] + h @ kernel[k])) for k in (0, 1, 3))
    g = once(jnp.tanh(x[2] + h @ kernel[2]))
    c = once(f * c + i * g)
    top = once(jnp.tanh(c))
    return jnp.concatenate([o * top, c], axis=-1), (i, f, g, o, top)


@jax.custom_jvp
def recurrence(
    start: Float[Array, "R S"], x: Gates, reset: Bool[Array, "T R 1"], kernel: Gates
) -> Float[Array, "T R S"]:
    """The state after every timestep.

    Args:
        start: state before the first timestep, h and c side by side.
        x: input products of each gate, [T, R, H].
        reset: where the state is 0 before the timestep.
        kernel: U_i, U_f, U_g, U_o, [H, H].
    """
    return _states(start, x, reset, kernel)[0]


def _states(start: Array, x: Gates, reset: Array, kernel: Gates) -> tuple[Array, tuple[Array, ...]]:
    def turn(state: Array, timestep: tuple[Gates, Array]) -> tuple[Array, tuple[Array, tuple[Array, ...]]]:
        x_t, reset_t = timestep
        state, gates = cell(jnp.where(reset_t, 0.0, state), x_t, kernel)
        return state, (state, gates)

    return jax.lax.scan(turn, start, (x, reset))[1]


@recurrence.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    start, x, reset, kernel = primals
    d_start, d_x, _, d_kernel = tangents
    after, (i, f, g, o, top) = _states(start, x, reset, kernel)
    before = jnp.where(reset, 0.0, jnp.concatenate([start[None], after[:-1]]))
    h, c = jnp.split(before, 2, axis=-1)

    # dc' = by_i da_i + by_f da_f + by_g da_g + f dc and dh' = by_o da_o + by_c dc', with a = x + U h
    by_i, by_f, by_g = g * i * (1 - i), c * f * (1 - f), i * (1 - g * g)
    by_o, by_c = top * o * (1 - o), o * (1 - top * top)
    rows = h.reshape(-1, h.shape[-1])
    added = tuple(d + of_kernel(rows, d_u).reshape(h.shape) for d, d_u in zip(d_x, d_kernel, strict=True))
    into_c = by_i * added[0] + by_f * added[1] + by_g * added[2]
    into_h = by_o * added[3]

    transposed = tuple(once(k.T) for k in kernel)  # for the transpose of dh U, which then is a plain product

    def move(d_state: Array, timestep: tuple[Array, ...]) -> tuple[Array, Array]:
        c_t, h_t, i_t, f_t, g_t, o_t, keep_t, down_t, reset_t = timestep
        d_h, d_c = jnp.split(jnp.where(reset_t, 0.0, d_state), 2, axis=-1)
        by_gate = [jax.lax.dot_general(d_h, k, (((1,), (1,)), ((), ()))) for k in transposed]
        d_c = c_t + keep_t * d_c + reduce(jnp.add, (a * b for a, b in zip((i_t, f_t, g_t), by_gate[:3], strict=True)))
        d_h = h_t + o_t * by_gate[3] + down_t * d_c
        d_state = jnp.concatenate([d_h, d_c], axis=-1)
        return d_state, d_state

    return after, jax.lax.scan(move, d_start, (into_c, into_h, by_i, by_f, by_g, by_o, f, by_c, reset))[1]


class Lstm(nnx.Module):
    """The layer: a linear map of the inputs of all T timesteps at once, then :func:`recurrence`."""

    def __init__(self, inputs: int, width: int, kernel: nnx.Initializer, rngs: nnx.Rngs) -> None:
        self.width = width
        self.input = nnx.Linear(inputs, 4 * width, kernel_init=kernel, rngs=rngs)
        self.hidden = nnx.Linear(width, 4 * width, kernel_init=kernel, use_bias=False, rngs=rngs)
        assert self.input.bias is not None
        self.input.bias[...] = jnp.zeros(4 * width).at[width : 2 * width].set(FORGET_BIAS)

    def __call__(
        self, carry: Float[Array, "*b S"], x: Float[Array, "R F"], lead: tuple[int, ...], first: Bool[Array, "T ..."]
    ) -> Float[Array, "T *b S"]:
        """The state after each timestep; ``x`` has its axes ``lead`` = (T, *b) flattened into R."""

        def gates(columns: Array) -> list[Array]:
            return jnp.split(columns, 4, axis=-1)

        assert self.input.bias is not None
        weights = zip(gates(self.input.kernel[...]), gates(self.input.bias[...]), strict=True)
        inputs = tuple((product(x, kernel) + bias).reshape(lead[0], -1, self.width) for kernel, bias in weights)
        kernel = tuple(gates(self.hidden.kernel[...]))
        reset = jnp.broadcast_to(first.reshape(first.shape + (1,) * (len(lead) - first.ndim)), lead)
        reset, start = reset.reshape(lead[0], -1, 1), carry.reshape(-1, 2 * self.width)
        if lead[0] == 1:  # acting: a scan of one iteration only hides the step from the compiler
            state = jnp.where(reset[0], 0.0, start)
            after = cell(state, tuple(x[0] for x in inputs), kernel)[0]  # type: ignore[arg-type]
        else:
            after = recurrence(start, inputs, reset, kernel)  # type: ignore[arg-type]
        return after.reshape(*lead, 2 * self.width)
