"""Experience that some algorithms need before the shapes of their parameters are known.

A module may have ``prepare(spec, config, scale) -> Preparation | None`` beside ``make``. Training collects the
experience, calls ``decide``, and makes the algorithm from the resulting configuration. None: nothing is to be decided.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import PRNGKeyArray

from shoal.types import Algorithm, Trajectory


class Decision(NamedTuple):
    """What :attr:`Preparation.decide` returns."""

    config: Any
    """The algorithm's complete ``Config``; ``run.json`` stores it, so that a resumed run does not decide again."""
    message: str
    """One sentence for the user."""
    report: dict[str, Any]
    """The data behind it, in JSON's types; stored in the run's folder as ``preparation.json``."""


class Preparation(NamedTuple):
    """The experience to collect, and the decision from it."""

    algorithm: Algorithm
    """Acts while it is collected, with its initial parameters."""
    steps: int
    """Environment steps to collect, over all environments."""
    decide: Callable[[Trajectory, PRNGKeyArray], Decision]
    """Trajectory of T steps in E environments -> the decision. Compiles its own functions."""
