"""COMA's and MAPG's update once more, in NumPy and double precision, for discrete actions and one critic step."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from support.naive import features, forward, gradient, mask_dead_values, of_policy, policy_index, scaled, to_numpy
from support.naive_update import Adam, counted, moments


class Expected(NamedTuple):
    actor: Any
    critic: Any
    target: np.ndarray
    advantage: np.ndarray
    metrics: dict[str, float]


def inputs(spec: Any, c: Any, step: Any, u: Any = None) -> list[np.ndarray]:
    """What each agent's critic reads, [T, E, F]; with ``u`` the others' actions, unless critics are independent."""
    local = getattr(c, "critic", "centralised") == "independent"
    kind = "local" if local else c.critic_input
    with_id = c.agent_id and max(policy_index(spec, c.sharing)) + 1 < spec.num_agents
    rows = features(spec, step, kind, with_id)
    if u is None or local:
        return rows
    for i, x in enumerate(rows):
        parts = [x]
        if kind in ("concat", "state"):
            parts.append(features(spec, step, "local", True)[i])
        for j in range(spec.num_agents):
            one_hot = np.eye(spec.action.n)[u[..., j]]
            parts.append(np.where((i != j) & step.alive[..., j : j + 1], one_hot, 0))
        rows[i] = np.concatenate(parts, -1)
    return rows


def q_of_all(spec: Any, c: Any, params: Any, step: Any, u: np.ndarray) -> np.ndarray:
    """[T, E, N, A]."""
    index = policy_index(spec, c.sharing) if getattr(c, "critic", "") == "independent" else (0,) * spec.num_agents
    rows = inputs(spec, c, step, u)
    return np.stack([forward(of_policy(params, index[i]), x) for i, x in enumerate(rows)], 2)


def of_taken(q: np.ndarray, u: np.ndarray) -> np.ndarray:
    return np.take_along_axis(q, u[..., None], -1)[..., 0]


def v_of(spec: Any, c: Any, params: Any, step: Any) -> np.ndarray:
    index = policy_index(spec, c.sharing) if c.critic == "independent" else (0,) * spec.num_agents
    rows = [forward(of_policy(params, index[i]), x) for i, x in enumerate(inputs(spec, c, step))]
    return np.stack([y[..., i] if y.shape[-1] > 1 else y[..., 0] for i, y in enumerate(rows)], -1)


def of_each(x: np.ndarray, alive: np.ndarray, nets: tuple[int, ...]) -> float:
    """The sum over nets of the mean of ``x`` over the living rows of each net's agents."""
    agents = [[i for i, net in enumerate(nets) if net == p] for p in range(max(nets) + 1)]
    return sum(x[..., own][alive[..., own]].mean() for own in agents)


def lambda_return(c: Any, reward: np.ndarray, discount: np.ndarray, next_q: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The forward view: (1 − λ) Σ λ^{n−1} G^n, all the rest of the weight on the longest n-step return."""
    y = np.zeros(reward.shape)
    for t, e in np.ndindex(reward.shape):
        weight, gain, total = 1.0, 1.0, 0.0
        for k in range(t, len(reward)):
            total += gain * weight * reward[k, e]
            gain *= c.gamma * discount[k, e]
            final = last[k, e] or k == len(reward) - 1
            total += gain * weight * (1 if final else 1 - c.lam) * next_q[k, e]
            if final:
                break
            weight *= c.lam
        y[t, e] = total
    return y


def targets(spec: Any, c: Any, next_q: np.ndarray, traj: Any) -> np.ndarray:
    """y [T, E, N] from Q(outcome, u_next) [T, E, N]."""
    out = traj.outcome
    if getattr(c, "critic", "") == "independent":
        ahead = mask_dead_values(spec, next_q, out.alive)
        columns = [(out.reward[..., i], out.discount[..., i], ahead[..., i]) for i in range(spec.num_agents)]
        return np.stack([lambda_return(c, *column, out.last) for column in columns], -1)
    shape = out.last.shape
    discount, ahead = np.zeros(shape), np.zeros(shape)
    for where in np.ndindex(shape):
        there = traj.step.alive[where] | out.alive[where]
        discount[where] = out.discount[where][there if there.any() else slice(None)].max()
        if out.alive[where].any():
            ahead[where] = next_q[where][out.alive[where]].mean()
    return np.repeat(lambda_return(c, out.reward.mean(-1), discount, ahead, out.last)[..., None], spec.num_agents, -1)


def probabilities(spec: Any, c: Any, params: Any, step: Any, carry: Any, epsilon: float) -> tuple[Any, Any]:
    """π [T, E, N, A] with its floor, and the softmax p beneath it."""
    index = policy_index(spec, c.sharing)
    rows = []
    for i, x in enumerate(features(spec, step, "local", c.agent_id and max(index) + 1 < spec.num_agents)):
        own = None if carry is None else carry[:, i]
        rows.append(forward(of_policy(params, index[i]), x, own, step.first))
    weights = np.exp(np.stack(rows, 2)) * step.legal
    p = weights / weights.sum(-1, keepdims=True)
    return (1 - epsilon) * p + epsilon * step.legal / step.legal.sum(-1, keepdims=True), p


def baseline(c: Any, q: np.ndarray, pi: np.ndarray, p: np.ndarray, v: Any, epsilon: float) -> Any:
    """b [T, E, N], one (t, e, i) at a time."""
    kind = getattr(c, "baseline", "counterfactual")
    if kind in ("none", "value"):
        return v
    b = np.zeros(q.shape[:-1])
    for where in np.ndindex(b.shape):
        squares = score_squares(pi[where], p[where], epsilon)
        weight = pi[where] * (squares + 1e-8 if kind == "optimal" else 1.0)
        b[where] = (weight * q[where]).sum() / weight.sum()
    return b


def score_squares(pi: np.ndarray, p: np.ndarray, epsilon: float) -> np.ndarray:
    """‖∇ log π(u)‖² [A] with respect to the logits of one agent at one timestep."""
    squares = np.zeros(len(p))
    for action in np.flatnonzero(pi > 0):
        score = (np.eye(len(p))[action] - p) * (1 - epsilon) * p[action]
        squares[action] = np.sum((score / pi[action]) ** 2)
    return squares


def update(spec: Any, c: Any, num_updates: int, learner: Any, traj: Any, u_next: Any) -> Expected:
    learner, traj, u_next = to_numpy(learner), to_numpy(traj), np.asarray(u_next)
    step, outcome = scaled(learner.policy.inputs, traj.step), scaled(learner.policy.inputs, traj.outcome)
    critics, kept, alive = learner.critic, learner.statistics, traj.step.alive
    independent = getattr(c, "critic", "") == "independent"
    group = policy_index(spec, c.sharing) if independent else (0,) * spec.num_agents

    def unit(stats: Any) -> Any:
        return moments(jax.tree.map(lambda x: x[list(group)], stats) if stats else stats)

    mean, std = unit(kept.value)
    y = targets(spec, c, of_taken(q_of_all(spec, c, kept.target.q, outcome, u_next), u_next) * std + mean, traj)
    seen = of_taken(q_of_all(spec, c, critics.q, step, traj.action), traj.action) * std + mean
    mean, std = unit(counted(kept.value, group, c.value_norm_beta, y, alive))
    goal = (y - mean) / std

    def critic_loss(params: Any) -> Any:
        """Each net's mean over its own agents' rows, and the mean over the team's."""
        heads = [of_taken(q_of_all(spec, c, params.q, step, traj.action), traj.action)]
        heads += [v_of(spec, c, params.v, step)] if params.v else []
        loss = team = 0.0
        for x in heads:
            e = np.abs(x - goal)
            row = e**2 / 2 if c.huber is None else np.where(e < c.huber, e**2 / 2, c.huber * (e - c.huber / 2))
            loss, team = loss + of_each(row, alive, group), team + row[alive].mean()
        return loss, team

    rate = c.learning_rate if c.critic_learning_rate is None else c.critic_learning_rate
    fitted, critic_norm, _ = Adam(critics, rate, c, num_updates).step(critics, gradient(critic_loss, critics))
    epsilon = 0.0 if learner.policy.epsilon is None else float(learner.policy.epsilon)
    carry = traj.carry.actor if c.network.recurrent else None
    actor = learner.policy.actor
    pi, p = probabilities(spec, c, actor, step, carry, epsilon)
    q = q_of_all(spec, c, fitted.q, step, traj.action) * np.expand_dims(std, -1) + np.expand_dims(mean, -1)
    v = v_of(spec, c, fitted.v, step) * std + mean if fitted.v else 0.0
    b = baseline(c, q, pi, p, v, epsilon) * np.ones(q.shape[:-1])
    advantage = of_taken(q, traj.action) - b
    square = [
        sum(pi[at][u] * (q[at][u] - b[at]) ** 2 * x for u, x in enumerate(score_squares(pi[at], p[at], epsilon)))
        for at in np.ndindex(b.shape)
        if alive[at]
    ]
    spread = advantage[alive].std()
    scale = spread + 1e-5 if c.scale_advantage else 1.0

    def terms(params: Any) -> tuple[np.ndarray, np.ndarray]:
        pi, _ = probabilities(spec, c, params, step, carry, epsilon)
        gain = np.log(of_taken(pi, traj.action)) * advantage / scale
        return gain, -np.sum(pi * np.log(np.where(pi > 0, pi, 1.0)), -1)

    def actor_loss(params: Any) -> Any:
        gain, entropy = terms(params)
        return -of_each(gain + c.entropy_coef * entropy, alive, policy_index(spec, c.sharing)), {}

    theta, norm, _ = Adam(actor, c.learning_rate, c, num_updates).step(actor, gradient(actor_loss, actor))
    gain, entropy = (x[alive].mean() for x in terms(actor))
    metrics = {
        "policy_loss": -gain,
        "entropy": entropy,
        "value_loss": critic_loss(critics)[1],
        "actor_grad_norm": norm,
        "critic_grad_norm": critic_norm,
        "advantage_std": spread,
        "gradient_square": np.mean(square),
        "explained_variance": 1 - ((y - seen)[alive].std() / max(y[alive].std(), 1e-6)) ** 2,
        "entropy_coef": c.entropy_coef,
    }
    assert all(math.isfinite(x) for x in metrics.values())
    return Expected(theta, fitted, y, advantage, metrics)
