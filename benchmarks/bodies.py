"""What robots and hands score that do nothing, move at random, or follow a script, and how fast they are.

    python benchmarks/bodies.py --episodes 100
    python benchmarks/bodies.py hands/over hands/lift_underarm --substeps 2

``zero`` plays 0: no torque of a robot, and of a hand's joints the middles of their ranges. ``straight`` keeps all
joints of hands straight, and ``uniform`` draws each action from its range. The script of the door puts the fingers
behind the handles and pulls, and that of the pot puts the palms below the handles and lifts. Returns are means with
standard errors; a rate is that of one process, by its own processor time.
"""

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import shoal
from shoal.environments.hands.constants import TASKS
from shoal.environments.hands.model import MOTORS
from shoal.game import HostEnvironment, blank, own_actions, refresh
from shoal.spec import Box

ROBOTS = (
    *("Ant-2x4", "Ant-4x2", "Ant-8x1", "HalfCheetah-2x3", "HalfCheetah-3x2", "HalfCheetah-6x1", "Walker2d-2x3"),
    *("Walker2d-3x2", "Walker2d-6x1", "Humanoid-17x1", "HumanoidStandup-17x1", "Swimmer-10x2"),
)
"""The papers' tasks of MA-MuJoCo."""

_LOW, _HIGH = np.array([[motor.low, motor.high] for motor in MOTORS]).T
_STRAIGHT = -(_LOW + _HIGH) / (_HIGH - _LOW)
_CURL = np.array([motor.name[0] in "FMRL" and motor.name[2:] in ("J1", "J2") for motor in MOTORS])
_BASE, _TURN = slice(167, 170), slice(170, 173)
"""Where a moving hand observes its base and how far it has turned."""


class Moment(NamedTuple):
    """What policies may use."""

    step: int
    obs: np.ndarray
    """[N, O]."""
    first: np.ndarray
    """The observations of the episode's first step, [N, O]."""
    rng: np.random.Generator
    shape: tuple[int, int]
    """[N, A]."""


Policy = Callable[[Moment], np.ndarray]
"""Moment -> actions in [-1, 1], [N, A]."""


def zero(now: Moment) -> np.ndarray:
    """Zero in every dimension."""
    return np.zeros(now.shape)


def uniform(now: Moment) -> np.ndarray:
    """Random actions."""
    return now.rng.uniform(-1, 1, now.shape)


def straight(now: Moment) -> np.ndarray:
    """All joints of both hands straight, without force on their bases."""
    actions = np.zeros(now.shape)
    actions[:, -len(MOTORS) :] = _STRAIGHT
    return actions


def door(now: Moment) -> np.ndarray:
    """Forward beside the handles, together, curl the fingers, and back and apart."""
    inward, angle = (0.0 if now.step < 15 else 0.1), 1.4 * np.clip((now.step - 55) / 120, 0, 1)
    back = 0.38 * np.sin(angle) - 0.06 * (1 - np.cos(angle)) - 0.05
    apart = 0.38 * (1 - np.cos(angle)) + 0.06 * np.sin(angle)  # along the arc of the handles
    offset = np.array([[back, apart - inward, 0], [back, inward - apart, 0]])
    actions = _towards(now, offset, -1.0 if now.step < 35 else 0.9)
    actions[:, 3:6] = np.clip(-3 * now.obs[:, _TURN], -1, 1)
    return actions


def lift(now: Moment) -> np.ndarray:
    """Forward below the handles, curl the fingers, and up."""
    up = 0.45 * np.clip((now.step - 50) / 100, 0, 1)
    return _towards(now, np.array([[0, -0.11, up], [0, 0.11, up]]), -1.0 if now.step < 30 else 0.3)


def _towards(now: Moment, offset: np.ndarray, curl: float) -> np.ndarray:
    """Actions that move bases to ``offset`` [2, 3] from their first positions, with curled fingers."""
    actions = np.zeros(now.shape)
    actions[:, :3] = np.clip(8 * (now.first[:, _BASE] + offset - now.obs[:, _BASE]), -1, 1)
    actions[:, 6:] = np.where(_CURL, curl, _STRAIGHT)
    return actions


SCRIPTS: dict[str, Policy] = {"hands/door_open_inward": door, "hands/lift_underarm": lift}


def play(environment: HostEnvironment, policy: Policy, episodes: int) -> tuple[np.ndarray, float]:
    """(return, length, metrics …) [episodes, 2 + M], and steps a second."""
    game, rows, rng = environment.make(), [], np.random.default_rng(0)
    spec = game.spec
    assert isinstance(spec.action, Box) and spec.action.low == -spec.action.high
    out, own, seconds = blank(spec), own_actions(spec), 0.0
    for seed in range(episodes):
        refresh(out, own)
        game.reset(seed, out)
        first, total, steps = out.obs.copy(), 0.0, 0
        while not out.last:
            now = Moment(steps, out.obs, first, rng, (spec.num_agents, spec.action.dim))
            actions = (spec.action.high * policy(now)).astype(np.float32)
            refresh(out, own)
            before = time.process_time()
            game.step(actions, out)
            seconds += time.process_time() - before
            total, steps = total + out.reward[0], steps + 1
        rows.append([total, steps, *out.metrics])
    game.close()
    results = np.array(rows)
    return results, results[:, 1].sum() / seconds


def main() -> None:
    """Print a line for every environment and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*(f"hands/{task}" for task in TASKS), *(f"mamujoco/{task}" for task in ROBOTS)]
    parser.add_argument("environments", nargs="*", default=names)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--substeps", type=int, default=4, help="of hands")
    chosen = parser.parse_args()
    for name in chosen.environments:
        hands = name.startswith("hands/")
        environment = shoal.make(name, **({"substeps": chosen.substeps} if hands else {}))
        assert isinstance(environment, HostEnvironment)
        policies = [zero, *([straight] if hands else []), uniform, *([SCRIPTS[name]] if name in SCRIPTS else [])]
        for policy in policies:
            results, rate = play(environment, policy, chosen.episodes)
            mean, error = results.mean(0), results[:, 0].std(ddof=1) / np.sqrt(len(results))
            metrics = "  ".join(f"{m} {value:.2f}" for m, value in zip(environment.spec.metrics, mean[2:], strict=True))
            print(
                f"{name:28} {policy.__name__:9} return {mean[0]:9.2f} ± {error:6.2f}  steps {mean[1]:6.1f}  "
                f"{rate:5.0f} steps/s  {metrics}",
                flush=True,
            )


if __name__ == "__main__":
    main()
