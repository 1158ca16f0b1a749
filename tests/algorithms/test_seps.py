"""Who shares with whom: the types of a team are found from what its members live through, whatever their number."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import ia2c, seps
from shoal.errors import InputError
from shoal.types import Box, Decision, EnvSpec, Scale, Trajectory
from support.trajectories import make_spec, make_trajectory

N, T, E = 4, 100, 32
SCALE = Scale(4, 5, 10)
QUICK = seps.Config(pretrain_updates=1500, pretrain_batch=64, pretrain_rate=1e-2, latent=4)
SPEC = make_spec(N, obs_dims=(4,) * N, roles=(0,) * N)


def lived(spec: EnvSpec, types: tuple[int, ...], seed: int = 0, dead: float = 0.1) -> Trajectory:
    """Noise that agents drift through; an agent's reward is that feature of what it saw that its type is after."""
    traj = make_trajectory(spec, seed, length=T, envs=E, dead=dead)
    step, outcome = traj.step, traj.outcome
    reward = jnp.take_along_axis(step.obs, jnp.broadcast_to(jnp.array(types)[:, None], (T, E, N, 1)), -1)[..., 0]
    outcome = outcome._replace(obs=step.obs + 0.1 * outcome.obs, reward=5.0 * reward)
    return traj._replace(outcome=outcome)


def decided(config: seps.Config, traj: Trajectory, spec: EnvSpec = SPEC) -> Decision:
    preparation = seps.prepare(spec, config, SCALE)
    assert preparation is not None
    return preparation.decide(traj, jax.random.key(0))


@pytest.mark.parametrize(
    "types",
    [
        pytest.param((0, 0, 0, 0), marks=pytest.mark.slow),
        pytest.param((0, 1, 1, 0), marks=pytest.mark.slow),
        (2, 1, 0, 0),
    ],
)
def test_the_types_are_found(types: tuple[int, ...]) -> None:
    found = decided(QUICK, lived(SPEC, types))
    order = list(dict.fromkeys(types))
    assert found.config.sharing == tuple(order.index(kind) for kind in types)
    assert found.config == replace(QUICK, sharing=found.config.sharing)
    assert found.report["tried"][-1]["clusters"] == len(order)
    count = "1 policy" if len(order) == 1 else f"{len(order)} policies"
    assert found.message == f"4 agents share {count}: {' '.join(map(str, found.config.sharing))}."


def test_as_many_types_as_agents() -> None:
    """K = N, which the index that the authors scan cannot choose."""
    traj = lived(SPEC, (0, 1, 2, 3))
    assert decided(QUICK, traj).config.sharing == (0, 1, 2, 3)
    assert max(decided(replace(QUICK, criterion="davies_bouldin"), traj).config.sharing) < 3


def test_types_are_found_by_next_observations_or_by_actions() -> None:
    """The same rewards for all; some agents' observations move the other way, or they push the other way."""
    spec = make_spec(N, action=Box(3, -1.0, 1.0), action_dims=(3,) * N, obs_dims=(3,) * N, roles=(0,) * N)
    traj = lived(spec, (0, 0, 0, 0))
    sign = jnp.array([1.0, -1.0, -1.0, 1.0])[:, None]
    moved = traj._replace(outcome=traj.outcome._replace(obs=traj.step.obs + sign * traj.action))
    assert decided(QUICK, moved, spec).config.sharing == (0, 1, 1, 0)


def test_dead_agents_do_not_affect_the_clusters() -> None:
    """Neither NaN nor anything else that stands in a dead agent's place changes a number."""
    traj = lived(SPEC, (0, 1, 1, 0), dead=0.4)
    dead = ~np.asarray(traj.step.alive)[..., None]
    gone = ~np.asarray(traj.outcome.alive)
    spoiled = traj._replace(
        step=traj.step._replace(obs=jnp.where(dead, jnp.nan, traj.step.obs)),
        outcome=traj.outcome._replace(
            obs=jnp.where(gone[..., None], jnp.inf, traj.outcome.obs),
            reward=jnp.where(gone, jnp.nan, traj.outcome.reward),
        ),
    )
    one, other = (decided(QUICK, x).report for x in (traj, spoiled))
    np.testing.assert_array_equal(one["codes"], other["codes"])
    assert one["tried"] == other["tried"] and one["policy_of"] == (0, 1, 1, 0)


def test_the_number_of_policies_can_be_given() -> None:
    traj = lived(SPEC, (0, 1, 1, 2))
    found = decided(replace(QUICK, clusters=3), traj)
    assert found.config.sharing == (0, 1, 1, 2) and found.report["tried"] == []
    assert max(decided(replace(QUICK, clusters=2), traj).config.sharing) == 1


LINE = np.array([[0.0], [0.1], [5.0], [5.1], [9.0]], np.float32)


def judged(cost: float, noise: float) -> Any:
    """Codes are charged ``cost`` for their distance from LINE, give or take ``noise`` in each of 8 environments."""
    luck = np.random.default_rng(0).normal(size=(8, 1))
    luck = (luck - luck.mean()) / luck.std(ddof=1) * np.sqrt(8)  # a standard error of 1

    def judge(codes: np.ndarray) -> np.ndarray:
        far = np.abs(codes - LINE)[:, 0]
        return 1.0 + cost * far + noise * luck * far.mean() * np.ones(5)

    return judge


def test_the_fewest_clusters_that_cost_no_more_than_chance_explains() -> None:
    """The mean distance is 3.1 from one centre, 0.7 with two and 0.04 with three, which all cost more than nothing."""
    assert seps.fewest(LINE, judged(1.0, 0.45), 0)[0] == (0, 1, 2, 3, 4)
    labels, report = seps.fewest(LINE, judged(1.0, 0.55), 0)  # twice 0.55 standard errors cover a cost of 1
    assert labels == (0, 0, 0, 0, 0) and [row["clusters"] for row in report["tried"]] == [1]
    assert report["tried"][0]["excess"] == pytest.approx(report["tried"][0]["standard_error"] / 0.55, rel=1e-4)
    assert seps.fewest(LINE, judged(-1.0, 0.0), 0)[0] == (0, 0, 0, 0, 0)


def test_the_davies_bouldin_index_selects_the_clearest_clusters() -> None:
    points = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [9.0], [9.1]], np.float32)
    labels, report = seps.clearest(points, 0)
    assert labels == (0, 0, 0, 1, 1, 1, 2, 2)
    assert [row["clusters"] for row in report["tried"]] == [2, 3, 4, 5, 6, 7]


def test_the_number_of_policies_is_not_given_with_the_sharing() -> None:
    for sharing in ("shared", "independent", (0, 0, 1, 1)):
        with pytest.raises(InputError, match="clusters needs sharing 'learned'"):
            seps.prepare(SPEC, replace(QUICK, sharing=sharing, clusters=3), SCALE)
    decided = replace(QUICK, sharing=(0, 1, 1, 2), clusters=3)  # as a run keeps it, which is resumed
    assert seps.prepare(SPEC, decided, SCALE) is None


def test_given_sharing_needs_no_experience() -> None:
    for sharing in ("shared", "role", "independent", (0, 0, 1, 1)):
        assert seps.prepare(SPEC, replace(QUICK, sharing=sharing), SCALE) is None
    config = replace(QUICK, sharing=(0, 0, 1, 1), learning_rate=0.5)
    mine = seps.make(SPEC, config, SCALE)
    other = ia2c.make(SPEC, ia2c.Config(sharing=(0, 0, 1, 1), agent_id=False, learning_rate=0.5), SCALE)
    learners = [jax.eval_shape(algorithm.init, jax.random.key(0)) for algorithm in (mine, other)]
    shapes = [[x.shape for x in jax.tree.leaves((learner.policy.actor, learner.critic))] for learner in learners]
    assert shapes[0] == shapes[1] and {shape[0] for shape in shapes[0]} == {2}


@pytest.mark.parametrize(
    ("spec", "changes", "words"),
    [
        (SPEC, {"clusters": 5}, "clusters is 5, but toy has only 4 agents"),
        (SPEC, {"clusters": 0}, "clusters must be at least 1"),
        (make_spec(2), {"criterion": "davies_bouldin"}, "toy has 2 agents; use held_out"),
        (SPEC, {"latent": 0}, "latent must be at least 1"),
        (SPEC, {"pretrain_steps": 0}, "pretrain_steps must be at least 1"),
        (SPEC, {"pretrain_rate": 0.0}, "pretrain_rate must be above 0"),
        (SPEC, {"kl_weight": -1.0}, "kl_weight must be at least 0"),
        (SPEC, {"gamma": 1.5}, "gamma must be at least 0 and at most 1"),
        (make_spec(N, state_dim=0), {"critic_input": "state"}, "has no global state"),
    ],
)
def test_bad_options_are_refused_before_anything_is_played(spec: EnvSpec, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        seps.prepare(spec, replace(QUICK, **changes), SCALE)


def test_an_environment_that_gives_nan_is_named() -> None:
    traj = lived(SPEC, (0, 0, 0, 0))
    broken = traj._replace(outcome=traj.outcome._replace(reward=jnp.full((T, E, N), jnp.nan)))
    with pytest.raises(InputError, match="toy gives observations or rewards that are not finite"):
        decided(QUICK, broken)
