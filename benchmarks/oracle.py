"""What a greedy controller scores on mpe/simple_spread, in both conventions: a yardstick for learned teams.

    python benchmarks/oracle.py

Agents are assigned to landmarks so that the sum of distances is least. Each then takes, at every step, the action after
which it would be nearest to its landmark when it has coasted for some steps; the best number of steps is printed. It
knows the world's equations, but it does not look further ahead, brake early, or avoid collisions, so it is no bound.
"""

import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import shoal

STEP, DAMPING, PUSH = 0.1, 0.25, 5.0
DIRECTIONS = jnp.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], jnp.float32)
ORDERS = jnp.array(list(itertools.permutations(range(3))))


def coast(convention: str, pos: Array, vel: Array, steps: int) -> Float[Array, "N A 2"]:
    """Where each action leads after ``steps`` steps, the first with the action's push."""
    pos, vel = (jnp.broadcast_to(x[:, None], (3, 5, 2)) for x in (pos, vel))
    for i in range(steps):
        faster = vel * (1 - DAMPING) + (PUSH * STEP * DIRECTIONS if i == 0 else 0)
        pos = pos + STEP * (vel if convention == "mpe2" else faster)  # mpe2 moves before it accelerates
        vel = faster
    return pos


def score(convention: str, steps: int, episodes: int = 2000) -> tuple[float, float]:
    """(mean, standard error) on the scale of the sum over agents without self-collisions."""
    env = shoal.make("mpe/simple_spread", convention=convention)

    def episode(key: Array) -> Array:
        state, _ = env.reset(key)
        gap = jnp.linalg.norm(state.pos[:, None] - state.landmarks, axis=-1)
        order = ORDERS[jnp.argmin(jnp.stack([gap[jnp.arange(3), p].sum() for p in ORDERS]))]
        goal = state.landmarks[order]

        def moment(state: tuple, _: None) -> tuple[tuple, Array]:
            there = coast(convention, state.pos, state.vel, steps)
            action = jnp.argmin(jnp.linalg.norm(there - goal[:, None], axis=-1), axis=1)
            state, outcome = env.step(key, state, action)
            return state, outcome.reward

        return jax.lax.scan(moment, state, None, length=env.spec.horizon)[1].sum(0)

    returns = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), episodes))
    # One openai copy counts each of three agents as colliding with itself in each of 25 steps, and everything twice.
    scores = returns.sum(1) if convention == "mpe2" else (returns[:, 0] + 75) / 2
    return float(scores.mean()), float(scores.std() / episodes**0.5)


def main() -> None:
    """Print the best look-ahead of each convention."""
    for convention in ("mpe2", "openai"):
        best, steps = max((score(convention, steps), steps) for steps in range(1, 6))
        print(f"{convention}: {best[0]:.2f} ± {best[1]:.2f} (standard error), looking {steps} steps ahead")


if __name__ == "__main__":
    main()
