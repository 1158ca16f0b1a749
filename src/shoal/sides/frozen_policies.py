"""Frozen policies that act beside a learner: saved runs, scripts, or past selves. They cost a forward pass."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from shoal.types import Algorithm, Learner, PyTree, Step


class FrozenPolicies(NamedTuple):
    """K policies of one algorithm for the whole team."""

    algorithm: Algorithm
    policies: PyTree
    """Leaves [K, ...]."""

    @property
    def number(self) -> int:
        """K; 1 where the policies have no parameters."""
        leaves = jax.tree.leaves(self.policies)
        return len(leaves[0]) if leaves else 1


def envs_per_policy(count: int, num_envs: int) -> int:
    """Environments of each policy: policy k plays in those from k times this number on; the last may play in fewer."""
    return -(-num_envs // count)


def initial_carry(algorithm: Algorithm, count: int, num_envs: int) -> PyTree:
    """Recurrent states of ``count`` policies in ``num_envs`` environments, leaves [count · envs_per_policy, ...]."""
    return algorithm.initial_carry(count * envs_per_policy(count, num_envs)) if num_envs else ()


def act(
    frozen_policies: FrozenPolicies, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
) -> tuple[PyTree, Array]:
    """Actions of all agents by the frozen policy of each environment.

    Args:
        frozen_policies: the policies.
        carry: as :func:`initial_carry`.
        step: [E, ...].
        key: for sampling.
        greedy: act by the mode of the policies.

    Returns:
        (carry, actions [E, N, ...]).
    """
    count, num_envs = frozen_policies.number, step.first.shape[0]
    each = envs_per_policy(count, num_envs)

    def cut(x: Array) -> Array:  # the last rows repeat the last environment, and are dropped again
        filled = jnp.pad(x, [(0, count * each - num_envs), *[(0, 0)] * (x.ndim - 1)], mode="edge")
        return filled.reshape(count, each, *x.shape[1:])

    def one(policy: PyTree, carry: PyTree, step: Step, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        learner = Learner(policy, (), (), (), jnp.zeros((), jnp.int32))
        carry, action, _ = frozen_policies.algorithm.act(learner, carry, step, key, greedy)
        return carry, action

    carries = jax.tree.map(lambda x: x.reshape(count, each, *x.shape[1:]), carry)
    steps = jax.tree.map(cut, step)
    carries, action = jax.vmap(one)(frozen_policies.policies, carries, steps, jax.random.split(key, count))
    carry = jax.tree.map(lambda x: x.reshape(count * each, *x.shape[2:]), carries)
    return carry, action.reshape(count * each, *action.shape[2:])[:num_envs]
