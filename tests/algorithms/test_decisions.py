"""Where agents take turns, entropy, KL and their targets are of the agents that have a choice."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal import algorithms
from shoal.algorithms import happo, hatrpo, mat
from shoal.equations.schedules import RANGE, towards_entropy, towards_kl
from shoal.models import on_policy
from shoal.types import Learner, Scale, Trajectory
from support.algorithm_cases import BASE
from support.trajectories import E, N, T, acted, compiled, make_spec, make_trajectory, program

ACTIONS = 4
TURNS = ((np.arange(T)[:, None] + np.arange(E)) % N)[..., None] == np.arange(N)
pytestmark = pytest.mark.usefixtures("unchecked_annotations")
COMMON: dict[str, Any] = {"critic_input": "local", "value_norm": "none", "learning_rate": 0.3, "epochs": 3}


@cache
def start(config: Any) -> tuple[Learner, Trajectory]:
    """Parameters, and a trajectory of living agents that choose one after the other."""
    spec = make_spec(action_dims=(ACTIONS,) * N)
    prog, traj = program(spec, config), make_trajectory(spec, dead=0.0)
    legal = jnp.array(np.where(TURNS[..., None], True, np.arange(ACTIONS) == 0))
    step, outcome = traj.step._replace(legal=legal), traj.outcome._replace(legal=legal)
    return prog.learner, acted(prog, prog.learner, traj._replace(step=step, outcome=outcome))


@cache
def update_of(turns: bool, config: Any) -> Any:
    """(values of some hyper-parameters) -> what an update makes of the start; compiled once for all values."""
    spec, (learner, traj) = make_spec(turns=turns, action_dims=(ACTIONS,) * N), start(config)
    make = algorithms.get(type(config).__module__.removeprefix("shoal.algorithms.")).make

    def update(values: dict[str, jax.Array]) -> Any:
        algorithm = make(spec, replace(config, **values), Scale(E, T, 10))
        return algorithm.update(learner, traj, jax.random.key(0))

    return compiled(update)


def updated(turns: bool, config: Any, **values: float) -> tuple[Learner, dict[str, float]]:
    learner, metrics = update_of(turns, config)({name: jnp.float32(value) for name, value in values.items()})
    return learner, {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize("direction", [-1, 1])
def test_targets_are_compared_with_the_mean_over_decisions(direction: int) -> None:
    found = {}
    target = np.log(ACTIONS) * (0.7 if direction < 0 else 1.5)
    config = replace(BASE, **COMMON, kl_coef=0.3, kl_target=1e-6, target_entropy=1.0, entropy_coef=0.1)
    before = start(config)[0].statistics.coefficients.log_entropy
    for turns in (True, False):
        learner, metrics = updated(turns, config, target_entropy=target)
        moved = learner.statistics.coefficients.log_entropy - before
        error = np.clip(target - metrics["entropy"], -1, 1)
        assert moved == pytest.approx(config.target_entropy_rate * error, rel=1e-4)
        found[turns] = metrics, float(moved)
    for name in ("entropy", "kl", "kl_update"):
        assert found[True][0][name] == pytest.approx(N * found[False][0][name], rel=1e-4) != 0
    assert found[True][0]["entropy"] <= np.log(ACTIONS) + 1e-5
    assert np.sign(found[True][1]) == direction
    assert found[False][1] > 0, "where all rows count, more entropy than there can be is asked for"


def test_an_update_stops_at_the_kl_of_a_decision() -> None:
    """With turns the limit is that of N times the mean over all rows."""
    own = replace(happo.Config(**COMMON), network=BASE.network, adam_eps=0.5)
    for config in (replace(BASE, **COMMON), own):
        _, free = updated(True, config, kl_stop=1e3)
        limit = 0.8 * free["kl"]  # the mean of three steps, of which the first has none: less than the last one's
        one, with_turns = updated(True, config, kl_stop=limit)
        same, without = updated(False, config, kl_stop=limit / N)
        _, later = updated(False, config, kl_stop=limit)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), one.policy.actor, same.policy.actor
        )
        assert with_turns["epochs_done"] == without["epochs_done"] < later["epochs_done"]


def test_a_joint_quantity_is_decided_where_a_living_agent_has_a_choice() -> None:
    """One of three agents has a choice in the first two rows, of which it is dead in the second."""
    legal = jnp.array(np.where([[[1], [0], [0]], [[1], [0], [0]], [[0], [0], [0]]], True, np.arange(ACTIONS) == 0))
    alive = jnp.array([[True, True, True], [False, True, True], [True, True, True]])
    share = on_policy.share_of_decisions(make_spec(turns=True, action_dims=(ACTIONS,) * N), legal, alive, True)
    assert float(share) == pytest.approx(3 / 8)


def test_the_kl_of_a_joint_ratio_is_that_of_the_teams_decision() -> None:
    """Every agent has the whole team's ratio, and at every timestep one of them has a choice."""
    config = mat.Config(network=replace(BASE.network, hidden=(8,)), ratio="joint", value_norm="none", epochs=2)
    config = replace(config, learning_rate=0.01, kl_coef=0.3, kl_target=1e-6)
    found = [updated(turns, config, kl_stop=1e3)[1] for turns in (True, False)]
    for name, share in (("kl", 1), ("kl_update", 1), ("entropy", N)):
        assert found[0][name] == pytest.approx(share * found[1][name], rel=1e-4) != 0
    limit = 0.8 * found[0]["kl"]
    done = [updated(turns, config, kl_stop=limit)[1]["epochs_done"] for turns in (True, False)]
    assert done[0] == done[1]


def test_a_trust_region_is_that_of_a_decision() -> None:
    config = hatrpo.Config(
        network=BASE.network, critic_input="local", value_norm="none", max_kl=0.01, damping=1e-4, accept_ratio=0.0
    )
    _, with_turns = updated(True, config, max_kl=config.max_kl)
    _, without = updated(False, config, max_kl=config.max_kl)
    assert with_turns["kl"] == pytest.approx(config.max_kl, rel=0.5), "the whole step of the quadratic model"
    assert without["kl"] == pytest.approx(config.max_kl, rel=0.5)
    _, wider = updated(False, config, max_kl=config.max_kl / N)
    assert wider["kl"] * N == pytest.approx(with_turns["kl"], rel=0.05)


def test_adaptive_coefficients_come_back() -> None:
    start, target = 0.3, 0.02
    for kl, end in ((0.0, start / RANGE), (1.0, start * RANGE)):
        coef = jnp.float32(start)
        for _ in range(200):
            coef = towards_kl(coef, jnp.float32(kl), target, start)
        assert coef == pytest.approx(end, rel=1e-5)
        back = towards_kl(coef, jnp.float32(1.0 - kl), target, start)
        assert back == pytest.approx(end * (0.5 if kl else 2.0), rel=1e-5)
    for entropy, end in ((5.0, start / RANGE), (-5.0, start * RANGE)):
        log_coef = jnp.log(jnp.float32(start))
        for _ in range(200):
            log_coef = towards_entropy(log_coef, jnp.float32(entropy), 1.0, 0.5, start)
        assert np.exp(log_coef) == pytest.approx(end, rel=1e-4)
