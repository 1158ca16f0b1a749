"""An episode without a picture: each agent's actions and rewards over time, as strips that fill from left to right."""

import numpy as np
from jaxtyping import Float, Shaped
from PIL import Image, ImageDraw

from shoal.errors import InputError
from shoal.records.picture import EDGE, FAINT, INK, PAPER, WHITE, Colour, font, mix

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


class Strips:
    """Draws moments of a run of ``T`` steps; row t holds the actions at t and the rewards they earned.

    Discrete actions are coloured cells with their number; real ones one thin row per dimension, from orange (the
    lowest) through white (0) to blue. Rewards are bars around a zero line, one strip for all agents where they always
    agree.

    Raises:
        InputError: the arrays' shapes do not fit together, or there is neither.
    """

    def __init__(
        self,
        actions: Shaped[np.ndarray, "T N *A"] | None,
        rewards: Float[np.ndarray, "steps N"] | None,
        names: tuple[str, ...] | None,
        size: int,
    ):
        if actions is None and rewards is None:
            raise InputError("A replay needs frames, or the actions or rewards of the episode.")
        self.actions = None if actions is None else np.asarray(actions)
        if self.actions is not None and self.actions.ndim not in (2, 3):
            raise InputError(f"actions must be [T, N] or [T, N, A], not {self.actions.shape}.")
        self.rewards, self.size = rewards, size
        lead = next(array for array in (self.actions, rewards) if array is not None)
        self.length, self.agents = lead.shape[:2]
        if rewards is not None and rewards.shape != (self.length, self.agents):
            raise InputError(f"actions are of {self.agents} agents in {self.length} steps, rewards {rewards.shape}.")
        self.names = names or tuple(f"agent {i}" for i in range(self.agents))
        if len(self.names) != self.agents:
            raise InputError(f"There are {self.agents} agents and {len(self.names)} names.")
        self.shared = rewards is not None and self.agents > 1 and bool((rewards == rewards[:, :1]).all())
        self.row = int(np.clip(360 / self.agents, 14, 30))
        self.gutter = 14 + max(round(font(12).getlength(name)) for name in (*self.names, "reward"))

    def draw(self, moment: int, start: int, stop: int) -> Image.Image:
        """The episode of rows ``start`` to ``stop`` (exclusive), filled up to and including ``moment``."""
        own_rewards = self.rewards is not None and not self.shared
        rows = (self.actions is not None) + own_rewards
        block = rows * self.row + _GAP
        height = self.agents * block * (rows > 0) + self.shared * (2 * self.row + _GAP) + _GAP
        image = Image.new("RGB", (self.size, height), PAPER)
        pen = ImageDraw.Draw(image)
        edges = np.linspace(self.gutter, self.size - 12, stop - start + 1).round().astype(int)
        for agent in range(self.agents if rows else 0):
            top = _GAP + agent * block
            pen.text((8, top + rows * self.row / 2), self.names[agent].replace("_", " "), INK, font(12), anchor="lm")
            if self.actions is not None:
                box = (edges[0], top, edges[-1], top + self.row)
                pen.rectangle(box, fill=WHITE, outline=EDGE)
                self._cells(pen, edges, top, self.actions[start : moment + 1, agent])
                top += self.row
            if own_rewards:
                self._bars(pen, edges, top, self.row, start, moment, agent)
        if self.shared:
            top = height - 2 * self.row - _GAP
            pen.text((8, top + self.row), "reward", INK, font(12), anchor="lm")
            self._bars(pen, edges, top, 2 * self.row, start, moment, 0)
        pen.rectangle((0, 0, self.size - 1, height - 1), outline=EDGE)
        return image

    def _cells(self, pen: ImageDraw.ImageDraw, edges: np.ndarray, top: int, actions: np.ndarray) -> None:
        for action, left, right in zip(actions, edges, edges[1:], strict=False):
            right = max(right - (right - left > 3), left)
            if actions.ndim == 1:
                pen.rectangle((left, top, right - 1, top + self.row), fill=_COLOURS[int(action) % len(_COLOURS)])
                if right - left >= 14:
                    middle = ((left + right) / 2, top + self.row / 2)
                    pen.text(middle, str(int(action)), WHITE, font(11, bold=True), anchor="mm")
                continue
            assert self.actions is not None
            largest = max(float(np.abs(self.actions).max()), 1e-9)
            parts = np.linspace(top, top + self.row, len(action) + 1).round().astype(int)
            for value, upper, lower in zip(action, parts, parts[1:], strict=False):
                hue = _POSITIVE if value > 0 else _NEGATIVE
                shade = mix(WHITE, hue, min(abs(float(value)) / largest, 1.0))
                pen.rectangle((left, upper, max(right - 1, left), max(lower - 1, upper)), fill=shade)

    def _bars(
        self, pen: ImageDraw.ImageDraw, edges: np.ndarray, top: int, height: int, start: int, moment: int, agent: int
    ) -> None:
        """Bars on one scale for all agents and steps, which the right edge states."""
        assert self.rewards is not None
        low, high = min(0.0, float(self.rewards.min())), max(0.0, float(self.rewards.max()))
        span = (high - low) or 1.0
        inner = height - 6
        zero = top + 3 + round(inner * high / span)
        pen.line((edges[0], zero, edges[-1], zero), fill=EDGE)
        for value, left, right in zip(self.rewards[start : moment + 1, agent], edges, edges[1:], strict=False):
            tip = top + 3 + round(inner * (high - float(value)) / span)
            right = max(right - (right - left > 3), left + 1)
            if tip != zero:
                colour = _POSITIVE if value > 0 else _NEGATIVE
                pen.rectangle((left, min(tip, zero), right - 1, max(tip, zero)), fill=colour)
        if height >= 40:
            pen.text((edges[0] - 4, top + 3), f"{high:g}", FAINT, font(9), anchor="rt")
            pen.text((edges[0] - 4, top + height - 3), f"{low:g}", FAINT, font(9), anchor="rb")
