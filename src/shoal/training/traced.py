"""Hyper-parameters as traced arrays: one compiled program trains trials with different values of them.

An algorithm is made from its configuration inside the traced functions, with arrays in place of numbers
(:func:`with_values`); the arrays travel in the learner's policy, so that acting, evaluating and checkpoints have them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.rollouts import fused
from shoal.training import feed as feeds
from shoal.training.program import trajectory_shape
from shoal.types import Algorithm, Environment, Learner, Metrics, PyTree, Step, Trajectory

TracedValues = dict[str, Float[Array, ""]]
Make = Callable[[Mapping[str, Any]], Algorithm]
"""Values of some hyper-parameters, numbers or arrays -> the algorithm with them."""


class TriedPolicy(NamedTuple):
    """The policy of a trial."""

    policy: PyTree
    """The policy of the algorithm."""
    values: TracedValues
    """The values of the traced hyper-parameters."""


def with_values(make: Make, defaults: Mapping[str, float] | TracedValues) -> Algorithm:
    """An algorithm whose learner holds the values of hyper-parameters.

    Its ``init`` takes them as a second argument; without it, they are ``defaults``.

    Args:
        make: makes the algorithm.
        defaults: a value for each traced hyper-parameter.
    """
    constant = {name: jnp.float32(value) for name, value in defaults.items()}
    outer = make(constant)  # arrays, as in the program: a term with coefficient 0 must be kept for other trials

    def init(key: PRNGKeyArray, values: TracedValues | None = None) -> Learner:
        values = constant if values is None else values
        learner = make(values).init(key)
        return learner._replace(policy=TriedPolicy(learner.policy, values))

    def act(learner: Learner, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool) -> Any:
        policy, values = learner.policy
        return make(values).act(learner._replace(policy=policy), carry, step, key, greedy)

    def update(learner: Learner, experience: Any, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        policy, values = learner.policy
        after, metrics = make(values).update(learner._replace(policy=policy), experience, key)
        return after._replace(policy=TriedPolicy(after.policy, values)), metrics

    def observe(learner: Learner, trajectory: Trajectory) -> Learner:
        policy, values = learner.policy
        counted = make(values).observe
        assert counted is not None
        after = counted(learner._replace(policy=policy), trajectory)
        return after._replace(policy=TriedPolicy(after.policy, values))

    return outer._replace(
        init=init,
        act=act,
        update=update,
        observe=observe if outer.observe else None,
        inspect=None,  # trials are not recorded
    )


def traceable(make: Make, env: Environment, sizes: tuple[int, int], candidates: Mapping[str, float]) -> list[str]:
    """Those of ``candidates`` that can be arrays, found by tracing a rollout and an update with them.

    Args:
        make: makes the algorithm.
        env: the environment.
        sizes: E and T of the run.
        candidates: a value for each hyper-parameter.
    """
    if not candidates or traces(make, env, sizes, candidates):
        return list(candidates)
    found = {name: value for name, value in candidates.items() if traces(make, env, sizes, {name: value})}
    return list(found) if not found or traces(make, env, sizes, found) else []


def traces(make: Make, env: Environment, sizes: tuple[int, int], values: Mapping[str, float]) -> bool:
    """Whether an algorithm can be made, act and be updated while all these hyper-parameters are arrays."""
    num_envs, length = sizes

    def probe(values: TracedValues) -> Any:
        algorithm = make(values)
        rollout = fused.make_rollout(env, num_envs, length)
        feed = feeds.make_feed(algorithm.replay, trajectory_shape(algorithm, rollout, num_envs), num_envs, 1)
        key = jax.random.key(0)
        learner = algorithm.init(key)
        state = rollout.init(key, algorithm.initial_carry(num_envs))
        _, trajectory, _ = rollout.collect(algorithm.act, learner, state, key)
        fed = feed.put(feed.init(), trajectory)
        after, _ = algorithm.update(learner, feed.take(fed, trajectory, key), key)
        if algorithm.observe is not None:
            after = algorithm.observe(after, trajectory)
        return learner, after

    try:
        before, after = jax.eval_shape(probe, {name: jnp.float32(value) for name, value in values.items()})
    except Exception:  # many types: a Python branch on the value, a shape, an option that must be a constant
        return False
    return jax.tree.map(jnp.shape, before) == jax.tree.map(jnp.shape, after)
