"""Recurrent layers over sequences, with derivatives that keep the kernel out of the loop.

A gated recurrent unit (Cho et al. 2014):

    r = σ(W_r x + U_r h),  z = σ(W_z x + U_z h),  n = tanh(W_n x + r ∘ (U_n h + c)),  h' = (1 − z) ∘ n + z ∘ h

A long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000), whose state between timesteps is h and c
side by side, S = 2 H numbers:

    i = σ(W_i x + U_i h),  f = σ(W_f x + U_f h),  g = tanh(W_g x + U_g h),  o = σ(W_o x + U_o h)
    c' = f ∘ c + i ∘ g,    h' = o ∘ tanh(c')

Each gate has arrays of its own: where gates are columns of one array, XLA's loops over a part of the columns are far
slower on a CPU. Differentiating the recurrence as it stands would add an outer product to the gradient of U at
every timestep. Instead, its derivative is written as a linear recurrence whose inputs, among them dU h, are computed
for all timesteps at once: its transpose gives the gradient of U in one product after the loop.
"""

from collections.abc import Sequence
from functools import reduce

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from shoal.networks.layers import product, product_of_kernel

once = jax.lax.optimization_barrier
"""Without it XLA computes a gate again for each of the arrays that read it."""


# Products of all gates. Over many timesteps each gate has arrays of its own, see above.


def gates(columns: Array, count: int) -> tuple[Array, ...]:
    """The columns of each gate."""
    return tuple(jnp.split(columns, count, axis=-1))


def input_products(
    x: Float[Array, "R F"], length: int, weights: tuple[Array, Array], count: int
) -> tuple[Float[Array, "T ..."], ...]:
    """W x + b of each gate; the rows of ``x`` are those of ``length`` timesteps."""
    each = zip(*(gates(part, count) for part in weights), strict=True)
    return tuple((product(x, kernel) + bias).reshape(length, -1, bias.shape[0]) for kernel, bias in each)


def products_at_once(
    x: Float[Array, "R F"], h: Float[Array, "R H"], weights: tuple[Array, Array], kernel: Array, count: int
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """W x + b and U h of each gate in one timestep, as one product each: acting would cut its kernels at every step."""
    inputs, hidden = once((product(x, weights[0]), h @ kernel))
    return gates(inputs + weights[1], count), gates(hidden, count)


def reset_rows(first: Bool[Array, "T ..."], lead: tuple[int, ...]) -> Bool[Array, "T R 1"]:
    """``first`` for each row of the axes ``lead`` = (T, *b)."""
    reset = jnp.broadcast_to(first.reshape(first.shape + (1,) * (len(lead) - first.ndim)), lead)
    return reset.reshape(lead[0], -1, 1)


# A gated recurrent unit (Cho et al. 2014).


GruGates = tuple[Array, Array, Array]
"""Arrays for r, z and n."""


def gru_cell(
    h: Float[Array, "R H"], x: Sequence[Array], hidden: Sequence[Array], bias: Float[Array, " H"]
) -> tuple[Float[Array, "R H"], tuple[Array, ...]]:
    """h' from h and the products ``x`` = W x and ``hidden`` = U h of each gate; and r, z, n and U_n h + c."""
    r, z = (once(jax.nn.sigmoid(x[i] + hidden[i])) for i in (0, 1))
    u = once(hidden[2] + bias)
    n = once(jnp.tanh(x[2] + r * u))
    return (1 - z) * n + z * h, (r, z, n, u)


@jax.custom_jvp
def gru_recurrence(
    start: Float[Array, "R H"], x: GruGates, reset: Bool[Array, "T R 1"], kernel: GruGates, bias: Float[Array, " H"]
) -> Float[Array, "T R H"]:
    """The state after every timestep.

    Args:
        start: state before the first timestep.
        x: input products of each gate, [T, R, H].
        reset: where the state is 0 before the timestep.
        kernel: U_r, U_z, U_n, [H, H].
        bias: c.
    """
    return _gru_states(start, x, reset, kernel, bias)[0]


def _gru_states(
    start: Array, x: GruGates, reset: Array, kernel: GruGates, bias: Array
) -> tuple[Array, tuple[Array, ...]]:
    def turn(h: Array, timestep: tuple[GruGates, Array]) -> tuple[Array, tuple[Array, tuple[Array, ...]]]:
        x_t, reset_t = timestep
        h = jnp.where(reset_t, 0.0, h)
        h, gates = gru_cell(h, x_t, [h @ k for k in kernel], bias)
        return h, (h, gates)

    return jax.lax.scan(turn, start, (x, reset))[1]


@gru_recurrence.defjvp
def _gru_derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    start, x, reset, kernel, bias = primals
    d_start, d_x, _, d_kernel, d_bias = tangents
    after, (r, z, n, u) = _gru_states(start, x, reset, kernel, bias)
    before = jnp.where(reset, 0.0, jnp.concatenate([start[None], after[:-1]]))

    # dh' = by_r da_r + by_z da_z + by_n dx_n + by_u du + z dh,  with a = x + U h and u = U_n h + c
    by_n = (1 - z) * (1 - n * n)
    by_u = by_n * r
    by_r, by_z = by_u * u * (1 - r), (before - n) * z * (1 - z)
    rows = before.reshape(-1, before.shape[-1])
    d_r, d_z, d_u = (product_of_kernel(rows, d).reshape(before.shape) for d in d_kernel)
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
    """The layer: a linear map of the inputs of all T timesteps at once, then :func:`gru_recurrence`."""

    def __init__(self, inputs: int, width: int, kernel: nnx.Initializer, rngs: nnx.Rngs) -> None:
        self.width = width
        self.input = nnx.Linear(inputs, 3 * width, kernel_init=kernel, rngs=rngs)
        self.hidden = nnx.Linear(width, 3 * width, kernel_init=kernel, use_bias=False, rngs=rngs)
        self.candidate_bias = nnx.Param(jnp.zeros(width))

    def __call__(
        self, carry: Float[Array, "*b H"], x: Float[Array, "R F"], lead: tuple[int, ...], first: Bool[Array, "T ..."]
    ) -> Float[Array, "T *b H"]:
        """The recurrent state after each timestep; ``x`` has its axes ``lead`` = (T, *b) flattened into R."""

        assert self.input.bias is not None
        weights, kernel = (self.input.kernel[...], self.input.bias[...]), self.hidden.kernel[...]
        reset, start = reset_rows(first, lead), carry.reshape(-1, self.width)
        if lead[0] == 1:
            h = jnp.where(reset[0], 0.0, start)
            after = gru_cell(h, *products_at_once(x, h, weights, kernel, 3), self.candidate_bias[...])[0]
        else:
            inputs = input_products(x, lead[0], weights, 3)
            after = gru_recurrence(start, inputs, reset, gates(kernel, 3), self.candidate_bias[...])  # type: ignore
        return after.reshape(*lead, self.width)


# A long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000).


LstmGates = tuple[Array, Array, Array, Array]
"""Arrays for i, f, g and o."""

FORGET_BIAS = 1.0
"""Initial bias of the forget gate, so that memories last at first (Jozefowicz et al. 2015)."""


def lstm_cell(
    c: Float[Array, "R H"], x: Sequence[Array], hidden: Sequence[Array]
) -> tuple[Float[Array, "R S"], tuple[Array, ...]]:
    """h' and c' from c and the products ``x`` = W x and ``hidden`` = U h of each gate; and i, f, g, o and tanh(c')."""
    i, f, o = (once(jax.nn.sigmoid(x[k] + hidden[k])) for k in (0, 1, 3))
    g = once(jnp.tanh(x[2] + hidden[2]))
    c = once(f * c + i * g)
    top = once(jnp.tanh(c))
    return jnp.concatenate([o * top, c], axis=-1), (i, f, g, o, top)


@jax.custom_jvp
def lstm_recurrence(
    start: Float[Array, "R S"], x: LstmGates, reset: Bool[Array, "T R 1"], kernel: LstmGates
) -> Float[Array, "T R S"]:
    """The state after every timestep.

    Args:
        start: state before the first timestep, h and c side by side.
        x: input products of each gate, [T, R, H].
        reset: where the state is 0 before the timestep.
        kernel: U_i, U_f, U_g, U_o, [H, H].
    """
    return _lstm_states(start, x, reset, kernel)[0]


def _lstm_states(start: Array, x: LstmGates, reset: Array, kernel: LstmGates) -> tuple[Array, tuple[Array, ...]]:
    def turn(state: Array, timestep: tuple[LstmGates, Array]) -> tuple[Array, tuple[Array, tuple[Array, ...]]]:
        x_t, reset_t = timestep
        h, c = jnp.split(jnp.where(reset_t, 0.0, state), 2, axis=-1)
        state, gates = lstm_cell(c, x_t, [h @ k for k in kernel])
        return state, (state, gates)

    return jax.lax.scan(turn, start, (x, reset))[1]


@lstm_recurrence.defjvp
def _lstm_derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    start, x, reset, kernel = primals
    d_start, d_x, _, d_kernel = tangents
    after, (i, f, g, o, top) = _lstm_states(start, x, reset, kernel)
    before = jnp.where(reset, 0.0, jnp.concatenate([start[None], after[:-1]]))
    h, c = jnp.split(before, 2, axis=-1)

    # dc' = by_i da_i + by_f da_f + by_g da_g + f dc and dh' = by_o da_o + by_c dc', with a = x + U h
    by_i, by_f, by_g = g * i * (1 - i), c * f * (1 - f), i * (1 - g * g)
    by_o, by_c = top * o * (1 - o), o * (1 - top * top)
    rows = h.reshape(-1, h.shape[-1])
    added = tuple(d + product_of_kernel(rows, d_u).reshape(h.shape) for d, d_u in zip(d_x, d_kernel, strict=True))
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
    """The layer: a linear map of the inputs of all T timesteps at once, then :func:`lstm_recurrence`."""

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

        assert self.input.bias is not None
        weights, kernel = (self.input.kernel[...], self.input.bias[...]), self.hidden.kernel[...]
        reset, start = reset_rows(first, lead), carry.reshape(-1, 2 * self.width)
        if lead[0] == 1:
            h, c = jnp.split(jnp.where(reset[0], 0.0, start), 2, axis=-1)
            after = lstm_cell(c, *products_at_once(x, h, weights, kernel, 4))[0]
        else:
            inputs = input_products(x, lead[0], weights, 4)
            after = lstm_recurrence(start, inputs, reset, gates(kernel, 4))  # type: ignore[arg-type]
        return after.reshape(*lead, 2 * self.width)
