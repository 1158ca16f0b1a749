"""How fast device environments of JAX suites are in Shoal's rollout, beside their own auto-resetting loop.

Run by ``rollouts.py --device``. Both sides are one compiled ``lax.scan`` of :data:`LENGTH` steps of :data:`ENVS`
environments under ``vmap``, play random legal actions drawn by the same code, and return what they made of every step,
so that nothing is left out as unused.

* ``suite``: the suite's own ``step``, which resets where an episode ended: JaxMARL's ``env.step`` (``step_env`` and a
  reset of every environment at every step, of which one is chosen), Jumanji's ``AutoResetWrapper``. It returns
  observations (all that the suite returns), actions, rewards and ends.
* ``Shoal``: ``rollouts/fused.py``, which resets all where any has ended, and returns a whole trajectory: each step and
  its outcome before the reset, with the state, legal actions, who is alive, and statistics of episodes.
"""

import statistics
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import shoal
from shoal.rollouts import fused

TASKS = ("jaxmarl/MPE_simple_spread_v3", "jaxmarl/smax/3m", "lbf/2s-8x8-2p-2f-coop")
ENVS, LENGTH = 256, 32


def draw(key: Any, legal: Any) -> Any:
    """Random legal actions, int32; ``legal`` is [..., A]."""
    return jnp.where(legal, jax.random.uniform(key, legal.shape), -1.0).argmax(-1).astype(jnp.int32)


def play(advance: Callable[[Any, Any], Any], state: Any) -> Callable[[], int]:
    """Play on and on; ``advance``: (state, key) -> (state after :data:`LENGTH` steps, what was made of them)."""
    compiled, turn = jax.jit(advance), 0

    def call() -> int:
        nonlocal state, turn
        turn += 1
        state, _ = jax.block_until_ready(compiled(state, jax.random.key(turn)))
        return ENVS * LENGTH

    return call


def ours(env: Any) -> Callable[[], int]:
    """Shoal's compiled rollout."""
    rollout = fused.make_rollout(env, ENVS, LENGTH)

    def act(_: Any, carry: Any, step: Any, key: Any, greedy: bool) -> Any:
        return carry, draw(key, step.legal), {}

    def advance(state: Any, key: Any) -> Any:
        state, *made = rollout.collect(act, (), state, key)
        return state, made

    return play(advance, jax.jit(lambda key: rollout.init(key, ()))(jax.random.key(0)))


def suites(one: Callable[[Any, Any], Any], state: Any) -> Callable[[], int]:
    """A scan over a suite's step under vmap; ``one``: (state, key) -> (state, what one environment made of it)."""

    def step(state: Any, key: Any) -> Any:
        return jax.vmap(one)(state, jax.random.split(key, ENVS))

    return play(lambda state, key: jax.lax.scan(step, state, jax.random.split(key, LENGTH)), state)


def jaxmarls(task: str) -> Callable[[], int]:
    """JaxMARL's ``env.step`` under vmap."""
    import jaxmarl

    from shoal.environments.adapters.jaxmarl import ALIASES, FAMILIES, arguments_of

    identity, _, chosen = task.partition("/")
    identity = ALIASES.get(identity, identity)
    env: Any = jaxmarl.make(identity, **arguments_of(identity, chosen))
    everything = {agent: jnp.ones(env.action_space(agent).n, bool) for agent in env.agents}

    def one(state: Any, key: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key, len(env.agents) + 1)
        legal = env.get_avail_actions(state) if FAMILIES[identity].legal else everything
        action = {agent: draw(k, legal[agent]) for agent, k in zip(env.agents, keys, strict=False)}
        seen, state, reward, done, _ = env.step(keys[-1], state, action)
        return state, (seen, action, reward, done)

    _, state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), ENVS))
    return suites(one, state)


def jumanjis(task: str) -> Callable[[], int]:
    """Jumanji's ``AutoResetWrapper`` under vmap."""
    from jumanji.environments.routing.lbf.env import LevelBasedForaging
    from jumanji.environments.routing.lbf.generator import RandomGenerator
    from jumanji.wrappers import AutoResetWrapper

    from shoal.environments.adapters.lbf import MAX_LEVEL, parse_lbf_task

    t = parse_lbf_task(task)
    generator = RandomGenerator(t.side, t.sight, t.players, t.foods, max_agent_level=MAX_LEVEL, force_coop=t.coop)
    env: Any = AutoResetWrapper(LevelBasedForaging(generator, time_limit=100))

    def one(state: Any, key: Any) -> tuple[Any, Any]:
        world, timestep = state
        action = draw(key, timestep.observation.action_mask)
        world, timestep = env.step(world, action)
        return (world, timestep), (timestep, action)

    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), ENVS))
    return suites(one, state)


def measure(rounds_of: Callable, kept: Callable, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A line for every task."""
    table = []
    for task in TASKS:
        family, _, name = task.partition("/")
        env = shoal.make(task)
        theirs = jaxmarls(name) if family == "jaxmarl" else jumanjis(name)
        rates = rounds_of({"suite": theirs, "Shoal": ours(env)}, rounds, seconds)
        row = {"environment": task, "side by side": ENVS}
        row |= {f"{who}/s": round(statistics.median(found)) for who, found in rates.items()}
        table.append(row | {"kept, Shoal": kept(rates, "Shoal", "suite")})
        print(table[-1], file=sys.stderr)
    return table
