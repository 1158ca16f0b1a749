"""A part of the newest checkpoint: its other arrays, such as a replay buffer, are not kept in memory."""

import jax

from shoal.records.checkpoint import Checkpoints, read_arrays, read_index
from shoal.records.configuration import check_same
from shoal.records.files import from_json
from shoal.records.leaves import Leaf, compare, describe, from_host
from shoal.records.step_folders import newest_sound
from shoal.types import PyTree


def restore_part(checkpoints: Checkpoints, name: str, template: PyTree, step: int) -> PyTree:
    """The leaves of one branch of a saved tree.

    Args:
        checkpoints: the run's checkpoints.
        name: the branch's name, for example ``learner``.
        template: a tree of arrays or ``jax.ShapeDtypeStruct``, with some or all of the branch's leaves.
        step: the checkpoint's step.

    Raises:
        CheckpointError: there is no intact checkpoint of this step, it was saved under another configuration, or its
            leaves differ from the template's.
    """
    path = newest_sound(checkpoints.folder, step, lambda sentence: None)
    index = read_index(path)
    if checkpoints.run is not None:
        check_same(from_json(index.get("run")), checkpoints.run, index["step"])
    wanted = [leaf._replace(name=f"{name}/{leaf.name}") for leaf in describe(template)]
    leaves, names = [Leaf(*leaf) for leaf in index["leaves"]], {leaf.name for leaf in wanted}
    chosen = [i for i, leaf in enumerate(leaves) if leaf.name in names]
    compare([leaves[i] for i in chosen], wanted, step)
    arrays = {}
    for part, (start, stop) in index["parts"].items():
        if inside := [i for i in chosen if start <= i < stop]:
            read = read_arrays(path / part, leaves[start:stop])
            arrays |= {i: read[i - start] for i in inside}
    like, structure = jax.tree.flatten(template)
    found = from_host([arrays[i] for i in chosen], [leaves[i] for i in chosen], like)
    return structure.unflatten(found)
