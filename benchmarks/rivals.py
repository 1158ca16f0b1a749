"""How far from the equilibrium independent learners end in zero-sum matrix games: exploitability of their policies.

    python benchmarks/rivals.py
    python benchmarks/rivals.py --algorithms mappo --seeds 50 --updates 2000

Both agents learn at once, from 32 single games in each update, with parameters of their own; all settings are
:data:`COMMON`, nothing is tuned. ``last`` is the exploitability of the last policies, the mean gain of a best response
(:func:`shoal.environments.matrix.exploitability`), computed from their probabilities; ``mean`` that of the mean of each
agent's policies over all updates. Given are means over seeds with 95 % intervals (Student's t). Where both are uniform
at the start they stay there only without noise; ``worst`` is what agents that play one action have.
"""

import argparse
import json
from typing import Any

COMMON: dict[str, Any] = {
    "sharing": "independent", "hidden": (32,), "learning_rate": 5e-3, "critic_learning_rate": 5e-3, "epochs": 4,
    "minibatches": 1, "value_norm": "running",
}  # fmt: skip
ENTROPIES = (0.0, 0.05, 0.2)
GAMES = ("rock_paper_scissors", "matching_pennies")
NUM_ENVS = 32


def exploitabilities(name: str, game: str, entropy: float, seeds: int, updates: int) -> tuple[Any, Any]:
    """[seeds] of the last policies, and of their mean over all updates."""
    import jax
    import numpy as np

    import shoal
    from shoal import algorithms
    from shoal.environments.matrix import MATCHING_PENNIES, ROCK_PAPER_SCISSORS, exploitability
    from shoal.options.flags import flags_of, override
    from shoal.rollouts import fused
    from shoal.types import Scale

    env: Any = shoal.make(f"matrix/{game}", horizon=1)
    module = algorithms.get(name)
    table = np.array(ROCK_PAPER_SCISSORS if game == "rock_paper_scissors" else MATCHING_PENNIES)
    asked = COMMON | {"entropy_coef": entropy}
    config = override(module.Config(), {k: v for k, v in asked.items() if k in flags_of(module.Config())})
    algorithm = module.make(env.spec, config, Scale(NUM_ENVS, 1, updates))
    rollout = fused.make_rollout(env, NUM_ENVS, 1)

    def policies(learner: Any, trajectory: Any) -> Any:
        step = jax.tree.map(lambda x: x[0], trajectory.step)
        carry = algorithm.initial_carry(NUM_ENVS)
        found = algorithm.inspect(learner, carry, step, trajectory.action[0], {})
        return found["probabilities"][0]

    def one(key: Any) -> Any:
        key_learner, key_rollout, key = jax.random.split(key, 3)
        state = algorithm.init(key_learner), rollout.init(key_rollout, algorithm.initial_carry(NUM_ENVS))

        def iterate(state: Any, key: Any) -> Any:
            learner, rolled = state
            key_rollout, key_update = jax.random.split(key)
            rolled, trajectory, _ = rollout.collect(algorithm.act, learner, rolled, key_rollout)
            learner = algorithm.update(learner, trajectory, key_update)[0]
            return (learner, rolled), policies(learner, trajectory)

        _, played = jax.lax.scan(iterate, state, jax.random.split(key, updates))
        payoffs = np.stack([table, -table])
        return exploitability(payoffs, played[-1]), exploitability(payoffs, played.mean(0))

    last, mean = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), seeds))
    return np.asarray(last), np.asarray(mean)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", default=["mappo", "happo", "maa2c"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--updates", type=int, default=1000, help=f"of {NUM_ENVS} games each")
    arguments = parser.parse_args()

    from scipy import stats

    from shoal.plots.texts import markdown_table
    from shoal.storage.manifest import describe_machine

    def text(values: Any) -> str:
        half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
        return f"{values.mean():.3f} [{values.mean() - half:.3f}, {values.mean() + half:.3f}]"

    rows = []
    for game in GAMES:
        for name in arguments.algorithms:
            for entropy in ENTROPIES:
                last, mean = exploitabilities(name, game, entropy, arguments.seeds, arguments.updates)
                row = {"game": game, "algorithm": name, "entropy": str(entropy), "last": text(last), "mean": text(mean)}
                rows.append(row)
                print(row, flush=True)
    print(f"\n{json.dumps(describe_machine(), indent=1)}\n\n{markdown_table(rows)}")


if __name__ == "__main__":
    main()
