"""Act with trained policies, each agent from its own observation: python examples/deploy.py runs/x

The environment can be replaced by anything that gives each agent its observation.
"""

import sys

import jax
import jax.numpy as jnp

import shoal


def main(folder: str) -> None:
    team = shoal.load(folder)
    agents = [team.agent(name) for name in team.agents]

    run = shoal.open_run(folder)
    env = run.env
    assert isinstance(env, shoal.Environment), "this example steps environments on the device only"
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    state, now = reset(jax.random.key(0))
    total = 0.0
    while not now.last:
        actions = jnp.array([agent.act(now.obs[i]) for i, agent in enumerate(agents)])
        state, now = step(jax.random.key(1), state, actions)
        total += float(now.reward.sum())
    print(f"{len(agents)} agents acted separately; their rewards sum to {total:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
