"""MAT's update against losses written out, and what it refuses."""

from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from shoal.algorithms import mat, sable
from shoal.equations.returns import gae
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.types import Learner, Scale, Trajectory
from support import naive
from support.mat_cases import BASE, CASES, played
from support.trajectories import E, N, T, acted, compiled, make_spec, make_trajectory, program

KEY = jax.random.key(1)
PLAIN = replace(BASE, value_norm="none", max_grad_norm=None, clip=0.3, value_clip=0.2, huber=1.0, value_coef=0.7)
AGENT = replace(PLAIN, ratio="agent", advantage="agent", normalise_advantage="none", dual_clip=3.0, kl_coef=0.2)
JOINT = replace(PLAIN, ratio="joint", advantage="joint")
SAME: dict[str, Any] = {field.name: getattr(AGENT, field.name) for field in fields(AGENT)}
SABLE = replace(sable.Config(**SAME), heads=2)
OF: dict[type, Any] = {mat.Config: mat, sable.Config: sable}


def noisy(c: mat.Config) -> tuple[Learner, Trajectory]:
    """What was played, as if by a policy whose probabilities were a little different: ratios on both sides of 1."""
    if c is SABLE:
        prog = program(make_spec(), c)
        traj = make_trajectory(make_spec(), carry=prog.algorithm.initial_carry(E))
        learner, traj = prog.learner, acted(prog, prog.learner, traj)
    else:
        _, learner, traj = played("discrete")
    noise = 0.4 * np.random.default_rng(0).normal(size=(T, E, N))
    return learner, traj._replace(extras={"log_prob": traj.extras["log_prob"] + jnp.asarray(noise, jnp.float32)})


def naive_advantage(c: Any, traj: Trajectory, value: Any, next_value: Any) -> tuple[np.ndarray, np.ndarray]:
    """(advantage, target) [T, E, N], a loop backwards in time for each agent."""
    out, advantage = traj.outcome, np.zeros((T, E, N))
    for e, i in np.ndindex(E, N):
        ahead = 0.0
        for t in reversed(range(T)):
            delta = out.reward[t, e, i] + c.gamma * out.discount[t, e, i] * next_value[t, e, i] - value[t, e, i]
            ahead = delta + c.gamma * c.lam * out.discount[t, e, i] * (1 - out.last[t, e]) * ahead
            advantage[t, e, i] = ahead
    return advantage, advantage + value


def huber(error: Any, delta: float) -> Any:
    size = jnp.abs(error)
    return jnp.where(size < delta, error**2 / 2, delta * (size - delta / 2))


def naive_loss(c: Any, learner: Learner, traj: Trajectory) -> Any:
    """parameters -> (L(θ) − σ S + κ KL + value_coef L(φ), metrics): means over living agents, written out."""
    team = OF[type(c)].make_team(CASES["discrete"][0], c)
    evaluate = team.evaluate_actions
    found = compiled(team.evaluate)(learner, traj)  # values are tested by themselves
    value, next_value = (np.asarray(x, np.float64) for x in (found.value, found.next_value))
    alive, spec = np.asarray(traj.step.alive), CASES["discrete"][0]
    expected = (
        naive.mask_dead_values(spec, value, alive),
        naive.mask_dead_values(spec, next_value, np.asarray(traj.outcome.alive)),
    )
    advantage, target = naive_advantage(c, traj, *expected)
    if c.advantage == "joint":
        for t, e in np.ndindex(T, E):
            if alive[t, e].any():
                advantage[t, e] = advantage[t, e][alive[t, e]].mean()
    if c.normalise_advantage == "batch":
        advantage = (advantage - advantage[alive].mean()) / (advantage[alive].std() + 1e-5)

    def loss(params: Any) -> Any:
        dist, v = evaluate(params, traj.carry.actor, traj.step, traj.action, traj.extras)
        log_ratio = dist.log_prob(traj.action) - traj.extras["log_prob"]
        if c.ratio == "joint":
            log_ratio = jnp.where(alive, log_ratio, 0).sum(-1, keepdims=True) + jnp.zeros(N)
        r = jnp.exp(log_ratio)
        surrogate = jnp.minimum(r * advantage, jnp.clip(r, 1 - c.clip, 1 + c.clip) * advantage)
        if c.dual_clip:
            surrogate = jnp.where(advantage < 0, jnp.maximum(surrogate, c.dual_clip * advantage), surrogate)
        near = jnp.clip(v, value - c.value_clip, value + c.value_clip)
        terms = {
            "policy_loss": -surrogate,
            "entropy": dist.entropy(),
            "kl": r - 1 - log_ratio,
            "clip_fraction": 1.0 * (jnp.abs(r - 1) > c.clip),
            "value_loss": jnp.maximum(huber(v - target, c.huber), huber(near - target, c.huber)),
        }
        means = {name: jnp.where(alive, x, 0).sum() / alive.sum() for name, x in terms.items()}
        total = means["policy_loss"] - c.entropy_coef * means["entropy"] + c.kl_coef * means["kl"]
        return total + c.value_coef * means["value_loss"], means

    return loss


@pytest.mark.parametrize(
    "config", [AGENT, JOINT, pytest.param(SABLE, marks=pytest.mark.slow)], ids=["agent", "joint", "sable"]
)
def test_an_update_descends_the_paper_s_losses(config: mat.Config) -> None:
    prog, (learner, traj) = program(CASES["discrete"][0], config), noisy(config)
    learner = prog.learner._replace(policy=learner.policy)
    gradient, expected = compiled(jax.grad(naive_loss(config, learner, traj), has_aux=True))(learner.policy.actor)
    after, metrics = prog.update(learner, traj, KEY)
    for name, x in expected.items():
        np.testing.assert_allclose(metrics[name], x, rtol=1e-3, atol=1e-5, err_msg=name)
    assert 0.1 < metrics["clip_fraction"] < 0.9
    flat = ravel_pytree(gradient)[0]
    np.testing.assert_allclose(metrics["actor_grad_norm"], jnp.linalg.norm(flat), rtol=1e-3)
    # Adam's first step is along g / (|g| + ε), against the gradient element by element.
    moved = ravel_pytree(after.policy.actor)[0] - ravel_pytree(learner.policy.actor)[0]
    np.testing.assert_allclose(moved, -flat / (jnp.abs(flat) + 0.5), rtol=2e-2, atol=2e-4)


def test_the_joint_advantage_is_that_of_the_mean_value() -> None:
    """Wen et al. 2022 estimate Â by GAE with V̂, the mean over agents of V; GAE is linear."""
    rng = np.random.default_rng(0)
    value, next_value = (jnp.asarray(rng.normal(size=(T, E, N)), jnp.float32) for _ in range(2))
    reward, discount = rng.normal(size=(T, E, 1)), rng.random((T, E, 1)) > 0.2
    last = jnp.asarray(rng.random((T, E)) > 0.7)

    def advantage(now: jax.Array, then: jax.Array) -> jax.Array:
        r, d = (jnp.broadcast_to(jnp.asarray(x, jnp.float32), now.shape) for x in (reward, discount))
        return gae(r, d, now, then, last, gamma=0.9, lam=0.8)[0]

    mean = advantage(value.mean(-1, keepdims=True), next_value.mean(-1, keepdims=True))
    got = mat.joint_advantage(advantage(value, next_value), jnp.ones((T, E, N), bool))
    np.testing.assert_allclose(got, jnp.broadcast_to(mean, got.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sharing": "independent"}, "sharing must be 'shared', not 'independent'"),
        ({"sharing": (0, 1, 1)}, "sharing must be 'shared', not \\(0, 1, 1\\)"),
        ({"network": Body((6,), recurrent=4)}, "MAT cannot have a recurrent layer"),
        ({"value_norm": "popart"}, "not popart"),
        ({"critic_learning_rate": 1e-3}, "leave out critic_learning_rate"),
        ({"critic_input": "concat"}, "local, agent or pruned, not 'concat'"),
        ({"critic_input": "state"}, "local, agent or pruned, not 'state'"),
        ({"heads": 4}, "4 heads do not divide"),
        ({"blocks": 0}, "blocks must be at least 1"),
        ({"squash": True}, "squash is for continuous actions"),
        ({"minibatches": 3}, "do not divide into 3 minibatches"),
    ],
)
def test_invalid_input_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        mat.make(make_spec(), replace(BASE, **changes), Scale(E, T, 10))


def test_an_explicit_sharing_of_one_policy_is_accepted() -> None:
    mat.make(make_spec(), replace(BASE, sharing=(0, 0, 0)), Scale(E, T, 10))
