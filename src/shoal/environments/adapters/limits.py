"""Time limits of other libraries' environments."""

from typing import Any, NamedTuple

import numpy as np

from shoal.environments.options import check_steps
from shoal.errors import InputError

DEFAULT_LIMIT = 10_000
"""Steps after which an episode is truncated if the environment has no limit of its own."""

_WORDS = ("max_cycles", "max_num_frames", "max_episode_steps", "_max_episode_steps", "max_steps", "episode_limit")


class Limits(NamedTuple):
    """Time limits in steps."""

    horizon: int
    """Length of the longest episode, as far as is known."""
    cut: int
    """Steps after which Shoal truncates an episode."""


def limits(env: Any, given: int | None, name: str, moves: int = 1) -> Limits:
    """The smaller of ``given`` and the environment's own limit (times ``moves``, the moves of a round), or
    :data:`DEFAULT_LIMIT` without either.

    Unlike for a Gymnasium specification, it is unknown whether an environment with an attribute such as ``max_steps``
    still plays the step of that number. So it has one more step to end the episode by itself.

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
    # SISL's environments have the limit in an inner object.
    holders = (inner, getattr(inner, "env", None))
    found = promised or _first([getattr(holder, word, None) for holder in holders for word in _WORDS])
    own, more = (None, None) if found is None else (found * moves, (found + (promised is None)) * moves)
    return Limits(*(min((x for x in (given, y) if x is not None), default=DEFAULT_LIMIT) for y in (own, more)))


def _first(values: list[Any]) -> int | None:
    return next((int(x) for x in values if isinstance(x, int | np.integer) and x > 0), None)
