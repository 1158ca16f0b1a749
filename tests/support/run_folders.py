"""Run folders that were never trained, for tests of comparisons."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import shoal
import toys
from shoal import algorithms
from shoal.environments.wrappers import wrap
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.storage import manifest
from shoal.storage.log import Log
from shoal.system.files import dumps
from shoal.training.settings import Settings
from shoal.trust.run_file import Described

STEPS = (48, 96, 144, 192)


def run(
    folder: Path,
    scores: Sequence[float | None],
    algorithm: str = "mappo",
    environment: str = "toys:busy",
    *,
    greedy: bool = True,
    steps: Sequence[int] = STEPS,
    env: dict[str, Any] | None = None,
    won: Sequence[float] | None = None,
    **flags: Any,
) -> Path:
    """A run folder that was never trained: every seed's curve rises in a line to its final score."""
    settings = override(Settings(seeds=len(scores), num_envs=4, rollout_length=12, steps=float(steps[-1])), flags)
    config = override(algorithms.get(algorithm).Config(), flags)
    spec = wrap(toys.busy(), settings.wrapping).spec
    folder.mkdir(parents=True)
    manifest.write_run_json(
        folder, Described(algorithm, environment, env or {}, True, settings, config, spec).as_json()
    )
    log = Log(folder, tensorboard=False)
    for step in steps:
        here = [None if x is None else x * step / steps[-1] for x in scores]
        rising = {"greedy/return": here} if greedy else {}
        log.write({"step": step, "return": [None if x is None else x - 1 for x in here], **rising})
    told: dict[str, Any] = {"per_seed": list(scores), "step": steps[-1], "episodes": 8, "greedy": True, "text": "t"}
    told |= _means(scores)
    told["metrics"] = {"won": _means(won or [0.5] * len(scores)) | {"per_seed": list(won or [0.5] * len(scores))}}
    (folder / "evaluation.json").write_text(dumps(told), encoding="utf-8")
    return folder


def _means(values: Sequence[float | None]) -> dict[str, float]:
    """The mean, and the range in the place of its interval."""
    known = [x for x in values if x is not None]
    return {"mean": sum(known) / len(known), "low": min(known), "high": max(known)} if known else {}


def refused(runs: Any, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        shoal.compare(runs, **options)
    assert "\n" not in str(error.value) and str(error.value).isprintable()
    return str(error.value)
