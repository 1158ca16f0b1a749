"""The time limits of others' environments: the one that is promised, and the one that is enforced."""

from typing import Any, NamedTuple

import numpy as np

from shoal.environments.options import check_steps
from shoal.errors import InputError

DEFAULT_LIMIT = 10_000
"""Steps after which an episode is cut off where the environment names no limit of its own."""

_WORDS = ("max_cycles", "max_num_frames", "max_episode_steps", "_max_episode_steps", "max_steps", "episode_limit")


class Limits(NamedTuple):
    """Steps of an episode."""

    horizon: int
    """What the longest takes, as far as is known."""
    cut: int
    """After how many it is cut off."""


def limits(env: Any, given: int | None, name: str, moves: int = 1) -> Limits:
    """The smaller of the limit ``given`` and the environment's own (times ``moves``, the moves of a round), or
    :data:`DEFAULT_LIMIT` where there is neither.

    An attribute such as ``max_steps`` says less than a Gymnasium specification: whether the step of that number is
    still played differs. So the environment has one more step, often the one that pays, to end the episode by itself.

    Raises:
        InputError: ``given`` is not a number of steps.
    """
    if given is not None:
        try:
            check_steps("time_limit", given)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    promised = _first([getattr(getattr(env, "spec", None), "max_episode_steps", None)])
    inner = getattr(env, "unwrapped", env)
    # SISL's environments keep the game, and its limit, in another object.
    holders = (inner, getattr(inner, "env", None))
    said = promised or _first([getattr(holder, word, None) for holder in holders for word in _WORDS])
    own, more = (None, None) if said is None else (said * moves, (said + (promised is None)) * moves)
    return Limits(*(min((x for x in (given, y) if x is not None), default=DEFAULT_LIMIT) for y in (own, more)))


def _first(values: list[Any]) -> int | None:
    return next((int(x) for x in values if isinstance(x, int | np.integer) and x > 0), None)
