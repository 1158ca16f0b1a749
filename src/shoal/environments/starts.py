"""Environments whose episodes begin in one of a few initial states, for training. Does not import JAX itself.

Evaluations begin anywhere, so that they measure what the policies make of initial states that training did not have
(Cobbe et al. 2020, Leveraging Procedural Generation to Benchmark Reinforcement Learning, section 2.2).
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

from shoal.game import Game, HostEnvironment, HostTimestep
from shoal.types import Batched, Environment

Env = TypeVar("Env")


def with_starts(env: Env, count: int | None) -> Env:
    """An environment whose episodes begin as those of the seeds 0 … ``count`` − 1; ``env`` itself if it is None.

    On the device seed i is ``jax.random.key(i)``, and only the reset is limited: the dynamics stay as random as they
    are. A game on the host draws all its random numbers from the seed of the episode.

    Args:
        env: a :class:`shoal.types.Environment` or a :class:`shoal.game.HostEnvironment`.
        count: the number of initial states.
    """
    if count is None:
        return env
    if isinstance(env, HostEnvironment):
        return cast(Env, replace(env, make=functools.partial(limited_game, env.make, count)))
    return cast(Env, _on_device(cast(Environment, env), count))


def _on_device(env: Environment, count: int) -> Environment:
    import jax

    from shoal.environments.batching import select

    def reset(key: Any) -> Any:
        return env.reset(jax.random.key(jax.random.randint(key, (), 0, count)))

    if env.batched is None:
        return replace(env, reset=reset)

    def reset_all(key: Any, copies: int) -> Any:
        return jax.vmap(reset)(jax.random.split(key, copies))

    def restart(key: Any, which: Any, state: Any) -> Any:
        fresh, first = reset_all(key, which.shape[0])
        return select(which, fresh, state), first

    return replace(env, reset=reset, batched=Batched(reset_all, env.batched.step, restart))


class LimitedGame:
    """A game that is reset with the seeds 0 … ``count`` − 1 only."""

    def __init__(self, inner: Game, count: int):
        self._inner, self._count = inner, count
        self.spec, self.step, self.render, self.close = inner.spec, inner.step, inner.render, inner.close

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode."""
        self._inner.reset(seed % self._count, out)


def limited_game(make: Callable[..., Game], count: int, **options: Any) -> Game:
    """A limited game of ``make(**options)``; worker processes call this."""
    return LimitedGame(make(**options), count)
