"""The number of cores that this process may use. No JAX."""

import os
import re

VARIABLE = "SHOAL_CORES"
"""Environment variable: the largest number of cores to use, for a process that shares a machine with others."""


def cores() -> int:
    """Cores that this process may use: fewer than the machine's in a container, a batch job, or a task of a cluster."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get(VARIABLE, "")
    return min(here, int(limit)) if re.fullmatch("0*[1-9][0-9]{0,8}", limit) else here
