"""MAA2C: advantage actor-critic with a centralised critic (Papoudakis et al. 2021; A2C: Mnih et al. 2016).

    ∇_θ J = E[ Â ∇_θ log π_θ(a|o) + σ ∇_θ S(π_θ) ],    Â = Σ_k (γλ)^k δ_{t+k}             (Mnih et al. 2016, section 4)

One gradient step on each batch, so the ratio of PPO's objective is 1 when its gradient is taken, and the two gradients
are the same (Huang et al. 2022, A2C is a special case of PPO): MAA2C is MAPPO with one epoch and one minibatch. λ = 1
over rollouts of five steps is the paper's five-step return. Deviations from the authors' code (EPyMARL): λ may be
below 1, values are learned on normalised targets, a true termination never bootstraps. Options and results:
docs/algorithms/a2c.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.algorithms import mappo
from shoal.bounds import Fraction, Positive, Rate
from shoal.learning.config import ValueConfig, own_fields
from shoal.types import Algorithm, EnvSpec, Scale

make_policy = mappo.make_policy


@dataclass(frozen=True)
class Config(ValueConfig):
    """MAA2C's hyper-parameters. "Paper" is Papoudakis et al. 2021, appendix, for MPE."""

    lam: Fraction = 1.0
    """GAE's λ; 1 gives n-step returns up to the end of the rollout. Paper: five-step returns."""
    huber: Positive | None = None
    """Width δ of the Huber value loss, in normalised units; None for ½e². Paper: None."""
    learning_rate: Rate = 5e-4
    """Adam's step size for actors. Paper: 5e-4."""


def make(spec: EnvSpec, config: Config, scale: Scale, *parts: Callable, **named: Any) -> Algorithm:
    """MAA2C for an environment.

    Args:
        spec: the environment's description.
        config: hyper-parameters.
        scale: sizes of the run.
        parts: what :func:`shoal.algorithms.mappo.make` takes after them.
        named: the same by name.

    Raises:
        InputError: chunks do not divide the rollout, the critic input does not exist, or an option is out of its range.
    """
    inherited = own_fields(config, Config)
    return mappo.make(spec, mappo.Config(**inherited, epochs=1, minibatches=1, value_clip=None), scale, *parts, **named)
