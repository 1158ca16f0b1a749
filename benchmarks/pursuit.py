"""How fast grid/pursuit is beside PettingZoo's Pursuit, and what random play scores in both.

    python benchmarks/pursuit.py
    python benchmarks/pursuit.py --run runs/NAME

Both play uniformly random actions. Shoal's side is a compiled rollout, PettingZoo's ``parallel_env`` a plain loop over
one environment in one process. A step is one of all eight pursuers. The sides alternate in five rounds; the medians are
printed with the lowest and the highest round. With ``--run`` the policies of a run in grid/pursuit play PettingZoo's
environment instead, with drawn actions, and the score of each seed is printed.
"""

import argparse
import statistics
import time

import numpy as np
from pettingzoo.sisl.pursuit import pursuit  # pursuit_v5, whose own module warns that it is deprecated

import shoal
from shoal.deploy import Policies
from shoal.types import Environment
from stag_hunt import play, random_play, speed

ROUNDS, ENVS, EPISODES = 5, (1, 32, 256), 8


def plain_loop(policies: Policies | None = None) -> tuple[float, float]:
    """Steps per second in an episode of PettingZoo's environment, and its score: the sum of all agents' returns."""
    env, random = pursuit.parallel_env(), np.random.default_rng()
    observations, _ = env.reset()
    score, steps, start = 0.0, 0, time.perf_counter()
    if policies is not None:
        policies.reset()
    while names := env.agents:
        if policies is None:
            actions = random.integers(0, 5, len(names))
        else:
            actions = policies.act(np.stack([observations[name].reshape(-1) for name in names]))
        chosen = {name: int(action) for name, action in zip(names, actions, strict=True)}
        observations, reward, *_ = env.step(chosen)
        score, steps = score + sum(reward.values()), steps + 1
    return steps / (time.perf_counter() - start), score


def transferred(folder: str) -> None:
    """Print what the policies of a run in grid/pursuit score in PettingZoo's environment."""
    for seed in range(shoal.open_run(folder).settings.seeds):
        policies = shoal.load(folder, seed=seed, greedy=False)
        scores = [plain_loop(policies)[1] for _ in range(EPISODES)]
        print(f"seed {seed}: {np.mean(scores):.1f} ± {np.std(scores, ddof=1) / EPISODES**0.5:.1f}, {EPISODES} episodes")


def main() -> None:
    """Compare the two, or play a run's policies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", help="folder of a run whose policies play PettingZoo's environment")
    if folder := parser.parse_args().run:
        transferred(folder)
    else:
        compare()


def compare() -> None:
    """Print the scores of random play, then the speeds."""
    env = shoal.make("grid/pursuit")
    assert isinstance(env, Environment)
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
