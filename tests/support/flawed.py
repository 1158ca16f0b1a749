"""A small policy gradient in plain JAX, sound or with one flaw that a check of algorithms is to find."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shoal
from shoal.equations import reduce
from shoal.types import Algorithm, EnvSpec, Learner, Scale, Step, Trajectory

WIDTH = 3


@dataclass(frozen=True)
class Config:
    rate: float = 0.1
    recurrent: int | None = None


@dataclass(frozen=True)
class WithDict:
    rate: float = 0.1
    recurrent: int | None = None
    table: dict | None = None


@dataclass(frozen=True)
class WithPair:
    rate: float = 0.1
    recurrent: int | None = None
    pair: tuple[int, ...] = (1.5, 2.5)  # type: ignore[assignment]


CONFIGS = {"a dict": WithDict, "wrong defaults": WithPair}


def module(flaw: str = "") -> Any:
    """A module of an algorithm with a flaw; the empty text for none."""

    def make(spec: EnvSpec, config: Any, scale: Scale) -> Algorithm:
        return make_with(flaw, spec, config)

    return SimpleNamespace(Config=CONFIGS.get(flaw, Config), make=make)


def host_noise(x: jax.Array) -> jax.Array:
    """``x`` with random numbers of the host."""
    rng = np.random.default_rng()
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    draw: Callable[..., Any] = lambda x: rng.normal(size=x.shape).astype(x.dtype)  # noqa: E731
    return jax.pure_callback(draw, shape, x, vmap_method="expand_dims")


MADE = itertools.count(1)
"""Every algorithm with the flaw ``random make`` differs."""


def make_with(flaw: str, spec: EnvSpec, config: Any) -> Algorithm:
    if not isinstance(spec.action, shoal.Discrete):
        if flaw == "raises":
            raise ValueError("no")
        if flaw == "two lines":
            raise shoal.InputError("no\nreally")
        raise shoal.InputError("Actions are continuous.")
    offset = float(next(MADE)) if flaw == "random make" else 0.0
    if flaw == "branches" and config.rate > 0.5:
        offset = 1.0

    def features(step: Step, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        alive = step.alive[..., None]
        seen = step.obs * alive if flaw == "multiplies" else jnp.where(alive, step.obs, 0.0)
        x = jnp.concatenate([seen, jnp.broadcast_to(seen.mean(-2, keepdims=True), seen.shape)], -1)
        if config.recurrent:
            start = jnp.zeros_like(hidden) if flaw != "never resets" else hidden
            hidden = jnp.where(step.first[..., None, None], start, hidden)
            hidden = jnp.tanh(hidden + x[..., :WIDTH])
            x = x.at[..., :WIDTH].add(hidden)
        return hidden, x

    def logits(theta: jax.Array, step: Step, hidden: jax.Array, masked: bool = True) -> tuple[jax.Array, jax.Array]:
        hidden, x = features(step, hidden)
        z = x @ theta + offset * jnp.arange(spec.action.width)
        return hidden, jnp.where(step.legal, z, -1e9) if masked else z

    def init(key: jax.Array) -> Learner:
        theta = jax.random.normal(key, (2 * spec.obs_dim, spec.action.width))
        policy, statistics = {"theta": theta}, jnp.float32(1.0)
        if flaw == "keeps keys":  # which is none
            policy["key"] = statistics = jax.random.fold_in(key, 1)
        return Learner(policy, (), (), statistics, jnp.int32(0))

    def initial_carry(num_envs: int) -> Any:
        return jnp.zeros((num_envs, spec.num_agents, WIDTH)) if config.recurrent else ()

    def act(learner: Learner, carry: Any, step: Step, key: jax.Array, greedy: bool) -> Any:
        unmasked = flaw == ("greedy masks" if greedy else "sampled masks")
        hidden, z = logits(learner.policy["theta"], step, carry, not unmasked)
        if flaw == "acts by statistics":
            z = z * learner.statistics
        if flaw == "acts by what there is" and isinstance(learner.statistics, tuple):
            z = -z + jnp.where(step.legal, 0.0, -3e9)
        action = jnp.argmax(z, -1) if greedy else jax.random.categorical(key, z)
        if flaw == "float actions":
            action = action.astype(jnp.float32)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(z), action[..., None].astype(int), -1)[..., 0]
        if flaw == "one action too few":
            action = action[..., :-1]
        extras: Any = {"log_prob": log_prob}
        if flaw == "an extra of all environments":
            extras["mean"] = log_prob.mean(0)
        if flaw == "extras in a tuple":
            extras = (log_prob,)
        return hidden if config.recurrent else (), action, extras

    def inspect(learner: Learner, carry: Any, step: Step, action: jax.Array, extras: Any) -> dict[str, jax.Array]:
        z = logits(learner.policy["theta"], step, carry, flaw != "tells illegal actions")[1]
        if flaw == "tells the opposite":
            z = jnp.where(step.legal, -z, -1e9)
        if flaw == "tells a sharper policy":
            z = 3 * z
        if flaw == "tells by statistics":
            z = z * learner.statistics
        p = jax.nn.softmax(z)
        return {"probabilities": p[0] if flaw == "tells of one environment" else p}

    def update(learner: Learner, traj: Trajectory, key: jax.Array) -> Any:
        alive = traj.step.alive
        together = (lambda x: x) if flaw == "alone on each device" else reduce.total
        count = jnp.maximum(together(alive.sum()), 1)
        weight = jnp.ones_like(alive) / alive.size if flaw == "no weights" else alive / count

        def loss(theta: jax.Array) -> jax.Array:
            def turn(hidden: Any, moment: tuple[Step, jax.Array]) -> Any:
                step, action = moment
                hidden, z = logits(theta, step, hidden)
                chosen = jnp.take_along_axis(jax.nn.log_softmax(z), action[..., None], -1)[..., 0]
                return hidden, chosen

            first = traj.step.first.at[0].set(False) if flaw == "update keeps the state" else traj.step.first
            steps = traj.step._replace(first=first)
            chosen = jax.lax.scan(turn, traj.carry, (steps, traj.action))[1]
            reward = traj.outcome.reward
            total = -(jnp.where(weight > 0, chosen, 0.0) * reward * weight).sum()
            return total / alive.sum() if flaw == "divides by none" else total

        theta = learner.policy["theta"]
        slope = together(jax.grad(loss)(theta))
        if flaw == "host noise":
            slope = slope + host_noise(slope)
        after = theta if flaw == "learns nothing" else theta - config.rate * slope
        if flaw == "extras of the dead":
            after = after + 0.01 * traj.extras["log_prob"].mean()
        if flaw == "explodes":
            after = jnp.where(learner.updates >= 1, jnp.nan, after)
        policy: Any = {"theta": after}
        if flaw == "another structure":
            policy["more"] = after
        statistics = learner.statistics
        if flaw == "keeps keys":
            policy["key"] = statistics = jax.random.fold_in(statistics, learner.updates)
        updates = learner.updates + (flaw != "does not count")
        if flaw == "another type":
            updates = updates.astype(jnp.float32)
        metrics: Any = {"loss": loss(theta)}
        if flaw == "a metric of all agents":
            metrics["reward"] = traj.outcome.reward.mean((0, 1))
        if flaw == "a metric of NaN":
            metrics["share"] = jnp.float32(0.0) / (learner.updates - learner.updates)
        if flaw == "metrics in a list":
            metrics = [metrics["loss"]]
        return learner._replace(policy=policy, statistics=statistics, updates=updates), metrics

    return Algorithm(init, initial_carry, act, update, inspect=inspect, stochastic=True)
