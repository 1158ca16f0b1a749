"""Partitions of a robot's joints among the agents of MA-MuJoCo."""

import itertools
import re
from typing import Any

from shoal.errors import InputError, unknown

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
