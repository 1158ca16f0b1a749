"""HATD3: heterogeneous-agent twin delayed deterministic policy gradients (Zhong et al. 2024).

    y = Σ_{k<n} γᵏ r_{t+k} + γⁿ d min_{c=1,2} Q'_c(s_{t+n}, ã_1, …, ã_N)
    ã_j = clip( μ_j'(o_j') + clip(ε, −b, b), −1, 1 ),    ε ~ N(0, σ²)                (Fujimoto et al. 2018, section 5.3)

and one step of all actors and target networks per ``policy_delay`` steps of the critics. All other stages are
:mod:`shoal.algorithms.haddpg`'s, with its deviations; actors maximise the first critic. Equations, options and results:
docs/algorithms/hatd3.md.
"""

from dataclasses import dataclass

from shoal.algorithms import haddpg
from shoal.algorithms.maddpg import Variant
from shoal.algorithms.matd3 import smoothed
from shoal.bounds import Count, Weight
from shoal.types import Algorithm, EnvSpec, Scale

make_policy = haddpg.make_policy


@dataclass(frozen=True)
class Config(haddpg.Config):
    """HADDPG's hyper-parameters, and TD3's. "Code" is HARL, the authors' repository, for MuJoCo."""

    policy_delay: Count = 2
    """Critic steps per step of actors and target networks. Code: 2, and 8 for Walker 2x3."""
    target_noise: Weight = 0.2
    """σ of the noise on continuous target actions, in units of half their box. Code: 0.2."""
    target_noise_clip: Weight = 0.5
    """b: this noise is clipped to ± b, in the same units. Code: 0.5."""


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """HATD3 for a team.

    Raises:
        InputError: an option is out of its range, or needs what the environment does not have.
    """
    c = config
    twin = Variant(
        critics=2,
        smooth=lambda action, noise: smoothed(action, noise, c.target_noise, c.target_noise_clip),
        delay=c.policy_delay,
    )
    return haddpg.make(spec, c, scale, twin)
