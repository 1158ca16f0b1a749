"""Environment steps per second of skirmish maps under random legal actions, beside SMAX.

    python benchmarks/skirmish_rates.py                          # every map of SMAC
    python benchmarks/skirmish_rates.py 3m MMM2 --envs 64 256    # some, with other numbers of environments
    python benchmarks/skirmish_rates.py --smax                   # also the maps that JaxMARL's SMAX has (extra jaxmarl)
    python benchmarks/skirmish_rates.py --both 3m MMM            # also with both armies as agents, in turns
    python benchmarks/skirmish_rates.py --share 3m 2s3z          # the environment's part of MAPPO's training time
    python benchmarks/skirmish_rates.py hanabi/full-2p --read    # another device environment, of which nothing is kept

A rollout is the one that training uses: observations, states, legal actions, rewards and resets of ended episodes, with
a uniformly random legal action in place of the policy. It runs on one device for each core, each with its part of the
environments. Rates are medians over ``--rounds`` calls of ``--length`` steps, with the lowest and the highest;
``compile`` is the time to trace and compile. SMAX's rate is measured in turns with ours, in the same rollout. With
``--read`` the policy sums all that is observed, and only rewards are kept of the outcomes. ``--share`` times MAPPO's
preset and the rollout alone, both with the preset's number of environments.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

SMAX = (
    "3m",
    "2s3z",
    "25m",
    "3s5z",
    "8m",
    "5m_vs_6m",
    "10m_vs_11m",
    "27m_vs_30m",
    "3s5z_vs_3s6z",
    "3s_vs_5z",
    "6h_vs_8z",
)
"""SMAC's maps that SMAX has."""


def sampled(policy: Any, carry: Any, step: Any, key: Any, greedy: bool) -> tuple[Any, Any, dict[str, Any]]:
    """A uniformly random legal action of every agent, as the rollout's ``act``."""
    import jax
    import jax.numpy as jnp

    del policy, greedy
    drawn = jax.random.uniform(key, step.legal.shape)
    return carry, jnp.where(step.legal, drawn, -1.0).argmax(-1).astype(jnp.int32), {}


def reading(policy: Any, carry: Any, step: Any, key: Any, greedy: bool) -> tuple[Any, Any, dict[str, Any]]:
    """:func:`sampled`, and the sum of all that is observed."""
    _, action, _ = sampled(policy, carry, step, key, greedy)
    return carry, action, {"sum": step.obs.sum((1, 2)) + step.state.sum(1)}


def compiled(
    name: str, envs: int, length: int, read: bool = False, **options: Any
) -> tuple[Callable[[int], float], float]:
    """(round number -> seconds of one rollout on all devices, seconds to compile)."""
    import jax
    import jax.numpy as jnp

    from shoal.environments import registry
    from shoal.rollouts import fused
    from shoal.types import Environment

    devices = jax.local_devices()
    mesh = jax.make_mesh((len(devices),), ("devices",), (jax.sharding.AxisType.Auto,), devices=devices)
    env = registry.make(name, **options)
    assert isinstance(env, Environment)
    rollout = fused.make_rollout(env, envs // len(devices), length)
    shard = partial(jax.shard_map, mesh=mesh, check_vma=False)

    def here(key: Any) -> Any:
        return jax.random.fold_in(key, jax.lax.axis_index("devices"))

    def run(state: Any, key: Any) -> tuple[Any, Any]:
        state, trajectory, _ = rollout.collect(reading if read else sampled, (), state, here(key))
        # Everything is summed, so that the compiler removes nothing as unused.
        kept = (trajectory.extras, trajectory.outcome.reward) if read else trajectory.outcome
        sums = [leaf.sum(dtype=jnp.float32) for leaf in jax.tree.leaves(kept)]
        return state, jnp.stack(sums).sum()[None]

    axis = jax.P("devices")
    init = jax.jit(shard(lambda key: rollout.init(here(key), ()), in_specs=jax.P(), out_specs=axis))
    state = jax.block_until_ready(init(jax.random.key(0)))
    began = time.perf_counter()
    call = (
        jax.jit(shard(run, in_specs=(axis, jax.P()), out_specs=(axis, axis))).lower(state, jax.random.key(0)).compile()
    )
    compiling = time.perf_counter() - began
    kept = [state]

    def timed(number: int) -> float:
        started = time.perf_counter()
        kept[0], _ = jax.block_until_ready(call(kept[0], jax.random.key(number)))
        return time.perf_counter() - started

    timed(0)
    return timed, compiling


def rates(
    names: Sequence[tuple[str, dict[str, Any]]], envs: int, length: int, rounds: int, read: bool = False
) -> list[tuple[list[float], float]]:
    """(rates, seconds to compile) of each environment, a name and options, measured in turns."""
    made = [compiled(name, envs, length, read, **options) for name, options in names]
    found: list[list[float]] = [[] for _ in names]
    for number in range(1, rounds + 1):
        for each, (timed, _) in zip(found, made, strict=True):
            each.append(envs * length / timed(number))
    return [(each, compiling) for each, (_, compiling) in zip(found, made, strict=True)]


def text(values: list[float]) -> str:
    """The median with the lowest and the highest."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} … {max(values):,.0f})"


def share(task: str, rounds: int) -> str:
    """The environment's part of the time of MAPPO's preset."""
    import tempfile
    from pathlib import Path

    import shoal
    from shoal.presets import preset

    sizes = preset("mappo", f"skirmish/{task}")
    envs, length = int(sizes["num_envs"]), int(sizes["rollout_length"])
    with tempfile.TemporaryDirectory() as folder:
        flags: dict[str, Any] = {"steps": 20 * envs * length, "eval_episodes": 0, "tensorboard": False}
        run = shoal.train("mappo", f"skirmish/{task}", folder=Path(folder) / "run", progress=False, **flags)
        rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    training = statistics.median(row["steps_per_second"] for row in rows[2:])
    alone = statistics.median(rates([(f"skirmish/{task}", {})], envs, length, rounds)[0][0])
    return f"{task}: training {training:,.0f} steps/s, rollout alone {alone:,.0f} steps/s, share {training / alone:.0%}"


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--envs", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--smax", action="store_true")
    parser.add_argument("--both", action="store_true")
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--read", action="store_true")
    given = parser.parse_args()
    from shoal.environments.skirmish.maps import MAPS
    from shoal.storage.manifest import product_rate
    from shoal.training.sharding import one_device_per_core

    one_device_per_core()
    print(f"{product_rate() / 1e9:.0f} GFLOP/s in a 2048³ float32 product")
    for task in given.tasks or MAPS:
        if given.share:
            print(share(task, given.rounds), flush=True)
            continue
        for envs in given.envs:
            names: list[tuple[str, dict[str, Any]]] = [(task if "/" in task else f"skirmish/{task}", {})]
            names += [(f"skirmish/{task}", {"both": True})] if given.both else []
            names += [(f"jaxmarl/smax/{task}", {})] if given.smax and task in SMAX else []
            (own, compiling), *other = rates(names, envs, given.length, given.rounds, given.read)
            line = f"{task:<17} {envs:>5} environments  {text(own)}  compile {compiling:.1f} s"
            for (name, _), (there, _) in zip(names[1:], other, strict=True):
                ratio = statistics.median(a / b for a, b in zip(own, there, strict=True))
                title = "SMAX" if "smax" in name else "both armies"
                line += f"  {title} {text(there)}; the first is {ratio:.1f} times as fast"
            print(line, flush=True)


if __name__ == "__main__":
    main()
