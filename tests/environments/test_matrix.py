"""Matrix games: payoffs, ends, and the limits of methods that each is there to show."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.matrix import ROCK_PAPER_SCISSORS, State, exploitability, matrix_game, payoff_game
from shoal.environments.registry import names, validate
from shoal.errors import InputError
from shoal.types import Environment, Step
from support.environments import device_env

RIVALS = ("matrix/matching_pennies", "matrix/rock_paper_scissors")
KEY = jax.random.key(0)


def at(env: Environment, cell: int, t: int, *action: int) -> tuple[State, Step]:
    return jax.jit(env.step)(KEY, State(*np.array([cell, t], np.int32)), np.array(action, np.int32))


def payoffs(env: Environment, cell: int = 0) -> np.ndarray:
    """One copy of the reward of every joint action; all copies are checked to be equal."""
    joint = np.array(list(itertools.product(*(range(width) for width in env.spec.action_dims))), np.int32)
    state = State(*np.array([cell, 0], np.int32))
    reward = np.asarray(jax.jit(jax.vmap(env.step, in_axes=(None, None, 0)))(KEY, state, joint)[1].reward)
    assert (reward == reward[:, :1]).all()
    return reward[:, 0].reshape(env.spec.action_dims)


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("matrix/")])
def test_specs_and_starts(name: str) -> None:
    env = device_env(name)
    assert env.spec.name == name and env.spec.shared_reward == (name not in RIVALS) and env.spec.score == "mean"
    _, start = jax.jit(env.reset)(KEY)
    assert start.legal.all()
    if name != "matrix/loud_agent":  # its state is the coin, which no agent observes
        assert start.state.sum() == 1.0 and (start.obs == start.state).all()


def test_payoff_tables() -> None:
    np.testing.assert_array_equal(payoffs(device_env("matrix/climbing")), [[11, -30, 0], [-30, 7, 0], [0, 6, 5]])
    np.testing.assert_array_equal(payoffs(device_env("matrix/penalty")), [[-100, 0, 10], [0, 2, 0], [10, 0, -100]])
    np.testing.assert_array_equal(
        payoffs(device_env("matrix/penalty", k=-25.0)), [[-25, 0, 10], [0, 2, 0], [10, 0, -25]]
    )
    np.testing.assert_array_equal(payoffs(device_env("matrix/monotonicity")), [[8, -12, -12], [-12, 0, 0], [-12, 0, 0]])
    np.testing.assert_array_equal(payoffs(device_env("matrix/traffic_junction")), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(
        payoffs(device_env("matrix/coordination", num_actions=3)), [[0.5, 0, 0], [0, 0.5, 0], [0, 0, 1]]
    )


def test_two_step() -> None:
    env = device_env("matrix/two_step")
    for cell, table in ((0, [[0, 0], [0, 0]]), (1, [[7, 7], [7, 7]]), (2, [[0, 1], [1, 8]])):
        np.testing.assert_array_equal(payoffs(env, cell), table)
    for first, second in itertools.product(range(2), range(2)):
        after, step = at(env, 0, 0, first, second)
        assert int(after.cell) == 1 + first
        assert not step.last and (step.discount == 1.0).all()
        assert step.state.tolist() == [0.0, float(first == 0), float(first == 1)]
        _, end = at(env, int(after.cell), 1, 1, 1)
        assert end.last and (end.discount == 0.0).all()


def test_two_state_breaks_additive_values() -> None:
    """The best additive fit of the Bellman target at (0, 0) has slope 5/4 in γV: γ > 4/5 diverges."""
    env = device_env("matrix/two_state")
    start, step = jax.jit(env.reset)(KEY)
    assert int(start.cell) == 1 and step.state.tolist() == [0.0, 1.0]
    joint = list(itertools.product(range(2), repeat=2))
    followed = [int(at(env, 1, 0, *action)[0].cell) for action in joint]
    assert followed == [1, 1, 1, 0]
    assert payoffs(env, 1).tolist() == [[1, 0], [0, 0]]
    assert not payoffs(env, 0).any() and all(int(at(env, 0, 0, *action)[0].cell) == 0 for action in joint)
    design = np.array([[a == 0, a == 1, b == 0, b == 1] for a, b in joint], float)
    reward = payoffs(env, 1).reshape(-1)

    def fitted(value: float) -> float:
        target = reward + value * np.array(followed)
        return float((design @ np.linalg.lstsq(design, target, rcond=None)[0]).max())

    assert fitted(1.0) == pytest.approx(0.75 + 1.25)
    assert fitted(4.0) - fitted(3.0) == pytest.approx(1.25)
    assert not at(env, 1, 98, 0, 0)[1].last
    _, end = at(env, 1, 99, 0, 0)
    assert end.last and (end.discount == 1.0).all()


@pytest.mark.parametrize("num_agents", [2, 4, 6])
def test_proposition_1_of_kuba_et_al(num_agents: int) -> None:
    env = device_env("matrix/proposition1", num_agents=num_agents)
    table = payoffs(env)
    half = num_agents // 2
    assert table.sum() == 2.0
    assert table[(0,) * half + (1,) * half] == 1.0 and table[(1,) * half + (0,) * half] == 1.0
    assert env.spec.roles == (0,) * half + (1,) * half
    # One policy for all, playing 1 with probability p, is best at p = 1/2 and earns 2 / 2^n.
    ones = np.indices(table.shape).sum(0)
    shared = [(table * p**ones * (1 - p) ** (num_agents - ones)).sum() for p in np.linspace(0, 1, 101)]
    assert max(shared) == pytest.approx(2.0 / 2**num_agents)


@pytest.mark.parametrize("num_agents", [1, 3, 5])
def test_all_ones(num_agents: int) -> None:
    table = payoffs(device_env("matrix/all_ones", num_agents=num_agents))
    assert table.sum() == 1.0 and table[(1,) * num_agents] == 1.0
    dense = payoffs(device_env("matrix/all_ones", num_agents=num_agents, reward="share"))
    assert dense.ravel() == pytest.approx([bin(joint).count("1") / num_agents for joint in range(2**num_agents)])


def test_loud_agent_pays_for_each_quiet_one_beside_the_coin_s_noise() -> None:
    env = device_env("matrix/loud_agent", num_quiet=2, loudness=10.0)
    coins = set()
    for seed in range(8):
        state, start = env.reset(jax.random.key(seed))
        coins.add(coin := float(start.state[0]))
        assert (start.obs == 1).all()  # nobody observes the coin
        for u in np.ndindex(2, 2, 2):
            _, end = jax.jit(env.step)(KEY, state, np.array(u, np.int32))
            assert (end.reward == u[1] + u[2] + 10 * coin * (1 if u[0] else -1)).all()
            assert end.last and (end.discount == 0).all() and np.asarray(end.metrics)[0] == (u[1] + u[2]) / 2
    assert coins == {1.0, -1.0}


def test_one_game_terminates_and_a_repeated_one_is_cut_off() -> None:
    _, single = at(device_env("matrix/climbing", horizon=1), 0, 0, 0, 0)
    assert single.last and (single.discount == 0.0).all()
    env = device_env("matrix/climbing")
    assert env.spec.horizon == 25
    _, middle = at(env, 0, 23, 0, 0)
    _, end = at(env, 0, 24, 0, 0)
    assert not middle.last and end.last and (end.discount == 1.0).all()


def test_own_game_with_different_numbers_of_actions() -> None:
    payoff = np.arange(24.0).reshape(2, 3, 4)
    env = matrix_game(payoff, horizon=3, name="own/game")
    validate(env)
    np.testing.assert_array_equal(payoffs(env), payoff)
    _, start = jax.jit(env.reset)(KEY)
    assert start.legal.sum(1).tolist() == [2, 3, 4]
    assert env.spec.name == "own/game" and env.spec.roles == (0, 1, 2)


def test_roles_are_agents_that_may_be_exchanged() -> None:
    assert device_env("matrix/climbing").spec.roles == (0, 1)
    assert device_env("matrix/penalty").spec.roles == (0, 0)
    assert device_env("matrix/traffic_junction").spec.roles == (0, 0)
    table = np.zeros((2, 2, 2))
    table[1, 0, 1] = 1.0
    assert matrix_game(table).spec.roles == (0, 1, 0)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("matrix/proposition1", {"num_agents": 3}, "must be even"),
        ("matrix/proposition1", {"num_agents": 0}, "at least 2"),
        ("matrix/all_ones", {"num_agents": 0}, "at least 1"),
        ("matrix/loud_agent", {"num_quiet": 0}, "at least 1"),
        ("matrix/loud_agent", {"loudness": -1.0}, "from 0"),
        ("matrix/climbing", {"horizon": 0}, "horizon"),
        ("matrix/penalty", {"k": 1.0}, "k must be a number from"),
        ("matrix/two_state", {"reward": float("inf")}, "reward"),
    ],
)
def test_bad_options(name: str, options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        device_env(name, **options)


@pytest.mark.parametrize("payoff", [3.0, [], [[1.0, 2.0], [3.0]], [[1.0, float("nan")]]])
def test_bad_payoffs(payoff: object) -> None:
    with pytest.raises(InputError, match="payoff"):
        matrix_game(np.asarray(payoff) if isinstance(payoff, float) else payoff)  # pyright: ignore[reportArgumentType]


# Games of rivals.


def test_each_rival_has_its_own_payoff() -> None:
    env = device_env("matrix/rock_paper_scissors")
    assert env.spec.roles == (0, 0) and env.spec.competing == ((0,), (1,)) and env.spec.horizon == 100
    state, _ = jax.jit(env.reset)(KEY)
    for (a, b), won in {(0, 0): 0, (0, 1): -1, (0, 2): 1, (1, 2): -1, (2, 1): 1, (1, 0): 1}.items():
        _, step = jax.jit(env.step)(KEY, state, np.array([a, b], np.int32))
        assert step.reward.tolist() == [won, -won] and step.discount.tolist() == [1, 1]
    pennies = device_env("matrix/matching_pennies", horizon=1)
    assert pennies.spec.roles == (0, 1)
    _, step = jax.jit(pennies.step)(KEY, pennies.reset(KEY)[0], np.array([1, 1], np.int32))
    assert step.reward.tolist() == [1, -1] and bool(step.last) and step.discount.tolist() == [0, 0]


def nash_conv(payoffs: np.ndarray, policies: list[np.ndarray]) -> float:
    """By enumeration of joint actions and of pure deviations."""
    total = 0.0
    for i, table in enumerate(payoffs):
        values = []
        for own in [policies[i], *np.eye(len(policies[i]))]:
            now = [own if j == i else policy for j, policy in enumerate(policies)]
            cells = itertools.product(*(range(len(policy)) for policy in now))
            values.append(sum(table[c] * np.prod([p[a] for p, a in zip(now, c, strict=True)]) for c in cells))
        total += max(values[1:]) - values[0]
    return total


def test_exploitability_is_the_mean_gain_of_best_responses() -> None:
    rng = np.random.default_rng(0)
    payoffs, policies = rng.normal(size=(3, 2, 3, 4)), [rng.dirichlet(np.ones(width)) for width in (2, 3, 4)]
    padded = np.stack([np.pad(policy, (0, 4 - len(policy))) for policy in policies])
    found = exploitability(payoffs, jnp.asarray(padded))
    np.testing.assert_allclose(found, nash_conv(payoffs, policies) / 3, rtol=1e-5)
    rps = np.array(ROCK_PAPER_SCISSORS)
    assert abs(exploitability(np.stack([rps, -rps]), jnp.full((2, 3), 1 / 3))) < 1e-6


def test_the_metric_is_the_exploitability_of_what_was_played() -> None:
    env = device_env("matrix/rock_paper_scissors", horizon=3)
    state, _ = jax.jit(env.reset)(KEY)
    for joint in ((0, 1), (1, 1), (2, 0)):  # agent 0 plays each once; agent 1 paper twice and rock once
        state, step = jax.jit(env.step)(KEY, state, np.array(joint, np.int32))
    # Against (1/3, 2/3, 0) rock earns -2/3, paper 1/3, scissors 1/3, and agent 0's own mix 0; agent 1 cannot gain.
    np.testing.assert_allclose(step.metrics, [(1 / 3 - 0 + 0) / 2], atol=1e-6)
    assert bool(step.last)


@pytest.mark.parametrize(
    "payoffs", [[[1.0, 2.0]], [[[1.0]]], [[[1.0, 2.0]], [[1.0]]], np.full((2, 2, 2), 1e7), np.full((2, 2, 2), np.nan)]
)
def test_payoffs_of_another_shape_are_refused(payoffs: Any) -> None:
    with pytest.raises(InputError, match="payoffs must"):
        payoff_game(payoffs)
