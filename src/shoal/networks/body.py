"""The networks of actors and critics: an MLP, or an MLP followed by a GRU, with a linear head."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from shoal.networks.net import Net, from_module

Activation = Literal["tanh", "relu", "gelu", "silu"]
ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "gelu": jax.nn.gelu, "silu": jax.nn.silu}


@dataclass(frozen=True)
class Body:
    """What a network is made of, without its input and output widths."""

    hidden: tuple[int, ...] = (64, 64)
    """Width of each fully connected layer."""
    activation: Activation = "tanh"
    recurrent: int | None = None
    """Width H of a GRU between the last layer and the head; None for a feed-forward net."""
    layer_norm: bool = False
    """Normalise after every activation, and after the GRU (Andrychowicz et al. 2021; Yu et al. 2022)."""
    input_layer_norm: bool = False
    """Normalise the raw input features of each sample, as the MAPPO authors' code does."""
    orthogonal: bool = True
    """Orthogonal kernels (Saxe et al. 2014); otherwise LeCun normal."""
    gain: float = 2**0.5
    """Gain of the orthogonal kernels of the hidden layers."""


class Gru(nnx.Module):
    """Gated recurrent unit (Cho et al. 2014), with the input products of all T moments taken at once.

    r = σ(W_r x + U_r h),  z = σ(W_z x + U_z h),  n = tanh(W_n x + r ∘ (U_n h + c)),  h' = (1 − z) ∘ n + z ∘ h.
    """

    def __init__(self, inputs: int, width: int, rngs: nnx.Rngs) -> None:
        self.width = width
        orthogonal = nnx.initializers.orthogonal()
        self.input = nnx.Linear(inputs, 3 * width, kernel_init=orthogonal, rngs=rngs)
        self.hidden = nnx.Linear(width, 3 * width, kernel_init=orthogonal, use_bias=False, rngs=rngs)
        self.candidate_bias = nnx.Param(jnp.zeros(width))

    def __call__(
        self, carry: Float[Array, "*b H"], x: Float[Array, "T *b F"], first: Bool[Array, "T E"]
    ) -> Float[Array, "T *b H"]:
        """The recurrent state after each moment."""
        inputs = self.input(x)
        kernel, bias = self.hidden.kernel[...], self.candidate_bias[...]
        reset = first.reshape(first.shape + (1,) * (x.ndim - first.ndim))

        def cell(h: Array, moment: tuple[Array, Array]) -> tuple[Array, Array]:
            x_t, reset_t = moment
            h = jnp.where(reset_t, 0.0, h)
            x_r, x_z, x_n = jnp.split(x_t, 3, axis=-1)
            h_r, h_z, h_n = jnp.split(h @ kernel, 3, axis=-1)
            r, z = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z)
            n = jnp.tanh(x_n + r * (h_n + bias))
            h = (1 - z) * n + z * h
            return h, h

        if x.shape[0] == 1:  # acting: a loop of one turn only hides the step from the compiler
            return cell(carry, (inputs[0], reset[0]))[0][None]
        return jax.lax.scan(cell, carry, (inputs, reset), unroll=2)[1]


class BodyModule(nnx.Module):
    """Layers, an optional GRU and a head; ``log_std`` is appended to a Gaussian policy's mean."""

    def __init__(
        self, body: Body, inputs: int, outputs: int, output_gain: float, log_std: float | None, rngs: nnx.Rngs
    ) -> None:
        self.body = body

        def kernel(gain: float) -> nnx.Initializer:
            return nnx.initializers.orthogonal(gain) if body.orthogonal else nnx.initializers.lecun_normal()

        def norms(widths: Sequence[int]) -> nnx.List:
            return nnx.List([nnx.LayerNorm(width, rngs=rngs) for width in widths])

        widths = (inputs, *body.hidden)
        self.input_norm = norms(widths[:1] if body.input_layer_norm else ())
        self.layers = nnx.List(
            [
                nnx.Linear(i, o, kernel_init=kernel(body.gain), rngs=rngs)
                for i, o in zip(widths[:-1], widths[1:], strict=True)
            ]
        )
        self.norms = norms(body.hidden if body.layer_norm else ())
        top = widths[-1]
        if body.recurrent:
            self.gru = Gru(top, body.recurrent, rngs)
            top = body.recurrent
        self.gru_norm = norms((top,) if body.recurrent and body.layer_norm else ())
        self.head = nnx.Linear(top, outputs, kernel_init=kernel(output_gain), rngs=rngs)
        if log_std is not None:
            self.log_std = nnx.Param(jnp.full(outputs, log_std))
        self.gaussian = log_std is not None

    def __call__(self, carry: Array | tuple[()], x: Array, first: Array) -> tuple[Array | tuple[()], Array]:
        """See :class:`shoal.networks.net.Net`."""
        for norm in self.input_norm:
            x = norm(x)
        for i, layer in enumerate(self.layers):
            x = ACTIVATIONS[self.body.activation](layer(x))
            if self.body.layer_norm:
                x = self.norms[i](x)
        if self.body.recurrent:
            x = carry = self.gru(carry, x, first)
        for norm in self.gru_norm:
            x = norm(x)
        x = self.head(x)
        if self.gaussian:
            x = jnp.concatenate([x, jnp.broadcast_to(self.log_std[...], x.shape)], axis=-1)
        return carry, x


def build(body: Body, inputs: int, outputs: int, *, output_gain: float = 1.0, log_std: float | None = None) -> Net:
    """A net from ``inputs`` features to ``outputs`` numbers (twice as many when ``log_std`` is given)."""

    def initial_carry(batch: tuple[int, ...]) -> Array | tuple[()]:
        return jnp.zeros((*batch, body.recurrent)) if body.recurrent else ()

    return from_module(lambda rngs: BodyModule(body, inputs, outputs, output_gain, log_std, rngs), initial_carry)
