"""Whole updates of ISAC: feed-forward nets against NumPy (naive_team.py), a GRU against loops over timesteps."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import isac
from shoal.networks.body import Body, build_body
from shoal.types import Box, Step, Trajectory
from support.naive_maddpg import adam, of
from support.naive_team import assert_like_loops, made
from support.trajectories import assert_trees_close, compiled, distance, make_spec, make_trajectory

BASE = isac.Config(
    network=Body((6,), activation="relu", orthogonal=False), gamma=0.9, adam_eps=0.5, learning_rate=3.0,
    critic_learning_rate=0.3, target_rate=0.1, max_grad_norm=0.6, alpha=0.4, alpha_learning_rate=0.2,
)  # fmt: skip
BOX = make_spec(action=Box(2, -2.0, 1.0), shared_reward=True)
CASES: dict[str, tuple[Any, Any]] = {
    "discrete, by role, own rewards": (make_spec(), replace(BASE, sharing="role", entropy_share=0.7)),
    "box, one reward": (BOX, BASE),
    "discrete, shared, fixed alpha": (make_spec(), replace(BASE, sharing="shared", adapt_alpha=False)),
}


@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.slow if "fixed" in x else ()) for x in CASES])
def test_two_updates_are_those_of_numpy(name: str) -> None:
    assert_like_loops(*CASES[name])


L, B, BURN_IN = 3, 4, 1
GRU = replace(
    BASE, network=Body((5,), activation="relu", recurrent=3, orthogonal=False), sequence_length=L, burn_in=BURN_IN,
    max_grad_norm=None,
)  # fmt: skip
PAIR = make_spec(2, action=Box(2, -2.0, 1.0))


@pytest.mark.slow
def test_a_recurrent_update_is_that_of_loops() -> None:
    prog = made(PAIR, GRU)
    traj = make_trajectory(PAIR, carry=prog.algorithm.initial_carry(B), length=L, envs=B)
    after, _ = prog.update(prog.learner, traj, jax.random.key(3))
    got = after.policy.actor, after.critic, after.statistics.coefficients.log_alpha
    assert_trees_close(got, compiled(by_loops)(prog.learner, traj, jax.random.key(3)), 2e-4, 2e-5)
    assert distance(got[0], prog.learner.policy.actor) > 1e-3


def by_loops(learner: Any, traj: Trajectory, key: Any) -> Any:
    """Actors, critics and log α after a gradient step, one agent and one timestep after the other."""
    c, n, width = GRU, PAIR.num_agents, PAIR.action.width
    actor_net = build_body(c.network, PAIR.obs_dim, 2 * width)
    critic_net = build_body(replace(c.network, recurrent=None), PAIR.obs_dim + width, 1)
    key_target, key_actor = jax.random.split(jax.random.split(key, 1)[0])
    now, out = traj.step, traj.outcome

    def noise(key: Any) -> jax.Array:
        keys = [jax.random.fold_in(key, b) for b in range(B)]
        return jnp.stack([jax.random.normal(k, (L, n, width)) for k in keys], 1)

    def seen(step: Step, i: int) -> jax.Array:
        return jnp.where(step.alive[..., i, None], step.obs[..., i, :], 0)

    def policy(params: Any, i: int, ahead: bool) -> jax.Array:
        """Outputs at the timesteps, or in their outcomes."""
        state, found = actor_net.initial_carry((B,)), []
        for t in range(L):
            state = jax.lax.stop_gradient(state) if t <= BURN_IN else state
            states, y = actor_net.apply(params, state, seen(now, i)[t : t + 1], now.first[t : t + 1])
            state = jax.tree.map(lambda h: h[0], states)
            if ahead:
                y = actor_net.apply(params, state, seen(out, i)[t : t + 1], jnp.zeros((1, B), bool))[1]
            found.append(y[0])
        return jnp.stack(found)

    def draw(y: jax.Array, z: jax.Array, step: Step, i: int) -> tuple[jax.Array, jax.Array]:
        real, log_std = step.legal[..., i, :], jnp.clip(y[..., width:], -20, 2)
        x = y[..., :width] + jnp.exp(log_std) * z
        density = -0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi) + 2 * jnp.log(jnp.cosh(x))
        lives = step.alive[..., i]
        u = jnp.where(real & lives[..., None], jnp.tanh(x), 0)
        return u, jnp.where(lives, jnp.where(real, density, 0).sum(-1), 0)

    def least(critic: Any, i: int, step: Step, u: jax.Array) -> jax.Array:
        return jnp.minimum(*(q(critic, 2 * i + k, i, step, u) for k in range(2)))

    def q(critic: Any, net: int, i: int, step: Step, u: jax.Array) -> jax.Array:
        return critic_net.apply(of(critic, net), (), jnp.concatenate([seen(step, i), u], -1), step.first)[1][..., 0]

    theta, stats = learner.policy.actor, learner.statistics
    alpha, z_target, z = jnp.exp(stats.coefficients.log_alpha), noise(key_target), noise(key_actor)
    rows = [now.alive[..., i] & (jnp.arange(L) >= BURN_IN)[:, None] for i in range(n)]
    weights, target = [row / jnp.maximum(row.sum(), 1) for row in rows], []
    for i in range(n):
        u, log_prob = draw(policy(of(theta, i), i, True), z_target[..., i, :], out, i)
        value = jnp.where(out.alive[..., i], least(stats.target, i, out, u) - alpha[i] * log_prob, 0)
        target.append(out.reward[..., i] + c.gamma * out.discount[..., i] * value)

    def critic_loss(critic: Any) -> jax.Array:
        taken = jnp.where(now.legal & now.alive[..., None], (traj.action + 2.0) / 1.5 - 1, 0)
        pairs = [(i, 2 * i + k) for i in range(n) for k in range(2)]
        errors = [q(critic, net, i, now, taken[..., i, :]) - target[i] for i, net in pairs]
        return jnp.stack([(weights[i] * x**2).sum() for (i, _), x in zip(pairs, errors, strict=True)]).sum()

    def actor_loss(theta: Any, critic: Any) -> tuple[jax.Array, list[jax.Array]]:
        draws = [draw(policy(of(theta, i), i, False), z[..., i, :], now, i) for i in range(n)]
        costs = [alpha[i] * draws[i][1] - least(critic, i, now, draws[i][0]) for i in range(n)]
        total = jnp.stack([(weights[i] * costs[i]).sum() for i in range(n)]).sum()
        return total, [log_prob for _, log_prob in draws]

    def moved(params: Any, gradient: Any, rate: float) -> Any:
        return adam(c, params, gradient, (jax.tree.map(jnp.zeros_like, params),) * 2, 1, rate)[0]

    critic = moved(learner.critic, jax.grad(critic_loss)(learner.critic), c.critic_rate)
    slope, log_probs = jax.grad(actor_loss, has_aux=True)(theta, critic)
    gaps = [log_probs[i] - now.legal[..., i, :].sum(-1) for i in range(n)]
    slope_alpha = -jnp.stack([(weights[i] * gaps[i]).sum() for i in range(n)])
    log_alpha = moved(stats.coefficients.log_alpha, slope_alpha, c.alpha_learning_rate)
    return moved(theta, slope, c.learning_rate), critic, log_alpha
