"""What some algorithms must see of an environment before their parameters have a shape.

A module may have ``prepare(spec, config, scale) -> Preparation | None`` beside ``make``; the training room collects the
experience, asks for the decision, and makes the algorithm from the configuration that it gives. None: all is known.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import PRNGKeyArray

from shoal.types import Algorithm, Trajectory


class Decision(NamedTuple):
    """What was decided from the experience."""

    config: Any
    """The algorithm's ``Config`` with nothing left open; ``run.json`` keeps it, so that nothing is decided twice."""
    said: str
    """One sentence for the user."""
    report: dict[str, Any]
    """What it rests on, in JSON's types; the run's folder keeps it as ``preparation.json``."""


class Preparation(NamedTuple):
    """The experience that is needed, and what to do with it."""

    algorithm: Algorithm
    """Acts meanwhile, with its initial parameters."""
    steps: int
    """Environment steps to collect, over all environments."""
    decide: Callable[[Trajectory, PRNGKeyArray], Decision]
    """Trajectory of T steps in E environments -> the decision. Compiles what it needs itself."""
