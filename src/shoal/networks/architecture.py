"""The architecture of actors and critics: what a user can choose about their networks."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from shoal.bounds import Depth, Gain, Width, check_bounds
from shoal.errors import InputError, unknown

Activation = Literal["tanh", "relu", "gelu", "silu"]
ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "gelu": jax.nn.gelu, "silu": jax.nn.silu}
NETWORKS = ("auto", "mlp", "cnn", "impala", "entities", "universal")
"""Names of the networks here."""


@dataclass(frozen=True)
class Body:
    """The architecture of a network, without its input and output widths."""

    hidden: tuple[Width, ...] = (64, 64)
    """Width of each fully connected layer."""
    activation: Activation = "tanh"
    """Nonlinearity after each fully connected layer. Paper (MAPPO): tanh in spread, relu elsewhere."""
    recurrent: Width | None = None
    """Width H of a recurrent layer between the last layer and the head; None for a feed-forward net."""
    layer_norm: bool = False
    """Normalise after every activation, and after the recurrent layer (Andrychowicz et al. 2021; Yu et al. 2022)."""
    input_layer_norm: bool = False
    """Normalise the raw input features of each sample, as the MAPPO authors' code does; for images and entities,
    normalise the output of their layers."""
    orthogonal: bool = True
    """Orthogonal kernels (Saxe et al. 2014), those of recurrent layers with gain 1; otherwise LeCun normal."""
    gain: Gain = 2**0.5
    """Gain of the orthogonal kernels of the hidden layers."""
    network: str = "auto"
    """Layers before the fully connected ones: ``mlp`` none, ``cnn`` or ``impala`` convolutions over images,
    ``entities`` attention over sets of entities, ``universal`` the same with parameters for any number of agents,
    entities and actions that target entities; ``auto`` is cnn if there are images, else mlp. Or ``module:function``,
    your own network (docs/your-network.md)."""
    cell: Literal["gru", "lstm"] = "gru"
    """Kind of the recurrent layer."""
    channels: tuple[Width, ...] = (16, 32, 32)
    """Channels of each convolution of cnn, or of each stage of impala (Espeholt et al. 2018)."""
    entity_blocks: Depth = 1
    """Blocks of attention and MLP among entities."""
    entity_heads: Depth = 4
    """Heads of the attention among entities; they must divide the width of the first hidden layer."""


def own_network(body: Body) -> bool:
    """Whether the network is the user's own, ``module:function``."""
    return ":" in body.network


def check_body(body: Body) -> None:
    """Check an architecture as far as is possible without its input.

    Raises:
        InputError: there is no such activation, cell or network, or a number is out of its bounds.
    """
    if body.activation not in ACTIVATIONS:
        raise unknown("activation", body.activation, ACTIVATIONS)
    if body.cell not in ("gru", "lstm"):
        raise unknown("cell", body.cell, ("gru", "lstm"))
    if not own_network(body) and body.network not in NETWORKS:
        raise InputError(
            f"{unknown('network', body.network, NETWORKS)} The name of your own network is module:function."
        )
    check_bounds(body)
    if not body.channels and body.network in ("auto", "cnn", "impala"):
        raise InputError("A network for images needs at least one number of channels.")
