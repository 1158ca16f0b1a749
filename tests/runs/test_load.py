"""Acting with a trained policy needs less than training: no SciPy, no libraries of pictures and figures."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from support.selection import quick
from support.trained import untrained

PROGRAM = """
import json, sys

sys.modules.update(dict.fromkeys(("scipy", "matplotlib", "PIL", "pandas", "onnx", "optuna", "tensorboardX", "ray")))

import numpy as np
import shoal

observations = np.random.default_rng(0).normal(size=(3, 18)).astype(np.float32)
team = shoal.load(sys.argv[1])
print(json.dumps([team.act(observations).tolist() for _ in range(3)]))
"""
"""A library that is None in ``sys.modules`` cannot be imported."""
SIZES: dict[str, Any] = {
    "steps": 24,
    "num_envs": 4,
    "rollout_length": 6,
    "seeds": 2,
    "hidden": (4,),
    "orthogonal": False,
    "eval_episodes": 0,
    "tensorboard": False,
    "progress": False,
    "devices": 1,
}
ON_POLICY: dict[str, Any] = {"epochs": 1, "minibatches": 1}
RUNS: dict[str, dict[str, Any]] = {
    "mappo": ON_POLICY,
    "happo": ON_POLICY | {"recurrent": 4, "chunk_length": 3},
    "seps": {"pretrain_updates": 2},
    "qmix": {"batch_size": 4, "buffer_size": 40, "learning_starts": 4},
}


@pytest.mark.parametrize("algorithm", quick(list(RUNS), "mappo"))
def test_a_policy_acts_without_the_libraries_of_training(
    algorithm: str, tmp_path: Path, unchecked_annotations: None
) -> None:
    with untrained() if algorithm == "mappo" else nullcontext():
        run = shoal.train(algorithm, "mpe/simple_spread", folder=tmp_path / "run", **SIZES, **RUNS[algorithm])
    team, observations = shoal.load(run.folder), np.random.default_rng(0).normal(size=(3, 18)).astype(np.float32)
    expected = [team.act(observations).tolist() for _ in range(3)]
    words = [sys.executable, "-P", "-c", PROGRAM, str(run.folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected
