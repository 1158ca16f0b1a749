"""One whole call of ``update`` (one minibatch, and one chunk, per epoch) from the pieces of ``naive``."""

import math
from collections import Counter
from typing import Any, NamedTuple

import jax
import numpy as np

from support.naive import (
    actor_loss,
    critic_loss,
    gae,
    gradient,
    mask_dead_values,
    next_values,
    of_policy,
    policy_index,
    scaled,
    standardised,
    to_numpy,
    values,
)


class Expected(NamedTuple):
    actor: Any
    critic: Any
    stats: Any
    metrics: dict[str, float]
    seen: Counter
    """How often each bound of the losses held, so that a test can demand that it did."""


def group_of(spec: Any, c: Any) -> tuple[int, ...]:
    """Agents with the same number share a value scale: all that read one output of one net."""
    if c.critic_input in ("concat", "state"):
        return (0,) * spec.num_agents if spec.shared_reward else tuple(range(spec.num_agents))
    return policy_index(spec, c.sharing)


def moments(stats: Any) -> tuple[Any, Any]:
    return (stats.mean, np.sqrt(np.maximum(stats.square - stats.mean**2, 0.01))) if stats else (0.0, 1.0)


def counted(stats: Any, group: tuple[int, ...], beta: float, target: np.ndarray, alive: np.ndarray) -> Any:
    """Debiased exponential averages of the targets of each group's living agents."""
    if not stats:
        return stats
    mean, square, weight = (np.copy(x) for x in stats)
    for g in range(max(group) + 1):
        members = [i for i, other in enumerate(group) if other == g]
        seen = target[..., members][alive[..., members]]
        total = beta * weight[g] + 1 - beta
        mean[g] = (beta * weight[g] * mean[g] + (1 - beta) * seen.mean()) / total
        square[g] = (beta * weight[g] * square[g] + (1 - beta) * (seen**2).mean()) / total
        weight[g] = total
    return type(stats)(mean, square, weight)


def popart(critic: Any, old: Any, new: Any) -> Any:
    """The critic whose last layer predicts under the new statistics what it predicted under the old ones."""
    (mean, std), (new_mean, new_std) = moments(old), moments(new)
    critic = jax.tree.map(np.copy, critic)
    kernel, bias = critic["head"]["kernel"], critic["head"]["bias"]
    for g, (p, k) in enumerate(np.ndindex(bias.shape)):
        kernel[p, :, k] *= std[g] / new_std[g]
        bias[p, k] = (std[g] * bias[p, k] + mean[g] - new_mean[g]) / new_std[g]
    return critic


class Adam:
    """One per policy, after a clip of that policy's gradient norm. A policy whose gradient is 0 takes no step."""

    def __init__(self, params: Any, rate: float, c: Any, steps: int) -> None:
        self.m, self.v = jax.tree.map(np.zeros_like, params), jax.tree.map(np.zeros_like, params)
        self.rate, self.c, self.steps = rate, c, steps
        self.count = np.zeros(jax.tree.leaves(params)[0].shape[0])

    def step(self, params: Any, grad: Any) -> tuple[Any, float, int]:
        policies = jax.tree.leaves(grad)[0].shape[0]
        norms = [math.sqrt(sum((x**2).sum() for x in jax.tree.leaves(of_policy(grad, p)))) for p in range(policies)]
        limit = math.inf if self.c.max_grad_norm is None else self.c.max_grad_norm
        factor = np.array([min(1.0, limit / max(norm, 1e-30)) for norm in norms])

        def per_policy(values: np.ndarray, like: np.ndarray) -> np.ndarray:
            return values.reshape(-1, *(1,) * (like.ndim - 1))

        grad = jax.tree.map(lambda g: g * per_policy(factor, g), grad)
        takes, done = np.array(norms) > 0, self.count / self.steps
        rate = self.rate * (1 - (1 - self.c.lr_final) * done)
        self.count = self.count + takes

        def where(new: np.ndarray, old: np.ndarray) -> np.ndarray:
            return np.where(per_policy(takes, old), new, old)

        self.m = jax.tree.map(lambda m, g: where(0.9 * m + 0.1 * g, m), self.m, grad)
        self.v = jax.tree.map(lambda v, g: where(0.999 * v + 0.001 * g * g, v), self.v, grad)
        debias = [np.where(takes, 1 - beta**self.count, 1.0) for beta in (0.9, 0.999)]

        def move(x: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
            first, second = m / per_policy(debias[0], m), v / per_policy(debias[1], v)
            return where(x - per_policy(rate, x) * first / (np.sqrt(second) + self.c.adam_eps), x)

        return jax.tree.map(move, params, self.m, self.v), float(np.mean(norms)), int((factor < 1).sum())


def update(spec: Any, c: Any, num_updates: int, learner: Any, traj: Any) -> Expected:
    learner, traj = to_numpy(learner), to_numpy(traj)
    actor, critic, stats = learner.policy.actor, learner.critic, learner.statistics.value
    step, outcome = scaled(learner.policy.inputs, traj.step), scaled(learner.policy.inputs, traj.outcome)
    group, alive = group_of(spec, c), traj.step.alive
    of_team = vars(c).get("dead_value", "team") == "team"
    carry = traj.carry if c.network.recurrent else type(traj.carry)(None, None)

    def per_agent(stats: Any) -> Any:
        return jax.tree.map(lambda x: x[list(group)], stats) if stats else stats

    def estimate(critic: Any, stats: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean, std = moments(per_agent(stats))
        v = values(spec, c, critic, step, carry.critic) * std + mean
        following = next_values(spec, c, critic, step, outcome, carry.critic) * std + mean
        expected = v
        if of_team:
            expected = mask_dead_values(spec, v, traj.step.alive)
            following = mask_dead_values(spec, following, traj.outcome.alive)
        return (v, *gae(c, expected, following, traj.outcome, traj.step))

    value, raw_advantage, target = estimate(critic, stats)
    new = counted(stats, group, c.value_norm_beta, target, alive | (not of_team))
    mean, std = moments(per_agent(new))
    old = values(spec, c, critic, step, carry.critic)
    if c.value_norm == "popart":
        critic = popart(critic, stats, new)
        old = (value - mean) / std
    advantage, goal = standardised(c, raw_advantage, alive), (target - mean) / std

    sigma = c.entropy_coef
    if c.entropy_final is not None:
        sigma += (c.entropy_final - c.entropy_coef) * int(learner.updates) / num_updates
    if c.target_entropy is not None:
        sigma = math.exp(learner.statistics.coefficients.log_entropy)
    kappa = float(learner.statistics.coefficients.kl)
    critic_rate = c.learning_rate if c.critic_learning_rate is None else c.critic_learning_rate
    actor_adam = Adam(actor, c.learning_rate, c, num_updates * c.epochs)
    critic_adam = Adam(critic, critic_rate, c, num_updates * c.epochs)
    sums: Any = Counter()
    for epoch in range(c.epochs):
        if epoch and c.recompute_advantages:
            _, again, target_again = estimate(critic, new)
            advantage, goal = standardised(c, again, alive), (target_again - mean) / std
            old = values(spec, c, critic, step, carry.critic)

        def of_actor(params: Any, advantage: Any = advantage) -> tuple[Any, Any]:
            return actor_loss(spec, c, params, step, traj, advantage, sigma, kappa, carry.actor)

        def of_critic(params: Any, old: Any = old, goal: Any = goal) -> tuple[Any, Any]:
            loss, seen = critic_loss(spec, c, params, step, old, goal, carry.critic)
            return c.value_coef * loss, seen

        sums.update(of_actor(actor)[1])
        # not +=, which drops what is negative
        sums.update(of_critic(critic)[1])  # pyright: ignore[reportGeneralTypeIssues]  # in a loop
        g_actor, g_critic = gradient(of_actor, actor), gradient(of_critic, critic)
        actor, norm, held = actor_adam.step(actor, g_actor)
        critic, critic_norm, critic_held = critic_adam.step(critic, g_critic)
        sums["actor_grad_norm"] += norm
        sums["critic_grad_norm"] += critic_norm
        sums["norm"] += held + critic_held

    names = ("policy_loss", "entropy", "kl", "clip_fraction", "value_loss", "actor_grad_norm", "critic_grad_norm")
    metrics = {name: sums[name] / c.epochs for name in names} | {"entropy_coef": sigma}
    share = raw_advantage[alive].std() / max(target[alive].std(), 1e-6)
    return Expected(actor, critic, new, metrics | {"explained_variance": 1 - share**2}, sums)
