"""Gymnasium's environments (https://gymnasium.farama.org): ``gymnasium:Id`` with one agent, and environments of several
agents with Tuple spaces and lists of observations and rewards."""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from shoal.environments.adapters import spaces
from shoal.environments.adapters.spaces import interface
from shoal.environments.adapters.teams import as_info, checked_number, end, flag, started, stepped, write_metrics
from shoal.environments.interface import MASK, Form, acted, joint_mask
from shoal.environments.options import check_steps
from shoal.errors import InputError, told, with_full_stop
from shoal.game import Game, HostEnvironment, HostTimestep, close_example
from shoal.security import user_modules
from shoal.spec import Discrete, EnvSpec
from shoal.system.extras import install, lacking

# Time limits of other libraries' environments.


DEFAULT_LIMIT = 10_000
"""Steps after which an episode is truncated if the environment has no limit of its own."""

_WORDS = ("max_cycles", "max_num_frames", "max_episode_steps", "_max_episode_steps", "max_steps", "episode_limit")


class Limits(NamedTuple):
    """Time limits in steps."""

    horizon: int
    """Length of the longest episode, as far as is known."""
    cut: int
    """Steps after which Shoal truncates an episode; more than ``horizon`` if that is the value of an attribute. A game
    counts in ``overran`` the episodes that went on even then, for which the attribute is no limit."""


def limits(env: Any, given: int | None, name: str, moves: int = 1) -> Limits:
    """The smaller of ``given`` and the limit of the environment or a wrapper (times ``moves``, the moves of a round);
    :data:`DEFAULT_LIMIT` without either.

    Unlike for a Gymnasium specification, it is unknown whether an environment with an attribute such as ``max_steps``
    still plays the step of that number. So it has one more step to end the episode by itself.

    Raises:
        InputError: ``given`` is not a number of steps.
    """
    if given is not None:
        try:
            check_steps("time_limit", given)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    promised = _first([getattr(getattr(env, "spec", None), "max_episode_steps", None)])
    inner = getattr(env, "unwrapped", env)
    # SISL's environments have the limit in an inner object.
    holders = (inner, getattr(inner, "env", None))
    own = _first([getattr(holder, word, None) for holder in holders for word in _WORDS])
    found = promised or min((x for x in (own, *_of_wrappers(env, inner)) if x is not None), default=None)
    own, more = (None, None) if found is None else (found * moves, (found + (promised is None)) * moves)
    return Limits(*(min((x for x in (given, y) if x is not None), default=DEFAULT_LIMIT) for y in (own, more)))


def _of_wrappers(env: Any, inner: Any) -> list[int | None]:
    """The limits that wrappers around the environment hold themselves, as Gymnasium's ``TimeLimit`` does."""
    found = []
    while env is not None and env is not inner:
        held = getattr(env, "__dict__", {})
        found.append(_first([held.get(word) for word in _WORDS]))
        env = held.get("env")
    return found


def _first(values: list[Any]) -> int | None:
    return next((int(x) for x in values if isinstance(x, int | np.integer) and x > 0), None)


# Rendering of Gymnasium's MuJoCo robots with a tracking camera.


def tracked(env: Any) -> Any:
    """``env.render()`` with the model's camera ``track``, if it exists and no other camera was chosen.

    The default camera does not move, so that a walking robot leaves the picture.
    """
    inner = getattr(env, "unwrapped", env)
    renderer = getattr(inner, "mujoco_renderer", None)
    if renderer is not None and renderer.camera_id == -1:
        names = [inner.model.camera(i).name for i in range(inner.model.ncam)]
        if "track" in names:
            renderer.camera_id = names.index("track")
    return env.render()


# The adapter.


def make(
    task: str, /, *, time_limit: int | None = None, metrics: tuple[str, ...] = (), **options: Any
) -> HostEnvironment:
    """An environment of Gymnasium's registry, as a team of one agent.

    Discrete, MultiDiscrete and MultiBinary actions become one index, observations of any space one vector, as
    ``gymnasium.spaces.flatten`` writes it; the state is the observation, or there is none if it has images.
    ``action_mask`` in the observation or the info, or else the method ``action_masks``, where there is one, gives the
    legal actions.

    Args:
        task: the id, for example ``LunarLander-v3``.
        time_limit: steps after which an episode is truncated, if smaller than the id's own limit.
        metrics: names of numbers in the info of an episode's last step that are metrics of the episode.
        options: keyword arguments of ``gymnasium.make``.

    Raises:
        InputError: the id or an option is unknown, a dependency is not installed, or a space cannot be flattened.
    """
    maker = partial(_game, task, time_limit, metrics, options)
    game = maker()
    close_example(game)
    return HostEnvironment(game.spec, maker)


def _game(
    task: str, time_limit: int | None, metrics: tuple[str, ...], options: dict[str, Any], render: bool = False
) -> Game:
    name = f"gymnasium:{task}"
    try:
        import gymnasium
    except ImportError as error:
        raise InputError(lacking(name, "gymnasium", error, install("gymnasium"))) from error
    if ":" in task:
        user_modules.reachable()
        user_modules.refuse_hidden(task.partition(":")[0])
    given = {"disable_env_checker": True, **options}
    if render:
        with contextlib.suppress(Exception), warnings.catch_warnings():  # without a renderer if it has none
            warnings.simplefilter("ignore")
            made = gymnasium.make(task, **given, render_mode="rgb_array")
            return wrap(made, name, time_limit=time_limit, metrics=metrics)
    try:
        env = gymnasium.make(task, **given)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        cause = error.__cause__  # of a module that Gymnasium imports for the id
        if ":" in task and isinstance(cause, ModuleNotFoundError):
            raise user_modules.no_module(cause.name, name) from error
        raise InputError(with_full_stop(f"{name} needs more than is installed: {error}")) from error
    except (InputError, MemoryError):
        raise
    except Exception as error:  # of Gymnasium, or of the environment with these options
        raise InputError(f"Gymnasium cannot make {task!r}: {told(error)}") from error
    return wrap(env, name, time_limit=time_limit, metrics=metrics)


def wrap(made: Any, name: str, *, time_limit: int | None = None, metrics: Sequence[str] = ()) -> Game:
    """Wrap a ``gymnasium.Env`` or an object with its interface.

    If both spaces are Tuples or lists of the same length, there is one agent per entry.

    Raises:
        InputError: its spaces are functions, as in PettingZoo, a space cannot be flattened, or it is a vector of
            environments.
    """
    from gymnasium import spaces as theirs

    if hasattr(made, "num_envs") and hasattr(made, "single_action_space"):
        raise InputError(
            f"{name} is a vector of {made.num_envs} environments; give one of them, since Shoal runs its own copies "
            f"(--num-envs)."
        )

    seen, acts = made.observation_space, made.action_space
    if callable(seen) or callable(acts):
        raise InputError(f"{name} has a space for each agent, as in PettingZoo, but names no possible_agents.")
    several = (theirs.Tuple, list, tuple)
    if isinstance(seen, several) and isinstance(acts, several) and len(seen) == len(acts):
        return _Team(made, name, time_limit, metrics)
    return _Solo(made, name, time_limit, metrics)


_SEEN = "The observation"
"""What the observation of a team of one is called in errors."""


class _Solo:
    """A team of one agent."""

    def __init__(self, env: Any, name: str, time_limit: int | None, metrics: Sequence[str] = ()):
        observation = spaces.Observation(env.observation_space, name)
        action, dims, self._acts = spaces.actions([env.action_space], name)
        self._env = env
        horizon, self._limit = limits(env, time_limit, name)
        self.overran = 0
        self._indices, self._space = isinstance(action, Discrete), action
        self._named, self._masked = observation.named, observation.masked
        self._told = _action_masks(env) if self._indices else None
        self._time = 0
        spec = spaces.spec_of_spaces(
            name, ["agent_0"], [observation], [env.action_space], (action, dims), None, horizon, metrics
        )
        described = interface("one", [observation.space], self._acts)
        self.spec: EnvSpec = replace(spec, shared_reward=True, score="mean", interface=described)
        self.observation_bounds = spaces.bounds([observation], spec)
        self.unread: set[str] = set()
        self._read, self._joins = observation.reader(spec.packed, _SEEN, self.unread), spec.state_dim > 0
        self.emptied: list[int] = []

    def reset(self, seed: int, out: HostTimestep) -> None:
        seen, info = started(self._env.reset(seed=seed))
        self._time = 0
        self._write(seen, as_info(info), out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        sent = acted(self._acts[0], self._space, action[0])
        seen, reward, terminated, truncated, info = stepped(self._env.step(sent))
        self._time += 1
        info = as_info(info)
        self._write(seen, info, out)
        write_metrics(self.spec.metrics, info, out)
        out.reward[0] = checked_number(reward, "the reward")
        if flag(terminated, "terminated"):
            out.discount[0] = 0.0
            out.last[...] = True
        elif flag(truncated, "truncated"):
            out.last[...] = True
        elif self._time >= self._limit:
            out.last[...] = True
            self.overran += self._limit > self.spec.horizon

    def _write(self, seen: Any, info: Any, out: HostTimestep) -> None:
        row = self._read(seen)
        spaces.check_width(_SEEN, row, self.spec.obs_dim)
        out.obs[0] = row
        if self._joins:
            out.state[:] = row
        if not self._indices:
            return
        self.emptied.clear()
        if self._named and spaces.has_mask(seen, self._masked, _SEEN):
            mask = seen[MASK]
        elif MASK in info:
            mask = info[MASK]
        elif self._told is not None:
            mask = _of_each_choice(self._acts[0], self._told())
        else:
            return
        joint, width = joint_mask(self._acts[0], mask), self.spec.action_dims[0]
        if not spaces.write_mask(out.legal[0], joint, width, "agent_0"):
            self.emptied.append(0)

    def render(self) -> np.ndarray | None:
        return rendered_picture(partial(tracked, self._env) if hasattr(self._env, "render") else None)

    def close(self) -> None:
        self._env.close()


def _action_masks(env: Any) -> Callable[[], Any] | None:
    """The method ``action_masks`` of an environment or a wrapper around it, which sb3-contrib's MaskablePPO calls."""
    name = "action_masks"
    if hasattr(env, "has_wrapper_attr"):  # Gymnasium's wrappers do not pass on what the environment has
        found = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    else:
        found = getattr(env, name, None)
    return found if callable(found) else None


def _of_each_choice(form: Form, masks: Any) -> Any:
    """Such a mask as :func:`joint_mask` takes it: it always holds the masks of all single choices in a row."""
    if form[0] != "indices":
        return masks
    return tuple(np.split(np.asarray(masks).reshape(-1), np.cumsum(form[2])[:-1]))


class _Team:
    """Several agents; observations and rewards are lists in their order, terminations one flag or a list."""

    def __init__(self, env: Any, name: str, time_limit: int | None, metrics: Sequence[str] = ()):
        acts = list(env.action_space)
        agents = [f"agent_{i}" for i in range(len(acts))]
        observations = [spaces.Observation(space, name) for space in env.observation_space]
        action, dims, self._acts = spaces.actions(acts, name)
        self._env, self._space = env, action
        self._named = [observation.named and isinstance(action, Discrete) for observation in observations]
        self._masked = [observation.masked for observation in observations]
        horizon, self._limit = limits(env, time_limit, name)
        self.overran = 0
        self._time = 0
        self._gone = np.zeros(len(acts), bool)
        spec = spaces.spec_of_spaces(name, agents, observations, acts, (action, dims), None, horizon, metrics)
        self.spec: EnvSpec = replace(spec, interface=interface("list", [x.space for x in observations], self._acts))
        self.observation_bounds = spaces.bounds(observations, spec)
        self._seen_as = [f"{agent}'s observation" for agent in agents]
        self.unread: set[str] = set()
        self.emptied: list[int] = []
        each = zip(observations, self._seen_as, strict=True)
        self._reads = [x.reader(spec.packed, what, self.unread) for x, what in each]
        self._joined = spec.obs_dims if spec.state_dim else ()

    def reset(self, seed: int, out: HostTimestep) -> None:
        seen, _ = started(self._env.reset(seed=seed))
        self._time = 0
        self._gone[:] = False
        self._write(seen, out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        sent = tuple(acted(form, self._space, row) for form, row in zip(self._acts, action, strict=True))
        seen, reward, terminated, truncated, info = stepped(self._env.step(sent))
        self._time += 1
        self._write(seen, out)
        write_metrics(self.spec.metrics, as_info(info), out)
        out.reward[:] = [
            checked_number(x, "the reward of agent", i) for i, x in enumerate(self._each(reward, "rewards"))
        ]
        out.reward[self._gone] = 0.0
        ended, cut = self._flags(terminated, "terminated"), self._flags(truncated, "truncated")
        late = self._time >= self._limit
        if late and not (self._gone | ended | cut).all():
            self.overran += self._limit > self.spec.horizon
        end(out, self._gone, ended, cut | late, self._joined)

    def _flags(self, values: Any, what: str) -> np.ndarray:
        """bool [N] from one flag for all agents, or one each."""
        if np.ndim(values) == 0:
            return np.full(self._gone.shape, flag(values, what))
        return np.array([flag(x, what, "of agent", i) for i, x in enumerate(self._each(values, what))])

    def _each(self, values: Any, what: str) -> Any:
        if np.ndim(values) == 0 or len(values) != len(self._gone):
            n = len(self._gone)
            raise ValueError(
                f"{what} must have an entry for each of the {n} agents, since two Tuple spaces of {n} parts each are "
                f"those of a team; for a single agent make one of the two spaces a Dict."
            )
        return values

    def _write(self, seen: Any, out: HostTimestep) -> None:
        at = 0
        self.emptied.clear()
        for i, read in enumerate(self._reads):
            row = read(seen[i])
            width = self.spec.obs_dims[i]
            spaces.check_width(self._seen_as[i], row, width)
            out.obs[i, :width] = row
            if self._joined:
                out.state[at : at + width] = row
            at += width
            if self._named[i] and spaces.has_mask(seen[i], self._masked[i], self._seen_as[i]):
                mask = joint_mask(self._acts[i], seen[i][MASK])
                if not spaces.write_mask(out.legal[i], mask, self.spec.action_dims[i], f"agent_{i}"):
                    self.emptied.append(i)

    def render(self) -> np.ndarray | None:
        return rendered_picture(getattr(self._env, "render", None))

    def close(self) -> None:
        self._env.close()


def rendered_picture(draw: Callable[[], Any] | None) -> np.ndarray | None:
    """The RGB picture from ``draw``, an environment's ``render``, without its transparency (Matplotlib's canvas has
    one); None if it has none. Other exceptions are raised."""
    try:
        drawn = None if draw is None else draw()
    except NotImplementedError:
        return None
    if not isinstance(drawn, np.ndarray) or drawn.ndim != 3:
        return None
    return drawn[..., :3] if drawn.shape[2] == 4 else drawn
