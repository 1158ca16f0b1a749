"""PettingZoo's environments (https://pettingzoo.farama.org), ``pettingzoo:module_name``, and its interface."""

import functools
import importlib
import inspect
import math
import os
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from shoal.environments.adapters.gymnasium import limits, rendered_picture
from shoal.environments.adapters.teams import (
    Team,
    by_agent,
    checked_number,
    clear,
    end,
    flag,
    started,
    stepped,
    tell_of_state,
)
from shoal.errors import InputError, told, unknown
from shoal.game import Game, HostEnvironment, HostTimestep, close_example
from shoal.security import user_modules
from shoal.spec import EnvSpec
from shoal.system.extras import install, lacking

# Turn-based games (AEC): one step is one move; other agents have one legal action.


class TurnGame:
    """A turn-based game; index 0 is the only legal action of agents not on turn, and is ignored, as is a box's action.

    Every agent's reward of a move is the increment of its cumulative reward; between two of its turns they add up to
    the reward of ``last()``. The environment's own limit in rounds is converted to moves.
    """

    def __init__(self, env: Any, name: str, time_limit: int | None, metrics: Sequence[str] = ()):
        self._env = env
        horizon, self._limit = limits(env, time_limit, name, moves=len(env.possible_agents))
        self.overran = 0
        self._team = Team(env, name, horizon, metrics, turns=True)
        self._places = {agent: i for i, agent in enumerate(self._team.agents)}
        self._time = 0
        self._gone = np.zeros(len(self._places), bool)
        self._earned = np.zeros(len(self._places))
        self.spec: EnvSpec = self._team.spec
        self.observation_bounds, self.unread = self._team.observation_bounds, self._team.unread
        self.emptied = self._team.emptied

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
            i, total = self._places[agent], checked_number(reward, "the reward of", agent)
            out.reward[i] = total - self._earned[i]
            self._earned[i] = total
        for agent in self._places.keys() - env._cumulative_rewards.keys():  # one that is listed again starts from 0
            self._earned[self._places[agent]] = 0.0
        here = self._listed()
        if unpaid := [agent for agent in here if agent not in env._cumulative_rewards]:
            raise ValueError(f"the cumulative rewards lack {unpaid[0]!r}, which agents lists.")
        ends = [a not in here or flag(env.terminations[a], "the termination of", a) for a in agents]
        cuts = [a in here and flag(env.truncations[a], "the truncation of", a) for a in agents]
        ends, cuts = np.array(ends), np.array(cuts)
        if self._time >= self._limit:
            if not (ends | cuts).all():
                self.overran += self._limit > self.spec.horizon
            cuts[:] = True
        self._gone &= ends | cuts  # an agent that joins later is there from when it is listed
        alone = np.flatnonzero(cuts & ~ends & ~self._gone)
        over, last = (self._gone | ends | cuts).all(), {agents[i]: env.observe(agents[i]) for i in alone}
        if not over:
            self._skip()
        self._write(out, last)
        end(out, self._gone, ends, cuts, self._team.joined)

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
        """Step agents that have ended, as AEC requires before another agent can move.

        Raises:
            ValueError: one of them is still on turn after that, as it would be for ever.
        """
        env = self._env
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            over = env.agent_selection
            env.step(None)
            if env.agent_selection == over and over in env.agents:
                raise ValueError(
                    f"step(None) leaves {over!r}, which has ended, in agents and on turn; it must remove it, as "
                    f"AECEnv._was_dead_step does."
                )

    def _write(self, out: HostTimestep, last: Mapping[Any, Any] = MappingProxyType({})) -> None:
        env = self._env
        self._team.write({**last, **{agent: env.observe(agent) for agent in env.agents}}, env.infos, out)
        if not self._team.indices:  # of a box legal says which dimensions an agent has
            return
        for agent, i in self._places.items():
            if agent != env.agent_selection:
                out.legal[i] = False
                out.legal[i, 0] = True
                if i in self.emptied:
                    self.emptied.remove(i)

    def render(self) -> np.ndarray | None:
        """As :meth:`shoal.game.Game.render`."""
        return rendered_picture(getattr(self._env, "render", None))

    def close(self) -> None:
        """As :meth:`shoal.game.Game.close`."""
        self._env.close()


# Environments of the library, and games in which all agents act at once.


# Environments whose state() is not used: MPE's recomputes and concatenates all observations, and Multiwalker's raises
# after a walker has been removed. The state is concatenated from the observations of step().
_MULTIWALKER = "pettingzoo.sisl.multiwalker.multiwalker"
# Environments that share rewards by default.
_SHARING = ("pettingzoo.sisl.multiwalker", "pettingzoo.sisl.pursuit")
# Environments that draw the images that agents observe only with a render mode.
_DRAWN = ("pettingzoo.butterfly.cooperative_pong",)
# Families of environments whose dependencies PettingZoo has as extras of the same name.
_EXTRAS = ("atari", "butterfly", "classic", "sisl")
_CONCATENATED = frozenset({"mpe2._mpe_utils.simple_env", _MULTIWALKER})


def make(
    task: str, /, *, time_limit: int | None = None, metrics: tuple[str, ...] = (), **options: Any
) -> HostEnvironment:
    """A PettingZoo environment. All agents act at once; in turn-based games, agents not on turn have the single legal
    action 0.

    An agent that ends is dead from then on: its row is zero. One that ends by ``terminations`` has discount 0 there;
    one that ends by ``truncations`` has 1, leaves with its last observation, and is dead from the next step on. The
    episode ends when no agent is left. A step of a turn-based game is one move, which
    gives every agent the increment of its cumulative reward. ``action_mask`` in observations or infos gives the legal
    actions. The state is the environment's ``state()`` unless that is a picture, or else the concatenation of all
    observations, or nothing if they have images.

    Args:
        task: the module, for example ``mpe2.simple_spread_v3`` or ``pettingzoo.classic.tictactoe_v3`` (``pettingzoo.``
            may be omitted).
        time_limit: steps after which an episode is truncated, if smaller than the environment's own limit; 10,000 if
            neither is known.
        metrics: names of numbers in the infos of an episode's last step that are metrics of the episode, each the mean
            over the agents whose info has it.
        options: keyword arguments of the module's ``parallel_env`` or ``env``.

    Raises:
        InputError: the module or an option is unknown, a dependency is not installed, or its spaces cannot be those of
            one team.
    """
    maker = functools.partial(_game, task, time_limit, metrics, options)
    game = maker()
    tell_of_state(game)
    close_example(game)
    return HostEnvironment(game.spec, maker)


def _game(
    task: str, time_limit: int | None, metrics: tuple[str, ...], options: dict[str, Any], render: bool = False
) -> Game:
    name = f"pettingzoo:{task}"
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    module = _module(task, name)
    factory, given = _factory(module, name), dict(options)
    if module.__name__.startswith(_SHARING):
        given["shared_reward"] = False  # Shoal's own option shares them
    if (render or module.__name__.startswith(_DRAWN)) and _takes(factory, "render_mode"):
        given = {"render_mode": "rgb_array"} | given
    try:
        made = factory(**given)
    except ImportError as error:
        raise InputError(f"{name} needs more than is installed: {error}") from error
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{name} cannot be made with the options {given}: {told(error)}") from error
    return wrap(made, name, time_limit=time_limit, metrics=metrics)


def _factory(module: Any, name: str) -> Callable[..., Any]:
    """The factory of a module: its ``parallel_env`` or ``env``, or its only class with PettingZoo's interface.

    Raises:
        InputError: there is none, or there are several classes.
    """
    for attribute in ("parallel_env", "env"):
        if callable(found := getattr(module, attribute, None)):
            return found
    kinds = [x for x in vars(module).values() if inspect.isclass(x) and x.__module__ == module.__name__]
    words = ("observation_space", "action_space", "reset", "step")
    kinds = [x for x in kinds if all(callable(getattr(x, word, None)) for word in words)]
    if len(kinds) == 1:
        return kinds[0]
    of_one = f"the module {module.__name__} has neither 'parallel_env' nor 'env'"
    if not kinds:
        raise InputError(f"{name} cannot be built: {of_one}, nor a class with PettingZoo's interface.")
    which = " or ".join(f"{module.__name__}:{kind.__name__}" for kind in kinds)
    raise InputError(f"{name} does not name one environment: {of_one}, but several classes; use {which}.")


def _takes(factory: Callable[..., Any], option: str) -> bool:
    parameters = inspect.signature(factory).parameters
    return option in parameters or any(x.kind is x.VAR_KEYWORD for x in parameters.values())


def _module(task: str, name: str) -> Any:
    try:
        importlib.import_module("pettingzoo")
    except ImportError as error:
        raise InputError(lacking(name, "pettingzoo", error, install("pettingzoo"))) from error
    if ":" in task:
        raise InputError(f"{name} names a module and a class, which is named without the prefix: {task}.")
    if not user_modules.named_rightly(task):
        raise InputError(f"{name} does not name a module; names look like pettingzoo:mpe2.simple_spread_v3.")
    if user_modules.top(task) not in ("pettingzoo", "mpe2"):
        user_modules.reachable()
        user_modules.refuse_hidden(task)
    family, _, module = f"pettingzoo.{task.removeprefix('pettingzoo.')}".rpartition(".")
    short, missing = family.rpartition(".")[2], ""
    extra = f": pip install 'pettingzoo[{short}]'" if short in _EXTRAS else ""
    for path in (task, f"pettingzoo.{task}"):
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            absent = error.name or ""
            if absent != path and not path.startswith(f"{absent}."):
                raise InputError(f"{name} needs the module {absent!r}, which is not installed{extra}.") from error
            missing = missing or absent
        except ImportError as error:
            raise InputError(f"{name} needs more than is installed: {error}") from error
    if versions := _versions(family):
        raise unknown(f"module of {family} called", module, versions)
    raise user_modules.no_module(missing, name)


def _versions(family: str) -> list[str]:
    """The modules of a package of PettingZoo that are environments with a version; empty if there is no package."""
    try:
        places = importlib.import_module(family).__path__
    except (ImportError, AttributeError):
        return []
    return [module.name for module in pkgutil.iter_modules(places) if re.search(r"_v\d+$", module.name)]


def wrap(made: Any, name: str, *, time_limit: int | None = None, metrics: Sequence[str] = ()) -> Game:
    """Wrap an object with PettingZoo's parallel or AEC interface.

    Raises:
        InputError: it has no ``possible_agents``, or its spaces cannot be those of one team.
    """
    possible = getattr(made, "possible_agents", None)
    if possible is None or not list(possible):  # an array has no truth value
        raise InputError(f"{name} names no possible_agents, so the size of its team is unknown.")
    if hasattr(made, "agent_iter"):
        if not getattr(made, "metadata", {}).get("is_parallelizable", False):
            return TurnGame(made, name, time_limit, metrics)
        from pettingzoo.utils.conversions import aec_to_parallel

        made = aec_to_parallel(made)
    return _ParallelGame(made, name, time_limit, metrics)


class _ParallelGame:
    """All agents act at once."""

    def __init__(self, env: Any, name: str, time_limit: int | None, metrics: Sequence[str] = ()):
        self._env = env
        horizon, self._limit = limits(env, time_limit, name)
        self.overran = 0
        state = getattr(type(getattr(env, "unwrapped", env)), "state", None)
        module = getattr(state, "__module__", "")
        # Multiwalker reports its time limit as a termination.
        self._clock = horizon if module == _MULTIWALKER else math.inf
        self._team = Team(env, name, horizon, metrics, ask=module not in _CONCATENATED)
        self._agents, self._known = self._team.agents, frozenset(self._team.agents)
        self._time = 0
        self._gone = np.zeros(len(self._agents), bool)
        self._all_here = True
        self.spec: EnvSpec = self._team.spec
        self.observation_bounds, self.unread = self._team.observation_bounds, self._team.unread
        self.emptied = self._team.emptied

    def reset(self, seed: int, out: HostTimestep) -> None:
        seen, infos = started(self._env.reset(seed=seed))
        self._time = 0
        here = self._listed(seen)
        self._gone[:] = [agent not in here for agent in self._agents]
        self._all_here = not self._gone.any()
        self._team.write(seen, infos, out)
        if not self._all_here:  # of some that are not listed there are observations
            out.alive[self._gone] = False
            clear(out, self._gone, self._team.joined)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        agents, gone = self._agents, self._gone
        # Iterating over Python numbers is faster than over an array.
        rows = action.tolist() if self._team.indices else action
        each = zip(agents, self._team.send, rows, gone.tolist(), strict=True)
        sent = {a: send(x) for a, send, x, absent in each if not absent}
        seen, rewards, ended, cut, infos = stepped(self._env.step(sent))
        self._time += 1
        for what, values in (("rewards", rewards), ("terminations", ended), ("truncations", cut)):
            by_agent(what, values, self._known)
        ended = {agent: flag(x, "the termination of", agent) for agent, x in ended.items()}
        cut = {agent: flag(x, "the truncation of", agent) for agent, x in cut.items()}
        here = self._listed(seen, {agent for agent in agents if ended.get(agent) or cut.get(agent)})
        self._team.write(seen, infos, out)
        for i, agent in enumerate(agents):
            if gone[i]:
                continue
            if agent in rewards:
                out.reward[i] = checked_number(rewards[agent], "the reward of", agent)
            elif any(agent in listed for listed in (here, seen, ended, cut)):
                raise ValueError(f"rewards lack {agent!r}, which has acted.")
        late = self._time >= self._limit
        if late and any(not (ended.get(agent) or cut.get(agent)) for agent in here):
            self.overran += self._limit > self.spec.horizon
        if late or not self._all_here or len(here) < len(agents) or any(ended.values()) or any(cut.values()):
            # An agent that is not listed any more at the time limit has been truncated.
            cuts = np.array([cut.get(a, self._time >= self.spec.horizon and a not in here) for a in agents]) | late
            if self._time >= self._clock:
                ends, cuts[:] = np.zeros(len(agents), bool), True
            else:
                # An agent that is no longer listed has ended, even if the environment does not report it.
                ends = np.array(
                    [ended.get(a, False) or not (a in here or c) for a, c in zip(agents, cuts, strict=True)]
                )
            gone &= np.array([a not in here for a in agents]) | ends | cuts
            end(out, gone, ends, cuts, self._team.joined, np.array([agent in seen for agent in agents]))
            self._all_here = not gone.any()

    def _listed(self, seen: Any, over: Collection[Any] = ()) -> list[Any]:
        """The environment's ``agents``, each of which must have an observation unless it is in ``over``.

        Raises:
            ValueError: an agent has no observation, or is not one of ``possible_agents``.
        """
        here = self._env.agents
        by_agent("observations", seen, self._known)
        if not self._known.issuperset(here):
            stranger = next(agent for agent in here if agent not in self._known)
            raise ValueError(f"agents lists {stranger!r}, which is not one of possible_agents.")
        blind = next((agent for agent in here if agent not in seen and agent not in over), None)
        if blind is not None:
            raise ValueError(f"observations lack {blind!r}, which agents lists.")
        return here

    def render(self) -> np.ndarray | None:
        return rendered_picture(getattr(self._env, "render", None))

    def close(self) -> None:
        self._env.close()
