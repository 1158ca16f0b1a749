"""IA2C: independent advantage actor-critic on each agent's own observations (Papoudakis et al. 2021).

MAA2C with a local critic; its file has the equations. Options and results: docs/algorithms/a2c.md.
"""

from dataclasses import dataclass

from shoal.algorithms import maa2c
from shoal.networks.inputs import CriticInput

make, make_policy = maa2c.make, maa2c.make_policy


@dataclass(frozen=True)
class Config(maa2c.Config):
    """MAA2C's hyper-parameters with a local critic."""

    critic_input: CriticInput = "local"
    """What V reads; ``local`` is the agent's own observation."""
