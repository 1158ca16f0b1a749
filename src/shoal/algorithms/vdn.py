"""VDN: value decomposition networks (Sunehag et al. 2018).

    Q_tot(s, u) = Σ_i Q_i(τ^i, u^i)                                                       (Sunehag et al. 2018, eq. 1)

One temporal difference of the team's reward trains all utilities through their sum; each agent then maximises
its own, since a sum is largest where every term is. All other stages are those of :mod:`shoal.algorithms.qmix`.
Equations, options and results: docs/algorithms/qmix.md.
"""

from dataclasses import dataclass

from shoal.algorithms import qmix
from shoal.learning.replay import QConfig
from shoal.models.utilities import Mixer
from shoal.types import Algorithm, EnvSpec, Scale

make_policy = qmix.make_policy


@dataclass(frozen=True)
class Config(QConfig):
    """VDN's hyper-parameters. pymarl has those of :class:`shoal.algorithms.qmix.Config`."""


MIX = Mixer(lambda key: None, lambda params, q, best, action, step: q.sum(-1))


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """VDN for an environment with discrete actions.

    Raises:
        InputError: actions are continuous, or an option is out of its range.
    """
    return qmix.make_q_learning(spec, config, scale, MIX)
