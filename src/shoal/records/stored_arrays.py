"""The arrays of a checkpoint by name, without the tree that they are part of."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.errors import CheckpointError
from shoal.notices import Warn
from shoal.records.checkpoint import read_arrays, read_index
from shoal.records.leaves import Leaf
from shoal.records.step_folders import newest_sound


class StoredArrays(NamedTuple):
    """What a checkpoint holds; arrays are read from it by :func:`read`."""

    path: Path
    step: int
    leaves: dict[str, Leaf]
    parts: dict[str, tuple[int, int]]
    """Folders of arrays, each with the range of leaves that it holds."""


def newest(folder: Path, warn: Warn) -> StoredArrays:
    """The newest intact checkpoint in ``folder``; ``warn`` is called for each damaged one.

    Raises:
        CheckpointError: there is none.
    """
    path = newest_sound(folder, None, warn)
    index = read_index(path)
    leaves = [Leaf(*leaf) for leaf in index["leaves"]]
    if len({leaf.name for leaf in leaves}) < len(leaves):
        raise CheckpointError(f"The index of the checkpoint {path.name!r} is damaged.")
    return StoredArrays(path, index["step"], {leaf.name: leaf for leaf in leaves}, index["parts"])


def read(stored: StoredArrays, names: Collection[str]) -> dict[str, np.ndarray]:
    """Some arrays of a checkpoint, by name.

    Raises:
        CheckpointError: they cannot be read, or differ from the checkpoint's index.
    """
    order, found = list(stored.leaves.values()), {}
    for part, (start, stop) in stored.parts.items():
        if any(leaf.name in names for leaf in order[start:stop]):
            arrays = read_arrays(stored.path / part, order[start:stop])
            for leaf, array in zip(order[start:stop], arrays, strict=True):
                if leaf.name in names:
                    found[leaf.name] = np.zeros(leaf.shape, leaf.dtype) if array is None else array
    return found
