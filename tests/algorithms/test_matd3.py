"""MATD3's three changes: the smaller of two critics, blurred target actions, delayed actors and targets."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import matd3
from shoal.errors import InputError
from shoal.models.deterministic import delayed
from shoal.types import Box, Scale
from support.naive_maddpg import BASE, assert_like_loops, made, slow_copies
from support.trajectories import assert_trees_equal, distance, make_spec, make_trajectory

SPEC = make_spec(2, action=Box(2, -2.0, 1.0))
TWIN = matd3.Config(
    **vars(replace(BASE, sharing="shared", policies="inferred")), target_noise=0.4, target_noise_clip=0.3
)


def test_two_updates_are_those_of_loops() -> None:
    """With models of the others, whose actions are blurred like the agent's own."""
    assert_like_loops(SPEC, TWIN)


def test_metrics_stay_those_of_the_last_step_of_the_actors() -> None:
    noted, before, seen = {"loss": jnp.float32(0)}, jnp.float32(0), []
    for step in range(1, 7):
        before, noted = delayed(lambda x: (x + 1, {"loss": 5 * x}), 3, jnp.int32(step), (before,), noted)
        seen.append((float(before), float(noted["loss"])))
    assert seen == [(0, 0), (0, 0), (1, 0), (1, 0), (1, 0), (2, 5)]


def test_actors_and_targets_move_at_every_second_step() -> None:
    prog = made(SPEC, TWIN)
    traj, learner, shown = make_trajectory(SPEC), prog.learner, {"policy_loss": 0.0, "actor_grad_norm": 0.0}
    for t in range(1, 5):
        before = learner
        learner, metrics = prog.update(learner, traj, jax.random.key(t))
        assert distance(learner.critic, before.critic) > 1e-4
        old, new = ((x.policy.actor, *slow_copies(x)[:2], x.optimiser.actor) for x in (before, learner))
        if t % 2:
            assert_trees_equal(new, old)
            assert {name: metrics[name] for name in shown} == shown, "those of the last step of the actors"
        else:
            assert all(distance(x, y) > 1e-5 for x, y in zip(new, old, strict=True))
            shown = {name: metrics[name] for name in shown}
            assert metrics["actor_grad_norm"] > 0


def test_hard_targets_count_the_actors_steps() -> None:
    """With a delay of two and an interval of two, targets are copied at critic steps 4 and 8, and stay otherwise.

    Models of the others take a step in every update; their targets are copied at every second one.
    """
    prog = made(SPEC, replace(TWIN, target_rate=None, target_interval=2))
    traj, learner = make_trajectory(SPEC), prog.learner
    for t in range(1, 9):
        before = learner
        learner, _ = prog.update(learner, traj, jax.random.key(t))
        trained = learner.policy.actor, learner.critic
        assert distance(trained[1], before.critic) > 1e-4
        target, stood = slow_copies(learner), slow_copies(before)
        assert_trees_equal(target[:2], trained if t % 4 == 0 else stood[:2])
        assert distance(learner.statistics.models, before.statistics.models) > 1e-5
        assert_trees_equal(target[2], learner.statistics.models if t % 2 == 0 else stood[2])


def test_smoothed_target_actions_stay_near_and_in_the_box() -> None:
    u = jnp.linspace(-1, 1, 5)[:, None]
    noise = jax.random.normal(jax.random.key(0), (5, 4000))
    blurred = np.asarray(matd3.smoothed(jnp.broadcast_to(u, noise.shape), noise, 0.2, 0.5))
    assert np.abs(blurred).max() <= 1 and np.abs(blurred - u).max() == pytest.approx(0.5, abs=1e-6)
    assert blurred[2].std() == pytest.approx(0.2, rel=0.05)
    assert (blurred[0] == -1).mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy_delay": 0}, "policy_delay must be at least 1 and at most 1e6, not 0."),
        ({"target_noise": -0.1}, "target_noise must be at least 0 and at most 1e6, not -0.1."),
        ({"target_noise_clip": -1.0}, "target_noise_clip must be at least 0 and at most 1e6, not -1."),
    ],
)
def test_invalid_input_is_refused(changes: dict, said: str) -> None:
    with pytest.raises(InputError) as error:
        matd3.make(SPEC, replace(TWIN, **changes), Scale(4, 5, 10))
    assert str(error.value) == said
