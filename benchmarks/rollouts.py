"""What a policy costs a rollout: environment steps per second without one, with one, and on Ray.

    python benchmarks/rollouts.py                                   # worker processes and Ray
    python benchmarks/rollouts.py --envs 32 64 128 256 --no-ray
    python benchmarks/rollouts.py --tasks gymnasium:LunarLander-v3 --workers 4
    python benchmarks/rollouts.py --device                          # environments of JAX suites

Every line measures, one after another and several times over:

* ``raw``: the original package in a plain loop of this process, random actions, reset at ends;
* ``random``: Shoal's workers step as many environments as the line says, with random actions; two halves take turns as
  in a rollout, in turns of as many steps;
* ``policy``: a whole rollout by MAPPO's policy of 2 × 64, untrained: drawing keys, acting, stepping, the trajectory;
* ``Ray``: the same by as many actors as there are workers, parameters sent and trajectories joined; the workers of
  ``policy`` and ``random`` are idle meanwhile, as is Ray while they are measured.

Random actions are drawn before the clock starts. ``kept`` is the rate over ``random`` of the same round: the median of
all rounds, with the lowest and the highest; rates are medians. A measurement is made of whole rollouts, as many as fit
into ``--seconds`` and at least one, after two that do not count. ``--device`` is explained in device_rates.py.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

TASKS = ("pettingzoo:mpe2.simple_spread_v3", "mamujoco/Ant-4x2", "gymnasium:LunarLander-v3")
DRAWN = 64
"""Joint actions that are drawn beforehand, to be played over and over."""

Rates = dict[str, list[float]]


def rounds_of(measured: dict[str, Callable[[], int]], rounds: int, seconds: float) -> Rates:
    """Steps per second of everything in every round; what is measured returns how many steps it made."""
    for play in [*measured.values()] * 2:  # what a first call returns may be compiled for anew
        play()
    rates: Rates = {name: [] for name in measured}
    for _ in range(rounds):
        for name, play in measured.items():
            steps, began = 0, time.perf_counter()
            while (now := time.perf_counter() - began) < seconds or steps == 0:
                steps += play()
            rates[name].append(steps / now)
    return rates


def kept(rates: Rates, name: str, base: str) -> str:
    """The share of a rate that is left, with its spread."""
    ratios = [a / b for a, b in zip(rates[name], rates[base], strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f})"


def original(task: str) -> tuple[Callable[[int], Any], Callable[[Any], tuple[Any, ...]], Callable[[], Any]]:
    """The package's own (reset(seed), step(action), draw an action); step gives what PettingZoo and Gymnasium give."""
    if task.startswith("gymnasium:"):
        import gymnasium

        env: Any = gymnasium.make(task.removeprefix("gymnasium:"))
        env.action_space.seed(0)
        return lambda seed: env.reset(seed=seed), env.step, env.action_space.sample
    if task.startswith("mamujoco/"):
        with contextlib.redirect_stderr(io.StringIO()):
            from gymnasium_robotics import mamujoco_v1

        robot, parts = task.removeprefix("mamujoco/").split("-")
        env = mamujoco_v1.parallel_env(robot, parts)
    else:
        env = importlib.import_module(task.removeprefix("pettingzoo:")).parallel_env()
    spaces = {agent: env.action_space(agent) for agent in env.possible_agents}
    for seed, space in enumerate(spaces.values()):
        space.seed(seed)
    return lambda seed: env.reset(seed=seed), env.step, lambda: {a: space.sample() for a, space in spaces.items()}


def raw(task: str, steps: int = 256) -> Callable[[], int]:
    """Play the original package."""
    reset, step, draw = original(task)
    actions, episode = [draw() for _ in range(DRAWN)], 0
    reset(0)

    def play() -> int:
        nonlocal episode
        for t in range(steps):
            _, _, ended, cut, _ = step(actions[t % DRAWN])
            if all(ended.values()) or all(cut.values()) if isinstance(ended, dict) else ended or cut:
                episode += 1
                reset(episode)
        return steps

    return play


def algorithm_of(spec: Any, num_envs: int, length: int) -> Any:
    """MAPPO with actor and critic of 2 × 64."""
    from shoal import algorithms
    from shoal.options.flags import override
    from shoal.types import Scale

    module = algorithms.get("mappo")
    config = override(module.Config(), {"hidden": (64, 64), "minibatches": 1})
    return module.make(spec, config, Scale(num_envs, length, 1))


def stepping(pool: Any, length: int) -> Callable[[], int]:
    """Play a pool's games at random, its groups taking turns."""
    import numpy as np

    from shoal.types import Box

    space, board, groups = pool.env.spec.action, pool.board, range(len(pool.rows))
    rng, shape = np.random.default_rng(0), (DRAWN, *board.action.shape)
    if isinstance(space, Box):
        actions = rng.uniform(space.low, space.high, shape).astype(np.float32)
    else:
        actions = rng.integers(0, pool.env.spec.action_dims, shape, dtype=np.int32)
    board.seed[:] = rng.integers(0, 2**31 - 1, board.seed.shape)

    def order(group: int, t: int) -> None:
        rows = pool.rows[group]
        board.action[rows] = actions[t % DRAWN, rows]
        pool.step(group)

    def play() -> int:
        for group in groups:
            order(group, 0)
        for t in range(length):
            for group in groups:
                pool.wait(group)
                if t + 1 < length:
                    order(group, t + 1)
        return length * pool.size * len(groups)

    for group in groups:
        pool.reset(group)
    for group in groups:
        pool.wait(group)
    return play


@contextlib.contextmanager
def players(task: str, num_envs: int, workers: int | None, length: int, ray: bool) -> Iterator[dict[str, Any]]:
    """Everything that one line measures."""
    import jax

    import shoal
    from shoal.rollouts.host import HostRollout, Parallelism
    from shoal.rollouts.pool import Pool, workers_for
    from shoal.rollouts.ray import RayRollout, joined_chunks

    env: Any = shoal.make(task)
    parallelism = Parallelism(1, num_envs, workers)
    remake = partial(algorithm_of, env.spec, num_envs, length)
    algorithm = remake()
    learner = jax.vmap(algorithm.init)(jax.random.split(jax.random.key(0), 1))._replace(optimiser=())
    with contextlib.ExitStack() as held:
        here: Any = held.enter_context(
            contextlib.closing(HostRollout(env, algorithm.initial_carry, parallelism, length))
        )
        halves = len(here.halves)
        pool = Pool(env, halves, num_envs // halves, workers_for(num_envs // halves, workers))
        held.callback(pool.close)
        made = {"raw": raw(task), "random": stepping(pool, length)}
        here.init(jax.random.split(jax.random.key(0), 1))
        turn = 0

        def keys() -> Any:
            nonlocal turn
            turn += 1
            return jax.random.split(jax.random.key(turn), 1)

        def policy() -> int:
            here.collect(algorithm.act, learner, keys())
            return num_envs * length

        made["policy"] = policy
        if ray:
            there = RayRollout(env, remake, parallelism, length, None, print)
            held.callback(there.close)
            there.init(keys())

            def cluster() -> int:
                joined_chunks(there.collect(jax.device_get(learner), turn, keys(), True))
                return num_envs * length

            made["Ray"] = cluster
        yield made


def hosted(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A line for every task and number of environments."""
    from shoal.rollouts.ray import connect, library

    if arguments.ray:  # once for all lines
        connect(None, arguments.workers)
    table = []
    try:
        for task in arguments.tasks:
            for num_envs in arguments.envs:
                with players(task, num_envs, arguments.workers, arguments.length, arguments.ray) as made:
                    rates = rounds_of(made, arguments.rounds, arguments.seconds)
                medians = {f"{name}/s": round(statistics.median(found)) for name, found in rates.items()}
                row: dict[str, Any] = {"environment": task, "side by side": num_envs} | medians
                row |= {f"kept, {name}": kept(rates, name, "random") for name in ("policy", "Ray") if name in rates}
                table.append(row)
                print(row, file=sys.stderr)
    finally:
        if arguments.ray:
            library().shutdown()
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = os.cpu_count() or 1
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--envs", nargs="+", type=int, default=[64, 128], help="environments side by side")
    parser.add_argument("--workers", type=int, default=cores, help="processes, and Ray actors; one per core")
    parser.add_argument("--length", type=int, default=64, help="steps of a rollout")
    parser.add_argument("--seconds", type=float, default=0.5, help="of one measurement, at least")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-ray", dest="ray", action="store_false")
    parser.add_argument("--device", action="store_true", help="environments of JAX suites instead")
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

    if arguments.device:
        import device_rates

        table = device_rates.measure(rounds_of, kept, arguments.rounds, arguments.seconds)
    else:
        table = hosted(arguments)

    from shoal.plots.texts import markdown_table
    from shoal.storage.manifest import describe_machine

    print(f"\n{json.dumps(describe_machine(), indent=1)}\n\n{markdown_table(table)}")


if __name__ == "__main__":
    main()
