"""MAT-Dec: the encoder values what all living agents see; actors see their own."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import mat_dec
from shoal.equations.normalise import VALUES, denormalise
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.types import Scale
from support.trajectories import E, N, T, acted, compiled, distance, make_spec, make_trajectory, program

SPEC, KEY = make_spec(), jax.random.key(1)
CONFIG = mat_dec.Config(
    network=Body((6,), orthogonal=False),
    adam_eps=0.5,
    learning_rate=1.0,
    epochs=1,
    sharing="independent",
    value_norm="popart",
    value_norm_beta=0.5,
    heads=2,
)


@cache
def values() -> Any:
    return compiled(mat_dec.make_critic(SPEC, CONFIG).values)


def test_each_living_agent_s_value_depends_on_all_living_agents_and_on_no_dead_one() -> None:
    learner, traj = program(SPEC, CONFIG).learner, make_trajectory(SPEC)
    alive, value = np.asarray(traj.step.alive), values()(learner.critic, (), traj.step)[1]
    assert value.shape == (T, E, N)
    for j in range(N):
        other = traj.step._replace(obs=traj.step.obs.at[:, :, j].multiply(-2.0))
        moved = np.asarray(values()(learner.critic, (), other)[1] != value)
        np.testing.assert_array_equal(moved[alive], np.broadcast_to(alive[..., j : j + 1], moved.shape)[alive])


def test_actors_are_their_own_and_the_encoder_is_one() -> None:
    prog = program(SPEC, CONFIG)
    assert prog.algorithm.acts_on == "own"
    assert {x.shape[0] for x in jax.tree.leaves(prog.learner.policy.actor)} == {N}
    assert {x.shape[0] for x in jax.tree.leaves(prog.learner.critic)} == {1}


def test_popart_keeps_predictions_while_its_statistics_move() -> None:
    """With a critic step of no size, the values in units of reward stay where they were."""
    prog = program(SPEC, replace(CONFIG, critic_learning_rate=1e-12))
    traj = acted(prog, prog.learner, make_trajectory(SPEC))
    traj = traj._replace(outcome=traj.outcome._replace(reward=10 * traj.outcome.reward + 5))
    after, metrics = prog.update(prog.learner, traj, KEY)

    def in_reward(learner: Any) -> jax.Array:
        return denormalise(learner.statistics.value, values()(learner.critic, (), traj.step)[1][..., None], VALUES)

    np.testing.assert_allclose(in_reward(after), in_reward(prog.learner), rtol=1e-3, atol=1e-3)
    assert distance(after.critic, prog.learner.critic) > 0.1 and all(jnp.isfinite(x) for x in metrics.values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"critic_input": "concat"}, "local, agent or pruned, not 'concat'"),
        ({"baseline": "optimal"}, "baseline must be value, not 'optimal'"),
        ({"dead_value": "masked"}, "dead_value must be team, not 'masked'"),
        ({"heads": 5}, "5 heads do not divide"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"sharing": (0, 2, 1, 0)}, "must give each of the 3 agents a policy"),
    ],
)
def test_invalid_input_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        mat_dec.make(SPEC, replace(CONFIG, **changes), Scale(E, T, 10))
