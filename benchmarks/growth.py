"""How the cost of training grows with agents, environments, rollouts, episodes and seeds.

    python benchmarks/growth.py                 # all sweeps
    python benchmarks/growth.py agents seeds    # some

MAPPO on mpe/simple_spread as in ``throughput.py``: 2 × 64 tanh, 4 epochs × 4 minibatches. One size changes in each
sweep. A row is a process of its own, with calls of half a second; the median of the repetitions is given with the
lowest and the highest. *MiB of program* are the arguments, results and temporary arrays of the compiled program on all
devices; *peak MiB* those of the process, XLA's compiler included. *Exponents* are the slopes of an update's time, of
the arithmetic of its matrix products, of the program's memory and of the compile time over the size that changes, all
in logarithms: between a row and the one before, and fitted to all rows (the last line). 1 is linear growth.
"""

import argparse
import json
import os
import sys

import numpy as np

from throughput import measure, run_worker

SIZES = {"num_envs": 16, "rollout_length": 25}
SWEEPS = {
    "num_agents": (SIZES, (3, 6, 12, 25, 50, 100)),
    "num_envs": (SIZES, (16, 64, 256, 1024, 4096, 16_384)),
    "rollout_length": (SIZES, (25, 100, 400, 1600)),
    "horizon": (SIZES | {"rollout_length": 100}, (25, 100, 400, 1600)),
    "seeds": (SIZES, (1, 2, 4, 8, 16, 32, 64)),
}
SHORT = {
    "agents": "num_agents",
    "envs": "num_envs",
    "rollout": "rollout_length",
    "episode": "horizon",
    "seeds": "seeds",
}


def slopes(sizes: list[float], values: list[float]) -> tuple[list[float], float]:
    """Exponents between neighbours, and of all."""
    x, y = np.log(sizes), np.log(values)
    return list(np.diff(y) / np.diff(x)), float(np.polyfit(x, y, 1)[0])


def table_of(flags: list[dict], name: str, rows: list[dict]) -> list[dict]:
    """The rows of the table, and a last one of the exponents of all."""
    steps = [one["num_envs"] * one["rollout_length"] * one.get("seeds", 1) for one in flags]
    of_update = {
        "time": [n / row["steps_per_second"] for n, row in zip(steps, rows, strict=True)],
        "arithmetic": [n * row["flop_per_step"] for n, row in zip(steps, rows, strict=True)],
        "memory": [row["program_mib"] for row in rows],
        "compile": [row["compile"] for row in rows],
    }
    found = {what: slopes([one[name] for one in flags], values) for what, values in of_update.items()}
    table = [
        {
            name: f"{one[name]:,}",
            "env-steps/s": f"{row['steps_per_second']:,.0f}",
            "lowest … highest": f"{row['lowest']:,.0f} … {row['highest']:,.0f}",
            "MFLOP/step": f"{row['flop_per_step'] / 1e6:.2f}",
            "ms of an update": f"{1000 * of_update['time'][i]:,.1f}",
            "MiB of program": f"{row['program_mib']:,.1f}",
            "peak MiB": f"{row['peak_mib']:,.0f}",
            "compile s": f"{row['compile']:.1f}",
            "exponents": ", ".join(f"{slope[i - 1]:.2f}" for slope, _ in found.values()) if i else "",
        }
        for i, (one, row) in enumerate(zip(flags, rows, strict=True))
    ]
    fitted = ", ".join(f"{slope:.2f}" for _, slope in found.values())
    return [*table, dict.fromkeys(table[0], "") | {name: "all", "exponents": fitted}]


def main() -> None:
    """Print a table for each sweep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="*", help=f"of {', '.join(SHORT)}; default: all")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if arguments.worker:
        print(json.dumps(measure("", json.loads(arguments.worker), arguments.repetitions, seconds=0.5)))
        return

    from shoal.plots.texts import markdown_table
    from shoal.storage.manifest import describe_machine

    for word in arguments.sweeps or SHORT:
        name = SHORT[word]
        fixed, sizes = SWEEPS[name]
        flags = [fixed | {name: size} for size in sizes]
        rows = []
        for one in flags:
            common = ("--repetitions", str(arguments.repetitions))
            rows.append(run_worker("--worker", json.dumps(one), *common, script=__file__))
            print(f"{name} {one[name]}: {rows[-1]['steps_per_second']:,.0f} env-steps/s", file=sys.stderr, flush=True)
        print(f"\n{word}\n\n{markdown_table(table_of(flags, name, rows))}", flush=True)
    print(f"\n{json.dumps(describe_machine(), indent=1)}")


if __name__ == "__main__":
    main()
