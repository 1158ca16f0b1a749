"""Two hands: the model beside gymnasium-robotics' hand, and the rules of the tasks."""

import importlib
import pickle
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.environments import registry
from shoal.environments.hands import model
from shoal.environments.hands.constants import TASKS
from shoal.errors import InputError
from shoal.game import HostTimestep, blank, own_actions, refresh
from shoal.spec import Box
from support.environments import host_env

mujoco: Any = pytest.importorskip("mujoco")


def start(task: str, seed: int = 3, **options: Any) -> tuple[Any, HostTimestep]:
    """A game at the start of an episode."""
    game: Any = pickle.loads(pickle.dumps(host_env(f"hands/{task}", **options).make))()
    out = blank(game.spec)
    refresh(out, own_actions(game.spec))
    game.reset(seed, out)
    return game, out


def play(game: Any, out: HostTimestep, action: np.ndarray, steps: int = 1) -> None:
    for _ in range(steps):
        refresh(out, own_actions(game.spec))
        game.step(action, out)


def actions(game: Any, hands: np.ndarray) -> np.ndarray:
    """The team's padded actions from those of both hands, [2, K]."""
    spec, at = game.spec, 0
    padded = np.zeros((spec.num_agents, spec.action.dim), np.float32)
    for row, width in zip(padded, spec.action_dims, strict=True):
        row[:width] = hands.ravel()[at : at + width]
        at += width
    return padded


def straight(game: Any) -> np.ndarray:
    """Both hands' actions whose targets are straight joints."""
    low, high = np.array([[joint.low, joint.high] for joint in model.MOTORS]).T
    rows = np.zeros((2, sum(game.spec.action_dims) // 2))
    rows[:, -20:] = -(low + high) / (high - low)
    return rows


@pytest.mark.parametrize(
    ("task", "hand", "objects"),
    [
        ("over", 187, 24),
        ("catch_underarm", 199, 24),
        ("two_catch_underarm", 199, 48),
        ("over2underarm", 199, 24),
        ("door_open_inward", 199, 10),
        ("lift_underarm", 199, 19),
    ],
)
def test_spaces_are_those_of_the_task(task: str, hand: int, objects: int):
    """Bi-DexHands' 187 or 199 numbers of a hand and 20 or 26 actions; 24 numbers of an egg and its goal."""
    moving = hand > 187
    for split, dims in (("", [20]), ("-12x", [2, 3, 3, 3, 4, 5])):
        game, out = start(task + split)
        spec = game.spec
        assert spec == host_env(f"hands/{task}{split}").spec and spec.name == f"hands/{task}{split}"
        own = [dims[0] + 6 * moving, *dims[1:]]
        assert spec.action_dims == tuple(own) * 2 and spec.num_agents == 2 * len(dims)
        assert isinstance(spec.action, Box) and (spec.action.low, spec.action.high) == (-1.0, 1.0)
        assert spec.obs_dims == (hand + objects,) * spec.num_agents and spec.state_dim == 2 * hand + objects
        assert spec.horizon == TASKS[task].steps and spec.shared_reward
        # Agents of the first hand see it and the objects; so do those of the other. The state has all.
        half = spec.num_agents // 2
        np.testing.assert_array_equal(out.obs[:half, :hand], np.tile(out.state[:hand], (half, 1)))
        np.testing.assert_array_equal(out.obs[half:, :hand], np.tile(out.state[hand : 2 * hand], (half, 1)))
        np.testing.assert_array_equal(out.obs[:, hand:], np.tile(out.state[2 * hand :], (2 * half, 1)))


def test_partners_are_seen_on_request():
    spec = host_env("hands/over", see_partner=True).spec
    _, out = start("over", see_partner=True)
    assert spec.obs_dims == (2 * 187 + 24,) * 2
    np.testing.assert_array_equal(out.obs[0], out.state)
    np.testing.assert_array_equal(out.obs[1, :187], out.obs[0, 187:374])


def test_the_hand_is_gymnasium_robotics_hand():
    """Bodies, shapes, joints and motors, at random joints, by the file that the package ships."""
    package = util.find_spec("gymnasium_robotics")
    if package is None:
        pytest.skip("gymnasium-robotics is not installed")
    theirs = mujoco.MjModel.from_xml_path(
        f"{package.submodule_search_locations[0]}/envs/assets/hand/manipulate_egg.xml"  # pyright: ignore
    )
    mount = tuple(theirs.body("robot0:hand mount").pos)
    ours = mujoco.MjModel.from_xml_string(model.model([model.Pose(mount), model.Pose((9, 9, 9))], False, 0.002, ""))
    their_data, our_data = mujoco.MjData(theirs), mujoco.MjData(ours)
    rng = np.random.default_rng(0)
    assert len(model.JOINTS) == 24 and len(model.MOTORS) == 20
    for joint in model.JOINTS:
        one, other = theirs.joint(f"robot0:{joint.name}"), ours.joint(f"a_{joint.name}")
        for of in ("range", "damping", "armature", "frictionloss", "axis"):
            np.testing.assert_allclose(getattr(one, of), getattr(other, of), atol=1e-6)
        their_data.qpos[one.qposadr] = our_data.qpos[other.qposadr] = rng.uniform(joint.low, joint.high)
    for i, motor in enumerate(model.MOTORS):
        one, other = theirs.actuator(i), ours.actuator(i)
        assert one.name == f"robot0:A_{motor.name}" and other.name == f"a_{motor.name}"
        for of in ("ctrlrange", "forcerange", "gainprm", "biasprm"):
            np.testing.assert_allclose(getattr(one, of), getattr(other, of))
    mujoco.mj_kinematics(theirs, their_data)
    mujoco.mj_kinematics(ours, our_data)
    for link in (link for links in model.PARTS.values() for link in links):
        one, other = theirs.body(f"robot0:{link.name}").id, ours.body(f"a_{link.name}").id
        for of in ("xpos", "xmat", "xipos"):
            np.testing.assert_allclose(getattr(their_data, of)[one], getattr(our_data, of)[other], atol=2e-5)
        assert theirs.body_mass[one] == ours.body_mass[other]
        for shape in (geom.split()[0] for geom in link.geoms):
            one, other = theirs.geom(f"robot0:C_{shape}").id, ours.geom(f"a_{shape}").id
            for of in ("geom_xpos", "geom_xmat"):
                np.testing.assert_allclose(getattr(their_data, of)[one], getattr(our_data, of)[other], atol=1e-3)
            for of in ("geom_size", "geom_condim", "geom_contype", "geom_conaffinity", "geom_friction"):
                np.testing.assert_array_equal(getattr(theirs, of)[one], getattr(ours, of)[other])


def test_hands_face_each_other():
    """Palms 0.42 m and fingertips about 4 cm apart, as in Bi-DexHands' hand-over; the egg lies above the first."""
    game, _ = start("over")
    d = game._data
    palms, tips = d.xpos[game._palms], d.xpos[game._tips].mean(1)
    np.testing.assert_allclose(palms[:, 1], [-0.29, -0.71], atol=1e-3)
    assert tips[1, 1] < tips[0, 1] - 0.02
    egg = d.xpos[game._bodies[0]]
    np.testing.assert_allclose(egg, [0, -0.39, 0.54], atol=0.01)


def test_an_egg_at_its_goal_earns_one():
    game, _ = start("over")
    d = game._data
    assert np.exp(-0.2 * (50 * 0.27 + np.pi)) < game._catch()[0] < np.exp(-0.2 * 50 * 0.23)
    at = game._object_q[0]
    d.qpos[at : at + 7] = [*d.mocap_pos[0], *d.mocap_quat[0]]
    mujoco.mj_kinematics(game._model, d)
    assert game._catch() == (pytest.approx(1.0), True, True, False)
    d.qpos[at + 2] = 0.19
    mujoco.mj_kinematics(game._model, d)
    assert game._catch()[3]


def test_quaternions_and_speeds_are_those_of_mujoco():
    game, out = start("over")
    game._data.qvel[:] = np.random.default_rng(0).normal(size=game._model.nv)
    play(game, out, actions(game, straight(game)))
    d, m = game._data, game._model
    tips = np.zeros((10, 13))
    for row, body in zip(tips, game._tips.ravel(), strict=True):
        row[:7] = *d.xpos[body], *d.xquat[body]
        mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_XBODY, body, velocity := np.zeros(6), 0)
        row[7:] = *velocity[3:], *velocity[:3]
    np.testing.assert_allclose(out.state[:374].reshape(2, 187)[:, 72:137], tips.reshape(2, 65).clip(-5, 5), atol=1e-6)
    spin = np.zeros(3)  # MuJoCo's is in the frame of the body
    mujoco.mju_rotVecQuat(spin, d.qvel[-3:], d.xquat[game._bodies[0]])
    np.testing.assert_allclose(out.state[381:387], [*d.qvel[-6:-3], *0.2 * spin], atol=1e-5)
    conjugate, product = np.zeros(4), np.zeros(4)
    mujoco.mju_negQuat(conjugate, d.mocap_quat[0])
    mujoco.mju_mulQuat(product, d.xquat[game._bodies[0]], conjugate)
    np.testing.assert_allclose(out.state[-4:], product, atol=1e-6)
    vector = np.zeros(3)
    mujoco.mju_quat2Vel(vector, product, 1.0)
    assert np.exp(-10 * np.linalg.norm(d.mocap_pos[0] - d.xpos[game._bodies[0]]) - 0.2 * np.linalg.norm(vector)) == (
        pytest.approx(game._catch()[0])
    )


def test_a_step_is_mujoco_s():
    """The split into mj_step2 and mj_step1 leaves positions as mj_step does, and observes the state that is left."""
    game, out = start("over")
    d, m = game._data, game._model
    plain = mujoco.MjData(m)
    plain.qpos[:], plain.mocap_pos[:], plain.mocap_quat[:] = d.qpos, d.mocap_pos, d.mocap_quat
    hands = np.random.default_rng(1).uniform(-1, 1, (2, 20)).astype(np.float32)
    play(game, out, actions(game, hands), 20)
    plain.ctrl[:] = d.ctrl
    mujoco.mj_step(m, plain, 80)
    np.testing.assert_allclose(d.qpos, plain.qpos, atol=1e-6)
    seen = d.xpos.copy()
    mujoco.mj_kinematics(m, d)
    np.testing.assert_array_equal(seen, d.xpos)


def test_an_episode_depends_on_its_seed_alone():
    game, first = start("catch_underarm-12x", seed=8)
    hands = np.random.default_rng(1).uniform(-1, 1, (2, 26)).astype(np.float32)
    play(game, first, actions(game, hands), 3)
    later = blank(game.spec)
    for seed, same in ((9, False), (8, True)):
        game.reset(seed, later)
        play(game, later, actions(game, hands), 3)
        assert np.array_equal(first.obs, later.obs) is same


def test_agents_divide_the_hands_actions():
    """With one agent for each wrist and finger the same actions have the same effect."""
    hands = np.random.default_rng(1).uniform(-1, 1, (2, 26)).astype(np.float32)
    states = []
    for split in ("", "-12x"):
        game, out = start("over2underarm" + split)
        play(game, out, actions(game, hands), 3)
        states.append(out.state.copy())
    np.testing.assert_array_equal(*states)


def test_bases_move_along_the_world():
    """At the speed F / (100 M) of Bi-DexHands' damping, about 0.16 m/s, whatever way the hand is turned."""
    game, out = start("catch_underarm")
    hands = straight(game)
    hands[:, 0], hands[1, 2] = 1.0, 1.0
    before = game._data.xpos[game._bases].copy()
    play(game, out, actions(game, hands), 30)
    moved = (game._data.xpos[game._bases] - before) / 0.5
    np.testing.assert_allclose(moved[:, 0], 0.16, rtol=0.15)
    np.testing.assert_allclose(moved[:, 2], [0, 0.16], atol=0.03)
    assert abs(moved[:, 1]).max() < 0.03


def test_time_limits_truncate_and_drops_terminate():
    game, out = start("over", horizon=3)
    action = actions(game, straight(game))
    play(game, out, action, 2)
    assert not out.last
    play(game, out, action)
    assert out.last and out.discount.all() and out.metrics.tolist() == [0, 0]
    game, out = start("over")
    game._data.qpos[game._object_q[0] + 2] = 0.1
    play(game, out, action)
    assert out.last and not out.discount.any()


def test_a_goal_that_is_kept_is_won_and_held():
    game, out = start("over")
    game._catch = lambda: (1.0, game._clock == 1, True, False)
    play(game, out, actions(game, straight(game)), 9)
    assert out.metrics.tolist() == [1, 0]
    play(game, out, actions(game, straight(game)))
    assert out.metrics.tolist() == [1, 1]


def test_doors_open_towards_the_hands_and_pay():
    game, _ = start("door_open_inward")
    d = game._data
    fingers = [
        d.xpos[game._model.body(side + tip).id] + 0.02 * d.xmat[game._model.body(side + tip).id].reshape(3, 3)[:, 2]
        for side in model.SIDES
        for tip in model.TIPS
    ]
    handles = d.site_xpos[game._handles]
    apart = [
        sum(np.linalg.norm(finger - handle) for finger in fingers[5 * i :][:5]) for i, handle in enumerate(handles)
    ]
    assert game._door()[0] == pytest.approx(2 - sum(apart))
    assert 0.5 < max(apart) < 1.5 and not game._door()[3]
    for leaf in game._leaves:
        d.qpos[leaf.qposadr] = np.radians(65)
    mujoco.mj_kinematics(game._model, d)
    handles = d.site_xpos[game._handles]
    assert (handles[:, 0] > 0.3).all() and handles[0, 1] - handles[1, 1] > 0.5 and game._door()[1]


def test_lifting_pays_while_both_palms_are_near():
    game, _ = start("lift_underarm")
    d = game._data
    reward, won, _, over = game._lift()
    assert 0 < reward < 0.4 and not won and not over
    at = game._object_q[0]
    d.qpos[at : at + 3] = d.mocap_pos[0]
    d.qpos[game._base_q + 2] += 0.4
    d.qpos[game._base_q + 1] += [-0.1, 0.1]
    mujoco.mj_kinematics(game._model, d)
    reward, won, _, over = game._lift()
    assert reward > 0.4 - 0.16 + 3 * 0.385 and won and not over


@pytest.mark.parametrize("task", ["door_open_inward", "lift_underarm"])
def test_a_script_opens_the_door_and_lifts_the_pot(task: str, monkeypatch: pytest.MonkeyPatch):
    """Fingers take hold of handles: contacts bear the weight."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    scripted: Any = importlib.import_module("bodies")
    (row,), _ = scripted.play(host_env(f"hands/{task}", horizon=220, substeps=2), scripted.SCRIPTS[f"hands/{task}"], 1)
    assert row[1:].tolist() == [220, 1, 1]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("hands/ovr", {}, "did you mean 'over'"),
        ("hands/over-3x", {}, "division of two hands"),
        ("hands/over-", {}, "division of two hands"),
        ("hands/over", {"substeps": 0}, "substeps must be"),
    ],
)
def test_unknown_tasks_are_refused(name: str, options: dict[str, Any], said: str):
    with pytest.raises(InputError, match=said):
        registry.make(name, **options)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(InputError, match=r"pip install 'mujoco>="):
        registry.make("hands/over")


def test_worker_processes_do_not_import_jax():
    code = "import sys; from shoal.environments.hands.tasks import make; make('over').make().close()"
    code += "; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_joints_motors_forces_bases_and_actions_are_those_of_mujoco():
    """By the names of the model, and forces from the single contacts; until a fingertip touches the egg."""
    game, out = start("catch_underarm")
    m, d = game._model, game._data
    rng, touched = np.random.default_rng(0), 0
    starts = {side: d.joint(side + "base").qpos.copy() for side in model.SIDES}
    for _ in range(40):
        hands = rng.uniform(-1, 1, (2, 26)).astype(np.float32)
        hands[:, 6:] = np.where(rng.random((2, 20)) < 0.5, 1.0, hands[:, 6:])  # close
        before = mujoco.MjData(m)
        mujoco.mj_copyData(before, m, d)
        play(game, out, actions(game, hands))
        before.ctrl[:], before.xfrc_applied[:] = d.ctrl, d.xfrc_applied
        for left in reversed(range(game._substeps)):
            mujoco.mj_step2(m, before)
            if left:
                mujoco.mj_step1(m, before)
        forces = contact_forces(m, before)
        rows = out.state[:398].reshape(2, 199)
        for side, row, hand in zip(model.SIDES, rows, hands, strict=True):
            joints = [d.joint(side + joint.name) for joint in model.JOINTS]
            scaled = [np.interp(x.qpos[0], [j.low, j.high], [-1, 1]) for x, j in zip(joints, model.JOINTS, strict=True)]
            np.testing.assert_allclose(row[:24], scaled, atol=0.02)  # soft limits are exceeded a little
            np.testing.assert_allclose(row[24:48], np.clip([0.2 * x.qvel[0] for x in joints], -5, 5), atol=1e-6)
            torques = np.zeros(24)
            for i, joint in enumerate(model.JOINTS):
                torques[i] = sum(
                    d.actuator_force[k] for k in range(m.nu) if m.actuator_trnid[k, 0] == m.joint(side + joint.name).id
                )
            np.testing.assert_allclose(row[48:72], torques.clip(-5, 5), atol=1e-6)
            wrenches = np.array([forces[m.body(side + tip).id] for tip in model.TIPS])
            seen = row[137:167].reshape(5, 6)
            np.testing.assert_allclose(seen[:, :3], wrenches[:, :3].clip(-5, 5), atol=1e-3)
            # The game takes torques about where the tips are after the step, here it is before.
            np.testing.assert_allclose(seen[:, 3:], wrenches[:, 3:].clip(-5, 5), atol=0.05)
            touched += int((np.abs(wrenches) > 0.01).any())
            np.testing.assert_allclose(row[167:170], d.body(side + "forearm").xpos, atol=1e-6)
            turn, now = np.zeros(4), d.joint(side + "base").qpos[3:]
            mujoco.mju_negQuat(back := np.zeros(4), starts[side][3:])
            mujoco.mju_mulQuat(turn, now, back)  # in the frame of the world
            mujoco.mju_quat2Vel(vector := np.zeros(3), turn, 1.0)
            np.testing.assert_allclose(row[170:173], vector, atol=1e-6)
            np.testing.assert_array_equal(row[173:], hand)
        if out.last:
            break
    assert touched > 3


def contact_forces(m: Any, d: Any) -> np.ndarray:
    """[bodies, 6], force on each body, and torque about its position, from its contacts."""
    found = np.zeros((m.nbody, 6))
    for i in range(d.ncon):
        contact, local = d.contact[i], np.zeros(6)
        mujoco.mj_contactForce(m, d, i, local)
        frame = np.asarray(contact.frame).reshape(3, 3)
        force, torque = local[:3] @ frame, local[3:] @ frame
        for geom, sign in ((contact.geom1, -1.0), (contact.geom2, 1.0)):
            body = m.geom_bodyid[geom]
            found[body, :3] += sign * force
            found[body, 3:] += sign * (torque + np.cross(contact.pos - d.xpos[body], force))
    return found
