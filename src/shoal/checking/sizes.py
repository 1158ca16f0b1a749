"""The sizes of a run that a check suggests: training's defaults, and fewer steps for a slow environment."""

import math

from shoal.presets import preset
from shoal.presets.sizes import STEPS, sizes_for
from shoal.rollouts.pool import spread
from shoal.spec import EnvSpec

PATIENCE = 600.0
"""Duration of a suggested first run in seconds of stepping."""


def suggested(name: str, spec: EnvSpec, rate: float, longest: int | None = None) -> list[tuple[str, str]]:
    """Rows of the table.

    Args:
        name: the environment's.
        spec: the environment's.
        rate: steps per second of one process; 0 for a device environment.
        longest: steps of the longest episode played, if all of them ended.
    """
    usual = sizes_for(spec.horizon) | preset("mappo", name)
    sizes = sizes_for(min(spec.horizon, longest or spec.horizon)) | preset("mappo", name)
    envs, length = sizes["num_envs"], sizes["rollout_length"]
    if sizes == usual:
        why = "mappo's defaults here"
    else:
        why = f"all episodes ended by step {longest}; the default for the horizon is {usual['rollout_length']}"
    rows = [("sizes", f"--num-envs {envs} --rollout-length {length} ({why}): {envs * length:,} steps per update")]
    steps = _floor(rate * spread(envs, None) * PATIENCE)
    if rate and steps < preset("mappo", name).get("steps", STEPS):
        updates = steps / (envs * length)
        flag = f"--steps {steps:g}".replace("e+0", "e")
        duration = f"{updates:,.0f} updates, about {PATIENCE / 60:.0f} minutes of stepping at this speed"
        rows.append(("", f"{flag}: {duration}"))
    return rows


def _floor(x: float) -> float:
    """``x`` rounded down to one significant digit, at least 1."""
    if x < 1:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(x))
    return math.floor(x / unit) * unit
