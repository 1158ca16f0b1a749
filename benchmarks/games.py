"""Who finds the optimum of the matrix games: every algorithm, several seeds, a few thousand steps.

    python benchmarks/games.py
    python benchmarks/games.py --algorithms mappo lica --seeds 50 --updates 500

Single games (``horizon=1``; ``two_step`` has two steps). All algorithms have the same settings, :data:`COMMON`, as
far as they have such an option, and their own defaults elsewhere: nothing is tuned to a game. Agents share no
parameters, except where an algorithm refuses that. A seed counts where the greedy joint action, played once after
training, earns the optimum. Games of one shape are trained side by side in one program, with the same keys.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

COMMON: dict[str, Any] = {
    "sharing": "independent",
    "hidden": (32,),
    "learning_rate": 5e-3,
    "critic_learning_rate": 5e-3,
    "lr_final": 0.1,
    "entropy_coef": 0.1,
    "entropy_final": 0.0,
    "epochs": 4,
    "minibatches": 1,
    "value_norm": "running",
    "target_interval": 10,
}
REPLAY: dict[str, Any] = {
    "batch_size": 128,
    "buffer_size": 8192,
    "learning_starts": 256,
    "gradient_steps": 4,
    "epsilon_fraction": 0.5,
    "max_grad_norm": 10.0,
}
"""What is added where an algorithm learns from a replay buffer."""
JOINT: dict[str, Any] = {"sharing": "shared", "critic_learning_rate": None}
"""What replaces some of it where an algorithm has one network for all, or for actors and critic."""
NUM_ENVS = 32
GAMES: dict[str, tuple[str, dict[str, Any], float]] = {
    "climbing": ("matrix/climbing", {"horizon": 1}, 11.0),
    **{f"penalty {k}": ("matrix/penalty", {"k": float(k), "horizon": 1}, 10.0) for k in (0, -25, -50, -75, -100)},
    "monotonicity": ("matrix/monotonicity", {"horizon": 1}, 8.0),
    "two_step": ("matrix/two_step", {}, 8.0),
    "traffic": ("matrix/traffic_junction", {"horizon": 1}, 1.0),
}


def one_of(envs: Sequence[Any], which: Any) -> Any:
    """The game number ``which`` (a tracer), among games of one shape."""
    import dataclasses

    import jax

    def reset(key: Any) -> Any:
        return jax.lax.switch(which, [env.reset for env in envs], key)

    def step(key: Any, state: Any, action: Any) -> Any:
        return jax.lax.switch(which, [env.step for env in envs], key, state, action)

    return dataclasses.replace(envs[0], reset=reset, step=step)


def greedy_returns(name: str, envs: Sequence[Any], seeds: int, updates: int, key: int) -> Any:
    """[games, seeds] what the greedy joint action earns after training; the seeds are split from ``key``.

    Raises:
        InputError: the algorithm refuses games like these.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from shoal import algorithms
    from shoal.errors import InputError
    from shoal.options.flags import override
    from shoal.rollouts import fused
    from shoal.training import feed
    from shoal.training.program import trajectory_shape
    from shoal.types import Scale

    module, spec = algorithms.get(name), envs[0].spec
    horizon = spec.horizon
    common = dict(COMMON)
    if getattr(module.Config(), "target_rate", None) is not None:
        del common["target_interval"]  # its targets are never copied
    config, scale = override(module.Config(), common), Scale(NUM_ENVS, horizon, updates)
    if hasattr(config, "buffer_size"):
        config = override(config, REPLAY)
    try:
        algorithm = module.make(spec, config, scale)
    except InputError:
        algorithm = module.make(spec, override(config, JOINT), scale)

    def one(which: Any, key: Any) -> Any:
        env = one_of(envs, which)
        key_learner, key_rollout, key_play, key = jax.random.split(key, 4)
        rollout, play = fused.make_rollout(env, NUM_ENVS, horizon), fused.make_rollout(env, 1, horizon, greedy=True)
        fed = feed.make_feed(algorithm.replay, trajectory_shape(algorithm, rollout, NUM_ENVS), NUM_ENVS, 1)
        state = algorithm.init(key_learner), rollout.init(key_rollout, algorithm.initial_carry(NUM_ENVS)), fed.init()

        def iterate(state: Any, key: Any) -> Any:
            learner, rolled, stored = state
            key_rollout, key_update = jax.random.split(key)
            rolled, trajectory, _ = rollout.collect(algorithm.act, learner, rolled, key_rollout)
            stored = fed.put(stored, trajectory)
            batch = fed.take(stored, trajectory, jax.random.fold_in(key, 0))
            learned = algorithm.update(learner, batch, key_update)[0]
            if fed.ready is not None:
                ready = fed.ready(stored)
                learned = jax.tree.map(lambda new, old: jnp.where(ready, new, old), learned, learner)
            return (learned, rolled, stored), None

        (learner, *_), _ = jax.lax.scan(iterate, state, jax.random.split(key, updates))
        start = play.init(key_play, algorithm.initial_carry(1))
        _, trajectory, _ = play.collect(algorithm.act, learner, start, key_play)
        return trajectory.outcome.reward[..., 0].sum()

    keys = jax.random.split(jax.random.key(key), seeds)
    every = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
    return np.asarray(every(jnp.arange(len(envs)), keys))


def shapes() -> list[list[str]]:
    """Names of games that one program can train side by side."""
    import shoal

    groups: dict[Any, list[str]] = {}
    for title, (name, options, _) in GAMES.items():
        spec = shoal.make(name, **options).spec
        groups.setdefault((spec.obs_dims, spec.action_dims, spec.horizon), []).append(title)
    return list(groups.values())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", help="default: all of them")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--updates", type=int, default=250, help=f"of {NUM_ENVS} episodes each")
    parser.add_argument("--key", type=int, default=0, help="of the seeds; the published table has 0")
    arguments = parser.parse_args()

    import shoal
    from shoal import algorithms
    from shoal.errors import InputError
    from shoal.plots.texts import markdown_table
    from shoal.storage.manifest import describe_machine

    rows = []
    for name in arguments.algorithms or algorithms.NAMES:
        began, row = time.monotonic(), {"algorithm": name}
        for group in shapes():
            envs = [shoal.make(GAMES[title][0], **GAMES[title][1]) for title in group]
            try:
                returns = greedy_returns(name, envs, arguments.seeds, arguments.updates, arguments.key)
            except InputError as refusal:
                print(f"{name} does not play {', '.join(group)}: {refusal}", file=sys.stderr)
                continue
            for title, earned in zip(group, returns, strict=True):
                row[title] = f"{(earned > GAMES[title][2] - 1e-3).mean():.0%} ({earned.mean():.1f})"
        rows.append({title: row.get(title) for title in ("algorithm", *GAMES)})
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(f"\n{json.dumps(describe_machine(), indent=1)}\n\n{markdown_table(rows)}")


if __name__ == "__main__":
    main()
