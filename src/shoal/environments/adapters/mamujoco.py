"""MA-MuJoCo: one robot whose joints are divided among agents, from gymnasium-robotics' ``mamujoco_v1``.

Each agent controls some joints and observes these, their neighbours and global features (position and velocity of the
torso). Observations are in the world's frame, so that no two agents are interchangeable, even the legs of the ant,
whose spaces are equal. Each agent therefore has its own role; all agents may still share one policy, over padded rows.

Source: Peng et al. 2021, "FACMAC", and the package's own documentation of ``agent_obsk``. Its dynamics are those of
Gymnasium's v5 robots: returns differ from those of the papers, which used an older wrapper on MuJoCo 2.1.
"""

import contextlib
import functools
import importlib
import io
import itertools
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.environments.adapters.gymnasium import tracked
from shoal.environments.options import check_count, check_flag
from shoal.errors import InputError, unknown
from shoal.game import HostEnvironment, HostTimestep, write_rows
from shoal.spec import Box, EnvSpec
from shoal.system.extras import install, lacking

# Partitions of a robot's joints among the agents of MA-MuJoCo.


# Robot -> its number of joints, and the partitions that the package names.
ROBOTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "Ant": (8, ("2x4", "2x4d", "4x2")),
    "HalfCheetah": (6, ("2x3", "6x1")),
    "Hopper": (3, ("3x1",)),
    "Humanoid": (17, ("9|8",)),
    "HumanoidStandup": (17, ("9|8",)),
    "Pusher": (7, ("3p",)),
    "Reacher": (2, ("2x1",)),
    "Swimmer": (2, ("2x1",)),
    "Walker2d": (6, ("2x3",)),
}
SEGMENTED = ("ManySegmentAnt", "ManySegmentSwimmer")
PUBLISHED = tuple(f"{robot}-{parts}" for robot, (_, named) in ROBOTS.items() for parts in named)
"""Names of tasks whose partition the package names."""


def parsed(task: str) -> tuple[str, str]:
    """The package's name of the robot, and the partition of its joints."""
    robot, _, parts = task.partition("-")
    robot = "Walker2d" if robot == "Walker" else robot
    if robot not in ROBOTS and robot not in SEGMENTED:
        raise unknown("robot", robot, [*ROBOTS, *SEGMENTED])
    size = size_of(parts)
    if robot == "Swimmer" and size > 2:
        robot = "ManySegmentSwimmer"
    if robot in SEGMENTED:
        if size < 2:
            raise InputError(f"{robot} is divided as NxM, N agents of M segments each, not {parts!r}.")
        return robot, parts
    joints, named = ROBOTS[robot]
    if parts not in named and size != joints:
        known = dict.fromkeys((*named, *(f"{n}x{joints // n}" for n in range(2, joints + 1) if joints % n == 0)))
        raise InputError(f"{robot} has {joints} joints and is divided as {', '.join(known)}, not {parts!r}.")
    return robot, parts


def size_of(parts: str) -> int:
    """N·M for ``NxM``; 0 for anything else."""
    agents, _, each = parts.partition("x")
    return int(agents) * int(each) if re.fullmatch("[0-9]{1,4}x[0-9]{1,4}", parts) else 0


def factorisation(robot: str, parts: str) -> dict[str, Any]:
    """The package's partition of that name, or N agents with the next M joints each, in the order of the actuators."""
    from gymnasium_robotics.envs.multiagent_mujoco.obsk import get_parts_and_edges

    named = ROBOTS[robot][1]
    groups, edges, shared = get_parts_and_edges(robot, parts if parts in named else named[0])
    joints = sorted(itertools.chain(*groups), key=lambda joint: joint.act_ids or 0)
    if robot == "Pusher":  # Two joints have the same label, by which the package sorts: their order would be random.
        for joint in joints:
            joint.label = f"joint{joint.act_ids}"
    if parts not in named:
        each = int(parts.partition("x")[2])
        groups = [tuple(joints[i : i + each]) for i in range(0, len(joints), each)]
    return {"partition": groups, "edges": edges, "globals": shared}


# Environments.


def make(task: str, *, agent_obsk: int | None = 1, full_observation: bool = False) -> HostEnvironment:
    """``mamujoco/ROBOT-NxM``: N agents of M joints each, for example ``mamujoco/Ant-4x2``.

    Robots: Ant, HalfCheetah, Hopper, Humanoid, HumanoidStandup, Pusher, Reacher, Swimmer, Walker (or Walker2d),
    ManySegmentAnt, ManySegmentSwimmer. A partition that gymnasium-robotics names is the package's own (also ``2x4d``,
    ``9|8``, ``3p``); any other NxM that uses every joint once gives each agent the next M joints in the order of the
    robot's actuators. ``Swimmer-NxM`` of more than two joints is the ManySegmentSwimmer.

    Args:
        agent_obsk: how far along the body an agent observes: 0 its own joints, 1 also the positions of adjacent
            joints (the package's default), and so on. None makes the whole robot one agent.
        full_observation: every agent observes the whole robot, whatever ``agent_obsk`` is. So it is in the code of
            HARL and of the HAPPO paper, where the setting ``agent_obsk`` has no effect; it also adds the agent's
            number and standardises each observation over its entries, as ``--agent-id --input-layer-norm`` do.

    Raises:
        InputError: the robot or partition is unknown, ``agent_obsk`` is no count, or the package is missing.
    """
    robot, parts = parsed(task)
    if agent_obsk is not None:
        check_count("agent_obsk", agent_obsk, 0)
    maker = functools.partial(_Robot, task, robot, parts, agent_obsk, check_flag("full_observation", full_observation))
    return HostEnvironment(maker().spec, maker)


def original(robot: str, parts: str, agent_obsk: int | None, render: bool = False) -> Any:
    """The package's own environment.

    Raises:
        InputError: the package is missing.
    """
    with _quiet():
        from gymnasium_robotics import mamujoco_v1

        options: dict[str, Any] = {"render_mode": "rgb_array" if render else None, "disable_env_checker": True}
        if robot in SEGMENTED:
            return mamujoco_v1.parallel_env(
                robot, parts, agent_obsk, gym_env=_segmented(robot, size_of(parts), options)
            )
        if parts not in ROBOTS[robot][1] or robot == "Pusher":
            options["agent_factorization"] = factorisation(robot, parts)
        return mamujoco_v1.parallel_env(robot, parts, agent_obsk, **options)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the packages' messages about other tasks, on import and when a robot is built."""
    try:
        mujoco: Any = importlib.import_module("mujoco")
        with contextlib.redirect_stderr(io.StringIO()):
            import gymnasium_robotics  # noqa: F401
    except ImportError as error:
        modules = ("gymnasium_robotics", "gymnasium", "mujoco")
        command = install("mamujoco")
        raise InputError(lacking("mamujoco/…", "gymnasium-robotics", error, command, modules)) from error
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _segmented(robot: str, segments: int, options: dict[str, Any]) -> Any:
    """A robot of many segments. The package writes and removes its model file in its own folder, where concurrent
    worker processes would conflict; here each uses a temporary folder."""
    import gymnasium
    from gymnasium_robotics.envs.multiagent_mujoco import many_segment_ant, many_segment_swimmer

    body, assets = ("Ant-v5", many_segment_ant) if robot == "ManySegmentAnt" else ("Swimmer-v5", many_segment_swimmer)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/robot.xml"
        assets.gen_asset(n_segs=segments, asset_path=path)
        return gymnasium.make(body, xml_file=path, **options)


class _Robot:
    """A robot as a game. Instead of the package's slow Python code, observations are gathered from the global state,
    of which nearly all robots' observations are entries."""

    def __init__(
        self, task: str, robot: str, parts: str, agent_obsk: int | None, full: bool = False, render: bool = False
    ) -> None:
        self._package = package = original(robot, parts, agent_obsk, render)
        # Steps are counted here; the package's wrappers are slow.
        self._limit: int = package.single_agent_env.get_wrapper_attr("_max_episode_steps")
        self._body = package.single_agent_env.unwrapped
        agents = tuple(package.possible_agents)
        bounds = self._body.action_space
        widths = [len(part) for part in package.agent_action_partitions]
        self.spec = EnvSpec(
            name=f"mamujoco/{task}",
            agents=agents,
            obs_dims=tuple(package.observation_space(agent).shape[0] for agent in agents),
            state_dim=len(package.state()),
            action=Box(max(widths), float(bounds.low[0]), float(bounds.high[0])),
            action_dims=tuple(widths),
            roles=tuple(range(len(agents))),
            horizon=self._limit,
            shared_reward=True,
            score="mean",
        )
        # The package passes a whole robot's action on unchanged, and collects the parts' in double precision.
        self._torque = np.zeros(bounds.shape, np.float32 if agent_obsk is None else np.float64)
        # Indices of all joints in the team's flattened action, and in the robot's.
        self._from = np.concatenate([row * max(widths) + np.arange(width) for row, width in enumerate(widths)])
        self._to = np.array([joint.act_ids for part in package.agent_action_partitions for joint in part])
        self._entries = np.zeros(self.spec.state_dim + 1, np.float32)
        self._speeds: slice | None = None
        self._where = None if full else self._gathered()
        self._full = full
        if full:
            self.spec = replace(self.spec, obs_dims=(self.spec.state_dim,) * len(agents), novel=())
        else:
            self.spec = replace(self.spec, novel=self._unclipped())
        self._clock = 0

    def _gathered(self) -> np.ndarray | None:
        """[N, O], index in the state (with a zero appended) of each observed number; None if they are not entries.

        The state of some robots holds clipped velocities, which agents observe unclipped: ``_speeds`` is their slice.
        """
        where, layout = self._package.observation_factorization, getattr(self._body, "observation_structure", None)
        if where is None:
            return None
        speeds = [None] if layout is None else [None, slice(layout["qpos"], layout["qpos"] + layout["qvel"])]
        for self._speeds in speeds:
            if self._agrees(where):
                padded = np.full((self.spec.num_agents, self.spec.obs_dim), self.spec.state_dim)
                write_rows(padded, list(where.values()))
                return padded
        return None

    def _unclipped(self) -> tuple[int, ...] | None:
        """The observed features that the state holds only clipped; None if observations are not entries of it."""
        if self._where is None:
            return None
        clipped = np.zeros(self.spec.state_dim + 1, bool)
        if self._speeds is not None:
            clipped[self._speeds] = True
        return tuple(np.flatnonzero(clipped[self._where].any(0)).tolist())

    def _agrees(self, where: dict[str, np.ndarray]) -> bool:
        """Whether gathered observations equal the package's, for small values and for values that are clipped."""
        rng, data = np.random.default_rng(0), self._body.data
        for scale in (0.2, 20.0):
            for values in (data.qpos, data.qvel, data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext):
                values[...] = rng.normal(scale=scale, size=values.shape)
            seen, state = self._package._get_obs(), self._package.state()
            if self._speeds is not None:
                state[self._speeds] = data.qvel
            if not all(np.array_equal(state[where[agent]], seen[agent]) for agent in seen):
                return False
        return True

    def reset(self, seed: int, out: HostTimestep) -> None:
        self._clock = 0
        self._write(self._body.reset(seed=seed)[0], out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        self._torque[self._to] = action.ravel()[self._from]
        state, reward, terminated, _, _ = self._body.step(self._torque)
        self._clock += 1
        self._write(state, out)
        out.reward[...] = reward
        if terminated:
            out.discount[...] = 0.0
        out.last[...] = terminated or self._clock >= self._limit

    def _write(self, state: np.ndarray, out: HostTimestep) -> None:
        out.state[...] = state
        if self._full:
            out.obs[...] = out.state
        elif self._where is None:
            write_rows(out.obs, list(self._package._get_obs().values()))
        else:
            self._entries[:-1] = out.state
            if self._speeds is not None:
                self._entries[self._speeds] = self._body.data.qvel
            out.obs[...] = self._entries[self._where]

    def render(self) -> np.ndarray | None:
        return tracked(self._body)

    def close(self) -> None:
        self._package.close()
