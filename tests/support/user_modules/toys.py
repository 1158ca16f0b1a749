"""Small environments that are awkward on purpose; tests name them ``toys:busy`` and so on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from shoal.types import Box, Discrete, Environment, EnvSpec, Step


def spec_of(name: str, obs_dims: tuple[int, ...], action: Discrete | Box, horizon: int, **fields: Any) -> EnvSpec:
    n = len(obs_dims)
    defaults = {
        "agents": tuple(f"agent_{i}" for i in range(n)),
        "state_dim": 0,
        "action_dims": (action.width,) * n,
        "roles": (0,) * n,
        "shared_reward": True,
    }
    return EnvSpec(name=name, obs_dims=obs_dims, action=action, horizon=horizon, **(defaults | fields))


def step_of(spec: EnvSpec, obs: Array, reward: Any, last: Any, ended: Any, first: bool = False, **fields: Any) -> Step:
    """A Step with everybody alive and everything legal; ``ended`` is true termination."""
    n = spec.num_agents
    own = jnp.arange(spec.action.width) < jnp.array(spec.action_dims)[:, None]
    defaults = {
        "obs": jnp.broadcast_to(obs, (n, spec.obs_dim)).astype(jnp.float32),
        "state": jnp.zeros(spec.state_dim),
        "legal": own,
        "alive": jnp.ones(n, bool),
        "reward": jnp.broadcast_to(jnp.float32(reward), (n,)),
        "discount": jnp.broadcast_to(jnp.where(ended, 0.0, 1.0), (n,)),
        "first": jnp.asarray(first),
        "last": jnp.asarray(last) | jnp.asarray(ended),
    }
    return Step(**(defaults | fields))


class Busy(NamedTuple):
    """Where :func:`busy` stands. It keeps a random key of its own, which has to survive resets and checkpoints."""

    t: Array
    alive: Array
    luck: Array
    key: Array


def busy(horizon: int = 7, end: float = 0.15, death: float = 0.3) -> Environment:
    """Everything at once: ragged rows, chance, a mortal agent, masks that move, termination and a time limit.

    Agent i may not play (t + i) mod A_i, which costs it 1000. Playing t mod A_i earns 1. The last agent dies at random
    while the others play on; at random the whole episode terminates; after ``horizon`` steps it is cut off. An episode
    that terminates is won; its steps are a metric, and so is its luck, which is known while the last agent lives.
    """
    spec = spec_of(
        "toys/busy",
        (4, 6, 5),
        Discrete(4),
        horizon,
        action_dims=(3, 4, 2),
        roles=(0, 1, 2),
        state_dim=3,
        shared_reward=False,
        metrics=("won", "steps", "luck"),
    )
    widths, who = jnp.array(spec.action_dims), jnp.arange(3)

    def look(state: Busy, reward: Array, first: bool, ended: Any) -> Step:
        seen = jnp.stack([state.t / horizon, state.luck, jnp.sin(1.0 * state.t), jnp.cos(1.0 * state.t)])
        rows = jnp.concatenate([jnp.broadcast_to(seen, (3, 4)), state.alive[:2] * jnp.ones((3, 2))], axis=-1)
        action = jnp.arange(4)
        return step_of(
            spec,
            jnp.where(jnp.arange(6) < jnp.array(spec.obs_dims)[:, None], rows, 0.0),
            reward,
            state.t >= horizon,
            ended,
            first,
            state=jnp.stack([state.t / horizon, state.luck, 1.0 * state.alive[2]]),
            legal=(action < widths[:, None]) & (action != ((state.t + who) % widths)[:, None]),
            alive=state.alive,
            metrics=jnp.stack([1.0 * ended, 1.0 * state.t, jnp.where(state.alive[2], state.luck, jnp.nan)]),
        )

    def luck(key: Array, t: Array | int) -> Array:
        return (jax.random.key_data(key)[-1] ^ jnp.uint32(t)) % 97 / 97.0  # one random number less to compile

    def reset(key: Array) -> tuple[Busy, Step]:
        state = Busy(jnp.int32(0), jnp.ones(3, bool), luck(key, 0), key)
        return state, look(state, jnp.zeros(3), True, False)

    def step(key: Array, state: Busy, action: Array) -> tuple[Busy, Step]:
        chance = jax.random.uniform(key, (2,))
        illegal = (action == (state.t + who) % widths) | (action >= widths)
        reward = jnp.where(illegal, -1000.0, 1.0 * (action == state.t % widths)) + 0.1 * state.luck
        after = Busy(
            state.t + 1,
            state.alive & jnp.array([True, True, False]) | (state.alive & (chance[0] > death)),
            luck(state.key, state.t + 1),
            state.key,
        )
        return after, look(after, jnp.where(state.alive, reward, 0.0), False, chance[1] < end)

    return Environment(spec, reset, step)


class Drift(NamedTuple):
    place: Array
    sent: Array
    """The action as it arrived."""
    t: Array


def drift(horizon: int = 6, low: float = -1.0, high: float = 3.0) -> Environment:
    """Continuous actions on an uneven box: two agents of two and one dimensions move towards the origin.

    An agent that wanders beyond 2 ends the episode for both.
    """
    spec = spec_of("toys/drift", (3, 2), Box(2, low, high), horizon, action_dims=(2, 1), state_dim=4)
    real = jnp.arange(2) < jnp.array(spec.action_dims)[:, None]

    def look(state: Drift, first: bool) -> Step:
        far = (jnp.abs(state.place) > 2.0).any()  # never at the start
        rows = jnp.concatenate([state.place, jnp.full((2, 1), state.t / horizon)], axis=-1)
        return step_of(
            spec,
            jnp.where(jnp.arange(3) < jnp.array(spec.obs_dims)[:, None], rows, 0.0),
            0.0 if first else -jnp.square(state.place).sum(),
            state.t >= horizon,
            far,
            first,
            state=state.place.ravel(),
        )

    def reset(key: Array) -> tuple[Drift, Step]:
        place = jnp.where(real, jax.random.uniform(key, (2, 2), minval=-1.0), 0.0)
        state = Drift(place, jnp.zeros((2, 2)), jnp.int32(0))
        return state, look(state, True)

    def step(key: Array, state: Drift, action: Array) -> tuple[Drift, Step]:
        noise = 0.1 * jax.random.uniform(key, (2, 2), minval=-1.0)
        after = Drift(state.place + jnp.where(real, 0.3 * (action - 1.0) + noise, 0.0), action, state.t + 1)
        return after, look(after, False)

    return Environment(spec, reset, step)


def coordination() -> Environment:
    """One shot, two agents: 1 where both play 2, −1 where both play 0, else 0. A team that climbs downhill earns −1."""
    spec = spec_of("toys/coordination", (1, 1), Discrete(3), 1)

    def reset(key: Array) -> tuple[Array, Step]:
        return jnp.int32(0), step_of(spec, jnp.ones(1), 0.0, False, False, first=True)

    def step(key: Array, state: Array, action: Array) -> tuple[Array, Step]:
        reward = 1.0 * (action == 2).all() - 1.0 * (action == 0).all()
        return state + 1, step_of(spec, jnp.ones(1), reward, False, True)

    return Environment(spec, reset, step)


def duel() -> Environment:
    """One shot, two against two: a side earns its share of 1s less the other's, so that action 1 dominates for both.

    The mean reward of all four agents is 0 whatever they play.
    """
    spec = spec_of(
        "toys/duel",
        (1,) * 4,
        Discrete(2),
        1,
        state_dim=1,
        shared_reward=False,
        sides=(0, 0, 1, 1),
        score="mean",
    )

    def reset(key: Array) -> tuple[Array, Step]:
        return jnp.int32(0), step_of(spec, jnp.ones(1), 0.0, False, False, first=True, state=jnp.ones(1))

    def step(key: Array, state: Array, action: Array) -> tuple[Array, Step]:
        reward = jnp.array([1.0, 1.0, -1.0, -1.0]) * (action[:2].sum() - action[2:].sum()) / 2.0
        return state + 1, step_of(spec, jnp.ones(1), reward, False, True, state=jnp.ones(1))

    return Environment(spec, reset, step)


def tempting(horizon: int = 3) -> Environment:
    """Four actions: each agent sees which one is the bait, worth 100 and illegal. Of the other three, bait + 1 earns 1.

    Returns above ``horizon`` per agent therefore mean that somebody broke the rules.
    """
    spec = spec_of("toys/tempting", (4, 4), Discrete(4), horizon, shared_reward=False, score="mean")

    def four(key: Array) -> Array:
        return (jax.random.bits(key, (2,)) % 4).astype(jnp.int32)

    def look(bait: Array, t: Array, reward: Array, first: bool) -> Step:
        seen = (jnp.arange(4) == bait[:, None]).astype(jnp.float32)
        return step_of(spec, seen, reward, t >= horizon, False, first, legal=seen == 0)

    def reset(key: Array) -> tuple[tuple[Array, Array], Step]:
        bait = four(key)
        return (bait, jnp.int32(0)), look(bait, jnp.int32(0), jnp.zeros(2), True)

    def step(key: Array, state: tuple[Array, Array], action: Array) -> tuple[tuple[Array, Array], Step]:
        bait, t = state
        reward = 100.0 * (action == bait) + 1.0 * (action == (bait + 1) % 4)
        bait = four(key)
        return (bait, t + 1), look(bait, t + 1, reward, False)

    return Environment(spec, reset, step)


def stay_or_quit() -> Environment:
    """Good and bad places, and a time limit after every single step: only the right bootstrap tells what to do.

    Staying (action 0) earns +1 in a good place and −1 in a bad one, for ever: the time limit cuts the episode off
    after one step, so V(good) = 1 / (1 − γ). Quitting (action 1) earns ±1.5 and ends it. Stay in a good place, quit a
    bad one. Who takes the time limit for an end, bootstraps on an end, or on the next episode's start does the
    opposite in at least one of the two.
    """
    spec = spec_of("toys/stay_or_quit", (2,), Discrete(2), 1)

    def look(good: Array, reward: Any, last: bool, ended: Any, first: bool) -> Step:
        return step_of(spec, jnp.stack([good, ~good]), reward, last, ended, first)

    def reset(key: Array) -> tuple[Array, Step]:
        good = jax.random.bernoulli(key)
        return good, look(good, 0.0, False, False, True)

    def step(key: Array, good: Array, action: Array) -> tuple[Array, Step]:
        quits = action[0] == 1
        reward = jnp.where(good, 1.0, -1.0) * jnp.where(quits, 1.5, 1.0)
        return good, look(good, reward, True, quits, False)

    return Environment(spec, reset, step)


def memory() -> Environment:
    """Two steps: each agent is shown a cue, then nothing, and earns 1 for naming the cue. Needs recurrence."""
    spec = spec_of("toys/memory", (3, 3), Discrete(2), 2, shared_reward=False, score="mean")

    def look(cue: Array, t: Array, reward: Any, first: bool) -> Step:
        shown = jnp.where(t == 0, jnp.stack([cue == 0, cue == 1, cue < 0], -1), jnp.array([False, False, True]))
        return step_of(spec, shown, reward, False, t >= 2, first)

    def reset(key: Array) -> tuple[tuple[Array, Array], Step]:
        cue = (jax.random.bits(key, (2,)) % 2).astype(jnp.int32)
        return (cue, jnp.int32(0)), look(cue, jnp.int32(0), jnp.zeros(2), True)

    def step(key: Array, state: tuple[Array, Array], action: Array) -> tuple[tuple[Array, Array], Step]:
        cue, t = state
        reward = jnp.where(t == 1, 1.0 * (action == cue), 0.0)
        return (cue, t + 1), look(cue, t + 1, reward, False)

    return Environment(spec, reset, step)


def poison(after: int = 40) -> Environment:
    """An endless task whose reward becomes NaN after so many steps."""
    spec = spec_of("toys/poison", (1,), Discrete(2), 10**6)

    def reset(key: Array) -> tuple[Array, Step]:
        return jnp.int32(0), step_of(spec, jnp.ones(1), 0.0, False, False, first=True)

    def step(key: Array, t: Array, action: Array) -> tuple[Array, Step]:
        return t + 1, step_of(spec, jnp.ones(1), jnp.where(t >= after, jnp.nan, 1.0 * action[0]), False, False)

    return Environment(spec, reset, step)
