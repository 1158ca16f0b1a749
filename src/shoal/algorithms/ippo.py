"""IPPO: independent PPO on each agent's own observations (de Witt et al. 2020).

The objective is MAPPO's, with V reading the agent's own observation: MAPPO with ``critic_input="local"`` *is* IPPO,
which is all that this file sets. Equations, options and results: docs/algorithms/mappo.md.
"""

from dataclasses import dataclass

from shoal.algorithms import mappo
from shoal.networks.inputs import CriticInput

make, make_policy = mappo.make, mappo.make_policy


@dataclass(frozen=True)
class Config(mappo.Config):
    """MAPPO's hyper-parameters with a local critic."""

    critic_input: CriticInput = "local"
    """What V reads; ``local`` is the agent's own observation (de Witt et al. 2020, section 3)."""
