"""Flags of XLA, of which the installed one may not know all: it kills a process that is given an unknown flag."""

import os
import subprocess
import sys

PROBE = "from jaxlib.xla_client import CompileOptions; CompileOptions()"
"""Reads the flags as XLA does at the first use of JAX, in a fifth of a second."""


def known(wanted: str, given: str = "") -> str:
    """``given`` and those of the ``wanted`` flags that the installed XLA knows, as a value of ``XLA_FLAGS``.

    Raises:
        RuntimeError: XLA takes these flags for another reason amiss, such as an unknown one among ``given``.
    """
    flags = wanted.split()
    while True:
        value = " ".join([*given.split(), *flags])
        env = os.environ | {"XLA_FLAGS": value}
        done = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return value
        rest = [flag for flag in flags if flag not in done.stderr.split()]
        if rest == flags:
            raise RuntimeError(f"XLA does not start with XLA_FLAGS={value!r}: {done.stderr}")
        flags = rest
