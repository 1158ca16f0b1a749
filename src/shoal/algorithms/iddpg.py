"""IDDPG: independent deep deterministic policy gradients (Lillicrap et al. 2016), which MADDPG is compared with.

    min E[ (Q_i(o_i, a_i) − y_i)² ],   y_i = r_i + γ d_i Q_i'(o_i', μ_i'(o_i'))     (Lillicrap et al. 2016, eq. 4, 5)
    ∇_{θ_i} J = E[ ∇ μ_i(o_i) ∇_{a_i} Q_i(o_i, a_i) |_{a_i = μ_i(o_i)} ]                                      (eq. 6)

It is :mod:`shoal.algorithms.maddpg` with critics that read their own agent's observation and action only. Equations,
options and results: docs/algorithms/maddpg.md.
"""

from dataclasses import dataclass
from typing import Literal

from shoal.algorithms import maddpg
from shoal.types import Algorithm, EnvSpec, Scale

make_policy = maddpg.make_policy


@dataclass(frozen=True)
class Config(maddpg.Config):
    """MADDPG's hyper-parameters, with a local critic."""

    critic_input: Literal["concat", "state", "local"] = "local"
    """What Q^i reads in addition to actions; ``local`` is DDPG."""


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """Independent DDPG for every agent.

    Raises:
        InputError: an option is out of its range, or needs what the environment does not have.
    """
    return maddpg.make(spec, config, scale)
