"""What a greedy controller scores on mpe/simple_spread, mpe/simple_reference and bps/…: a yardstick for learning.

    python benchmarks/oracle.py

In spread, agents are assigned to landmarks so that the sum of distances is least; in blind-particle spread each knows
its own. In reference each knows its own too, or, as a team without messages, goes to the middle of the three landmarks,
from which the expected squared distance is least. At every step an agent takes the action after which it would be
nearest to its landmark when it has coasted for some steps; the best number of steps is printed. It knows the world's
equations, but it does not look further ahead, brake early, or avoid collisions, so it is no bound. For bps/… the score
of random play is printed beside it.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import shoal
from shoal.types import Environment

STEP, DAMPING, PUSH = 0.1, 0.25, 5.0
DIRECTIONS = jnp.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], jnp.float32)


def coast(pos: Array, vel: Array, steps: int, moves_first: bool) -> Float[Array, "N A 2"]:
    """Where each action leads after ``steps`` steps, the first with the action's push."""
    pos, vel = (jnp.broadcast_to(x[:, None], (len(x), 5, 2)) for x in (pos, vel))
    for i in range(steps):
        faster = vel * (1 - DAMPING) + (PUSH * STEP * DIRECTIONS if i == 0 else 0)
        pos = pos + STEP * (vel if moves_first else faster)
        vel = faster
    return pos


def play(
    env: Environment, goals: Callable[[Any], Array], steps: int, moves_first: bool, episodes: int
) -> Float[Array, "episodes N"]:
    """Returns of agents that each walk to ``goals(first state)`` [N, 2]; of random agents where ``steps`` is 0."""
    n = env.spec.num_agents

    def episode(key: Array) -> Array:
        start, _ = env.reset(key)
        goal = goals(start)

        def step_once(state: Any, key: Array) -> tuple[Any, Array]:
            there = coast(state.pos, state.vel, steps, moves_first)
            best = jnp.argmin(jnp.linalg.norm(there - goal[:, None], axis=-1), axis=1)
            state, outcome = env.step(key, state, best if steps else jax.random.randint(key, (n,), 0, 5))
            return state, outcome.reward

        return jax.lax.scan(step_once, start, jax.random.split(key, env.spec.horizon))[1].sum(0)

    return jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), episodes))


def nearest_together(state: Any) -> Float[Array, "N 2"]:
    """The assignment of N agents to N landmarks with the least sum of distances."""
    gap = jnp.linalg.norm(state.pos[:, None] - state.landmarks, axis=-1)
    orders = jnp.array(list(itertools.permutations(range(len(gap)))))
    return state.landmarks[orders[jnp.argmin(gap[jnp.arange(len(gap)), orders].sum(1))]]


def spread(convention: str, agents: int, steps: int) -> tuple[float, float]:
    """(mean, standard error) on the scale of the sum over agents without self-collisions."""
    env = shoal.make("mpe/simple_spread", convention=convention, num_agents=agents)
    assert isinstance(env, Environment)
    returns = play(env, nearest_together, steps, convention == "mpe2", 2000)  # mpe2 moves before it accelerates
    # One openai copy counts each agent as colliding with itself in each step, and everything twice.
    return summary(returns.sum(1) if convention == "mpe2" else (returns[:, 0] + agents * env.spec.horizon) / 2)


def blind(task: str, steps: int) -> tuple[float, float]:
    """(mean, standard error) of the sum over agents in blind-particle spread."""
    env = shoal.make(f"bps/{task}")
    assert isinstance(env, Environment)
    return summary(play(env, lambda s: s.landmarks[jnp.array(env.spec.roles)], steps, False, 1000).sum(1))


def reference(convention: str, reach: float, told: bool, steps: int) -> tuple[float, float]:
    """(mean, standard error) in reference, landmarks within ± ``reach``: the sum over agents; in OpenAI's convention
    one copy of the shared reward."""
    env = shoal.make("mpe/simple_reference", convention=convention, landmark_range=reach)
    assert isinstance(env, Environment)

    def goals(state: Any) -> Float[Array, "2 2"]:
        middle = jnp.broadcast_to(state.landmarks.mean(0), (2, 2))
        return state.landmarks[state.goal[::-1]] if told else middle  # goal i is that of the other agent

    returns = play(env, goals, steps, convention == "mpe2", 2000)
    return summary(returns.sum(1) if convention == "mpe2" else returns[:, 0])


def summary(scores: Array) -> tuple[float, float]:
    """(mean, standard error)."""
    return float(scores.mean()), float(scores.std() / len(scores) ** 0.5)


def main() -> None:
    """Print the best look-ahead of each task."""
    for convention, agents in (("mpe2", 3), ("openai", 3), ("mpe2", 4)):
        best, steps = max((spread(convention, agents, steps), steps) for steps in range(1, 6))
        where = f"spread, {convention}, {agents} agents"
        print(f"{where}: {best[0]:.2f} ± {best[1]:.2f} (standard error), looking {steps} steps ahead")
    for (convention, reach), told in itertools.product(
        (("openai", 0.8), ("openai", 1.0), ("mpe2", 0.5)), (True, False)
    ):
        best, steps = max((reference(convention, reach, told, steps), steps) for steps in range(1, 6))
        where = f"reference, {convention}, ± {reach}, {'controller' if told else 'no messages'}"
        print(f"{where}: {best[0]:.2f} ± {best[1]:.2f} (standard error), looking {steps} steps ahead")
    for task in ("1", "2", "3", "4", "h1", "h2"):
        best, steps = max((blind(task, steps), steps) for steps in range(1, 6))
        luck = blind(task, 0)
        print(
            f"bps/{task}: {best[0]:.1f} ± {best[1]:.1f} (standard error), looking {steps} steps ahead; "
            f"random {luck[0]:.1f} ± {luck[1]:.1f}"
        )


if __name__ == "__main__":
    main()
