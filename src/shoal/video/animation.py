"""Animated pictures of episodes, with trails, a step counter and the running team return."""

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped
from PIL import Image, ImageDraw

from shoal.errors import InputError
from shoal.types import Scene, Seconds
from shoal.video.encode import Packed, check_format, write_sheet, write_video
from shoal.video.picture import EDGE, FAINT, INK, OVERSAMPLING, TRAIL, WHITE, Frame, draw_frame, font
from shoal.video.timeline import Timeline, fitted

_MARGIN, _LINE, _SPARK = 14, 22, 30
_ACCENT = (0, 114, 178)
_LAST_FRAME_SECONDS = 1.2

SIZE, LARGEST = 480, 960
"""Width in pixels of an animation's pictures, and the largest of RGB arrays that are drawn at their own width."""

MAX_FRAMES = 1000
"""Largest number of frames per episode; a longer episode is subsampled at equal intervals."""


def animate(
    frames: Sequence[Frame] | np.ndarray | None,
    rewards: Float[np.ndarray, "T N"] | None,
    path: Path | str,
    fps: int = 8,
    title: str = "",
    *,
    actions: Shaped[np.ndarray, "steps N *A"] | None = None,
    first: Bool[np.ndarray, " frames"] | Sequence[bool] | None = None,
    results: Sequence[str] | None = None,
    scores: Callable[[Any], Any] | None = None,
    names: tuple[str, ...] | None = None,
    size: int | None = None,
    most: int = MAX_FRAMES,
) -> Path:
    """Write one or several episodes as ``.gif``, ``.mp4`` (needs ffmpeg), or a ``.png`` contact sheet.

    An episode of more than ``most`` frames, or more than the timeline has columns, is subsampled.

    Args:
        frames: one per timestep, Scenes or RGB arrays of one size; None draws a timeline of ``actions`` and
            ``rewards`` instead.
        rewards: ``rewards[t]`` is received on arriving at ``frames[t]``, zero where an episode starts. With one row
            fewer than frames, the first is taken to be missing. Without frames, ``rewards[t]`` follows ``actions[t]``.
        path: where to write; the suffix chooses the format.
        fps: frames per second.
        title: printed above the picture.
        actions: drawn only if there are no frames.
        first: True where an episode starts; by default all frames are one episode.
        results: each episode's result, for example "won", printed after the title, or below it where both are too
            wide for one line; may be empty.
        scores: combines the rewards [T, N] of the agents, for example ``EnvSpec.scores``; None: their sum.
        names: the agents' names, for the timeline.
        size: width of the picture in pixels; by default :data:`SIZE`, or the own width of RGB arrays if it lies
            between that and :data:`LARGEST`.
        most: largest number of frames per episode.

    Returns:
        ``path``.

    Raises:
        InputError: the shapes do not match, there is nothing to draw, or the format cannot be written.
    """
    check_format(Path(path))
    rewards = None if rewards is None else np.nan_to_num(np.asarray(rewards, np.float64), posinf=0.0, neginf=0.0)
    if rewards is not None and rewards.ndim != 2:
        raise InputError(f"rewards must be [T, N], not {rewards.shape}.")
    size = _width(frames) if size is None else size
    if frames is None:
        timeline = Timeline(actions, rewards, names, size)
        length, body, most = timeline.length, timeline.draw, min(timeline.columns, most)
    else:
        length, body = len(frames), _FrameRenderer(frames, size).draw
        if rewards is not None and len(rewards) == length - 1:
            rewards = np.concatenate([np.zeros_like(rewards[:1]), rewards])
    if length == 0:
        raise InputError("A replay requires at least one frame.")
    if rewards is not None and len(rewards) != length:
        raise InputError(f"There are {length} frames and {len(rewards)} rows of rewards.")
    episodes, captions = _episodes(first, length), _captions(frames, length)
    results = [""] * len(episodes) if results is None else results
    if len(results) != len(episodes):
        raise InputError(f"There are {len(episodes)} episodes and {len(results)} results.")
    team = None if rewards is None else rewards.sum(1) if scores is None else scores(rewards)
    headings = _headings(title, results, size)
    images, seconds = Packed(), []
    for number, (start, stop) in enumerate(episodes):
        returns = None if team is None else np.cumsum(team[start:stop])
        for t in np.unique(np.linspace(start, stop - 1, min(stop - start, most)).round().astype(int)).tolist():
            before = 0 if frames is None else 1  # the first frame precedes the first step
            clock = f"step {t - start + 1 - before} of {stop - start - before}"
            if len(episodes) > 1:
                clock = f"episode {number + 1} of {len(episodes)}   {clock}"
            images.append(_panel(body(t, start, stop), headings[number], clock, returns, t - start, captions[t]))
            seconds.append(_LAST_FRAME_SECONDS if t == stop - 1 else 1 / fps)
    if len(images.sizes) > 1:
        raise InputError("All frames of a replay must have the same size.")
    write_video(Path(path), images, seconds)
    return Path(path)


def affordable_frames(frames: Sequence[Frame] | np.ndarray, seconds: Seconds) -> int:
    """The number of frames, at least 2, that :func:`animate` draws in about ``seconds`` of processor time.

    The last frame, with the trails of an episode, is drawn twice: its first drawing may load a renderer or fonts.
    """
    renderer = _FrameRenderer(frames, _width(frames))
    renderer.draw(len(frames) - 1, 0, len(frames))
    start = time.process_time()
    renderer.draw(len(frames) - 1, 0, len(frames))
    return max(2, int(seconds / max(time.process_time() - start, 1e-6)))


def contact_sheet(
    frames: Sequence[Frame] | np.ndarray,
    path: Path | str,
    columns: int = 6,
    *,
    rows: int = 1,
    title: str = "",
    size: int = 240,
) -> Path:
    """Write ``columns × rows`` frames of one episode, at equal intervals from the first to the last, as one ``.png``.

    Args:
        frames: Scenes (with trails since the start) or RGB arrays of one size; each is captioned with its index.
        path: where to write.
        columns: pictures per row.
        rows: rows of pictures.
        title: printed above the pictures.
        size: width of each picture in pixels.

    Returns:
        ``path``.

    Raises:
        InputError: there are no frames, their sizes differ, or the file is not a ``.png``.
    """
    if columns < 1 or rows < 1 or not len(frames):
        raise InputError("A contact sheet requires at least one frame, one column and one row.")
    if Path(path).suffix != ".png":
        raise InputError(f"The name of a contact sheet must end in .png, not {Path(path).name!r}.")
    chosen = np.unique(np.linspace(0, len(frames) - 1, min(columns * rows, len(frames))).round().astype(int))
    renderer = _FrameRenderer(frames, size)
    images = [_captioned(renderer.draw(int(t), 0, len(frames)), f"step {t}") for t in chosen]
    write_sheet(Path(path), images, columns, title)
    return Path(path)


class _FrameRenderer:
    """Draws frames; all Scenes of an episode are drawn with the largest extent, so that the view does not change."""

    def __init__(self, frames: Sequence[Frame] | np.ndarray, size: int):
        self.frames, self.size = frames, size
        self.scenes = len(frames) > 0 and isinstance(frames[0], Scene)

    def draw(self, t: int, start: int, stop: int) -> Image.Image:
        if not self.scenes:
            return draw_frame(self.frames[t], self.size, [], None)
        episode = [frame for frame in self.frames[start:stop] if isinstance(frame, Scene)]
        past = [frame for frame in self.frames[max(start, t - TRAIL) : t] if isinstance(frame, Scene)]
        extent = max((scene.extent for scene in episode), default=None)
        return draw_frame(self.frames[t], self.size, past, extent)


def _width(frames: Sequence[Frame] | np.ndarray | None) -> int:
    """The width at which frames are drawn by default: arrays keep their pixels, so that small text stays legible."""
    first = None if frames is None or not len(frames) else frames[0]
    if first is None or isinstance(first, Scene):
        return SIZE
    return min(max((SIZE, *np.shape(first)[1:2])), LARGEST)


def _episodes(first: Bool[np.ndarray, " frames"] | Sequence[bool] | None, length: int) -> list[tuple[int, int]]:
    """(start, stop) of each episode."""
    marks = np.zeros(length, bool) if first is None else np.asarray(first, bool)
    if marks.shape != (length,):
        raise InputError(f"first must have one entry for each of the {length} frames, not {marks.shape}.")
    return list(pairwise([0, *(int(t) for t in np.flatnonzero(marks) if t > 0), length]))


def _captions(frames: Sequence[Frame] | np.ndarray | None, length: int) -> list[str | None]:
    """Each frame's caption; all None if no frame has one, so that no line is reserved for it."""
    if frames is None or not len(frames) or not isinstance(frames[0], Scene):
        return [None] * length
    texts = [frame.caption if isinstance(frame, Scene) else "" for frame in frames]
    return list(texts) if any(texts) else [None] * length


def _headings(title: str, results: Sequence[str], width: int) -> list[list[str]]:
    """The lines above the picture of each episode, equally many for all: the title with the result, or each by itself
    where they are too wide together."""
    together = [" · ".join(text for text in (title, result) if text) for result in results]
    if not any(together):
        return [[] for _ in results]
    if title and max(map(font(16, bold=True).getlength, together)) > width:
        return [[title, result][: 1 + any(results)] for result in results]
    return [[text] for text in together]


def _panel(
    body: Image.Image, heading: Sequence[str], clock: str, returns: np.ndarray | None, now: int, caption: str | None
) -> Image.Image:
    """The picture with its heading above, and step, caption and return below."""
    head = _MARGIN + (_LINE * len(heading) + 6 if heading else 0)
    foot = 8 + _LINE * (1 + (caption is not None)) + (_SPARK if returns is not None else 0) + 6
    image = Image.new("RGB", (body.width + 2 * _MARGIN, head + body.height + foot), WHITE)
    image.paste(body, (_MARGIN, head))
    pen, right, y = ImageDraw.Draw(image), image.width - _MARGIN, head + body.height + 8 + _LINE // 2
    for i, text in enumerate(heading):
        face = font(13) if i else font(16, bold=True)
        pen.text(
            (_MARGIN, _MARGIN + i * _LINE + _LINE // 2 - 2), fitted(text, body.width, face), INK, face, anchor="lm"
        )
    if caption is not None:
        pen.text((_MARGIN, y), caption, INK, font(13), anchor="lm")
        y += _LINE
    pen.text((_MARGIN, y), clock, FAINT, font(13), anchor="lm")
    if returns is not None:
        largest = float(np.abs(returns).max())
        digits = min(1 - math.floor(math.log10(largest)), 6) if 0 < largest < 1 else 1
        shown = (returns[now], returns.min(), returns.max())
        number, least, most = (f"{x:z.{digits}f}".replace("-", "−") for x in shown)
        face = font(13, bold=True)
        wide = max(face.getlength("−0000.0"), 8 + max(face.getlength(least), face.getlength(most)))
        pen.text((right, y), number, INK, face, anchor="rm")
        pen.text((right - wide, y), "team return", FAINT, font(13), anchor="rm")
        image.paste(_spark((body.width, _SPARK - 2), returns, now), (_MARGIN, y + _LINE // 2 + 2))
    return image


def _spark(size: tuple[int, int], returns: np.ndarray, now: int) -> Image.Image:
    """The return so far as a sparkline, on the scale of the whole episode; the grey line is zero."""
    width, height = (side * OVERSAMPLING for side in size)
    dot = 3 * OVERSAMPLING
    low, high = min(0.0, float(returns.min())), max(0.0, float(returns.max()))

    def at(t: int, value: float) -> tuple[float, float]:
        across = dot + (width - 2 * dot) * t / max(len(returns) - 1, 1)
        return across, dot + (height - 2 * dot) * (high - value) / ((high - low) or 1.0)

    image = Image.new("RGB", (width, height), WHITE)
    pen = ImageDraw.Draw(image)
    pen.line([at(0, 0.0), at(len(returns) - 1, 0.0)], EDGE, OVERSAMPLING)
    shown = sorted({*range(0, now, max(1, len(returns) // size[0])), now})  # at most one point per column
    pen.line([at(t, float(returns[t])) for t in shown], _ACCENT, 2 * OVERSAMPLING, joint="curve")
    x, y = at(now, float(returns[now]))
    pen.ellipse((x - dot, y - dot, x + dot, y + dot), _ACCENT)
    return image.reduce(OVERSAMPLING)


def _captioned(body: Image.Image, text: str) -> Image.Image:
    image = Image.new("RGB", (body.width, body.height + 24), WHITE)
    image.paste(body, (0, 0))
    ImageDraw.Draw(image).text((body.width / 2, body.height + 14), text, FAINT, font(13), anchor="mm")
    return image
