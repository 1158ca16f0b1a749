"""IPPO whose parameters become NaN where the learning rate is above 0.5: an algorithm of a test's own."""

import jax
import jax.numpy as jnp

from shoal.algorithms import ippo
from shoal.types import Algorithm

Config = ippo.Config


def make(spec, config, scale) -> Algorithm:
    inner = ippo.make(spec, config, scale)

    def update(learner, trajectory, key):
        learner, metrics = inner.update(learner, trajectory, key)
        broken = jnp.where(config.learning_rate > 0.5, jnp.nan, 1.0)
        actor = jax.tree.map(lambda x: x * broken, learner.policy.actor)
        return learner._replace(policy=learner.policy._replace(actor=actor)), metrics

    return inner._replace(update=update)
