"""Inferred policies (Lowe et al. 2017, 4.2): models approach the true policies; targets read target networks."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal import algorithms
from shoal.networks.body import build_body
from shoal.types import Box, EnvSpec, Experience, Learner, Scale, Step, Trajectory
from support.naive_maddpg import BASE, adam, made, of, slow_copies, with_slow_copies
from support.trajectories import (
    E,
    T,
    assert_trees_close,
    assert_trees_equal,
    compiled,
    distance,
    make_spec,
    make_trajectory,
)

KEY = jax.random.key(1)
SPEC = make_spec()
N = SPEC.num_agents
INFER = replace(BASE, policies="inferred", model_entropy_coef=0.1, model_learning_rate=0.2, max_grad_norm=0.05)
# Actors stand still, so that the policies which the models shall find stay what they are.
FIXED = replace(
    BASE, policies="inferred", learning_rate=1e-12, model_learning_rate=0.05, lr_final=0.02, max_grad_norm=None,
    adam_eps=1e-5, network=replace(BASE.network, hidden=(8,)), noise=0.2,
)  # fmt: skip
ROWS, UPDATES = 160, 600


def observed(spec: EnvSpec) -> tuple[Learner, Learner, dict[str, jax.Array], Trajectory]:
    """(learner before and after, metrics of every update, last rollout) of a team that acts anew in the same rows."""
    prog = made(spec, FIXED, Scale(ROWS, 1, UPDATES))
    algorithm, carry = prog.algorithm, prog.algorithm.initial_carry(ROWS)
    traj = make_trajectory(spec, carry=carry, length=1, envs=ROWS)

    def turn(learner: Learner, key: jax.Array) -> Any:
        step = jax.tree.map(lambda x: x[0], traj.step)
        action = algorithm.act(learner, carry, step, key, False)[1]
        learner, metrics = algorithm.update(learner, traj._replace(action=action[None]), key)
        return learner, (metrics, action)

    train = compiled(lambda start: jax.lax.scan(turn, start, jax.random.split(KEY, UPDATES)))
    learner, (metrics, action) = train(prog.learner)
    return prog.learner, learner, metrics, traj._replace(action=action[-1:])


def read(spec: EnvSpec, body: Any, params: Any, step: Step, j: int, outputs: int | None = None) -> np.ndarray:
    """What one net says of agent j's observations."""
    net = build_body(body, spec.obs_dim, spec.action.width, log_std=outputs and -1.0)
    obs = jnp.where(step.alive[..., j, None], step.obs[..., j, :], 0)
    return np.asarray(net.apply(params, (), obs, step.first)[1])


def log_softmax(logits: np.ndarray, legal: Any) -> np.ndarray:
    return np.asarray(jax.nn.log_softmax(jnp.where(legal, logits, -1e9)))


def test_inferred_policies_of_a_fixed_team_converge_to_its_policies() -> None:
    start, learner, metrics, traj = observed(SPEC)
    assert_trees_close(learner.policy, start.policy, 1e-5, 1e-8)

    def kl(learner: Learner, i: int, j: int) -> float:
        legal = traj.step.legal[..., j, :]
        true = log_softmax(read(SPEC, FIXED.network, of(learner.policy.actor, j), traj.step, j), legal)
        model = log_softmax(read(SPEC, FIXED.network, of(learner.statistics.models, N * i + j), traj.step, j), legal)
        return float((np.exp(true) * (true - model)).sum(-1)[np.asarray(traj.step.alive[..., j])].mean())

    pairs = [(i, j) for i in range(N) for j in range(N) if i != j]
    before, after = ([kl(x, i, j) for i, j in pairs] for x in (start, learner))
    assert min(before) > 0.3, before
    assert max(after) < 0.02, after
    np.testing.assert_allclose(metrics["model_kl"][0], np.mean(before), rtol=1e-4)
    np.testing.assert_allclose(metrics["model_kl"][-1], np.mean(after), rtol=0.05, atol=1e-4)
    assert_trees_equal(*(of(x.statistics.models, 0) for x in (start, learner)))  # nobody needs a model of itself


def test_models_of_continuous_policies_find_action_and_noise() -> None:
    spec = make_spec(action=Box(2, -2.0, 1.0))
    start, learner, _, traj = observed(spec)

    def error(learner: Learner, i: int, j: int) -> tuple[float, np.ndarray]:
        seen = np.asarray(traj.step.alive[..., j])
        real = np.arange(2) < spec.action_dims[j]
        true = np.tanh(read(spec, FIXED.network, of(learner.policy.actor, j), traj.step, j))
        mean, log_std = np.split(
            read(spec, FIXED.network, of(learner.statistics.models, N * i + j), traj.step, j, 2), 2, -1
        )
        inside = np.abs(true) < 0.6  # elsewhere noise is clipped off at the edge of the box
        return np.abs(mean - true)[seen[..., None] & real & inside].mean(), np.exp(log_std)[0, 0][real]

    for i, j in ((0, 1), (1, 0), (2, 1), (0, 2)):
        assert error(start, i, j)[0] > 0.3
        wrong, noise = error(learner, i, j)
        assert wrong < 0.1
        np.testing.assert_allclose(noise, 0.2, atol=0.05)


def naive_models(prog: Any, traj: Trajectory) -> tuple[Any, Any]:
    """(models, target networks) after one step of eq. 7, pair by pair."""
    learner, step = prog.learner, traj.step

    def loss(phi: Any) -> jax.Array:
        sum_of_all = jnp.zeros(())
        for i, j in ((i, j) for i in range(N) for j in range(N) if i != j):
            net = build_body(INFER.network, SPEC.obs_dim, 4)
            obs = jnp.where(step.alive[..., j, None], step.obs[..., j, :], 0)
            x = net.apply(of(phi, N * i + j), (), obs, step.first)[1]
            log_p = jax.nn.log_softmax(jnp.where(step.legal[..., j, :], x, -1e9))
            entropy = -jnp.where(step.legal[..., j, :], jnp.exp(log_p) * log_p, 0).sum(-1)
            taken = (log_p * jax.nn.one_hot(traj.action[..., j], 4)).sum(-1)
            alive = step.alive[..., j]
            sum_of_all -= jnp.where(alive, taken + INFER.model_entropy_coef * entropy, 0).sum() / alive.sum()
        return sum_of_all

    phi = learner.statistics.models
    memory = (jax.tree.map(jnp.zeros_like, phi),) * 2
    gradient = jax.tree.map(lambda g: g + 1e-30, jax.grad(loss)(phi))  # a norm of 0 would not divide
    after, _ = adam(INFER, phi, gradient, memory, 1, INFER.model_learning_rate or 0.0)
    slow = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, learner.statistics.target, after)
    return after, slow


def test_one_step_equals_a_loop_and_its_target_network_follows() -> None:
    prog, traj = made(SPEC, INFER), make_trajectory(SPEC)
    learner, _ = prog.update(prog.learner, traj, KEY)
    expected = compiled(lambda traj: naive_models(prog, traj))(traj)
    assert_trees_close((learner.statistics.models, learner.statistics.target), expected, 2e-4, 2e-6)
    assert distance(learner.statistics.models, prog.learner.statistics.models) > 1e-3


def test_models_learn_from_the_newest_roll_out_and_not_from_the_buffer() -> None:
    algorithm = algorithms.get("maddpg").make(SPEC, INFER, Scale(E, T, 10))
    learner, update = made(SPEC, INFER).learner, compiled(algorithm.update)

    def after(newest: int, stored: int) -> tuple[Any, Any]:
        sample = algorithm.replay.keep(make_trajectory(SPEC, stored))
        sample = jax.tree.map(lambda x: x.reshape(1, 1, T * E, *x.shape[2:]), sample)
        got, _ = update(learner, Experience(make_trajectory(SPEC, newest), sample), KEY)
        return got.statistics.models, got.critic

    (models, critic), (same, other_critic), (other, _) = after(0, 0), after(0, 1), after(1, 0)
    assert_trees_equal(same, models)
    assert distance(other_critic, critic) > 1e-3 and distance(other, models) > 1e-4


def test_the_target_of_an_agent_reads_its_own_models_of_the_others() -> None:
    prog, traj = made(SPEC, INFER), make_trajectory(SPEC, dead=0.1)
    learner, _ = prog.update(prog.learner, traj, KEY)
    actor, critic, models = slow_copies(prog.learner)
    for i in range(N):
        for j in range(N):
            strange = jax.tree.map(lambda x, row=N * i + j: x.at[row].multiply(-2.0), models)
            other, _ = prog.update(with_slow_copies(prog.learner, actor, critic, strange), traj, KEY)
            changed = [distance(of(other.critic, k), of(learner.critic, k)) > 1e-5 for k in range(N)]
            assert changed == [k == i and i != j for k in range(N)], (i, j)
            assert_trees_equal(other.statistics.models, learner.statistics.models)
    # Of the true policies each reads its own alone; the others' would be changes of their targets here.
    for j in range(N):
        strange = jax.tree.map(lambda x, row=j: x.at[row].multiply(-2.0), actor)
        other, _ = prog.update(with_slow_copies(prog.learner, strange, critic, models), traj, KEY)
        changed = [distance(of(other.critic, k), of(learner.critic, k)) > 1e-5 for k in range(N)]
        assert changed == [k == j for k in range(N)]
