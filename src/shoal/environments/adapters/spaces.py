"""Gymnasium's spaces: as forms (:mod:`shoal.environments.interface`), and as a team's flat observations and actions."""

import json
import re
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Literal

import numpy as np

from shoal.environments.images import arranged_image, arrangement
from shoal.environments.interface import MASK, Form, dim_of, parsed
from shoal.environments.rows import as_bytes, width_of_part
from shoal.environments.spec_rules import rivals_of
from shoal.errors import InputError, shortened
from shoal.spec import Box, Discrete, EnvSpec, Part

# Spaces as forms, and an environment's interface of them.


def interface(
    kind: Literal["parallel", "turns", "one", "list"], observation_spaces: Sequence[Any], actions: Sequence[Form]
) -> str:
    """The value of ``EnvSpec.interface``; empty if a space has no form, for example text, or a dict with keys that are
    no text.

    Args:
        kind: how agents' observations and actions are combined.
        observation_spaces: each agent's space, without masks.
        actions: the form of each agent's actions.
    """
    pairs = [[_observation(space), acts] for space, acts in zip(observation_spaces, actions, strict=True)]
    try:
        text = json.dumps({"kind": kind, "agents": pairs}, separators=(",", ":"))
        parsed(text)
    except (TypeError, InputError):
        return ""
    return text


def is_image_space(space: Any) -> bool:
    """Whether a space is one of images: a Box of ``uint8`` from 0 to 255 with at least two axes."""
    from gymnasium import spaces

    box = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1
    return box and bool((space.low == 0).all() and (space.high == 255).all())


def _observation(space: Any) -> Form | None:
    """The form of an observation space; None, which makes the whole form invalid, for those that have none."""
    from gymnasium import spaces

    if is_image_space(space):
        return ["box", list(space.shape), "uint8"]
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return ["box", list(space.shape)]
    if isinstance(space, spaces.Discrete):
        return ["one_hot", [int(space.n)], [int(space.start)]]
    if isinstance(space, spaces.MultiDiscrete):
        return ["one_hot", space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist()]
    if isinstance(space, spaces.Tuple):
        return ["tuple", [_observation(part) for part in space.spaces]]
    if isinstance(space, spaces.Dict):
        return ["dict", [[key, _observation(part)] for key, part in space.spaces.items()]]
    return None  # others are only flattened, by Gymnasium


def choice_form(space: Any) -> Form | None:
    """The form of a finite action space; None for another space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return ["index", int(space.n), int(space.start)]
    if isinstance(space, spaces.MultiDiscrete):
        numbers = space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist()
        return ["indices", list(space.shape), *numbers, space.dtype.name]
    if isinstance(space, spaces.MultiBinary):
        count = int(np.prod(space.shape))
        return ["indices", list(space.shape), [2] * count, [0] * count, space.dtype.name]
    if isinstance(space, spaces.Tuple):
        parts = [choice_form(part) for part in space.spaces]
        return None if None in parts else ["tuple", parts]
    if isinstance(space, spaces.Dict):
        named = [[key, choice_form(part)] for key, part in space.spaces.items()]
        return None if any(part is None for _, part in named) else ["dict", named]
    return None


def box_form(space: Any, scaled: bool) -> Form:
    """The form of a bounded Box; ``scaled`` if the team's actions lie in [-1, 1] rather than within its bounds."""
    sides = (side.reshape(-1).astype(np.float64).tolist() if scaled else None for side in (space.low, space.high))
    return ["box", list(space.shape), *sides, space.dtype.name]


# Conversion of spaces: flat observations, one index or one vector per action, roles.


MAX_ACTIONS = 4096
"""Largest number of joint actions of a MultiDiscrete space."""

Read = Callable[[Any], Any]
"""Observation -> its flat row."""


class Observation:
    """One agent's observation space: its arrays, whether it holds an action mask, and functions that flatten it.

    Rows are those of ``gymnasium.spaces.flatten`` (one-hot for discrete parts, Dict in the order of its keys) without
    the part ``action_mask``.

    Raises:
        InputError: the space has no fixed size.
    """

    def __init__(self, space: Any, name: str):
        from gymnasium import spaces

        self.named = isinstance(space, spaces.Dict)
        """Whether it is a dict, which may hold a mask even where its space does not name one."""
        self.masked = self.named and MASK in space.spaces
        if self.masked and len(space.spaces) == 1:
            raise InputError(f"{name} observes nothing but an action mask; its observations need another part.")
        if self.masked:
            space = spaces.Dict({key: part for key, part in space.spaces.items() if key != MASK})
        self.space = space
        """The space without the mask."""
        try:
            self.parts = _parts(space)
        except (NotImplementedError, ValueError) as error:
            raise InputError(f"{name} observes {space}, which cannot be flattened to a vector.") from error

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest value of each number of its row, float64; infinite where it has none."""
        return _bounds(self.space)

    @property
    def pictured(self) -> bool:
        """Whether there is an image in it."""
        return any(part.dtype == "uint8" for part in self.parts)

    def reader(self, packed: bool, what: str, unread: set[str]) -> Read:
        """The function that flattens it to a row: of bytes if ``packed``, else of numbers.

        For parts that are missing or have another width, and for choices outside their space, it raises a ValueError
        in which the observation is called ``what``. Parts that the space lacks are added to ``unread``.
        """
        return _reader(self.space, what, packed, unread)


def _parts(space: Any, name: str = "") -> list[Part]:
    """The arrays of a space in the order in which it is flattened; names of nested ones are joined by a dot.

    Raises:
        NotImplementedError: the space has no fixed size.
        ValueError: likewise.
    """
    from gymnasium import spaces

    if is_image_space(space):
        return [Part(arrangement(space.shape)[1], "uint8", name)]
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return [Part(tuple(space.shape) or (1,), name=name)]
    if isinstance(space, spaces.Dict | spaces.Tuple):
        each = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return [part for key, one in each for part in _parts(one, f"{name}.{key}" if name else str(key))]
    return [Part((int(spaces.flatdim(space)),), name=name)]


def _bounds(space: Any) -> tuple[np.ndarray, np.ndarray]:
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        each = [_bounds(one) for one in (space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces)]
        low, high = ([np.zeros(0), *sides] for sides in (zip(*each, strict=True) if each else ((), ())))
        return np.concatenate(low), np.concatenate(high)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(spaces.flatdim(space)), np.ones(spaces.flatdim(space))
    unbounded = np.full(int(spaces.flatdim(space)), np.inf)
    return -unbounded, unbounded


def bounds(observations: Sequence[Observation], spec: EnvSpec) -> tuple[np.ndarray, np.ndarray] | None:
    """The smallest and the largest value of each agent's observation, [N, O]; None for observations of bytes."""
    if spec.packed:
        return None
    low, high = np.full((2, spec.num_agents, spec.obs_dim), np.inf)
    low = -low
    for i, observation in enumerate(observations):
        width = spec.obs_dims[i]
        low[i, :width], high[i, :width] = observation.bounds()
    return low, high


def _reader(space: Any, what: str, packed: bool, unread: set[str], part: bool = False) -> Read:
    """See :meth:`Observation.reader`; the width of a row of numbers that is no ``part`` is not checked."""
    from gymnasium import spaces

    if packed and is_image_space(space):
        return lambda seen: arranged_image(seen, space.shape)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _joined(space, what, packed, unread, frozenset() if part else frozenset([MASK]))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        read = _marks(space, what)
    elif isinstance(space, spaces.Box | spaces.MultiBinary):
        read = np.asarray if len(space.shape) == 1 and not part else lambda seen: np.asarray(seen).reshape(-1)
    else:
        read = partial(spaces.flatten, space)
    if not (packed or part):
        return read
    width = int(spaces.flatdim(space))

    def checked(seen: Any) -> Any:
        row = np.asarray(read(seen))
        check_width(what, row, width)
        return as_bytes(row) if packed else row

    return checked


def _joined(space: Any, what: str, packed: bool, unread: set[str], also: Set[Any]) -> Read:
    """The function that flattens the parts of a Dict or Tuple one after another, without a cast to their types.

    Keys that the space lacks, but for those in ``also``, are added to ``unread``.
    """
    from gymnasium import spaces

    named = isinstance(space, spaces.Dict)
    each = space.spaces.items() if named else enumerate(space.spaces)
    reads = [(key, _reader(one, f"{what}[{key!r}]", packed, unread, part=True)) for key, one in each]
    known = {key for key, _ in reads} | also

    def read(seen: Any) -> Any:
        rows = []
        for key, one in reads:
            try:
                part = seen[key]
            except (KeyError, IndexError, TypeError):
                raise ValueError(f"{what} lacks {key!r}.") from None
            rows.append(one(part))
        if not named and len(seen) != len(reads):
            raise ValueError(f"{what} has {len(seen)} parts, but its space has {len(reads)}.")
        if named and isinstance(seen, Mapping) and len(seen) > len(reads):
            unread.update(f"{what}[{key!r}]" for key in seen if key not in known)
        return rows[0] if len(rows) == 1 else np.concatenate(rows or [np.zeros(0, np.uint8)])

    return read


def _marks(space: Any, what: str) -> Read:
    """The one-hot row bool of a Discrete or MultiDiscrete observation."""
    sizes, starts = np.ravel(space.n if hasattr(space, "n") else space.nvec), np.ravel(space.start)
    choice = np.repeat(np.arange(len(sizes)), sizes)
    value = np.arange(len(choice)) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)

    def read(seen: Any) -> Any:
        chosen = np.asarray(seen).reshape(-1)
        if len(chosen) == len(sizes):
            row = chosen[choice] == value
            if np.count_nonzero(row) == len(sizes):
                return row
        raise ValueError(f"{what} is {shortened(np.asarray(seen).tolist())}, which lies outside {shortened(space)}.")

    return read


def actions(spaces_of: Sequence[Any], name: str) -> tuple[Discrete | Box, tuple[int, ...], list[Form]]:
    """(the team's padded action space, each agent's width, the form of each agent's space).

    Discrete, MultiDiscrete, MultiBinary, and Tuples and Dicts of them become one index over all combinations. Boxes
    keep their bounds if these are the same number for all; otherwise they are scaled from [-1, 1].

    Raises:
        InputError: discrete and continuous agents are mixed, bounds are not finite, or there are too many combinations.
    """
    choices = [choice_form(space) for space in spaces_of]
    forms = [form for form in choices if form is not None]
    if not forms:
        return _boxes(spaces_of, name)
    if len(forms) < len(choices):
        raise InputError(f"{name} mixes agents with discrete and with continuous actions, which is not supported.")
    widths = tuple(dim_of(form) for form in forms)
    for form, count in zip(forms, widths, strict=True):
        if form[0] != "index" and count > MAX_ACTIONS:
            raise InputError(
                f"{name} has {count} joint actions per agent, which is more than the {MAX_ACTIONS} that one index may "
                f"stand for."
            )
    return Discrete(max(widths)), widths, forms


def _boxes(spaces_of: Sequence[Any], name: str) -> tuple[Box, tuple[int, ...], list[Form]]:
    from gymnasium import spaces

    for space in spaces_of:
        if not isinstance(space, spaces.Box):
            raise InputError(f"{name} has the action space {space}, which is neither discrete nor a box.")
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise InputError(f"{name} has actions without finite bounds ({space}); wrap it so that they are bounded.")
    lows, highs = ({float(x) for space in spaces_of for x in getattr(space, side).flat} for side in ("low", "high"))
    uniform = len(lows) == 1 and len(highs) == 1
    forms = [box_form(space, scaled=not uniform) for space in spaces_of]
    widths = tuple(map(dim_of, forms))
    return Box(max(widths), min(lows), max(highs)) if uniform else Box(max(widths)), widths, forms


def kind(agent: str) -> str:
    """An agent's name without its number: ``adversary_0`` -> ``adversary``."""
    return re.sub(r"[\W_]*\d+$", "", agent)


def spec_of_spaces(
    name: str,
    agents: Sequence[Any],
    observations: Sequence[Observation],
    action_spaces: Sequence[Any],
    action: tuple[Discrete | Box, tuple[int, ...]],
    state_dim: int | None,
    horizon: int,
    metrics: Sequence[str] = (),
) -> EnvSpec:
    """The spec; agents with the same :func:`kind` of name and the same spaces have one role.

    With ``state_dim`` None the state is the concatenation of all observations, or there is none if they have images;
    otherwise ``novel`` is unknown. Each agent has its own reward, and the score is the sum, unless the options of all
    environments change that.
    """
    groups: list[tuple[Any, ...]] = []
    roles = []
    for agent, seen, acts in zip(agents, observations, action_spaces, strict=True):
        group = (kind(str(agent)), seen.space, acts)
        if group not in groups:
            groups.append(group)
        roles.append(groups.index(group))
    packed = any(seen.pictured for seen in observations)
    shaped = packed or any(len(seen.parts) > 1 or len(seen.parts[0].shape) > 1 for seen in observations if seen.parts)
    widths = tuple(sum(width_of_part(part, packed) for part in seen.parts) for seen in observations)
    own = 0 if packed else sum(widths)
    return EnvSpec(
        name=name,
        agents=tuple(str(agent) for agent in agents),
        obs_dims=widths,
        state_dim=own if state_dim is None else state_dim,
        action=action[0],
        action_dims=action[1],
        roles=tuple(roles),
        horizon=horizon,
        shared_reward=False,
        metrics=tuple(metrics),
        novel=() if state_dim is None and not packed else None,
        parts=tuple(tuple(seen.parts) for seen in observations) if shaped else None,
        rivals=rivals_of(agents),
    )


def write_mask(legal: np.ndarray, mask: np.ndarray, width: int, agent: Any) -> bool:
    """Write an agent's mask into its row of ``legal``; if no action is legal, index 0 is, as a no-op.

    Args:
        legal: bool [A], the row.
        mask: bool, one entry for each of the agent's actions.
        width: the number of the agent's actions.
        agent: the agent's name, for the message.

    Returns:
        Whether the mask allows an action.

    Raises:
        ValueError: the mask has another number of entries.
    """
    if len(mask) != width:
        raise ValueError(f"{agent}'s {MASK} has {len(mask)} entries for {width} actions.")
    legal[:width] = mask
    allows = bool(legal.any())
    if not allows:
        legal[0] = True
    return allows


def has_mask(seen: Any, promised: bool, what: str) -> bool:
    """Whether there is a mask in an observation that is a dict.

    Raises:
        ValueError: it is missing, although its space has one (``promised``).
    """
    if MASK in seen:
        return True
    if promised:
        raise ValueError(f"{what} lacks {MASK!r}.")
    return False


def check_width(what: str, row: np.ndarray, width: int) -> None:
    """Check a row, which NumPy might otherwise broadcast or convert.

    Raises:
        ValueError: it is not a row of numbers, or its width differs from that of its space.
    """
    if row.dtype.kind not in "biuf" or row.ndim != 1:
        raise ValueError(f"{what} is an array of {row.dtype} with {row.ndim} axes, but its space is a row of numbers.")
    if len(row) != width:
        raise ValueError(f"{what} has {len(row)} numbers, but its space has {width}.")
