"""MAPPO's update once more, in NumPy loops and double precision: slow, obvious, and sharing no code with the library.

Gradients are central differences of the objective, one parameter at a time.
"""

import math
from collections import Counter
from typing import Any

import jax
import numpy as np

from shoal.types import Discrete

Tree = Any


def to_numpy(tree: Tree) -> Tree:
    """Double precision, booleans and integers as they are."""

    def convert(x: Any) -> np.ndarray:
        x = np.asarray(x)
        return x.astype(np.float64) if x.dtype.kind == "f" else x

    return jax.tree.map(convert, tree)


def policy_index(spec: Any, sharing: Any) -> tuple[int, ...]:
    n = spec.num_agents
    return {"shared": (0,) * n, "role": spec.roles, "independent": tuple(range(n))}.get(sharing, sharing)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def forward(params: Tree, x: np.ndarray, carry: Any = None, first: Any = None) -> Any:
    """A tanh net, with a GRU before the head where there is one. x [T, E, F], carry [E, H], first [T, E]."""
    for i in sorted(params["layers"]):
        x = np.tanh(x @ params["layers"][i]["kernel"] + params["layers"][i]["bias"])
    if "gru" in params:
        gru, after = params["gru"], []
        for t in range(x.shape[0]):
            carry = np.where(first[t][:, None], 0.0, carry)
            a = np.split(x[t] @ gru["input"]["kernel"] + gru["input"]["bias"], 3, -1)
            b = np.split(carry @ gru["hidden"]["kernel"], 3, -1)
            r, z = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
            candidate = np.tanh(a[2] + r * (b[2] + gru["candidate_bias"]))
            carry = (1 - z) * candidate + z * carry
            after.append(carry)
        x = np.stack(after)
    return x @ params["head"]["kernel"] + params["head"]["bias"]


def of_policy(params: Tree, p: int) -> Tree:
    return jax.tree.map(lambda x: x[p], params)


def scaled(inputs: Any, step: Any) -> Any:
    """The step with running statistics taken off, where there are any."""

    def scale(stats: Any, x: np.ndarray) -> np.ndarray:
        if not stats:
            return x
        std = np.sqrt(np.maximum(stats.square - stats.mean**2, 1e-6 * np.maximum(stats.square, 1)))
        return np.clip((x - stats.mean) / std, -10, 10)

    return step._replace(obs=scale(inputs.obs, step.obs), state=scale(inputs.state, step.state))


def features(spec: Any, step: Any, kind: str, with_id: bool, masked: bool = True) -> list[np.ndarray]:
    """What each agent's net reads, [T, E, F]; ``kind`` is a critic input, or ``local`` for actors."""
    rows = []
    for i in range(spec.num_agents):
        alive = step.alive[..., i : i + 1] | (not masked)
        one_hot = np.zeros((*alive.shape[:-1], spec.num_agents))
        one_hot[..., i] = 1
        own = np.where(alive, step.obs[..., i, :], 0)
        state = np.where(alive, step.state, 0)
        everyone = [np.where(step.alive[..., j : j + 1], step.obs[..., j, :], 0) for j in range(spec.num_agents)]
        parts = {
            "local": [own, *([one_hot] if with_id else [])],
            "concat": everyone,
            "state": [step.state],
            "agent": [state, own, one_hot],
            "pruned": [state, own[..., list(spec.novel)], one_hot],
        }
        rows.append(np.concatenate(parts[kind], -1))
    return rows


def values(spec: Any, c: Any, params: Tree, step: Any, carry: Any = None) -> np.ndarray:
    """[T, E, N], in the critic's units; carry [E, N, H], or [E, H] for a critic of the whole team."""
    index, team = policy_index(spec, c.sharing), c.critic_input in ("concat", "state")
    columns = []
    with_id, masked = c.agent_id and max(index) + 1 < spec.num_agents, vars(c).get("dead_value") != "unmasked"
    for i, x in enumerate(features(spec, step, c.critic_input, with_id, masked)):
        p = 0 if team else index[i]
        h = carry if team or carry is None else carry[:, i]
        y = forward(of_policy(params, p), x, h, step.first)
        columns.append(y[..., i] if y.shape[-1] > 1 else y[..., 0])
    return np.stack(columns, -1)


def log_prob_and_entropy(spec: Any, c: Any, y: np.ndarray, log_std: Any, legal: Any, action: Any) -> Any:
    """Of one agent at one moment; y are logits or means. The entropy of a squashed policy is left out (NaN)."""
    if isinstance(spec.action, Discrete):
        possible = [a for a in range(spec.action.n) if legal[a]]
        norm = math.log(sum(math.exp(y[a]) for a in possible))
        entropy = -sum(math.exp(y[a] - norm) * (y[a] - norm) for a in possible)
        return y[action] - norm, entropy
    half, middle = (spec.action.high - spec.action.low) / 2, (spec.action.high + spec.action.low) / 2
    log_prob = entropy = 0.0
    for d in range(spec.action.dim):
        if not legal[d]:
            continue
        if c.squash:
            x = math.atanh((action[d] - middle) / half)
            log_prob -= 0.5 * ((x - y[d]) / math.exp(log_std[d])) ** 2 + log_std[d] + 0.5 * math.log(2 * math.pi)
            log_prob -= math.log(half * (1 - math.tanh(x) ** 2))
            entropy = math.nan
        else:
            std = half * math.exp(log_std[d])
            z = (action[d] - (middle + half * y[d])) / std
            log_prob -= 0.5 * z * z + math.log(std) + 0.5 * math.log(2 * math.pi)
            entropy += math.log(std) + 0.5 * math.log(2 * math.pi * math.e)
    return log_prob, entropy


def alone(outcome: Any, step: Any, t: int, e: int, i: int) -> bool:
    """Whether agent i reaches a time limit of its own: alive in the outcome, and gone at the next step."""
    return bool(t + 1 < len(step.alive) and outcome.alive[t, e, i] and not step.alive[t + 1, e, i])


def gae(
    c: Any, value: np.ndarray, next_value: np.ndarray, outcome: Any, step: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    advantage = np.zeros_like(value)
    length, envs, agents = value.shape
    for e in range(envs):
        for i in range(agents):
            following = 0.0
            for t in reversed(range(length)):
                d = outcome.discount[t, e, i]
                delta = outcome.reward[t, e, i] + c.gamma * d * next_value[t, e, i] - value[t, e, i]
                cut = outcome.last[t, e] or (step is not None and alone(outcome, step, t, e, i))
                following = delta + (0.0 if cut else c.gamma * c.lam * d * following)
                advantage[t, e, i] = following
    return advantage, advantage + value


def mask_dead_values(spec: Any, value: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Who is dead can expect what the living do on average who earn the same, and nothing where nobody does."""
    value = value.copy()

    def alike(i: int, j: int) -> bool:
        return spec.shared_reward or (spec.sides is not None and spec.sides[i] == spec.sides[j])

    for *at, i in np.argwhere(~alive):
        living = [value[(*at, j)] for j in range(spec.num_agents) if alive[(*at, j)] and alike(i, j)]
        value[(*at, i)] = np.mean(living) if living else 0.0
    return value


def standardised(c: Any, advantage: np.ndarray, alive: np.ndarray) -> np.ndarray:
    result = advantage.copy()
    groups = {"none": [], "batch": [slice(None)], "agent": [slice(i, i + 1) for i in range(alive.shape[-1])]}
    for group in groups[c.normalise_advantage]:
        seen = advantage[..., group][alive[..., group]]
        result[..., group] = (advantage[..., group] - seen.mean()) / (seen.std() + 1e-5)
    return result


def next_values(spec: Any, c: Any, params: Tree, step: Any, outcome: Any, carry: Any = None) -> np.ndarray:
    """V(outcome_t), read after the timesteps 0..t: a fresh sequence for every t."""
    rows = []
    for t in range(step.first.shape[0]):
        sequence = jax.tree.map(lambda x, y, t=t: np.concatenate([x[: t + 1], y[t : t + 1]]), step, outcome)
        rows.append(values(spec, c, params, sequence, carry)[-1])
    return np.stack(rows)


def actor_loss(
    spec: Any,
    c: Any,
    params: Tree,
    step: Any,
    traj: Any,
    advantage: np.ndarray,
    sigma: float,
    kappa: float,
    carry: Any = None,
) -> tuple[float, Counter]:
    """−L(θ), each policy's a mean over its own agents' rows, and metrics, which are means over the team's.

    How often each bound holds ("upper", "lower", "dual") is among the latter.
    """
    index = policy_index(spec, c.sharing)
    xs = features(spec, step, "local", c.agent_id and max(index) + 1 < spec.num_agents)
    seen: Any = Counter()
    loss, count = 0.0, int(step.alive.sum())
    for i, x in enumerate(xs):
        mine = step.alive[..., [j for j in range(spec.num_agents) if index[j] == index[i]]].sum()
        own = of_policy(params, index[i])
        y = forward(own, x, None if carry is None else carry[:, i], step.first)
        for t, e in np.argwhere(step.alive[..., i]):
            log_prob, entropy = log_prob_and_entropy(
                spec, c, y[t, e], own.get("log_std"), step.legal[t, e, i], traj.action[t, e, i]
            )
            ratio, a = math.exp(log_prob - traj.extras["log_prob"][t, e, i]), advantage[t, e, i]
            objective = min(ratio * a, min(max(ratio, 1 - c.clip), 1 + c.clip) * a)
            if c.dual_clip is not None and a < 0:
                seen["dual"] += c.dual_clip * a > objective
                objective = max(objective, c.dual_clip * a)
            kl = ratio - 1 - math.log(ratio)
            loss -= (objective + (sigma * entropy if sigma else 0.0) - kappa * kl) / mine
            seen["policy_loss"] -= objective / count
            seen["entropy"] += entropy / count
            seen["kl"] += kl / count
            seen["clip_fraction"] += (abs(ratio - 1) > c.clip) / count
            seen["upper"] += ratio > 1 + c.clip and a > 0
            seen["lower"] += ratio < 1 - c.clip and a < 0
    return loss, seen


def critic_loss(
    spec: Any, c: Any, params: Tree, step: Any, old: np.ndarray, target: np.ndarray, carry: Any = None
) -> tuple[float, Counter]:
    """L(φ), each critic's a mean over its own agents' rows; "value_loss" is the mean over the team's.

    How often the clip and the linear part of Huber's loss hold is told too.
    """
    value, loss, seen = values(spec, c, params, step, carry), 0.0, Counter()
    nets = (0,) * spec.num_agents if c.critic_input in ("concat", "state") else policy_index(spec, c.sharing)

    def size(error: Any) -> Any:
        if c.huber is None or abs(error) <= c.huber:
            return error**2 / 2
        seen["linear"] += 1
        return c.huber * (abs(error) - c.huber / 2)

    counts = step.alive | (vars(c).get("dead_value", "team") != "team")
    for t, e, i in np.argwhere(counts):
        v, v_old, g = value[t, e, i], old[t, e, i], target[t, e, i]
        row = size(v - g)
        if c.value_clip is not None:
            clipped = size(v_old + min(max(v - v_old, -c.value_clip), c.value_clip) - g)
            seen["clipped"] += clipped > row
            row = max(row, clipped)
        loss += row / counts[..., [j for j in range(spec.num_agents) if nets[j] == nets[i]]].sum()
        seen["value_loss"] += row / counts.sum()
    return loss, seen


def gradient(f: Any, params: Tree, h: float = 1e-5) -> Tree:
    """Central differences; ``f`` returns (value, anything)."""
    params = jax.tree.map(np.copy, params)
    grads = jax.tree.map(np.zeros_like, params)
    for x, g in zip(jax.tree.leaves(params), jax.tree.leaves(grads), strict=True):
        for i in np.ndindex(x.shape):
            middle = x[i]
            x[i] = middle + h
            above = f(params)[0]
            x[i] = middle - h
            g[i] = (above - f(params)[0]) / (2 * h)
            x[i] = middle
    return grads
