"""Policies without optimiser and critic: what deployment and evaluation need of an algorithm (``make_policy``)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.learning.config import PolicyConfig, check_options
from shoal.models.actor_critic import Carry, Policy, make_actor
from shoal.networks.inputs import init_inputs
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, EnvSpec, Learner, Metrics, PyTree, Step


def acting_only(
    init_policy: Callable[[PRNGKeyArray], PyTree],
    initial_carry: Callable[[int], PyTree],
    act: Callable[..., tuple[PyTree, Array, dict[str, Array]]],
    **facts: Any,
) -> Algorithm:
    """An algorithm that acts and cannot learn: its learner has a policy and nothing else.

    Args:
        init_policy: key -> a policy, for its structure; the same as that of the algorithm's ``init`` from this key.
        initial_carry: as ``Algorithm.initial_carry``.
        act: as ``Algorithm.act``.
        facts: further fields of :class:`shoal.types.Algorithm`, as the algorithm itself has them.
    """

    def init(key: PRNGKeyArray) -> Learner:
        return Learner(init_policy(key), (), (), (), jnp.int32(0))

    def update(learner: Learner, data: Any, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        raise TypeError("This algorithm was made by make_policy, for acting only: it cannot learn.")

    return Algorithm(init, initial_carry, act, update, **facts)


def make_policy(
    spec: EnvSpec, c: PolicyConfig, epsilon: Float[Array, ""] | None = None, keys: int = 2, **facts: Any
) -> Algorithm:
    """Decentralised stochastic policies.

    Args:
        spec: the environment's description.
        c: hyper-parameters.
        epsilon: see :class:`shoal.models.actor_critic.Policy`.
        keys: into so many the algorithm's ``init`` splits its key, of which the first is the actors'.
        facts: see :func:`acting_only`.

    Raises:
        InputError: an option is out of its range, or the environment's actions have no such distribution.
    """
    check_options(c)
    index = policy_of(spec, c.sharing)
    actor = make_actor(spec, c.network, index, c.agent_id, c.output_gain, c.log_std, c.squash)

    def init_policy(key: PRNGKeyArray) -> Policy:
        return Policy(actor.init(jax.random.split(key, keys)[0]), init_inputs(spec, c.normalise_inputs), epsilon)

    def act(
        learner: Learner, carry: Carry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[Carry, Array, dict[str, Array]]:
        after, action, extras = actor.act(learner.policy, carry.actor, step, key, greedy)
        return Carry(after, ()), action, extras

    def inspect(
        learner: Learner, carry: Carry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        del action, extras
        return actor.inspect(learner.policy, carry.actor, step)

    return acting_only(init_policy, lambda envs: Carry(actor.initial_carry(envs), ()), act, inspect=inspect, **facts)
