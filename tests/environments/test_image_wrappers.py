"""Wrappers of images and of observations of several arrays: on the device and on the host, against loops."""

import functools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import images
from shoal.environments import rows
from shoal.environments.registry import validate
from shoal.environments.spec_rules import check_spec
from shoal.environments.wrappers import Wrapping, fits, unwrapped, wrap
from shoal.errors import InputError
from shoal.game import blank, own_actions, refresh
from shoal.spec import Box, Part

STEPS = images.HORIZON


def overlaps(index: int, old: int, new: int) -> dict[int, Fraction]:
    """The old pixels that a new one covers, and how much of each."""
    start, stop = Fraction(index * old, new), Fraction((index + 1) * old, new)
    return {i: min(stop, Fraction(i + 1)) - max(start, Fraction(i)) for i in range(int(start), math.ceil(stop))}


def area(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Mean colours of the areas of the new pixels, pixel by pixel in exact fractions."""
    old_height, old_width, channels = image.shape
    new = np.zeros((height, width, channels), np.uint8)
    for y, x in np.ndindex(height, width):
        rows, columns = overlaps(y, old_height, height), overlaps(x, old_width, width)
        size = sum(rows.values()) * sum(columns.values())
        for c in range(channels):
            total = sum(tall * wide * int(image[i, j, c]) for i, tall in rows.items() for j, wide in columns.items())
            new[y, x, c] = int(total / size + Fraction(1, 2))
    return new


@functools.cache
def viewed(t: int, luck: int, agent: int, w: Wrapping) -> np.ndarray:
    """An agent's picture at time t after crop, greyscale and resize."""
    image = images.picture(np, t, luck, agent)
    if w.crop:
        top, bottom, left, right = w.crop
        image = image[top : 8 - bottom, left : 8 - right]
    if w.greyscale:
        grey = np.zeros((*image.shape[:2], 1), np.uint8)
        for y, x in np.ndindex(image.shape[:2]):
            red, green, blue = (Fraction(int(v)) for v in image[y, x])
            grey[y, x] = int((299 * red + 587 * green + 114 * blue) / 1000 + Fraction(1, 2))
        image = grey
    return area(image, *w.resize) if w.resize else image


def stacked(frames: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(frames, axis=-1)


def expected(mixed: bool, w: Wrapping, luck: int) -> list[list[list[np.ndarray]]]:
    """By timestep and agent: the arrays observed."""
    found = []
    for t in range(STEPS + 1):
        times = [max(0, t - back) for back in reversed(range(w.frame_stack))]
        row = []
        for i in range(2):
            # A dead agent's frames are zero, later also those of the time when it was dead.
            here = [float(not (i == 1 and k == images.HORIZON - 1)) for k in times]
            arrays = [stacked([viewed(k, luck, i, w) * np.uint8(a) for k, a in zip(times, here, strict=True)])]
            if mixed and i:
                clocks = [images.clock(np, np.int32(k), np.int32(luck)) for k in times]
                arrays.append(stacked([c * np.float32(a) for c, a in zip(clocks, here, strict=True)]))
            if w.last_action:
                acted = t > 0 and not (i == 1 and t == images.HORIZON)  # it was dead at the timestep before
                arrays.append(np.eye((3, 2)[i])[action(t - 1)[i]] if acted else np.zeros((3, 2)[i]))
            if w.agent_ids:
                arrays.append(np.eye(2)[i])
            dead = i == 1 and t == images.HORIZON - 1
            row.append([np.zeros_like(x) if dead else x for x in arrays])
        found.append(row)
    return found


def action(t: int) -> np.ndarray:
    return np.array([t % 3, t % 2], np.int32)


def arrays_of(spec: Any, row: np.ndarray, agent: int) -> list[np.ndarray]:
    """The arrays in an agent's row; what follows them must be zero."""
    found, at = [], 0
    for part in spec.parts[agent]:
        size = int(np.prod(part.shape)) * (1 if part.dtype == "uint8" else 4)
        found.append(np.frombuffer(row[at : at + size].tobytes(), part.dtype).reshape(part.shape))
        at += size
    assert not row[at:].any()
    return found


def played(env: Any, luck: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Observations [N, O] of an episode on the device and on the host."""
    state, first = jax.jit(env[0].reset)(jax.random.wrap_key_data(jnp.array([0, luck], jnp.uint32)))
    there, advance = [first.obs], jax.jit(env[0].step)
    game = env[1].make()
    here = []
    for t in range(STEPS + 1):
        out = blank(game.spec)
        refresh(out, own_actions(game.spec))
        if t == 0:
            game.reset(luck, out)
        else:
            state, outcome = advance(jax.random.key(0), state, jnp.asarray(action(t - 1)))
            there.append(outcome.obs)
            game.step(action(t - 1), out)
        here.append(out.obs.copy())
        out.obs[...] = 7  # the memory belongs to the caller
    return list(map(np.asarray, there)), here


CASES = [
    (True, Wrapping(crop=(1, 2, 0, 3))),
    (True, Wrapping(greyscale=True)),
    (False, Wrapping(resize=(4, 4))),
    (True, Wrapping(resize=(3, 5))),
    (False, Wrapping(resize=(10, 3))),
    (True, Wrapping(frame_stack=3)),
    (False, Wrapping(last_action=True, agent_ids=True)),
    (True, Wrapping(crop=(0, 0, 2, 1), greyscale=True, resize=(3, 4), frame_stack=2, last_action=True, agent_ids=True)),
]


@pytest.mark.parametrize(("mixed", "w"), CASES)
def test_images_are_changed_as_defined(mixed: bool, w: Wrapping) -> None:
    pair = wrap(images.device(mixed), w), wrap(images.host(mixed), w)
    spec = pair[0].spec
    assert spec == pair[1].spec and spec.packed and spec.novel is None
    validate(pair[0])
    for luck in (2, 5):
        there, here = played(pair, luck)
        for one, two, should in zip(there, here, expected(mixed, w, luck), strict=True):
            assert one.dtype == two.dtype == np.uint8
            np.testing.assert_array_equal(one, two)
            for i in range(2):
                parts = rows.parts_of(spec)[i]
                for part, found, wanted in zip(parts, arrays_of(spec, one[i], i), should[i], strict=True):
                    one_hot = part.name in ("last_action", "agent_id")
                    np.testing.assert_array_equal(found / 255 if one_hot else found, wanted, err_msg=part.name)
    assert unwrapped(spec, w) == images.spec_of(mixed)
    assert fits(spec, w) and not fits(images.spec_of(mixed), w)


def test_continuous_actions_are_appended_as_numbers() -> None:
    box = replace(images.device().spec, action=Box(3), action_dims=(3, 2))
    env = wrap(replace(images.device(), spec=box), Wrapping(last_action=True))
    assert rows.parts_of(env.spec)[1][-1] == Part((2,), "float32", "last_action")
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    acted = np.array([[0.5, -1.0, 0.25], [1.0, 0.125, 9.0]], np.float32)
    _, step = jax.jit(env.step)(jax.random.key(0), state, jnp.asarray(acted))
    for i, width in enumerate((3, 2)):
        np.testing.assert_array_equal(arrays_of(env.spec, np.asarray(step.obs[i]), i)[-1], acted[i, :width])


def test_arrays_of_numbers_are_stacked_along_their_last_axis() -> None:
    """Rows of float32 numbers whose parts give shapes only."""
    parts = ((Part((2, 3)), Part((1,), name="speed")),) * 2
    spec = replace(images.spec_of(False), obs_dims=(7, 7), parts=parts, state_dim=7, novel=(0, 6))
    plain = images.device(False)

    def shown(result: Any) -> Any:
        state, step = result
        return state, step._replace(obs=(10.0 * state[0] + jnp.arange(7.0)) * jnp.ones((2, 1)), state=jnp.zeros(7))

    env = replace(
        plain, spec=spec, reset=lambda key: shown(plain.reset(key)), step=lambda *given: shown(plain.step(*given))
    )
    w = Wrapping(frame_stack=2, last_action=True)
    env = wrap(env, w)
    assert rows.parts_of(env.spec)[0][:2] == (Part((2, 6), source=(2, 3)), Part((2,), name="speed", source=(1,)))
    assert env.spec.novel == (0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 15, 16)
    assert unwrapped(env.spec, w) == replace(spec, novel=None)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    _, step = jax.jit(env.step)(jax.random.key(0), state, jnp.zeros(2, jnp.int32))
    wanted = [0, 1, 2, 10, 11, 12, 3, 4, 5, 13, 14, 15, 6, 16, 1, 0, 0]
    np.testing.assert_array_equal(step.obs[0], wanted)


@pytest.mark.parametrize(
    ("w", "said"),
    [
        (Wrapping(crop=(4, 4, 0, 0)), "leaves nothing of glimpse's images of 8 × 8 pixels"),
        (Wrapping(crop=(4, 4, 0)), "crop takes four numbers"),
        (Wrapping(resize=(4,)), r"resize takes two numbers \(height, width\), not 1"),
        (Wrapping(resize=(4, 0)), "resize must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(w: Wrapping, said: str) -> None:
    with pytest.raises(InputError, match=said):
        wrap(images.device(), w)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (((Part((8, 6, 3), "unit8"),),) * 2, "'unit8' in spec.parts must be 'float32' or 'uint8'"),  # type: ignore[arg-type]
        (((Part((8, 6, 3), "int8"),),) * 2, "'int8' in spec.parts must be"),  # type: ignore[arg-type]
        (((Part((8, 6, 3), "bool"),),) * 2, "'bool' in spec.parts must be"),  # type: ignore[arg-type]
        (((Part((8, 6, 3), np.dtype("uint8")),),) * 2, "in spec.parts must be 'float32' or 'uint8'"),  # type: ignore[arg-type]
        ((images.IMAGE, images.VECTOR), "a tuple of shoal.Part for each agent"),
        ((images.IMAGE,), "a tuple of shoal.Part for each agent"),
        (([images.IMAGE], [images.IMAGE]), "a tuple of shoal.Part for each agent"),
        (((images.IMAGE,), 5), "a tuple of shoal.Part for each agent"),
        (5, "must be a tuple"),
        (((Part(192, "uint8"),),) * 2, "the shape 192 in spec.parts must be a tuple of whole numbers"),  # type: ignore[arg-type]
    ],
)
def test_wrong_parts_are_refused(parts: Any, said: str) -> None:
    spec = images.spec_of(False)
    object.__setattr__(spec, "parts", parts)  # tests check the types of fields that are given, users' programs do not
    with pytest.raises(InputError, match=said):
        check_spec(spec)


def test_changes_of_images_need_images() -> None:
    numbers = replace(images.spec_of(False), parts=None)
    with pytest.raises(InputError, match="glimpse observes none"):
        wrap(replace(images.device(False), spec=numbers), Wrapping(greyscale=True))
    four = replace(images.spec_of(False), parts=((Part((8, 6, 4), "uint8"),),) * 2)
    with pytest.raises(InputError, match="those of glimpse have 4"):
        wrap(replace(images.device(False), spec=four), Wrapping(greyscale=True))


def test_large_images_are_resized_without_overflow() -> None:
    from shoal.environments.images import MAX_RESIZED_PIXELS, Look, _changed

    assert 255 * MAX_RESIZED_PIXELS + MAX_RESIZED_PIXELS // 2 < 2**32, "sums of white pixels, rounded"
    white = np.full((1, 1000, 1600, 1), 255, np.uint8)
    for xp in (np, jnp):
        assert (np.asarray(_changed(Look(resize=(7, 9)), xp.asarray(white))) == 255).all()


def test_numbers_become_the_same_bytes_on_the_device() -> None:
    numbers = np.array([[0.1, -2.5e7], [np.inf, 3.0]], np.float32)
    found = jax.jit(rows.as_bytes)(numbers)
    np.testing.assert_array_equal(found, rows.as_bytes(numbers))
    np.testing.assert_array_equal(np.frombuffer(np.asarray(found).tobytes(), "<f4").reshape(2, 2), numbers)


def test_the_page_fills_a_row_as_its_spec_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.split("### Images and arrays")[1].split("```python")[1].split("```")[0], names)
    speeds = np.array([0.5, -3.0], np.float32)
    image = np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)
    row = np.asarray(names["row"](jnp.asarray(image), jnp.asarray(speeds)))
    spec = replace(images.spec_of(False), agents=("a",), roles=(0,), action_dims=(3,), **names["fields"])
    check_spec(spec)
    found = arrays_of(spec, row, 0)
    np.testing.assert_array_equal(found[0], image)
    np.testing.assert_array_equal(found[1], speeds)
