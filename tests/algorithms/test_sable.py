"""Sable's team: acting and training see the same memory, and values of outcomes follow from it."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import sable
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.types import Box, EnvSpec, Learner, Scale, Trajectory
from support.selection import quick
from support.trajectories import (
    E,
    N,
    Program,
    T,
    acted,
    assert_trees_close,
    compiled,
    make_spec,
    make_trajectory,
    program,
)

KEY = jax.random.key(1)
BASE = sable.Config(
    network=Body((6,), activation="tanh", layer_norm=True, orthogonal=False),
    adam_eps=0.5,
    learning_rate=1.0,
    epochs=1,
    retention_chunk=1,
    heads=2,
)
CASES: dict[str, tuple[EnvSpec, sable.Config]] = {
    "discrete": (make_spec(), BASE),
    "continuous": (make_spec(action=Box(2, -2.0, 1.0)), replace(BASE, blocks=2, order="shuffled", retention_chunk=T)),
    "no memory": (make_spec(), replace(BASE, memory=False, order="shuffled", minibatches=2)),
}
every_case = pytest.mark.parametrize("name", quick(CASES, "discrete"))


@cache
def played(name: str) -> tuple[Program, Learner, Trajectory]:
    """With the states of an episode that goes on, and parameters that make agents listen."""
    spec, config = CASES[name]
    prog = program(spec, config)
    actor = jax.tree.map(lambda x: 4 * x, prog.learner.policy.actor)
    learner = prog.learner._replace(policy=prog.learner.policy._replace(actor=actor))
    rng, carry = np.random.default_rng(0), prog.algorithm.initial_carry(E)
    carry = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), carry)
    if config.memory:
        carry = carry._replace(actor=carry.actor | {"position": jnp.array([0.0, 1.0, 5.0, 2.0])})
    return prog, learner, acted(prog, learner, make_trajectory(spec, carry=carry))


@cache
def evaluated(name: str) -> Any:
    spec, config = CASES[name]
    _, learner, _ = played(name)
    evaluate = sable.make_team(spec, config).evaluate_actions

    def of(traj: Trajectory) -> Any:
        dist, value = evaluate(learner.policy.actor, traj.carry.actor, traj.step, traj.action, traj.extras)
        return dist.log_prob(traj.action), value

    return compiled(of)


@every_case
def test_training_gives_actions_the_probabilities_that_acting_gave_them(name: str) -> None:
    _, _, traj = played(name)
    alive = np.asarray(traj.step.alive)
    log_prob, _ = evaluated(name)(traj)
    np.testing.assert_allclose(log_prob[alive], traj.extras["log_prob"][alive], rtol=1e-5, atol=1e-5)
    assert np.std(log_prob[alive]) > 0.1


def test_an_action_is_remembered_by_later_agents_and_later_timesteps_of_its_episode() -> None:
    _, _, traj = played("discrete")
    before, _ = evaluated("discrete")(traj)
    alive = np.asarray(traj.step.alive)
    rank = np.argsort(np.argsort(~alive, axis=-1, kind="stable"), axis=-1)
    episode = np.cumsum(np.asarray(traj.step.first), 0)
    t, i = 0, 0
    after, _ = evaluated("discrete")(traj._replace(action=traj.action.at[t, :, i].set((traj.action[t, :, i] + 1) % 4)))
    moved = np.abs(np.asarray(before - after)) > 1e-6
    # The token of an agent is its predecessor's action, so the last living agent's is not kept.
    last = rank[t, :, i] == alive[t].sum(-1) - 1
    for e, s, j in np.ndindex(E, T, N):
        if alive[s, e, j] and (s, j) != (t, i):
            reads = rank[s, e, j] > rank[t, e, i] if s == t else episode[s, e] == episode[t, e] and not last[e]
            assert moved[s, e, j] == (alive[t, e, i] and reads), (e, s, j)


def test_the_value_of_an_outcome_continues_its_episode() -> None:
    spec, config = CASES["discrete"]
    _, learner, traj = played("discrete")
    team = sable.make_team(spec, config)
    found = compiled(team.evaluate)(learner, traj)
    _, value = evaluated("discrete")(traj)
    alive, gone = np.asarray(traj.step.alive), np.asarray(traj.outcome.alive)
    np.testing.assert_allclose(found.value[alive], value[alive], rtol=1e-5, atol=1e-5)
    for t in range(T - 1):  # put the outcome in place of the step after it, as that episode's next
        put = lambda x, y, t=t: x.at[t + 1].set(y[t])  # noqa: E731
        step = jax.tree.map(put, traj.step, traj.outcome)
        _, after = evaluated("discrete")(traj._replace(step=step))
        np.testing.assert_allclose(found.next_value[t][gone[t]], after[t + 1][gone[t]], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_length_of_chunks_does_not_change_the_update() -> None:
    spec, config = CASES["discrete"]
    _, learner, traj = played("discrete")
    one, whole = (program(spec, replace(config, retention_chunk=k)).update(learner, traj, KEY) for k in (1, T))
    assert_trees_close(one, whole, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sharing": "independent"}, "^Sable is one network that acts for the whole team: sharing must be 'shared'"),
        ({"network": Body((6,), recurrent=4)}, "^Sable cannot have a recurrent layer"),
        ({"network": Body((6,), network="cnn")}, "^Sable is a network over agents"),
        ({"value_norm": "popart"}, "^Sable's values share their network .* not popart"),
        ({"critic_learning_rate": 1e-3}, "^Sable has one network and one optimiser"),
        ({"critic_input": "concat"}, "local, agent or pruned, not 'concat'"),
        ({"heads": 4}, "4 heads do not divide"),
        ({"retention_chunk": 2}, "retention_chunk 2 does not divide the rollout of 5 steps"),
        ({"minibatches": 3}, "do not divide into 3 minibatches"),
        ({"decay": 1.5}, "decay must be at least 0 and at most 1"),
    ],
)
def test_invalid_input_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        sable.make(make_spec(), replace(BASE, **changes), Scale(E, T, 10))
