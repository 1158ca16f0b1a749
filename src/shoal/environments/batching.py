"""Environments that are written for E environments at once (:class:`shoal.types.Batched`)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from shoal.environments.changes import Change
from shoal.types import Batched, Environment, EnvSpec, Outline, PyTree, Step


def single(
    spec: EnvSpec,
    batched: Batched,
    render: Callable[[PyTree], Any] | None = None,
    outline: Callable[[PyTree], Outline] | None = None,
) -> Environment:
    """An environment from its batched form, whose ``reset`` and ``step`` are those of a batch of one."""

    def reset(key: PRNGKeyArray) -> tuple[PyTree, Step]:
        return jax.tree.map(lambda x: x[0], batched.reset(key, 1))

    def step(key: PRNGKeyArray, state: PyTree, action: Array) -> tuple[PyTree, Step]:
        return jax.tree.map(lambda x: x[0], batched.step(key, jax.tree.map(lambda x: x[None], state), action[None]))

    # Training takes the batched form: what replaces these has to replace it as well (validation.py).
    reset.of_batch = step.of_batch = batched  # type: ignore[attr-defined]
    return Environment(spec, reset, step, render, batched, outline)


def change_batched(batched: Batched, change: Change, joined: Callable[[PyTree, PyTree], Any]) -> Batched:
    """The batched form of a wrapped environment.

    Args:
        batched: the form of the environment that is wrapped.
        change: its wrapper, whose functions are of one environment.
        joined: (state of the wrapped environment, the wrapper's memory) -> state with the wrapper.
    """
    begin, follow, execute = jax.vmap(change.begin), jax.vmap(change.follow), jax.vmap(change.execute)

    def reset(key: PRNGKeyArray, count: int) -> tuple[PyTree, Step]:
        inner, step = batched.reset(key, count)
        memory, step = begin(step)
        return joined(inner, memory), step

    def step(key: PRNGKeyArray, state: PyTree, action: Array) -> tuple[PyTree, Step]:
        executed = execute(state.memory, action)
        inner, outcome = batched.step(key, state.inner, executed)
        memory, outcome = follow(state.memory, outcome, executed)
        return joined(inner, memory), outcome

    def restart(key: PRNGKeyArray, which: Bool[Array, " E"], state: PyTree) -> tuple[PyTree, Step]:
        inner, first = batched.restart(key, which, state.inner)
        memory, first = begin(first)
        return joined(inner, select(which, memory, state.memory)), first

    return Batched(reset, step, restart)


def select(condition: Bool[Array, " E"], yes: Any, no: Any) -> Any:
    """Per environment, the leaves [E, ...] of ``yes`` where ``condition`` is True and of ``no`` elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b), yes, no)
