"""Checks of what replaced parts of an algorithm, and algorithms of users, return; made when JAX traces them.

Without them a wrong result is an error inside Shoal or JAX, or none: an array with an axis too many may broadcast.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from shoal.errors import InputError, shortened
from shoal.types import Algorithm, Box, EnvSpec, Learner, Metrics, PyTree, Step, Trajectory


def shaped(what: str, x: Any, shape: tuple[int, ...], axes: str = "") -> Any:
    """``x``, if it is an array of that shape.

    Args:
        what: what it is, for the message.
        x: what a function has returned.
        shape: the expected one.
        axes: its names, for the message; empty for one number.

    Raises:
        InputError: it is not.
    """
    if (hasattr(x, "shape") or isinstance(x, (int, float))) and jnp.shape(x) == shape:
        return x
    expected = f"an array {axes}, here {list(shape)}" if axes else "one number"
    raise InputError(f"{what} must be {expected}, not {_described(x)}.")


def values_of(what: str, result: Any, names: tuple[str, ...]) -> tuple:
    """``result``, if it has that many values.

    Raises:
        InputError: it has not.
    """
    several = isinstance(result, (tuple, list))
    if several and len(result) == len(names):
        return tuple(result)
    found = f"{len(result)} values" if several and not hasattr(result, "_fields") else _described(result)
    raise InputError(f"{what} must return {', '.join(names[:-1])} and {names[-1]}, but returned {found}.")


def checked_losses(**losses: Callable[..., tuple[Array, Metrics]]) -> list[Callable[..., tuple[Array, Metrics]]]:
    """Losses by name, in order, each of which must return a number and a dictionary of metrics.

    :func:`shoal.learning.sgd.of_scalars` checks the numbers.

    Raises:
        InputError: in a returned function: it does not.
    """

    def checked(name: str, loss: Callable, *args: Any) -> tuple[Array, Metrics]:
        value, metrics = values_of(name, loss(*args), ("a loss", "metrics"))
        return value, mapping(f"The metrics that {name} returns", metrics)

    return [partial(checked, name, loss) for name, loss in losses.items()]


def checked_rows(**parts: Callable[..., Any] | None) -> list[Any]:
    """Functions (…, trajectory, …) by name, in order, which must return an array [T, E, N]; None stays.

    ``advantage`` must return two such arrays, advantages and value targets.

    Raises:
        InputError: in a returned function: it returns something else.
    """

    def checked(name: str, part: Callable, given: Any, traj: Trajectory, *others: Any) -> Any:
        result, shape, what = part(given, traj, *others), jnp.shape(traj.step.alive), f"What {name} returns"
        if name != "advantage":
            return shaped(what, result, shape, "[T, E, N]")
        names = ("advantages", "value targets")
        rows = values_of(name, result, names)
        return tuple(shaped(f"{what} as {one}", x, shape, "[T, E, N]") for one, x in zip(names, rows, strict=True))

    return [part and partial(checked, name, part) for name, part in parts.items()]


def mapping(what: str, x: Any) -> dict:
    """``x`` as a dictionary, if it is one.

    Raises:
        InputError: it is not.
    """
    if isinstance(x, Mapping):
        return dict(x)
    raise InputError(f"{what} must be a dictionary, not {shortened(x)}.")


def checked(algorithm: Algorithm, spec: EnvSpec, name: str) -> Algorithm:
    """``algorithm``, whose ``act`` and ``update`` must return what :class:`shoal.types.Algorithm` says.

    Args:
        algorithm: one of the user's own.
        spec: the environment for which it was made.
        name: of its module, for messages.

    Raises:
        InputError: in the returned functions: they return something else.
    """

    def act(
        learner: Learner, carry: PyTree, step: Step, key: Array, greedy: bool
    ) -> tuple[PyTree, Array, dict[str, Array]]:
        of = f"act of {name!r}"
        result = algorithm.act(learner, carry, step, key, greedy)
        after, action, extras = values_of(of, result, ("a carry", "actions", "extras"))
        same_type(f"The carry that {of} returns", carry, after)
        agents, box = jnp.shape(step.alive), isinstance(spec.action, Box)
        shape, axes = ((*agents, spec.action.width), "[E, N, A]") if box else (agents, "[E, N]")
        shaped(f"What {of} returns as actions", action, shape, axes)
        if not jnp.issubdtype(jnp.result_type(action), jnp.floating if box else jnp.integer):
            kind = "floating-point numbers" if box else "integers"
            raise InputError(f"Actions that {of} returns must be {kind}, not {jnp.result_type(action)}.")
        return after, action, mapping(f"The extras that {of} returns", extras)

    def update(learner: Learner, experience: Any, key: Array) -> tuple[Learner, Metrics]:
        of = f"update of {name!r}"
        result = algorithm.update(learner, experience, key)
        after, metrics = values_of(of, result, ("a learner", "metrics"))
        same_type(f"The learner that {of} returns", learner, after)
        for metric, x in mapping(f"The metrics that {of} returns", metrics).items():
            shaped(f"The metric {metric!r} that {of} returns", x, ())
        return after, dict(metrics)

    return algorithm._replace(act=act, update=update)


def same_type(what: str, before: PyTree, after: PyTree) -> None:
    """Refuse a tree that has other leaves than before, or leaves of other shapes or types.

    Raises:
        InputError: it has; the message names the first.
    """
    old, new = (dict(jax.tree_util.tree_leaves_with_path(tree)) for tree in (before, after))
    for path in [*old, *(path for path in new if path not in old)]:
        leaf = jax.tree_util.keystr(path).lstrip(".")
        given, now = (_kind(leaves[path]) if path in leaves else "nothing" for leaves in (old, new))
        if given != now:
            where = f"has {leaf} = {now}" if leaf else f"is {now}"
            raise InputError(f"{what} {where}, but was given {given}: it must keep its type.")
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise InputError(
            f"{what} has other containers (tuples, dictionaries, None) than it was given: keep their types."
        )


def _kind(x: Any) -> str:
    """The type and the shape of a leaf; it has none if JAX cannot compute with it."""
    try:
        return f"{jnp.result_type(x)}{list(jnp.shape(x))}"
    except TypeError:
        return f"a {type(x).__name__}"


def _described(x: Any) -> str:
    """A value for messages; an array by its shape, since JAX's text for one that is traced is long."""
    if hasattr(x, "shape"):
        return f"an array {list(jnp.shape(x))}"
    return f"a {type(x).__name__}" if hasattr(x, "_fields") else shortened(x)
