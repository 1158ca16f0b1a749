"""The adapter between Flax modules and the rest of Shoal: a :class:`Net` is two pure functions.

Only NNX's functional subset (``split`` and ``merge``) is used, so no Flax object crosses a ``jit`` boundary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from flax import nnx
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.errors import InputError
from shoal.types import PyTree


class Net(NamedTuple):
    """A network over sequences. Feed-forward nets ignore ``first`` and return their empty carry.

    ``apply(params, carry, x, first)`` reads ``x`` [T, *b, F], starting from the recurrent state before its first
    timestep (leaves [*b, H]), resets that state where ``first`` [T, E] marks the start of an episode, and returns the
    recurrent state *after every* timestep (leaves [T, *b, H]) with the output [T, *b, K].
    """

    init: Callable[[PRNGKeyArray], PyTree]
    apply: Callable[[PyTree, PyTree, Float[Array, "T *b F"], Bool[Array, "T ..."]], tuple[PyTree, Array]]
    initial_carry: Callable[[tuple[int, ...]], PyTree]
    """Batch shape ``b`` -> the recurrent state at the start of an episode."""


def functional(
    make: Callable[[nnx.Rngs], nnx.Module],
) -> tuple[Callable[[PRNGKeyArray], PyTree], Callable[..., Any]]:
    """A Flax module as two pure functions: key -> parameters, and (parameters, arguments) -> what its call returns.

    Raises:
        InputError: it keeps statistics, such as those of batch normalisation.
    """
    graph, abstract = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    for path, variable in nnx.to_flat_state(abstract):
        if isinstance(variable, nnx.BatchStat):
            raise InputError(
                f"The module keeps statistics of batches ({'.'.join(map(str, path))}), which are not parameters: use "
                f"layer normalisation instead of batch normalisation."
            )

    def init(key: PRNGKeyArray) -> PyTree:
        return nnx.to_pure_dict(nnx.split(make(nnx.Rngs(key)))[1])

    def call(params: PyTree, *given: Any) -> Any:
        state = jax.tree.unflatten(jax.tree.structure(abstract), jax.tree.leaves(params))
        return nnx.merge(graph, state)(*given)

    return init, call


def from_module(
    make: Callable[[nnx.Rngs], nnx.Module], initial_carry: Callable[[tuple[int, ...]], PyTree] = lambda batch: ()
) -> Net:
    """Convert a Flax module whose ``__call__(carry, x, first)`` returns ``(carry, y)`` to a :class:`Net`."""
    return Net(*functional(make), initial_carry)


def last_carry(carry: PyTree) -> PyTree:
    """The recurrent state after the last of T timesteps: leaves [T, *b, H] -> [*b, H]."""
    return jax.tree.map(lambda h: h[-1], carry)
