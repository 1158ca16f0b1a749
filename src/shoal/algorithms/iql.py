"""IQL: independent Q-learning (Tan 1993), with the deep Q-network of Mnih et al. 2015: QMIX's family without a mixer.

    y^i_t = r^i_t + γ d^i_t max_a Q^i(o^i_{t+1}, a; θ^-)
    min_θ  E[ (y^i_t − Q^i(o^i_t, a^i_t; θ))² ]                                            (Mnih et al. 2015, eq. 2)

Each agent treats the others as part of its environment and learns from its own reward. Double Q, recurrent nets and
targets over several steps are options. Equations, options and results: docs/algorithms/qmix.md.
"""

from dataclasses import dataclass

from shoal.algorithms import qmix
from shoal.learning.replay import QConfig
from shoal.models.utilities import Mixer
from shoal.types import Algorithm, EnvSpec, Scale


@dataclass(frozen=True)
class Config(QConfig):
    """IQL's hyper-parameters. pymarl has those of :class:`shoal.algorithms.qmix.Config`."""


ALONE = Mixer(lambda key: None, lambda params, q, best, action, step: q, team=False)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """IQL for an environment with discrete actions.

    Raises:
        InputError: actions are continuous, or an option is out of its range.
    """
    return qmix.make_q_learning(spec, config, scale, ALONE)


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    return qmix.make_policy(spec, config, team=False)
