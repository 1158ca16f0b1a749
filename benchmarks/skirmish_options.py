"""What options of ``skirmish/…``, and constants that are not known of the game, change: scripts' win rates, and speed.

    python benchmarks/skirmish_options.py                         # a few maps
    python benchmarks/skirmish_options.py 3m MMM2 --battles 256   # others, with fewer battles

One row for each map and value: the share of battles that the scripts win, with its 95 % interval, and environment steps
per second of the same rollout. The first row of a map has the defaults; each other row changes one of them. Values of
options are set by ``make``; those of constants by replacing them in their modules. Rows that cannot differ on a map,
such as a baneling's damage on one without banelings, are left out.

A program is compiled for each row. It plays both scripts, one after the other, ``--envs`` battles at once on one device
for each core, with the same keys in each row.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

MAPS = ("8m", "2s3z", "3s5z", "3s_vs_5z", "MMM", "corridor", "bane_vs_bane")
SCRIPTS = ("attack-nearest", "focus-fire")


@dataclass(frozen=True)
class Row:
    """A change of the defaults."""

    title: str
    options: dict[str, Any] = field(default_factory=dict)
    """Of ``make``."""
    constants: dict[str, float] = field(default_factory=dict)
    """Of a module, by ``module.NAME``."""
    unit: str | None = None
    """The type of units that the row is about; maps without it lack the row."""
    changes: dict[str, float] = field(default_factory=dict)
    """Fields of that type."""
    armed: tuple[str, ...] = ()
    """The same for several types: maps without any of them lack the row."""


ROWS = (
    Row("default"),
    Row("target_search = step", {"target_search": "step"}),
    Row(
        "weapons = multiplayer",
        {"weapons": "multiplayer"},
        armed=("marine", "marauder", "stalker", "colossus", "hydralisk", "spine_crawler"),
    ),
    Row("damage = sequential", {"damage": "sequential"}),
    Row("delay_noise = False", {"delay_noise": False}),
    Row("provoked_scan = 0", {"provoked_scan": 0.0}),
    Row("provoked_scan = 15", {"provoked_scan": 15.0}),
    Row("leash = 21", {"leash": 21.0}),
    Row("start_gap = 0", {"start_gap": 0.0}),
    Row("start_gap = 0.5", {"start_gap": 0.5}),
    Row("provoked for 0.5 s", constants={"targets.PROVOKED": 8.0}),
    Row("idle healers stay 1 behind", constants={"engine.FOLLOW": 1.0}, unit="medivac"),
    Row("idle healers stay 4 behind", constants={"engine.FOLLOW": 4.0}, unit="medivac"),
    Row("medivacs accelerate at once", unit="medivac", changes={"acceleration": 0.0}),
    Row("banelings: 16, 35 to light", unit="baneling", changes={"damage": 16.0, "light_bonus": 19.0}),
    Row("banelings: 80", unit="baneling", changes={"damage": 80.0, "light_bonus": 0.0}),
)


@contextmanager
def changed(row: Row) -> Iterator[None]:
    """The package with a row's constants and units."""
    from shoal.environments.skirmish import engine, fighting
    from shoal.environments.skirmish.units import UNITS

    modules = {"engine": engine, "targets": fighting}
    places = [(modules[name.split(".")[0]], name.split(".")[1], value) for name, value in row.constants.items()]
    before = [getattr(module, name) for module, name, _ in places]
    unit = UNITS[row.unit] if row.unit else None
    try:
        for module, name, value in places:
            setattr(module, name, value)
        if unit:
            UNITS[unit.name] = replace(unit, **row.changes)
        yield
    finally:
        for (module, name, _), value in zip(places, before, strict=True):
            setattr(module, name, value)
        if unit:
            UNITS[unit.name] = unit


def program(name: str, row: Row, envs: int) -> Callable[[int, int], tuple[Any, int]]:
    """(key, number of the script) -> (whether each battle was won, steps of all environments)."""
    import jax
    import jax.numpy as jnp

    from shoal.environments import registry
    from shoal.environments.skirmish.scripts import chosen
    from shoal.environments.skirmish.tasks import battle_of
    from shoal.types import Environment

    env = registry.make(f"skirmish/{name}", **row.options)
    assert isinstance(env, Environment) and env.batched is not None
    found, batched = battle_of(env.spec), env.batched
    assert found is not None
    battle, devices = found[0], jax.local_devices()
    mesh = jax.make_mesh((len(devices),), ("devices",), (jax.sharding.AxisType.Auto,), devices=devices)
    count = envs // len(devices)

    def play(key: Any, script: Any) -> tuple[Any, Any]:
        key_start, key = jax.random.split(jax.random.fold_in(key, jax.lax.axis_index("devices")))
        state, step = batched.reset(key_start, count)
        no = jnp.zeros(count, bool)

        def body(now: Any) -> Any:
            state, step, over, won, t = now
            key_act, key_step = jax.random.split(jax.random.fold_in(key, t))
            actions = [chosen(battle, each, step, key_act) for each in SCRIPTS]
            action = jnp.where(script == 0, *actions)
            state, step = batched.step(key_step, state, action)
            won = won | (~over & (jnp.asarray(step.metrics)[:, 0] > 0.0))
            return state, step, over | step.last, won, t + 1

        start = (state, step, no, no, jnp.zeros((), jnp.int32))
        *_, won, t = jax.lax.while_loop(lambda now: ~now[2].all(), body, start)
        return won, t[None]

    axis = jax.P("devices")
    run = partial(jax.shard_map, mesh=mesh, check_vma=False)(play, in_specs=(jax.P(), jax.P()), out_specs=(axis, axis))
    compiled = jax.jit(run).lower(jax.random.key(0), jnp.int32(0)).compile()

    def played(key: int, script: int) -> tuple[Any, int]:
        won, steps = jax.block_until_ready(compiled(jax.random.key(key), jnp.int32(script)))
        return won, count * int(steps.sum())

    played(0, 0)  # the first call is slower
    return played


def text(won: Any) -> str:
    """The share of battles won with its interval; only the share where all ended alike."""
    import numpy as np

    from shoal.statistics.intervals import interval

    share, low, high = interval(np.asarray(won, float))
    return f"{share:.0f}" if share in (0.0, 1.0) else f"{share:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=MAPS)
    parser.add_argument("--battles", type=int, default=1024)
    parser.add_argument("--envs", type=int, default=256)
    given = parser.parse_args()
    import numpy as np

    from shoal.environments.skirmish import maps
    from shoal.training.sharding import one_device_per_core

    one_device_per_core()
    print("| map | value |", " | ".join(SCRIPTS), "| steps per second |")
    print("| --- | ----- |", " | ".join("---:" for _ in SCRIPTS), "| ---: |")
    for task in given.tasks:
        units = {unit.name for unit in (*maps.MAPS[task].ally_units, *maps.MAPS[task].enemy_units)}
        for row in ROWS:
            if (row.unit and row.unit not in units) or (row.armed and units.isdisjoint(row.armed)):
                continue
            with changed(row):
                run = program(task, row, given.envs)
            began, steps, shares = time.perf_counter(), 0, []
            for script in range(len(SCRIPTS)):
                parts = [run(key, script) for key in range(-(-given.battles // given.envs))]
                steps += sum(part for _, part in parts)
                shares.append(text(np.concatenate([np.asarray(won) for won, _ in parts])[: given.battles]))
            rate = steps / (time.perf_counter() - began)
            print(f"| `{task}` | {row.title} |", " | ".join(shares), f"| {rate:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
