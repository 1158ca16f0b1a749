"""Images in observations: the order of their axes, crop, greyscale and size. Does not import JAX.

An image is a ``uint8`` part (:class:`shoal.spec.Part`) of three axes: height, width, channels. The changes have the
same result on NumPy and JAX arrays: all sums are of whole numbers, so that every backend gives the same bytes.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from shoal.environments import rows
from shoal.environments.changes import Change
from shoal.errors import InputError
from shoal.spec import EnvSpec, Part

# How the axes of an image are arranged in observations.


MAX_CHANNELS = 4
"""Largest number of channels of an image whose first axis is that of the channels."""


def arrangement(shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the order of the axes of an image as height, width and channels, the shape as stored).

    Two axes are height and width of one channel. Of three axes the first is that of the channels if it has at most
    :data:`MAX_CHANNELS` entries and both others have more. The first of four axes is time, as in Gymnasium's
    ``FrameStackObservation``: frames follow one another as channels. Other arrays keep their axes.
    """
    order, stored = tuple(range(len(shape))), tuple(shape)
    if len(shape) == 2:
        return order, (*stored, 1)
    if len(shape) not in (3, 4):
        return order, stored
    channels, *size = shape[-3:]
    first = channels <= MAX_CHANNELS and min(size) > MAX_CHANNELS
    order = (1, 2, 0) if first else (0, 1, 2)
    if len(shape) == 4:
        order = (order[0] + 1, order[1] + 1, 0, order[2] + 1)
    height, width, *rest = (shape[axis] for axis in order)
    return order, (height, width, math.prod(rest))


def check_image_integers(image: np.ndarray) -> None:
    """Check that an image has an integer type: numbers from 0 to 1 would be read as nearly black.

    Raises:
        ValueError: it has another type, even if its numbers are whole.
    """
    if image.size and image.dtype.kind in "fb":
        raise ValueError(f"pass uint8 numbers from 0 to 255, not {image.dtype}")


def arranged_image(image: Any, shape: Sequence[int]) -> np.ndarray:
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


# Crop, greyscale and size.


MAX_RESIZED_PIXELS = 2**33 // (2 * 255 + 1) - 1
"""Largest number of pixels of an image that is resized: sums over them, and a half of each to round, are of 32 bits."""
LUMA = (299, 587, 114)
"""Weights in thousandths of red, green and blue (ITU-R BT.601)."""


class Look(NamedTuple):
    """Changes of images, in this order."""

    crop: tuple[int, ...] | None = None
    """Pixels removed at the top, bottom, left and right."""
    greyscale: bool = False
    resize: tuple[int, ...] | None = None
    """Height and width."""


def is_image(part: Part) -> bool:
    """Whether an array of an observation is an image."""
    return part.dtype == "uint8" and len(part.shape) == 3


def shape_after(shape: Sequence[int], look: Look, name: str) -> tuple[int, ...]:
    """The shape of a changed image.

    Args:
        shape: height, width and channels.
        look: the changes.
        name: the environment's, for errors.

    Raises:
        InputError: nothing is left of the image, its channels are neither red, green and blue nor one, it is too large
            to be resized, or ``crop`` has not four numbers or ``resize`` not two.
    """
    height, width, channels = shape
    if look.crop is not None:
        if len(look.crop) != 4:
            raise InputError(f"crop takes four numbers of pixels (top, bottom, left, right), not {len(look.crop)}.")
        top, bottom, left, right = look.crop
        height, width = height - top - bottom, width - left - right
        if height < 1 or width < 1:
            raise InputError(f"crop {look.crop} leaves nothing of {name}'s images of {shape[0]} × {shape[1]} pixels.")
    if look.greyscale:
        if channels not in (1, 3):
            raise InputError(f"greyscale is for images of 3 channels, and those of {name} have {channels}.")
        channels = 1
    if look.resize is not None:
        if len(look.resize) != 2:
            raise InputError(f"resize takes two numbers (height, width), not {len(look.resize)}.")
        if height * width > MAX_RESIZED_PIXELS:
            raise InputError(f"{name}'s images of {height} × {width} pixels are too large for resize: crop them first.")
        height, width = look.resize
    return height, width, channels


def change_images(spec: EnvSpec, look: Look) -> Change:
    """Change all images of all agents; other arrays of their observations are unchanged, and ``novel`` is None.

    Raises:
        InputError: there is no image, or see :func:`shape_after`.
    """
    if not any(is_image(part) for own in rows.parts_of(spec) for part in own):
        raise InputError(
            f"crop, greyscale and resize change images (uint8 arrays of height, width and channels), and {spec.name} "
            f"observes none."
        )

    def changed(part: Part) -> Part:
        if not is_image(part):
            return part
        return part._replace(shape=shape_after(part.shape, look, spec.name), source=part.source or part.shape)

    fields = rows.part_fields(spec, [[changed(part) for part in own] for own in rows.parts_of(spec)])
    apply = rows.each(spec, functools.partial(_convert, look), fields["obs_dims"])

    def show(step: Any) -> Any:
        xp = step.obs.__array_namespace__()
        return step._replace(obs=xp.where(step.alive[:, None], apply(step.obs), 0))

    outer = replace(spec, **fields, novel=None)
    return Change(outer, lambda step: ((), show(step)), lambda memory, step, action: (memory, show(step)))


def _convert(look: Look, parts: tuple[Part, ...], bytes_: Any) -> Any:
    """Rows uint8 [K, O_i] with changed images."""
    xp, found = bytes_.__array_namespace__(), []
    for part, place in zip(parts, rows.slices(parts, packed=True), strict=True):
        piece = bytes_[:, place]
        if is_image(part):
            piece = _changed(look, piece.reshape(-1, *part.shape)).reshape(len(bytes_), -1)
        found.append(piece)
    return found[0] if len(found) == 1 else xp.concat(found, axis=-1)


def _changed(look: Look, image: Any) -> Any:
    """Images uint8 [K, height, width, channels] after the changes."""
    if look.crop is not None:
        top, bottom, left, right = look.crop
        image = image[:, top : image.shape[1] - bottom, left : image.shape[2] - right]
    if look.greyscale and image.shape[-1] == 3:
        red, green, blue = (image[..., i : i + 1].astype("uint32") * weight for i, weight in enumerate(LUMA))
        image = ((red + green + blue + 500) // 1000).astype("uint8")
    if look.resize is not None and tuple(look.resize) != image.shape[1:3]:
        image = _resized(image, *look.resize)
    return image


def _resized(image: Any, height: int, width: int) -> Any:
    """The mean colour of the area that each new pixel covers, rounded; halves are rounded up."""
    total = image.shape[1] * image.shape[2]
    sums = _covered(_covered(image, 1, height), 2, width)
    return ((sums + total // 2) // total).astype("uint8")


def _covered(values: Any, axis: int, count: int) -> Any:
    """``count`` sums over the values that equal intervals of an axis cover, weighted by the covered share · count."""
    xp, size = values.__array_namespace__(), values.shape[axis]
    start = np.arange(count) * size  # in units of a value / count
    index = start // count + np.arange(size // count + 2)[:, None]
    share = np.minimum((index + 1) * count, start + size) - np.maximum(index * count, start)
    shape = [1] * values.ndim
    shape[axis] = count
    result: Any = 0
    for at, weight in zip(index, np.maximum(share, 0).astype(np.uint32), strict=True):
        if weight.any():
            taken = xp.take(values, np.minimum(at, size - 1), axis=axis).astype("uint32")
            result = result + taken * weight.reshape(shape)
    return result
