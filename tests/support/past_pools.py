"""Small runs against past selves, and the intervals at which their pools take one in."""

from typing import Any

import pytest

from shoal.runs import build
from shoal.sides.past_selves import against_past
from shoal.types import Algorithm

PAST: dict[str, Any] = {"opponents": "past", "past_window": 2, "num_envs": 8, "rollout_length": 4, "devices": 1}


def noted_intervals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each algorithm that is built against past selves adds its interval in updates."""
    found: list[int] = []

    def spy(*parts: Any) -> Algorithm:
        found.append(parts[4])
        return against_past(*parts)

    monkeypatch.setattr(build, "against_past", spy)
    return found
