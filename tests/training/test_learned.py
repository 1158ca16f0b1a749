"""Short runs learn as much as recorded ones, with every supported version of JAX."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from learned import RECORDED, RUNS, SEEDS

KEPT = json.loads(RECORDED.read_text("utf-8"))


def interval(algorithm: str) -> tuple[float, float]:
    """Where the median of four new seeds lies: within four standard errors of the recorded seeds' median.

    A median, since single seeds of QMIX and MAT fail. Its error is that of normal scores with the same deviation,
    and a tenth of what is learned is allowed for where the deviation is 0.
    """
    known = np.concatenate([record["scores"][algorithm] for record in KEPT["records"]])
    middle, learned = np.median(known), abs(np.median(known) - np.median(KEPT["untrained"][algorithm]))
    deviation = 1.4826 * np.median(np.abs(known - middle))
    half = max(4 * deviation * (np.pi / 2 * (1 / SEEDS + 1 / len(known))) ** 0.5, learned / 10)
    return float(middle - half), float(middle + half)


@pytest.mark.parametrize("algorithm", RUNS)
def test_the_interval_leaves_out_what_is_not_trained(algorithm: str) -> None:
    assert np.median(KEPT["untrained"][algorithm]) < interval(algorithm)[0]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", RUNS)
def test_a_run_scores_as_recorded(algorithm: str) -> None:
    """In a process that compiles with the usual optimisations."""
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    words = [sys.executable, str(Path(__file__).with_name("learned.py")), algorithm]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    low, high = interval(algorithm)
    assert low <= np.median(json.loads(done.stdout)) <= high, (algorithm, done.stdout, (low, high))
