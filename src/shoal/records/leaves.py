"""Conversion of a pytree to a flat list of named host arrays and back, for checkpoints."""

from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal.errors import CheckpointError
from shoal.types import PyTree


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


def describe(tree: PyTree) -> list[Leaf]:
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
    narrowed = jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype
    return array if narrowed or isinstance(template, (np.ndarray, np.generic)) else jax.numpy.array(array)


def compare(stored: list[Leaf], wanted: list[Leaf], step: int) -> None:
    """Check that a checkpoint has the wanted leaves, which may have been renamed since; see :func:`_became`.

    Raises:
        CheckpointError: it does not; the message names the first leaf that differs.
    """
    for there, here in zip_longest(stored, wanted):
        if there == here:
            continue
        if there and here and there[1:] == here[1:] and _became(there.name, here.name):
            continue
        if here is None or (there is not None and there.name not in {leaf.name for leaf in wanted}):
            what = f"it contains {there.name!r} ({there}), which this run does not have"
        elif there is None or there.name != here.name:
            what = f"it lacks {here.name!r} ({here})"
        else:
            what = f"{here.name!r} is {there} in the checkpoint and {here} in this run"
        if any(leaf is not None and f"{leaf.name}/".startswith(ENVIRONMENT) for leaf in (there, here)):
            raise CheckpointError(
                f"The state of the environment has changed since the checkpoint of step {step} was made: {what}. Train "
                "again, or continue the run with the version of the environment that it was made with."
            )
        raise CheckpointError(f"The checkpoint of step {step} does not match this run: {what}.")


ENVIRONMENT = "rollout/env/"
"""Where the state of environments lies in that of a run."""
RENAMED = {"floor": "epsilon"}
"""Fields by the name that they had in earlier checkpoints."""


def _became(old: str, new: str) -> bool:
    """Whether two paths are equal except for renamed fields, and indices that became names or were removed.

    For example ``optimiser/0/count`` became ``optimiser/actor/count``, and ``critic/0/kernel`` ``critic/kernel``.
    """

    def fits(was: list[str], now: list[str]) -> bool:
        if not was or not now:
            return not now and all(part.isdigit() for part in was)
        same = was[0] == now[0] or (was[0].isdigit() and now[0].isidentifier())
        return (same and fits(was[1:], now[1:])) or (was[0].isdigit() and fits(was[1:], now))

    return fits([RENAMED.get(part, part) for part in old.split("/")], new.split("/"))
