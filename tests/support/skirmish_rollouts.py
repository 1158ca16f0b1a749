"""Random legal play of ``skirmish/…`` in the batched form, with restarts, and tables of it for the oracle."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.environments.skirmish.battle import State
from shoal.types import Environment, Step
from support.novel_oracle import Seen
from support.skirmish_oracle import Table


class Play(NamedTuple):
    """T steps of E environments, leaves [T, E, ...]."""

    before: State
    step: Step
    """What was seen before the actions."""
    action: Any
    after: State
    """Before restarts."""
    outcome: Step


def rolled(env: Environment, count: int, steps: int, seed: int = 0) -> Play:
    """Random legal play from the start of episodes; those that end begin again."""
    batched = env.batched
    assert batched is not None

    @jax.jit
    def run(key: jax.Array) -> Any:
        state, step = batched.reset(jax.random.fold_in(key, 0), count)

        def body(now: Any, key: jax.Array) -> Any:
            state, step = now
            choose, move, begin = jax.random.split(key, 3)
            action = jax.random.categorical(choose, jnp.where(step.legal, 0.0, -jnp.inf))
            after, outcome = batched.step(move, state, action)
            fresh, first = batched.restart(begin, outcome.last, after)
            shape = lambda x: outcome.last.reshape(-1, *(1,) * (x.ndim - 1))  # noqa: E731
            then = jax.tree.map(lambda a, b: jnp.where(shape(a), a, b), first, outcome)
            return (fresh, then), Play(state, step, action, after, outcome)

        return jax.lax.scan(body, (state, step), jax.random.split(key, steps))[1]

    return jax.tree.map(np.asarray, run(jax.random.key(seed)))


def table(state: Any, t: int, e: int) -> Table:
    """The units of one environment at one timestep."""
    x, y, health, shield, energy, cooldown, action = (
        getattr(state, name)[t, e].astype(float) for name in Table._fields[:-1]
    )
    return Table(x, y, health, shield, energy, cooldown, action, int(state.t[t, e]))


def seen(outcome: Step) -> Seen:
    """What :mod:`held` looks at, of the first 12 environments."""
    obs, state, alive = (np.asarray(getattr(outcome, name))[:, :12] for name in ("obs", "state", "alive"))
    rows = obs.shape[0] * obs.shape[1]
    obs, state, alive = obs.reshape(rows, *obs.shape[2:]), state.reshape(rows, -1), alive.reshape(rows, -1)
    return obs.astype(float), state.astype(float), alive
