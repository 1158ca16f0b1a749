"""What has to work with all supported versions: train, save, resume exactly, evaluate, draw, load and act.

``make test-floor`` runs this file with the lowest versions that ``pyproject.toml`` allows, and ``make test-install``
with the built package and MAPPO alone, outside the checkout and with today's versions. The tests' own requirements are
installed in neither. Warnings that Shoal's own code causes are errors.
"""

import importlib.metadata
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import shoal

SIZES: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 25,
    "seeds": 2,
    "schedule_steps": 400,
    "eval_episodes": 4,
    "progress": False,
}
RUNS: dict[str, dict[str, Any]] = {
    "mappo": {"minibatches": 1},
    "happo": {"minibatches": 1, "recurrent": 8, "chunk_length": 5},
    "qmix": {"batch_size": 8, "buffer_size": 200, "learning_starts": 50},
}
"""An on-policy algorithm, one with recurrent nets that updates agents in turn, and one with a replay buffer."""


def whole_and_resumed(folder: Path, algorithm: str) -> tuple[shoal.Run, shoal.Run]:
    """The same run without and with an interruption."""
    flags = SIZES | RUNS[algorithm]
    whole = shoal.train(algorithm, "mpe/simple_spread", steps=400, folder=folder / "whole", **flags)
    shoal.train(algorithm, "mpe/simple_spread", steps=200, folder=folder / "resumed", **flags)
    return whole, shoal.resume(folder / "resumed", steps=400, progress=False)


def main(algorithms: Sequence[str]) -> None:
    """Raise an AssertionError for what does not hold; print the versions and what was run."""
    warnings.filterwarnings("error", module=r"shoal(\.|$)")
    names = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "scipy", "matplotlib")
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in names))
    with tempfile.TemporaryDirectory() as temporary:
        for algorithm in algorithms:
            whole, resumed = whole_and_resumed(Path(temporary) / algorithm, algorithm)
            assert resumed.last_step == whole.last_step == 400
            teams = [shoal.load(run.folder) for run in (whole, resumed)]
            observations = np.random.default_rng(0).normal(size=(3, teams[0].spec.obs_dim)).astype(np.float32)
            first, second = (np.asarray(team.act(observations)) for team in teams)
            assert first.shape == (3,) and (first == second).all(), (first, second)
            scores = [np.asarray(run.evaluate(episodes=4).scores) for run in (whole, resumed)]
            assert np.isfinite(scores[0]).all() and (scores[0] == scores[1]).all(), scores
            assert whole.curves().stat().st_size and shoal.report(whole).stat().st_size
            print(f"{algorithm}: trained, resumed, evaluated, drawn and loaded on {jax.devices()[0].platform}")


if __name__ == "__main__":
    main(sys.argv[1:] or [*RUNS])
