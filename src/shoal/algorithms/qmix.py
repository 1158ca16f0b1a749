"""QMIX: monotonic value function factorisation (Rashid et al. 2018).

    Q_tot(s, u) = w(s)ᵀ elu( W(s)ᵀ q + b(s) ) + v(s),    q_i = Q_i(τ^i, u^i),    W, w ≥ 0        (section 4.1, figure 2)
    ∂Q_tot / ∂Q_i ≥ 0  for every i, so that  argmax_u Q_tot = (argmax Q_1, …, argmax Q_N)                     (eq. 5, 4)
    min_θ  E[ (y − Q_tot(s, u; θ))² ],  y = r + γ d max_u' Q_tot(s', u'; θ^-)                                 (eq. 6, 7)

Hypernetworks make the mixing weights from the state; an absolute value keeps them from being negative, by construction
and not by a penalty. All other stages are those of :mod:`shoal.algorithms._q`.

Deviations from the authors' code: the target reads the discount of the outcome itself, so a time limit bootstraps;
Adam for RMSprop, one clip of gradients for utilities and one for the mixer; utilities do not read the last action.
Equations, options and results: docs/algorithms/qmix.md.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.algorithms import _q
from shoal.algorithms._config import check_options
from shoal.bounds import Depth, Width
from shoal.networks.hyper import hypernetwork, read
from shoal.types import Algorithm, EnvSpec, PyTree, Scale, Step


@dataclass(frozen=True)
class Config(_q.QConfig):
    """QMIX's hyper-parameters. "Paper" is Rashid et al. 2018, "code" its repository (pymarl)."""

    mixer_input: Literal["state", "concat"] = "state"
    """What the hypernetworks read: the global ``state``, or ``concat``, all agents' observations. Paper: state."""
    mixing_width: Width = 32
    """Width of the mixing layer. Paper: 32."""
    hyper_width: Width = 64
    """Width of the hidden layer of the hypernetworks that make weights. Code: 64."""
    hyper_layers: Depth = 2
    """Layers of those hypernetworks. Paper: 1; code: 2."""


def mix(
    q: Float[Array, "*b N"],
    w1: Float[Array, "*b N M"],
    b1: Float[Array, "*b M"],
    w2: Float[Array, "*b M"],
    v: Float[Array, "*b"],
) -> Float[Array, "*b"]:
    """Q_tot = |w2|ᵀ elu(|W1|ᵀ q + b1) + v (Rashid et al. 2018, section 4.1)."""
    hidden = jax.nn.elu(jnp.einsum("...n,...nm->...m", q, jnp.abs(w1)) + b1)
    return (hidden * jnp.abs(w2)).sum(-1) + v


def make_mixer(spec: EnvSpec, c: Config) -> _q.Mixer:
    """QMIX's mixing network.

    Raises:
        InputError: the environment has no global state and the hypernetworks shall read it.
    """
    source = _q.mixer_input(spec, c.mixer_input)
    n, width = spec.num_agents, c.mixing_width
    nets = {
        "w1": hypernetwork(source.width, n * width, c.hyper_width, c.hyper_layers),
        "b1": hypernetwork(source.width, width, c.hyper_width, 1),
        "w2": hypernetwork(source.width, width, c.hyper_width, c.hyper_layers),
        "v": hypernetwork(source.width, 1, width, 2),
    }

    def init(key: PRNGKeyArray) -> PyTree:
        keys = jax.random.split(key, len(nets))
        params = {name: net.init(k) for (name, net), k in zip(nets.items(), keys, strict=True)}
        for name, fan_in in (("w1", n), ("w2", width)):  # mixing weights start with LeCun's variances
            params[name]["head"]["kernel"] *= fan_in**-0.5
        return params

    def apply(params: PyTree, q: Array, best: Array, action: Array, step: Step) -> Float[Array, "*b"]:
        x = source.features(step)
        w1, b1, w2, v = (read(net, params[name], x) for name, net in nets.items())
        return mix(q, w1.reshape(*w1.shape[:-1], n, width), b1, w2, v[..., 0])

    return _q.Mixer(init, apply, reads_state=c.mixer_input == "state")


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """QMIX for an environment with discrete actions.

    Raises:
        InputError: actions are continuous, the environment has no global state and the mixer shall read it, or an
            option is out of its range.
    """
    check_options(config)
    return _q.make_with(spec, config, scale, make_mixer(spec, config))
