"""``hands/…``: two Shadow hands on MuJoCo, in tasks of Bi-DexHands.

The tasks by name. Does not import JAX.
"""

import functools

from shoal.environments.hands.constants import TASKS
from shoal.environments.hands.game import SPLITS, Hands, spec_of
from shoal.environments.options import check_count, check_flag, check_steps
from shoal.errors import unknown
from shoal.game import HostEnvironment


def make(task: str, *, substeps: int = 4, see_partner: bool = False, horizon: int | None = None) -> HostEnvironment:
    """Two Shadow hands on MuJoCo, in tasks of Bi-DexHands (Chen et al. 2022): ``hands/over``, ``hands/over-12x``.

    In ``over``, ``over2underarm``, ``catch_underarm`` and ``two_catch_underarm`` one hand throws an egg that the other
    catches (in the last both throw); in ``door_open_inward`` each pulls one leaf of a door, and in ``lift_underarm``
    they lift a pot by its handles. Each hand is an agent, or with ``-12x`` each wrist and each finger.

    Actions in [-1, 1] are target positions of a hand's 20 motors, scaled to the ranges of the joints, and before these,
    in all tasks but ``over``, force and torque on the floating forearm along the world's axes. All agents of a hand
    observe the hand and the objects. All receive the same reward. ``won`` is 1 if the goal was reached at any step,
    ``held`` if it was reached in each of the last ten.

    Args:
        task: one of these names, and optionally ``-2x`` or ``-12x``.
        substeps: steps of the physics in a step of 1/60 s. Bi-DexHands has 2 (of another solver), which take half the
            time; contacts are more exact with more.
        see_partner: whether agents also observe the other hand.
        horizon: steps after which an episode is cut off; None: that of Bi-DexHands.

    Raises:
        InputError: the task or an option is invalid, or MuJoCo is not installed.
    """
    name, split = parsed(task)
    check_count("substeps", substeps, 1, 64)
    limit = check_steps("horizon", TASKS[name].steps if horizon is None else horizon)
    spec = spec_of(name, split, check_flag("see_partner", see_partner), limit)
    maker = functools.partial(Hands, spec, name, substeps, see_partner)
    maker().close()
    return HostEnvironment(spec, maker)


def parsed(task: str) -> tuple[str, str]:
    """The task, and how the hands are divided among agents.

    Raises:
        InputError: either is unknown.
    """
    name, dash, split = task.partition("-")
    if name not in TASKS:
        raise unknown("task of two hands", name, TASKS)
    if dash and split not in SPLITS:
        raise unknown("division of two hands", split, SPLITS)
    return name, split or SPLITS[0]
