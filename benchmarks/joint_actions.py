"""How the joint action space and critics that read joint actions grow with the number of agents.

    python benchmarks/joint_actions.py

For each number of agents: the joint actions |A|ⁿ, the weights of an output layer with a value for each of them, and the
weights of one critic of COMA, of MADDPG and of MAPPO, which reads no actions. ``matrix/all_ones`` has the network of
the study half_to_the_n, one layer of 16; ``mpe/simple_spread`` two of 64. Critics read all observations, which on
spread grow with the agents themselves. Nothing is trained.
"""

from collections.abc import Sequence
from typing import Any

GAMES: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    ("matrix/all_ones", (16,), (2, 4, 8)),
    ("mpe/simple_spread", (64, 64), (3, 6, 12)),
)
METHODS = ("coma", "maddpg", "mappo")


def weights(name: str, env: Any, hidden: Sequence[int]) -> int:
    """The number of weights of one critic: of one agent's, where each has its own."""
    import jax

    from shoal import algorithms
    from shoal.options.flags import override
    from shoal.types import Scale

    module = algorithms.get(name)
    algorithm = module.make(env.spec, override(module.Config(), {"hidden": tuple(hidden)}), Scale(8, 16, 8000))
    critic = jax.eval_shape(algorithm.init, jax.random.key(0)).critic
    return sum(leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(critic))


def main() -> None:
    """Print a table."""
    import shoal
    from shoal.types import Discrete

    print("| environment | agents | joint actions | an output for each | " + " | ".join(METHODS) + " |")
    print("| ----------- | -----: | ------------: | -----------------: |" + " ---: |" * len(METHODS))
    for name, hidden, counts in GAMES:
        for count in counts:
            env = shoal.make(name, num_agents=count)
            space = env.spec.action
            assert isinstance(space, Discrete)
            joint = space.n**count
            found = [f"{weights(method, env, hidden):,}" for method in METHODS]
            print(f"| `{name}` | {count} | {joint:,} | {(hidden[-1] + 1) * joint:,} | {' | '.join(found)} |")


if __name__ == "__main__":
    main()
