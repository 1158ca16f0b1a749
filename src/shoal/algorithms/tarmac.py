"""TarMAC: messages with a signature, which each receiver weighs by its query (Das et al. 2019).

    k_i, v_i = W_k h_i, W_v h_i: the message of agent i, its signature and its value;    q_j = W_q h_j: a query
    α_j = softmax_i[ q_jᵀ k_i / √d_k ],    c_j = Σ_i α_ji v_i                                             (section 4)
    h'_j = tanh(W [c_j ‖ h_j]),    repeated with h' in place of h for ``rounds``
    π(a_j | o) = softmax(D h'_j)

where h are the layers of ``network``, recurrent if they are, and one more, and i runs over the living agents, j among
them. All agents act on all observations, through these messages alone. The loss is MAPPO's, with its centralised
critic; its gradient goes back through messages and weights to their senders; with one epoch and one minibatch it is
advantage actor-critic's.

Deviations from the authors: they train by an advantage actor-critic whose critic reads all hidden states; their GRU
reads at t the messages of t − 1, where here the messages of a timestep are read in the same one and follow the GRU;
agents may have parameters of their own, where theirs share them; σ is the network's activation in place of tanh.
Equations, options and results: docs/algorithms/commnet.md.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.algorithms import mappo
from shoal.bounds import Depth, Width
from shoal.models import talking
from shoal.networks.architecture import ACTIVATIONS, Body
from shoal.networks.layers import attention_weights
from shoal.networks.messages import Exchange, linear
from shoal.types import Algorithm, EnvSpec, PyTree, Scale


@dataclass(frozen=True)
class Config(mappo.Config):
    """MAPPO's hyper-parameters, and those of messages. "Paper" is Das et al. 2019 where it is named here."""

    rounds: Depth = 1
    """Rounds of messages in each timestep. Paper: 1 or 2."""
    silent: bool = False
    """Nobody hears anybody, with the same layers: the control without communication."""
    signature_width: Width = 16
    """Width d_k of signatures and queries. Paper: 16."""
    value_width: Width = 32
    """Width of a message's value. Paper: 32."""


def targeted(signature: int, value: int, body: Body, width: int, index: tuple[int, ...]) -> Exchange:
    """A round: h' = σ(W [c ‖ h]) with c = Σ_i softmax_i(q · k_i / √d_k) v_i (section 4).

    The sum is over the agents that are heard and the agent itself; c is 0 where nobody is heard.
    """
    message = linear(body, width, signature + value, index)  # k, v
    query, update = linear(body, width, signature, index), linear(body, value + width, width, index)  # q, W

    def init(key: PRNGKeyArray) -> PyTree:
        keys = jax.random.split(key, 3)
        return {"message": message.init(keys[0]), "query": query.init(keys[1]), "update": update.init(keys[2])}

    def apply(
        params: PyTree, h: Float[Array, "T E N D"], hears: Bool[Array, "T E N N"]
    ) -> tuple[Float[Array, "T E N D"], Float[Array, "T E N N"]]:
        first, (T, E, N) = jnp.zeros(h.shape[:2], bool), h.shape[:3]
        k, v = jnp.split(message.apply(params["message"], (), h, first)[1], [signature], axis=-1)
        q = query.apply(params["query"], (), h, first)[1]
        among = (hears | jnp.eye(N, dtype=bool)).reshape(T * E, N, N)
        alpha = attention_weights(q.reshape(T * E, N, -1), k.reshape(T * E, N, -1), among, 1).reshape(T, E, N, N)
        alpha = jnp.where(hears.any(-1, keepdims=True), alpha, 0.0)
        mixed = update.apply(params["update"], (), jnp.concatenate([alpha @ v, h], axis=-1), first)[1]
        return ACTIVATIONS[body.activation](mixed), alpha

    return Exchange(init, apply, each_its_own=False)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """TarMAC for an environment.

    Raises:
        InputError: the baseline is not ``value``, ``dead_value`` is not ``team``, or as
            :func:`shoal.algorithms.mappo.make`.
    """
    return talking.make(mappo.make, partial(targeted, config.signature_width, config.value_width), spec, config, scale)


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The team, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    return talking.make_policy(partial(targeted, config.signature_width, config.value_width), spec, config)
