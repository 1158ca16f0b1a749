"""QTRAN: learning to factorise with transformation (Son et al. 2019); QTRAN-base and QTRAN-alt.

    Q'_jt(u) = Σ_i Q_i(τ^i, u^i),    ū = (argmax Q_1, …, argmax Q_N)
    Q'_jt(u) − Q_jt(s, u) + V_jt(s)  = 0 at u = ū,  ≥ 0 elsewhere:  then ū maximises Q_jt          (Theorem 1, eq. 4)
    L_td    = (Q_jt(s, u) − y)²,    y = r + γ d Q_jt(s', ū'; θ^-)
    L_opt   = D(ū)²,                D(u) = Q'_jt(u) − ⊥Q_jt(s, u) + V_jt(s)
    L_nopt  = min(D(u), 0)²                                                                             (QTRAN-base)
    L_nopt  = (1/N) Σ_i (min_a D(a, u^{-i}))²                                                           (QTRAN-alt)
    min_θ  E[ L_td + c_opt L_opt + c_nopt L_nopt ]                                                   (sections 4.2, 4.3)

⊥ is a constant to differentiation. The form of Q_jt is not constrained; the utilities and V_jt are fitted to it, so
that agents can act on their own. All other stages are those of :mod:`shoal.algorithms.qmix`.

Deviations from the paper: Q_jt and V_jt read the state and one-hot joint actions, not the hidden layers of the
utilities' nets, so that the temporal difference does not reach the utilities, which L_opt and L_nopt alone train; ū' is
chosen by the trained utilities (``double_q``); losses are halved squares; those of qmix.py.
Equations, options and results: docs/algorithms/qtran.md.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.algorithms import qmix
from shoal.bounds import Weight, Width
from shoal.equations.distributions import ILLEGAL
from shoal.errors import unknown
from shoal.learning.config import check_options
from shoal.learning.replay import QConfig
from shoal.models.utilities import Mixer, chosen_utility, greedy_action, joint_action, mixer_input
from shoal.networks.hyper import Mixing, hypernetwork, mixing_critic, team_output
from shoal.types import Algorithm, EnvSpec, PyTree, Scale, Step

Variant = Literal["base", "alt"]

make_policy = qmix.make_policy


@dataclass(frozen=True)
class Config(QConfig):
    """QTRAN's hyper-parameters. "Paper" is Son et al. 2019, "code" pymarl's QTRAN-base.

    The code has those of :class:`shoal.algorithms.qmix.Config` beside its own.
    """

    variant: Variant = "base"
    """Joint actions in L_nopt: the one taken (``base``), or all that differ from it in at most one agent (``alt``)."""
    opt_coef: Weight = 1.0
    """Weight c_opt of L_opt. Code: 1."""
    nopt_coef: Weight = 1.0
    """Weight c_nopt of L_nopt. Code: 0.1."""
    mixer_input: Literal["state", "concat"] = "state"
    """What Q_jt and V_jt read: the global ``state``, or ``concat``, all agents' observations. Code: state."""
    mixing: Mixing = "mlp"
    """How state and joint action are combined in Q_jt: concatenated (``mlp``), or by weights from hypernetworks
    (``mix``, as in LICA). Paper: mlp."""
    mixing_width: Width = 64
    """Width of the hidden layers of Q_jt and V_jt. Code: 64."""


def make_mixer(spec: EnvSpec, c: Config) -> Mixer:
    """Q_jt, with V_jt and the losses that fit the utilities to it.

    Raises:
        InputError: the environment has no global state for Q_jt to read, or there is no such ``mixing``.
    """
    source = mixer_input(spec, c.mixer_input)
    n, actions = spec.num_agents, spec.action.width
    joint = mixing_critic(c.mixing, source.width, n, actions, embed=c.mixing_width)
    state = hypernetwork(source.width, 1, c.mixing_width, 3)

    def init(key: PRNGKeyArray) -> PyTree:
        key_joint, key_state = jax.random.split(key)
        return {"joint": joint.init(key_joint), "state": state.init(key_state)}

    def q_jt(params: PyTree, q: Array, best: Array, action: Array, step: Step) -> Float[Array, "*b"]:
        return joint.apply(params["joint"], source.features(step), joint_action(action, step.alive, actions))

    def counterfactual(params: PyTree, action: Array, step: Step) -> Float[Array, "*b N A"]:
        """Q_jt(s, (a, u^{-i})) for every action a of every agent i."""
        taken, x = joint_action(action, step.alive, actions), source.features(step)
        others = (jnp.arange(n)[:, None] != jnp.arange(n))[:, None, :, None]  # [N, 1, N, 1]
        own = jnp.eye(actions)[:, None, :]  # [A, 1, A]
        u = jnp.where(others, taken[..., None, None, :, :], own)
        features = jnp.broadcast_to(x[..., None, None, :], (*u.shape[:-2], x.shape[-1]))
        return joint.apply(params["joint"], features, u)

    def constraints(params: PyTree, values: Array, action: Array, step: Step) -> tuple[Array, dict[str, Array]]:
        fixed = jax.lax.stop_gradient(params)
        v = team_output(state, params["state"], source.features(step))[..., 0]
        greedy, highest = greedy_action(values, step)
        q = chosen_utility(values, action, step.alive)
        l_opt = jnp.square(highest.sum(-1) - q_jt(fixed, q, highest, greedy, step) + v) / 2
        if c.variant == "base":
            d = q.sum(-1) - q_jt(fixed, q, highest, action, step) + v
            l_nopt = jnp.square(jnp.minimum(d, 0.0)) / 2
        else:
            transformed = q.sum(-1)[..., None, None] + values - q[..., None]  # Q'_jt(a, u^{-i})
            d = transformed - counterfactual(fixed, action, step) + v[..., None, None]
            least = jnp.where(step.legal, d, -ILLEGAL).min(-1)
            living = jnp.maximum(step.alive.sum(-1), 1)
            l_nopt = jnp.where(step.alive, jnp.square(least), 0.0).sum(-1) / living / 2
        return c.opt_coef * l_opt + c.nopt_coef * l_nopt, {"opt_loss": l_opt, "nopt_loss": l_nopt, "v": v}

    return Mixer(init, q_jt, reads_state=c.mixer_input == "state", constraints=constraints)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """QTRAN for an environment with discrete actions.

    Raises:
        InputError: actions are continuous, the environment has no global state for Q_jt to read, there is no such
            variant or ``mixing``, or an option is out of its range.
    """
    if config.variant not in get_args(Variant):
        raise unknown("variant of QTRAN", config.variant, get_args(Variant))
    check_options(config)
    return qmix.make_q_learning(spec, config, scale, make_mixer(spec, config))
