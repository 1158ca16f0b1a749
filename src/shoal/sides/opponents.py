"""Frozen policies that act beside a learner: saved runs, scripts, or past selves, and the options of a run with them.

:func:`against` lets one side learn against a saved run or a script. The learning side's algorithm is made for its own
agents alone, as in :mod:`shoal.sides.sides`; the frozen policies are a part of its environment, and cost a forward
pass. With K frozen policies, such as the seeds of a run, policy e mod K plays in environment e. The learner holds
only what the learning side learns, and a deployed policy plays beside the same frozen ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from shoal.bounds import Bounds, Count, check_bounds
from shoal.errors import InputError
from shoal.sides.reward_normalisation import each_buffer
from shoal.sides.sides import Side, joint_action, narrowed, of_all_sides, of_one_side
from shoal.types import Algorithm, EnvSpec, Experience, Learner, Metrics, PyTree, Replay, Step, Trajectory

PAST = "past"
"""The value of ``opponents`` for self-play against past selves."""


@dataclass(frozen=True)
class OpponentOptions:
    """Frozen opponents and partners of the learning policies; by default none."""

    opponents: str | None = None
    """Frozen opponents or partners: a run folder or zoo/NAME, whose policies control all agents except those of --side;
    the name of a script, such as scripted; or past, for self-play against earlier policies of the same run. None: all
    agents learn. A run folder's policies are copied into the new run."""
    side: tuple[str, ...] = ()
    """Names or numbers of the agents of side 1, which learn against opponents; by default those of role 0, or the first
    half if all have one role. Past policies play either side."""
    past_window: Annotated[int, Bounds(least=1, most=256)] = 8
    """Number of past policies in the pool of self-play."""
    past_every: Count | None = None
    """Updates between two policies of the pool; None: the pool spans the whole run."""
    past_share: Annotated[float, Bounds(above=0.0, most=1.0)] = 0.5
    """Share of the environments in which a past policy plays one side; in the others the current policy plays both."""

    def check(self) -> None:
        """Check the bounds of all fields, and that none is without effect.

        Raises:
            InputError: a field is out of range or without effect.
        """
        check_bounds(self)
        plain = OpponentOptions()
        if self.opponents is None and self != plain:
            name = next(name for name, x in vars(self).items() if x != getattr(plain, name))
            raise InputError(f"{name} needs opponents: set opponents as well.")
        for name in ("past_window", "past_every", "past_share"):
            if self.opponents != PAST and getattr(self, name) != getattr(plain, name):
                raise InputError(f"{name} needs opponents 'past', not {self.opponents!r}.")

    def every(self, updates: int) -> int:
        """Updates between two policies of the pool, in a run of ``updates`` updates."""
        return self.past_every or max(1, updates // self.past_window)


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
    """Environments of each policy, of which some may have one less: policy e mod ``count`` plays in environment e."""
    return -(-num_envs // count)


def act_frozen(
    frozen_policies: FrozenPolicies, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
) -> tuple[PyTree, Array]:
    """Actions of all agents by the frozen policy of each environment.

    Args:
        frozen_policies: the policies.
        carry: their recurrent states, those of ``frozen_policies.algorithm`` in E environments.
        step: [E, ...].
        key: for sampling.
        greedy: act by the mode of the policies.

    Returns:
        (carry, actions [E, N, ...]).
    """

    def act(learner: Learner, given: tuple[PyTree, Step], key: PRNGKeyArray) -> tuple[PyTree, Array]:
        carry, action, _ = frozen_policies.algorithm.act(learner, *given, key, greedy)
        return carry, action

    return _by_each(frozen_policies, act, (carry, step), key)


_DRAWN = frozenset({"rank", "member"})
"""Extras that hold an order of the agents (MAT) and sub-policies (MADDPG) that were drawn."""


def told_by_frozen(frozen_policies: FrozenPolicies, carry: PyTree, step: Step, action: Array) -> dict[str, Array]:
    """``Algorithm.inspect`` of the frozen policy of each environment, given the actions of all agents.

    Empty where ``act`` draws more than actions (:data:`_DRAWN`), which is not known afterwards.
    """
    algorithm = frozen_policies.algorithm
    inspect = algorithm.inspect
    if inspect is None:
        return {}

    def told(learner: Learner, given: tuple[PyTree, Step, Array], key: PRNGKeyArray) -> dict[str, Array]:
        carry, step, action = given
        extras = algorithm.act(learner, carry, step, key, True)[2]
        drawn = any(name.rpartition("/")[2] in _DRAWN for name in extras)
        return {} if drawn else inspect(learner, carry, step, action, extras)

    return _by_each(frozen_policies, told, (carry, step, action), jax.random.key(0))


def _by_each(
    frozen_policies: FrozenPolicies, one: Callable[[Learner, Any, PRNGKeyArray], Any], given: Any, key: PRNGKeyArray
) -> Any:
    """``one(learner, given, key)`` with the frozen policy of each environment.

    ``given`` is (carry, step, ...); its arrays and those of the result are [E, ...].
    """
    count, num_envs = frozen_policies.number, given[1].first.shape[0]
    each = envs_per_policy(count, num_envs) if count > 1 else num_envs  # which an export does not know

    def cut(x: Array) -> Array:  # the last rows repeat the last environment, and are dropped again
        if count == 1:
            return x[None]
        return dealt(jnp.pad(x, [(0, count * each - num_envs), *[(0, 0)] * (x.ndim - 1)], mode="edge"))

    def dealt(x: Array) -> Array:
        return x.reshape(each, count, *x.shape[1:]).swapaxes(0, 1)

    def collected(x: Array) -> Array:
        return x.swapaxes(0, 1).reshape(count * each, *x.shape[2:])

    def with_policy(policy: PyTree, given: Any, key: PRNGKeyArray) -> Any:
        return one(Learner(policy, (), (), (), jnp.zeros((), jnp.int32)), given, key)

    policies = jax.tree.map(jnp.asarray, frozen_policies.policies)  # nested vmaps do not take NumPy's arrays
    done = jax.vmap(with_policy)(policies, jax.tree.map(cut, given), jax.random.split(key, count))
    return jax.tree.map(lambda x: collected(x)[:num_envs], done)


class OpposedCarry(NamedTuple):
    """Recurrent states."""

    own: PyTree
    """Of the learning side's algorithm."""
    frozen_policies: PyTree
    """Of the policy that plays in each environment, with leaves [E, ...] too: parts of a rollout are joined."""


def against(algorithm: Algorithm, spec: EnvSpec, who: tuple[int, ...], frozen_policies: FrozenPolicies) -> Algorithm:
    """``algorithm`` with frozen policies for all other agents, as an algorithm for the whole team.

    Args:
        algorithm: made for ``narrowed(spec, who)``.
        spec: the whole team's.
        who: the agents that learn.
        frozen_policies: policies for the whole team, of which the other agents' actions are taken.
    """
    side = Side(1, who, narrowed(spec, who), algorithm)
    others = tuple(i for i in range(spec.num_agents) if i not in who)

    def mine(traj: Trajectory) -> Trajectory:
        return side.trajectory(traj._replace(carry=(traj.carry.own,)))

    def initial_carry(num_envs: int) -> OpposedCarry:
        return OpposedCarry(algorithm.initial_carry(num_envs), frozen_policies.algorithm.initial_carry(num_envs))

    def act(
        learner: Learner, carry: OpposedCarry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[OpposedCarry, Array, dict[str, Array]]:
        key_own, key_frozen = jax.random.split(key)
        own, action, extras = algorithm.act(learner, carry.own, side.step(step), key_own, greedy)
        theirs, actions = act_frozen(frozen_policies, carry.frozen_policies, step, key_frozen, greedy)
        joint = joint_action(spec, [(who, action.astype(actions.dtype)), (others, actions[:, np.array(others, int)])])
        return OpposedCarry(own, theirs), joint, {side.name + name: x for name, x in extras.items()}

    def inspect(
        learner: Learner, carry: OpposedCarry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        told = {}
        if algorithm.inspect:
            told = algorithm.inspect(learner, carry.own, side.step(step), side.taken(action), side.own(extras))
        theirs = told_by_frozen(frozen_policies, carry.frozen_policies, step, action)
        theirs = {name: x[:, np.array(others, int)] for name, x in theirs.items()}
        return of_all_sides(spec, step.alive.shape[0], [(who, told), (others, theirs)])

    def update(learner: Learner, data: Trajectory | Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        own: Any = mine(data) if isinstance(data, Trajectory) else Experience(mine(data.newest), data.samples)
        return algorithm.update(learner, own, key)

    def observe(learner: Learner, traj: Trajectory) -> Learner:
        assert algorithm.observe is not None
        return algorithm.observe(learner, mine(traj))

    def stored(one: Replay) -> Replay:
        return one._replace(keep=lambda traj: one.keep(mine(traj)))

    def alone(agent: int) -> Algorithm:
        if agent in who:
            return of_one_side(spec, side, agent, lambda learner: learner)
        acting = frozen_policies.algorithm.acting_alone(agent)
        frozen = FrozenPolicies(acting, frozen_policies.policies)

        def act(
            learner: Learner, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
        ) -> tuple[PyTree, Array, dict[str, Array]]:
            return *act_frozen(frozen, carry, step, key, greedy), {}

        def inspect(
            learner: Learner, carry: PyTree, step: Step, action: Array, extras: dict[str, Array]
        ) -> dict[str, Array]:
            return told_by_frozen(frozen, carry, step, action)

        return acting._replace(act=act, inspect=inspect if acting.inspect else None)

    widest: Any = max((algorithm.acts_on, frozen_policies.algorithm.acts_on), key=("own", "team", "state").index)
    return algorithm._replace(
        initial_carry=initial_carry,
        act=act,
        update=update,
        acts_on=widest,
        replay=each_buffer(stored, algorithm.replay),
        inspect=inspect if algorithm.inspect or frozen_policies.algorithm.inspect else None,
        observe=observe if algorithm.observe else None,
        alone=alone,
    )
