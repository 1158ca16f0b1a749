"""Teams with dicts of observations, and agents that end individually."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shoal.environments.adapters import spaces
from shoal.environments.adapters import values as infos_of
from shoal.environments.adapters.spaces import interface
from shoal.environments.interface import MASK, acted, joint_mask
from shoal.game import HostTimestep
from shoal.spec import Discrete, EnvSpec


class Team:
    """The ``possible_agents`` of a PettingZoo environment; writes their observations in place.

    Args:
        env: an object with PettingZoo's interface.
        name: name of the environment.
        horizon: steps of the longest episode.
        metrics: keys of the infos that are metrics of the episode.
        ask: whether to use the environment's ``state()`` if it has one.
        turns: whether agents take turns.

    Raises:
        InputError: the spaces cannot be those of one team.
    """

    def __init__(
        self, env: Any, name: str, horizon: int, metrics: Sequence[str] = (), ask: bool = True, turns: bool = False
    ):
        self.agents: list[Any] = list(env.possible_agents)
        acts = [env.action_space(agent) for agent in self.agents]
        seen = [spaces.Observation(env.observation_space(agent), name) for agent in self.agents]
        action, dims, self._acts = spaces.actions(acts, name)
        self.send = [partial(acted, form) for form in self._acts]
        """For each agent, the function from its row of the joint action to the environment's action."""
        self._env = env
        self.indices = isinstance(action, Discrete)
        self._in_observation = [observation.masked and self.indices for observation in seen]
        state = _state(env) if ask else None
        self._ask = state is not None
        size = None if state is None else state.size
        spec = spaces.describe(name, self.agents, seen, acts, (action, dims), size, horizon, metrics)
        described = interface("turns" if turns else "parallel", [x.space for x in seen], self._acts)
        self.spec: EnvSpec = replace(spec, interface=described)
        self.observation_bounds = spaces.bounds(seen, spec)
        """See :func:`shoal.environments.adapters.spaces.bounds`."""
        self._reads = [observation.reader(spec.packed) for observation in seen]
        self._widths = spec.obs_dims
        self._absent = [np.zeros(width, np.uint8 if spec.packed else np.float32) for width in spec.obs_dims]
        self._joins = not self._ask and spec.state_dim > 0

    def write(self, seen: Mapping[Any, Any], infos: Mapping[Any, Any], out: HostTimestep) -> None:
        """Write observations, legal actions, state and metrics; agents missing in ``seen`` have zeros."""
        obs, state, joins, indices, at = out.obs, out.state, self._joins, self.indices, 0
        for i, agent in enumerate(self.agents):
            width = self._widths[i]
            row = self._reads[i](seen[agent]) if agent in seen else self._absent[i]
            spaces.check_width(f"{agent}'s observation", row, width)
            obs[i, :width] = row
            if joins:
                state[at : at + width] = row
                at += width
            if self._in_observation[i] and agent in seen:
                self._write_mask(i, seen[agent][MASK], out)
            elif indices and MASK in infos.get(agent, ()):
                self._write_mask(i, infos[agent][MASK], out)
        if self._ask:
            state[:] = np.asarray(self._env.state()).reshape(-1)
        infos_of.write_metrics_of_agents(self.spec.metrics, infos, out)

    def _write_mask(self, i: int, mask: Any, out: HostTimestep) -> None:
        spaces.write_mask(out.legal[i], joint_mask(self._acts[i], mask), self.spec.action_dims[i], self.agents[i])


def _state(env: Any) -> np.ndarray | None:
    """The environment's own global state at the start of an episode; None without a numeric state, or for a picture."""
    if not hasattr(env, "state"):
        return None
    env.reset(seed=0)
    try:
        given = np.asarray(env.state())
        state = given.astype(np.float32)
    except (NotImplementedError, AttributeError, TypeError, ValueError):
        return None
    picture = given.dtype == np.uint8 and given.ndim > 1
    return None if picture else state.reshape(-1)


def end(
    out: HostTimestep, gone: np.ndarray, ended: np.ndarray, cut: np.ndarray, seen: np.ndarray | bool = True
) -> None:
    """Write ``alive``, ``discount``, ``leaving`` and ``last`` for agents that end individually.

    Args:
        out: the timestep, written except for these fields.
        gone: bool [N], agents that ended before; updated.
        ended: bool [N], agents that terminate now.
        cut: bool [N], agents that are truncated now.
        seen: bool [N], agents whose observation at this timestep is known; there is no value to bootstrap from for the
            others.
    """
    before = gone.copy()
    gone |= ended | cut
    if gone.all():
        # Agents that end now keep their last observation, from which a time limit bootstraps.
        out.last[...] = True
        out.alive[before] = False
        out.discount[ended & ~before] = 0.0
        # Agents that ended earlier get the discount of the end of the episode.
        out.discount[before] = float((cut & ~ended & ~before).any())
    else:
        # An agent that is truncated alone leaves with its last observation, from which its time limit bootstraps.
        out.leaving[...] = cut & ~ended & ~before & seen
        out.alive[gone & ~out.leaving] = False
        out.discount[ended & ~before] = 0.0
    out.obs[gone & ~out.alive] = 0.0
