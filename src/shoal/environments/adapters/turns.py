"""PettingZoo's turn-based games (AEC): one step is one move; other agents have one legal action."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from shoal.environments.adapters.gymnasium import picture
from shoal.environments.adapters.limits import limits
from shoal.environments.adapters.teams import Team, end
from shoal.environments.adapters.values import by_agent, flag, number
from shoal.game import HostTimestep
from shoal.spec import EnvSpec


class TurnGame:
    """A turn-based game; index 0 is the only legal action of agents not on turn, and is ignored.

    Every agent's reward of a move is the increment of its cumulative reward; between two of its turns they add up to
    the reward of ``last()``. The environment's own limit in rounds is converted to moves.
    """

    def __init__(self, env: Any, name: str, time_limit: int | None, metrics: Sequence[str] = ()):
        self._env = env
        horizon, self._limit = limits(env, time_limit, name, moves=len(env.possible_agents))
        self._team = Team(env, name, horizon, metrics, turns=True)
        self._places = {agent: i for i, agent in enumerate(self._team.agents)}
        self._time = 0
        self._gone = np.zeros(len(self._places), bool)
        self._earned = np.zeros(len(self._places))
        self.spec: EnvSpec = self._team.spec
        self.observation_bounds = self._team.observation_bounds

    def reset(self, seed: int, out: HostTimestep) -> None:
        """As :meth:`shoal.game.Game.reset`."""
        self._env.reset(seed=seed)
        self._time = 0
        here = self._listed()
        self._gone[:] = [agent not in here for agent in self._places]
        self._earned[:] = 0.0
        self._skip()
        self._write(out)
        if self._gone.any():
            out.alive[self._gone] = False

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """As :meth:`shoal.game.Game.step`."""
        env, agents = self._env, self._team.agents
        mover = self._places[env.agent_selection]
        env.step(self._team.send[mover](action[mover]))
        self._time += 1
        self._earned[mover] = 0.0
        by_agent("the cumulative rewards", env._cumulative_rewards, self._places.keys())
        for agent, reward in env._cumulative_rewards.items():
            i, total = self._places[agent], number(reward, "the reward of", agent)
            out.reward[i] = total - self._earned[i]
            self._earned[i] = total
        here = self._listed()
        if unpaid := [agent for agent in here if agent not in env._cumulative_rewards]:
            raise ValueError(f"the cumulative rewards lack {unpaid[0]!r}, which agents lists.")
        ends = [a not in here or flag(env.terminations[a], "the termination of", a) for a in agents]
        cuts = [a in here and flag(env.truncations[a], "the truncation of", a) for a in agents]
        ends, cuts = np.array(ends), np.array(cuts) | (self._time >= self._limit)
        alone = np.flatnonzero(cuts & ~ends & ~self._gone)
        over, last = (self._gone | ends | cuts).all(), {agents[i]: env.observe(agents[i]) for i in alone}
        if not over:
            self._skip()
        self._write(out, last)
        end(out, self._gone, ends, cuts)

    def _listed(self) -> list[Any]:
        """The environment's ``agents``.

        Raises:
            ValueError: one is not one of ``possible_agents``.
        """
        here = self._env.agents
        stranger = next((agent for agent in here if agent not in self._places), None)
        if stranger is not None:
            raise ValueError(f"agents lists {stranger!r}, which is not one of possible_agents.")
        return here

    def _skip(self) -> None:
        """Step agents that have ended, as AEC requires before another agent can move."""
        env = self._env
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)

    def _write(self, out: HostTimestep, last: Mapping[Any, Any] = MappingProxyType({})) -> None:
        env = self._env
        self._team.write({**last, **{agent: env.observe(agent) for agent in env.agents}}, env.infos, out)
        for agent, i in self._places.items():
            if agent != env.agent_selection:
                out.legal[i] = False
                out.legal[i, 0] = True

    def render(self) -> np.ndarray | None:
        """As :meth:`shoal.game.Game.render`."""
        return picture(getattr(self._env, "render", None))

    def close(self) -> None:
        """As :meth:`shoal.game.Game.close`."""
        self._env.close()
