"""The networks of actors and critics: fully connected layers, a recurrent layer where wanted, and a linear head.

What stands before them is chosen by ``Body.network`` and what there is to read: see :func:`build`.
"""

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, PRNGKeyArray

from shoal.errors import InputError
from shoal.networks.architecture import ACTIVATIONS, Body, check_body, own_network
from shoal.networks.encoders import Encoder, alike, make_entities, make_images, observes, shapes_in_words
from shoal.networks.inputs import Layout, vector_layout
from shoal.networks.layers import Dense, scaled_orthogonal
from shoal.networks.net import Net, from_module
from shoal.networks.recurrent import Gru, Lstm
from shoal.networks.user_networks import make_own
from shoal.types import PyTree

__all__ = ["ACTIVATIONS", "Body", "build"]


class BodyModule(nnx.Module):
    """Layers, an optional recurrent layer and a head; ``log_std`` is appended to a Gaussian policy's mean."""

    def __init__(
        self, body: Body, inputs: int, outputs: int, output_gain: float, log_std: float | None, rngs: nnx.Rngs
    ) -> None:
        self.body = body

        def kernel(gain: float) -> nnx.Initializer:
            return scaled_orthogonal(gain) if body.orthogonal else nnx.initializers.lecun_normal()

        def norms(widths: Sequence[int]) -> list[nnx.LayerNorm]:
            return [nnx.LayerNorm(width, rngs=rngs) for width in widths]

        widths = (inputs, *body.hidden)
        self.input_norm = nnx.List(norms(widths[:1] if body.input_layer_norm else ()))
        self.layers = nnx.List([Dense(i, o, kernel_init=kernel(body.gain), rngs=rngs) for i, o in pairwise(widths)])
        self.norms = nnx.List(norms(body.hidden if body.layer_norm else ()))
        top = widths[-1]
        if body.recurrent:
            if body.cell == "lstm":
                self.lstm = Lstm(top, body.recurrent, kernel(1.0), rngs)
            else:
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
            carry = (self.lstm if self.body.cell == "lstm" else self.gru)(carry, x, lead, first)
            x = carry[..., : self.body.recurrent].reshape(-1, self.body.recurrent)
        for norm in self.gru_norm:
            x = norm(x)
        x = self.head(x).reshape(*lead, -1)
        if self.gaussian:
            x = jnp.concatenate([x, jnp.broadcast_to(self.log_std[...], x.shape)], axis=-1)
        return carry, x


def build(
    body: Body, inputs: int | Layout, outputs: int, *, output_gain: float = 1.0, log_std: float | None = None
) -> Net:
    """A net from features to ``outputs`` numbers (twice as many when ``log_std`` is given).

    Args:
        body: the architecture.
        inputs: number of features, or where images, entities and vectors are among them.
        outputs: number of outputs.
        output_gain: gain of the head's kernel.
        log_std: initial value of a parameter for each output, appended to them.

    Raises:
        InputError: there is no such activation, cell or network, a number is out of its bounds, the network reads what
            the input does not have, or the user's own network cannot be built.
    """
    check_body(body)
    layout = vector_layout(inputs) if isinstance(inputs, int) else inputs
    if own_network(body):
        return make_own(body, layout, outputs, output_gain, log_std)
    encoder = _encoder(body, layout)
    width = layout.width if encoder is None else encoder.width
    size = (body.recurrent or 0) * (2 if body.cell == "lstm" else 1)

    def initial_carry(batch: tuple[int, ...]) -> Array | tuple[()]:
        return jnp.zeros((*batch, size)) if size else ()

    net = from_module(lambda rngs: BodyModule(body, width, outputs, output_gain, log_std, rngs), initial_carry)
    return net if encoder is None else _after(encoder, net)


def _encoder(body: Body, layout: Layout) -> Encoder | None:
    """What stands before the layers. Inputs without observations, such as the global state, are vectors."""
    rank = {"auto": 3, "cnn": 3, "impala": 3, "entities": 2}.get(body.network)
    if rank is None:
        return None
    if alike(layout, rank):
        return make_entities(body, layout) if rank == 2 else make_images(body, layout, body.network == "impala")
    if body.network != "auto" and observes(layout):
        what = "sets of entities, of shape (K, F)" if rank == 2 else "images, of shape (height, width, channels)"
        raise InputError(
            f"network {body.network!r} reads {what}, and the observations here have the shapes "
            f"{shapes_in_words(layout)}: use mlp, or declare the shapes in EnvSpec.parts."
        )
    return None


def _after(encoder: Encoder, net: Net) -> Net:
    """``net`` after an encoder, whose parameters are called ``encoder``."""

    def init(key: PRNGKeyArray) -> PyTree:
        key_encoder, key_net = jax.random.split(key)
        return {**net.init(key_net), "encoder": encoder.init(key_encoder)}

    def apply(params: PyTree, carry: PyTree, x: Array, first: Array) -> tuple[PyTree, Array]:
        seen = encoder.apply(params["encoder"], x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], encoder.width)
        return net.apply({name: p for name, p in params.items() if name != "encoder"}, carry, seen, first)

    return Net(init, apply, net.initial_carry)
