"""The units that benchmarks print beside environment steps per second."""

import importlib
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Any

import pytest


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module("units")


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"epochs": 4}, 4), ({"epochs": 4, "max_kl": 0.01}, 1), ({}, 1)],
    ids=["epochs of the policy", "epochs of the critic only", "one step"],
)
def test_passes_without_a_buffer(units: Any, config: dict, expected: int) -> None:
    training = Namespace(algorithm=Namespace(replay=None), config=Namespace(**config))
    assert units.passes(training, 128) == expected


def test_passes_with_a_buffer_are_samples_per_collected_step(units: Any) -> None:
    replay = Namespace(draws=4, batch=32, length=25)  # 3200 steps in gradient steps, 400 collected
    training = Namespace(algorithm=Namespace(replay=replay), config=Namespace(epochs=7))
    assert units.passes(training, 400) == 8


def test_agent_steps(units: Any) -> None:
    assert units.agent_steps(1234.5, 3) == "3,704"
