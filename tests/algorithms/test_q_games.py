"""What value decomposition can and cannot represent, in the papers' games, with actions drawn uniformly throughout."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from shoal.algorithms import get, vdn
from shoal.environments.matrix import MONOTONICITY, TWO_STEP, matrix_game
from shoal.types import Environment
from support.environments import device_env
from support.joint_values import after, tables
from support.small_games import configured, train

EXPLORE = {"epsilon": 1.0, "epsilon_final": 1.0, "sharing": "independent", "hidden": (8,)}
SMALL = {"learning_starts": 64, "buffer_size": 4096, "batch_size": 32, "target_interval": 25, "learning_rate": 4e-3}
ONE_STEP = ((12.0, -0.1, -0.1), (-0.1, 0.0, 0.0), (-0.1, 0.0, 0.0))


def taught(
    name: str, env: Environment, starts: list[tuple], *, updates: int, seeds: int = 6, num_envs: int = 16, **flags: Any
) -> tuple[np.ndarray, np.ndarray]:
    """([seeds, states, A, A] Q_tot, [seeds, states, N] greedy actions) in the states that ``starts`` lead to."""
    config = configured(name, **EXPLORE, **(SMALL | flags))
    teams = train(name, env, config, updates=updates, seeds=seeds, num_envs=num_envs, length=env.spec.horizon)
    mixer = vdn.MIX if name == "vdn" else get(name).make_mixer(env.spec, config)
    return tables(env, config, mixer, teams.after, [after(env, *actions) for actions in starts])


@cache
def two_step(name: str) -> tuple[np.ndarray, np.ndarray]:
    starts = [(), ((0, 0),), ((1, 0),)]  # the start, 2A and 2B
    return taught(name, device_env("matrix/two_step"), starts, updates=500, seeds=4, num_envs=8)


def monotonicity(name: str, **flags: Any) -> tuple[np.ndarray, np.ndarray]:
    q, greedy = taught(name, device_env("matrix/monotonicity"), [()], **flags)
    return q[:, 0], greedy[:, 0]


def earned(payoff: Any, greedy: np.ndarray) -> np.ndarray:
    return np.array(payoff)[tuple(greedy.T)]


def test_qmix_solves_the_two_step_game() -> None:
    """Rashid et al. 2018, table 1b, with γ = 0.99, so that what comes a step later is worth 0.99 of it."""
    q, greedy = two_step("qmix")
    best = [[[6.93, 6.93], [7.92, 7.92]], *TWO_STEP[1:]]
    np.testing.assert_allclose(q, np.broadcast_to(best, q.shape), atol=0.2)
    assert (greedy[:, 0, 0] == 1).all() and (earned(TWO_STEP[2], greedy[:, 2]) == 8).all()


@pytest.mark.slow
def test_vdn_takes_the_safe_seven_in_the_two_step_game() -> None:
    """Table 1a: a sum cannot say [[0, 1], [1, 8]], thinks its best 6.5, and goes for 7."""
    q, greedy = two_step("vdn")
    assert (greedy[:, 0, 0] == 0).all()
    np.testing.assert_allclose(q[:, 2].mean(0), [[-1.5, 2.5], [2.5, 6.5]], atol=0.25)
    np.testing.assert_allclose(q[:, 0].mean(0), [[6.93, 6.93], [6.4, 6.4]], atol=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vdn", "qmix"])
def test_monotone_mixers_miss_the_optimum_that_miscoordination_surrounds(name: str) -> None:
    """Son et al. 2019, table 1: the best joint action is the worst on average, so both agents avoid it."""
    q, greedy = monotonicity(name, updates=250)
    assert (earned(MONOTONICITY, greedy) == 0).all() and (q[:, 0, 0] < -3).all()


@pytest.mark.slow
def test_qtran_learns_the_whole_payoff_matrix() -> None:
    q, greedy = monotonicity("qtran", updates=400, mixing_width=32)
    np.testing.assert_allclose(q, np.broadcast_to(MONOTONICITY, q.shape), atol=0.3)
    assert (greedy == 0).all()


@pytest.mark.slow
def test_qplex_finds_the_optimum_from_most_initialisations() -> None:
    """Its weights λ have to outrun the utilities, hence the small nets for these and deep ones for those."""
    attention = {"heads": 32, "attention_layers": 3, "attention_width": 32}
    q, greedy = monotonicity("qplex", updates=1000, seeds=12, learning_rate=2e-3, target_interval=50, **attention)
    found = (greedy == 0).all(-1)
    assert found.mean() >= 0.5
    np.testing.assert_allclose(np.median(q[found], 0), MONOTONICITY, atol=1.0)


@pytest.mark.slow
def test_qmix_solves_a_matrix_whose_optimum_is_best_on_average() -> None:
    q, greedy = taught("qmix", matrix_game(ONE_STEP), [()], updates=250)
    assert (greedy == 0).all()
    np.testing.assert_allclose(q[:, 0], np.broadcast_to(ONE_STEP, q[:, 0].shape), atol=0.5)
