"""The compiled rollout of device environments: environment and policy in one ``lax.scan``."""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.environments.batching import select
from shoal.types import Batched, Box, Environment, EpisodeStats, PyTree, Step, Trajectory

Act = Callable[[PyTree, PyTree, Step, PRNGKeyArray, bool], tuple[PyTree, Array, dict[str, Array]]]
SEEDS = "seeds"


class RolloutState(NamedTuple):
    """State of E environments between two rollouts."""

    env: PyTree
    step: Step
    carry: PyTree
    returns: Float[Array, "E N"]
    """Undiscounted return of the current episode."""
    lengths: Float[Array, " E"]


class Timesteps(NamedTuple):
    """T steps of E environments, with running returns and lengths of their episodes."""

    step: Step
    action: Array
    extras: dict[str, Array]
    outcome: Step
    """Result of each action, before any reset; without ``metrics``."""
    metrics: Float[Array, "T E M"] | tuple[()]
    """``outcome.metrics`` of the environment."""
    returns: Float[Array, "T E N"]
    """Undiscounted return of the episode so far, including this step."""
    lengths: Float[Array, "T E"]


class Rollout(NamedTuple):
    """Functions that make trajectories of T steps in E environments."""

    init: Callable[[PRNGKeyArray, PyTree], RolloutState]
    """(key, initial carry of E environments) -> state."""
    collect: Callable[[Act, PyTree, RolloutState, PRNGKeyArray], tuple[RolloutState, Trajectory, EpisodeStats]]
    """(act, policy, state, key) -> (state, trajectory, sums over the episodes that ended)."""
    play: Callable[[Act, PyTree, RolloutState, PRNGKeyArray], tuple[RolloutState, Timesteps]]
    """Like ``collect``, but returns every step with its returns and lengths instead of sums over episodes."""


def anywhere(condition: Bool[Array, " E"]) -> Bool[Array, ""]:
    """Whether ``condition`` is True in any environment of any seed: a scalar, so that ``lax.cond`` stays a branch."""
    found = jnp.any(condition).astype(jnp.int32)
    with contextlib.suppress(NameError):  # without vmap over seeds
        found = jax.lax.pmax(found, SEEDS)
    return found > 0


def make_rollout(env: Environment, num_envs: int, rollout_length: int, greedy: bool = False) -> Rollout:
    """A rollout of ``rollout_length`` steps in ``num_envs`` copies of a device environment.

    An environment is reset when its episode ends; ``Trajectory.outcome`` holds the observation before the reset.
    Continuous actions are clipped to the action space for the environment, and stored unclipped.
    """
    box = env.spec.action if isinstance(env.spec.action, Box) else None
    batched = env.batched or vmapped(env)

    def init(key: PRNGKeyArray, carry: PyTree) -> RolloutState:
        state, step = batched.reset(key, num_envs)
        step = step._replace(metrics=())
        zeros = jnp.zeros_like(step.reward)
        return RolloutState(state, step, carry, zeros, zeros[:, 0])

    def play(act: Act, policy: PyTree, state: RolloutState, key: PRNGKeyArray) -> tuple[RolloutState, Timesteps]:
        def advance_once(state: RolloutState, key: PRNGKeyArray) -> tuple[RolloutState, Timesteps]:
            key_act, key_step, key_reset = jax.random.split(key, 3)
            carry, action, extras = act(policy, state.carry, state.step, key_act, greedy)
            sent = jnp.clip(action, box.low, box.high) if box else action
            env_state, outcome = batched.step(key_step, state.env, sent)
            metrics, outcome = outcome.metrics, outcome._replace(metrics=())
            ended = outcome.last

            def restart() -> tuple[PyTree, Step]:
                restarted, first = batched.restart(key_reset, ended, env_state)
                return restarted, select(ended, first._replace(metrics=()), outcome)

            env_state, step = jax.lax.cond(anywhere(ended), restart, lambda: (env_state, outcome))
            returns, lengths = state.returns + outcome.reward, state.lengths + 1
            new = RolloutState(
                env_state, step, carry, jnp.where(ended[:, None], 0.0, returns), jnp.where(ended, 0.0, lengths)
            )
            return new, Timesteps(state.step, action, extras, outcome, metrics, returns, lengths)

        return jax.lax.scan(advance_once, state, jax.random.split(key, rollout_length))

    def collect(
        act: Act, policy: PyTree, state: RolloutState, key: PRNGKeyArray
    ) -> tuple[RolloutState, Trajectory, EpisodeStats]:
        after, made = play(act, policy, state, key)
        return after, Trajectory(made.step, made.action, made.extras, made.outcome, state.carry), _counted(made)

    return Rollout(init, collect, play)


def vmapped(env: Environment) -> Batched:
    """The functions of an environment for E environments at once, by ``vmap``."""

    def reset(key: PRNGKeyArray, count: int) -> tuple[PyTree, Step]:
        return jax.vmap(env.reset)(jax.random.split(key, count))

    def step(key: PRNGKeyArray, state: PyTree, action: Array) -> tuple[PyTree, Step]:
        return jax.vmap(env.step)(jax.random.split(key, action.shape[0]), state, action)

    def restart(key: PRNGKeyArray, which: Bool[Array, " E"], state: PyTree) -> tuple[PyTree, Step]:
        fresh, first = reset(key, which.shape[0])
        return select(which, fresh, state), first

    return Batched(reset, step, restart)


def _counted(made: Timesteps) -> EpisodeStats:
    """Sums over the episodes that ended."""
    ended = made.outcome.last
    stats = EpisodeStats(
        episodes=ended.sum(dtype=jnp.float32),
        returns=jnp.where(ended[..., None], made.returns, 0.0).sum((0, 1)),
        lengths=jnp.where(ended, made.lengths, 0.0).sum(),
    )
    if isinstance(made.metrics, tuple):
        return stats
    known = ended[..., None] & jnp.isfinite(made.metrics)
    sums = jnp.where(known, made.metrics, 0.0).sum((0, 1), dtype=jnp.float32)
    return stats._replace(metrics=sums, known=known.sum((0, 1), dtype=jnp.float32))
