"""MAT's configurations and random data, shared so that each is compiled once."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np

from shoal.algorithms import mat
from shoal.equations.distributions import Distribution
from shoal.networks.body import Body
from shoal.networks.inputs import normalised
from shoal.types import Box, EnvSpec, Learner, Step, Trajectory
from support.algorithm_cases import seasoned
from support.trajectories import acted, compiled, make_spec, make_trajectory, program

# A large ε of Adam keeps its steps proportional to the gradient, so that a small error of the gradient stays small.
BASE = mat.Config(
    network=Body((6,), activation="tanh", layer_norm=True, orthogonal=False),
    adam_eps=0.5,
    learning_rate=1.0,
    epochs=1,
    minibatches=1,
)
BOX = make_spec(action=Box(2, -2.0, 1.0))
DEEP = replace(BASE, blocks=2, heads=2, normalise_inputs=True, order="shuffled", critic_input="agent")
CASES: dict[str, tuple[EnvSpec, mat.Config]] = {
    "discrete": (make_spec(), BASE),
    "shuffled": (make_spec(), DEEP),
    "continuous": (BOX, replace(BASE, log_std=-0.2)),
    "squashed": (BOX, replace(DEEP, blocks=1, squash=True, critic_input="pruned", agent_id=False)),
}


@cache
def played(name: str, greedy: bool = False) -> tuple[Any, Learner, Trajectory]:
    """(program, learner in mid-run, trajectory with the actions and extras of its ``act``); about a third are dead.

    Norms have scales around 1, so that agents listen to those before them.
    """
    prog = program(*CASES[name])
    learner = seasoned(prog.learner)

    def louder(path: Any, x: jax.Array) -> jax.Array:
        return x + (path[-1].key == "scale")

    loud = jax.tree_util.tree_map_with_path(louder, learner.policy.actor)
    learner = learner._replace(policy=learner.policy._replace(actor=loud))
    return prog, learner, acted(prog, learner, make_trajectory(CASES[name][0]), greedy=greedy)


@cache
def _evaluation(name: str) -> Any:
    team = mat.make_team(*CASES[name])

    def one(learner: Learner, step: Step, action: Any, extras: Any) -> Any:
        step = normalised(learner.policy.inputs, step)
        return team.evaluate_actions(learner.policy.actor, (), step, action, extras)

    return compiled(one)


def evaluated(name: str, learner: Learner, traj: Trajectory) -> tuple[Distribution, jax.Array]:
    """All agents at once: the distributions of the trajectory's actions, and values."""
    return _evaluation(name)(learner, traj.step, traj.action, traj.extras)


def rank_of(traj: Trajectory) -> np.ndarray:
    """How many agents decode before each [T, E, N]: the noted order, or the fixed one with the dead at its end."""
    if "rank" in traj.extras:
        return np.asarray(traj.extras["rank"])
    order = np.argsort(~np.asarray(traj.step.alive), axis=-1, kind="stable")
    return np.argsort(order, axis=-1)
