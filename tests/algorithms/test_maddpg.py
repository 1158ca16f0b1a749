"""MADDPG and DDPG: whose reward each learns from, inputs of local critics, exploration, target networks, refusals."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.algorithms import iddpg, maddpg
from shoal.errors import InputError
from shoal.models.deterministic import init_policy
from shoal.types import Box, Discrete, EnvSpec, Learner, Scale, Trajectory
from support.naive_maddpg import BASE, made, of, slow_copies
from support.trajectories import acted, assert_trees_equal, compiled, distance, make_spec, make_trajectory

KEY, SCALE = jax.random.key(1), Scale(4, 5, 10)
SPEC = make_spec()
FLAT = make_spec(obs_dims=(5,) * 3, state_dim=0)


def nets(learner: Learner, i: int) -> tuple[Any, Any]:
    """(actor, critic) of agent i, where they are its own."""
    return of(learner.policy.actor, i), of(learner.critic, i)


def moved(config: Any, a: Trajectory, b: Trajectory) -> list[tuple[bool, bool]]:
    """For every agent whether (actor, critic) learns something else from one trajectory than from the other."""
    prog = made(SPEC, config)
    one, two = (prog.update(prog.learner, traj, KEY)[0] for traj in (a, b))
    return [
        tuple(distance(x, y) > 1e-6 for x, y in zip(nets(one, i), nets(two, i), strict=True))  # type: ignore[misc]
        for i in range(SPEC.num_agents)
    ]


def changed(traj: Trajectory, j: int) -> Trajectory:
    """Agent j sees, does and is allowed something else, now and then; its reward stays."""

    def other(step: Any) -> Any:
        return step._replace(obs=step.obs.at[..., j, :].add(1.0), legal=step.legal.at[..., j, :].set(True))

    action = traj.action.at[..., j].set((traj.action[..., j] + 1) % 4)
    return traj._replace(step=other(traj.step), outcome=other(traj.outcome), action=action)


def test_every_agent_learns_from_its_own_reward() -> None:
    traj = make_trajectory(SPEC)
    reward = traj.outcome.reward.at[..., 1].add(1.0)
    richer = traj._replace(outcome=traj.outcome._replace(reward=reward))
    assert moved(BASE, traj, richer) == [(False, False), (True, True), (False, False)]


@pytest.mark.parametrize(
    ("config", "local"),
    [
        (BASE, ()),
        (iddpg.Config(**vars(replace(BASE, critic_input="local"))), (0, 1, 2)),
        (replace(BASE, local_roles=(1,)), (2,)),
        (replace(BASE, local_roles=(0,)), (0, 1)),
    ],
    ids=["maddpg", "iddpg", "one side local", "the other side local"],
)
def test_local_critics_do_not_depend_on_other_agents(config: Any, local: tuple[int, ...]) -> None:
    traj = make_trajectory(SPEC, dead=0.1)
    for j in range(SPEC.num_agents):
        reacts = moved(config, traj, changed(traj, j))
        assert reacts == [((i == j or i not in local),) * 2 for i in range(SPEC.num_agents)]


def test_target_networks_start_equal_and_only_the_policy_is_deployed() -> None:
    config = replace(BASE, policies="inferred", ensemble=2, network=replace(BASE.network, hidden=(2,)))
    algorithm = algorithms.get("maddpg").make(SPEC, config, SCALE)
    learner = compiled(algorithm.init)(KEY)
    nets = learner.policy.actor, learner.critic, learner.statistics.models
    assert_trees_equal(slow_copies(learner), nets)
    rows = [{x.shape[0] for x in jax.tree.leaves(tree)} for tree in nets]
    assert rows == [{6}, {3}, {9}]  # sub-policies, critics, and models of everybody by everybody
    assert all(distance(of(learner.policy.actor, p), of(learner.policy.actor, p + 1)) > 0.1 for p in range(5))


def test_continuous_actions_explore_in_units_of_half_their_box() -> None:
    spec = make_spec(2, action=Box(2, -2.0, 1.0))
    prog = made(spec, replace(BASE, noise=0.2))
    traj = make_trajectory(spec, length=2, envs=2000, carry=prog.algorithm.initial_carry(2000), dead=0.0)
    traj = traj._replace(step=jax.tree.map(lambda x: jnp.broadcast_to(x[:1, :1], x.shape), traj.step))
    greedy, noisy = (np.asarray(acted(prog, prog.learner, traj, greedy=g).action) for g in (True, False))
    assert (greedy == greedy[:1, :1]).all() and not greedy[..., 1, 1].any() and not noisy[..., 1, 1].any()
    assert noisy.min() >= -2 and noisy.max() <= 1
    real = np.array([[True, True], [True, False]])
    assert (np.abs(greedy[0, 0][real] + 0.5) < 0.9).any(), "noise that is not clipped off"
    for x, centre in zip(noisy[..., real].reshape(-1, 3).T, greedy[0, 0][real], strict=True):
        if abs(centre + 0.5) < 0.6:
            assert x.std() == pytest.approx(0.3, rel=0.1) and x.mean() == pytest.approx(centre, abs=0.03)


@pytest.mark.parametrize("action", [Discrete(3), Box(2, -2.0, 1.0)], ids=["discrete", "box"])
def test_actions_are_uniform_until_the_first_update(action: Discrete | Box) -> None:
    """Over the box or the legal actions; greedy ones are the policy's from the start."""
    spec = make_spec(2, action=action)
    config = replace(BASE, random_start=True, noise=0.0, noise_final=0.0)
    prog = made(spec, config)
    prog = prog._replace(learner=prog.learner._replace(policy=init_policy(spec, config, prog.learner.policy.actor)))
    traj = make_trajectory(spec, length=2, envs=3000, carry=prog.algorithm.initial_carry(3000), dead=0.0)
    traj = traj._replace(step=jax.tree.map(lambda x: jnp.broadcast_to(x[:1, :1], x.shape), traj.step))
    after, _ = prog.update(prog.learner, make_trajectory(spec, carry=prog.algorithm.initial_carry(4), length=5), KEY)
    drawn, best, later = (
        np.asarray(acted(prog, learner, traj, greedy=greedy).action)
        for learner, greedy in ((prog.learner, False), (prog.learner, True), (after, False))
    )
    assert (best == best[:1, :1]).all()
    legal = np.asarray(traj.step.legal[0, 0])
    for agent in range(2):
        if isinstance(action, Box):
            assert (later[:, :, agent] == later[:1, :1, agent]).all(), "no noise"
            x = drawn[:, :, agent][..., legal[agent]].ravel()
            assert x.min() < -1.9 and x.max() > 0.9 and x.mean() == pytest.approx(-0.5, abs=0.05)
            assert not drawn[:, :, agent][..., ~legal[agent]].any()
        else:
            share = np.bincount(drawn[:, :, agent].ravel(), minlength=3) / 6000
            np.testing.assert_allclose(share, legal[agent] / legal[agent].sum(), atol=0.03)


def test_the_noise_decreases_linearly_and_then_is_constant() -> None:
    prog = made(make_spec(2, action=Box(2, -2.0, 1.0)), replace(BASE, noise=0.8, noise_final=0.2, noise_fraction=0.5))
    learner = prog.learner
    sample = make_trajectory(make_spec(2, action=Box(2, -2.0, 1.0)), carry=prog.algorithm.initial_carry(4), length=5)
    total = SCALE.num_updates / 2
    for k in range(4):
        assert float(learner.policy.noise) == pytest.approx(0.8 - 0.6 * min(k / total, 1.0), abs=1e-6)
        learner, _ = prog.update(learner, sample, KEY)


@pytest.mark.parametrize(
    ("spec", "changes", "said"),
    [
        (SPEC, {"ensemble": 0}, "ensemble must be at least 1 and at most 1024, not 0."),
        (SPEC, {"batch_size": 0}, "batch_size must be at least 1 and at most 2147483647, not 0."),
        (SPEC, {"gradient_steps": 0}, "gradient_steps must be at least 1 and at most 1e6, not 0."),
        (SPEC, {"temperature": 0.0}, "temperature must be at least 0.001 and at most 1000, not 0."),
        (SPEC, {"model_learning_rate": 0.0}, "model_learning_rate must be above 0 and at most 10, not 0."),
        (SPEC, {"critic_learning_rate": -1.0}, "critic_learning_rate must be above 0 and at most 10, not -1."),
        (SPEC, {"logit_coef": -1.0}, "logit_coef must be at least 0 and at most 1e6, not -1."),
        (SPEC, {"noise": -1.0}, "noise must be at least 0 and at most 1e6, not -1."),
        (SPEC, {"model_entropy_coef": -1.0}, "model_entropy_coef must be at least 0 and at most 1e6, not -1."),
        (SPEC, {"target_rate": 1.5}, "target_rate must be at least 0 and at most 1, not 1.5."),
        (SPEC, {"gamma": 1.5}, "gamma must be at least 0 and at most 1, not 1.5."),
        (SPEC, {"burn_in": 25}, "burn_in 25 leaves nothing of sequences of 25 steps."),
        (SPEC, {"sharing": (0, 2)},
         "sharing (0, 2) must give each of the 3 agents a policy number, without gaps."),
        (SPEC, {"local_roles": (2,)}, "local_roles has 2; the agents to train in toy have roles 0 to 1."),
        (SPEC, {"local_roles": (1,), "critic_input": "state"},
         "local_roles needs critic_input concat, not state."),
        (SPEC, {"critic_input": "agent"}, "There is no critic input 'agent'; known: concat, local, state."),
        (FLAT, {"critic_input": "state"},
         "toy has no global state: critic_input 'state' needs one; use one of observations."),
        (make_spec(action=Box(2, -np.inf, np.inf)), {},
         "toy has the action box [-inf, inf]; policies need a finite one."),
    ],
)  # fmt: skip
def test_invalid_input_is_refused(spec: EnvSpec, changes: dict, said: str, as_users_run: None) -> None:
    with pytest.raises(InputError) as error:
        maddpg.make(spec, replace(BASE, **changes), SCALE)
    assert str(error.value) == said
