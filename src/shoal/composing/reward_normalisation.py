"""Any algorithm, learning from rewards over the running standard deviation of the return, around its three functions.

    r̂ = clip(r / σ_G, ±c)             σ_G² the variance of G_t = γ G_{t−1} + r_t, one number for the whole team

Source: Engstrom et al. 2020, Implementation Matters in Deep Policy Gradients, section 3.

The return G is carried beside the recurrent state, so it goes on from one rollout to the next wherever those are made.
Rewards are counted before they are learned from. One number divides all agents' rewards: any sum of them stays what it
was but for its unit, whoever of the team earned what.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.bounds import Bounds, check_value
from shoal.equations import normalise
from shoal.learning.replay import Moments
from shoal.types import Algorithm, EnvSpec, Experience, Learner, Metrics, PyTree, Replay, Step, Trajectory

RETURN = "discounted_return"
"""What ``act`` notes of G: its value on arriving at the step [E, N]."""


TINY = 1e-8
"""Added to the variance: rewards that are all 0 stay 0."""


class RewardCarry(NamedTuple):
    """What lasts from step to step."""

    carry: PyTree
    """The algorithm's own."""
    discounted: Float[Array, "E N"]
    """G before the step's reward."""


class RewardStatistics(NamedTuple):
    """What the update keeps beside parameters."""

    statistics: PyTree
    """The algorithm's own."""
    returns: normalise.Running
    """Of G, over living agents, features []."""


def each_buffer(f: Callable[..., Any], replay: PyTree, *samples: PyTree) -> PyTree:
    """``f`` of every :class:`Replay` of an algorithm, and of what was drawn from each."""
    return jax.tree.map(f, replay, *samples, is_leaf=lambda node: isinstance(node, Replay))


def spread(returns: normalise.Running) -> Float[Array, ""]:
    """σ_G. Of a variance below a millionth of the mean square, single precision knows nothing."""
    variance = returns.square - jnp.square(returns.mean)
    return jnp.sqrt(jnp.maximum(variance, 1e-6 * returns.square) + TINY)


def normalise_rewards(algorithm: Algorithm, spec: EnvSpec, gamma: float, clip: float) -> Algorithm:
    """``algorithm`` learning from r / σ_G. It notes G as :data:`RETURN`, and acts as before.

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
        """A rollout as the algorithm knows it."""
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

    def update(learner: Learner, data: Trajectory | Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        newest = data if isinstance(data, Trajectory) else data.newest
        discounted = gamma * newest.extras[RETURN] + newest.outcome.reward
        stats = normalise.update(learner.statistics.returns, discounted, newest.step.alive, beta=None)
        std = spread(stats)

        def scaled(x: Step | Moments) -> Step | Moments:
            return x._replace(reward=jnp.clip(x.reward / std, -clip, clip))

        fed = own(newest)._replace(step=scaled(newest.step), outcome=scaled(newest.outcome))
        if isinstance(data, Experience):
            fed = Experience(fed, each_buffer(lambda _, sample: scaled(sample), algorithm.replay, data.samples))
        learner, metrics = algorithm.update(bare(learner), fed, key)
        learner = learner._replace(statistics=RewardStatistics(learner.statistics, stats))
        return learner, metrics | {"return_std": std}

    def stored(one: Replay) -> Replay:
        return one._replace(keep=lambda traj: one.keep(own(traj)))

    replay = each_buffer(stored, algorithm.replay)
    return algorithm._replace(init=init, initial_carry=initial_carry, act=act, update=update, replay=replay)
