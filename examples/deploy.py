"""Act with trained policies, each agent from its own observation: python examples/deploy.py runs/x

The environment can be replaced by anything that gives each agent its observation and, where some actions are illegal at
times, the mask of its legal ones. Without a mask all actions count as legal.
"""

import sys

import jax
import jax.numpy as jnp

import shoal


def joint(space, actions):
    """The actions as one array, as environments on the device take them: numbers are padded to the widest agent's."""
    if isinstance(space, shoal.Discrete):
        return jnp.array(actions)
    return jnp.stack([jnp.pad(action, (0, space.dim - len(action))) for action in actions])


def main(folder: str, episodes: int = 3) -> None:
    team = shoal.load(folder)
    agents = [team.agent(name, sample_seed=i) for i, name in enumerate(team.agents)]

    env = shoal.open_run(folder).unwrapped_env  # agents stack frames, append last actions and so on themselves
    assert isinstance(env, shoal.Environment), "this example steps environments on the device only"
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    for key in jax.random.split(jax.random.key(0), episodes):
        for agent in agents:
            agent.reset()  # at the start of every episode
        key_reset, key = jax.random.split(key)
        state, now = reset(key_reset)
        returns = jnp.zeros(len(agents))
        for _ in range(team.spec.horizon):  # its time limit, that of training if there was one
            actions = [agent.act(now.obs[i], now.legal[i], alive=bool(now.alive[i])) for i, agent in enumerate(agents)]
            key_step, key = jax.random.split(key)
            state, now = step(key_step, state, joint(env.spec.action, actions))
            returns += now.reward
            if now.last:
                break
        print(f"{len(agents)} agents acted separately; the score of their episode is {env.spec.scores(returns):.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
