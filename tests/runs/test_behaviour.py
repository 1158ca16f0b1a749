"""A change of what an algorithm or an environment computes requires a raised behaviour version."""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from shoal.algorithms import NAMES
from shoal.runs.behaviour import ALGORITHMS, ENVIRONMENTS, OPTIONS, versions

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import frozen  # noqa: E402  # pyright: ignore[reportMissingImports]

KEPT: dict[str, Any] = json.loads(frozen.RECORDED.read_text(encoding="utf-8"))
RAISE = (
    "{name} computes other numbers than version {version} did. If that is intended, raise its version in "
    "src/shoal/runs/behaviour.py and run: python benchmarks/frozen.py --record --only {name}"
)
same_jax = pytest.mark.skipif(
    jax.__version__ != KEPT["jax"], reason=f"numbers of JAX {KEPT['jax']}; random draws and sums may differ in others"
)


def check(name: str, version: int, here: Any, there: Any, bound: float) -> None:
    """Compare two sets of numbers."""
    found = frozen.differences(here, there, bound)
    assert not found, f"{RAISE.format(name=name, version=version)}\n" + "\n".join(found[:8])


def test_recorded_numbers_are_of_the_present_versions() -> None:
    recorded = {name: entry["version"] for name, entry in KEPT["algorithms"].items()}
    assert recorded == {name: ALGORITHMS[name] for name in NAMES}, "python benchmarks/frozen.py --record --only NAME"
    families = {name: entry["version"] for name, entry in KEPT["families"].items()}
    assert families == {name: ENVIRONMENTS[name] for name in frozen.ENVIRONMENTS}
    everything = [case for entry in KEPT["algorithms"].values() for case in entry["float64"].values()]
    assert len(everything) == 4 * len(NAMES) and "failed" not in everything


@same_jax
def test_a_guard_computes_what_its_version_computed() -> None:
    entry = KEPT["algorithms"][frozen.GUARD]
    here = frozen.summary(frozen._updates(frozen.GUARD, None, "discrete", "shared"))
    check(frozen.GUARD, entry["version"], here, entry["float32"], 1e-4)
    family = KEPT["families"]["matrix/"]
    check("matrix/", family["version"], frozen.played("matrix/two_step"), family["tasks"]["matrix/two_step"], 1e-5)


@same_jax
@pytest.mark.slow
@pytest.mark.parametrize("family", frozen.ENVIRONMENTS)
def test_environments_do_what_their_versions_did(family: str) -> None:
    entry = KEPT["families"][family]
    for task, there in entry["tasks"].items():
        check(family, entry["version"], frozen.played(task), there, 1e-4)


@same_jax
@pytest.mark.slow
def test_algorithms_compute_what_their_versions_computed() -> None:
    here = frozen.numbers_of(ROOT, "float64", [], False)
    wrong = []
    for name, entry in KEPT["algorithms"].items():
        for label, there in entry["float64"].items():
            if found := frozen.differences(frozen.summary(here[label]), there, 1e-7):
                wrong.append(f"{label}: {RAISE.format(name=name, version=entry['version'])}: {found[0]}")
    assert not wrong, "\n".join(wrong)


def test_an_option_of_one_side_has_its_version() -> None:
    flags: dict[str, Any] = {"side1_normalise_inputs": False, "opponents": None, "hidden": [64]}
    for second in (False, True):
        found = versions("mappo+ippo", "mpe/simple_tag", flags | {"side2_normalise_inputs": second})
        assert {name: found[name] for name in OPTIONS if name in found} == (
            {"normalise_inputs": OPTIONS["normalise_inputs"]} if second else {}
        )
