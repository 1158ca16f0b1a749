"""Reward normalisation around any algorithm: rewards over the running standard deviation of the return.

    r̂ = clip(r / σ_G, ±c)             σ_G² the variance of G_t = γ G_{t−1} + r_t, one number for the whole team

Source: Engstrom et al. 2020, Implementation Matters in Deep Policy Gradients, section 3.

G is carried beside the recurrent state from one rollout to the next. Rewards are added to the statistics before they
are learned from. One number divides all agents' rewards, so that their sums change in unit only.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.bounds import Bounds, check_value
from shoal.equations import normalise
from shoal.types import Algorithm, EnvSpec, Experience, Learner, Metrics, PyTree, Replay, Step, Trajectory

RETURN = "discounted_return"
"""Name of the extra of ``act`` that holds G, with the step's reward added [E, N]."""


class RewardCarry(NamedTuple):
    """State between timesteps."""

    carry: PyTree
    """The algorithm's own."""
    discounted: Float[Array, "E N"]
    """G before the step's reward."""


class RewardStatistics(NamedTuple):
    """State of the update beside parameters."""

    statistics: PyTree
    """The algorithm's own."""
    returns: normalise.Running
    """Of G, a scalar over living agents."""


def each_buffer(f: Callable[..., Any], replay: PyTree, *samples: PyTree) -> PyTree:
    """``f`` of every :class:`Replay` of an algorithm, and of the samples from each."""
    return jax.tree.map(f, replay, *samples, is_leaf=lambda node: isinstance(node, Replay))


def return_deviation(returns: normalise.Running) -> Float[Array, ""]:
    """σ_G."""
    return normalise.moments(returns, normalise.REWARDS)[1]


def normalise_rewards(algorithm: Algorithm, spec: EnvSpec, gamma: float, clip: float) -> Algorithm:
    """``algorithm``, trained on r / σ_G. Its ``act`` returns the extra :data:`RETURN` as well.

    Args:
        algorithm: any of the registry's, made for ``spec``; sides too.
        spec: the environment.
        gamma: γ of the return.
        clip: c, the largest size of a normalised reward.

    Raises:
        InputError: γ or the clip is out of its range.
    """
    check_value("gamma", gamma, Bounds(least=0.0, most=1.0))
    check_value("reward_clip", clip, Bounds(above=0.0))

    def bare(learner: Learner) -> Learner:
        """The algorithm's own learner; a deployed one has no statistics."""
        return learner._replace(statistics=learner.statistics.statistics if learner.statistics else ())

    def own(traj: Trajectory) -> Trajectory:
        """A rollout without G."""
        extras = {name: x for name, x in traj.extras.items() if name != RETURN}
        return traj._replace(extras=extras, carry=traj.carry.carry)

    def init(key: PRNGKeyArray) -> Learner:
        learner = algorithm.init(key)
        return learner._replace(statistics=RewardStatistics(learner.statistics, normalise.init(())))

    def initial_carry(num_envs: int) -> RewardCarry:
        return RewardCarry(algorithm.initial_carry(num_envs), jnp.zeros((num_envs, spec.num_agents)))

    def act(
        learner: Learner, carry: RewardCarry, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[RewardCarry, Array, dict[str, Array]]:
        after, action, extras = algorithm.act(bare(learner), carry.carry, step, key, greedy)
        discounted = jnp.where(step.first[:, None], 0.0, gamma * carry.discounted + step.reward)
        return RewardCarry(after, discounted), action, extras | {RETURN: discounted}

    def inspect(
        learner: Learner, carry: RewardCarry, step: Step, action: Array, extras: dict[str, Array]
    ) -> dict[str, Array]:
        assert algorithm.inspect is not None
        extras = {name: x for name, x in extras.items() if name != RETURN}
        found = algorithm.inspect(bare(learner), carry.carry, step, action, extras)
        return found | (
            {"value": found["value"] * return_deviation(learner.statistics.returns)} if "value" in found else {}
        )

    def counted(learner: Learner, traj: Trajectory) -> normalise.Running:
        """The statistics with a rollout added."""
        discounted = gamma * traj.extras[RETURN] + traj.outcome.reward
        return normalise.update(learner.statistics.returns, discounted, traj.step.alive, beta=None)

    def scaled(x: Any, std: Array) -> Any:
        """A step or stored timesteps with normalised rewards."""
        return x._replace(reward=jnp.clip(x.reward / std, -clip, clip))

    def fed(traj: Trajectory, std: Array) -> Trajectory:
        return own(traj)._replace(step=scaled(traj.step, std), outcome=scaled(traj.outcome, std))

    def update(learner: Learner, data: Trajectory | Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        newest = data if isinstance(data, Trajectory) else data.newest
        stats = counted(learner, newest)
        std, given = return_deviation(stats), fed(newest, return_deviation(stats))
        if isinstance(data, Experience):
            given = Experience(given, each_buffer(lambda _, x: scaled(x, std), algorithm.replay, data.samples))
        learner, metrics = algorithm.update(bare(learner), given, key)
        learner = learner._replace(statistics=RewardStatistics(learner.statistics, stats))
        return learner, metrics | {"return_std": std}

    def observe(learner: Learner, traj: Trajectory) -> Learner:
        stats, inner = counted(learner, traj), bare(learner)
        if algorithm.observe is not None:
            inner = algorithm.observe(inner, fed(traj, return_deviation(stats)))
        return inner._replace(statistics=RewardStatistics(inner.statistics, stats))

    def stored(one: Replay) -> Replay:
        return one._replace(keep=lambda traj: one.keep(own(traj)))

    replay = each_buffer(stored, algorithm.replay)
    return algorithm._replace(
        init=init,
        initial_carry=initial_carry,
        act=act,
        update=update,
        replay=replay,
        inspect=inspect if algorithm.inspect else None,
        observe=observe,
    )
