"""Credit assignment: a game whose shared reward drowns what each agent did, unless its own part is told apart.

Foerster et al. 2018, section 1, on credit assignment: V(s) cannot tell the parts apart, their baseline does.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.types import Discrete, Environment
from small_games import configured, probabilities, train
from toys import spec_of, step_of

QUIET, LOUD, SEEDS, UPDATES = 4, 60.0, 8, 300
FLAGS = {
    "sharing": "independent",
    "critic_input": "state",
    "hidden": (16,),
    "learning_rate": 0.015,
    "critic_learning_rate": 0.02,
    "max_grad_norm": None,
    "epochs": 12,
    "minibatches": 1,
    "activation": "relu",
    "value_norm": "running",
}


def loudmouth() -> Environment:
    """One shot: r = Σ_j u_j over four quiet agents, plus 60 c (2 u_0 − 1) for a loud one, with a coin c = ±1.

    Only the state shows the coin, so that what the loud agent does is noise of ±60 that nobody can learn to avoid. A
    centralised Q(s, u) predicts it; V(s) cannot.
    """
    spec = spec_of("toys/loudmouth", (1,) * (1 + QUIET), Discrete(2), 1, state_dim=1)

    def reset(key):
        coin = jnp.where(jax.random.bernoulli(key), 1.0, -1.0)
        return coin, step_of(spec, jnp.ones(1), 0.0, False, False, first=True, state=coin[None])

    def step(key, coin, action):
        reward = action[1:].sum() + LOUD * coin * (2 * action[0] - 1)
        return coin, step_of(spec, jnp.ones(1), reward, False, True, state=coin[None])

    return Environment(spec, reset, step)


def learned(algorithm: str, **flags) -> np.ndarray:
    """[seeds] the mean probability with which the quiet agents do their part."""
    env = loudmouth()
    config = configured(algorithm, **FLAGS, **flags)
    teams = train(algorithm, env, config, updates=UPDATES, seeds=SEEDS, num_envs=16)
    return probabilities(env, config, teams.after)[:, 1:, 1].mean(1)


@pytest.mark.slow
def test_coma_does_its_part_where_a_shared_value_cannot_tell_what_it_is() -> None:
    """Measured over 12 seeds: COMA 0.93 to 1.00, mean 0.98; V(s) 0.52 to 0.91, mean 0.67; 0.5 is chance."""
    coma = learned("coma", epsilon=0.0, epsilon_final=0.0)
    value = learned("mapg", baseline="value")
    assert coma.min() > 0.85 and coma.mean() > 0.95
    assert value.mean() < 0.8
