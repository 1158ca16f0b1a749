"""A trained team in a plain PettingZoo loop: python examples/deploy_pettingzoo.py runs/x mpe2.simple_spread_v3

The run was trained in the same environment, for example by

shoal train mappo pettingzoo:mpe2.simple_spread_v3 --steps 2e5 --folder runs/x
"""

import importlib
import sys

import shoal


def play(team, env, seed: int = 0) -> float:
    """The sum of all rewards in one episode of an environment whose agents act at once."""
    observations, infos = env.reset(seed=seed)
    team.reset()
    total = 0.0
    while env.agents:
        actions = team.act(observations, infos=infos, alive=env.agents)
        observations, rewards, _, _, infos = env.step(actions)
        total += sum(rewards.values())
    return total


def play_turns(team, env, seed: int = 0) -> float:
    """The same where agents take turns."""
    env.reset(seed=seed)
    team.reset()
    total = 0.0
    for agent in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        total += reward
        if terminated or truncated:
            env.step(None)
            continue
        here = [name for name in env.agents if not (env.terminations[name] or env.truncations[name])]
        observations = {name: env.observe(name) for name in here}  # a recurrent policy needs every move
        env.step(team.act(observations, infos=env.infos, turn=agent)[agent])
    return total


def main(folder: str, module: str) -> None:
    team = shoal.load(folder)
    print(team)
    made = importlib.import_module(module)
    if hasattr(made, "parallel_env"):
        print(f"rewards sum to {play(team, made.parallel_env()):.2f}")
    else:
        print(f"rewards sum to {play_turns(team, made.env()):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
