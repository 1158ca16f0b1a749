"""From modules of Flax NNX and Equinox, and from plain functions, to a :class:`Net`."""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from shoal.errors import InputError
from shoal.networks.net import Net, from_module, functional
from shoal.types import PyTree

Start = Callable[[tuple[int, ...]], PyTree]
"""Batch shape (B,) -> the recurrent state at the start of an episode, leaves [B, H]."""


def feed_forward(
    init: Callable[[PRNGKeyArray], PyTree], apply: Callable[[PyTree, Float[Array, "R F"]], Float[Array, "R K"]]
) -> Net:
    """A net of two functions: key -> parameters, and (parameters, features [R, F]) -> outputs [R, K]."""

    def over_time(params: PyTree, carry: PyTree, x: Array, first: Array) -> tuple[PyTree, Array]:
        del first
        y = apply(params, x.reshape(-1, x.shape[-1]))
        return carry, y.reshape(*x.shape[:-1], *y.shape[1:])

    return Net(init, over_time, lambda batch: ())


def from_nnx(make: Callable[[nnx.Rngs], nnx.Module], initial_carry: Start | None = None) -> Net:
    """A net of a Flax NNX module.

    Args:
        make: random numbers -> the module.
        initial_carry: of a recurrent module, which is called with (carry [B, H], x [T, B, F], first [T, B]) and returns
            (carry after each timestep [T, B, H], y [T, B, K]). Without it the module is called with x [R, F] and
            returns y [R, K].

    Raises:
        InputError: ``make`` is a module that is already built.
    """
    if isinstance(make, nnx.Module):
        raise InputError(_built(make, "from_nnx", "nnx.Rngs", "rngs"))
    if initial_carry is not None:
        return from_module(make, initial_carry)
    return feed_forward(*functional(make))


def from_equinox(make: Callable[[PRNGKeyArray], Any], initial_carry: Start | None = None) -> Net:
    """A net of an Equinox module, or of another callable that is a pytree; its arrays are the parameters.

    Args:
        make: key -> the module.
        initial_carry: of a recurrent module; see :func:`from_nnx`. Without it the module is called with the features
            [F] of one row, as Equinox's layers are, and returns [K].

    Raises:
        InputError: ``make`` is a module that is already built.
    """
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(make)):
        raise InputError(_built(make, "from_equinox", "a key", "key"))
    kept: dict[str, Any] = {}

    def init(key: PRNGKeyArray) -> dict[str, Array]:
        leaves, kept["tree"] = jax.tree_util.tree_flatten_with_path(make(key))
        named = [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
        kept["names"] = [name for name, _ in named]
        kept["others"] = {name: leaf for name, leaf in named if not isinstance(leaf, jax.Array)}
        return {name: leaf for name, leaf in named if isinstance(leaf, jax.Array)}

    jax.eval_shape(init, jax.random.key(0))
    tree, names, others = kept["tree"], kept["names"], kept["others"]

    def module(params: dict[str, Array]) -> Any:
        return jax.tree.unflatten(tree, [others[name] if name in others else params[name] for name in names])

    if initial_carry is not None:
        return Net(init, lambda params, carry, x, first: module(params)(carry, x, first), initial_carry)
    return feed_forward(init, lambda params, x: jax.vmap(module(params))(x))


def _built(module: Any, function: str, argument: str, short: str) -> str:
    kind = type(module).__name__
    return (
        f"{function} takes a function from {argument} to a module, such as lambda {short}: {kind}(..., "
        f"{short}={short}), since every policy of every seed has weights of its own; it was given a {kind} that is "
        f"already built."
    )
