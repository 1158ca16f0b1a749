"""Targets of values: target networks, values of dead agents, one reward for a team, and the scale of the targets."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from shoal.equations import normalise
from shoal.types import EnvSpec, PyTree, Trajectory

RewardNorm = Literal["none", "scale", "standardise"]


def update_target(target: PyTree, critic: PyTree, steps: Array, interval: int, rate: float | Array | None) -> PyTree:
    """The target network's parameters after gradient step number ``steps`` (from 1).

    hard: θ^- = θ every C steps          soft: θ^- = τ θ + (1 − τ) θ^- every step

    ``rate`` is τ; where it is None, ``interval`` is C.
    """
    if rate is not None:
        return jax.tree.map(lambda old, new: old + rate * (new - old), target, critic)
    now = steps % interval == 0
    return jax.tree.map(lambda old, new: jnp.where(now, new, old), target, critic)


def mask_dead_values(
    value: Float[Array, "*b N"], alive: Bool[Array, "*b N"], groups: Sequence[int]
) -> Float[Array, "*b N"]:
    """Each agent's value, with a dead agent's replaced: the value of a dead agent's input is not trained.

    Where several agents receive one reward, a dead agent's return is that of the others (its ``discount`` stays 1), so
    its value is the mean of the living agents' values. With a reward of its own it is 0: a reward for its death is in
    the reward of that step. With no agent of a group alive both are 0.

    Args:
        value: of each agent.
        alive: which agents are alive.
        groups: each agent's group, ``EnvSpec.reward_groups``.
    """
    found = jnp.zeros_like(value)
    if len(set(groups)) < len(groups):
        for group in sorted(set(groups)):
            member = np.array(groups) == group
            living = alive & member
            mean = jnp.where(living, value, 0.0).sum(-1, keepdims=True) / jnp.maximum(living.sum(-1, keepdims=True), 1)
            found = jnp.where(member, mean, found)
    return jnp.where(alive, value, found)


def of_a_living_team(value: Float[Array, "*b"], alive: Bool[Array, "*b N"]) -> Float[Array, "*b"]:
    """A team's value, and 0 where no agent is alive: the value of such an input is not trained."""
    return jnp.where(alive.any(-1), value, 0.0)


def team_reward(traj: Trajectory) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """One reward and one discount for the team.

        r_t = (1/N) Σ_i r^i_t,    d_t = max of d^i_t over the agents that acted or are there now

    A shared reward is N equal copies, so its mean is one of them. The mean is over all N agents, not the living ones: a
    mean over these would rise when the agent that earns least dies.
    """
    discount = traj.outcome.discount
    acted = traj.step.alive | traj.outcome.alive  # some may have joined as others ended
    acted = acted | ~acted.any(-1, keepdims=True)
    return traj.outcome.reward.mean(-1), jnp.where(acted, discount, 0.0).max(-1)


def target_parts(
    traj: Trajectory, value: Array, team: bool, groups: Sequence[int]
) -> tuple[Array, Array, Array, Bool[Array, "T E ..."]]:
    """What a target is made of: reward, discount, value of the outcome, and where the return is cut.

    Args:
        traj: the timesteps.
        value: of each outcome, [T, E] of the team or [T, E, N] of each agent.
        team: whether there is one value for the team; otherwise each agent learns from its own reward.
        groups: ``EnvSpec.reward_groups``.

    Returns:
        (r, d, value, cut), all [T, E], or [T, E, N] without ``team``.
    """
    out = traj.outcome
    if team:
        return *team_reward(traj), of_a_living_team(value, out.alive), out.last
    return out.reward, out.discount, mask_dead_values(value, out.alive, groups), cut_off(traj)


def on_unequal_rewards(spec: EnvSpec, what: str = "the mean of all agents' rewards at each step") -> str:
    """``Algorithm.unequal_rewards`` of a method with one value for the team; by default that of :func:`team_reward`."""
    return "" if spec.shared_reward or spec.num_agents == 1 else what


def learned_from(spec: EnvSpec, team: bool) -> dict[str, Any]:
    """``Algorithm.unequal_rewards`` and ``learns_from`` with one value for the team, or each agent's own."""
    return {"unequal_rewards": on_unequal_rewards(spec), "learns_from": "team"} if team else {"learns_from": "own"}


def cut_off(traj: Trajectory) -> Bool[Array, "T E N"]:
    """Where an agent's return is cut: at the end of the episode, and where the agent alone reaches its time limit.

    Such an agent is alive in the outcome, from whose value its target bootstraps, and gone at the step that follows.
    """
    alive = traj.outcome.alive
    alone = jnp.concatenate([alive[:-1] & ~traj.step.alive[1:], jnp.zeros_like(alive[-1:])])
    return traj.outcome.last[..., None] | alone


def init_rewards(kind: RewardNorm, shape: tuple[int, ...]) -> normalise.Running | None:
    """Empty statistics, or None where rewards are not scaled."""
    return None if kind == "none" else normalise.init(shape)


def update_reward_stats(stats: normalise.Running | None, reward: Array, weight: Array) -> normalise.Running | None:
    """The statistics with new rewards added."""
    return None if stats is None else normalise.update(stats, reward, weight, beta=None)


def normalise_reward(
    kind: RewardNorm, stats: normalise.Running | None, reward: Float[Array, "*b"] | Float[Array, "*b N"]
) -> Array:
    """Rewards scaled by their running statistics; unchanged where these are None."""
    if stats is None:
        return reward
    mean, std = normalise.moments(stats, normalise.REWARDS)
    return (reward - mean) / std if kind == "standardise" else reward / std


def unscaled(stats: normalise.Running | None, value: Float[Array, "*b"] | Float[Array, "*b N"]) -> Array:
    """Values of rewards that were divided by their standard deviation, in units of reward."""
    return value if stats is None else value * normalise.moments(stats, normalise.REWARDS)[1]


def team_mean(x: Float[Array, "*b N"], alive: Array) -> Float[Array, "*b"]:
    """The mean over living agents, 0 where there are none."""
    return jnp.where(alive, x, 0.0).sum(-1) / jnp.maximum(alive.sum(-1), 1)


ValueNorm = Literal["running", "popart", "none"]
Stats = normalise.Running | None


class ValueScale(NamedTuple):
    """Converts between the critic's units and rewards' units, for a critic with one scale or with G of them."""

    init: Callable[[], Stats]
    normalise: Callable[[Stats, Float[Array, "..."]], Float[Array, "..."]]
    """(statistics, values [*b], or [*b, G]) -> the same in the critic's units."""
    denormalise: Callable[[Stats, Float[Array, "..."]], Float[Array, "..."]]
    update: Callable[[Stats, PyTree, Float[Array, "..."], Bool[Array, "..."]], tuple[Stats, PyTree]]
    """(statistics, critic parameters, targets, which of them count) -> (statistics, critic parameters)."""


def make_value_scale(kind: ValueNorm, beta: float, scales: int = 1) -> ValueScale:
    """The value scale of a critic with G = ``scales`` outputs, over all of its nets.

    ``running`` is the MAPPO authors' ValueNorm: debiased exponential averages with decay ``beta`` per update, of the
    targets that count, and a variance of at least 0.01.
    ``popart`` also rescales the critic's last layer, so that new statistics do not change its predictions
    (Hessel et al. 2019, eq. 8).
    """
    if kind == "none":
        return ValueScale(lambda: None, lambda _, x: x, lambda _, x: x, lambda stats, params, *_: (stats, params))

    def update(stats: Stats, params: PyTree, target: Array, counts: Array) -> tuple[Stats, PyTree]:
        assert isinstance(stats, normalise.Running)
        if scales == 1:
            target, counts = target.reshape(-1, 1), counts.reshape(-1, 1)
        new = normalise.update(stats, target, counts, beta)
        if kind == "popart":
            shape = params["head"]["bias"].shape  # [P, K] with P · K = G
            old_s, new_s = (jax.tree.map(lambda x: x.reshape(shape), s) for s in (stats, new))
            kernel, bias = normalise.popart(old_s, new_s, params["head"]["kernel"], params["head"]["bias"])
            params = {**params, "head": {"kernel": kernel, "bias": bias}}
        return new, params

    return ValueScale(
        lambda: normalise.init((scales,)),
        lambda stats, x: normalise.normalise(stats, x, normalise.VALUES),  # type: ignore[arg-type]
        lambda stats, x: normalise.denormalise(stats, x, normalise.VALUES),  # type: ignore[arg-type]
        update,
    )
