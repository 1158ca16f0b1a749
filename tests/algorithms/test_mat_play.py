"""A trained MAT from end to end: a game that needs to hear the others, evaluation, a replay, deployment as one team."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import shoal as library
import toys
from shoal.algorithms import mat
from shoal.deploy import Policies
from shoal.errors import InputError
from shoal.storage import log
from shoal.types import Discrete, Environment, Scale, Step
from support import trained
from support.mat_cases import BASE, CASES, DEEP, played
from support.trajectories import E, N, make_spec


def different() -> Environment:
    """One shot, three agents who see the same: 1 where no two play the same of three actions.

    Agents that are all alike and act apart earn 6/27 at best; who hears the others can always be right, whatever the
    first one does.
    """
    spec = toys.spec_of("toys/different", (1,) * 3, Discrete(3), 1, score="mean")

    def reset(key: Array) -> tuple[Array, Step]:
        return jnp.int32(0), toys.step_of(spec, jnp.ones(1), 0.0, False, False, first=True)

    def step(key: Array, state: Array, action: Array) -> tuple[Array, Step]:
        clash = (action[:, None] == action).sum() > 3
        return state + 1, toys.step_of(spec, jnp.ones(1), jnp.where(clash, 0.0, 1.0), False, True)

    return Environment(spec, reset, step)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> library.Run:
    flags = {"steps": 45 * 64 * 8, "num_envs": 64, "seeds": 1, "learning_rate": 3e-3, "clip": 0.2}
    flags |= {"agent_id": False, "order": "shuffled", "ratio": "joint"}
    folder = tmp_path_factory.mktemp("mat") / "run"
    return library.train("mat", "test_mat_play:different", folder=folder, **(trained.QUICK | flags))


@pytest.mark.slow
def test_agents_that_see_earlier_actions_never_choose_the_same(run: library.Run) -> None:
    assert np.mean(log.read_log(run.folder)[-1]["return"]) > 0.8  # while exploring
    for greedy in (True, False):
        assert run.evaluate(64, greedy=greedy).mean > 0.8
    policies = library.load(run.folder)
    assert sorted(policies.act(np.ones((3, 1)))) == [0, 1, 2]


def test_mat_is_evaluated_and_drawn(
    run: library.Run, shoal: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, out, _ = shoal("evaluate", run.folder, "--episodes", 8)
    assert code == 0 and "8 episodes" in out
    assert run.replay(tmp_path / "sheet.png", episodes=1).exists()


def test_a_single_agent_of_mat_cannot_act(run: library.Run) -> None:
    with pytest.raises(InputError, match=r" does not act alone: its policy reads .*; use the whole team\.$"):
        library.load(run.folder).agent(0)


@pytest.mark.parametrize("name", CASES)
def test_a_deployed_team_acts_as_in_training(name: str) -> None:
    """Also with some of its agents dead; a state is given where the team reads it."""
    prog, learner, traj = played(name, greedy=True)
    policies, spec = Policies(CASES[name][0], prog.algorithm, learner.policy), CASES[name][0]
    for e in range(E):
        step = jax.tree.map(lambda x, e=e: np.asarray(x[0, e]), traj.step)
        legal = [row[:width] for row, width in zip(step.legal, spec.action_dims, strict=True)]
        acted = policies.act(step.obs, legal, alive=step.alive, state=step.state)
        expected = np.asarray(traj.action[0, e])
        if not isinstance(spec.action, Discrete):
            expected = np.clip(expected, spec.action.low, spec.action.high)
        np.testing.assert_allclose(acted[step.alive], expected[step.alive], rtol=1e-4, atol=1e-4)
    assert not np.asarray(traj.step.alive[0]).all()


def test_a_deployed_team_needs_no_legal_action_of_a_dead_agent_and_asks_for_the_state() -> None:
    """A dead agent needs no legal action; a team that reads the state is told of it."""
    spec = make_spec()
    reads, local = (mat.make(spec, config, Scale(1, 1, 1)) for config in (DEEP, BASE))
    assert (reads.acts_on, local.acts_on) == ("state", "team")
    obs, nothing = np.zeros((N, spec.obs_dim)), np.zeros((N, 4))
    needy = Policies(spec, reads, ())
    with pytest.raises(InputError, match="reads the global state, 4 numbers"):
        needy.act(obs)
    with pytest.raises(InputError, match="global state has width 4, not 3"):
        needy.act(obs, state=np.zeros(3))
    with pytest.raises(InputError, match="agent_1 has no legal action"):
        needy.act(obs, nothing, alive=[False, True, True], state=np.zeros(4))
