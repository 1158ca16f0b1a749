"""A timeline of each agent's actions and rewards, for environments without a renderer."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from PIL import Image, ImageDraw

from shoal.errors import InputError
from shoal.video.picture import EDGE, FAINT, INK, PAPER, WHITE, Colour, font, mix

# Okabe and Ito's palette, then its paler versions: one colour per discrete action, repeated beyond fourteen.
_HUES: tuple[Colour, ...] = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    (110, 110, 110),
)
_COLOURS = _HUES + tuple(mix(hue, WHITE, 0.5) for hue in _HUES)
_NEGATIVE, _POSITIVE = _HUES[5], _HUES[0]
_GAP = 10
MOST_AGENTS = 64
"""Rows of a timeline; a line says how many other agents there are. All frames of a film are in memory at once."""


class Cell(NamedTuple):
    """A range of timesteps (usually one) and the pixel columns that show it."""

    steps: slice
    left: int
    """First column of pixels."""
    right: int
    """The column after the last; above ``left``."""


class Timeline:
    """Draws a timeline of ``T`` steps that fills from left to right; row t holds the actions at t and their rewards.

    Discrete actions are coloured cells with their number; continuous ones one thin row per dimension, from orange (the
    lowest) through white (0) to blue. Rewards are bars around a zero line, in one row for all agents if they are always
    equal. If an episode has more steps than the picture has columns, a column shows several steps: the most frequent
    discrete action, or the continuous action and the reward of the largest magnitude. Of more than :data:`MOST_AGENTS`
    agents the first are shown.

    Raises:
        InputError: the arrays' shapes do not match, or both are None.
    """

    def __init__(
        self,
        actions: Shaped[np.ndarray, "T N *A"] | None,
        rewards: Float[np.ndarray, "steps N"] | None,
        names: tuple[str, ...] | None,
        size: int,
    ):
        if actions is None and rewards is None:
            raise InputError("A replay requires frames, or the actions or rewards of the episode.")
        self.actions = None if actions is None else np.asarray(actions)
        if self.actions is not None and self.actions.ndim not in (2, 3):
            raise InputError(f"actions must be [T, N] or [T, N, A], not {self.actions.shape}.")
        self.rewards, self.size = rewards, size
        lead = next(array for array in (self.actions, rewards) if array is not None)
        self.length, self.agents = lead.shape[:2]
        if rewards is not None and rewards.shape != (self.length, self.agents):
            raise InputError(f"actions have {self.length} steps and {self.agents} agents, but rewards {rewards.shape}.")
        self.names = names or tuple(f"agent {i}" for i in range(self.agents))
        if len(self.names) != self.agents:
            raise InputError(f"There are {self.agents} agents and {len(self.names)} names.")
        self.shared = rewards is not None and self.agents > 1 and bool((rewards == rewards[:, :1]).all())
        self.shown = min(self.agents, MOST_AGENTS)
        self.row = int(np.clip(360 / self.shown, 14, 30))
        self.labels = tuple(fitted(name.replace("_", " "), size // 3) for name in self.names[: self.shown])
        self._drawn: Any = (None,)
        self.scale = (0.0, 0.0) if rewards is None else (float(rewards.min(initial=0)), float(rewards.max(initial=0)))
        printed = self.shared and self.row >= 20  # else the bars are too low for it
        self.ends = tuple(f"{end:z.4g}".replace("-", "−") for end in self.scale) if printed else ()
        widths = [font(12).getlength(name) for name in (*self.labels, "reward")]
        self.gutter = 14 + round(max([*widths, *map(font(9).getlength, self.ends)]))

    @property
    def columns(self) -> int:
        """Width of the timeline in pixels: the largest number of steps that can be shown."""
        return max(self.size - 12 - self.gutter, 1)

    def draw(self, t: int, start: int, stop: int) -> Image.Image:
        """The episode of rows ``start`` to ``stop`` (exclusive), filled up to and including step ``t``."""
        if self._drawn[0] != (start, stop):
            cells = self._cells(start, stop)
            self._drawn = (start, stop), cells, self._picture([]), self._picture(cells)
        _, cells, empty, full = self._drawn
        right = next(cell.right for cell in cells if t < cell.steps.stop)
        image = empty.copy()
        image.paste(full.crop((0, 0, right, full.height)))
        return image

    def _picture(self, cells: list[Cell]) -> Image.Image:
        """The rows of all agents, with these cells filled."""
        own_rewards = self.rewards is not None and not self.shared
        rows = (self.actions is not None) + own_rewards
        block = rows * self.row + _GAP
        more = self.agents - self.shown if rows else 0
        ends = self.shown * block * (rows > 0) + _GAP
        height = ends + (more > 0) * (self.row + _GAP) + self.shared * (2 * self.row + _GAP)
        image = Image.new("RGB", (self.size, height), PAPER)
        pen = ImageDraw.Draw(image)
        left, right = self.gutter, self.gutter + self.columns
        for agent in range(self.shown if rows else 0):
            top = _GAP + agent * block
            pen.text((8, top + rows * self.row / 2), self.labels[agent], INK, font(12), anchor="lm")
            if self.actions is not None:
                pen.rectangle((left, top, right, top + self.row), fill=WHITE, outline=EDGE)
                self._actions(pen, cells, top, self.actions[:, agent])
                top += self.row
            if own_rewards:
                self._bars(pen, cells, top, self.row, agent)
        if more:
            text = fitted(f"and {more:,} more agent{'s' * (more > 1)}", self.size - 16)
            pen.text((8, ends + self.row / 2), text, INK, font(12), anchor="lm")
        if self.shared:
            top = height - 2 * self.row - _GAP
            pen.text((8, top + self.row), "reward", INK, font(12), anchor="lm")
            self._bars(pen, cells, top, 2 * self.row, 0)
        pen.rectangle((0, 0, self.size - 1, height - 1), outline=EDGE)
        return image

    def _cells(self, start: int, stop: int) -> list[Cell]:
        """An episode's steps, grouped by pixel column."""
        edges = self.gutter + np.linspace(0, self.columns, stop - start + 1).round().astype(int)
        lefts, begins = np.unique(edges[:-1], return_index=True)
        ends, rights = [*begins[1:], stop - start], [*lefts[1:], edges[-1]]
        return [
            Cell(slice(start + int(begin), start + int(end)), int(left), int(right))
            for begin, end, left, right in zip(begins, ends, lefts, rights, strict=True)
        ]

    def _actions(self, pen: ImageDraw.ImageDraw, cells: list[Cell], top: int, actions: np.ndarray) -> None:
        assert self.actions is not None
        largest = max(float(np.abs(self.actions).max()), 1e-9)
        for steps, left, right in cells:
            right = max(right - 1 - (right - left > 3), left)
            shown = actions[steps]
            if actions.ndim == 1:
                action = int(np.bincount(shown - shown.min()).argmax() + shown.min())
                pen.rectangle((left, top, right, top + self.row), fill=_COLOURS[action % len(_COLOURS)])
                if right - left >= 13:
                    middle = ((left + right + 1) / 2, top + self.row / 2)
                    pen.text(middle, str(action), WHITE, font(11, bold=True), anchor="mm")
                continue
            parts = np.linspace(top, top + self.row, shown.shape[1] + 1).round().astype(int)
            for values, upper, lower in zip(shown.T, parts, parts[1:], strict=False):
                value = _largest(values)
                shade = mix(WHITE, _POSITIVE if value > 0 else _NEGATIVE, min(abs(value) / largest, 1.0))
                pen.rectangle((left, upper, right, max(lower - 1, upper)), fill=shade)

    def _bars(self, pen: ImageDraw.ImageDraw, cells: list[Cell], top: int, height: int, agent: int) -> None:
        """Bars on one scale for all agents and steps; its ends are printed on the left."""
        assert self.rewards is not None
        low, high = self.scale
        span = (high - low) or 1.0
        inner = height - 6
        zero = top + 3 + round(inner * high / span)
        pen.line((self.gutter, zero, self.gutter + self.columns, zero), fill=EDGE)
        for steps, left, right in cells:
            value = _largest(self.rewards[steps, agent])
            tip = top + 3 + round(inner * (high - value) / span)
            if tip != zero:
                colour = _POSITIVE if value > 0 else _NEGATIVE
                box = (left, min(tip, zero), max(right - 1 - (right - left > 3), left), max(tip, zero))
                pen.rectangle(box, fill=colour)
        if self.ends:
            pen.text((self.gutter - 4, top + 3), self.ends[1], FAINT, font(9), anchor="rt")
            pen.text((self.gutter - 4, top + height - 3), self.ends[0], FAINT, font(9), anchor="rb")


def _largest(values: np.ndarray) -> float:
    """The value of the largest magnitude."""
    return float(values[np.abs(values).argmax()])


def fitted(name: str, width: int, face: Any = None) -> str:
    """``name``, truncated to ``width`` pixels in the font ``face``; None for the small one."""
    face = font(12) if face is None else face
    if face.getlength(name) <= width:
        return name
    while name and face.getlength(f"{name}…") > width:
        name = name[:-1]
    return f"{name}…"
