"""A reward that becomes NaN stops the run; what was good before stays, can be used, and can be resumed."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import shoal
from shoal.errors import NonFiniteError
from shoal.runs.api import trainer_of
from shoal.storage import log
from shoal.storage.checkpoint import Checkpoints
from shoal.training import trainer
from support import trained

FLAGS: dict[str, Any] = trained.QUICK | {"seed": 3, "num_envs": 4, "steps": 30 * 4 * 8, "checkpoint_seconds": 0.0}
BROKEN = 10
"""Updates that are still finite: the reward becomes NaN after 80 steps."""


class Stopped(NamedTuple):
    folder: Path
    said: str


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Trained where there is one device only, in calls of a few updates each."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
        patch.setattr(jax, "local_device_count", lambda: 1)
        patch.setattr(trainer, "CALL_SECONDS", 0.0)  # after the first call of four, one update each
        with pytest.raises(NonFiniteError) as caught:
            shoal.train("mappo", "toys:poison", env={"after": 8 * BROKEN}, folder=folder, **FLAGS)
    return Stopped(folder, str(caught.value))


def test_the_error_names_the_metric_that_is_not_finite(stopped: Stopped) -> None:
    metric, _, rest = stopped.said.partition(" of seed ")
    assert metric in log.read_log(stopped.folder)[-1]
    assert rest.startswith(f"3 is nan after update {BROKEN + 1}; the checkpoint after update {BROKEN} is kept.")


def test_the_last_good_checkpoint_is_kept(stopped: Stopped) -> None:
    for name in ("checkpoints", "policy"):
        assert Checkpoints(stopped.folder / name).latest() == BROKEN
    assert [row["update"] for row in log.read_log(stopped.folder)] == list(range(1, BROKEN + 1))
    template = trainer_of(shoal.open_run(stopped.folder), False).program.template()
    state, _, _ = Checkpoints(stopped.folder / "checkpoints").restore(template)
    for path, leaf in jax.tree_util.tree_leaves_with_path((state.learner, state.rollout)):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)


def test_the_policy_before_the_error_acts(stopped: Stopped) -> None:
    for seed in (3, 4):
        assert shoal.load(stopped.folder, seed=seed).act([np.ones(1)])[0] in (0, 1)


def test_it_resumes_on_as_many_devices_as_it_had(stopped: Stopped) -> None:
    """Here are two; it goes on with one, to the same end."""
    with pytest.raises(NonFiniteError, match=f"3 is nan after update {BROKEN + 1}"):
        shoal.resume(stopped.folder, progress=False)
    assert Checkpoints(stopped.folder / "checkpoints").latest() == BROKEN
