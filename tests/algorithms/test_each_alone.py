"""Policies that share no parameters learn what each would learn alone, whatever clips of the norm and Adam's ε do.

Where nothing but the environment connects agents, an update of the team is compared with updates of teams that hold one
policy's agents only: the same rows, the same program of the same algorithm, made for fewer agents.
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from shoal import algorithms
from shoal.equations.reduce import DEVICES
from shoal.options.flags import override
from shoal.training import sharding
from shoal.types import EnvSpec, Learner, Scale, Trajectory
from support.trajectories import (
    E,
    Program,
    T,
    assert_trees_close,
    compiled,
    distance,
    from_trajectories,
    make_spec,
    make_trajectory,
    program,
)

KEY = jax.random.key(2)
# Norms around the clip, and an ε around the gradients' size: a gradient in another unit gives another step.
SMALL: dict[str, Any] = {
    "hidden": (4,), "orthogonal": False, "agent_id": False, "learning_rate": 0.3, "adam_eps": 0.02,
    "max_grad_norm": 0.2, "value_norm": "running", "normalise_advantage": "agent", "critic_input": "local",
    "chunk_length": T, "sequence_length": T, "entropy_coef": 0.05, "scale_advantage": False,
}  # fmt: skip
TWICE: dict[str, Any] = {"epochs": 2, "minibatches": 2, "block": 9}
BY_ROLE, APART = (0, 0, 1), (0, 1, 2)
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "ippo": ("ippo", APART, TWICE),
    "ippo by role": ("ippo", BY_ROLE, TWICE),
    "ia2c by role": ("ia2c", BY_ROLE, {}),
    "mapg": ("mapg", APART, {"critic": "independent", "minibatches": 1}),
    "mapg by role": ("mapg", BY_ROLE, {"critic": "independent", "baseline": "value", "minibatches": 1}),
    "iql by role": ("iql", BY_ROLE, {"max_grad_norm": None, "adam_eps": 0.5}),
    "happo": ("happo", APART, TWICE),
}


def spec_of(n: int) -> EnvSpec:
    return make_spec(n, obs_dims=(5,) * n, action_dims=(4,) * n, roles=(0,) * n)


def config_of(name: str, sharing: tuple[int, ...]) -> Any:
    algorithm, _, flags = CASES[name]
    return override(algorithms.get(algorithm).Config(), SMALL | {"sharing": sharing} | flags)


@cache
def team(name: str) -> tuple[Program, Trajectory]:
    prog = program(spec_of(3), config_of(name, CASES[name][1]))
    traj = make_trajectory(spec_of(3), carry=prog.algorithm.initial_carry(E))
    # One legal action where the policy is asked what it would do: what is drawn there does not depend on N.
    legal = jnp.broadcast_to(jnp.arange(4) == 2, traj.outcome.legal.shape)
    return prog, traj._replace(outcome=traj.outcome._replace(legal=legal))


def rows(traj: Trajectory, agents: list[int]) -> Trajectory:
    """What the agents saw, did and earned."""

    def own(x: Any) -> Any:
        return x[:, :, jnp.array(agents)] if x.ndim > 2 and x.shape[2] == 3 else x

    return jax.tree.map(own, traj._replace(carry=()))._replace(carry=traj.carry)


def part(learner: Learner, like: Learner, p: int) -> Learner:
    """Policy p's part of everything that is learned."""
    return jax.tree.map(lambda x, y: x if x.shape == y.shape else x[p : p + 1], learner, like)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("ippo", "iql by role") else pytest.mark.slow) for name in CASES]
)
def test_a_policy_learns_what_it_would_learn_alone(name: str) -> None:
    (prog, traj), sharing = team(name), CASES[name][1]
    after, _ = prog.update(prog.learner, traj, KEY)
    for p in range(max(sharing) + 1):
        agents = [i for i, own in enumerate(sharing) if own == p]
        alone = program(spec_of(len(agents)), config_of(name, (0,) * len(agents)))
        learner, _ = alone.update(part(prog.learner, alone.learner, p), rows(traj, agents), KEY)
        got = part(after, alone.learner, p)
        assert_trees_close(got.critic, learner.critic, 1e-3, 1e-5)
        if name != "happo":  # its agents account for those before them
            assert_trees_close(got.policy, learner.policy, 1e-3, 1e-5)
            assert distance(got.policy.actor, part(prog.learner, alone.learner, p).policy.actor) > 0.05


def test_training_on_two_devices_equals_training_on_one() -> None:
    """A policy's share of the rows is that of all devices' rows together."""
    config = config_of("ippo by role", BY_ROLE)
    config = override(config, {"minibatches": 1})
    one, (_, traj) = program(spec_of(3), config), team("ippo by role")
    alive = traj.step.alive.at[:, : E // 2, 2].set(False)  # all of agent 2's rows are on the second device
    traj = traj._replace(step=traj.step._replace(alive=alive))
    half = from_trajectories(algorithms.get("ippo").make(spec_of(3), config, Scale(E // 2, T, 10)))
    cut = jax.P(None, DEVICES)
    shard = partial(jax.shard_map, mesh=sharding.plan_layout(1, E, 2).mesh, check_vma=False)
    two = compiled(shard(half.update, in_specs=(jax.P(), cut, jax.P()), out_specs=jax.P()))
    assert_trees_close(two(one.learner, traj, KEY), one.update(one.learner, traj, KEY), 5e-4, 5e-5)
