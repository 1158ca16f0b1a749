"""What random play and scripted pairs score on grid/stag_hunt, two yardsticks for learning, and how fast it is.

    python benchmarks/stag_hunt.py

Random play draws uniformly from the legal actions. The scripted agents hunt in fixed pairs: each pair goes for the stag
nearest to both, in turn so that no two pairs share one, waits beside it, and catches when both are there. They see the
whole field, but do not plan around each other, so their score is no bound; 10 per two agents is. Speed is that of a
compiled rollout with random legal actions, a step being one of all agents; the best of five.
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

import shoal
from shoal.environments.grid.field import GONE, Field
from shoal.environments.grid.stag_hunt import CATCH, STAY, State
from shoal.rollouts import fused
from shoal.types import Environment, Step

FIELD = Field(10, 10, 2)
FAR = 1000


def random_play(step: Step, key: Array) -> Int[Array, "*b N"]:
    """Any legal action."""
    return jnp.argmax(jnp.where(step.legal, jax.random.uniform(key, step.legal.shape), -1.0), axis=-1)


def pairs(state: State, step: Step, key: Array) -> Int[Array, " N"]:
    """Agents 0 and 1, 2 and 3, … each hunt one stag."""
    gap = _distance(state.agents[:, None], state.prey)
    gap = jnp.where((state.agents == GONE)[:, None] | (state.prey == GONE), FAR, gap)
    free, targets = jnp.ones_like(state.prey, bool), []
    for first in range(0, len(state.agents), 2):
        targets.append(jnp.argmin(jnp.where(free, gap[first] + gap[first + 1], 4 * FAR)))
        free = free.at[targets[-1]].set(gap[first, targets[-1]] >= FAR)
    target = jnp.repeat(jnp.stack(targets), 2)
    there = gap[jnp.arange(len(target)), target] == 1
    both = jnp.repeat(there.reshape(-1, 2).all(1), 2)
    ahead = state.agents[:, None] + jnp.append(FIELD.moves, 0)
    full = (ahead[..., None] == jnp.concatenate([state.agents, state.prey])).any(-1).at[:, STAY].set(False)
    cost = _distance(ahead, state.prey[target][:, None]) + FAR * (full | ~step.legal[:, :CATCH])
    walk = jnp.argmin(cost + jax.random.uniform(key, cost.shape), axis=1)
    return jnp.where(both & step.legal[:, CATCH], CATCH, jnp.where(there, STAY, walk))


def _distance(a: Array, b: Array) -> Array:
    (row, column), (other_row, other_column) = FIELD.place(a), FIELD.place(b)
    return jnp.abs(row - other_row) + jnp.abs(column - other_column)


def play(env: Environment, team: Callable, episodes: int) -> tuple[Float[Array, " E"], Float[Array, " E"]]:
    """Returns (one copy) and lengths of ``episodes`` episodes."""

    def episode(key: Array) -> tuple[Array, Array]:
        key_start, key = jax.random.split(key)

        def step_once(carry: tuple, key: Array) -> tuple[tuple, tuple[Array, Array]]:
            state, step, over = carry
            key_act, key_step = jax.random.split(key)
            state, step = env.step(key_step, state, team(state, step, key_act))
            return (state, step, over | step.last), (jnp.where(over, 0.0, step.reward[0]), ~over)

        start = (*env.reset(key_start), jnp.array(False))
        _, (reward, steps) = jax.lax.scan(step_once, start, jax.random.split(key, env.spec.horizon))
        return reward.sum(), steps.sum()

    return jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), episodes))


def speed(env: Environment, num_envs: int, steps: int = 1000) -> float:
    """Environment steps per second of ``num_envs`` environments side by side."""
    rollout = fused.make_rollout(env, num_envs, steps)

    def act(_: tuple, carry: tuple, step: Step, key: Array, greedy: bool) -> tuple:
        return carry, random_play(step, key), {}

    def collect(state: fused.RolloutState, key: Array) -> tuple[fused.RolloutState, tuple[Array, Array]]:
        state, trajectory, _ = rollout.collect(act, (), state, key)
        outcome = trajectory.outcome
        return state, (outcome.obs.sum(), outcome.state.sum())  # so that no feature is left out as unused

    compiled = jax.jit(collect).lower(state := rollout.init(jax.random.key(0), ()), jax.random.key(0)).compile()
    seconds = []
    for i in range(6):
        start = time.perf_counter()
        state, _ = jax.block_until_ready(compiled(state, jax.random.key(i)))
        seconds.append(time.perf_counter() - start)
    return num_envs * steps / min(seconds[1:])


def main() -> None:
    """Print both teams' scores without and with a penalty, then the speed."""
    for penalty in (0.0, -2.0):
        env = shoal.make("grid/stag_hunt", penalty=penalty)
        assert isinstance(env, Environment)
        for name, team in (("random", lambda _, step, key: random_play(step, key)), ("pairs", pairs)):
            returns, lengths = play(env, team, 1000)
            error = returns.std() / len(returns) ** 0.5
            print(
                f"penalty {penalty:g}, {name}: {returns.mean():.2f} ± {error:.2f} (standard error), "
                f"{lengths.mean():.1f} steps"
            )
    env = shoal.make("grid/stag_hunt")
    assert isinstance(env, Environment)
    for num_envs in (32, 256):
        print(f"{num_envs} environments: {speed(env, num_envs):,.0f} steps/s")


if __name__ == "__main__":
    main()
