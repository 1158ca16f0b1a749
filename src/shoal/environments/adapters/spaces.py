"""Conversion of Gymnasium's spaces: flat float32 observations, one index or one vector per action, roles."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.environments.adapters.interface import box_form, choice_form
from shoal.environments.conversion import MASK
from shoal.environments.forms import Form, dim_of
from shoal.errors import InputError
from shoal.spec import Box, Discrete, EnvSpec

MOST_ACTIONS = 4096
"""Largest number of joint actions of a MultiDiscrete space."""

Read = Callable[[Any], Any]
"""Observation -> its flat row."""


class Observation:
    """One agent's observation space: its width, whether it holds an action mask, and the function that flattens it.

    ``read`` is ``gymnasium.spaces.flatten`` (one-hot for discrete parts, Dict in the order of its keys) without the
    part ``action_mask``.

    Raises:
        InputError: the space has no fixed size.
    """

    def __init__(self, space: Any, name: str):
        from gymnasium import spaces

        self.masked = isinstance(space, spaces.Dict) and MASK in space.spaces
        if self.masked:
            space = spaces.Dict({key: part for key, part in space.spaces.items() if key != MASK})
        self.space = space
        """The space without the mask."""
        try:
            self.width = int(spaces.flatdim(space))
        except (NotImplementedError, ValueError) as error:
            raise InputError(f"{name} observes {space}, which cannot be flattened to a vector.") from error
        self.read: Read = _reader(space)
        if self.masked and len(space.spaces) == 1:  # as in PettingZoo; faster than flattening a dict
            key, part = next(iter(space.spaces.items()))
            read = _reader(part)
            self.read = lambda seen: read(seen[key])


def _reader(space: Any) -> Read:
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return np.asarray if len(space.shape) == 1 else lambda seen: np.asarray(seen).reshape(-1)
    return lambda seen: spaces.flatten(space, seen)


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
        raise InputError(f"{name} mixes agents with discrete and with continuous actions, which one team cannot hold.")
    widths = tuple(dim_of(form) for form in forms)
    for form, count in zip(forms, widths, strict=True):
        if form[0] != "index" and count > MOST_ACTIONS:
            raise InputError(
                f"{name} has {count} joint actions per agent, which is more than the {MOST_ACTIONS} that one index may "
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
    """The spec; agents with the same :func:`kind` of name and the same spaces have one role.

    With ``state_dim`` None the state is the concatenation of all observations; otherwise ``novel`` is unknown. Each
    agent has its own reward, and the score is the sum, unless the options of all environments change that.
    """
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
    """Write an agent's mask into its row of ``legal``; if no action is legal, index 0 is, as a no-op."""
    legal[: len(mask)] = mask
    if not legal.any():
        legal[0] = True


def check_width(what: str, row: np.ndarray, width: int) -> None:
    """Check a row, which NumPy might otherwise broadcast or convert.

    Raises:
        ValueError: it is not a row of numbers, or its width differs from that of its space.
    """
    if row.dtype.kind not in "biuf" or row.ndim != 1:
        raise ValueError(f"{what} is an array of {row.dtype} with {row.ndim} axes, but its space is a row of numbers.")
    if len(row) != width:
        raise ValueError(f"{what} has {len(row)} numbers, but its space has {width}.")
