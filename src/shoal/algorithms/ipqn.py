"""IPQN: PQN for independent learners (Gallici et al. 2025), PQN-VDN without the sum; with one agent it is PQN.

    G^i_t = r^i_t + γ d^i_t [ (1 − λ) max_a Q^i(o^i_{t+1}, a; θ) + λ G^i_{t+1} ]     (Gallici et al. 2025, algorithm 1)
    min_θ  E[ (G^i_t − Q^i(o^i_t, a^i_t; θ))² ]

Each agent treats the others as part of its environment and learns from its own reward. Stages, options and deviations
are those of :mod:`shoal.algorithms.pqn_vdn`. Equations, options and results: docs/algorithms/pqn.md.
"""

from dataclasses import dataclass

from shoal.algorithms import iql, pqn_vdn
from shoal.types import Algorithm, EnvSpec, Scale


@dataclass(frozen=True)
class Config(pqn_vdn.Config):
    """PQN's hyper-parameters, those of :class:`shoal.algorithms.pqn_vdn.Config`."""


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """Independent PQN for an environment with discrete actions.

    Raises:
        InputError: as :func:`shoal.algorithms.pqn_vdn.make`.
    """
    return pqn_vdn.make(spec, config, scale, iql.ALONE)


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    return pqn_vdn.make_policy(spec, config, team=False)
