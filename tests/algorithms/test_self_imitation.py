"""The example that adds a term to MAPPO's loss: the term is what its docstring says, and without it this is MAPPO."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import self_imitation
from shoal.bounds import check_bounds
from shoal.errors import InputError
from shoal.models.actor_critic import make_nets
from shoal.networks.sharing import policy_of
from shoal.presets import preset, preset_note
from support.algorithm_cases import BASE
from support.trajectories import (
    acted,
    assert_trees_equal,
    critic_advantage,
    distance,
    make_spec,
    make_trajectory,
    program,
)

KEY = jax.random.key(1)
SPEC = make_spec()
PLAIN = replace(BASE, critic_input="local", epochs=1)


@cache
def updated(coefficient: float | None) -> tuple[Any, Any, Any, dict[str, Any]]:
    """(trajectory, learner and metrics after an update) with the term, or of MAPPO for None."""
    extended = None if coefficient is None else self_imitation.Config(**vars(PLAIN), imitation_coef=coefficient)
    prog = program(SPEC, PLAIN if extended is None else extended)
    traj = acted(prog, prog.learner, make_trajectory(SPEC))
    return prog, traj, *prog.update(prog.learner, traj, KEY)


def test_without_the_term_it_is_mappo() -> None:
    _, _, learner, metrics = updated(None)
    _, _, other, found = updated(0.0)
    assert_trees_equal(other, learner)
    assert found.keys() - metrics.keys() == {"imitation"}


def test_the_term_is_the_weighted_sum_of_log_probabilities() -> None:
    prog, traj, learner, metrics = updated(0.5)
    nets = make_nets(SPEC, PLAIN, policy_of(SPEC, PLAIN.sharing), True)
    alive = np.asarray(traj.step.alive)
    advantage = np.asarray(critic_advantage(SPEC, PLAIN, nets, prog.learner, traj))[alive]
    better = np.maximum((advantage - advantage.mean()) / advantage.std(), 0)
    log_prob = np.asarray(traj.extras["log_prob"])[alive]  # of the policy that is updated: its first step
    assert metrics["imitation"] == pytest.approx(-(better * log_prob).mean(), rel=1e-3)
    assert distance(learner.policy.actor, updated(0.0)[2].policy.actor) > 1e-4
    assert distance(learner.critic, updated(0.0)[2].critic) < 1e-6  # the critic's loss is as it was


def test_the_coefficient_of_self_imitation_is_bounded() -> None:
    with pytest.raises(InputError, match="imitation_coef must be at least 0"):
        check_bounds(replace(self_imitation.Config(), imitation_coef=-1.0))


@pytest.mark.parametrize("environment", ["mpe/simple_spread", "skirmish/3m"])
def test_it_has_the_preset_of_the_algorithm_whose_config_it_inherits(
    environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "self_imitation:make"
    assert preset(name, environment) == preset("mappo", environment) != {}
    assert preset_note(name, environment) == "preset: from mappo"
    assert preset_note(f"mappo+{name}", environment) == "preset: mappo + from mappo"
    monkeypatch.setattr(self_imitation, "PRESETS", {environment: {"gamma": 0.5}}, raising=False)
    assert preset(name, environment) == {"gamma": 0.5} and preset_note(name, environment) == f"preset: {name}"
    assert preset(name, "mpe/simple_tag") == preset("mappo", "mpe/simple_tag")  # no pattern of its own matches


def test_a_module_that_inherits_no_config_has_no_preset() -> None:
    assert (
        preset("sarsa:make", "mpe/simple_tag") == {} and preset_note("sarsa:make", "mpe/simple_tag") == "preset: none"
    )
