"""MASAC: multi-agent soft actor-critic, HASAC whose agents learn at the same time (Liu et al. 2024 compare with it).

    max_{θ_i}  E[ min_c Q_c(s, a^i, a^{−i}) − α_i log π_{θ_i}(a^i|o^i) ]     with a^{−i} from the current policies

It is :mod:`shoal.algorithms.hasac` but for the others' actions in an agent's step, which are those before any agent's
step. Critics, targets and temperatures are the same. Equations, options and results: docs/algorithms/hasac.md.
"""

from dataclasses import dataclass

from shoal.algorithms import hasac
from shoal.types import Algorithm, EnvSpec, Scale

make_policy = hasac.make_policy


@dataclass(frozen=True)
class Config(hasac.Config):
    """HASAC's hyper-parameters; ``order`` matters only to agents that share parameters."""


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """MASAC for a team.

    Raises:
        InputError: an option is out of its range, or needs what the environment does not have.
    """
    return hasac.make(spec, config, scale, sequential=False)
