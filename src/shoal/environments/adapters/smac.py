"""``smac/…``: battles of small armies, in any package with SMAC's interface. Does not import JAX.

Samvelyan et al. 2019, "The StarCraft Multi-Agent Challenge"; Ellis et al. 2023, "SMACv2"; Michalski et al. 2023,
"SMAClite: A Lightweight Environment for Multi-Agent Reinforcement Learning", which needs no StarCraft II.
"""

import functools
import inspect
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from shoal.environments.adapters import smac_layout, smac_packages, smac_results
from shoal.environments.adapters.values import flag, number
from shoal.environments.options import check_steps
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep
from shoal.spec import Discrete, EnvSpec


def make(
    task: str,
    *,
    package: Literal["smac", "smacv2", "smaclite"] | None = None,
    time_limit: int | None = None,
) -> HostEnvironment:
    """A battle of the team's units against the computer's.

    Tasks are SMAC's maps, for example ``smac/2s3z`` or ``smac/corridor`` (SMAClite has twelve of them), and SMACv2's
    armies drawn at random for every episode, for example ``smac/terran_5_vs_5`` or ``smac/protoss_10_vs_11``.

    Actions are no-op (legal for dead agents only), stop, four moves, and attacking or healing each unit. All agents
    receive the team's reward, whose sum in a quickly won episode is about 20. Victory and defeat are terminations, the
    time limit is not. The state is the package's. Dead agents observe zeros and have the no-op as their only legal
    action, while the team's reward goes on. The metrics of an episode are ``won`` (the package's ``battle_won``),
    ``dead_allies`` and ``dead_enemies``; they are unknown if StarCraft II crashed.

    In SMAClite an episode depends only on its seed. StarCraft II takes a seed only at its start, for the first episode;
    SMACv2 draws its armies without a seed.

    Args:
        task: the name without ``smac/``.
        package: ``smac``, ``smacv2`` or ``smaclite``; None: the first of them that is installed (for random armies
            SMACv2). Their scores are not comparable, so name the package in published results.
        time_limit: steps after which an episode is truncated; None: SMAC's limit of the map, also with SMAClite, which
            has none of its own.

    Raises:
        InputError: the map or package is unknown, an option is invalid, or the package (or StarCraft II) is missing.
    """
    if time_limit is not None:
        check_steps("time_limit", time_limit)
    maker = functools.partial(_build, task, smac_packages.choose(task, package), time_limit)
    built = maker()
    built.close()
    return HostEnvironment(built.spec, maker)


def _build(task: str, package: str, time_limit: int | None, render: bool = False) -> "Battle":
    """``render`` is ignored: pictures are drawn on demand."""
    return Battle(smac_packages.BUILDERS[package](task, time_limit), f"smac/{task}", time_limit)


def understands(made: Any) -> bool:
    """Whether an object has SMAC's interface, also inside Gymnasium's wrappers."""
    core = getattr(made, "unwrapped", made)
    return all(hasattr(core, word) for word in ("get_avail_actions", "get_state", "get_obs"))


def wrap(made: Any, name: str, metrics: Sequence[str] = ()) -> "Battle":
    """Wrap an object with SMAC's interface; ``metrics`` are keys of its ``info`` that are reported as well.

    Raises:
        InputError: its time limit is unknown, or a part of the interface is missing.
    """
    return Battle(made, name, metrics=metrics)


class Battle:
    """An object with SMAC's interface as a game.

    ``step`` may return SMAC's (reward, terminated, info) or Gymnasium's five values. An agent is dead if the no-op,
    action 0, is its only legal action. SMAC reports time limits as ``terminated``, and in ``info`` only optionally;
    they are detected by its counter of time-outs. Its counter of restarts identifies episodes lost by a crash of
    StarCraft II, which are truncated as well. For an object with neither, an end at the limit is a termination if all
    allies are dead or ``info`` reports a victory.
    """

    def __init__(self, made: Any, name: str, time_limit: int | None = None, metrics: Sequence[str] = ()) -> None:
        """``time_limit``: steps; None: the object's ``episode_limit``, or SMAC's limit of its map. ``metrics``: keys of
        its ``info`` beside the metrics of every battle."""
        self._env = made
        self._core = core = getattr(made, "unwrapped", made)
        try:
            info = core.get_env_info() if hasattr(core, "get_env_info") else _attributes(core)
            n, actions = int(info["n_agents"]), int(info["n_actions"])
            width, state = (int(np.prod(info[key])) for key in ("obs_shape", "state_shape"))
        except (AttributeError, KeyError) as error:
            raise InputError(f"{name} has SMAC's get_avail_actions, but something is missing: {error}.") from error
        limit = time_limit or info.get("episode_limit") or smac_packages.LIMITS.get(_map_of(core))
        if not limit:
            raise InputError(f"{name} has no time limit; give the object an attribute episode_limit, in steps.")
        self.spec = EnvSpec(
            name=name,
            agents=tuple(f"ally_{i}" for i in range(n)),
            obs_dims=(width,) * n,
            state_dim=state,
            action=Discrete(actions),
            action_dims=(actions,) * n,
            roles=smac_layout.roles(core, n),
            horizon=int(limit),
            shared_reward=True,
            score="mean",
            metrics=tuple(dict.fromkeys((*smac_results.names(core), *metrics))),
            novel=smac_layout.novel(core, width) if made is core else None,  # a wrapper may change observations
        )
        self._seeded_reset = "seed" in inspect.signature(made.reset).parameters
        self._seed = getattr(core, "seed", None)
        self._seedable = callable(self._seed) and bool(inspect.signature(self._seed).parameters)
        self._drawn_as = _drawing(core)
        self._steps = 0
        self._cuts: int | None = None

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode."""
        if self._seeded_reset:
            result = self._env.reset(seed=seed)
        else:
            if self._seedable:
                self._core.seed(seed)
            else:
                smac_packages.seed_launch(self._env, seed)
            result = self._env.reset()
        self._steps = 0
        self._cuts = self._interruptions()
        self._write_observations(self._core.get_obs() if self._env is self._core else result[0], out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play int32 [N]."""
        result = self._env.step(action.tolist())  # SMAClite accepts only Python integers
        self._steps += 1
        if len(result) == 3:
            reward, over, info = result
            self._write_observations(self._core.get_obs(), out)
            cut = over and self._was_cut(info, out.alive)
            over = over and not cut
        elif len(result) == 5:
            obs, reward, over, cut, info = result
            self._write_observations(obs, out)
        else:
            raise InputError(f"{self.spec.name}: step gives {len(result)} values, but SMAC returns 3 and Gymnasium 5.")
        out.reward[...] = number(reward, "the reward")
        smac_results.write(self.spec.metrics, self._core, info, out)
        if flag(over, "terminated"):
            out.last[...] = True
            out.discount[...] = 0.0
        elif flag(cut, "truncated") or self._steps >= self.spec.horizon:
            out.last[...] = True

    def _write_observations(self, obs: Any, out: HostTimestep) -> None:
        out.obs[...] = obs
        out.state[...] = self._core.get_state()
        out.legal[...] = self._core.get_avail_actions()
        np.any(out.legal[:, 1:], axis=1, out=out.alive)
        out.obs[~out.alive] = 0.0

    def _was_cut(self, info: dict[str, Any], alive: np.ndarray) -> bool:
        """Whether the reported end is a truncation."""
        if "episode_limit" in info:
            return flag(info["episode_limit"], "episode_limit")
        if self._cuts is not None:
            return self._interruptions() != self._cuts
        return self._steps >= self.spec.horizon and not info.get("battle_won", False) and bool(alive.any())

    def _interruptions(self) -> int | None:
        """Number of time-outs and crashes so far; None if the object does not count them."""
        timeouts = getattr(self._core, "timeouts", None)
        return None if timeouts is None else timeouts + getattr(self._core, "force_restarts", 0)

    def render(self) -> np.ndarray | None:
        """A picture; None if the object cannot draw without a window."""
        picture = None if self._drawn_as is None else self._core.render(**self._drawn_as)
        return picture if isinstance(picture, np.ndarray) else None

    def close(self) -> None:
        """Stop the game's process."""
        self._env.close()


def _attributes(core: Any) -> dict[str, Any]:
    """The values of SMAC's ``get_env_info`` from the attributes of an object such as SMAClite's."""
    info = {"n_agents": core.n_agents, "n_actions": core.n_actions}
    info |= {"obs_shape": core.obs_size, "state_shape": core.state_size}
    return info | {"episode_limit": getattr(core, "episode_limit", None)}


def _drawing(core: Any) -> dict[str, str] | None:
    """The arguments of ``render`` for a picture; None if it would open a window."""
    if not hasattr(core, "render"):
        return None
    if "mode" in inspect.signature(core.render).parameters:
        return {"mode": "rgb_array"}
    return {} if getattr(core, "render_mode", None) == "rgb_array" else None


def _map_of(core: Any) -> str:
    return getattr(core, "map_name", None) or getattr(getattr(core, "map_info", None), "name", "")
