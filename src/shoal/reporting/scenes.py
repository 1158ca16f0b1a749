"""The scene of an episode at each timestep: an outline, a picture, or neither."""

import base64
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from shoal.environments.outlines import of_scene
from shoal.spec import EnvSpec, Outline, Scene
from shoal.training.episodes import RecordedEpisode
from shoal.types import AnyEnvironment, Environment
from shoal.video.picture import Frame
from shoal.video.picture import draw_frame as drawn

# Pictures of an episode as WebP images in ``data:`` addresses.


WIDEST = 360
"""Largest width in pixels."""
QUALITY = 72
"""Of the compression, up to 100."""


def images(frames: Sequence[Frame], chosen: Sequence[int]) -> list[Image.Image]:
    """The chosen frames, at most :data:`WIDEST` pixels wide."""
    found = []
    for t in chosen:
        frame = frames[t]
        width = min(WIDEST, np.shape(frame)[1]) if isinstance(frame, np.ndarray) else WIDEST
        found.append(drawn(frame, width))
    return found


def addresses(pictures: Sequence[Image.Image], width: int) -> tuple[list[str], np.ndarray]:
    """Different pictures as ``data:`` addresses, and the number of the address of each picture.

    Args:
        pictures: of one episode.
        width: largest width in pixels.
    """
    known: dict[bytes, int] = {}
    found, numbers = [], []
    for picture in pictures:
        if picture.width > width:
            picture = picture.resize((width, max(1, round(picture.height * width / picture.width))))
        raw = picture.tobytes()
        if raw not in known:
            known[raw] = len(found)
            memory = io.BytesIO()
            picture.save(memory, "WEBP", quality=QUALITY, method=4)
            found.append("data:image/webp;base64," + base64.b64encode(memory.getvalue()).decode("ascii"))
        numbers.append(known[raw])
    return found, np.array(numbers, np.int64)


# Scenes.


PICTURES = 200
"""Largest number of pictures of an episode; a longer episode has one at every second, third … timestep."""


class Seen(NamedTuple):
    """One episode, T + 1 timesteps."""

    kind: str
    """``units``, ``bodies``, ``pictures``, or ``none`` if the environment shows nothing."""
    fixed: dict[str, Any]
    """See :class:`Outline`."""
    moving: dict[str, np.ndarray]
    """[T + 1, …] by name; see :class:`Outline`."""
    captions: tuple[str, ...] = ()
    messages: tuple[tuple[str, ...], ...] = ()
    """[T + 1][N]."""
    pictures: tuple[Image.Image, ...] = ()
    shown: np.ndarray = np.zeros(0, int)
    """The timesteps of the pictures."""


def seen(env: AnyEnvironment, episode: RecordedEpisode) -> Seen:
    """An episode by the environment's outline, else by its renderer."""
    if isinstance(env, Environment) and env.outline is not None:
        return _outlined([env.outline(state) for state in episode.states])
    frames = episode.frames
    if frames is None:
        return Seen("none", {}, {})
    if isinstance(frames[0], Scene):
        return _outlined(_outlines([frame for frame in frames if isinstance(frame, Scene)], env.spec))
    return _pictured(frames)


def _pictured(frames: Sequence[Frame]) -> Seen:
    stride = -(-len(frames) // PICTURES)
    shown = np.unique(np.append(np.arange(0, len(frames), stride), len(frames) - 1))
    pictures = images(frames, shown.tolist())
    return Seen("pictures", {}, {}, pictures=tuple(pictures), shown=shown)


def _outlined(outlines: Sequence[Outline]) -> Seen:
    first = outlines[0]
    moving = {name: np.stack([np.asarray(each.moving[name]) for each in outlines]) for name in first.moving}
    captions = tuple(each.caption for each in outlines)
    messages = tuple(each.messages for each in outlines)
    fixed = dict(first.fixed)
    if first.kind == "bodies":  # bodies may leave the box
        around = np.array([body["radius"] for body in fixed["bodies"]]) + 0.05
        low = [np.nanmin(moving[axis] - around, initial=np.inf) for axis in ("x", "y")]
        high = [np.nanmax(moving[axis] + around, initial=-np.inf) for axis in ("x", "y")]
        edges = [*np.minimum(fixed["box"][:2], low), *np.maximum(fixed["box"][2:], high)]
        fixed["box"] = fixed["box"] if fixed["cell"] else [round(float(edge), 3) for edge in edges]
    return Seen(first.kind, fixed, moving, captions if any(captions) else (), messages if first.messages else ())


def _outlines(scenes: Sequence[Scene], spec: EnvSpec) -> list[Outline]:
    """The outlines of Scenes, in which a disc keeps its row through the episode."""
    found = [of_scene(scene, spec.agents) for scene in scenes]
    rows: dict[Any, int] = {}
    bodies = []
    for scene in found:
        for key, one in scene:
            if key not in rows:
                rows[key] = len(bodies)
                bodies.append(one)
    extent = max(scene.extent for scene in scenes)
    fixed = {"box": [-extent, -extent, extent, extent], "cell": 0, "bodies": bodies}
    outlines = []
    for scene, keyed in zip(scenes, found, strict=True):
        places = np.full((len(bodies), 2), np.nan)
        places[[rows[key] for key, _ in keyed]] = scene.centres
        moving = {"x": places[:, 0], "y": places[:, 1]}
        outlines.append(Outline("bodies", fixed, moving, scene.caption))
    return outlines
