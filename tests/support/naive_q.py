"""Q-learning's stages as plain loops in NumPy: what agents think of their actions, and layers by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.models.utilities import make_utilities
from shoal.networks.sharing import policy_of
from shoal.types import EnvSpec, Step, Trajectory
from support.trajectories import compiled


def utilities(spec: EnvSpec, config: Any, params: Any, traj: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """[T, E, N, A] in every moment and in its outcome, one moment after the other, from the state stored with the first
    one, if there is one, and otherwise from zeros."""
    net, q = make_utilities(spec, config.network, policy_of(spec, config.sharing), config.agent_id)
    q = compiled(q)
    length, envs = traj.step.first.shape
    state, now, then = net.initial_carry((envs,)), [], []
    if "recurrent_state0" in traj.extras:
        state = jax.tree.map(lambda _: traj.extras["recurrent_state0"][0], state)

    def look(state: Any, step: Step, t: int) -> tuple[Any, np.ndarray]:
        one = jax.tree.map(lambda x: x[t : t + 1], step)
        state, value = q(params, state, one._replace(first=jnp.zeros_like(one.first)))
        return jax.tree.map(lambda h: h[-1], state), np.asarray(value[0], np.float64)

    for t in range(length):
        new = traj.step.first[t][:, None, None]
        state = jax.tree.map(lambda h, new=new: jnp.where(new, 0.0, h), state)
        state, value = look(state, traj.step, t)
        now.append(value)
        then.append(look(state, traj.outcome, t)[1])
    return np.array(now), np.array(then)


def at(q: np.ndarray, action: Any, alive: Any) -> np.ndarray:
    return np.where(np.asarray(alive), np.take_along_axis(q, np.asarray(action)[..., None], -1)[..., 0], 0.0)


def greedy(q: np.ndarray, step: Step) -> np.ndarray:
    return np.where(np.asarray(step.legal), q, -np.inf).argmax(-1)


def team(traj: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """The team's (reward, discount), [T, E] each."""
    alive, discount = np.asarray(traj.step.alive | traj.outcome.alive), np.asarray(traj.outcome.discount, np.float64)
    there = np.where(alive, discount, 0).max(-1)
    return np.asarray(traj.outcome.reward, np.float64).mean(-1), np.where(alive.any(-1), there, discount.max(-1))


def dense(params: Any, x: np.ndarray) -> np.ndarray:
    """Layers with ReLU and a linear head, for one row of features."""
    layers = params.get("layers", [])
    for i in range(len(layers)):
        x = np.maximum(x @ np.asarray(layers[i]["kernel"][0], np.float64) + np.asarray(layers[i]["bias"][0]), 0)
    return x @ np.asarray(params["head"]["kernel"][0], np.float64) + np.asarray(params["head"]["bias"][0])


def one_hot(action: np.ndarray, alive: np.ndarray, width: int) -> np.ndarray:
    """The joint action of one moment in a row."""
    return (np.eye(width)[action] * alive[:, None]).ravel()
