"""Networks of your own; docs/your-network.md explains them.

shoal train mappo mpe/simple_spread --network own_network:wide
"""

import jax
import jax.numpy as jnp
from flax import nnx

import shoal


def wide(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    """One hidden layer, in plain JAX."""

    def init(key):
        key_hidden, key_head = jax.random.split(key)
        return {
            "hidden": jax.random.normal(key_hidden, (inputs.width, 256)) / inputs.width**0.5,
            "head": 0.01 * jax.random.normal(key_head, (256, outputs)),
        }

    def apply(params, x):
        return jax.nn.silu(x @ params["hidden"]) @ params["head"]

    return shoal.feed_forward(init, apply)


class Residual(nnx.Module):
    """A residual layer between two others."""

    def __init__(self, inputs: int, outputs: int, width: int, rngs: nnx.Rngs):
        self.embed = nnx.Linear(inputs, width, rngs=rngs)
        self.inner = nnx.Linear(width, width, rngs=rngs)
        self.head = nnx.Linear(width, outputs, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.embed(x))
        return self.head(x + nnx.relu(self.inner(x)))


def residual(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    return shoal.from_nnx(lambda rngs: Residual(inputs.width, outputs, body.hidden[0], rngs))


class Remembering(nnx.Module):
    """Flax's GRU cell, with a state that is reset at the start of each episode."""

    def __init__(self, inputs: int, outputs: int, width: int, rngs: nnx.Rngs):
        self.cell = nnx.GRUCell(inputs, width, rngs=rngs)
        self.head = nnx.Linear(width, outputs, rngs=rngs)

    def __call__(self, carry, x, first):
        def step(h, timestep):
            x_t, first_t = timestep
            h, _ = self.cell(jnp.where(first_t[:, None], 0.0, h), x_t)
            return h, h

        states = jax.lax.scan(step, carry, (x, first))[1]
        return states, self.head(states)


def remembering(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    width = body.recurrent
    if width is None:  # a critic that sees single timesteps, as in MADDPG
        return residual(inputs, outputs, body)
    return shoal.from_nnx(
        lambda rngs: Remembering(inputs.width, outputs, width, rngs), lambda batch: jnp.zeros((*batch, width))
    )


class Convolutional(nnx.Module):
    """Two convolutions over each image; their output is concatenated with all other features."""

    def __init__(self, inputs: shoal.Layout, outputs: int, rngs: nnx.Rngs):
        self.inputs = inputs
        images = [part.shape for part in inputs.parts if len(part.shape) == 3]
        rows, columns, channels = images[0]
        self.first = nnx.Conv(channels, 16, (3, 3), rngs=rngs)
        self.second = nnx.Conv(16, 16, (3, 3), strides=2, rngs=rngs)
        seen = len(images) * -(-rows // 2) * -(-columns // 2) * 16
        others = inputs.width - len(images) * rows * columns * channels
        self.hidden = nnx.Linear(seen + others, 64, rngs=rngs)
        self.head = nnx.Linear(64, outputs, rngs=rngs)

    def __call__(self, x):
        features = []
        for part in self.inputs.split(x):
            if part.ndim == 4:
                part = nnx.relu(self.second(nnx.relu(self.first(part))))
            features.append(part.reshape(x.shape[0], -1))
        return self.head(nnx.relu(self.hidden(jnp.concatenate(features, axis=-1))))


def convolutional(inputs: shoal.Layout, outputs: int, body: shoal.Body) -> shoal.Net:
    return shoal.from_nnx(lambda rngs: Convolutional(inputs, outputs, rngs))
