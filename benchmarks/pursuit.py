"""How fast grid/pursuit is beside PettingZoo's Pursuit, and what random play scores in both.

    python benchmarks/pursuit.py

Both play uniformly random actions. Shoal's side is a compiled rollout, PettingZoo's ``parallel_env`` a plain loop over
one environment in one process. A step is one of all eight pursuers. The sides alternate in five rounds; the medians are
printed with the lowest and the highest round.
"""

import statistics
import time

import numpy as np
from pettingzoo.sisl import pursuit_v5

import shoal
from stag_hunt import play, random_play, speed

ROUNDS, ENVS, EPISODES = 5, (1, 32, 256), 8


def plain_loop(steps: int = 500) -> tuple[float, float]:
    """Steps per second of PettingZoo's environment, and the score of the episode: the sum of all agents' returns."""
    env, random = pursuit_v5.parallel_env(), np.random.default_rng()
    env.reset()
    score, start = 0.0, time.perf_counter()
    for _ in range(steps):
        _, reward, *_ = env.step({agent: int(random.integers(5)) for agent in env.agents})
        score += sum(reward.values())
    return steps / (time.perf_counter() - start), score


def main() -> None:
    """Print the scores, then the speeds."""
    env = shoal.make("grid/pursuit")
    returns = play(env, lambda _, step, key: random_play(step, key), 1000)[0] * env.spec.num_agents
    theirs = [plain_loop()[1] for _ in range(EPISODES)]
    for name, scores in (("grid/pursuit", np.asarray(returns)), ("PettingZoo", np.asarray(theirs))):
        error = scores.std(ddof=1) / len(scores) ** 0.5
        print(f"{name}, random: {scores.mean():.1f} ± {error:.1f} (standard error of {len(scores)} episodes)")
    rates: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        rates.setdefault("PettingZoo, 1 environment", []).append(plain_loop()[0])
        for num_envs in ENVS:
            rates.setdefault(f"grid/pursuit, {num_envs} environments", []).append(speed(env, num_envs))
    base = statistics.median(rates["PettingZoo, 1 environment"])
    for name, found in rates.items():
        middle = statistics.median(found)
        print(f"{name}: {middle:,.0f} steps/s ({min(found):,.0f} … {max(found):,.0f}), {middle / base:.0f} times")


if __name__ == "__main__":
    main()
