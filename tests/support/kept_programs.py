"""Compiled programs on disk that two workers of pytest-xdist, and processes of tests, share.

JAX writes an entry in place, so that another process can read half of it, which is a warning and therefore an error
here. Entries of small programs are many, and two workers that start together compile the same ones.
"""

import os
import threading

from jax._src import lru_cache


def install() -> None:
    """Let this process write each entry under another name and rename it."""
    suffix, kept = getattr(lru_cache, "_CACHE_SUFFIX", None), getattr(lru_cache, "LRUCache", None)
    if suffix is None or kept is None:
        return

    def put(self: lru_cache.LRUCache, key: str, value: bytes) -> None:
        path = self.path / f"{key}{suffix}"
        if not path.exists():
            written = self.path / f"{key}.{os.getpid()}.{threading.get_ident()}"
            written.write_bytes(value)
            written.replace(path)

    kept.put = put
