"""An algorithm under check: compiled for a small team with random data, and trained in a game with a known optimum.

A short training in a one-step game with a known best joint action gives information about an algorithm.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal import algorithms
from shoal.environments.matrix import matrix_game
from shoal.options.flags import override
from shoal.rollouts import fused
from shoal.training import feed as feeds
from shoal.types import (
    Algorithm,
    Box,
    Discrete,
    Environment,
    EnvSpec,
    Experience,
    Learner,
    PyTree,
    Replay,
    Scale,
    Step,
    Trajectory,
)

T, E, N = 5, 4, 3
UPDATES = 10
"""Updates of the run for which the algorithm is made."""
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Small sizes, since compilation takes most of the time of a check."""
SMALL: dict[str, Any] = {
    "hidden": (8,),
    "orthogonal": False,  # drawing orthogonal matrices is slow to compile
    "epochs": 1,
    "minibatches": 1,
    "chunk_length": T,
    "sequence_length": T,
    "policy_delay": 1,
    "learning_rate": 0.1,
    "adam_eps": 0.5,  # steps are then proportional to gradients, so that rounding errors stay small
}
"""Options of the check, where the ``Config`` has fields of these names."""

DISCRETE = EnvSpec(
    name="a team with discrete actions",
    agents=tuple(f"agent_{i}" for i in range(N)),
    obs_dims=(5, 5, 4),
    state_dim=4,
    action=Discrete(4),
    action_dims=(4, 4, 3),
    roles=(0, 0, 1),
    horizon=8,
    shared_reward=False,
    novel=(1, 3),
)
BOX = replace(DISCRETE, name="a team with continuous actions", action=Box(2, -2.0, 1.0), action_dims=(2, 2, 1))
TEAM = replace(DISCRETE, name="a team with one reward", shared_reward=True)
ALONE = replace(DISCRETE, name="one agent", agents=("agent_0",), obs_dims=(5,), action_dims=(4,), roles=(0,))


class Specimen(NamedTuple):
    """An algorithm with compiled functions. ``trajectory`` has the actions of its own ``act``."""

    module: Any
    config: Any
    spec: EnvSpec
    length: int
    """T."""
    algorithm: Algorithm
    learner: Learner
    acts: Callable[[Learner, Trajectory], tuple[Trajectory, Trajectory]]
    """(learner, trajectory) -> its steps with sampled, and with greedy, actions."""
    update: Callable[[Learner, Trajectory, jax.Array], Any]
    """(learner, trajectory, key) -> what the algorithm's update returns."""
    trajectory: Trajectory
    greedy: Trajectory


def tiny(config: Any, **flags: Any) -> Any:
    """The configuration with the options of :data:`SMALL`, and others, where it has fields of these names."""
    return override(config, SMALL | flags)


def fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, compiled without optimisation."""
    return jax.jit(function, compiler_options=FAST)


def made(module: Any, config: Any, spec: EnvSpec) -> tuple[Algorithm, int]:
    """The algorithm and the length of the rollouts that it is made for, at least that of its sequences in replay.

    Raises:
        InputError: the algorithm does not support the specification.
    """
    algorithm = algorithms.returned(module.make(spec, config, Scale(E, T, UPDATES)), module)
    longest = max((one.length for one in _replays(algorithm)), default=T)
    if longest > T:
        algorithm = module.make(spec, config, Scale(E, longest, UPDATES))
    return algorithm, max(T, longest)


def specimen(module: Any, config: Any, spec: EnvSpec) -> Specimen:
    """Make and compile an algorithm, and let it act once and initialise its learner.

    Raises:
        InputError: the algorithm does not support the specification.
    """
    algorithm, length = made(module, config, spec)
    learner = fast(algorithm.init)(jax.random.key(0))
    acts = fast(compiled_act(algorithm))
    carry = jax.tree.map(jnp.asarray, algorithm.initial_carry(E))
    sampled, greedy = acts(learner, random_trajectory(spec, length, carry))
    return Specimen(module, config, spec, length, algorithm, learner, acts, fast(updating(algorithm)), sampled, greedy)


def compiled_act(algorithm: Algorithm) -> Callable[[Learner, Trajectory], tuple[Trajectory, Trajectory]]:
    """A function that takes actions in the steps of a trajectory, one after the other."""

    def played(learner: Learner, traj: Trajectory, greedy: bool) -> Trajectory:
        def turn(carry: PyTree, moment: tuple[Step, jax.Array]) -> Any:
            step, key = moment
            carry, action, extras = algorithm.act(learner, carry, step, key, greedy)
            return carry, (action, extras)

        keys = jax.random.split(jax.random.key(2), traj.step.first.shape[0])
        _, (action, extras) = jax.lax.scan(turn, traj.carry, (traj.step, keys))
        return traj._replace(action=action, extras=extras)

    return lambda learner, traj: (played(learner, traj, False), played(learner, traj, True))


def updating(algorithm: Algorithm) -> Callable[..., Any]:
    """The update as a function of a trajectory, from which it also draws what would come from replay buffers."""

    def cut(one: Replay, traj: Trajectory) -> PyTree:
        """All sequences of the trajectory as one batch, [G, L, B, ...]."""
        pieces = traj.step.first.shape[0] // one.length

        def cut_leaf(x: jax.Array) -> jax.Array:
            x = x[: pieces * one.length].reshape(pieces, one.length, *x.shape[1:])
            x = jnp.moveaxis(x, (0, 2), (1, 2)).reshape(one.length, pieces * x.shape[2], *x.shape[3:])
            return jnp.broadcast_to(x, (one.draws, *x.shape))

        return jax.tree.map(cut_leaf, one.keep(traj))

    def update(learner: Learner, traj: Trajectory, key: jax.Array) -> Any:
        if not _replays(algorithm):
            return algorithm.update(learner, traj, key)
        samples = jax.tree.map(lambda one: cut(one, traj), algorithm.replay, is_leaf=lambda x: isinstance(x, Replay))
        return algorithm.update(learner, Experience(traj, samples), key)

    return update


def _replays(algorithm: Algorithm) -> list[Replay]:
    leaves = jax.tree.leaves(algorithm.replay, is_leaf=lambda x: isinstance(x, Replay))
    return [one for one in leaves if isinstance(one, Replay)]


def random_trajectory(spec: EnvSpec, length: int, carry: PyTree, seed: int = 0) -> Trajectory:
    """A random trajectory in which agents die, actions are illegal, and episodes terminate and are truncated.

    A third of the agents are dead and a third of the actions illegal, never action 0. The action and the extras are
    still to be filled in.
    """
    rng, batch, n = np.random.default_rng(seed), (length, E), spec.num_agents
    own = np.arange(spec.action.width) < np.array(spec.action_dims)[:, None]
    seen = np.arange(spec.obs_dim) < np.array(spec.obs_dims)[:, None]

    def step() -> Step:
        legal = np.broadcast_to(own, (*batch, *own.shape)).copy()
        if isinstance(spec.action, Discrete):
            legal &= rng.random(legal.shape) > 0.3
            legal[..., 0] = True
        discount = rng.random((*batch, 1)) > 0.2 if spec.shared_reward else rng.random((*batch, n)) > 0.2
        reward = rng.normal(size=(*batch, 1 if spec.shared_reward else n))
        obs = np.where(seen, rng.normal(size=(*batch, n, spec.obs_dim)), 0.0)
        return Step(
            obs=jnp.asarray(obs, jnp.float32),
            state=jnp.asarray(rng.normal(size=(*batch, spec.state_dim)), jnp.float32),
            legal=jnp.asarray(legal),
            alive=jnp.asarray(rng.random((*batch, n)) > 0.3),
            reward=jnp.asarray(np.broadcast_to(reward, (*batch, n)), jnp.float32),
            discount=jnp.asarray(np.broadcast_to(discount, (*batch, n)), jnp.float32),
            first=jnp.zeros(batch, bool),
            last=jnp.asarray(rng.random(batch) > 0.7),
        )

    now, outcome = step(), step()
    first = jnp.concatenate([jnp.ones((1, E), bool), outcome.last[:-1]])
    now = now._replace(first=first, last=jnp.zeros(batch, bool))
    return Trajectory(now, jnp.zeros(()), {}, _going_on(now, outcome), carry)


def _going_on(step: Step, outcome: Step) -> Step:
    """The outcomes, with the next step's observations where the episode continues."""

    def follow(after: jax.Array, own: jax.Array) -> jax.Array:
        last = outcome.last.reshape(*outcome.last.shape, *(1,) * (own.ndim - 2))
        return jnp.concatenate([jnp.where(last[:-1], own[:-1], after[1:]), own[-1:]])

    fields = ("obs", "state", "legal", "alive")
    return outcome._replace(**{name: follow(getattr(step, name), getattr(outcome, name)) for name in fields})


def tree_difference(one: PyTree, other: PyTree, tolerance: float = 1e-4) -> str:
    """The path of the first leaf that differs by more than ``tolerance`` × (1 + its size); empty if none does."""
    for (path, x), y in zip(jax.tree.leaves_with_path(one), jax.tree.leaves(other), strict=True):
        a, b = (
            np.asarray(jax.random.key_data(z) if jnp.issubdtype(z.dtype, jax.dtypes.prng_key) else z) for z in (x, y)
        )
        if a.dtype.kind in "fc":
            equal = np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            equal = np.array_equal(a, b)
        if not equal:
            return jax.tree_util.keystr(path).lstrip(".") or "the result"
    return ""


PAYOFF = ((1.0, 0.0), (0.0, 0.0))
"""The team's reward is 1 if both agents choose their first action."""
CHANCE = float(np.mean(PAYOFF))
"""The mean reward of random actions."""
ENVS, LENGTH, TRIAL_UPDATES = 32, 4, 60
TRIAL_SIZES: dict[str, Any] = {
    "learning_rate": 1e-2,
    "adam_eps": 1e-5,
    "sequence_length": 1,
    "chunk_length": 1,
    "batch_size": 32,
    "buffer_size": 1024,
    "learning_starts": 128,
}
"""Options of this training, where the ``Config`` has fields of these names."""


class TrialResult(NamedTuple):
    """The mean rewards after a short training."""

    greedy: float
    sampled: float

    def __str__(self) -> str:
        """Both mean rewards, with those of random actions and of the best joint action."""
        return (
            f"mean reward {self.greedy:.2f} with greedy and {self.sampled:.2f} with sampled actions after "
            f"{TRIAL_UPDATES * LENGTH * ENVS:,} steps (random {CHANCE:.2f}, best {np.max(PAYOFF):.2f})"
        )

    @property
    def worse(self) -> bool:
        """Whether both are far below the reward of random actions."""
        return max(self) < CHANCE / 2


def short_training(module: Any, **flags: Any) -> TrialResult:
    """The rewards of sampled and greedy actions after a short training; ``flags`` are options of the algorithm.

    Raises:
        InputError: the algorithm does not support the game.
    """
    env = matrix_game(PAYOFF, name="a one-step game")
    config = tiny(module.Config(), **(TRIAL_SIZES | flags))
    algorithm = module.make(env.spec, config, Scale(ENVS, LENGTH, TRIAL_UPDATES))
    sampled, greedy = (float(x) for x in fast(lambda key: _trained(algorithm, env, key))(jax.random.key(0)))
    return TrialResult(greedy, sampled)


def _trained(algorithm: Algorithm, env: Environment, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean rewards of sampled and of greedy actions after training."""
    rollout = fused.make_rollout(env, ENVS, LENGTH)
    key_learner, key_rollout, key_play, key = jax.random.split(key, 4)
    learner, state = algorithm.init(key_learner), rollout.init(key_rollout, algorithm.initial_carry(ENVS))
    shapes = jax.eval_shape(lambda: rollout.collect(algorithm.act, learner, state, key)[1])
    feed = feeds.make_feed(algorithm.replay, shapes, ENVS, 1)

    def iterate(now: PyTree, key: jax.Array) -> tuple[PyTree, None]:
        learner, rolled, fed = now
        key_rollout, key_feed, key_update = jax.random.split(key, 3)
        rolled, trajectory, _ = rollout.collect(algorithm.act, learner, rolled, key_rollout)
        fed = feed.put(fed, trajectory)
        learned, _ = algorithm.update(learner, feed.take(fed, trajectory, key_feed), key_update)
        if feed.ready is not None:
            ready = feed.ready(fed)
            waiting = algorithm.observe(learner, trajectory) if algorithm.observe else learner
            learned = jax.tree.map(lambda new, old: jnp.where(ready, new, old), learned, waiting)
        return (learned, rolled, fed), None

    (learner, rolled, _), _ = jax.lax.scan(iterate, (learner, state, feed.init()), jax.random.split(key, TRIAL_UPDATES))

    def earned(greedy: bool) -> jax.Array:
        action = algorithm.act(learner, rolled.carry, rolled.step, key_play, greedy)[1]
        return jnp.asarray(PAYOFF)[action[:, 0], action[:, 1]].mean()

    return earned(False), earned(True)
