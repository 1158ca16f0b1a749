"""Five short runs whose scores are compared with recorded ones: ``make test-learning``.

    python tests/training/learned.py NAME [SEED]         # the score of each of four seeds from SEED on, as JSON
    python tests/training/learned.py --record SEED       # add the scores of all runs to learned.json

A version of JAX changes them by rounding and by its random numbers. ``untrained`` in the file are the scores of the
same policies after one update.
"""

import importlib.metadata
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_suffix(".json")

SEEDS = 4
RUNS: dict[str, dict[str, Any]] = {
    "mappo": {"environment": "mpe/simple_spread", "steps": 2e5},
    "qmix": {
        "environment": "skirmish/3m",
        "steps": 1.5e5,
        "recurrent": None,
        "hidden": (64,),
        "num_envs": 16,
        "rollout_length": 16,
        "n_step": 5,  # with one step about every third seed of 3m stays at 0
        "sequence_length": 8,
        "batch_size": 32,
        "buffer_size": 2e4,
        "gradient_steps": 8,
        "epsilon_fraction": 0.4,
        "target_interval": 50,
    },
    "happo": {"environment": "mpe/simple_speaker_listener", "steps": 2e5},
    "maddpg": {"environment": "mpe/simple_spread", "steps": 1.5e5},
    "mat": {
        "environment": "matrix/climbing",
        "env": {"horizon": 1},
        "steps": 8e3,
        "num_envs": 32,
        "rollout_length": 1,
        "epochs": 4,
        "minibatches": 1,
        "learning_rate": 5e-3,
        "entropy_coef": 0.1,
        "entropy_final": 0.0,
    },
}
"""By algorithm: a call of :func:`shoal.train`. What is not named has the preset's value."""


def scores(algorithm: str, seed: int = 0, **changes: Any) -> list[float]:
    """The greedy score of each of :data:`SEEDS` seeds from ``seed`` on."""
    import shoal

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder  # own runs are noted there
        flags = {"seeds": SEEDS, "seed": seed, "eval_episodes": 0, "progress": False, "folder": Path(folder) / "run"}
        run = shoal.train(algorithm, **(flags | RUNS[algorithm] | changes))
        return [round(float(score), 3) for score in run.evaluate(episodes=64, greedy=True).per_seed]


def record(seed: int) -> None:
    """Add the scores of all runs, with versions and processor."""
    from shoal.storage.manifest import describe_machine

    found = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {"untrained": {}, "records": []}
    for algorithm in RUNS:
        found["untrained"].setdefault(algorithm, scores(algorithm, seed, steps=1))
    versions = {"python": platform.python_version()} | {
        x: importlib.metadata.version(x) for x in ("jax", "flax", "optax")
    }
    processor = describe_machine()["hardware"]["processor"]
    each = {algorithm: scores(algorithm, seed) for algorithm in RUNS}
    found["records"].append({"seeds": [seed, seed + SEEDS - 1], **versions, "processor": processor, "scores": each})
    RECORDED.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(int(sys.argv[2]))
    else:
        print(json.dumps(scores(sys.argv[1], *map(int, sys.argv[2:]))))
