"""Checkpoints of a run: orbax stores the arrays, :mod:`~shoal.storage.step_folders` makes them survive a crash.

Arrays are stored flat, in the order of the tree's leaves, with a JSON index of each leaf's name, dtype and shape. The
tree structure comes from a template, so nothing is pickled. Leaves are written and read in parts, since a replay buffer
may fill most of the memory and saving must not copy all of it. This is the only file that imports orbax, and only when
arrays are read or written, since the import takes up to half a second.
"""

import logging
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from shoal.errors import CheckpointError, DamagedError, InputError
from shoal.security import reading
from shoal.storage.manifest import check_same
from shoal.storage.step_folders import (
    commit,
    committed_steps,
    drop_after,
    newest_file,
    newest_sound,
    set_aside_after,
)
from shoal.system import notices
from shoal.system.files import dumps, from_json
from shoal.system.notices import Warn
from shoal.types import PyTree


class BuffersError(CheckpointError):
    """The replay buffers of a checkpoint differ from those of the run."""


# Conversion of a pytree to a flat list of named host arrays and back, for checkpoints.


class Leaf(NamedTuple):
    """Description of one leaf in a checkpoint."""

    name: str
    """Path in the tree, for example ``learner/policy/0/kernel``."""
    dtype: str
    """NumPy's name, or JAX's for typed PRNG keys, for example ``key<fry>``."""
    shape: list[int]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def _is_key(dtype: Any) -> bool:
    return jax.numpy.issubdtype(dtype, jax.dtypes.prng_key)


@cache
def _implementations() -> dict[str, str]:
    """JAX's PRNG implementations, by the name of their keys' dtype."""
    known = ("threefry2x32", "rbg", "unsafe_rbg")
    return {str(jax.eval_shape(lambda name=name: jax.random.key(0, impl=name)).dtype): name for name in known}


def leaves_of(tree: PyTree) -> list[Leaf]:
    """The leaves of ``tree`` (arrays, Python scalars or ``ShapeDtypeStruct``) in the order of ``jax.tree.leaves``."""
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not hasattr(leaf, "dtype"):
            leaf = np.asarray(leaf)
        name = jax.tree_util.keystr(path, simple=True, separator="/") or "the only leaf"
        found.append(Leaf(name, str(leaf.dtype), list(leaf.shape)))
    return found


def to_host(tree: PyTree) -> list[np.ndarray]:
    """Every leaf as a NumPy array, gathered from all local devices; a PRNG key as its ``uint32`` words."""
    raw = [jax.random.key_data(x) if hasattr(x, "dtype") and _is_key(x.dtype) else x for x in jax.tree.leaves(tree)]
    return [np.asarray(x) for x in jax.device_get(raw)]


def from_host(arrays: list[np.ndarray | None], leaves: list[Leaf], template: PyTree) -> PyTree:
    """The tree of ``template`` filled with ``arrays``, on the default device, or NumPy where the template is NumPy.

    None stands for an empty array.
    """
    like, structure = jax.tree.flatten(template)
    return structure.unflatten(_place(a, leaf, t) for a, leaf, t in zip(arrays, leaves, like, strict=True))


def _place(array: np.ndarray | None, leaf: Leaf, template: Any) -> Any:
    if leaf.dtype.startswith("key<"):
        if array is None:
            return jax.random.split(jax.random.key(0, impl=_implementations()[leaf.dtype]), tuple(leaf.shape))
        return jax.random.wrap_key_data(jax.numpy.array(array), impl=_implementations()[leaf.dtype])
    if array is None:
        array = np.zeros(leaf.shape, leaf.dtype)
    if isinstance(template, (bool, int, float)):
        return array.item()
    # Without 64-bit mode JAX would narrow a 64-bit array, so it stays a NumPy array.
    if leaf.shape != (wanted := list(np.shape(template))):  # see `_for_each_agent`
        array = np.broadcast_to(array[..., None, :], wanted).copy()
    narrowed = jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype
    return array if narrowed or isinstance(template, (np.ndarray, np.generic)) else jax.numpy.array(array)


def check_leaves(stored: list[Leaf], wanted: list[Leaf], step: int) -> None:
    """Check that a checkpoint has the wanted leaves, which may have been renamed since; see :func:`_became`. Statistics
    of the observations of all agents stand for those of each agent.

    Raises:
        CheckpointError: it does not; the message names the first leaf that differs. It is a :class:`BuffersError` if
            that is one of replay buffers.
    """
    for there, here in zip_longest(stored, wanted):
        if there == here:
            continue
        same = there and here and (there[1:] == here[1:] or _for_each_agent(there, here))
        if same and _became(there.name, here.name):
            continue
        if here is None or (there is not None and there.name not in {leaf.name for leaf in wanted}):
            what = f"it contains {there.name!r} ({there}), which this run does not have"
            if "/inputs/obs/" in f"/{there.name}":
                what += " (normalise_inputs now counts the entities of a set together: train again)"
        elif there is None or there.name != here.name:
            what = f"it lacks {here.name!r} ({here})"
        else:
            what = f"{here.name!r} is {there} in the checkpoint and {here} in this run"
        if _inside(ENVIRONMENT, there, here):
            raise CheckpointError(
                f"The state of the environment has changed since the checkpoint of step {step} was made: {what}. Train "
                "again, or continue the run with the version of the environment that it was made with."
            )
        kind = BuffersError if _inside(FEED, there, here) else CheckpointError
        raise kind(f"The checkpoint of step {step} does not match this run: {what}.")


def _for_each_agent(there: Leaf, here: Leaf) -> bool:
    """Whether a leaf has statistics of the observations of all agents, where those of each agent are wanted now."""
    inside = f"/{here.name}".rpartition("/")[0].endswith("/inputs/obs")
    return inside and there.dtype == here.dtype and there.shape == here.shape[:-2] + here.shape[-1:]


def _inside(part: str, *leaves: Leaf | None) -> bool:
    return any(leaf is not None and f"{leaf.name}/".startswith(part) for leaf in leaves)


ENVIRONMENT, FEED = "rollout/env/", "feed/"
"""Where the state of environments and replay buffers lie in that of a run."""
RENAMED = {"floor": "epsilon", "utilities": "actor", "mixer": "critic", "guests": "frozen_policies"}
"""Fields by the name that they had in earlier checkpoints."""


def _stored_part(template: PyTree, stored: list[Leaf]) -> tuple[PyTree, Callable[[Any], PyTree]]:
    """A template's part that a checkpoint can hold, and a function from the leaves of that part to the whole.

    Earlier checkpoints lack the metrics of the last step of delayed actors, which begin at 0.
    """
    like, structure = jax.tree.flatten(template)
    noted = ["noted" in leaf.name.split("/") for leaf in leaves_of(template)]
    if not any(noted) or any("noted" in leaf.name.split("/") for leaf in stored):
        return template, structure.unflatten
    part = structure.unflatten([None if new else leaf for leaf, new in zip(like, noted, strict=True)])

    def whole(leaves: Any) -> PyTree:
        found = iter(leaves)
        zeros = [
            jax.numpy.zeros(leaf.shape, leaf.dtype) if new else None for leaf, new in zip(like, noted, strict=True)
        ]
        return structure.unflatten(next(found) if zero is None else zero for zero in zeros)

    return part, whole


def _became(old: str, new: str) -> bool:
    """Whether two paths are equal except for renamed fields, and indices that became names or were removed.

    For example ``optimiser/0/count`` became ``optimiser/actor/count``, and ``critic/0/kernel`` ``critic/kernel``.
    """

    def fits(was: list[str], now: list[str]) -> bool:
        if not was or not now:
            return not now and all(part.isdigit() for part in was)
        same = was[0] == now[0] or (was[0].isdigit() and now[0].isidentifier())
        return (same and fits(was[1:], now[1:])) or (was[0].isdigit() and fits(was[1:], now))

    return fits(_renamed(old).split("/"), new.split("/"))


def _renamed(path: str) -> str:
    """The path with today's names of its fields."""
    return "/".join(RENAMED.get(part, part) for part in path.split("/"))


# Checkpoints.


PART = 2**28
"""Bytes of leaves per part; a larger leaf is a part of its own."""
MAX_INDEX_BYTES = 64 * reading.MIB
"""Largest size in bytes of an index file."""
_PART_NAME = re.compile(r"arrays(-\d+)?")


class Checkpoints:
    """The newest ``keep`` checkpoints of one run in ``folder``, which the first save creates; for one writer.

    Each checkpoint records ``run``, the run's configuration (:func:`shoal.storage.manifest.identity`), and is
    restored only under the same one; None disables the comparison. ``guard`` is called before every write and raises if
    the folder is no longer the run's.
    """

    def __init__(
        self,
        folder: Path,
        keep: int = 3,
        run: Mapping[str, Any] | None = None,
        guard: Callable[[], None] = lambda: None,
    ):
        if keep < 1:
            raise InputError(f"keep, the number of checkpoints to keep, must be at least 1, not {keep}.")
        self.folder, self.keep, self.run, self.guard = Path(folder).absolute(), keep, run, guard

    def save(
        self,
        step: int,
        state: PyTree,
        meta: dict,
        files: Mapping[str, bytes] = MappingProxyType({}),
        read: Callable[[list[Any]], list[np.ndarray]] = to_host,
    ) -> None:
        """Store ``state`` (arrays on any local devices), ``meta`` (JSON values) and other files, by name.

        ``read`` copies leaves of ``state`` to host memory, where some of their parts are on other hosts.

        Everything is flushed to the disk when this returns. If the process is killed while saving, the earlier
        checkpoints or the new one remain. Later steps are removed: they were saved before the run resumed from an
        earlier step.

        Raises:
            InputError: ``meta`` has no JSON form.
            CheckpointError: the disk is full or the folder cannot be written; earlier checkpoints are untouched.
        """
        leaves, flat = leaves_of(state), jax.tree.leaves(state)
        parts = _parts(leaves)
        index = {
            "step": int(step),
            "leaves": [list(leaf) for leaf in leaves],
            "parts": parts,
            "meta": meta,
            "run": self.run,
        }
        text = dumps(index, "checkpoint", indent=1)
        self.guard()
        with commit(self.folder, int(step), self.keep) as work:
            for name, (start, stop) in parts.items():
                _write_arrays(work / name, read(flat[start:stop]))
            for name, data in {**files, "index.json": text.encode()}.items():
                (work / name).write_bytes(data)

    def restore(
        self,
        template: PyTree,
        step: int | None = None,
        warn: Warn = notices.warn,
        rows: Int[np.ndarray, " R"] | None = None,
    ) -> tuple[PyTree, dict, int]:
        """The newest intact checkpoint as ``(state, meta, step)``, bit for bit as it was saved.

        Arrays are placed unsharded on the default device, or are NumPy arrays if the template's are or JAX does not
        support the dtype.

        Args:
            template: a tree like the one to return, of arrays or ``jax.ShapeDtypeStruct``.
            step: restore exactly this step.
            warn: called with one sentence for each damaged checkpoint that is skipped.
            rows: the rows of every array to return, in this order; all by default. The others are dropped part by part,
                so that all rows need not fit in memory.

        Raises:
            CheckpointError: none is intact, it was saved under another configuration, or the tree differs from the
                template; the message names the first setting or leaf that differs.
        """
        path = newest_sound(self.folder, step, warn)
        index = read_index(path)
        if self.run is not None:
            check_same(from_json(index.get("run")), self.run, index["step"])
        leaves = stored = [Leaf(*leaf) for leaf in index["leaves"]]
        if rows is not None:
            leaves = [leaf._replace(shape=[len(rows), *leaf.shape[1:]]) for leaf in stored]
        like, whole = _stored_part(template, leaves)
        check_leaves(leaves, leaves_of(like), index["step"])
        like = jax.tree.leaves(like)
        state: list = []
        for name, (start, stop) in index["parts"].items():
            arrays = read_arrays(path / name, stored[start:stop])
            if rows is not None:
                arrays = [None if array is None else array[rows] for array in arrays]
            state += from_host(arrays, leaves[start:stop], like[start:stop])
            del arrays  # before the next ones are read
        return whole(state), from_json(index["meta"]), index["step"]

    def check_run(self, step: int) -> None:
        """Check that a checkpoint was saved under this run's configuration.

        Raises:
            CheckpointError: it was not, or is damaged; the message names the first setting that differs.
        """
        if self.run is not None:
            index = read_index(newest_sound(self.folder, step, lambda sentence: None))
            check_same(from_json(index.get("run")), self.run, index["step"])

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, intact or damaged, in ascending order."""
        return sorted({step for step, _, _ in committed_steps(self.folder)})

    def latest(self) -> int | None:
        """The newest of :meth:`steps`."""
        return max(self.steps(), default=None)

    def file(self, name: str, step: int | None = None) -> bytes | None:
        """The file ``name`` of the newest checkpoint (or of ``step``) in which it is intact; None if there is none."""
        return newest_file(self.folder, name, step)

    def recorded(self, step: int, *keys: str) -> Any:
        """An entry, by its path, of the configuration that the checkpoint of ``step`` recorded; None without one."""
        found = from_json(reading.parse_json(self.file("index.json", step) or b"null"))
        for key in ("run", "config", *keys):
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def drop_after(self, step: int) -> None:
        """Remove the checkpoints after ``step``, from which the run resumes.

        Raises:
            CheckpointError: they cannot be removed.
        """
        self.guard()
        drop_after(self.folder, step)

    def set_aside_after(self, step: int) -> None:
        """Rename the checkpoints after ``step``, from which the run goes on since they are damaged.

        Raises:
            CheckpointError: they cannot be renamed.
        """
        self.guard()
        set_aside_after(self.folder, step)

    def load_meta(self, step: int | None = None, warn: Warn = lambda sentence: None) -> dict:
        """The ``meta`` of the checkpoint that :meth:`restore` would choose; by default without warnings."""
        return from_json(read_index(newest_sound(self.folder, step, warn))["meta"])


def _parts(leaves: list[Leaf]) -> dict[str, tuple[int, int]]:
    """Folder names, each with the range (start, stop) of the leaves that it holds."""
    sizes = [
        math.prod(leaf.shape) * (8 if leaf.dtype.startswith("key<") else np.dtype(leaf.dtype).itemsize)
        for leaf in leaves
    ]
    starts, held = [0], 0
    for i, size in enumerate(sizes):
        if held and held + size > PART:
            starts.append(i)
            held = 0
        held += size
    names = ["arrays", *(f"arrays-{k}" for k in range(1, len(starts)))]
    return dict(zip(names, pairwise([*starts, len(leaves)]), strict=True))


def read_index(path: Path) -> dict:
    """The index of one checkpoint.

    Raises:
        CheckpointError: it is not of the form that :meth:`Checkpoints.save` writes.
    """
    try:
        index = reading.parse_json(reading.read_bytes(path / "index.json", MAX_INDEX_BYTES))
        leaves, meta = index["leaves"], index["meta"]
        parts = index.setdefault("parts", {"arrays": [0, len(leaves)]})
        sound = isinstance(meta, dict) and type(index["step"]) is int
        for name, dtype, shape in leaves:
            sound &= isinstance(name, str) and isinstance(dtype, str) and all(type(n) is int and n >= 0 for n in shape)
        at = 0
        for name, (start, stop) in parts.items():  # a name could lead out of the checkpoint
            sound &= bool(_PART_NAME.fullmatch(name)) and start == at <= stop
            at = stop
        if not sound or at != len(leaves):
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedError(f"The index of the checkpoint {path.name!r} is damaged.") from error
    return index


@contextmanager
def _orbax() -> Iterator[Any]:
    """Orbax, whose logging inside the block leaves the root logger as it is."""
    handler = logging.NullHandler()  # without any, absl calls basicConfig, after which a user's own call has no effect
    logging.root.addHandler(handler)
    try:
        import orbax.checkpoint

        yield orbax.checkpoint
    finally:
        logging.root.removeHandler(handler)


def _alone(ocp: Any) -> Any:
    """An Orbax checkpointer that does not wait for other processes, where JAX runs on several hosts."""
    here = jax.process_index()
    options = ocp.options.MultiprocessingOptions(primary_host=here, active_processes={here}, barrier_sync_key_prefix="")
    return ocp.Checkpointer(
        ocp.PyTreeCheckpointHandler(multiprocessing_options=options), multiprocessing_options=options
    )


def _write_arrays(folder: Path, arrays: list[np.ndarray]) -> None:
    # Orbax does not support arrays without elements.
    tree = {str(i): array for i, array in enumerate(arrays) if array.size}
    if tree:
        log, unraisable = logging.getLogger("absl"), sys.unraisablehook
        was, log.disabled = log.disabled, True  # errors that it logs at length are raised as well
        sys.unraisablehook = partial(_unraisable, unraisable)
        try:
            with _orbax() as ocp, _alone(ocp) as checkpointer:
                checkpointer.save(folder, args=ocp.args.PyTreeSave(tree))
            sys.unraisablehook = unraisable  # but not after a failure, when some arrays may still be in flight
        except ValueError as error:
            if not (code := re.search(r"os_error_code='(\d+)'", str(error))):
                raise
            raise OSError(int(code[1]), os.strerror(int(code[1]))) from error
        finally:
            log.disabled = was
        (folder / "commit_success.txt").unlink(missing_ok=True)  # names the absolute path; only object stores need it


def _unraisable(report: Callable[[Any], object], found: Any) -> None:
    """Report an unraisable exception, except for an array that completes after another one failed to be written."""
    if not (isinstance(found.exc_value, RuntimeError) and str(found.exc_value) == "Event loop is closed"):
        report(found)


def read_arrays(folder: Path, leaves: list[Leaf]) -> list[np.ndarray | None]:
    """The arrays of one part.

    Raises:
        CheckpointError: they differ from the index.
    """
    names = [str(i) for i, leaf in enumerate(leaves) if 0 not in leaf.shape]
    arrays: dict[str, np.ndarray] = {}
    if names:
        try:
            with _orbax() as ocp, _alone(ocp) as checkpointer:
                wanted = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
                _check_stored(checkpointer.metadata(folder), {name: leaves[int(name)] for name in names})
                arrays = checkpointer.restore(folder, args=ocp.args.PyTreeRestore(item=wanted, restore_args=wanted))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"The arrays of the checkpoint {folder.parent.name!r} cannot be read.") from error
    return [arrays.get(str(i)) for i in range(len(leaves))]


def _check_stored(metadata: Any, leaves: Mapping[str, Leaf]) -> None:
    """Compare the shapes of arrays and of their stored chunks with the index, before any array is read."""
    stored = metadata.item_metadata.tree
    for name, leaf in leaves.items():
        shape, chunk = tuple(stored[name].shape), tuple(stored[name].storage.chunk_shape)
        words = shape[len(leaf.shape) :]  # of a PRNG key
        extra = 1 if leaf.dtype.startswith("key<") else 0
        if shape[: len(leaf.shape)] != tuple(leaf.shape) or len(words) != extra or max(words, default=0) > 8:
            raise ValueError(f"{leaf.name} is stored as {shape}.")
        if math.prod(chunk) > max(math.prod(shape), 1):
            raise ValueError(f"{leaf.name} is stored in chunks of {chunk}.")


# A part of the newest checkpoint: its other arrays, such as a replay buffer, are not kept in memory.


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
    leaves = [Leaf(*leaf) for leaf in index["leaves"]]
    like, whole = _stored_part(template, leaves)
    wanted = [leaf._replace(name=f"{name}/{leaf.name}") for leaf in leaves_of(like)]
    names = {leaf.name for leaf in wanted}
    chosen = [i for i, leaf in enumerate(leaves) if leaf.name in names or _renamed(leaf.name) in names]
    check_leaves([leaves[i] for i in chosen], wanted, step)
    arrays = {}
    for part, (start, stop) in index["parts"].items():
        if inside := [i for i in chosen if start <= i < stop]:
            read = read_arrays(path / part, leaves[start:stop])
            arrays |= {i: read[i - start] for i in inside}
    return whole(from_host([arrays[i] for i in chosen], [leaves[i] for i in chosen], jax.tree.leaves(like)))


# The arrays of a checkpoint by name, without the tree that they are part of.


class StoredArrays(NamedTuple):
    """What a checkpoint holds; arrays are read from it by :func:`read_named_arrays`."""

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


def read_named_arrays(stored: StoredArrays, names: Collection[str]) -> dict[str, np.ndarray]:
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
