"""The adapter between Flax modules and the rest of Shoal: a :class:`Net` is two pure functions.

Only NNX's functional subset (``split`` and ``merge``) is used, so no Flax object crosses a ``jit`` boundary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from shoal.errors import InputError
from shoal.types import PyTree, Step, Trajectory


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


class SequenceNet(NamedTuple):
    """An encoder and a decoder over a sequence whose elements are a team's agents, with or without memory over time.

    The encoder gives each agent a value and a representation, which depend on all living agents. The decoder gives each
    agent an output that also depends on the tokens of agents of at most its own rank, where the token of an agent
    encodes the action of the agent just before it, or that there is none. ``encode`` and ``decode`` compute T timesteps
    at once from the recurrent state before the first; ``begin``, then ``step`` for each rank, and ``end`` compute the
    same for one timestep while its actions are being chosen.
    """

    init: Callable[[PRNGKeyArray], PyTree]
    initial_carry: Callable[[int], PyTree]
    """E -> the recurrent state at the start of an episode, leaves [E, ...]; an empty tuple without memory."""
    encode: Callable[
        [PyTree, PyTree, Float[Array, "T E N F"], Bool[Array, "T E N"], Bool[Array, "T E"]], tuple[Array, Array]
    ]
    """(params, carry, features, alive, first) -> (value [T, E, N], representation [T, E, N, D])."""
    decode: Callable[..., Float[Array, "T E N K"]]
    """(params, carry, representation [T, E, N, D], token [T, E, N, F], rank [T, E, N], alive, first) -> output."""
    begin: Callable[[PyTree, PyTree, Float[Array, "E N F"], Bool[Array, "E N"], Bool[Array, " E"]], tuple]
    """(params, carry, features, alive, first) -> (value [E, N], representation [E, N, D], state of the decoding)."""
    step: Callable[..., tuple[PyTree, Float[Array, "E K"]]]
    """(params, state, rank m, representation [E, D], token [E, F], alive [E]) -> (state, output) of each environment's
    agent of rank m, after those of ranks 0 … m − 1."""
    end: Callable[[PyTree], PyTree]
    """State of the decoding after all ranks -> carry after the timestep."""
    attention: Callable[[PyTree, Float[Array, "*b N F"], Bool[Array, "*b N"]], Float[Array, "*b N N"]] | None = None
    """(params, features, alive) -> each agent's weights over all agents in the encoder, if it has such weights."""


Structure = tuple[nnx.GraphDef, Any]
"""A Flax module without its parameters, and the structure of these as a tree."""


def functional(
    make: Callable[[nnx.Rngs], nnx.Module], structure: Structure | None = None
) -> tuple[Callable[[PRNGKeyArray], PyTree], Callable[..., Any]]:
    """A Flax module as two pure functions: key -> parameters, and (parameters, arguments) -> what its call returns.

    Args:
        make: random numbers -> the module.
        structure: :func:`structure_of` the module, if it is known.

    Raises:
        InputError: it keeps statistics, such as those of batch normalisation.
    """
    graph, tree = structure or structure_of(make)

    def init(key: PRNGKeyArray) -> PyTree:
        return nnx.to_pure_dict(nnx.split(make(nnx.Rngs(key)))[1])

    def call(params: PyTree, *given: Any) -> Any:
        return nnx.merge(graph, jax.tree.unflatten(tree, jax.tree.leaves(params)))(*given)

    return init, call


def structure_of(make: Callable[[nnx.Rngs], nnx.Module]) -> Structure:
    """What a Flax module is without its parameters, and the structure of these.

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
    return graph, jax.tree.structure(abstract)


def from_module(
    make: Callable[[nnx.Rngs], nnx.Module], initial_carry: Callable[[tuple[int, ...]], PyTree] = lambda batch: ()
) -> Net:
    """Convert a Flax module whose ``__call__(carry, x, first)`` returns ``(carry, y)`` to a :class:`Net`."""
    return Net(*functional(make), initial_carry)


def last_carry(carry: PyTree) -> PyTree:
    """The recurrent state after the last of T timesteps: leaves [T, *b, H] -> [*b, H]."""
    return jax.tree.map(lambda h: h[-1], carry)


# A net's output in the outcomes of a trajectory, mostly from its output in the steps.


def of_outcomes(evaluate: Callable[[PyTree, Step], Array], values: Array, after: PyTree, traj: Trajectory) -> Array:
    """The net's output in every outcome, [T, E, ...].

    Within an episode ``outcome[t]`` is ``step[t + 1]``, whose output is known. Only where an episode or the trajectory
    ends, or an agent's time limit is reached (alive in the outcome, gone at the step that follows), the net is
    evaluated: E outcomes at a time, as often as the trajectory needs it. No gradient flows through the result.

    Args:
        evaluate: (recurrent states [E, ...], steps [1, E, ...]) -> output [1, E, ...].
        values: output for ``traj.step``, [T, E, ...].
        after: recurrent states after every timestep, leaves [T, E, ...].
        traj: inputs as ``evaluate`` reads them.
    """
    values, after = jax.lax.stop_gradient((values, after))
    T, E = traj.outcome.last.shape

    def flat(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x.reshape(T * E, *x.shape[2:]), tree)

    carry, outcome = flat(after), flat(traj.outcome)
    if T == 1:
        return jax.lax.stop_gradient(evaluate(carry, jax.tree.map(lambda x: x[None], outcome)))
    # A resumed run or a replaced worker starts an episode without the end of the one before it.
    leaving = (traj.outcome.alive & ~jnp.roll(traj.step.alive, -1, axis=0)).any(-1)
    ends = (traj.outcome.last | leaving | jnp.roll(traj.step.first, -1, axis=0)).at[-1].set(True).reshape(-1)
    (rows,) = jnp.nonzero(ends, size=T * E, fill_value=T * E)

    def some(i: Array, known: Array) -> Array:
        now = jax.lax.dynamic_slice_in_dim(rows, i * E, E)
        of = lambda x: x.at[now].get(mode="clip")  # noqa: E731
        found = evaluate(jax.tree.map(of, carry), jax.tree.map(lambda x: of(x)[None], outcome))[0]
        return known.at[now].set(found, mode="drop")

    known = flat(jnp.concatenate([values[1:], values[-1:]]))
    return jax.lax.stop_gradient(jax.lax.fori_loop(0, -(-ends.sum() // E), some, known)).reshape(values.shape)
