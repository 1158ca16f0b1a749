"""Networks of a team whose agents exchange messages before they act, in rounds within each timestep.

Each agent's own net, with its recurrent state if it has one, gives a hidden state h. A round is a function of the
paper, :class:`Exchange`: every agent sends one message to the others, and reads theirs into its new h. The last layer
is again each agent's own. Messages are differentiable: the gradient of a receiver's action reaches the sender. They
are made of the present timestep alone, so no message has to be kept from one timestep to the next or reset between
episodes. Who is dead or gone sends nothing, and nothing passes between teams that compete.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.errors import InputError
from shoal.networks.architecture import ACTIVATIONS, Body
from shoal.networks.body import build_body
from shoal.networks.inputs import Layout
from shoal.networks.layers import apply_linear, init_linear
from shoal.networks.net import Net
from shoal.networks.sharing import TeamNet, per_agent
from shoal.networks.user_networks import feed_forward
from shoal.types import EnvSpec, PyTree, Step


class Exchange(NamedTuple):
    """One round of messages."""

    init: Callable[[PRNGKeyArray], PyTree]
    """Key -> parameters, leaves with a leading axis of P policies."""
    apply: Callable[[PyTree, Float[Array, "T E N D"], Bool[Array, "T E N N"]], tuple[Array, Array]]
    """(parameters, h, which other agent (last axis) each agent hears) -> (the new h, the weight of each agent's message
    for each agent [T, E, N, N])."""
    each_its_own: bool
    """Whether each round has parameters of its own."""


def linear(body: Body, inputs: int, outputs: int, index: tuple[int, ...]) -> Net:
    """An affine layer of each agent, with the parameters of its policy: [T, E, N, F] -> [T, E, N, K]."""
    layer = feed_forward(lambda key: init_linear(key, body, inputs, outputs, body.gain), apply_linear)
    return per_agent(layer, index)


def hearing(spec: EnvSpec, alive: Bool[Array, "*b N"]) -> Bool[Array, "*b N N"]:
    """Which agent (last axis) each agent may hear: the living ones of its own team but itself."""
    team = np.zeros(spec.num_agents, int)
    for number, members in enumerate(spec.competing):
        team[list(members)] = number
    together = (team[:, None] == team) & ~np.eye(spec.num_agents, dtype=bool)
    return alive[..., None, :] & together


def talking(
    spec: EnvSpec,
    body: Body,
    layout: Layout,
    index: tuple[int, ...],
    exchange: Callable[[Body, int, tuple[int, ...]], Exchange],
    rounds: int,
    silent: bool,
    outputs: int,
    output_gain: float,
    log_std: float | None,
) -> TeamNet:
    """The net of a team that talks.

    Args:
        spec: the environment's description.
        body: layers before the first message.
        layout: what each agent's net reads.
        index: each agent's policy.
        exchange: (body, width D of h, ``index``) -> a round.
        rounds: number of rounds in each timestep.
        silent: nobody hears anybody; all else stays as it is.
        outputs: of each agent.
        output_gain: gain of the last layer's kernel.
        log_std: see :func:`shoal.networks.body.build_body`.

    Raises:
        InputError: the network's outputs depend on entities.
    """
    if body.network == "universal":
        raise InputError("Network 'universal' computes actions from entities, and messages are between: use entities.")
    width = body.recurrent or (body.hidden[-1] if body.hidden else 64)
    encoder = per_agent(build_body(body, layout, width, output_gain=body.gain), index)
    head = per_agent(
        build_body(
            Body(hidden=(), orthogonal=body.orthogonal), width, outputs, output_gain=output_gain, log_std=log_std
        ),
        index,
    )
    round_ = exchange(body, width, index)

    def init(key: PRNGKeyArray) -> PyTree:
        key_encoder, key_head, *keys = jax.random.split(key, 2 + (rounds if round_.each_its_own else 1))
        return {
            "encoder": encoder.init(key_encoder), "rounds": [round_.init(k) for k in keys], "head": head.init(key_head)
        }  # fmt: skip

    def run(params: PyTree, carry: PyTree, x: Array, step: Step) -> tuple[PyTree, Array, Array]:
        hears = hearing(spec, step.alive & (not silent))
        carry, h = encoder.apply(params["encoder"], carry, x, step.first)
        h, weights = ACTIVATIONS[body.activation](h), jnp.zeros(hears.shape)
        for i in range(rounds):
            h, share = round_.apply(params["rounds"][i if round_.each_its_own else 0], h, hears)
            weights += share / rounds
        return carry, head.apply(params["head"], (), h, step.first)[1], weights

    return TeamNet(
        init,
        encoder.initial_carry,
        lambda *given: run(*given)[:2],
        lambda *given: run(*given)[2],
    )
