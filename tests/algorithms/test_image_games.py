"""Algorithms whose agents observe an image of bytes and numbers beside it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal.options.flags import flags_of
from shoal.spec import Part
from shoal.types import Discrete, Environment
from support import small_games
from support.selection import quick

PICTURE = (Part((4, 4, 1), "uint8", "screen"), Part((1,), "float32", "speed"))


def lit(key) -> jax.Array:
    """Rows of bytes [2, 20]: the pixels of one half of the screen are lit, and a number follows."""
    half = jax.random.bernoulli(key)
    screen = jnp.where((jnp.arange(16) < 8) == half, 255, 0).astype(jnp.uint8)
    speed = jax.lax.bitcast_convert_type(jnp.float32([2.5]), jnp.uint8).reshape(-1)
    return jnp.broadcast_to(jnp.concatenate([screen, speed]), (2, 20))


def lights() -> Environment:
    """One shot: both agents see which half of the screen is lit, and earn 1 where both name it."""
    spec = toys.spec_of("toys/lights", (20, 20), Discrete(2), 1, parts=(PICTURE, PICTURE))

    def reset(key):
        obs = lit(key)
        return obs, toys.step_of(spec, jnp.zeros(20), 0.0, False, False, first=True)._replace(obs=obs)

    def step(key, state, action):
        reward = (action == (state[0, 0] > 0)).all()
        return state, toys.step_of(spec, jnp.zeros(20), reward, False, True)._replace(obs=state)

    return Environment(spec, reset, step)


ALGORITHMS = ["mappo", "qmix", "maddpg", "coma", "lica", "mat"]


@pytest.mark.parametrize("algorithm", quick(ALGORITHMS, "mappo"))
def test_images_are_read_and_learned_from(algorithm):
    env = lights()
    known = set(flags_of(small_games.get(algorithm).Config()))
    flags = {"channels": (2,), "critic_input": "concat", "mixer_input": "concat", "batch_size": 4, "buffer_size": 16}
    flags |= {"learning_starts": 0, "minibatches": 1, "epochs": 1}
    if algorithm == "mat":
        flags["critic_input"] = "local"
    config = small_games.configured(algorithm, **{name: x for name, x in flags.items() if name in known})
    teams = small_games.train(algorithm, env, config, updates=2, seeds=1, num_envs=8)
    before, after = (teams.before.policy.actor, teams.after.policy.actor)
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), before, after)
    assert all(np.isfinite(x) for x in jax.tree.leaves(moved))
    if algorithm != "mat":  # which reads pixels as any other features
        assert moved["encoder"][0][0]["kernel"] > 0
        assert before["encoder"][0][0]["kernel"].shape[:2] == (1, 2 if algorithm == "maddpg" else 1)
