"""Your own environment: walkers on a line who must meet. To train in it, run in the folder of this file:

shoal train mappo own_environment:meeting --steps 2e5 --env.num-agents 4
"""

import jax
import jax.numpy as jnp

import shoal


def meeting(*, num_agents: int = 3, horizon: int = 20) -> shoal.Environment:
    """Walkers on a line, who observe their own place and the mean, should meet.

    Args:
        num_agents: number of walkers.
        horizon: steps in an episode.
    """
    n = num_agents
    spec = shoal.EnvSpec(
        name="meeting",
        agents=tuple(f"walker_{i}" for i in range(n)),
        obs_dims=(2,) * n,
        state_dim=n,
        action=shoal.Discrete(3),  # left, stay, right
        action_dims=(3,) * n,
        roles=(0,) * n,
        horizon=horizon,
        shared_reward=True,
        score="mean",  # all earn the same, so the score is one copy
        metrics=("won",),
    )

    def make_step(place, t, reward, first):
        return shoal.Step(
            obs=jnp.stack([place, jnp.full(n, place.mean())], axis=1),
            state=place,
            legal=jnp.ones((n, 3), bool),
            alive=jnp.ones(n, bool),
            reward=jnp.full(n, reward),
            discount=jnp.ones(n),  # 0 at a termination; here only the time limit ends episodes
            first=jnp.array(first),
            last=t >= horizon,
            metrics=jnp.stack([jnp.where(place.std() < 0.1, 1.0, 0.0)]),  # won: they have met when it ends
        )

    def reset(key):
        place, t = jax.random.uniform(key, (n,), minval=-1.0), jnp.array(0)
        return (place, t), make_step(place, t, reward=0.0, first=True)

    def step(key, state, action):
        place, t = state[0] + 0.1 * (action - 1), state[1] + 1
        return (place, t), make_step(place, t, reward=-place.std(), first=False)

    return shoal.Environment(spec, reset, step)


if __name__ == "__main__":
    run = shoal.train("mappo", "own_environment:meeting", steps=2e5)
    print(run.evaluate())
