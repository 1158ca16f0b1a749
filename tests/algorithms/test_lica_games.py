"""What LICA learns, what it refuses, and options that only show over several updates."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import lica
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.types import Box, Scale
from support.environments import device_env
from support.small_games import configured, exact_value, payoff, probabilities, train
from support.trajectories import (
    E,
    T,
    assert_trees_close,
    assert_trees_equal,
    distance,
    make_spec,
    make_trajectory,
    program,
)

KEY = jax.random.key(1)
SPEC = make_spec()
SMALL = lica.Config(network=Body((4,), orthogonal=False), mixing_width=3, adam_eps=0.5, learning_rate=0.5)

JUNCTION = {"learning_rate": 1e-2, "critic_learning_rate": 2e-3, "epochs": 5, "target_interval": 1, "entropy_coef": 0.0}


@pytest.mark.slow
def test_at_the_one_step_traffic_junction_exactly_one_goes_whatever_the_initialisation():
    """The paper's section 4.3.1: (1, 0) and (0, 1), both about as often; never both or neither."""
    env = device_env("matrix/traffic_junction")
    config = configured("lica", hidden=(32,), mixing_width=32, **JUNCTION)
    teams = train("lica", env, config, updates=150, seeds=60, num_envs=16)
    before, after = (probabilities(env, config, learner) for learner in (teams.before, teams.after))
    value = exact_value(payoff(env), after)
    assert exact_value(payoff(env), before).mean() == pytest.approx(0.5, abs=0.1)
    goes = after[:, :, 1] > 0.5
    assert (goes[:, 0] != goes[:, 1]).mean() > 0.95 and value.mean() > 0.95
    assert 0.3 < goes[:, 0].mean() < 0.7
    # The critic was told of four joint actions only; at their probabilities it says what the team earns.
    np.testing.assert_allclose(-np.asarray(teams.metrics["policy_loss"])[:, -1].mean(), value.mean(), atol=0.05)


def test_the_target_network_follows_the_critic_and_the_critic_alone_is_climbed():
    prog = program(SPEC, replace(SMALL, target_interval=2))
    traj = make_trajectory(SPEC)
    start = prog.learner._replace(statistics=prog.learner.statistics._replace(target=prog.learner.critic))
    once, _ = prog.update(start, traj, KEY)
    assert_trees_equal(once.statistics.target, start.critic)
    twice, _ = prog.update(once, traj, KEY)
    assert_trees_equal(twice.statistics.target, twice.critic)
    assert distance(once.critic, start.critic) > 1e-4
    # Another target network changes what the critic learns; actors feel it through the critic, and not otherwise.
    other = start._replace(statistics=start.statistics._replace(target=jax.tree.map(lambda x: -x, start.critic)))
    assert distance(prog.update(other, traj, KEY)[0].critic, once.critic) > 1e-4
    ended = traj._replace(outcome=traj.outcome._replace(discount=jnp.zeros_like(traj.outcome.discount)))
    assert_trees_equal(*(prog.update(learner, ended, KEY)[0].policy for learner in (start, other)))


def test_with_value_norm_the_unit_of_reward_does_not_matter():
    """Statistics of targets take it out: the same actors after rewards a hundred times as large."""
    prog = program(SPEC, replace(SMALL, value_norm="running"))
    traj = make_trajectory(SPEC)
    ended = traj._replace(outcome=traj.outcome._replace(discount=jnp.zeros_like(traj.outcome.discount)))
    large = ended._replace(outcome=ended.outcome._replace(reward=ended.outcome.reward * 100))
    (one, _), (other, _) = (prog.update(prog.learner, x, KEY) for x in (ended, large))
    assert_trees_close((one.policy, one.critic), (other.policy, other.critic), 1e-3, 1e-4)


def test_an_illegal_action_s_probability_is_an_input_of_zero():
    """The critic's weights on an action that was legal for nobody do not learn, and actors do not feel them."""
    prog, traj = program(SPEC, replace(SMALL, mixing="mlp")), make_trajectory(SPEC)
    traj = traj._replace(
        step=traj.step._replace(legal=traj.step.legal.at[..., 3].set(False)),
        action=jnp.where(traj.action == 3, 0, traj.action),
    )
    width = SPEC.num_agents * SPEC.obs_dim
    rows = width + 4 * np.arange(SPEC.num_agents) + 3  # of the first layer's kernel
    phi = prog.learner.critic
    kernel = phi["layers"][0]["kernel"]
    shifted = {**phi, "layers": {**phi["layers"], 0: {**phi["layers"][0], "kernel": kernel.at[:, rows].add(5.0)}}}
    one, other = (prog.update(prog.learner._replace(critic=p), traj, KEY)[0] for p in (phi, shifted))
    np.testing.assert_array_equal(one.critic["layers"][0]["kernel"][:, rows], kernel[:, rows])
    assert_trees_equal(one.policy, other.policy)


@pytest.mark.parametrize(
    ("spec", "flags", "words"),
    [
        (make_spec(action=Box(2)), {}, "discrete actions; toy has continuous ones"),
        (SPEC, {"critic_input": "agent"}, "one critic for the team"),
        (SPEC, {"critic_input": "local"}, "one critic for the team"),
        (make_spec(state_dim=0), {"critic_input": "state"}, "no global state"),
        (SPEC, {"hyper_layers": 0}, "hyper_layers must be at least 1"),
        (SPEC, {"mixing_width": 0}, "mixing_width must be at least 1"),
        (SPEC, {"minibatches": 3}, "do not divide into 3 minibatches"),
        (SPEC, {"network": Body((4,), recurrent=3), "chunk_length": 2}, "chunk_length 2 does not divide"),
    ],
)
def test_invalid_input_is_refused(spec, flags, words):
    with pytest.raises(InputError, match=words):
        lica.make(spec, replace(lica.Config(), **flags), Scale(E, T, 1))
