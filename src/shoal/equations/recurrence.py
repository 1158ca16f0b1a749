"""The backward linear recurrence of all return and advantage estimates."""

import jax
from jaxtyping import Array, Bool, Float


def backward(
    bias: Float[Array, "T *b"], decay: Float[Array, "T *b"], final: Float[Array, "*b"], *, unroll: int = 1
) -> Float[Array, "T *b"]:
    """y_t = bias_t + decay_t · y_{t+1}, with y_T = ``final``.

    On a CPU a plain scan is about as fast as an associative one (31 against 17 µs at T = 25, E = 128; 117 against 140
    at T = 128, E = 128; 0.64 against 0.89 ms at T = 128, E = 1024) and unrolling hardly helps; on an accelerator, where
    every iteration launches kernels, ``unroll`` does.
    """
    assert bias.shape == decay.shape and bias.shape[1:] == final.shape, (bias.shape, decay.shape, final.shape)

    def turn(following: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        now = row[0] + row[1] * following
        return now, now

    return jax.lax.scan(turn, final, (bias, decay), reverse=True, unroll=unroll)[1]


def per_agent(last: Bool[Array, "T ..."], like: Float[Array, "T ..."]) -> Bool[Array, "T ..."]:
    """``last`` with trailing axes of length 1, so that it broadcasts against ``like``: [T, E] -> [T, E, 1]."""
    assert last.shape == like.shape[: last.ndim], f"last {last.shape} does not lead {like.shape}"
    return last.reshape(last.shape + (1,) * (like.ndim - last.ndim))
