"""Self-play against past selves, around any algorithm that plays both sides of an environment.

In a share of the environments one side, side 2 in the first K, side 1 in the next K and so on, is played by a frozen
policy from a pool of the learner's own earlier ones, and in the others the current policy plays both (Bansal et al.
2018, *Emergent Complexity via Multi-Agent Competition*, section 3.2: opponents sampled from the past avoid cycles and
forgetting). The agents of the side that a past self plays are for the learner as dead agents are: not alive, with rows
of zeros, so that nothing of them affects training except what the global state shows.

The pool holds K policies and is a part of ``Learner.statistics``, so that checkpoints hold it. Every ``every`` updates
the current policy is put into it. Until K policies have been, the newest also stands in the places that are left; then
it replaces the oldest.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.equations.reduce import share_of_mean, total
from shoal.sides.opponents import FrozenPolicies, act_frozen
from shoal.sides.reward_normalisation import each_buffer
from shoal.types import Algorithm, Discrete, EnvSpec, Experience, Learner, Metrics, PyTree, Replay, Step, Trajectory

PRESENT = "present"
"""Name of the extra of ``act`` [E, N] that tells which agents the current policy plays."""


class PastCarry(NamedTuple):
    """Recurrent states."""

    own: PyTree
    past: PyTree
    """Of the pool's policies, with leaves [E, ...] too: parts of a rollout are joined. Only those of the environments
    that they play in are read. Empty where they play in none."""


class PastStatistics(NamedTuple):
    """State of the update beside parameters."""

    statistics: PyTree
    """The algorithm's own."""
    pool: PyTree
    """Policies, leaves [K, ...]."""
    updates: Int[Array, " K"]
    """Number of updates that each of them had."""


def put(pool: PastStatistics, policy: PyTree, updates: Int[Array, ""], every: int) -> tuple[PyTree, Int[Array, " K"]]:
    """The pool and its ages after ``updates`` updates: ``policy`` enters at multiples of ``every``.

    The ages alone say where, since a resumed run may have another ``every``: in the places that nothing but the newest
    stands in, and if there are none, in that of the oldest.
    """
    ages, places = pool.updates, jnp.arange(len(pool.updates))
    left = (ages == ages.max()) & ((places > ages.argmax()) | (ages.max() == 0))
    here = jnp.where(left.any(), left, places == ages.argmin()) & (updates % every == 0)

    def placed(new: Array, old: Array) -> Array:
        return jnp.where(here.reshape(-1, *[1] * new.ndim), new, old)

    return jax.tree.map(placed, policy, pool.pool), jnp.where(here, updates, pool.updates)


def against_past(
    algorithm: Algorithm, spec: EnvSpec, side: tuple[int, ...], window: int, every: int, share: float, active: bool
) -> Algorithm:
    """``algorithm``, trained partly against its past.

    Args:
        algorithm: for all agents of ``spec``; where the sides compete, one whose agents learn from themselves alone
            (``Algorithm.learns_from``), or made for each side separately (:mod:`shoal.sides.sides`).
        spec: the whole team's.
        side: the agents of side 1.
        window: K, the size of the pool.
        every: updates between two policies of the pool.
        share: of the environments that a past self plays in, rounded.
        active: False for evaluation: the current policy plays everywhere, from a learner of the same structure.
    """
    first = np.isin(np.arange(spec.num_agents), side)

    def held(num_envs: int) -> int:
        return round(share * num_envs) if active else 0

    def present(num_envs: int) -> Bool[np.ndarray, "E N"]:
        env = np.arange(num_envs)[:, None]
        return (env >= held(num_envs)) | np.where(env // window % 2 == 0, first, ~first)  # policy k plays in k mod K

    def bare(learner: Learner) -> Learner:
        """The algorithm's own learner; a deployed one has no statistics."""
        return learner._replace(statistics=learner.statistics.statistics if learner.statistics else ())

    def own(traj: Trajectory) -> Trajectory:
        """A rollout without the agents that a past self played."""
        mask = traj.extras[PRESENT]
        kept = mask.reshape(*mask.shape, *[1] * (traj.action.ndim - mask.ndim))
        return Trajectory(
            shown(traj.step, mask),
            jnp.where(kept, traj.action, jnp.zeros((), traj.action.dtype)),
            {name: x for name, x in traj.extras.items() if name != PRESENT},
            shown(traj.outcome, mask),
            traj.carry.own,
        )

    def shown(step: Step, mask: Bool[Array, "*b N"]) -> Step:
        """A step in which absent agents are as dead ones are: with zeros for observations, and one legal action. A
        reward that all agents share is also the others', so it stays.
        """
        seen, legal = mask[..., None], step.legal
        if isinstance(spec.action, Discrete):
            legal = jnp.where(seen, legal, jnp.arange(spec.action.width) == 0)
        return step._replace(
            obs=jnp.where(seen, step.obs, jnp.zeros((), step.obs.dtype)),
            legal=legal,
            alive=step.alive & mask,
            reward=step.reward if spec.shared_reward else jnp.where(mask, step.reward, 0.0),
            discount=jnp.where(mask, step.discount, 1.0),
        )

    def init(key: PRNGKeyArray) -> Learner:
        learner = algorithm.init(key)
        pool = jax.tree.map(lambda x: jnp.broadcast_to(x, (window, *x.shape)), learner.policy)
        return learner._replace(statistics=PastStatistics(learner.statistics, pool, jnp.zeros(window, jnp.int32)))

    def initial_carry(num_envs: int) -> PastCarry:
        past = algorithm.initial_carry(num_envs) if held(num_envs) else ()
        return PastCarry(algorithm.initial_carry(num_envs), past)

    def act(
        learner: Learner, carry: PastCarry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[PastCarry, Array, dict[str, Array]]:
        num_envs = step.first.shape[0]
        count = held(num_envs) if learner.statistics else 0
        if count == 0:
            after, action, extras = algorithm.act(bare(learner), carry.own, step, key, greedy)
            return PastCarry(after, carry.past), action, extras | {PRESENT: jnp.ones(step.alive.shape, bool)}
        mask = jnp.asarray(present(num_envs))
        key_own, key_past = jax.random.split(key)
        after, action, extras = algorithm.act(bare(learner), carry.own, shown(step, mask), key_own, greedy)
        pool = FrozenPolicies(algorithm, learner.statistics.pool)
        past, now = jax.tree.map(lambda x: x[:count], (carry.past, step))
        past, theirs = act_frozen(pool, past, now, key_past, greedy)
        past = jax.tree.map(lambda x, new: x.at[:count].set(new), carry.past, past)
        mine = mask[:count].reshape(count, -1, *[1] * (action.ndim - 2))
        action = action.at[:count].set(jnp.where(mine, action[:count], theirs))
        return PastCarry(after, past), action, extras | {PRESENT: mask}

    def inspect(
        learner: Learner, carry: PastCarry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        assert algorithm.inspect is not None
        extras = {name: x for name, x in extras.items() if name != PRESENT}
        return algorithm.inspect(bare(learner), carry.own, step, action, extras)

    def update(learner: Learner, data: Trajectory | Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        newest = data if isinstance(data, Trajectory) else data.newest
        fed = own(newest) if isinstance(data, Trajectory) else Experience(own(newest), data.samples)
        pool = learner.statistics
        learner, metrics = algorithm.update(bare(learner), fed, key)
        policies, updates = put(pool, learner.policy, learner.updates, every)
        learner = learner._replace(statistics=PastStatistics(learner.statistics, policies, updates))
        return learner, metrics | {"past/margin": margin(newest)}

    def observe(learner: Learner, traj: Trajectory) -> Learner:
        assert algorithm.observe is not None
        counted = algorithm.observe(bare(learner), own(traj))
        return counted._replace(statistics=learner.statistics._replace(statistics=counted.statistics))

    def margin(traj: Trajectory) -> Float[Array, ""]:
        """Mean reward of a side per timestep, less that of the past self that it plays."""
        mask = traj.extras[PRESENT]
        played = ~mask.all(-1)
        ours, theirs = (
            jnp.where(who, traj.outcome.reward, 0.0).sum(-1) / jnp.maximum(who.sum(-1), 1) for who in (mask, ~mask)
        )
        return total(share_of_mean(ours - theirs, played))

    def stored(one: Replay) -> Replay:
        return one._replace(keep=lambda traj: one.keep(own(traj)))

    return algorithm._replace(
        init=init,
        initial_carry=initial_carry,
        act=act,
        update=update,
        replay=each_buffer(stored, algorithm.replay),
        inspect=inspect if algorithm.inspect else None,
        observe=observe if algorithm.observe else None,
    )
