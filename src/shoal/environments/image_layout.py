"""How the axes of an environment's images are arranged in observations. Needs only NumPy."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

CHANNELS = 4
"""Largest number of channels of an image whose first axis is that of the channels."""


def arrangement(shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the order of the axes of an image as height, width and channels, the shape as stored).

    Two axes are height and width of one channel. Of three axes the first is that of the channels if it has at most
    :data:`CHANNELS` entries and both others have more. The first of four axes is time, as in Gymnasium's
    ``FrameStackObservation``: frames follow one another as channels. Other arrays keep their axes.
    """
    order, stored = tuple(range(len(shape))), tuple(shape)
    if len(shape) == 2:
        return order, (*stored, 1)
    if len(shape) not in (3, 4):
        return order, stored
    channels, *size = shape[-3:]
    first = channels <= CHANNELS and min(size) > CHANNELS
    order = (1, 2, 0) if first else (0, 1, 2)
    if len(shape) == 4:
        order = (order[0] + 1, order[1] + 1, 0, order[2] + 1)
    height, width, *rest = (shape[axis] for axis in order)
    return order, (height, width, math.prod(rest))


def check_integers(image: np.ndarray) -> None:
    """Check that an image has an integer type: numbers from 0 to 1 would be read as nearly black.

    Raises:
        ValueError: it has another type, even if its numbers are whole.
    """
    if image.size and image.dtype.kind in "fb":
        raise ValueError(f"pass uint8 numbers from 0 to 255, not {image.dtype}")


def arranged(image: Any, shape: Sequence[int]) -> np.ndarray:
    """An image of this shape, flat uint8 with its axes arranged; an array that already has the stored shape is kept.

    Raises:
        ValueError: its size differs, or it has other numbers than whole ones from 0 to 255.
    """
    pixels, (order, stored) = np.asarray(image), arrangement(shape)
    if pixels.dtype != np.uint8:
        if pixels.dtype.kind not in "biuf" or not np.isin(pixels, np.arange(256)).all():
            raise ValueError(f"an image is of whole numbers from 0 to 255, not of {pixels.dtype}")
        pixels = pixels.astype(np.uint8)
    if pixels.size != math.prod(shape):
        raise ValueError(f"an image has the shape {tuple(shape)}, not {pixels.shape}")
    if pixels.shape == tuple(shape):
        pixels = pixels.transpose(order)
    elif pixels.shape != stored and pixels.ndim != 1:
        raise ValueError(f"an image has the shape {tuple(shape)}, not {pixels.shape}")
    return pixels.reshape(-1)
