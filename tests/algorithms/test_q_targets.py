"""Value decomposition's targets against a loop over timesteps; ε, target networks and weights over several updates."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import iql, qmix, vdn
from shoal.errors import InputError
from shoal.models.utilities import make_utilities
from shoal.networks.body import Body
from shoal.types import Box, Scale, Trajectory
from support.naive import alone
from support.naive_q import at, greedy, team, utilities
from support.trajectories import (
    E,
    T,
    acted,
    assert_trees_close,
    assert_trees_equal,
    compiled,
    distance,
    leaving,
    make_spec,
    program,
)
from support.trajectories import make_trajectory as noise

KEY = jax.random.key(1)
SPEC = make_spec()
SEAM = 2
FEED = vdn.Config(network=Body((6,), activation="relu", orthogonal=False), gamma=0.9, adam_eps=0.5, learning_rate=0.5)
GRU = replace(FEED, network=Body((6,), recurrent=4, orthogonal=False), sequence_length=T)
ALONE = iql.Config(**vars(replace(FEED, sharing="role")))


def data(prog: Any, length: int = T, envs: int = E, seed: int = 0) -> Trajectory:
    """Noise in which a third of the timesteps end the episode for everybody.

    Most agents that die while the others play on are cut off by a time limit of their own. In environment 0 an episode
    begins at timestep :data:`SEAM` although the one before it has not ended: so a replay buffer looks where a resumed
    run, or a worker that took another's place, began to play anew.
    """
    traj = noise(SPEC, seed, carry=prog.algorithm.initial_carry(envs), length=length, envs=envs)
    discount = traj.outcome.discount * (np.random.default_rng(seed).random((length, envs, 1)) > 0.3)
    step, last = traj.step, traj.outcome.last
    if length > SEAM:
        discount = discount.at[SEAM - 1, 0].set(1.0)
        last, step = last.at[SEAM - 1, 0].set(False), step._replace(first=step.first.at[SEAM, 0].set(True))
    traj = traj._replace(step=step, outcome=traj.outcome._replace(discount=discount, last=last))
    return leaving(traj, seed) if length > 1 else traj


def naive(config: Any, prog: Any, traj: Trajectory, shared: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(targets, values, weights), [T, E] for the team or [T, E, N] for each agent."""
    actor, frozen = prog.learner.policy.actor, prog.learner.statistics.target[0]
    value = at(utilities(SPEC, config, actor, traj)[0], traj.action, traj.step.alive)
    judge = utilities(SPEC, config, frozen, traj)[1]
    chooser = utilities(SPEC, config, actor, traj)[1] if config.double_q else judge
    v = at(judge, greedy(chooser, traj.outcome), traj.outcome.alive)
    alive, reward, discount = (np.asarray(x) for x in (traj.step.alive, traj.outcome.reward, traj.outcome.discount))
    if shared:
        value, v, alive = value.sum(-1), v.sum(-1), alive.any(-1)
        reward, discount = team(traj)
    target = np.zeros_like(v)
    for at_one in np.ndindex(v.shape[1:]):  # (e,) or (e, i)

        def g(t: int, n: int, one: tuple[int, ...] = at_one) -> np.ndarray:
            e, now = one[0], (t, *one)
            ends = t == T - 1 or bool(traj.outcome.last[t, e] | traj.step.first[t + 1, e])
            ends = ends or (not shared and alone(traj.outcome, traj.step, *now))
            if config.lam > 0:
                later = v[now] if ends else (1 - config.lam) * v[now] + config.lam * g(t + 1, 0)
            else:
                later = v[now] if ends or n == 1 else g(t + 1, n - 1)
            return reward[now] + config.gamma * discount[now] * later

        for t in range(T):
            target[(t, *at_one)] = g(t, config.n_step)
    start = config.burn_in if config.sequences else 0
    weight = alive & (np.arange(T) >= start).reshape(T, *(1,) * (alive.ndim - 1))
    return target, value, weight


CASES = {
    "one step": FEED,
    "three steps": replace(FEED, n_step=3, sequence_length=T),
    "lambda": replace(FEED, lam=0.6, sequence_length=T, sharing="independent"),
    "gru, two steps": replace(GRU, n_step=2, burn_in=2, max_grad_norm=None),
    "gru, lambda": replace(GRU, lam=0.8, sharing="role"),
    "gru, stored state": replace(GRU, stored_state=True, burn_in=2),
    "alone": ALONE,
    "own rewards, lambda": replace(ALONE, lam=0.6, sequence_length=T),
    "alone, two steps": replace(ALONE, n_step=2, sequence_length=T, double_q=False),
}


@pytest.mark.parametrize("name", CASES)
def test_targets_are_those_of_a_loop(name: str) -> None:
    """A termination does not bootstrap, a time limit and the sample's end do, on Q of the outcome before the reset."""
    config = CASES[name]
    prog = program(SPEC, config)
    traj = data(prog)
    if config.stored_state:
        stored = np.random.default_rng(3).normal(size=(T, E, SPEC.num_agents, 4))
        traj = traj._replace(extras={"recurrent_state0": jnp.asarray(stored, jnp.float32)})
    ends, goes_on = np.asarray(traj.outcome.last), np.asarray(traj.outcome.discount).max(-1) > 0
    assert all((ends & x).any() and (~ends & x).any() for x in (goes_on, ~goes_on))
    target, value, weight = naive(config, prog, traj, shared=not isinstance(config, iql.Config))
    error = (target - value)[weight]
    _, metrics = prog.update(prog.learner, traj, KEY)
    np.testing.assert_allclose(metrics["q"], value[weight].mean(), rtol=2e-4)
    np.testing.assert_allclose(metrics["td_error"], np.abs(error).mean(), rtol=2e-4)
    np.testing.assert_allclose(metrics["td_loss"], (error**2).mean() / 2, rtol=2e-4)


def test_no_gradient_flows_through_the_burn_in() -> None:
    config = replace(GRU, n_step=2, burn_in=2, max_grad_norm=None)
    prog = program(SPEC, config)
    traj = data(prog)
    target, _, weight = naive(config, prog, traj, shared=True)
    q = make_utilities(SPEC, config.network, (0,) * SPEC.num_agents, config.agent_id)[1]

    def loss(theta: Any, cut: jax.Array) -> jax.Array:
        states, first = q(theta, traj.carry, jax.tree.map(lambda x: x[: config.burn_in], traj.step))
        state = jax.tree.map(lambda h: jnp.where(cut, jax.lax.stop_gradient(h[-1]), h[-1]), states)
        rest = q(theta, state, jax.tree.map(lambda x: x[config.burn_in :], traj.step))[1]
        chosen = jnp.take_along_axis(jnp.concatenate([first, rest]), traj.action[..., None], -1)[..., 0]
        error = target - jnp.where(traj.step.alive, chosen, 0).sum(-1)
        return jnp.where(weight, error**2, 0).sum() / weight.sum() / 2

    gradient = compiled(jax.grad(loss))

    def norm(cut: bool) -> float:
        leaves = jax.tree.leaves(gradient(prog.learner.policy.actor, jnp.bool_(cut)))
        return np.sqrt(sum((np.asarray(x) ** 2).sum() for x in leaves))

    _, metrics = prog.update(prog.learner, traj, KEY)
    np.testing.assert_allclose(metrics["grad_norm"], norm(cut=True), rtol=1e-4)
    assert abs(norm(cut=False) / norm(cut=True) - 1) > 0.01


def test_the_stored_state_is_that_in_which_the_policy_acted() -> None:
    """With every timestep, also with the first of an episode, where the net itself starts from zeros."""
    prog = program(SPEC, replace(GRU, stored_state=True))
    traj = data(prog)
    kept = acted(prog, prog.learner, traj, greedy=True).extras["recurrent_state0"]
    np.testing.assert_array_equal(kept[0], jax.tree.leaves(traj.carry)[0])
    carry, act = traj.carry, compiled(prog.algorithm.act, static_argnums=4)
    for t in range(T):
        np.testing.assert_allclose(kept[t], jax.tree.leaves(carry)[0], rtol=1e-5, atol=1e-6)
        carry = act(prog.learner, carry, jax.tree.map(lambda x, t=t: x[t], traj.step), KEY, True)[0]
    assert np.abs(np.asarray(kept[1:])).max() > 1e-2


def test_epsilon_decreases_linearly_and_then_is_constant() -> None:
    config = replace(FEED, epsilon=0.8, epsilon_final=0.2, epsilon_fraction=0.5)  # of 10 updates
    prog = program(SPEC, config)
    learner, sample = prog.learner, data(prog)
    assert float(learner.policy.epsilon) == pytest.approx(0.8)
    for k in range(1, 8):
        learner, metrics = prog.update(learner, sample, KEY)
        assert float(metrics["epsilon"]) == pytest.approx(0.8 - 0.12 * min(k - 1, 5), abs=1e-6)
        assert float(learner.policy.epsilon) == pytest.approx(0.8 - 0.12 * min(k, 5), abs=1e-6)


def test_epsilon_is_the_probability_of_any_legal_action() -> None:
    prog = program(SPEC, FEED)
    many = data(prog, length=1, envs=4000)
    step = jax.tree.map(lambda x: x[0], many.step)
    act = compiled(prog.algorithm.act, static_argnums=4)

    def actions(epsilon: float, greedy: bool) -> np.ndarray:
        learner = prog.learner._replace(policy=prog.learner.policy._replace(epsilon=jnp.float32(epsilon)))
        return np.asarray(act(learner, (), step, KEY, greedy)[1])

    best = actions(1.0, True)
    np.testing.assert_array_equal(actions(0.0, False), best)
    options = np.asarray(step.legal).sum(-1)
    for epsilon in (0.3, 1.0):
        other = (actions(epsilon, False) != best).mean()
        assert other == pytest.approx((epsilon * (1 - 1 / options)).mean(), abs=0.015)


def test_hard_targets_are_copied_at_intervals() -> None:
    prog = program(SPEC, replace(FEED, target_interval=2))
    sample = data(prog)
    once, _ = prog.update(prog.learner, sample, KEY)
    assert_trees_equal(once.statistics.target, prog.learner.statistics.target)
    twice, _ = prog.update(once, sample, KEY)
    assert_trees_equal(twice.statistics.target[0], twice.policy.actor)
    thrice, _ = prog.update(twice, sample, KEY)
    assert_trees_equal(thrice.statistics.target, twice.statistics.target)
    assert distance(thrice.policy.actor, twice.policy.actor) > 1e-4


def test_soft_targets_move_a_fraction_of_the_way() -> None:
    """Those of the utilities and of the mixer, towards what this gradient step has made of them."""
    mixing = qmix.Config(**vars(replace(FEED, target_rate=0.25)), mixing_width=2, hyper_width=3)
    prog = program(SPEC, mixing)
    learner, _ = prog.update(prog.learner, data(prog), KEY)
    now = type(prog.learner.statistics.target)(learner.policy.actor, learner.critic)
    before = prog.learner.statistics.target
    expected = jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, before, now)
    assert_trees_close(learner.statistics.target, expected)
    assert distance(learner.critic, prog.learner.critic) > 1e-3
    assert distance(expected[0], before[0]) > 1e-2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"lam": 0.5, "n_step": 2}, "two kinds of target"),
        ({"n_step": 0}, "n_step must be at least 1"),
        ({"epsilon_final": 1.5}, "epsilon_final must be at least 0 and at most 1"),
        ({"n_step": 26}, "n_step 26 is longer than sequences of 25 steps"),
        (
            {"n_step": 16, "burn_in": 10, "network": GRU.network},
            "n_step 16 is longer than sequences of 15 steps after a burn_",
        ),
        ({"burn_in": 25}, "burn_in 25 leaves nothing of sequences of 25 steps"),
        ({"network": GRU.network, "sequence_start": "episode", "burn_in": 3}, "leave out burn_in and stored_state"),
        ({"network": GRU.network, "sequence_start": "episode", "stored_state": True}, "leave out burn_in and stored"),
    ],
)
def test_invalid_input_is_refused(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        vdn.make(SPEC, replace(FEED, **flags), Scale(E, T, 1))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("state", "toy has no global state, which the mixer would read; use mixer_input 'concat'"),
        ("local", "no mixer_input 'local'; did you mean"),
    ],
)
def test_unknown_mixer_inputs_are_refused_with_the_known_ones(kind: Any, words: str, as_users_run: None) -> None:
    config = qmix.Config(**vars(FEED), mixer_input=kind)
    with pytest.raises(InputError, match=words):
        qmix.make(make_spec(state_dim=0), config, Scale(E, T, 1))


def test_continuous_actions_are_refused() -> None:
    with pytest.raises(InputError, match="continuous ones: use maddpg"):
        vdn.make(make_spec(action=Box(2)), FEED, Scale(E, T, 1))
