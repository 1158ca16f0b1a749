"""Whole updates of FACMAC against loops over agents, written out layer by layer, and what its mixer may represent."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import facmac
from shoal.networks.body import Body
from shoal.types import Box, Discrete
from support.naive_team import made
from support.trajectories import compiled, distance, make_spec, make_trajectory

N = 3
BASE = facmac.Config(
    network=Body((6,), activation="relu", orthogonal=False), gamma=0.9, adam_eps=0.5, learning_rate=0.5,
    critic_learning_rate=0.3, target_rate=0.1, logit_coef=0.05, max_grad_norm=0.2, mixing_width=4, hyper_width=5,
)  # fmt: skip
CASES: dict[str, tuple[Any, Any]] = {
    "discrete, shared, any sign": (make_spec(N), replace(BASE, monotone=False)),
    "box, own, monotone": (
        make_spec(N, action=Box(2, -2.0, 1.0), shared_reward=True),
        replace(BASE, sharing="independent", critic_input="concat"),
    ),
}


def layers(net: Any, p: int, x: jax.Array) -> jax.Array:
    """Layers with ReLU, and a linear one."""
    for layer in net.get("layers", {}).values():
        x = jax.nn.relu(x @ layer["kernel"][p] + layer["bias"][p])
    return x @ net["head"]["kernel"][p] + net["head"]["bias"][p]


class Loops:
    def __init__(self, spec: Any, c: Any) -> None:
        self.spec, self.c, self.shared = spec, c, c.sharing == "shared"
        self.box = spec.action if isinstance(spec.action, Box) else None

    def looks(self, now: Any, i: int) -> jax.Array:
        x = jnp.where(now.alive[:, i, None], now.obs[:, i], 0)
        return jnp.concatenate([x, jnp.tile(jnp.eye(N)[i], (len(x), 1))], -1) if self.shared else x

    def acts(self, theta: Any, now: Any, noise: Any) -> tuple[list[jax.Array], list[jax.Array]]:
        found, sizes = [], []
        for i in range(N):
            y, legal = layers(theta, 0 if self.shared else i, self.looks(now, i)), now.legal[:, i]
            if self.box:
                u = jnp.tanh(y)
            else:
                z = jnp.where(legal, y + noise[:, i], -1e9)
                soft = jax.nn.softmax(z)
                u = jax.nn.one_hot(z.argmax(-1), soft.shape[-1]) + soft - jax.lax.stop_gradient(soft)
            found.append(jnp.where(legal & now.alive[:, i, None], u, 0))
            sizes.append(jnp.where(legal, y**2, 0).sum(-1) / legal.sum(-1))
        return found, sizes

    def q_tot(self, phi: Any, now: Any, joint: list[jax.Array]) -> jax.Array:
        q = []
        for i in range(N):
            x = jnp.where(now.alive[:, i, None], now.obs[:, i], 0)
            parts = [x, joint[i]] + ([jnp.tile(jnp.eye(N)[i], (len(x), 1))] if self.shared else [])
            value = layers(phi["utilities"], 0 if self.shared else i, jnp.concatenate(parts, -1))[:, 0]
            q.append(jnp.where(now.alive[:, i], value, 0))
        s = now.state
        if self.c.critic_input == "concat":
            s = jnp.concatenate([jnp.where(now.alive[:, i, None], now.obs[:, i], 0) for i in range(N)], -1)
        w1, b1, w2, v = (layers(phi["mixer"][name], 0, s) for name in ("w1", "b1", "w2", "v"))
        w1 = w1.reshape(len(s), N, -1)
        if self.c.monotone:
            w1, w2 = abs(w1), abs(w2)
        hidden = b1 + sum(q[i][:, None] * w1[:, i] for i in range(N))
        return (jnp.where(hidden > 0, hidden, jnp.exp(hidden) - 1) * w2).sum(-1) + v[:, 0]

    def gradients(self, nets: Any, slow: Any, traj: Any, key: Any, after: Any) -> tuple[Any, Any]:
        """Of the critic, and of the actors for the critic ``after`` its step."""
        c, (theta, phi) = self.c, nets
        flat = lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])  # noqa: E731
        now, action, out = jax.tree.map(flat, (traj.step, traj.action, traj.outcome))
        keys = jax.random.split(jax.random.split(key, 1)[0], 3)
        draw, shape = jax.random.normal if self.box else jax.random.gumbel, (1, N, self.spec.action.width)
        noise = [
            jax.vmap(lambda b, k=k: draw(jax.random.fold_in(k, b), shape)[0])(jnp.arange(len(now.first))) for k in keys
        ]
        taken = []
        for i in range(N):
            if self.box:
                u = jnp.where(now.legal[:, i], (action[:, i] - self.box.low) / 1.5 - 1, 0)
            else:
                u = jax.nn.one_hot(action[:, i], self.spec.action.width)
            taken.append(jnp.where(now.alive[:, i, None], u, 0))
        some = now.alive.any(-1)
        there = now.alive | out.alive
        there = there | ~there.any(-1, keepdims=True)
        value = self.q_tot(slow[1], out, self.acts(slow[0], out, noise[0])[0])
        discount = jnp.where(there, out.discount, 0).max(-1)
        y = out.reward.mean(-1) + c.gamma * discount * jnp.where(out.alive.any(-1), value, 0)

        def critic_loss(phi: Any) -> jax.Array:
            return jnp.where(some, (self.q_tot(phi, now, taken) - y) ** 2, 0).sum() / some.sum()

        def actor_loss(theta: Any) -> jax.Array:
            u, sizes = self.acts(theta, now, noise[1])
            size = sum(jnp.where(now.alive[:, i], sizes[i], 0) for i in range(N)) / jnp.maximum(now.alive.sum(-1), 1)
            size = 0.0 if self.box else size
            return jnp.where(some, c.logit_coef * size - self.q_tot(after, now, u), 0).sum() / some.sum()

        return jax.grad(critic_loss)(phi), jax.grad(actor_loss)(theta)


def first_adam(c: Any, params: Any, gradient: Any, rate: float) -> Any:
    """The first step of Adam, of each net along the leading axis, clipped by its norm."""
    norm = jnp.sqrt(sum(jnp.square(g).reshape(len(g), -1).sum(1) for g in jax.tree.leaves(gradient)))
    shrink = jnp.minimum(1.0, c.max_grad_norm / norm)

    def move(w: jax.Array, g: jax.Array) -> jax.Array:
        g = g * shrink.reshape(-1, *(1,) * (g.ndim - 1))
        return w - rate * g / (jnp.abs(g) + c.adam_eps)

    return jax.tree.map(move, params, gradient)


@pytest.mark.parametrize("name", CASES)
def test_an_update_is_that_of_loops(name: str) -> None:
    spec, c = CASES[name]
    prog, loops, key = made(spec, c), Loops(spec, c), jax.random.key(3)
    traj = make_trajectory(spec, envs=8)
    learner, _ = prog.update(prog.learner, traj, key)
    nets, slow = (prog.learner.policy.actor, prog.learner.critic), tuple(prog.learner.statistics.target)
    slope, climb = compiled(loops.gradients)(nets, slow, traj._replace(carry=(), extras={}), key, learner.critic)
    theta = first_adam(c, nets[0], climb, c.learning_rate)
    phi = {part: first_adam(c, nets[1][part], slope[part], c.critic_learning_rate) for part in slope}
    for got, new in ((learner.critic, phi), (learner.policy.actor, theta)):
        assert distance(got, new) < 3e-5
    target = jax.tree.map(lambda old, new: old + 0.1 * (new - old), slow, (theta, phi))
    assert distance(tuple(learner.statistics.target), target) < 3e-5
    assert distance(learner.critic, nets[1]) > 1e-2 and distance(learner.policy.actor, nets[0]) > 1e-3


def test_q_of_an_agent_enters_with_either_sign_unless_monotone() -> None:
    spec = make_spec(2, action=Discrete(3), shared_reward=True)
    step = jax.tree.map(lambda x: x[:1], make_trajectory(spec, dead=0.0).step)
    signs = {}
    for monotone in (True, False):
        critic = facmac.make_factored_critic(spec, replace(BASE, monotone=monotone))
        shapes, rng = jax.eval_shape(critic.init, jax.random.key(0)), np.random.default_rng(0)
        phi = jax.tree.map(lambda x, rng=rng: jnp.array(rng.normal(size=x.shape), jnp.float32), shapes)

        def q_tot(bias: jax.Array, critic: Any = critic, phi: Any = phi) -> jax.Array:
            head = phi["utilities"]["head"] | {"bias": phi["utilities"]["head"]["bias"] + bias}
            return critic.values(phi | {"utilities": phi["utilities"] | {"head": head}}, step, jnp.zeros((1, 4, 2, 3)))

        signs[monotone] = np.asarray(jax.jit(jax.jacfwd(q_tot))(jnp.float32(0)))
    assert (signs[True] >= 0).all() and (signs[True] > 0).any()
    assert (signs[False] < 0).any() and (signs[False] > 0).any()
