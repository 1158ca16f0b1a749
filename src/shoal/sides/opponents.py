"""One side learns, and frozen policies play the others: a saved run, or a script.

The learning side's algorithm is made for its own agents alone, as in :mod:`shoal.sides.sides`; the frozen policies
are a part of its environment. With K frozen policies, such as the seeds of a run, each plays in a K-th of the
environments. The learner holds only what the learning side learns, and a deployed policy plays beside the same frozen
ones.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from shoal.sides import frozen_policies as frozen
from shoal.sides.frozen_policies import FrozenPolicies
from shoal.sides.reward_normalisation import each_buffer
from shoal.sides.sides import Side, narrowed, of_all_sides
from shoal.types import Algorithm, Box, EnvSpec, Experience, Learner, Metrics, PyTree, Replay, Step, Trajectory


class OpposedCarry(NamedTuple):
    """Recurrent states."""

    own: PyTree
    """Of the learning side's algorithm."""
    frozen_policies: PyTree
    """Of the frozen policies; see :func:`shoal.sides.frozen_policies.initial_carry`."""


def against(algorithm: Algorithm, spec: EnvSpec, who: tuple[int, ...], frozen_policies: FrozenPolicies) -> Algorithm:
    """``algorithm`` with frozen policies for all other agents, as an algorithm for the whole team.

    Args:
        algorithm: made for ``narrowed(spec, who)``.
        spec: the whole team's.
        who: the agents that learn.
        frozen_policies: policies for the whole team, of which the other agents' actions are taken.
    """
    side = Side(1, who, narrowed(spec, who), algorithm)
    box = isinstance(spec.action, Box)
    rows = np.array(who)

    def mine(traj: Trajectory) -> Trajectory:
        return side.trajectory(traj._replace(carry=(traj.carry.own,)))

    def initial_carry(num_envs: int) -> OpposedCarry:
        own = algorithm.initial_carry(num_envs)
        return OpposedCarry(own, frozen.initial_carry(frozen_policies.algorithm, frozen_policies.number, num_envs))

    def act(
        learner: Learner, carry: OpposedCarry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[OpposedCarry, Array, dict[str, Array]]:
        key_own, key_frozen = jax.random.split(key)
        own, action, extras = algorithm.act(learner, carry.own, side.step(step), key_own, greedy)
        theirs, actions = frozen.act(frozen_policies, carry.frozen_policies, step, key_frozen, greedy)
        if box:
            action = jnp.pad(action, ((0, 0), (0, 0), (0, spec.action.width - action.shape[-1])))
        joint = actions.at[:, rows].set(action.astype(actions.dtype))
        return OpposedCarry(own, theirs), joint, {side.name + name: x for name, x in extras.items()}

    def inspect(
        learner: Learner, carry: OpposedCarry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        assert algorithm.inspect is not None
        told = algorithm.inspect(learner, carry.own, side.step(step), side.taken(action), side.own(extras))
        return of_all_sides(spec, step.alive.shape[0], [(who, told)])

    def update(learner: Learner, data: Trajectory | Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        own: Any = mine(data) if isinstance(data, Trajectory) else Experience(mine(data.newest), data.samples)
        return algorithm.update(learner, own, key)

    def stored(one: Replay) -> Replay:
        return one._replace(keep=lambda traj: one.keep(mine(traj)))

    widest: Any = max((algorithm.acts_on, frozen_policies.algorithm.acts_on), key=("own", "team", "state").index)
    return algorithm._replace(
        initial_carry=initial_carry,
        act=act,
        update=update,
        acts_on=widest,
        replay=each_buffer(stored, algorithm.replay),
        inspect=inspect if algorithm.inspect else None,
    )
