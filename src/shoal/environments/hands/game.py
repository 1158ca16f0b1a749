"""Two hands as a game on MuJoCo: observations, rewards and ends of episodes. Does not import JAX.

Formulas of rewards are those of Bi-DexHands' code (Chen et al. 2022). Deviations from it: a time limit truncates and
does not terminate; ``lift_underarm`` pays 0.2 more per step, without which an early end is worth more than waiting;
observed forces are not multiplied by 10.
"""

import importlib
from typing import Any

import numpy as np

from shoal.environments.hands import model
from shoal.environments.hands.constants import TASKS
from shoal.environments.hands.model import JOINTS, MOTORS, PARTS, SIDES, TIPS
from shoal.errors import InputError
from shoal.game import HostTimestep
from shoal.spec import Box, EnvSpec
from shoal.system.extras import install, lacking

SPLITS = ("2x", "12x")
"""One agent for each hand, or for each wrist and finger."""

RATE = 60
"""Steps a second."""

HOLD = 10
"""Steps for which the goal must be reached to count as held."""

_DAMPING = 100.0
"""Rate at which a moving base loses its velocity, 1/s."""

_SPEED = 0.2
"""Scale of observed angular velocities."""
_CLIP = 5.0
"""Observations lie in [-5, 5]."""


def spec_of(name: str, split: str, see_partner: bool, horizon: int) -> EnvSpec:
    """The description of a task."""
    task = TASKS[name]
    base = 6 if task.force else 0
    counts = [sum(bool(joint.force) for link in links for joint in link.joints) for links in PARTS.values()]
    counts[0] += base
    if split == "2x":
        agents, dims = ["hand_a", "hand_b"], [sum(counts)] * 2
    else:
        agents = [
            f"hand_{side}{part}" for side in SIDES for part in ("wrist", "first", "middle", "ring", "little", "thumb")
        ]
        dims = counts * 2
    hand = hand_width(bool(base))
    return EnvSpec(
        name=f"hands/{name}" + ("" if split == SPLITS[0] else f"-{split}"),
        agents=tuple(agents),
        obs_dims=(hand * (2 if see_partner else 1) + task.width,) * len(agents),
        state_dim=2 * hand + task.width,
        action=Box(max(dims)),
        action_dims=tuple(dims),
        roles=tuple(range(len(agents))),  # both are right hands, seen in the frame of the world
        horizon=horizon,
        shared_reward=True,
        score="mean",
        metrics=("won", "held"),
        novel=(),
    )


def hand_width(moving: bool) -> int:
    """Numbers that describe a hand: 187, or 199 with its base."""
    return 3 * len(JOINTS) + (13 + 6) * len(TIPS) + len(MOTORS) + (12 if moving else 0)


class Hands:
    """A task; positions, velocities and forces are in the frame of the world.

    An agent observes its hand: positions of the 24 joints (scaled to -1 … 1), their velocities (× 0.2) and the torques
    of their motors; of each fingertip its position, quaternion (w, x, y, z), velocity and angular velocity; the force
    and torque on each; of a moving base its position and its rotation vector since the start; and its last action. Then
    the objects: see :meth:`_objects`. The state holds both hands, and the objects.
    """

    def __init__(self, spec: EnvSpec, name: str, substeps: int, see_partner: bool, render: bool = False) -> None:
        """``render`` is ignored: every game can draw."""
        try:
            self._mujoco: Any = importlib.import_module("mujoco")
        except ImportError as error:
            raise InputError(lacking("hands/…", "mujoco", error, install("hands"))) from error
        self.spec, self._task, self._substeps, self._see_partner = spec, TASKS[name], substeps, see_partner
        task, moving = self._task, self._task.force > 0
        self._model = m = self._mujoco.MjModel.from_xml_string(
            model.model(task.poses, moving, 1 / RATE / substeps, task.scene)
        )
        self._data = d = self._mujoco.MjData(m)
        self._renderer: Any = None
        self._clock, self._won, self._since = 0, False, 0

        self._q, self._v = (
            np.array([[getattr(m.joint(side + joint.name), of)[0] for joint in JOINTS] for side in SIDES])
            for of in ("qposadr", "dofadr")
        )
        self._tips = np.array([[m.body(side + tip).id for tip in TIPS] for side in SIDES])
        self._palms = np.array([m.body(side + "palm").id for side in SIDES])
        self._bases = np.array([m.body(side + "forearm").id for side in SIDES])
        self._low, self._high = np.array([[joint.low, joint.high] for joint in JOINTS]).T
        self._driven = np.array([i for i, joint in enumerate(JOINTS) if joint.force])
        objects = {"catch": ("egg", "egg_2"), "lift": ("pot",), "door": ()}[task.kind][: len(task.starts)]
        self._bodies = np.array([m.body(name).id for name in objects], int)
        self._object_q = [m.joint(name).qposadr[0] for name in objects]
        self._goals = [m.body(f"{name}_goal").mocapid[0] for name in objects]
        self._handles = [] if task.kind == "catch" else [m.site(f"handle_{side}").id for side in "ab"]
        self._leaves = [m.joint(f"leaf_{side}") for side in "ab"] if task.kind == "door" else []

        self._base_q = np.array([m.joint(side + "base").qposadr[0] for side in SIDES]) if moving else None
        if self._base_q is not None:  # as in PhysX, of which each of the base's velocities decays at this rate
            self._mujoco.mj_forward(m, d)
            for at in np.concatenate([m.joint(side + "base").dofadr[0] + np.arange(6) for side in SIDES]):
                inertia = np.zeros(m.nv)
                self._mujoco.mj_mulM(m, d, inertia, np.eye(m.nv)[at])
                m.dof_damping[at] = _DAMPING * inertia[at]
            self._start_q, self._start_x = d.qpos.copy(), d.xpos[self._bases]
        self._seen = np.concatenate([self._tips.ravel(), self._bodies])
        self._roots = m.body_rootid[self._seen]
        self._numbers, self._vector = np.zeros(spec.state_dim), np.zeros(3)
        self._rows = self._numbers[: 2 * hand_width(moving)].reshape(2, -1)
        self._actions = np.zeros((2, len(MOTORS) + (6 if moving else 0)))
        low, high = self._low[self._driven], self._high[self._driven]
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        # Of the team's padded actions, those of one hand after the other.
        self._from = np.concatenate([i * spec.action.width + np.arange(n) for i, n in enumerate(spec.action_dims)])

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode."""
        task, d, rng = self._task, self._data, np.random.default_rng(seed)
        self._mujoco.mj_resetData(self._model, d)
        self._clock, self._won, self._since = 0, False, 0
        self._actions[...] = 0.0
        spread = self._low + (self._high - self._low) * rng.uniform(-1, 1, len(JOINTS))
        d.qpos[self._q] = joints = np.clip(task.joint_noise * spread, self._low, self._high)  # the same for both hands
        d.ctrl[...] = np.tile(joints[self._driven], 2)
        shift = task.position_noise * rng.uniform(-1, 1, 3)
        turn, goal_turn = _turn(*rng.uniform(-np.pi, np.pi, 2)), _turn(*rng.uniform(-np.pi, np.pi, 2))
        for at, start, to, goal in zip(self._object_q, task.starts, self._goals, task.goals, strict=True):
            d.qpos[at : at + 3], d.mocap_pos[to] = start + shift, goal
            if task.kind == "catch":
                d.qpos[at + 3 : at + 7], d.mocap_quat[to] = turn, goal_turn
        self._mujoco.mj_forward(self._model, d)
        self._mujoco.mj_rnePostConstraint(self._model, d)
        self._write(out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play float32 [N, A] for 1/60 s."""
        m, d, mujoco, task = self._model, self._data, self._mujoco, self._task
        self._actions[...] = action.ravel()[self._from].reshape(2, -1)
        d.ctrl[...] = (self._middle + self._half * self._actions[:, -len(MOTORS) :]).ravel()
        if self._base_q is not None:
            d.xfrc_applied[self._bases, :3] = task.force * self._actions[:, :3]
            d.xfrc_applied[self._bases, 3:] = task.torque * self._actions[:, 3:6]
        for left in reversed(range(self._substeps)):
            # In this order positions and velocities are those of the new state at the end, without a second pass.
            mujoco.mj_step2(m, d)
            if left == 0:  # the forces of this step's contacts, which mj_step1 replaces
                mujoco.mj_rnePostConstraint(m, d)
            mujoco.mj_step1(m, d)
        self._clock += 1
        self._write(out)
        reward, reached, near, over = getattr(self, f"_{task.kind}")()
        self._won |= reached
        self._since = self._since + 1 if near else 0
        out.reward[...] = reward
        out.metrics[:] = self._won, self._since >= HOLD
        if over:
            out.discount[...] = 0.0
        out.last[...] = over or self._clock >= self.spec.horizon

    # Each task: reward, whether the goal is reached, whether it is nearly, and whether the episode terminates.

    def _catch(self) -> tuple[float, bool, bool, bool]:
        task, d, reward, far, count = self._task, self._data, 0.0, 0.0, len(self._bodies)
        for body, goal in zip(self._bodies, self._goals, strict=True):
            distance = _norm(d.mocap_pos[goal] - d.xpos[body])
            reward += np.exp(-0.2 * (task.scale * distance + _angle(d.xquat[body], d.mocap_quat[goal])))
            far += distance
        over = d.xpos[self._bodies, 2].min() <= task.floor
        if task.stray < np.inf:
            over |= max(_norm(move) for move in d.xpos[self._bases] - self._start_x) >= task.stray
        return reward, far < 0.03 * count, far < 0.05 * count, bool(over)

    def _door(self) -> tuple[float, bool, bool, bool]:
        d = self._data
        handles = d.site_xpos[self._handles]
        fingers = d.xpos[self._tips] + 0.02 * d.xmat[self._tips][..., 2::3]
        apart = np.sqrt(((fingers - handles[:, None]) ** 2).sum(-1)).sum(-1)
        span = abs(handles[0, 1] - handles[1, 1])
        reward = 2.0 - apart.sum() + (2 * span if apart.max() < 0.5 else 0.0)
        won = bool(span > 0.5)
        return float(reward), won, won, bool(apart.max() >= 1.5)

    def _lift(self) -> tuple[float, bool, bool, bool]:
        d, axes = self._data, self._data.xmat[self._palms]
        palms = d.xpos[self._palms] + 0.08 * axes[:, 2::3] - 0.02 * axes[:, 1::3]
        apart = np.sqrt(((palms - d.site_xpos[self._handles]) ** 2).sum(-1))
        pot = d.xpos[self._bodies[0]]
        far = _norm(d.mocap_pos[self._goals[0]] - pot)
        reward = 0.4 - apart.sum() + (3 * (0.385 - far) if apart.max() < 0.08 else 0.0)
        return float(reward), far < 0.05, far < 0.05, bool(pot[2] <= self._task.floor or apart.max() >= 0.2)

    # Observations.

    def _write(self, out: HostTimestep) -> None:
        d, rows, count = self._data, self._rows, self._tips.size
        place, move = d.xpos.take(self._seen, 0), d.cvel.take(self._seen, 0)
        arms = place - d.subtree_com.take(self._roots, 0)  # velocities and wrenches are about the tree's centre of mass
        wrench = d.cfrc_ext.take(self._seen[:count], 0)
        turned = _cross(np.concatenate([move[:, :3], arms[:count]]), np.concatenate([arms, wrench[:, 3:]]))
        speeds, torques = move[:, 3:] + turned[: len(move)], wrench[:, :3] - turned[len(move) :]

        rows[:, :24] = (2 * d.qpos.take(self._q) - self._low - self._high) / (self._high - self._low)
        rows[:, 24:48] = _SPEED * d.qvel.take(self._v)
        rows[:, 48:72] = d.qfrc_actuator.take(self._v)
        tips = np.concatenate([place[:count], d.xquat.take(self._seen[:count], 0), speeds[:count], move[:count, :3]], 1)
        rows[:, 72:137] = tips.reshape(2, -1)
        rows[:, 137:167] = np.concatenate([wrench[:, 3:], torques], 1).reshape(2, -1)
        if self._base_q is not None:
            rows[:, 167:170] = d.xpos[self._bases]
            for row, at in zip(rows, self._base_q + 3, strict=True):
                start = self._start_q[at : at + 4]
                self._mujoco.mju_subQuat(self._vector, d.qpos[at : at + 4], start)  # in the hand's own frame
                self._mujoco.mju_rotVecQuat(self._vector, self._vector.copy(), start)
                row[170:173] = self._vector
        rows[:, -self._actions.shape[1] :] = self._actions
        self._numbers[rows.size :] = self._objects(speeds[count:], move[count:, :3])

        out.state[...] = np.maximum(np.minimum(self._numbers, _CLIP), -_CLIP)
        width, half = rows.shape[1], self.spec.num_agents // 2
        hands = out.state[:width], out.state[width : 2 * width]
        for own, partner, obs in ((*hands, out.obs[:half]), (*hands[::-1], out.obs[half:])):
            obs[:, :width] = own
            if self._see_partner:
                obs[:, width : 2 * width] = partner
            obs[:, -self._task.width :] = out.state[2 * width :]

    def _objects(self, speeds: np.ndarray, spins: np.ndarray) -> np.ndarray:
        """What all agents observe beside hands, from the eggs' or the pot's velocities and angular velocities, [K, 3].

        Of each egg and of the pot position, quaternion, velocity and angular velocity (× 0.2). Then of an egg its
        goal's position and quaternion and the quaternion from goal to egg; of a door and a pot the positions of both
        handles; of a door the angles of its leaves, and their velocities (× 0.2).
        """
        d, rows = self._data, []
        for i, body in enumerate(self._bodies):
            rows += [d.xpos[body], d.xquat[body], speeds[i], _SPEED * spins[i]]
            if self._task.kind == "catch":
                goal = self._goals[i]
                rows += [d.mocap_pos[goal], d.mocap_quat[goal], _difference(d.xquat[body], d.mocap_quat[goal])]
        rows += [d.site_xpos[handle] for handle in self._handles]
        rows += [d.qpos[leaf.qposadr] for leaf in self._leaves]
        rows += [_SPEED * d.qvel[leaf.dofadr] for leaf in self._leaves]
        return np.concatenate(rows)

    def render(self) -> np.ndarray:
        """A picture of 480 x 360 pixels."""
        if self._renderer is None:
            self._renderer = self._mujoco.Renderer(self._model, 360, 480)
            self._camera = camera = self._mujoco.MjvCamera()
            camera.lookat, camera.distance, camera.azimuth, camera.elevation = _VIEWS[self._task.kind]
        self._renderer.update_scene(self._data, self._camera)
        return self._renderer.render()

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


_VIEWS = {
    "catch": ((0.0, -0.5, 0.6), 1.4, 200.0, -25.0),
    "door": ((0.15, 0.0, 0.6), 1.5, 215.0, -25.0),
    "lift": ((0.0, -0.6, 0.5), 1.4, 200.0, -25.0),
}
"""What the camera looks at, its distance in m, and its angles in degrees."""


_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])


def _cross(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Cross products of [K, 3] and [K, 3]; NumPy's takes ten times as long."""
    out = one.take(_NEXT, 1) * other.take(_LAST, 1)
    out -= one.take(_LAST, 1) * other.take(_NEXT, 1)
    return out


def _norm(vector: np.ndarray) -> float:
    return float(np.sqrt(vector @ vector))


def _turn(x: float, y: float) -> np.ndarray:
    """The quaternion of a turn about y by ``y`` and then about x by ``x``."""
    (sx, sy), (cx, cy) = np.sin([x / 2, y / 2]), np.cos([x / 2, y / 2])
    return np.array([cx * cy, sx * cy, cx * sy, sx * sy])


def _difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The quaternion of ``one`` times the inverse of ``other``."""
    (w, x, y, z), (a, b, c, d) = one, other
    return np.array(
        [
            w * a + x * b + y * c + z * d,
            -w * b + x * a - y * d + z * c,
            -w * c + x * d + y * a - z * b,
            -w * d - x * c + y * b + z * a,
        ]
    )


def _angle(one: np.ndarray, other: np.ndarray) -> float:
    """The angle between two quaternions, in [0, π]."""
    return 2 * float(np.arccos(min(1.0, abs(one @ other))))
