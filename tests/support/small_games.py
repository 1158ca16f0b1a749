"""Many teams trained at once in a tiny game, and what their policies are worth, exactly rather than by sampling."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.algorithms import get
from shoal.equations.distributions import Categorical
from shoal.models.actor_critic import make_actor
from shoal.networks.sharing import policy_of
from shoal.options.flags import check_names, override
from shoal.rollouts import fused
from shoal.training import feed as feeds
from shoal.types import Algorithm, Environment, Learner, Scale


class Teams(NamedTuple):
    """Leaves [seeds, ...]."""

    before: Learner
    after: Learner
    metrics: dict[str, np.ndarray]
    """[seeds, updates]."""


def configured(algorithm: str, **flags: Any) -> Any:
    config = get(algorithm).Config()
    check_names(flags, config)
    return override(config, {"hidden": (8,)} | flags)


def train(
    algorithm: str,
    env: Environment,
    config: Any,
    *,
    updates: int,
    seeds: int,
    num_envs: int = 32,
    length: int = 1,
    start: Callable[[Learner], Learner] = lambda learner: learner,
    make: Callable[[Scale], Algorithm] | None = None,
) -> Teams:
    """A program that trains ``seeds`` teams side by side, each from an initial learner changed by ``start``; ``make``
    gives a composed algorithm."""
    scale = Scale(num_envs, length, updates)
    algo = make(scale) if make else get(algorithm).make(env.spec, config, scale)
    rollout = fused.make_rollout(env, num_envs, length)

    def roll(key: jax.Array) -> Any:
        return rollout.collect(algo.act, algo.init(key), rollout.init(key, algo.initial_carry(num_envs)), key)[1]

    feed = feeds.make_feed(algo.replay, jax.eval_shape(roll, jax.random.key(0)), num_envs, 1)

    def one(key: jax.Array) -> Any:
        key_learner, key_rollout, key = jax.random.split(key, 3)
        first = start(algo.init(key_learner)), rollout.init(key_rollout, algo.initial_carry(num_envs))

        def iterate(state: tuple, key: jax.Array) -> tuple:
            learner, rolled, fed = state
            key_rollout, key_update = jax.random.split(key)
            rolled, trajectory, _ = rollout.collect(algo.act, learner, rolled, key_rollout)
            fed = feed.put(fed, trajectory)
            batch = feed.take(fed, trajectory, jax.random.fold_in(key_update, 1))
            learned, metrics = algo.update(learner, batch, key_update)
            if feed.ready is not None:
                ready = feed.ready(fed)
                learned = jax.tree.map(lambda new, old: jnp.where(ready, new, old), learned, learner)
            return (learned, rolled, fed), metrics

        (learner, _, _), metrics = jax.lax.scan(iterate, (*first, feed.init()), jax.random.split(key, updates))
        return Teams(first[0], learner, metrics)

    keys = jax.random.split(jax.random.key(0), seeds)
    return jax.block_until_ready(jax.jit(jax.vmap(one, axis_name=fused.SEEDS))(keys))


def payoff(env: Environment) -> np.ndarray:
    """The team's reward for every joint action at the start, one axis per agent."""
    joint = np.array(list(itertools.product(*(range(n) for n in env.spec.action_dims))), np.int32)
    state, _ = env.reset(jax.random.key(0))
    _, outcome = jax.jit(jax.vmap(env.step, in_axes=(None, None, 0)))(jax.random.key(0), state, joint)
    return np.asarray(outcome.reward[:, 0], np.float64).reshape(env.spec.action_dims)


def probabilities(env: Environment, config: Any, learner: Learner) -> np.ndarray:
    """[seeds, N, A] what each seed's agents would do at the start of an episode."""
    c, spec = config, env.spec
    actor = make_actor(spec, c.network, policy_of(spec, c.sharing), c.agent_id, c.output_gain, c.log_std, c.squash)
    _, step = env.reset(jax.random.key(0))
    step = jax.tree.map(lambda x: jnp.asarray(x)[None, None], step)

    def one(policy: Any) -> jax.Array:
        dist = actor.distribution(policy.actor, actor.initial_carry(1), step, policy.epsilon)[1]
        assert isinstance(dist, Categorical)
        return dist.probabilities()[0, 0]

    return np.asarray(jax.jit(jax.vmap(one))(learner.policy), np.float64)


def exact_value(table: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Σ_a Π_i p_i(a_i) r(a) for each seed: probabilities [seeds, N, A] -> [seeds]."""
    value = np.broadcast_to(table, (len(p), *table.shape))
    for i in range(table.ndim):
        value = np.einsum("sa...,sa->s...", value, p[:, i, : value.shape[1]])
    return value
