"""HATRPO against a plain loop with a dense Fisher matrix, and what every one of its steps must keep to."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from shoal.algorithms import happo, hatrpo
from shoal.errors import InputError
from shoal.models.actor_critic import make_nets
from shoal.networks.body import Body
from shoal.networks.inputs import normalised
from shoal.networks.sharing import policy_of
from shoal.types import Box, EnvSpec, Learner, Scale, Trajectory
from support.trajectories import (
    E,
    T,
    assert_trees_equal,
    compiled,
    critic_advantage,
    distance,
    make_spec,
    make_trajectory,
    program,
)

KEY = jax.random.key(3)
SPEC, BOX = make_spec(), make_spec(action=Box(2, -2.0, 1.0), shared_reward=True)
CONFIG = hatrpo.Config(
    network=Body((5,), orthogonal=False),
    epochs=1,
    order="fixed",
    max_kl=0.05,
    damping=0.02,
    entropy_coef=0.1,
    accept_ratio=0.8,
    cg_iterations=100,
    cg_tolerance=1e-14,
)
GRU = Body((4,), recurrent=4, orthogonal=False)
CASES: dict[str, tuple[EnvSpec, hatrpo.Config]] = {
    "discrete": (SPEC, CONFIG),
    "squashed": (BOX, replace(CONFIG, squash=True)),
    "recurrent by role": (SPEC, replace(CONFIG, network=GRU, chunk_length=T, sharing="role")),
    "reckless": (SPEC, replace(CONFIG, max_kl=0.3, cg_iterations=3, line_search_steps=3)),
}
every_case = pytest.mark.parametrize("name", CASES)


class Reference:
    """One agent's objective and KL over its living timesteps, taken from the whole team's nets."""

    def __init__(self, name: str, learner: Learner, traj: Trajectory) -> None:
        self.spec, self.c = CASES[name]
        nets = make_nets(self.spec, self.c, policy_of(self.spec, self.c.sharing))
        self.actor, self.learner, self.traj = nets.actor, learner, traj
        advantage, alive = critic_advantage(self.spec, self.c, nets, learner, traj), traj.step.alive
        mean, std = jnp.mean(advantage, where=alive), jnp.std(advantage, where=alive)
        self.advantage = jnp.where(alive, (advantage - mean) / (std + 1e-5), 0)

    def dist(self, theta: Any) -> Any:
        step = normalised(self.learner.policy.inputs, self.traj.step)
        return self.actor.distribution(theta, self.traj.carry.actor, step)[1]

    def mean(self, x: Any, i: int) -> Any:
        alive = self.traj.step.alive[..., i]
        return jnp.where(alive, x[..., i], 0).sum() / alive.sum()

    def ratio(self, dist: Any) -> Any:
        return jnp.exp(
            jnp.where(self.traj.step.alive, dist.log_prob(self.traj.action) - self.traj.extras["log_prob"], 0)
        )

    def objective(self, theta: Any, factor: Any, i: int) -> Any:
        dist = self.dist(theta)
        m = factor[..., None] * self.advantage
        return self.mean(self.ratio(dist) * m + self.c.entropy_coef * dist.entropy(), i)

    def kl(self, old: Any, new: Any, i: int) -> Any:
        return self.mean(self.dist(old).kl(self.dist(new)), i)


def one_by_one(ref: Reference, order: tuple[int, ...]) -> tuple[Any, list[float]]:
    """Algorithm 2, lines 8 to 15, with H⁻¹ g from a dense matrix: (θ, accepted fractions)."""
    c, theta, factor, taken = ref.c, ref.learner.policy.actor, jnp.ones((T, E)), []

    @compiled
    def derivatives(theta: Any, factor: Any, i: Any) -> Any:
        flat, unravel = ravel_pytree(jax.tree.map(lambda x: x[i], theta))
        put = lambda flat: jax.tree.map(lambda x, y: x.at[i].set(y), theta, unravel(flat))  # noqa: E731
        g = jax.grad(lambda flat: ref.objective(put(flat), factor, i))(flat)
        return g, jax.hessian(lambda flat: ref.kl(theta, put(flat), i))(flat)

    @compiled
    def trial(theta: Any, factor: Any, i: Any, step: Any) -> Any:
        flat, unravel = ravel_pytree(jax.tree.map(lambda x: x[i], theta))
        new = jax.tree.map(lambda x, y: x.at[i].set(y), theta, unravel(flat + step))
        gain = ref.objective(new, factor, i) - ref.objective(theta, factor, i)
        return new, gain, ref.kl(theta, new, i), factor * ref.ratio(ref.dist(new))[..., i]

    for i in order:
        g, H = (np.asarray(x, np.float64) for x in derivatives(theta, factor, i))
        H = H + c.damping * np.eye(len(g))
        x = np.linalg.solve(H, g)
        step = np.sqrt(2 * c.max_kl / (x @ H @ x)) * x
        for fraction in [*(c.backtrack**j for j in range(c.line_search_steps)), 0.0]:
            new, gain, kl, following = trial(theta, factor, i, jnp.asarray(fraction * step, jnp.float32))
            if kl <= c.max_kl and gain > 0 and gain >= c.accept_ratio * fraction * (step @ g):
                break
        theta, factor = new, following
        taken.append(fraction)
    return theta, taken


def test_the_update_is_the_papers_loop_with_a_dense_fisher_matrix() -> None:
    """On data that others played, so that ratios differ from one, with dead agents and illegal actions."""
    prog, traj = program(SPEC, replace(CONFIG, order="random")), make_trajectory(SPEC)
    got, metrics = prog.update(prog.learner, traj, KEY)
    order = tuple(int(i) for i in happo.order_of("random", 3, jax.random.split(KEY, 3)[0]))
    assert order != (0, 1, 2)
    theta, taken = one_by_one(Reference("discrete", prog.learner, traj), order)
    assert 0 < min(taken) < max(taken)  # or the search would prove nothing
    living = np.asarray(traj.step.alive).sum((0, 1))[list(order)]
    np.testing.assert_allclose(metrics["step_fraction"], np.average(taken, weights=living), rtol=1e-4)
    assert distance(theta, prog.learner.policy.actor) > 0.1
    assert distance(theta, got.policy.actor) < 2e-3


@cache
def judge(name: str) -> Any:
    """Compiled: (learner, new θ, data) -> each agent's gain and KL, for agents in order with policies of their own."""

    def judged(learner: Learner, theta: Any, traj: Trajectory) -> Any:
        ref, factor, gains = Reference(name, learner, traj), jnp.ones((T, E)), []
        old = learner.policy.actor
        for i in range(3):
            gains.append(ref.objective(theta, factor, i) - ref.objective(old, factor, i))
            factor = factor * ref.ratio(ref.dist(theta))[..., i]
        return jnp.stack(gains), jnp.stack([ref.kl(old, theta, i) for i in range(3)])

    return compiled(judged)


@every_case
def test_every_step_improves_within_the_trust_region_or_is_not_taken(name: str) -> None:
    spec, config = CASES[name]
    prog, took = program(spec, config), []
    for seed in range(6):
        traj = make_trajectory(spec, seed, prog.algorithm.initial_carry(E))
        if config.sharing == "role":  # agent 1 shares agent 0's policy: only one of them may move it, to tell its step
            traj = traj._replace(step=traj.step._replace(alive=traj.step.alive.at[..., 1].set(False)))
        learner, metrics = prog.update(prog.learner, traj, KEY)
        old, new = prog.learner.policy.actor, learner.policy.actor
        changed = [
            any((x[p] != y[p]).any() for x, y in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True))
            for p in policy_of(spec, config.sharing)
        ]
        moved = np.array(changed) & np.asarray(traj.step.alive.any((0, 1)))
        gain, kl = (np.asarray(x) for x in judge(name)(prog.learner, new, traj))
        assert (gain[moved] > 0).all()
        assert (kl[moved] <= config.max_kl * (1 + 1e-3)).all()
        gain, kl = np.where(moved, gain, 0), np.where(moved, kl, 0)
        living = np.asarray(traj.step.alive).sum((0, 1))  # metrics are means over living rows
        accepted, gain, kl = (np.average(x, weights=living) for x in (moved, gain, kl))
        np.testing.assert_allclose(metrics["accepted"], accepted, rtol=1e-6)
        np.testing.assert_allclose(metrics["improvement"], gain, rtol=1e-2, atol=1e-5)
        np.testing.assert_allclose(metrics["kl"], kl, rtol=1e-2, atol=1e-5)
        took.append(moved)
    share = np.mean(took)
    assert 0.2 < share < 0.9 if name == "reckless" else share > 0.6


def test_nan_rewards_and_dead_teams_change_no_policy() -> None:
    """A reward that is not a number, and a team that is dead: parameters stay to the bit."""
    prog, traj = program(SPEC, CONFIG), make_trajectory(SPEC)
    nan = traj._replace(outcome=traj.outcome._replace(reward=traj.outcome.reward.at[1, 1].set(jnp.nan)))
    nobody = jnp.zeros_like(traj.step.alive)
    dead = traj._replace(step=traj.step._replace(alive=nobody), outcome=traj.outcome._replace(alive=nobody))
    for data in (nan, dead):
        learner, metrics = prog.update(prog.learner, data, KEY)
        assert_trees_equal(learner.policy, prog.learner.policy)
        assert [metrics[x] for x in ("accepted", "kl", "improvement", "step_fraction")] == [0, 0, 0, 0]
    assert all(jnp.isfinite(x) for x in metrics.values())


def test_actors_have_no_optimiser_and_the_program_does_not_grow_with_the_team() -> None:
    def equations(n: int) -> int:
        spec = make_spec(n=n)
        algorithm = hatrpo.make(spec, CONFIG, Scale(E, T, 10))
        learner = jax.eval_shape(algorithm.init, KEY)
        assert learner.optimiser.actor is None
        return str(jax.make_jaxpr(algorithm.update)(learner, make_trajectory(spec), KEY)).count("\n")

    assert equations(27) < 1.02 * equations(3)


@pytest.mark.parametrize(
    "option",
    [
        {"max_kl": 0.0},
        {"cg_iterations": 0},
        {"damping": -0.1},
        {"backtrack": 1.0},
        {"accept_ratio": 1.5},
        {"line_search_steps": 0},
        {"cg_tolerance": 0.0},
    ],
    ids=lambda x: next(iter(x)),
)
def test_options_out_of_range_are_refused(option: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(option))):
        hatrpo.make(SPEC, replace(CONFIG, **option), Scale(E, T, 10))
