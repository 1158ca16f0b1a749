"""What tests that train share: quick compilation, and programs kept on the disk for this session and its subprocesses.

Compilation is quick where this is imported before JAX starts its devices, that is at the top of the first test files.
"""

import atexit
import os
import tempfile
from typing import Any

import jax

_FOLDER = tempfile.TemporaryDirectory(prefix="shoal-tests-")
atexit.register(_FOLDER.cleanup)

if not jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_compilation_cache_dir", _FOLDER.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _started() -> bool:
    """Whether JAX has started its devices, after which neither their number nor XLA's flags can change."""
    devices = jax.config.jax_num_cpu_devices  # pyright: ignore[reportAttributeAccessIssue]
    try:
        jax.config.update("jax_num_cpu_devices", devices + 1)
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", devices)
    return False


# What is compiled here runs for milliseconds, and compiling without optimisation takes half the time.
_FAST = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if not _started():
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FAST}".strip()

UPDATES = 400
"""Of the run that is interrupted in many ways."""

RECURRENT: dict[str, Any] = {
    "seeds": 3,
    "seed": 5,
    "num_envs": 4,
    "rollout_length": 12,
    "steps": UPDATES * 48,
    "rows": 30,  # a row is the mean of 13 updates, which no call's length is a multiple of
    "hidden": (8,),
    "recurrent": 4,
    "chunk_length": 4,
    "epochs": 2,
    "minibatches": 3,
    "lr_final": 0.1,
    "normalise_inputs": True,
    "target_entropy": 0.6,
    "tensorboard": False,
    "eval_episodes": 0,
}
"""Three seeds, E cut over two devices, and every kind of thing that has to be saved."""


QUICK: dict[str, Any] = {
    "num_envs": 16,
    "rollout_length": 8,
    "steps": 25 * 16 * 8,
    "hidden": (16,),
    "learning_rate": 1e-2,
    "epochs": 4,
    "seeds": 2,
    "rows": 1000,
    "eval_episodes": 0,
    "tensorboard": False,
    "progress": False,
}
"""25 updates, enough for a small game; a seed per device."""


def cache_environment() -> dict[str, str]:
    """Environment variables with which a subprocess finds the compiled programs."""
    return {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,  # pyright: ignore[reportAttributeAccessIssue]
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_NUM_CPU_DEVICES": "2",
    }
