"""What a mixer says of every joint action, by enumeration."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.models.utilities import Mixer, chosen_utility, greedy_action, make_utilities
from shoal.networks.sharing import policy_of
from shoal.types import Environment, EnvSpec, Learner, PyTree, Step


def joint_actions(spec: EnvSpec) -> np.ndarray:
    """[J, N], the last agent's action running fastest."""
    return np.array(list(itertools.product(*(range(n) for n in spec.action_dims))), np.int32)


def every_value(mixer: Mixer, phi: PyTree, q: jax.Array, step: Step, joint: np.ndarray) -> jax.Array:
    """[J, *b] Q_tot of joint actions [J, N] with utilities ``q`` [*b, N, A]; ``*b`` has one axis at least."""

    def value(action: jax.Array) -> jax.Array:
        action = jnp.broadcast_to(action, q.shape[:-1])
        return mixer.apply(phi, chosen_utility(q, action, step.alive), greedy_action(q, step)[1], action, step)

    return jax.vmap(value)(jnp.asarray(joint))


def after(env: Environment, *actions: tuple[int, ...]) -> Step:
    """Where these joint actions lead from the start of an episode, one after the other."""
    state, step = env.reset(jax.random.key(0))
    for action in actions:
        state, step = env.step(jax.random.key(0), state, jnp.array(action))
    return jax.tree.map(jnp.asarray, step)


def tables(
    env: Environment, config: Any, mixer: Mixer, learners: Learner, steps: list[Step]
) -> tuple[np.ndarray, np.ndarray]:
    """([seeds, steps, A_1, …, A_N] Q_tot, [seeds, steps, N] greedy actions) of feed-forward utilities."""
    spec = env.spec
    q = make_utilities(spec, config.network, policy_of(spec, config.sharing), config.agent_id)[1]
    step = jax.tree.map(lambda *x: jnp.stack(x)[None], *steps)
    joint = joint_actions(spec)

    def one(learner: Learner) -> tuple[jax.Array, jax.Array]:
        values = q(learner.policy.actor, (), step)[1]
        table = every_value(mixer, learner.critic, values, step, joint)[:, 0]
        return jnp.moveaxis(table, 0, -1).reshape(len(steps), *spec.action_dims), greedy_action(values, step)[0][0]

    table, greedy = jax.jit(jax.vmap(one))(learners)
    return np.asarray(table), np.asarray(greedy)
