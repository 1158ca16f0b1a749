"""CommNet: agents that hear the mean of the others' hidden states (Sukhbaatar et al. 2016).

    h_j^0 = σ(r(o_j)),    c_j^i = 1/(J − 1) Σ_{j' ≠ j} h_{j'}^i                                            (eq. 3)
    h_j^{i+1} = σ(H^i h_j^i + C^i c_j^i),    i = 0 … K − 1                                      (eq. 2, section 3.1)
    π(a_j | o) = softmax(D h_j^K)

where r are the layers of ``network``, recurrent if they are, and a linear one, J counts the living agents and K is
``rounds``. All agents act on all observations, through these messages alone. The loss is MAPPO's, with its centralised
critic, whose gradient goes back through messages to their senders; one epoch and one minibatch make it an advantage
actor-critic.

Deviations from the authors: they train by policy gradient with a learned baseline of the whole team's state, on the
model's own layers; the message of a timestep is read in the same timestep, also with recurrence (their recurrent
variant takes timesteps for rounds); agents may have parameters of their own, where theirs share them; no skip
connection from h^0, no local communication range. Equations, options and results: docs/algorithms/commnet.md.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.algorithms import mappo
from shoal.bounds import Depth
from shoal.models import talking
from shoal.networks.architecture import ACTIVATIONS, Body
from shoal.networks.messages import Exchange, linear
from shoal.types import Algorithm, EnvSpec, PyTree, Scale


@dataclass(frozen=True)
class Config(mappo.Config):
    """MAPPO's hyper-parameters, and those of messages. "Paper" is Sukhbaatar et al. 2016 where it is named here."""

    rounds: Depth = 1
    """K: rounds of messages in each timestep. Paper: 1 or 2."""
    silent: bool = False
    """Nobody hears anybody, with the same layers: the control without communication."""


def mean_of_others(body: Body, width: int, index: tuple[int, ...]) -> Exchange:
    """A round: h' = σ(H h + C c) with the mean c of the others' h; c is 0 where nobody is heard (eq. 2 and 3)."""
    own, heard = (linear(body, width, width, index) for _ in range(2))  # H, C

    def init(key: PRNGKeyArray) -> PyTree:
        key_own, key_heard = jax.random.split(key)
        return {"own": own.init(key_own), "heard": heard.init(key_heard)}

    def apply(
        params: PyTree, h: Float[Array, "T E N D"], hears: Bool[Array, "T E N N"]
    ) -> tuple[Float[Array, "T E N D"], Float[Array, "T E N N"]]:
        weights = hears / jnp.maximum(hears.sum(-1, keepdims=True), 1)
        c = weights @ h
        first = jnp.zeros(h.shape[:2], bool)
        mixed = own.apply(params["own"], (), h, first)[1] + heard.apply(params["heard"], (), c, first)[1]
        return ACTIVATIONS[body.activation](mixed), weights

    return Exchange(init, apply, each_its_own=True)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """CommNet for an environment.

    Raises:
        InputError: the baseline is not ``value``, ``dead_value`` is not ``team``, or as
            :func:`shoal.algorithms.mappo.make`.
    """
    return talking.make(mappo.make, mean_of_others, spec, config, scale)


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The team, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    return talking.make_policy(mean_of_others, spec, config)
