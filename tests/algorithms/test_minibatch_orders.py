"""Every epoch, every agent's turn and the critic's fit draw an order of minibatches of their own.

Two timesteps in two minibatches can stand in two orders. Over three epochs that makes eight sequences of gradient
steps, of which a key that is used again in every epoch would leave two. Only results are compared: the same sequence
gives the same parameters to the bit, another sequence gives others.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from shoal import algorithms
from shoal.options.flags import override
from shoal.types import Scale
from support.trajectories import make_spec, make_trajectory, program

SPEC = make_spec(2)
FLAGS: dict[str, Any] = {
    "hidden": (4,), "orthogonal": False, "epochs": 3, "minibatches": 2, "learning_rate": 0.1, "order": "fixed",
    "target_interval": 1000,
}  # fmt: skip
KEYS = 32


def distinct(trees: list[Any]) -> int:
    return len({b"".join(x.tobytes() for x in jax.tree.leaves(jax.device_get(tree))) for tree in trees})


@pytest.mark.parametrize("name", ["happo", "coma", "mat"])
def test_every_epoch_has_another_order_of_minibatches(name: str) -> None:
    prog = program(SPEC, override(algorithms.get(name).Config(), FLAGS), Scale(2, 1, 10))
    traj = make_trajectory(SPEC, length=1, envs=2, dead=0.0)
    # Every episode ends, so that no action is drawn for what comes after it.
    traj = traj._replace(outcome=traj.outcome._replace(discount=jnp.zeros_like(traj.outcome.discount)))
    learners = [prog.update(prog.learner, traj, jax.random.key(k))[0] for k in range(KEYS)]
    assert 4 < distinct([x.policy.actor if name == "mat" else x.critic for x in learners]) <= 8
    if name == "happo":
        leaves = [jax.tree.leaves(x.policy.actor) for x in learners]
        assert 4 < distinct([[x[:1] for x in actor] for actor in leaves]) <= 8  # the first agent's policy
        assert distinct(leaves) > 12  # of both agents, whose orders do not go together
