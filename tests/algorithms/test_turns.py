"""HAPPO and HATRPO against NumPy: the schedule of shared policies over several updates, chunks of recurrent nets."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.algorithms import happo, hatrpo
from shoal.networks.body import Body
from shoal.types import Scale, Trajectory
from support.naive_turns import Turns
from support.trajectories import Program, assert_trees_close, distance, make_spec, make_trajectory, program

LENGTH, ENVS, UPDATES = 4, 3, 3
SCALE = Scale(ENVS, LENGTH, UPDATES)
SPEC = make_spec()
GRU = Body((3,), recurrent=3, orthogonal=False)
# A large ε of Adam keeps its steps proportional to the gradient, so that a small error of the gradient stays small.
HAPPO = happo.Config(
    network=Body((4,), orthogonal=False), adam_eps=0.5, learning_rate=1.0, epochs=2, order="fixed", entropy_coef=0.05,
    value_norm="none", huber=None, value_clip=0.1, value_coef=0.3, gamma=0.9, lam=0.8, max_grad_norm=0.3,
)  # fmt: skip
HATRPO = hatrpo.Config(
    network=GRU, chunk_length=2, adam_eps=0.5, learning_rate=1.0, epochs=1, order="fixed", entropy_coef=0.1,
    value_norm="none", huber=None, value_coef=0.3, max_kl=0.05, damping=0.02, accept_ratio=0.8, cg_iterations=100,
    cg_tolerance=1e-14,
)  # fmt: skip


def data(prog: Program, seed: int) -> Trajectory:
    """Noise, begun in states that are not zero, in which episodes start within chunks and between them."""
    rng = np.random.default_rng(seed)
    zeros = prog.algorithm.initial_carry(ENVS)
    carry = jax.tree.map(lambda x: jnp.array(rng.normal(size=x.shape), jnp.float32), zeros)
    traj = make_trajectory(SPEC, seed, carry, LENGTH, ENVS, dead=0.2)
    first = np.array([[False, True, False], [True, False, False], [False, True, False], [False, False, False]])
    last = np.concatenate([first[1:], np.ones((1, ENVS), bool)])
    return traj._replace(
        step=traj.step._replace(first=jnp.array(first)), outcome=traj.outcome._replace(last=jnp.array(last))
    )


def compare(config: Any, update: str, updates: int, rtol: float, atol: float) -> list[Any]:
    prog = program(SPEC, config, SCALE)
    learner, naive, said = prog.learner, Turns(SPEC, config, UPDATES, prog.learner), []
    for k in range(updates):
        traj = data(prog, k)
        learner, _ = prog.update(learner, traj, jax.random.key(k))
        said.append(getattr(naive, update)(traj))
        assert_trees_close((learner.policy.actor, learner.critic), (naive.actor, naive.critic), rtol, atol)
    assert distance(learner.policy.actor, prog.learner.policy.actor) > 0.05
    assert distance(learner.critic, prog.learner.critic) > 0.05
    return said


def test_the_rate_of_a_shared_policy_falls_with_its_own_steps() -> None:
    """Two agents take turns with policy 0, so it takes twice as many steps in the run as policy 1."""
    config = replace(HAPPO, sharing=(0, 0, 1), lr_final=0.1)
    factors = compare(config, "happo", UPDATES, 1e-3, 1e-4)
    assert min(np.abs(factor - 1).max() for factor in factors) > 0.05  # or M would prove nothing


def test_recurrent_happo_learns_from_chunks_shorter_than_the_rollout() -> None:
    config = replace(HAPPO, network=GRU, chunk_length=2, critic_input="local", sharing=(0, 0, 1))
    compare(config, "happo", 1, 1e-3, 1e-4)


def test_recurrent_hatrpo_learns_from_chunks_shorter_than_the_rollout() -> None:
    (taken,) = compare(HATRPO, "hatrpo", 1, 2e-3, 2e-3)
    assert max(taken) > 0.3
