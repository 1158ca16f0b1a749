"""What benchmarks of throughput compute from reports and print beside environment steps per second."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Any

import pytest


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"epochs": 4}, 4), ({"epochs": 4, "max_kl": 0.01}, 1), ({}, 1)],
    ids=["epochs of the policy", "epochs of the critic only", "one step"],
)
def test_passes_without_a_buffer(load: Callable[[str], Any], config: dict, expected: int) -> None:
    training = Namespace(algorithm=Namespace(replay=None), config=Namespace(**config))
    assert load("units").passes(training, 128) == expected


def test_passes_with_a_buffer_are_samples_per_collected_step(load: Callable[[str], Any]) -> None:
    replay = Namespace(draws=4, batch=32, length=25)  # 3200 steps in gradient steps, 400 collected
    training = Namespace(algorithm=Namespace(replay=replay), config=Namespace(epochs=7))
    assert load("units").passes(training, 400) == 8


def test_agent_steps(load: Callable[[str], Any]) -> None:
    assert load("units").agent_steps(1234.5, 3) == "3,704"


def test_inner_weights_leave_out_inputs_and_outputs(load: Callable[[str], Any]) -> None:
    layers = ["18x64", "64x64", "64x5", "54x64", "64x32", "32x1"]
    assert load("alternated").inner_weights(layers) == 64 * 64 + 64 * 32


def test_settings_that_differ_are_named(load: Callable[[str], Any]) -> None:
    reports = [{"epochs": 4, "agents": 3, "torch": "2"}, {"epochs": 1, "agents": 3}]
    assert load("alternated").differing(reports, ("epochs", "agents")) == ["epochs"]


def test_processes_train_in_turns(load: Callable[[str], Any], tmp_path: Path) -> None:
    """Each round begins with another process; the library's prints do not disturb the answers."""
    turns = tmp_path / "turns"
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "benchmarks")!r})
import alternated

def train():
    print("noise")
    with open({str(turns)!r}, "a") as file:
        file.write(sys.argv[1])
    return 2.0, 10 * int(sys.argv[1])

alternated.answer(lambda: ({{"layers": ["64x64"]}}, train))
"""
    alternated = load("alternated")
    workers = [alternated.Worker([sys.executable, "-c", program, number]) for number in "12"]
    alternated.alternate(workers, 2)
    assert turns.read_text() == "2112"
    assert [worker.speeds for worker in workers] == [[5.0, 5.0], [10.0, 10.0]]
    assert workers[0].report == {"layers": ["64x64"], "inner weights": 64 * 64}


def test_the_table_beside_a_library(load: Callable[[str], Any]) -> None:
    sides = {"peer": [100.0, 90.0, 120.0], "same": [400.0], "own": [2000.0]}
    result: dict[str, Any] = {side: {"steps per second": speeds} for side, speeds in sides.items()}
    line = load("beside").columns(result | {"library": "xuance", "row": "mpe2", "product rate": 1.5e11})
    assert line == {
        "row": "xuance: mpe2",
        "passes": "4",
        "peer": "100 (90 … 120)",
        "peer: agent-steps/s": "300",
        "Shoal, same environment": "400 (400 … 400)",
        "Shoal, same environment: agent-steps/s": "1,200",
        "Shoal, own environment": "2,000 (2,000 … 2,000)",
        "Shoal, own environment: agent-steps/s": "6,000",
        "ratio, same": "4.0",
        "ratio, own": "20.0",
        "product GFLOP/s": "150",
    }
