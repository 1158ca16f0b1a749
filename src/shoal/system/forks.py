"""Refuses to compute in a process that was forked from one in which JAX runs. Does not import JAX.

JAX computes in threads, which a forked process lacks, so that it would wait for ever.
"""

import os
import sys

from shoal.errors import InputError

_forked_from_jax = False


def _mark() -> None:
    global _forked_from_jax
    runs = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    _forked_from_jax = _forked_from_jax or (runs is not None and runs())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark)


def check_not_forked() -> None:
    """Check that this process, if it was forked, was so before JAX computed anything.

    Raises:
        InputError: it was forked from a process in which JAX runs.
    """
    if _forked_from_jax:
        raise InputError(
            "This process was forked from one in which JAX runs, and lacks its threads, so it would wait for ever: "
            'start it with multiprocessing.get_context("spawn"), or before JAX computes anything.'
        )
