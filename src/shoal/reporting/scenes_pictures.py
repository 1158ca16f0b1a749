"""Pictures of an episode as WebP images in ``data:`` addresses."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from shoal.records.picture import Frame
from shoal.records.picture import draw as drawn

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
