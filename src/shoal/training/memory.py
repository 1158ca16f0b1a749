"""Estimates of a run's memory, and checks against the free memory before anything is allocated."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.bounds import bounds_text
from shoal.errors import InputError
from shoal.system.control_groups import free_memory
from shoal.types import Box, EnvSpec, PyTree

SHARE = 0.8
"""Largest share of an accelerator's free memory for replay buffers; rollouts and gradients need the rest."""

COPIES = 1
"""Copies of the buffers in host memory while a checkpoint is written or read. Leaves are written one by one, but the
writer needs nearly twice the size of a leaf, and a few leaves make up most of a buffer."""


def free(device: Any) -> int | None:
    """Free bytes of the memory of ``device``; None if unknown."""
    if device.platform == "cpu":
        try:
            lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        found += [] if (left := free_memory()) is None else [left]  # in a container
        return min(found, default=None)
    if device.process_index != jax.process_index():
        return None
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else None


def num_bytes(tree: PyTree) -> int:
    """Bytes of all arrays, from their shapes; PRNG keys are left out."""
    leaves = [x for x in jax.tree.leaves(tree) if not jnp.issubdtype(x.dtype, jax.dtypes.extended)]
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves)


def timestep_bytes(spec: EnvSpec) -> int:
    """Lower bound on the bytes of one environment's timestep in a trajectory: step, outcome and actions."""
    n, a = spec.num_agents, spec.action.width
    step = n * spec.obs_dim * (1 if spec.packed else 4) + 4 * (spec.state_dim + 2 * n) + n * (a + 1)
    return 2 * step + 4 * n * (a if isinstance(spec.action, Box) else 1)


def check_run(
    spec: EnvSpec, learner: PyTree, seeds: int, num_envs: int, length: int, sample_bytes: int, devices: np.ndarray
) -> None:
    """Check that parameters, rollouts, and samples from a replay buffer each fit in memory.

    Args:
        spec: the environment's.
        learner: shapes of all seeds' learners; each device of a seed holds a copy.
        seeds: S.
        num_envs: E of each seed, on all devices together.
        length: T.
        sample_bytes: of what one update draws from the replay buffers, for all seeds of one device.
        devices: [seed shards, environment shards], the run's devices; CPU devices share one memory.

    Raises:
        InputError: one of them exceeds the free memory.
    """
    there = free(devices.flat[0])
    shared = devices.flat[0].platform == "cpu"
    parameters = num_bytes(learner) * devices.shape[1] // (1 if shared else devices.size)
    _refuse(
        f"The parameters and optimisers of {seeds} seed{'s' if seeds > 1 else ''}",
        parameters,
        there,
        "seeds, or the networks' widths",
    )
    rolled = seeds * num_envs * length * timestep_bytes(spec) // (1 if shared else devices.size)
    _refuse(
        f"Rollouts of {bounds_text(seeds * num_envs)} environments over {bounds_text(length)} steps",
        rolled,
        there,
        "num_envs, rollout_length or seeds",
    )
    samples = sample_bytes * (devices.size if shared else 1)
    _refuse("The samples of one update", samples, there, "batch_size, gradient_steps or seeds")


def check_episode_memory(spec: EnvSpec, seeds: int, episodes: int, length: int, name: str) -> None:
    """Check that episodes played in parallel fit in memory: of each step its rewards, metrics and end, and of each
    environment a timestep. XLA drops the observations of the steps, which no result depends on.

    Args:
        spec: the environment's.
        seeds: S.
        episodes: episodes per seed.
        length: steps of the longest episode.
        name: the option that sets their number, for the message.

    Raises:
        InputError: they exceed the free memory.
    """
    what = f"{bounds_text(seeds * episodes)} episodes of up to {bounds_text(length)} steps"
    each = length * (4 * (spec.num_agents + len(spec.metrics)) + 1) + timestep_bytes(spec)
    _refuse(what, seeds * episodes * each, free(jax.local_devices()[0]), name)


def _refuse(what: str, needed: int, there: int | None, lower: str) -> None:
    if there is not None and needed > there:
        raise InputError(f"{what} would take {_size(needed)} of memory, but {_size(there)} are free; lower {lower}.")


def check_memory(per_device: int, devices: np.ndarray, timesteps: int, seeds: int) -> str:
    """Check that the replay buffers fit in memory; returns one sentence on their size.

    Args:
        per_device: bytes on each device.
        devices: the run's devices, an array of any shape; CPU devices share one memory.
        timesteps: that one seed's buffer holds.
        seeds: number of buffers.

    Raises:
        InputError: the buffers exceed :data:`SHARE` of an accelerator's free memory, or host memory cannot hold its
            buffers and the :data:`COPIES` of all buffers that a checkpoint needs.
    """
    shared, total = devices.flat[0].platform == "cpu", per_device * devices.size
    needed, there = total if shared else per_device, free(devices.flat[0])
    of = f"{seeds} seeds' replay buffers" if seeds > 1 else "The replay buffer"
    where = "" if shared or devices.size == 1 else " on each device"
    if not shared and there is not None and needed > SHARE * there:
        raise InputError(
            f"{of} of {timesteps:,} timesteps would take {_size(needed)}{where}, but {_size(there)} are free; "
            f"lower buffer_size or seeds."
        )
    host, saving = there if shared else free(jax.devices("cpu")[0]), total * (COPIES + shared)
    if host is not None and saving > host:
        raise InputError(
            f"{of} of {timesteps:,} timesteps would take {_size(needed)}{where}, and writing a checkpoint would take "
            f"{_size(saving)} of host memory, but {_size(host)} are free; lower buffer_size or seeds."
        )
    free_text = "" if there is None else f" of {_size(there)} free"
    return f"{of} of {timesteps:,} timesteps {'take' if seeds > 1 else 'takes'} {_size(needed)}{free_text}{where}."


def _size(count: int) -> str:
    """Bytes with a decimal unit, for example ``1.5 GB``."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
