"""HAPPO's and HATRPO's updates once more, in NumPy and double precision, for discrete actions and one value scale.

They share no code with the library: gradients are central differences, the Fisher matrix is dense, chunks of a
recurrent net's training are cut by hand, and every policy has an optimiser and a count of steps of its own.
"""

from typing import Any

import jax
import numpy as np

from support.naive import (
    actor_loss,
    critic_loss,
    features,
    forward,
    gae,
    gradient,
    mask_dead_values,
    next_values,
    of_policy,
    policy_index,
    standardised,
    to_numpy,
    values,
)
from support.naive_update import Adam


def states(params: Any, x: np.ndarray, carry: np.ndarray, first: np.ndarray) -> np.ndarray:
    """A GRU's state after every moment [T, E, H]."""
    units = carry.shape[-1]
    return forward(params | {"head": {"kernel": np.eye(units), "bias": np.zeros(units)}}, x, carry, first)


def starts(after: np.ndarray, carry: np.ndarray, length: int) -> np.ndarray:
    """The state before each chunk, the chunks of all environments side by side."""
    count = len(after) // length
    return np.concatenate([carry if k == 0 else after[k * length - 1] for k in range(count)])


class Turns:
    """A learner that is updated agent by agent. ``value_norm`` is none and there is one minibatch."""

    def __init__(self, spec: Any, c: Any, num_updates: int, learner: Any) -> None:
        self.spec, self.c, self.index = spec, c, policy_index(spec, c.sharing)
        self.actor, self.critic = to_numpy(learner.policy.actor), to_numpy(learner.critic)
        self.with_id = c.agent_id and max(self.index) + 1 < spec.num_agents
        self.critic_adam = Adam(self.critic, c.learning_rate, c, num_updates * c.epochs)
        each = [self.policy(p) for p in range(max(self.index) + 1)]
        self.adams = [
            Adam(own, c.learning_rate, c, num_updates * c.epochs * self.index.count(p)) for p, own in enumerate(each)
        ]

    def policy(self, p: int) -> Any:
        """Parameters of one policy; the leading axis stays, with length 1."""
        return jax.tree.map(lambda x: x[p : p + 1].copy(), self.actor)

    def put(self, p: int, own: Any) -> None:
        for x, y in zip(jax.tree.leaves(self.actor), jax.tree.leaves(own), strict=True):
            x[p] = y[0]

    def begin(self, traj: Any) -> None:
        """Advantages, targets and chunks under the parameters of before the update."""
        spec, c, traj = self.spec, self.c, to_numpy(traj)
        recurrent = bool(c.network.recurrent)
        carry = traj.carry if recurrent else type(traj.carry)(None, None)
        value = values(spec, c, self.critic, traj.step, carry.critic)
        following = next_values(spec, c, self.critic, traj.step, traj.outcome, carry.critic)
        expected = mask_dead_values(spec, value, traj.step.alive)
        following = mask_dead_values(spec, following, traj.outcome.alive)
        advantage, target = gae(c, expected, following, traj.outcome, traj.step)
        advantage = standardised(c, advantage, traj.step.alive)
        length = c.chunk_length if recurrent else len(value)
        count = len(value) // length
        self.actor_carry = self.critic_carry = None
        if recurrent:
            own = [
                self.after(of_policy(self.actor, p), "local", i, traj, carry.actor) for i, p in enumerate(self.index)
            ]
            self.actor_carry = np.stack([starts(h, carry.actor[:, i], length) for i, h in enumerate(own)], 1)
            seen = [self.after(of_policy(self.critic, self.critic_net(i)), c.critic_input, i, traj, carry.critic)
                    for i in range(spec.num_agents)]  # fmt: skip
            if carry.critic.ndim == 2:
                self.critic_carry = starts(seen[0], carry.critic, length)
            else:
                self.critic_carry = np.stack([starts(h, carry.critic[:, i], length) for i, h in enumerate(seen)], 1)

        def cut(x: np.ndarray) -> np.ndarray:
            return np.concatenate([x[k * length : (k + 1) * length] for k in range(count)], axis=1)

        rows = (traj.step, traj.action, traj.extras, advantage, value, target)
        step, action, extras, self.advantage, self.old, self.target = jax.tree.map(cut, rows)
        self.traj = traj._replace(step=step, action=action, extras=extras, outcome=())

    def critic_net(self, i: int) -> int:
        return 0 if self.c.critic_input in ("concat", "state") else self.index[i]

    def after(self, params: Any, kind: str, i: int, traj: Any, carry: np.ndarray) -> np.ndarray:
        x = features(self.spec, traj.step, kind, self.with_id)[i]
        return states(params, x, carry if carry.ndim == 2 else carry[:, i], traj.step.first)

    def only(self, i: int) -> Any:
        """The steps as if no other agent lived; what agent i reads is its own."""
        mine = np.arange(self.spec.num_agents) == i
        return self.traj.step._replace(alive=self.traj.step.alive & mine)

    def logits(self, own: Any, i: int) -> np.ndarray:
        x = features(self.spec, self.traj.step, "local", self.with_id)[i]
        carry = None if self.actor_carry is None else self.actor_carry[:, i]
        return forward(of_policy(own, 0), x, carry, self.traj.step.first)

    def distribution(self, own: Any, i: int) -> tuple[np.ndarray, np.ndarray]:
        """(p, log p) of agent i's actions; where one is illegal both are 0."""
        legal = self.traj.step.legal[:, :, i]
        z = np.where(legal, self.logits(own, i), -np.inf)
        z = z - z.max(-1, keepdims=True)
        log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
        return np.exp(log_p), np.where(legal, log_p, 0.0)

    def ratio(self, own: Any, i: int) -> np.ndarray:
        action = self.traj.action[:, :, i, None]
        log_prob = np.take_along_axis(self.distribution(own, i)[1], action, -1)[..., 0]
        return np.where(self.traj.step.alive[..., i], np.exp(log_prob - self.traj.extras["log_prob"][..., i]), 1.0)

    def mean(self, x: np.ndarray, i: int) -> float:
        alive = self.traj.step.alive[..., i]
        return float(np.where(alive, x, 0).sum() / alive.sum())

    def fit_critic(self) -> None:
        for _ in range(self.c.epochs):

            def loss(params: Any) -> Any:
                found, seen = critic_loss(
                    self.spec, self.c, params, self.traj.step, self.old, self.target, self.critic_carry
                )
                return self.c.value_coef * found, seen

            self.critic = self.critic_adam.step(self.critic, gradient(loss, self.critic))[0]

    def happo(self, traj: Any) -> np.ndarray:
        """Kuba et al. 2022, Algorithm 3, in the agents' own order; gives M's factor after the last turn."""
        self.begin(traj)
        factor = np.ones(self.old.shape[:2])
        for i, p in enumerate(self.index):
            own, m = self.policy(p), factor[..., None] * self.advantage

            def loss(own: Any, i: int = i, p: int = p, m: np.ndarray = m) -> Any:
                theta = jax.tree.map(lambda x, y: np.concatenate([x[:p], y, x[p + 1 :]]), self.actor, own)
                return actor_loss(
                    self.spec, self.c, theta, self.only(i), self.traj, m, self.c.entropy_coef, 0.0, self.actor_carry
                )

            for _ in range(self.c.epochs):
                own = self.adams[p].step(own, gradient(loss, own))[0]
            self.put(p, own)
            factor = factor * self.ratio(own, i)
        self.fit_critic()
        return factor

    def hatrpo(self, traj: Any) -> list[float]:
        """Kuba et al. 2022, Algorithm 2, in the agents' own order; gives the fractions of the steps that were taken."""
        self.begin(traj)
        c, factor, taken = self.c, np.ones(self.old.shape[:2]), []
        for i, p in enumerate(self.index):
            own, m = self.policy(p), factor * self.advantage[..., i]
            leaves, structure = jax.tree.flatten(own)
            start = np.concatenate([x.ravel() for x in leaves])

            def at(theta: np.ndarray, leaves: Any = leaves, structure: Any = structure) -> Any:
                ends = np.cumsum([x.size for x in leaves])[:-1]
                parts = [part.reshape(x.shape) for part, x in zip(np.split(theta, ends), leaves, strict=True)]
                return jax.tree.unflatten(structure, parts)

            def gain(theta: np.ndarray, i: int = i, m: np.ndarray = m, at: Any = at) -> float:
                prob, log_p = self.distribution(at(theta), i)
                return self.mean(self.ratio(at(theta), i) * m - c.entropy_coef * (prob * log_p).sum(-1), i)

            h, unit = 1e-5, np.eye(len(start))
            slope = np.array([(gain(start + h * e) - gain(start - h * e)) / (2 * h) for e in unit])
            jacobian = np.stack(
                [(self.logits(at(start + h * e), i) - self.logits(at(start - h * e), i)) / (2 * h) for e in unit], -1
            )
            prob, log_old = self.distribution(own, i)
            curvature = prob[..., None] * np.eye(prob.shape[-1]) - prob[..., None] * prob[..., None, :]
            alive = self.traj.step.alive[..., i]
            fisher = np.einsum("...ai,...ab,...bj->...ij", jacobian, curvature, jacobian)[alive].mean(0)
            damped = fisher + c.damping * np.eye(len(start))
            x = np.linalg.solve(damped, slope)
            step = np.sqrt(2 * c.max_kl / (x @ damped @ x)) * x
            for fraction in [*(c.backtrack**j for j in range(c.line_search_steps)), 0.0]:
                new = start + fraction * step
                improvement = gain(new) - gain(start)
                kl = self.mean((prob * (log_old - self.distribution(at(new), i)[1])).sum(-1), i)
                if kl <= c.max_kl and improvement > 0 and improvement >= c.accept_ratio * fraction * (step @ slope):
                    break
            own = at(start + fraction * step)
            self.put(p, own)
            factor = factor * self.ratio(own, i)
            taken.append(fraction)
        self.fit_critic()
        return taken
