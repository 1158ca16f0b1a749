"""What a net gives for the outcomes of a trajectory, mostly from what it gave for the steps."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from shoal.types import PyTree, Step, Trajectory


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
