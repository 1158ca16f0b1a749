"""Networks of a user, in each of the forms that there are; some are wrong."""

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as flax_linen
from flax import nnx

import shoal


class Layers(nnx.Module):
    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(inputs, 5, rngs=rngs)
        self.top = nnx.Linear(5, outputs, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.top(nnx.silu(self.hidden(x)))


class Memory(nnx.Module):
    """A leaky sum of what was read."""

    def __init__(self, inputs: int, width: int, outputs: int, rngs: nnx.Rngs):
        self.read = nnx.Linear(inputs, width, rngs=rngs)
        self.top = nnx.Linear(width, outputs, rngs=rngs)

    def __call__(self, carry: Any, x: Any, first: Any) -> Any:
        def turn(h: Any, timestep: Any) -> Any:
            x_t, first_t = timestep
            h = jnp.where(first_t[:, None], 0.0, h) / 2 + x_t
            return h, h

        after = jax.lax.scan(turn, carry, (jnp.tanh(self.read(x)), first))[1]
        return after, self.top(after)


def flax(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    if body.recurrent:
        width = body.recurrent
        make = lambda rngs: Memory(inputs.width, width, outputs, rngs)  # noqa: E731
        return shoal.from_nnx(make, lambda batch: jnp.zeros((*batch, width)))
    return shoal.from_nnx(lambda rngs: Layers(inputs.width, outputs, rngs))


def linear(inputs: shoal.Layout, outputs: int, body: shoal.Body, output_gain: float = 1.0) -> shoal.Net:
    def init(key: Any) -> Any:
        return [output_gain * jax.random.normal(key, (inputs.width, outputs)), jnp.zeros(outputs)]

    return shoal.feed_forward(init, lambda params, x: x @ params[0] + params[1])


def scaled(inputs: shoal.Layout, outputs: int, body: shoal.Body, scale: float) -> shoal.Net:
    net = linear(inputs, outputs, body)
    return shoal.Net(net.init, lambda p, h, x, first: net.apply(p, h, scale * x, first), net.initial_carry)


doubled = functools.partial(scaled, scale=2.0)
encoded = functools.partial(json.dumps)


def counts(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    """For features that are never negative."""
    shape = (inputs.width, outputs)
    return shoal.feed_forward(lambda key: {"w": jax.random.normal(key, shape)}, lambda p, x: jnp.log1p(x) @ p["w"])


def equinox(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    import equinox as eqx

    return shoal.from_equinox(lambda key: eqx.nn.MLP(inputs.width, outputs, 5, 1, key=key))


def narrow(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    return shoal.feed_forward(lambda key: {"w": jnp.ones((inputs.width, 7))}, lambda p, x: x @ p["w"])


def counting(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    return shoal.feed_forward(lambda key: {"count": jnp.int32(0)}, lambda p, x: x[:, :outputs])


def failing(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    raise RuntimeError("no\nsuch thing")


def mismatched(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    """Multiplies by a matrix with too many rows, so that JAX raises."""
    width = inputs.width + 1
    return shoal.feed_forward(lambda key: {"w": jnp.ones((width, outputs))}, lambda params, x: x @ params["w"])


def module(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> Any:
    return Layers(inputs.width, outputs, nnx.Rngs(0))


def forgetful(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    """Gives the state after the last timestep only."""
    net = shoal.feed_forward(lambda key: {}, lambda params, x: x[:, :outputs])
    return shoal.Net(
        net.init, lambda p, h, x, first: (h, x[..., :outputs]), lambda batch: jnp.zeros((*batch, body.recurrent or 1))
    )


def short(inputs: shoal.Layout) -> None: ...


NUMBER = 3


class Normalised(nnx.Module):
    """Layers after batch normalisation."""

    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs):
        self.norm = nnx.BatchNorm(inputs, rngs=rngs)
        self.layers = Layers(inputs, outputs, rngs)

    def __call__(self, x: Any) -> Any:
        return self.layers(self.norm(x))


def statistics(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    return shoal.from_nnx(lambda rngs: Normalised(inputs.width, outputs, rngs))


def mixing(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    net = linear(inputs, outputs, body)
    apply = lambda p, h, x, first: net.apply(p, h, x - x.mean(1, keepdims=True), first)  # noqa: E731
    return shoal.Net(net.init, apply, net.initial_carry)


def first(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    """Gives the output of the first row for all."""
    net = linear(inputs, outputs, body)
    return shoal.feed_forward(net.init, lambda p, x: jnp.broadcast_to(x[0] @ p[0] + p[1], (len(x), outputs)))


def summed(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    """Takes the rows for timesteps."""
    net = linear(inputs, outputs, body)
    return shoal.feed_forward(net.init, lambda p, x: jnp.cumsum(x, 0) @ p[0] + p[1])


def linen(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    make: Any = lambda rngs: flax_linen.Dense(outputs)  # noqa: E731
    return shoal.from_nnx(make)


def undefined(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    return shoal.feed_forward(lambda key: {"w": jnp.zeros(outputs)}, lambda p, x: x[:, :outputs] / p["w"] * 0)


def empty(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    return shoal.feed_forward(lambda key: {}, lambda p, x: x[:, :outputs])


def leaking(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    """Ignores ``first``."""
    net = flax(inputs, outputs, body)
    return shoal.Net(net.init, lambda p, h, x, first: net.apply(p, h, x, jnp.zeros_like(first)), net.initial_carry)


def built_nnx(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    return shoal.from_nnx(Layers(inputs.width, outputs, nnx.Rngs(0)))  # pyright: ignore[reportArgumentType]


def built_equinox(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    import equinox as eqx

    return shoal.from_equinox(eqx.nn.MLP(inputs.width, outputs, 5, 1, key=jax.random.key(0)))
