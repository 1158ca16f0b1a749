"""Mixing critics: the value of a joint action, whose weights on the actions are computed from the state.

A hypernetwork is a net whose output is the weights of another (Ha et al. 2017). State and actions are then
multiplied, so the gradient of Q in the actions depends on the state:

    v = f_s(s) f_u(u):  ∂v/∂u = f_s(s) ∂f_u/∂u,    against   v = f_s(s) + f_u(u):  ∂v/∂u = ∂f_u/∂u
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.errors import unknown
from shoal.networks.body import Body, build_body
from shoal.networks.net import Net
from shoal.networks.sharing import for_team
from shoal.types import PyTree

Mixing = Literal["mix", "mlp"]


def hypernetwork(inputs: int, outputs: int, hidden: int, layers: int) -> Net:
    """A net that outputs weights: ``layers`` layers with ReLU, 1 is linear; parameters have a leading axis P = 1."""
    return for_team(build_body(Body((hidden,) * (layers - 1), activation="relu", orthogonal=False), inputs, outputs))


def team_output(net: Net, params: PyTree, x: Float[Array, "*b F"]) -> Float[Array, "*b K"]:
    """The output of a feed-forward net of the team for ``x``."""
    return net.apply(params, (), x, jnp.zeros(x.shape[:1], bool))[1]  # feed-forward: nothing is reset


def sum_of_row(x: Float[Array, "*b K"]) -> Float[Array, "*b"]:
    """Σ_k x_k, as a product with ones.

    On a CPU XLA fuses a sum with the layers of a hypernetwork before it, whose products then take three times as long.
    """
    return x @ jnp.ones(x.shape[-1], x.dtype)


class Mixer(NamedTuple):
    """A scalar for the team from the critic's features and all agents' actions."""

    init: Callable[[PRNGKeyArray], PyTree]
    """key -> parameters, leaves with a leading axis of length 1."""
    apply: Callable[[PyTree, Float[Array, "*b F"], Float[Array, "*b N A"]], Float[Array, "*b"]]
    """(parameters, features of the state, one row per agent: a one-hot action or probabilities) -> Q."""


def mixing_critic(
    kind: Mixing, features: int, num_agents: int, num_actions: int, embed: int = 64, layers: int = 2
) -> Mixer:
    """LICA's mixing critic (Zhou et al. 2020, section 3.1 and figure 1b), or the MLP that it is compared with.

    ``mix``, with u the rows of all agents in one vector of length N·A:

        Q(s, u) = relu(u W₁(s) + b₁(s)) · w₂(s) + b₂(s)

    where W₁ [N·A, E], w₂ [E] and b₂ are hypernetworks of the features and b₁ [E] is linear in them. Weights of
    either sign are allowed, so Q need not be monotone in the actions. ``mlp`` concatenates features and actions, and
    has two ReLU layers of width E. Hypernetworks are initialised so that W₁ and w₂ have the variances of LeCun's
    initialisation (Chang et al. 2020, Principled Weight Initialization for Hypernetworks, "hyperfan-in").

    Args:
        kind: ``mix`` or ``mlp``.
        features: F, the width of the critic's features of the state.
        num_agents: N.
        num_actions: A.
        embed: E, the width of the mixing layer and of the hypernetworks' hidden layers.
        layers: layers of each hypernetwork; 1 is linear, and b₂ always has 2.

    Raises:
        InputError: there is no such kind, or E is below 1.
    """
    if kind not in get_args(Mixing):
        raise unknown("mixing", kind, get_args(Mixing))
    width = num_agents * num_actions

    if kind == "mlp":
        plain = hypernetwork(features + width, 1, embed, 3)

        def side_by_side(params: PyTree, x: Array, actions: Array) -> Array:
            u = actions.reshape(*actions.shape[:-2], width)
            return team_output(plain, params, jnp.concatenate([x, u], axis=-1))[..., 0]

        return Mixer(plain.init, side_by_side)

    nets = {
        "w1": hypernetwork(features, width * embed, embed, layers),
        "b1": hypernetwork(features, embed, embed, 1),
        "w2": hypernetwork(features, embed, embed, layers),
        "b2": hypernetwork(features, 1, embed, 2),
    }

    def init(key: PRNGKeyArray) -> PyTree:
        keys = jax.random.split(key, len(nets))
        params = {name: net.init(k) for (name, net), k in zip(nets.items(), keys, strict=True)}
        for name, fan_in in (("w1", num_agents), ("w2", embed)):  # N of the N·A entries of one-hot actions are not 0
            params[name]["head"]["kernel"] *= fan_in**-0.5
        return params

    def apply(params: PyTree, x: Array, actions: Array) -> Array:
        w1, b1, w2, b2 = (team_output(net, params[name], x) for name, net in nets.items())
        u = actions.reshape(*actions.shape[:-2], width)
        hidden = jax.nn.relu(jnp.einsum("...u,...ue->...e", u, w1.reshape(*w1.shape[:-1], width, embed)) + b1)
        return sum_of_row(hidden * w2) + b2[..., 0]

    return Mixer(init, apply)
