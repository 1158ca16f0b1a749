"""Whole updates of HADDPG and HATD3 against NumPy (naive_team.py), and what distinguishes them from MADDPG."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from shoal.algorithms import haddpg, hatd3
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.types import Box, Scale
from support.naive_team import assert_like_loops, made
from support.trajectories import assert_trees_equal, distance, make_spec, make_trajectory

# A large ε of Adam keeps its steps proportional to the gradient; the norm is sometimes clipped, sometimes not.
BASE = haddpg.Config(
    network=Body((6,), activation="relu", orthogonal=False), gamma=0.9, adam_eps=0.5, learning_rate=3.0,
    critic_learning_rate=0.3, target_rate=0.1, logit_coef=0.05, max_grad_norm=0.6,
)  # fmt: skip
BOX = make_spec(action=Box(2, -2.0, 1.0), shared_reward=True)
TWIN = hatd3.Config(**vars(replace(BASE, n_step=5)), target_noise=0.4, target_noise_clip=0.3)
CASES: dict[str, tuple[Any, Any]] = {
    "discrete, by role, state": (make_spec(), replace(BASE, sharing="role", critic_input="state")),
    "box, twins, five steps": (BOX, TWIN),
}


@pytest.mark.parametrize("name", CASES)
def test_two_updates_are_those_of_numpy(name: str) -> None:
    assert_like_loops(*CASES[name])


def test_actors_and_targets_move_at_every_second_step() -> None:
    prog = made(*CASES["box, twins, five steps"])
    traj, learner = make_trajectory(BOX, envs=8), prog.learner
    shown = {"policy_loss": 0.0, "actor_grad_norm": 0.0}
    for t in range(1, 5):
        before = learner
        learner, metrics = prog.update(learner, traj, jax.random.key(t))
        assert distance(learner.critic, before.critic) > 1e-4
        old, new = ((x.policy.actor, x.statistics.target, x.optimiser.actor) for x in (before, learner))
        if t % 2:
            assert_trees_equal(new, old)
            assert {name: metrics[name] for name in shown} == shown, "those of the last step of the actors"
        else:
            assert all(distance(x, y) > 1e-5 for x, y in zip(new, old, strict=True))
            shown = {name: metrics[name] for name in shown}
            assert metrics["actor_grad_norm"] > 0


def test_the_target_of_a_window_ends_with_the_episode() -> None:
    """Rewards, observations and legal actions after an end change nothing."""
    prog = made(*CASES["box, twins, five steps"])
    traj = make_trajectory(BOX, envs=8)
    last = np.asarray(traj.outcome.last)
    assert last[:-1].any(), "an episode ends within a window"
    after = np.cumsum(last, 0) - last > 0
    out = traj.outcome

    def other(x: jax.Array) -> jax.Array:
        return jax.numpy.where(after.reshape(*after.shape, *(1,) * (x.ndim - 2)), 7.0, x)

    changed = out._replace(obs=other(out.obs), reward=other(out.reward), discount=other(out.discount))
    key = jax.random.key(0)
    assert_trees_equal(
        prog.update(prog.learner, traj, key)[0], prog.update(prog.learner, traj._replace(outcome=changed), key)[0]
    )


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (replace(TWIN, policy_delay=0), "policy_delay must be at least 1 and at most 1e6, not 0."),
        (
            replace(BASE, network=Body((4,), recurrent=3)),
            "This algorithm trains feed-forward nets on single transitions: leave out recurrent.",
        ),
    ],
)
def test_invalid_input_is_refused(config: Any, said: str) -> None:
    with pytest.raises(InputError) as error:
        (hatd3 if isinstance(config, hatd3.Config) else haddpg).make(BOX, config, Scale(4, 5, 10))
    assert str(error.value) == said
