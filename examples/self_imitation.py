"""MAPPO that also imitates its actions that went better than expected, β E[max(A, 0) log π(a|o)] (Oh et al. 2018)."""

from dataclasses import dataclass

from shoal.algorithms import mappo
from shoal.bounds import Weight


@dataclass(frozen=True)
class Config(mappo.Config):
    imitation_coef: Weight = 0.1
    """Weight β of imitation."""


def actor_loss(c, pi, batch, entropy_coef, kl_coef):
    loss, metrics = mappo.policy_loss(c, pi, batch, entropy_coef, kl_coef)
    imitation = -(batch.weight * batch.advantage.clip(0) * pi.log_prob(batch.action)).sum()
    return loss + c.imitation_coef * imitation, metrics | {"imitation": imitation}


def make(spec, config, scale, **parts):
    return mappo.make(spec, config, scale, actor_loss, **parts)
