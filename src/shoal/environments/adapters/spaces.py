"""Gymnasium's spaces as Shoal's: flat float32 observations, one index or one vector per action, roles."""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.spec import Box, Discrete, EnvSpec

MOST_ACTIONS = 4096
"""Joint actions of a MultiDiscrete space above which flattening it is refused."""

MASK = "action_mask"

Read = Callable[[Any], Any]
"""What the environment returned -> its flat row."""
Send = Callable[[Any], Any]
"""One agent's row of the joint action -> what the environment takes."""


class Observation:
    """One agent's observation space: its width, whether it carries an action mask, and how to read it flat.

    ``read`` gives what ``gymnasium.spaces.flatten`` gives (one-hot for discrete parts, Dict in the order of its keys),
    without the part ``action_mask``.

    Raises:
        InputError: the space has no fixed size.
    """

    def __init__(self, space: Any, name: str):
        from gymnasium import spaces

        self.masked = isinstance(space, spaces.Dict) and MASK in space.spaces
        part: str | None = None
        if self.masked:
            rest = {key: inner for key, inner in space.spaces.items() if key != MASK}
            if len(rest) == 1:
                part, space = next(iter(rest.items()))
            else:
                space = spaces.Dict(rest)
        try:
            self.width = int(spaces.flatdim(space))
        except (NotImplementedError, ValueError) as error:
            raise InputError(f"{name} observes {space}, which cannot be flattened to a vector.") from error
        self.space = space
        read = _reader(space)
        self.read: Read = read if part is None else lambda seen: read(seen[part])


def _reader(space: Any) -> Read:
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return np.asarray if len(space.shape) == 1 else lambda seen: np.asarray(seen).reshape(-1)
    return lambda seen: spaces.flatten(space, seen)


def _count(space: Any) -> int | None:
    """How many actions a discrete space holds; None for any other."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return math.prod(int(n) for n in space.nvec.flat)
    if isinstance(space, spaces.MultiBinary):
        return 2 ** math.prod(space.shape)
    if isinstance(space, spaces.Tuple | spaces.Dict):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        counts = [_count(part) for part in parts]
        return None if None in counts else math.prod(count for count in counts if count is not None)
    return None


def _choices(space: Any) -> list[Any]:
    """All actions of a discrete space; the last component varies fastest."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return list(range(int(space.start), int(space.start + space.n)))
    if isinstance(space, spaces.MultiDiscrete):
        ranges = [range(s, s + n) for s, n in zip(space.start.flat, space.nvec.flat, strict=True)]
        return [np.array(row, space.dtype).reshape(space.shape) for row in itertools.product(*ranges)]
    if isinstance(space, spaces.MultiBinary):
        rows = itertools.product((0, 1), repeat=math.prod(space.shape))
        return [np.array(row, space.dtype).reshape(space.shape) for row in rows]
    if isinstance(space, spaces.Dict):
        rows = itertools.product(*(_choices(part) for part in space.spaces.values()))
        return [dict(zip(space.spaces, row, strict=True)) for row in rows]
    return list(itertools.product(*(_choices(part) for part in space.spaces)))


def mask_reader(space: Any) -> Read:
    """What reads an agent's ``action_mask``: one entry per joint action, or, for a MultiDiscrete, per choice."""
    from gymnasium import spaces

    if not isinstance(space, spaces.MultiDiscrete):
        return lambda mask: mask
    sizes = [int(n) for n in space.nvec.flat]
    total = math.prod(sizes)
    starts = np.cumsum([0, *sizes[:-1]])
    positions = np.stack(np.unravel_index(np.arange(total), sizes), axis=1) + starts

    def read(mask: Any) -> Any:
        flat = np.concatenate(mask) if isinstance(mask, tuple | list) else np.asarray(mask)
        return flat if len(flat) == total and len(sizes) > 1 else flat.astype(bool)[positions].all(1)

    return read


def actions(spaces_of: Sequence[Any], name: str) -> tuple[Discrete | Box, tuple[int, ...], list[Send]]:
    """(the team's padded action space, each agent's own width, what turns each agent's row into its own action).

    Discrete, MultiDiscrete, MultiBinary, and Tuples and Dicts of them become one index over all combinations. Boxes
    keep their bounds where these are the same number for all; otherwise they are mapped from [-1, 1].

    Raises:
        InputError: discrete and continuous agents are mixed, bounds are not finite, or there are too many combinations.
    """
    counts = [_count(space) for space in spaces_of]
    if None not in counts:
        widths = tuple(count for count in counts if count is not None)
        return Discrete(max(widths)), widths, [_index(space, name) for space in spaces_of]
    if any(count is not None for count in counts):
        raise InputError(f"{name} mixes agents with discrete and with continuous actions, which one team cannot hold.")
    return _boxes(spaces_of, name)


def _index(space: Any, name: str) -> Send:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return int if start == 0 else lambda action: int(action) + start
    if (count := _count(space) or 0) > MOST_ACTIONS:
        raise InputError(
            f"{name} has {count} joint actions per agent, which is more than the {MOST_ACTIONS} that one index may "
            f"stand for."
        )
    # A copy, lest the environment write into the table.
    table = _choices(space)
    return lambda action: table[action].copy() if isinstance(table[action], np.ndarray) else table[action]


def _boxes(spaces_of: Sequence[Any], name: str) -> tuple[Box, tuple[int, ...], list[Send]]:
    from gymnasium import spaces

    for space in spaces_of:
        if not isinstance(space, spaces.Box):
            raise InputError(f"{name} has the action space {space}, which is neither discrete nor a box.")
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise InputError(f"{name} has actions without finite bounds ({space}); wrap it so that they are bounded.")
    widths = tuple(int(np.prod(space.shape)) for space in spaces_of)
    lows, highs = ({float(x) for space in spaces_of for x in getattr(space, side).flat} for side in ("low", "high"))
    uniform = len(lows) == 1 and len(highs) == 1
    box = Box(max(widths), min(lows), max(highs)) if uniform else Box(max(widths))
    return box, widths, [_vector(space, uniform) for space in spaces_of]


def _vector(space: Any, uniform: bool) -> Send:
    width, shape, kind = int(np.prod(space.shape)), space.shape, space.dtype
    low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    whole = np.issubdtype(kind, np.integer)

    def send(action: Any) -> Any:
        row = action[:width]
        if not uniform:
            row = np.clip(low + (row + 1.0) * 0.5 * (high - low), low, high)
        if whole:
            row = np.rint(row)
        return row.astype(kind).reshape(shape)

    return send


def kind(agent: str) -> str:
    """An agent's name without its number: ``adversary_0`` -> ``adversary``."""
    return re.sub(r"[\W_]*\d+$", "", agent)


def describe(
    name: str,
    agents: Sequence[Any],
    observations: Sequence[Observation],
    action_spaces: Sequence[Any],
    action: tuple[Discrete | Box, tuple[int, ...]],
    state_dim: int | None,
    horizon: int,
    metrics: Sequence[str] = (),
) -> EnvSpec:
    """The specification; agents with the same :func:`kind` of name and the same spaces have one role. Without a
    ``state_dim``, the state is all observations side by side, which hold everything; what the environment's own state
    holds is not known. Each agent has its own reward, and the score is the sum; the options that every environment
    takes change that."""
    groups: list[tuple[Any, ...]] = []
    roles = []
    for agent, seen, acts in zip(agents, observations, action_spaces, strict=True):
        group = (kind(str(agent)), seen.space, acts)
        if group not in groups:
            groups.append(group)
        roles.append(groups.index(group))
    widths = tuple(seen.width for seen in observations)
    return EnvSpec(
        name=name,
        agents=tuple(str(agent) for agent in agents),
        obs_dims=widths,
        state_dim=sum(widths) if state_dim is None else state_dim,
        action=action[0],
        action_dims=action[1],
        roles=tuple(roles),
        horizon=horizon,
        shared_reward=False,
        metrics=tuple(metrics),
        novel=() if state_dim is None else None,
    )


def write_mask(legal: np.ndarray, mask: Any) -> None:
    """An agent's mask into its row of ``legal``; where it allows nothing, index 0 stays as a no-op."""
    legal[: len(mask)] = mask
    if not legal.any():
        legal[0] = True


def check_width(what: str, row: np.ndarray, width: int) -> None:
    """Refuse a row that NumPy would stretch or translate, or could not place.

    Raises:
        ValueError: it is not a row of numbers, or has not as many as its space.
    """
    if row.dtype.kind not in "biuf" or row.ndim != 1:
        raise ValueError(f"{what} is an array of {row.dtype} with {row.ndim} axes, but its space is a row of numbers.")
    if len(row) != width:
        raise ValueError(f"{what} has {len(row)} numbers, but its space has {width}.")
