"""MuJoCo's model of two Shadow hands and what they handle, as MJCF text of boxes, capsules and cylinders.

Dimensions, masses, joints, gains and forces of the hand are those of the model of the Shadow hand that
gymnasium-robotics and Bi-DexHands (Chen et al. 2022) use; its meshes are replaced by the shapes that collide. Units
are metres, kilograms, radians and newtons.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Joint(NamedTuple):
    """A hinge of a hand."""

    name: str
    axis: str
    low: float
    high: float
    force: float
    """The largest torque of its motor, N m; 0 for a joint without one."""


class Link(NamedTuple):
    """A body of a hand with its hinges."""

    name: str
    pos: str
    """In the frame of the body before it."""
    joints: tuple[Joint, ...]
    mass: float
    com: str
    inertia: float = 1e-5
    """About each axis, kg m²."""
    geoms: tuple[str, ...] = ()
    """What collides: a name and the other attributes."""
    turn: str = ""
    """Further attributes of the body."""


def _capsule(name: str, length: float, radius: float, more: str = "") -> str:
    """A capsule along z from the body's origin; ``length`` is half of it."""
    return f'{name} type="capsule" pos="0 0 {length}" size="{radius} {length}" {more}'


def _finger(name: str, pos: str, base: tuple[Joint, ...]) -> list[Link]:
    """Four links, from the knuckle to the tip; ``base`` are the knuckle's joints."""
    low = name.lower()
    middle = 0.011 if name == "FF" else 0.012  # the source's own difference
    return [
        Link(f"{low}knuckle", pos, base, 0.008, "0 0 0"),
        Link(
            f"{low}proximal", "0 0 0", (Joint(f"{name}J2", "1 0 0", 0, 1.571, 0.9),), 0.014, "0 0 0.023",
            geoms=(_capsule(f"{low}proximal", 0.0225, 0.01),),
        ),
        Link(
            f"{low}middle", "0 0 0.045", (Joint(f"{name}J1", "1 0 0", 0, 1.571, 0.7245),), 0.012, f"0 0 {middle}",
            geoms=(_capsule(f"{low}middle", 0.0125, 0.00805),),
        ),
        Link(
            f"{low}distal", "0 0 0.025", (Joint(f"{name}J0", "1 0 0", 0, 1.571, 0),), 0.01, "0 0 0.015",
            geoms=(_capsule(f"{low}distal", 0.012, 0.00705, more='condim="4"'),),
        ),
    ]  # fmt: skip


def _side(name: str) -> Joint:
    return Joint(f"{name}J3", "0 1 0", -0.349, 0.349, 0.9)


# The forearm's origin is its centre of mass, 0.256 + 0.034 m from the mount.
WRIST = Link(
    "wrist", "0 0 -0.034", (Joint("WRJ1", "0 1 0", -0.489, 0.14, 4.785),), 0.3, "0.003 0 0.016", 0.001,
    ('wrist type="capsule" euler="1.5708 0 0" size="0.015 0.01"',),
)  # fmt: skip
PALM = Link(
    "palm", "0 0 0.034", (Joint("WRJ0", "1 0 0", -0.698, 0.489, 2.175),), 0.3, "0.006 0 0.036", 0.001,
    (
        'palm0 type="box" pos="0.011 0 0.038" size="0.032 0.0111 0.049"',
        'palm1 type="box" pos="-0.032 0 0.014" size="0.011 0.0111 0.025"',
    ),
)  # fmt: skip
METACARPAL = Link(
    "lfmetacarpal", "-0.017 0 0.044", (Joint("LFJ4", "0.571 0 0.821", 0, 0.785, 0.9),), 0.075, "-0.014 0.001 0.014",
    geoms=('lfmetacarpal type="box" pos="-0.0165 0 0.01" size="0.0095 0.0111 0.025"',),
)  # fmt: skip
THUMB = [
    Link(
        "thbase", "0.034 -0.009 0.029", (Joint("THJ4", "0 0 -1", -1.047, 1.047, 2.3722),), 0.01, "0 0 0",
        turn='axisangle="0 1 0 0.785"',
    ),
    Link(
        "thproximal", "0 0 0", (Joint("THJ3", "1 0 0", 0, 1.222, 1.45),), 0.016, "0 0 0.017",
        geoms=(_capsule("thproximal", 0.019, 0.013),),
    ),
    Link("thhub", "0 0 0.038", (Joint("THJ2", "1 0 0", -0.209, 0.209, 0.99),), 0.002, "0 0 0"),
    Link(
        "thmiddle", "0 0 0", (Joint("THJ1", "0 1 0", -0.524, 0.524, 0.99),), 0.016, "0 0 0.016",
        geoms=(_capsule("thmiddle", 0.016, 0.011),),
    ),
    Link(
        "thdistal", "0 0 0.032", (Joint("THJ0", "0 1 0", -1.571, 0, 0.81),), 0.016, "0 0 0.016",
        geoms=(_capsule("thdistal", 0.013, 0.00918, more='condim="4"'),),
    ),
]  # fmt: skip
FINGERS = {
    "FF": _finger("FF", "0.033 0 0.095", (_side("FF"),)),
    "MF": _finger("MF", "0.011 0 0.099", (_side("MF"),)),
    "RF": _finger("RF", "-0.011 0 0.095", (_side("RF"),)),
    "LF": [METACARPAL, *_finger("LF", "-0.017 0 0.044", (_side("LF"),))],
    "TH": THUMB,
}
"""First, middle, ring and little finger, and thumb; each from the palm to its tip."""

PARTS = {"WR": [WRIST, PALM], **FINGERS}
"""The parts of a hand, each a chain of links."""

JOINTS = tuple(joint for links in PARTS.values() for link in links for joint in link.joints)
"""A hand's 24 joints."""

MOTORS = tuple(joint for joint in JOINTS if joint.force)
"""Its 20 motors: all but those of the last joints of four fingers, which a tendon couples to the joints before."""

TIPS = ("ffdistal", "mfdistal", "rfdistal", "lfdistal", "thdistal")

# The pairs of a hand's links that touch each other; others pass through, as do the links of different hands.
_PAIRS = """ffdistal thdistal|ffmiddle thdistal|ffproximal thdistal|mfproximal thdistal|mfdistal thdistal
rfdistal thdistal|lfdistal thdistal|palm0 thdistal|mfdistal ffdistal|rfdistal mfdistal|lfdistal rfdistal
mfproximal ffproximal|rfproximal mfproximal|lfproximal rfproximal|lfdistal mfdistal|lfdistal rfmiddle
lfmiddle rfdistal|lfmiddle rfmiddle"""

SIDES = ("a_", "b_")
"""The prefixes of the two hands' names."""

CENTRE = 0.29
"""Distance from the mount to the forearm's centre of mass along the fingers, m. A moving base is driven there."""

_MOUNTED = np.array([[-1.0, 0, 0], [0, 0, -1], [0, -1, 0]])
"""The hand's axes in the frame of its mount: its fingers (z) point to -y, and its palm (-y) looks up."""


class Pose(NamedTuple):
    """Where a hand starts."""

    mount: tuple[float, float, float]
    """Position of its mount, in the world."""
    turns: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Angles about the world's axes x, y and z by which it is turned about its mount, in this order."""

    @property
    def frame(self) -> tuple[np.ndarray, np.ndarray]:
        """Position [3] and axes [3, 3] of the forearm, with its origin in the centre of mass."""
        axes = _MOUNTED
        for axis, angle in enumerate(self.turns):
            i, j = [k for k in range(3) if k != axis]
            turn, sign = np.eye(3), -1.0 if axis == 1 else 1.0
            turn[[i, j], [i, j]] = np.cos(angle)
            turn[j, i], turn[i, j] = sign * np.sin(angle), -sign * np.sin(angle)
            axes = turn @ axes
        return np.array(self.mount) + axes @ (0.0, 0.01, CENTRE), axes


def model(poses: Sequence[Pose], moving: bool, step: float, scene: str) -> str:
    """The MJCF text of two hands and a scene.

    Args:
        poses: those of the two hands.
        moving: whether the forearms float, without gravity; else they are fixed.
        step: of the physics, s.
        scene: the bodies of objects and goals.
    """
    colours = ("0.55 0.67 0.85 1", "0.9 0.68 0.45 1")
    hands = "".join(_hand(*each, moving) for each in zip(SIDES, poses, colours, strict=True))
    pairs = "".join(
        f'<pair geom1="{side}{one}" geom2="{side}{other}" condim="1"/>'
        for side in SIDES
        for one, other in map(str.split, _PAIRS.replace("\n", "|").split("|"))
    )
    tendons = "".join(
        f'<fixed name="{side}{name}" limited="true" range="-0.001 0.001"><joint joint="{side}{name}J0" coef="0.00705"/>'
        f'<joint joint="{side}{name}J1" coef="-0.00805"/></fixed>'
        for side in SIDES
        for name in ("FF", "MF", "RF", "LF")
    )
    motors = "".join(
        f'<position name="{side}{joint.name}" joint="{side}{joint.name}" ctrlrange="{joint.low} {joint.high}" '
        f'kp="{5 if joint.name.startswith("WR") else 1}" forcerange="{-joint.force} {joint.force}"/>'
        for side in SIDES
        for joint in MOTORS
    )
    return f"""<mujoco model="hands">
<compiler angle="radian" autolimits="true"/>
<option timestep="{step}" integrator="implicitfast" iterations="20"/>
<visual><headlight ambient="0.35 0.35 0.35"/><global offwidth="640" offheight="480"/><map znear="0.01"/></visual>
<default>
  <default class="hand">
    <joint damping="0.1" armature="0.001" margin="0.01" frictionloss="0.001"/>
    <geom contype="1" conaffinity="0"/>
  </default>
  <default class="goal"><geom contype="0" conaffinity="0" rgba="0.3 0.8 0.4 0.35"/></default>
</default>
<asset>
  <texture name="sky" type="skybox" builtin="gradient" rgb1="0.95 0.96 0.98" rgb2="0.7 0.76 0.84" width="32"
    height="32"/>
  <texture name="tiles" type="2d" builtin="checker" rgb1="0.82 0.83 0.85" rgb2="0.74 0.75 0.78" width="64" height="64"/>
  <material name="floor" texture="tiles" texrepeat="8 8"/>
</asset>
<worldbody>
  <light pos="0.6 0.2 3" dir="-0.2 -0.2 -1" directional="true"/>
  <geom name="floor" type="plane" size="2 2 0.1" material="floor" contype="0" conaffinity="0"/>
  {hands}{scene}
</worldbody>
<contact>{pairs}</contact><tendon>{tendons}</tendon><actuator>{motors}</actuator>
</mujoco>"""


def _hand(side: str, pose: Pose, colour: str, moving: bool) -> str:
    pos, axes = pose.frame
    inner = _chain(side, [WRIST, PALM], colour, [_chain(side, finger, colour) for finger in FINGERS.values()])
    return (
        f'<body name="{side}forearm" pos="{_text(pos)}" xyaxes="{_text(axes.T[:2].ravel())}" gravcomp="1" '
        f'childclass="hand">{f"""<freejoint name="{side}base"/>""" if moving else ""}'
        f'<inertial pos="0.001 -0.002 0" mass="4.1" diaginertia="0.0184 0.0184 0.0076"/>'
        f'<geom name="{side}forearm" type="cylinder" pos="0 0.01 -0.145" size="0.067 0.105" rgba="{colour}"/>'
        f"{inner}</body>"
    )


def _chain(side: str, links: Sequence[Link], colour: str, inside: Sequence[str] = ()) -> str:
    """Links one inside the other, and what is inside the last."""
    link, *rest = links
    damping = ' damping="0.5" armature="0.005"' if link in (WRIST, PALM) else ""
    joints = "".join(
        f'<joint name="{side}{joint.name}" axis="{joint.axis}" range="{joint.low} {joint.high}"{damping}/>'
        for joint in link.joints
    )
    shapes = [geom.partition(" ") for geom in link.geoms]
    geoms = "".join(f'<geom name="{side}{name}" {shape} rgba="{colour}"/>' for name, _, shape in shapes)
    return (
        f'<body name="{side}{link.name}" pos="{link.pos}" gravcomp="1" {link.turn}>'
        f'<inertial pos="{link.com}" mass="{link.mass}" diaginertia="{" ".join([str(link.inertia)] * 3)}"/>'
        f"{joints}{geoms}{_chain(side, rest, colour, inside) if rest else ''.join(inside)}</body>"
    )


def _text(numbers: np.ndarray) -> str:
    return " ".join(f"{x:.9g}" for x in numbers)


# Scenes.


def egg(name: str) -> str:
    """An egg of 75 g and its goal, which is only shown."""
    shape = 'type="ellipsoid" size="0.03 0.03 0.04"'
    return (
        f'<body name="{name}"><freejoint name="{name}"/>'
        f'<geom name="{name}" {shape} density="500" condim="4" rgba="0.85 0.25 0.3 1"/></body>'
        f'<body name="{name}_goal" mocap="true"><geom class="goal" {shape}/></body>'
    )


EGG, TWO_EGGS = egg("egg"), egg("egg") + egg("egg_2")

DOORS = "".join(
    f'<body name="leaf_{name}" pos="0 {0.42 * s} 0.6">'
    f'<joint name="leaf_{name}" type="hinge" axis="0 0 {s}" range="0 1.57" damping="0.2" frictionloss="0.05"/>'
    f'<geom type="box" pos="0 {-0.205 * s} 0" size="0.01 0.205 0.3" mass="1" rgba="0.62 0.5 0.38 1"/>'
    f'<geom type="capsule" fromto="0.06 {-0.38 * s} -0.09 0.06 {-0.38 * s} 0.09" size="0.008" mass="0.05" '
    f'condim="4" rgba="0.3 0.3 0.33 1"/>'
    f'<geom type="box" pos="0.03 {-0.38 * s} 0.095" size="0.03 0.008 0.008" mass="0.02" rgba="0.3 0.3 0.33 1"/>'
    f'<geom type="box" pos="0.03 {-0.38 * s} -0.095" size="0.03 0.008 0.008" mass="0.02" rgba="0.3 0.3 0.33 1"/>'
    f'<site name="handle_{name}" pos="0.06 {-0.38 * s} 0"/></body>'
    for name, s in (("a", 1), ("b", -1))
)
"""Two leaves of 0.41 m x 0.6 m that open towards the hands, with upright handles."""

POT = (
    '<body name="table" pos="0 -0.6 0.2"><geom type="box" size="0.14 0.12 0.2" rgba="0.7 0.62 0.52 1"/></body>'
    '<body name="pot"><freejoint name="pot"/>'
    '<geom type="cylinder" size="0.09 0.05" mass="0.4" condim="4" rgba="0.35 0.45 0.5 1"/>'
    + "".join(
        f'<geom type="capsule" fromto="-0.05 {0.15 * s} 0.04 0.05 {0.15 * s} 0.04" size="0.009" mass="0.03" condim="4" '
        f'rgba="0.25 0.25 0.28 1"/><geom type="capsule" fromto="-0.05 {0.07 * s} 0.04 -0.05 {0.15 * s} 0.04" '
        f'size="0.007" mass="0.01" rgba="0.25 0.25 0.28 1"/><geom type="capsule" size="0.007" mass="0.01" '
        f'fromto="0.05 {0.07 * s} 0.04 0.05 {0.15 * s} 0.04" rgba="0.25 0.25 0.28 1"/>'
        f'<site name="handle_{name}" pos="0 {0.15 * s} 0.04"/>'
        for name, s in (("a", 1), ("b", -1))
    )
    + "</body>"
    '<body name="pot_goal" mocap="true"><geom class="goal" type="cylinder" size="0.09 0.05"/></body>'
)
"""A pot of 0.5 kg with a handle at each side, on a table."""
