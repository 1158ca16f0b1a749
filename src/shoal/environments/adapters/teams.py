"""Timesteps of a user's environment as a team's arrays: checks of values, dicts by agent, agents that end alone."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from shoal.environments.adapters import spaces
from shoal.environments.adapters.spaces import interface
from shoal.environments.interface import MASK, acted, joint_mask
from shoal.errors import InputError, told
from shoal.game import Game, HostTimestep
from shoal.spec import Discrete, EnvSpec
from shoal.system import notices


def checked_number(value: Any, *what: Any) -> float:
    """A Python or NumPy number, or an array without axes, as a float. ``what`` describes it in the error.

    Raises:
        ValueError: it is something else, for example text, None or an array.
    """
    if isinstance(value, Real) or (_size(value) == () and _numeric(value)):
        return float(value)
    raise ValueError(f"{' '.join(map(str, what))} is {_shown(value)}, not one number.")


def flag(value: Any, *what: Any) -> bool:
    """A boolean, also given as 0 or 1 or as an array of one element. ``what`` describes it in the error.

    Raises:
        ValueError: it is something else, for example text, None, 2 or NaN.
    """
    if isinstance(value, bool):
        return value
    numeric = isinstance(value, Real) or (np.size(value) == 1 and _size(value) is not None and _numeric(value))
    if numeric and (value == 0 or value == 1):
        return bool(value)
    raise ValueError(f"{' '.join(map(str, what))} is {_shown(value)}, neither True nor False.")


def stepped(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """What ``step`` of Gymnasium's or PettingZoo's interface returned.

    Raises:
        ValueError: it is not a tuple of five values.
    """
    if isinstance(result, tuple | list) and len(result) == 5:
        return result[0], result[1], result[2], result[3], result[4]
    old = " (four are those of Gym before 0.26: divide done into the two)" if _count(result) == 4 else ""
    raise ValueError(
        f"step returned {_returned(result)}, but must return five values: observation, reward, terminated, truncated "
        f"and info{old}."
    )


def started(result: Any) -> tuple[Any, Any]:
    """What ``reset`` of Gymnasium's or PettingZoo's interface returned.

    Raises:
        ValueError: it is not a tuple of two values.
    """
    if isinstance(result, tuple | list) and len(result) == 2:
        return result[0], result[1]
    raise ValueError(f"reset returned {_returned(result)}, but must return two values: observation and info.")


def _count(result: Any) -> int | None:
    return len(result) if isinstance(result, tuple | list) else None


def _returned(result: Any) -> str:
    return f"a {type(result).__name__}" if (count := _count(result)) is None else f"{count} values"


def as_info(given: Any) -> Mapping[Any, Any]:
    """An ``info`` of Gymnasium's interface; None is an empty one.

    Raises:
        ValueError: it is not a dict.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(f"info is a {type(given).__name__}, not a dict.")
    return given


def by_agent(what: str, values: Any, agents: Collection[Any]) -> None:
    """Check a dict by agent.

    Raises:
        ValueError: it is not a dict, or has a key that is not in ``agents``.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{what} are a {type(values).__name__}, not a dict with a key for each agent.")
    stranger = next((key for key in values if key not in agents), None)
    if stranger is not None:
        raise ValueError(f"{what} have the key {stranger!r}, which is not one of possible_agents.")


def _size(value: Any) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return tuple(shape) if isinstance(shape, tuple | list) else None


def _numeric(value: Any) -> bool:
    """Whether an array holds numbers; assumed for arrays of other libraries than NumPy."""
    return getattr(getattr(value, "dtype", None), "kind", "f") in "biuf"


def _shown(value: Any) -> str:
    if (shape := _size(value)) == () and _numeric(value):
        return str(value)
    if shape is not None:
        return f"an array of shape {shape}" if _numeric(value) else f"an array of {value.dtype}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


# Metrics of an episode from the ``info`` of PettingZoo's and Gymnasium's interfaces.


def metric_of(info: Mapping[Any, Any], name: str) -> float:
    """``info[name]``; NaN if it is missing.

    Raises:
        ValueError: it is not a single number.
    """
    return checked_number(info[name], f"info[{name!r}]") if name in info else math.nan


def write_metrics(names: Iterable[str], info: Mapping[Any, Any], out: HostTimestep) -> None:
    """Write the named numbers of an ``info`` as the metrics of a timestep.

    Raises:
        ValueError: one of them is not a number.
    """
    for i, name in enumerate(names):
        out.metrics[i] = metric_of(info, name)


def write_metrics_of_agents(names: Iterable[str], infos: Mapping[Any, Any], out: HostTimestep) -> None:
    """Like :func:`write_metrics` for a dict of infos by agent: the mean over the agents whose ``info`` has the number.

    Raises:
        ValueError: one of them is not a number.
    """
    for i, name in enumerate(names):
        known = [metric_of(info, name) for info in infos.values() if isinstance(info, Mapping) and name in info]
        out.metrics[i] = sum(known) / len(known) if known else math.nan


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
        InputError: the spaces cannot be those of one team, or ``state()`` fails after ``reset``.
    """

    def __init__(
        self, env: Any, name: str, horizon: int, metrics: Sequence[str] = (), ask: bool = True, turns: bool = False
    ):
        self.agents: list[Any] = list(env.possible_agents)
        for space in ("observation_space", "action_space"):
            if not callable(getattr(env, space, None)):
                raise InputError(f"{name} needs a method {space}(self, agent), which returns the space of an agent.")
        acts = [env.action_space(agent) for agent in self.agents]
        seen = [spaces.Observation(env.observation_space(agent), name) for agent in self.agents]
        action, dims, self._acts = spaces.actions(acts, name)
        self.send = [partial(acted, form, action) for form in self._acts]
        """For each agent, the function from its row of the joint action to the environment's action."""
        self._env = env
        self.indices = isinstance(action, Discrete)
        self._named = [observation.named and self.indices for observation in seen]
        self._masked = [observation.masked for observation in seen]
        state, fault = _state(env, name) if ask else (None, "")
        self._ask = state is not None
        size = None if state is None else state.size
        spec = spaces.spec_of_spaces(name, self.agents, seen, acts, (action, dims), size, horizon, metrics)
        described = interface("turns" if turns else "parallel", [x.space for x in seen], self._acts)
        self.spec: EnvSpec = replace(spec, interface=described, turns=turns and self.indices)
        self.observation_bounds = spaces.bounds(seen, spec)
        """See :func:`shoal.environments.adapters.spaces.bounds`."""
        self._seen_as = [f"{agent}'s observation" for agent in self.agents]
        self.unread: set[str] = set()
        """Parts of observations that their spaces lack."""
        self.emptied: list[int] = []
        """Agents whose masks allow nothing at this timestep."""
        self._reads = [x.reader(spec.packed, what, self.unread) for x, what in zip(seen, self._seen_as, strict=True)]
        self._widths = spec.obs_dims
        self._absent = [np.zeros(width, np.uint8 if spec.packed else np.float32) for width in spec.obs_dims]
        self.joined = () if self._ask or not spec.state_dim else spec.obs_dims
        """The widths of the observations in a row that are the state; empty if it is another one."""
        self.fault = fault
        """What ``state()`` does that a state cannot do, so that the spec has another one; see :func:`_state`."""

    def write(self, seen: Mapping[Any, Any], infos: Any, out: HostTimestep) -> None:
        """Write observations, legal actions, state and metrics; agents missing in ``seen`` have zeros.

        Raises:
            ValueError: an observation or a mask does not fit its space, or ``infos`` are not a dict.
        """
        if not isinstance(infos, Mapping):
            raise ValueError(f"infos are a {type(infos).__name__}, not a dict with a key for each agent.")
        obs, state, joins, indices, at = out.obs, out.state, self.joined, self.indices, 0
        self.emptied.clear()
        for i, agent in enumerate(self.agents):
            width = self._widths[i]
            row = self._reads[i](seen[agent]) if agent in seen else self._absent[i]
            spaces.check_width(self._seen_as[i], row, width)
            obs[i, :width] = row
            if joins:
                state[at : at + width] = row
                at += width
            named = self._named[i] and agent in seen
            if named and spaces.has_mask(seen[agent], self._masked[i], self._seen_as[i]):
                self._write_mask(i, seen[agent][MASK], out)
            elif indices and (info := infos.get(agent)) and MASK in info:  # an info may be None
                self._write_mask(i, info[MASK], out)
        if self._ask:
            given = np.asarray(self._env.state()).reshape(-1)
            spaces.check_width("state()", given, self.spec.state_dim)
            state[:] = given
        write_metrics_of_agents(self.spec.metrics, infos, out)

    def _write_mask(self, i: int, mask: Any, out: HostTimestep) -> None:
        joint, width = joint_mask(self._acts[i], mask), self.spec.action_dims[i]
        if not spaces.write_mask(out.legal[i], joint, width, self.agents[i]):
            self.emptied.append(i)


_told: set[tuple[str, str]] = set()
"""Environments of which :func:`tell_of_state` has spoken in this process, and what their ``state()`` does."""


def tell_of_state(game: Game) -> None:
    """Warn if the ``state()`` of a game's team fails; called for the example only, which is built in one process."""
    team = getattr(game, "_team", None)
    if not isinstance(team, Team) or not team.fault or (said := (team.spec.name, team.fault)) in _told:
        return
    _told.add(said)
    state = "its state is all observations in a row" if team.spec.state_dim else "it has no state"
    notices.warn(f"{team.spec.name}: {state}, since its state() {team.fault}.")


def _state(env: Any, name: str) -> tuple[np.ndarray | None, str]:
    """The environment's own global state at the start of an episode; None without a numeric state, or for a picture.

    With it comes what ``state()`` does that a state cannot do, such as ``raises …``; empty if it is right, or says that
    there is no state.

    Raises:
        InputError: ``state()`` raises another exception than those that are reported.
    """
    if not hasattr(env, "state"):
        return None, ""
    # PettingZoo's own, which says that there is none, raises an AttributeError for an environment without metadata.
    own = getattr(type(getattr(env, "unwrapped", env)), "state", None)
    none = getattr(own, "__module__", "") == "pettingzoo.utils.env"
    env.reset(seed=0)
    try:
        found = env.state()
        given = np.asarray(found)
        if given.dtype.kind not in "biuf":
            return None, "" if found is None else f"returns a {type(found).__name__} that is no array of numbers"
        state = given.astype(np.float32)
    except NotImplementedError:
        return None, ""
    except (AttributeError, TypeError, ValueError) as error:
        absent = none or (isinstance(error, AttributeError) and error.name == "state")  # where a wrapper passes it to
        said = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")
        return None, "" if absent else f"raises {said}"
    except Exception as error:
        raise InputError(
            f"{name}: state() must return the state after reset, or raise NotImplementedError if there is none, but it "
            f"fails: {told(error)}"
        ) from error
    picture = given.dtype == np.uint8 and given.ndim > 1
    return (None if picture else state.reshape(-1)), ""


def clear(out: HostTimestep, absent: np.ndarray, joined: Sequence[int]) -> None:
    """Write that absent agents observe zeros, whatever the environment returns for them.

    Args:
        out: the timestep.
        absent: bool [N].
        joined: the width of each agent's observation, if the state is all of them in a row; otherwise empty.
    """
    out.obs[absent] = 0.0
    if joined:
        out.state[np.repeat(absent, joined)] = 0.0


def end(
    out: HostTimestep,
    gone: np.ndarray,
    ended: np.ndarray,
    cut: np.ndarray,
    joined: Sequence[int],
    seen: np.ndarray | bool = True,
) -> None:
    """Write ``alive``, ``discount``, ``leaving`` and ``last`` for agents that end individually.

    Args:
        out: the timestep, written except for these fields.
        gone: bool [N], agents that ended before; updated.
        ended: bool [N], agents that terminate now.
        cut: bool [N], agents that are truncated now.
        joined: as in :func:`clear`.
        seen: bool [N], agents whose observation at this timestep is known; there is no value to bootstrap from for the
            others, which count as dead if a time limit cuts them off.
    """
    before = gone.copy()
    gone |= ended | cut
    if gone.all():
        # Agents that end now keep their last observation, from which a time limit bootstraps.
        out.last[...] = True
        out.alive[before | (cut & ~ended & np.logical_not(seen))] = False
        out.discount[ended & ~before] = 0.0
        # Agents that ended earlier get the discount of the end of the episode.
        out.discount[before] = float((cut & ~ended & ~before).any())
    else:
        # An agent that is truncated alone leaves with its last observation, from which its time limit bootstraps.
        out.leaving[...] = cut & ~ended & ~before & seen
        out.alive[gone & ~out.leaving] = False
        out.discount[ended & ~before] = 0.0
    clear(out, gone & ~out.alive, joined)
