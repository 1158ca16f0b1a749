"""What the tasks of two hands are, with the constants of Bi-DexHands (Chen et al. 2022, "Towards Human-Level Bimanual
Dexterous Manipulation with Reinforcement Learning"). Does not import JAX."""

from typing import NamedTuple

import numpy as np

from shoal.environments.hands import model
from shoal.environments.hands.model import Pose


class Task(NamedTuple):
    """What two hands are to do; metres and seconds."""

    kind: str
    """``catch``: bring eggs to their goals; ``door``: open a door; ``lift``: lift a pot."""
    steps: int
    """Of an episode, 60 a second."""
    scene: str
    poses: tuple[Pose, Pose]
    width: int
    """Numbers of objects and goals in an observation."""
    force: float = 0.0
    """The largest force on a moving base, N, in each direction of the world; 0 for fixed bases."""
    torque: float = 0.0
    """The largest torque on a moving base, N m."""
    scale: float = 0.0
    """Of the distance of an egg from its goal in the reward, 1/m."""
    starts: tuple[tuple[float, float, float], ...] = ()
    goals: tuple[tuple[float, float, float], ...] = ()
    floor: float = -np.inf
    """The height at which an object counts as dropped."""
    stray: float = np.inf
    """How far a base may go from its start before the episode ends."""
    position_noise: float = 0.0
    """Half the width of the range of starts, in each direction."""
    joint_noise: float = 0.0
    """The hands' joints start within this share of their ranges from straight."""


_FACING, _OVERHEAD = (0.0, 0.0, np.pi), (1.67, np.pi, 0.0)
_CATCH = Task(
    "catch",
    75,
    model.EGG,
    (Pose((0, 0, 0.5)), Pose((0, -1.15, 0.5), _FACING)),
    24,
    force=250 / 3,
    torque=25 / 3,
    scale=50.0,
    starts=((0, -0.39, 0.54),),
    goals=((0, -0.79, 0.54),),
    floor=0.1,
    position_noise=0.01,
    joint_noise=0.2,
)

TASKS: dict[str, Task] = {
    "over": _CATCH._replace(
        poses=(Pose((0, 0, 0.5)), Pose((0, -1, 0.5), _FACING)),
        force=0.0,
        torque=0.0,
        goals=((0, -0.64, 0.54),),
        floor=0.2,
    ),
    "catch_underarm": _CATCH,
    "two_catch_underarm": _CATCH._replace(
        scene=model.TWO_EGGS,
        width=48,
        starts=((0, -0.39, 0.54), (0, -0.78, 0.54)),
        goals=((0, -0.79, 0.54), (0, -0.38, 0.54)),
        floor=0.2,
    ),
    "over2underarm": _CATCH._replace(
        poses=(Pose((0, 0, 0.5), _OVERHEAD), Pose((0, -0.8, 0.5), _FACING)),
        force=500 / 3,
        torque=100 / 3,
        scale=20.0,
        starts=((0, 0.05, 1.0),),
        goals=((0, -0.4, 0.55),),
        floor=0.3,
        stray=0.1,
        position_noise=0.0,
        joint_noise=0.0,
    ),
    "door_open_inward": Task(
        "door",
        250,
        model.DOORS,
        (
            Pose((0.55, 0.2, 0.6), (np.pi, np.pi / 2, np.pi / 2)),
            Pose((0.55, -0.2, 0.6), (np.pi, -np.pi / 2, np.pi / 2)),
        ),
        10,
        force=2500 / 3,
        torque=25 / 3,
    ),
    "lift_underarm": Task(
        "lift",
        500,
        model.POT,
        (Pose((0, 0.05, 0.45)), Pose((0, -1.25, 0.45), _FACING)),
        19,
        force=1250 / 3,
        torque=50 / 3,
        starts=((0, -0.6, 0.45),),
        goals=((0, -0.6, 0.85),),
        floor=0.3,
    ),
}
