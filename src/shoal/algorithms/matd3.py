"""MATD3: twin delayed MADDPG (Ackermann et al. 2019), TD3's three changes (Fujimoto et al. 2018) for teams.

    y_i = r_i + γ d_i min_{c=1,2} Q'_{i,c}(x', ã_1, …, ã_N)                             (Fujimoto et al. 2018, eq. 10)
    ã_j = clip( μ_j'(o_j') + clip(ε, −b, b), −1, 1 ),    ε ~ N(0, σ²)                                   (section 5.3)

and one step of actors and target networks per ``policy_delay`` steps of the critics. Discrete target actions are
samples of the policy, without noise.

Deviation from TD3's code: before ``learning_starts`` agents act with their initial policies and exploration noise,
unless ``random_start``. All other stages are :mod:`shoal.algorithms.maddpg`'s; actors maximise the first critic.
Equations, options and results: docs/algorithms/maddpg.md.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from shoal.algorithms import maddpg
from shoal.bounds import Count, Weight
from shoal.types import Algorithm, EnvSpec, Scale

make_policy = maddpg.make_policy


@dataclass(frozen=True)
class Config(maddpg.Config):
    """MADDPG's hyper-parameters, and TD3's. "Paper" is Ackermann et al. 2019 there."""

    policy_delay: Count = 2
    """Critic steps per step of actors and target networks. Paper: 2."""
    target_noise: Weight = 0.2
    """σ of the noise on continuous target actions, in units of half their box. Paper: 0.2."""
    target_noise_clip: Weight = 0.5
    """b: this noise is clipped to ± b, in the same units. Paper: 0.5."""


def smoothed(
    action: Float[Array, "*b A"], noise: Float[Array, "*#b A"], scale: float, bound: float
) -> Float[Array, "*b A"]:
    """ã from a target action in [−1, 1] and standard normal noise (Fujimoto et al. 2018, section 5.3)."""
    return jnp.clip(action + jnp.clip(scale * noise, -bound, bound), -1.0, 1.0)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """MATD3 for any environment.

    Raises:
        InputError: an option is out of its range, or needs what the environment does not have.
    """
    c = config
    twin = maddpg.Variant(
        critics=2,
        smooth=lambda action, noise: smoothed(action, noise, c.target_noise, c.target_noise_clip),
        delay=c.policy_delay,
    )
    return maddpg.make(spec, c, scale, twin)
