"""Teams whose observations come in a dict, and agents that end one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shoal.environments.adapters import infos as infos_of
from shoal.environments.adapters import spaces
from shoal.environments.adapters.interface import interface
from shoal.environments.conversion import MASK
from shoal.environments.forms import acted, joint_mask
from shoal.game import HostTimestep
from shoal.spec import Discrete, EnvSpec


class Team:
    """The ``possible_agents`` of a PettingZoo environment, and what they see, written in place.

    Args:
        env: with PettingZoo's interface.
        name: how the environment is called.
        horizon: steps of the longest episode.
        metrics: which numbers of the infos are metrics of the episode.
        ask: whether to use the environment's ``state()``, where it has one.
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
        """What turns each agent's row of the joint action into its own action."""
        self._env = env
        self._reads = [observation.read for observation in seen]
        self._widths = [observation.width for observation in seen]
        self._absent = [np.zeros(width, np.float32) for width in self._widths]
        self.indices = isinstance(action, Discrete)
        self._in_observation = [observation.masked and self.indices for observation in seen]
        state = _state(env) if ask else None
        self._ask = state is not None
        size = None if state is None else state.size
        spec = spaces.describe(name, self.agents, seen, acts, (action, dims), size, horizon, metrics)
        described = interface("turns" if turns else "parallel", [x.space for x in seen], self._acts)
        self.spec: EnvSpec = replace(spec, interface=described)

    def write(self, seen: Mapping[Any, Any], infos: Mapping[Any, Any], out: HostTimestep) -> None:
        """Observations, legal actions, the state and metrics; agents that ``seen`` lacks get zeros."""
        obs, state, ask, indices, at = out.obs, out.state, self._ask, self.indices, 0
        for i, agent in enumerate(self.agents):
            width = self._widths[i]
            row = self._reads[i](seen[agent]) if agent in seen else self._absent[i]
            spaces.check_width(f"{agent}'s observation", row, width)
            obs[i, :width] = row
            if not ask:
                state[at : at + width] = row
                at += width
            if self._in_observation[i] and agent in seen:
                spaces.write_mask(out.legal[i], joint_mask(self._acts[i], seen[agent][MASK]))
            elif indices and MASK in infos.get(agent, ()):
                spaces.write_mask(out.legal[i], joint_mask(self._acts[i], infos[agent][MASK]))
        if ask:
            state[:] = np.asarray(self._env.state()).reshape(-1)
        infos_of.write_of_agents(self.spec.metrics, infos, out)


def _state(env: Any) -> np.ndarray | None:
    """The environment's own global state, at the start of an episode, where it has one of numbers."""
    if not hasattr(env, "state"):
        return None
    env.reset(seed=0)
    try:
        state = np.asarray(env.state(), np.float32)
    except (NotImplementedError, AttributeError, TypeError, ValueError):
        return None
    return state.reshape(-1)


def end(out: HostTimestep, gone: np.ndarray, ended: np.ndarray, cut: np.ndarray) -> None:
    """Write which agents end here, each on its own, and keep in ``gone`` who has ended.

    Args:
        out: written already, but for ``alive``, ``discount`` and ``last``.
        gone: bool [N], who had ended before; updated.
        ended: bool [N], who terminates now.
        cut: bool [N], who is cut off now.
    """
    before = gone.copy()
    gone |= ended | cut
    if gone.all():
        # Those who are still there keep their last observation, from which a time limit bootstraps.
        out.last[...] = True
        out.alive[before] = False
        out.discount[ended & ~before] = 0.0
        # Who ended earlier follows the episode: one number where all of it is a time limit or a termination.
        out.discount[before] = float((cut & ~ended & ~before).any())
    else:
        out.alive[gone] = False
        out.discount[ended & ~before] = 0.0
        before |= ended
    out.obs[before & ~out.alive] = 0.0
