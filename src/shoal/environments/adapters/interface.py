"""Gymnasium's spaces as forms (:mod:`shoal.environments.forms`), and an environment's interface of them."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from shoal.environments.forms import Form, parsed
from shoal.errors import InputError


def interface(
    kind: Literal["parallel", "turns", "one", "list"], observation_spaces: Sequence[Any], actions: Sequence[Form]
) -> str:
    """The value of ``EnvSpec.interface``; empty if a space has no form, for example a dict with keys that are no text.

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


def is_image(space: Any) -> bool:
    """Whether a space is one of images: a Box of ``uint8`` from 0 to 255 with at least two axes."""
    from gymnasium import spaces

    box = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1
    return box and bool((space.low == 0).all() and (space.high == 255).all())


def _observation(space: Any) -> Form:
    from gymnasium import spaces

    if is_image(space):
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
    return ["box", [int(spaces.flatdim(space))]]  # other spaces are flattened


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
