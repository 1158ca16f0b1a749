"""A rate that is annealed to 0 is 0 after the run's last update, and not before: one more update changes nothing."""

from typing import Any

import jax
import pytest

from shoal import algorithms
from shoal.options.flags import override
from shoal.types import Scale
from support.trajectories import E, T, assert_trees_equal, distance, make_spec, make_trajectory, program

UPDATES = 4
CASES: dict[str, dict[str, Any]] = {"qmix": {}, "maddpg": {"policies": "inferred"}, "matd3": {"policy_delay": 2}}


@pytest.mark.parametrize("name", CASES)
def test_the_rate_is_0_after_the_last_update_and_not_before(name: str) -> None:
    small = {"hidden": (4,), "orthogonal": False, "learning_rate": 0.1, "lr_final": 0.0, "adam_eps": 0.5}
    config = override(algorithms.get(name).Config(), small | CASES[name])
    prog = program(make_spec(), config, Scale(E, T, UPDATES))
    traj, learner = make_trajectory(make_spec()), prog.learner
    for number in range(UPDATES + 2):
        before = learner
        learner, _ = prog.update(learner, traj, jax.random.key(number))
        trained = (learner.policy.actor, learner.critic), (before.policy.actor, before.critic)
        if number < UPDATES:
            assert distance(*trained) > 1e-5
        else:
            assert_trees_equal(*trained)
