"""The networks of actors and critics: an MLP, or an MLP followed by a GRU, with a linear head."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from shoal.bounds import Gain, Width, check
from shoal.errors import unknown
from shoal.networks.dense import Dense
from shoal.networks.gru import Gru
from shoal.networks.net import Net, from_module
from shoal.networks.orthogonal import scaled

Activation = Literal["tanh", "relu", "gelu", "silu"]
ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "gelu": jax.nn.gelu, "silu": jax.nn.silu}


@dataclass(frozen=True)
class Body:
    """The architecture of a network, without its input and output widths."""

    hidden: tuple[Width, ...] = (64, 64)
    """Width of each fully connected layer."""
    activation: Activation = "tanh"
    """Nonlinearity after each fully connected layer. Paper (MAPPO): tanh in spread, relu elsewhere."""
    recurrent: Width | None = None
    """Width H of a GRU between the last layer and the head; None for a feed-forward net."""
    layer_norm: bool = False
    """Normalise after every activation, and after the GRU (Andrychowicz et al. 2021; Yu et al. 2022)."""
    input_layer_norm: bool = False
    """Normalise the raw input features of each sample, as the MAPPO authors' code does."""
    orthogonal: bool = True
    """Orthogonal kernels (Saxe et al. 2014), those of the GRU with gain 1; otherwise LeCun normal."""
    gain: Gain = 2**0.5
    """Gain of the orthogonal kernels of the hidden layers."""


class BodyModule(nnx.Module):
    """Layers, an optional GRU and a head; ``log_std`` is appended to a Gaussian policy's mean."""

    def __init__(
        self, body: Body, inputs: int, outputs: int, output_gain: float, log_std: float | None, rngs: nnx.Rngs
    ) -> None:
        self.body = body

        def kernel(gain: float) -> nnx.Initializer:
            return scaled(gain) if body.orthogonal else nnx.initializers.lecun_normal()

        def norms(widths: Sequence[int]) -> list[nnx.LayerNorm]:
            return [nnx.LayerNorm(width, rngs=rngs) for width in widths]

        widths = (inputs, *body.hidden)
        self.input_norm = nnx.List(norms(widths[:1] if body.input_layer_norm else ()))
        self.layers = nnx.List([Dense(i, o, kernel_init=kernel(body.gain), rngs=rngs) for i, o in pairwise(widths)])
        self.norms = nnx.List(norms(body.hidden if body.layer_norm else ()))
        top = widths[-1]
        if body.recurrent:
            self.gru = Gru(top, body.recurrent, kernel(1.0), rngs)
            top = body.recurrent
        self.gru_norm = nnx.List(norms((top,) if body.recurrent and body.layer_norm else ()))
        self.head = Dense(top, outputs, kernel_init=kernel(output_gain), rngs=rngs)
        if log_std is not None:
            self.log_std = nnx.Param(jnp.full(outputs, log_std, jnp.float32))
        self.gaussian = log_std is not None

    def __call__(self, carry: Array | tuple[()], x: Array, first: Array) -> tuple[Array | tuple[()], Array]:
        """See :class:`shoal.networks.net.Net`."""
        lead = x.shape[:-1]
        x = x.reshape(-1, x.shape[-1])  # products of two matrices: with more axes XLA's backward pass is far slower
        for norm in self.input_norm:
            x = norm(x)
        for i, layer in enumerate(self.layers):
            x = ACTIVATIONS[self.body.activation](layer(x))
            if self.body.layer_norm:
                x = self.norms[i](x)
        if self.body.recurrent:
            assert isinstance(carry, Array), "a recurrent net needs its state"
            carry = self.gru(carry, x, lead, first)
            x = carry.reshape(-1, self.body.recurrent)
        for norm in self.gru_norm:
            x = norm(x)
        x = self.head(x).reshape(*lead, -1)
        if self.gaussian:
            x = jnp.concatenate([x, jnp.broadcast_to(self.log_std[...], x.shape)], axis=-1)
        return carry, x


def build(body: Body, inputs: int, outputs: int, *, output_gain: float = 1.0, log_std: float | None = None) -> Net:
    """A net from ``inputs`` features to ``outputs`` numbers (twice as many when ``log_std`` is given).

    Raises:
        InputError: there is no such activation, or a number is out of its bounds.
    """
    if body.activation not in ACTIVATIONS:
        raise unknown("activation", body.activation, ACTIVATIONS)
    check(body)

    def initial_carry(batch: tuple[int, ...]) -> Array | tuple[()]:
        return jnp.zeros((*batch, body.recurrent)) if body.recurrent else ()

    return from_module(lambda rngs: BodyModule(body, inputs, outputs, output_gain, log_std, rngs), initial_carry)
