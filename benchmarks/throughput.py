"""Training throughput: environment steps per second, everything included, beside what the machine could do.

    python benchmarks/throughput.py                  # MAPPO's rows
    python benchmarks/throughput.py 16x128 seeds8    # some
    python benchmarks/throughput.py algorithms       # a row for each algorithm
    python benchmarks/throughput.py agents           # HAPPO, independent MAPPO, MAT and Sable with 3, 10 and 27 agents
    python benchmarks/throughput.py replay           # off-policy algorithms, and replay buffers of growing capacity
    python benchmarks/throughput.py --device gpu     # on an accelerator

mpe/simple_spread (3 agents or as the row says, 25-step episodes), actors and critic 2 × 64 tanh, 4 epochs × 4
minibatches for algorithms that have them; algorithms' rows are 128 environments × 128 steps. Each row is a process of
its own: start-up, compilation and peak memory are that row's. A repetition is one call of the compiled program of about
a second; the median is given with the lowest and the highest. ``share`` is the arithmetic of the nets' matrix products
in one second over the rate of a 2048³ float32 product on the same machine, measured just before. FLOP counts products.
MAPPO's are the rollout's actor pass, two critic passes for the targets, and three passes (one forward, two backward)
per epoch; the first layer has no gradient of its input. Those of other algorithms are read from the traced program, in
which a loop of unknown length (HATRPO's conjugate gradients) counts once, and sums of narrow layers do not.
``agent-steps/s`` are environment steps times agents, and ``passes`` is how often the policy's gradient steps use each
sample: the epochs, or with a replay buffer the samples of all gradient steps per collected step. Row ``once`` is
128 × 128 with one epoch and one minibatch: one gradient step for each rollout.
Off-policy rows take 4 gradient steps after each rollout of 16 environments × 25 steps, from a buffer on
the device.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

import units
from programs import Calls, build, flop_of_program, flop_per_step

BEGAN = time.monotonic()

ROWS = {
    "16x128": {"num_envs": 16, "rollout_length": 128},
    "128x128": {"num_envs": 128, "rollout_length": 128},
    "1024x25": {"num_envs": 1024, "rollout_length": 25},
    "once": {"num_envs": 128, "rollout_length": 128, "epochs": 1, "minibatches": 1},
    "gru64": {"num_envs": 128, "rollout_length": 128, "recurrent": 64},
    "seeds8": {"num_envs": 16, "rollout_length": 128, "seeds": 8},
}
ACCELERATOR_ROWS = {"8192x25": {"num_envs": 8192, "rollout_length": 25}}
WIDE = {"num_envs": 128, "rollout_length": 128}
ALGORITHM_ROWS = {
    "mappo": WIDE,
    "mappo-independent": WIDE | {"algorithm": "mappo", "sharing": "independent"},
    **{
        name: WIDE | {"algorithm": name}
        for name in (
            "ippo",
            "commnet",
            "tarmac",
            "happo",
            "hatrpo",
            "haa2c",
            "mat",
            "mat_dec",
            "poca",
            "sable",
            "magpo",
            "maa2c",
            "ia2c",
            "coma",
            "lica",
            "mapg",
        )
    },
    "ipqn": WIDE | {"algorithm": "ipqn", "hidden": (64, 64)},
    "pqn_vdn": WIDE | {"algorithm": "pqn_vdn", "hidden": (64, 64)},
    "pqn_vdn-gru64": WIDE | {"algorithm": "pqn_vdn", "hidden": (64,), "recurrent": 64},
}
AGENT_ROWS = {
    f"{name}-{n}-agents": {
        "num_envs": 32,
        "rollout_length": 25,
        "algorithm": name,
        "sharing": "independent",
        "num_agents": n,
    }
    for n in (3, 10, 27)
    for name in ("mappo", "happo")
} | {
    f"{name}-{n}-agents": {"num_envs": 32, "rollout_length": 25, "algorithm": name, "num_agents": n}
    for n in (3, 10, 27)
    for name in ("mat", "sable")
}
OFF = {"num_envs": 16, "rollout_length": 25, "learning_starts": 1000, "gradient_steps": 4}
REPLAY_ROWS = {
    "iql": OFF | {"algorithm": "iql", "batch_size": 256},
    "vdn": OFF | {"algorithm": "vdn", "batch_size": 256},
    "qmix": OFF | {"algorithm": "qmix", "batch_size": 256},
    "qmix-gru64": OFF | {"algorithm": "qmix", "batch_size": 32, "sequence_length": 25, "recurrent": 64},
    "qplex": OFF | {"algorithm": "qplex", "batch_size": 256},
    "qtran": OFF | {"algorithm": "qtran", "batch_size": 256},
    "shaq": OFF | {"algorithm": "shaq", "batch_size": 256},
    "maddpg": OFF | {"algorithm": "maddpg", "batch_size": 1024},
    "maddpg-inferred": OFF | {"algorithm": "maddpg", "batch_size": 1024, "policies": "inferred"},
    "maddpg-ensemble3": OFF | {"algorithm": "maddpg", "batch_size": 1024, "ensemble": 3},
    "iddpg": OFF | {"algorithm": "iddpg", "batch_size": 1024},
    "matd3": OFF | {"algorithm": "matd3", "batch_size": 1024},
    "facmac": OFF | {"algorithm": "facmac", "batch_size": 1024, "hidden": (64, 64)},
    "haddpg": OFF | {"algorithm": "haddpg", "batch_size": 1024, "hidden": (64, 64)},
    "hatd3": OFF | {"algorithm": "hatd3", "batch_size": 1024, "hidden": (64, 64)},
    "isac": OFF | {"algorithm": "isac", "batch_size": 1024, "hidden": (64, 64)},
    "masac": OFF | {"algorithm": "masac", "batch_size": 1024, "hidden": (64, 64)},
    "hasac": OFF | {"algorithm": "hasac", "batch_size": 1024, "hidden": (64, 64)},
    **{
        f"vdn-capacity-{capacity}": OFF | {"algorithm": "vdn", "batch_size": 256, "buffer_size": capacity}
        for capacity in (10_000, 100_000, 1_000_000, 10_000_000)
    },
}
GROUPS = {"algorithms": ALGORITHM_ROWS, "agents": AGENT_ROWS, "replay": REPLAY_ROWS}
EVERY_ROW = {**ROWS, **ACCELERATOR_ROWS, **ALGORITHM_ROWS, **AGENT_ROWS, **REPLAY_ROWS}


def measure(row: str, flags: dict, repetitions: int, seconds: float = 1.0) -> dict:
    """One row, in this process, with calls of so many seconds."""
    import resource

    import jax

    name = flags.get("algorithm", "mappo")
    seeds, num_envs, length = flags.get("seeds", 1), flags["num_envs"], flags["rollout_length"]
    training = build(flags)
    algorithm, layout, program = training.algorithm, training.layout, training.program
    ready = time.monotonic()
    call = Calls(training, seeds)
    compiled = time.monotonic()
    flop = flop_per_step(training, flags, call.state) if name == "mappo" else flop_of_program(training, length)

    call(1)
    n = max(1, min(256, int(seconds / call(1))))
    n = max(1, min(256, int(n * seconds / call(n))))  # a call of one update is mostly overhead
    speeds = sorted(n * num_envs * length * seeds / call(n) for _ in range(repetitions))
    return {
        "row": row,
        "steps_per_second": speeds[len(speeds) // 2],
        "agents": training.env.spec.num_agents,
        "passes": units.passes(training, num_envs * length),
        "lowest": speeds[0],
        "highest": speeds[-1],
        "start_up": ready - BEGAN,
        "compile": compiled - ready,
        "gradient_steps": flags["gradient_steps"] / (num_envs * length) if algorithm.replay else None,
        "replay_mib": program.replay_bytes * layout.mesh.size / 2**20,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "program_mib": program_mib(call.advance) * layout.mesh.size,
        "flop_per_step": flop,
        "devices": f"{layout.mesh.size} × {jax.devices()[0].platform}",
    }


def program_mib(program: Any) -> float:
    """Memory of a compiled program on one device: its arguments, results and temporary arrays."""
    sizes = program.memory_analysis()
    held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return (held + sizes.temp_size_in_bytes) / 2**20


def run_worker(*arguments: str, script: str = __file__) -> dict:
    """A fresh process, so that every row pays its own start-up."""
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help=f"of {', '.join([*EVERY_ROW, *GROUPS])}; default: {', '.join(ROWS)}")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu" if arguments.device == "cpu" else "cuda,cpu")
    if arguments.worker == "product":
        from shoal.storage.manifest import product_rate

        print(json.dumps({"rate": product_rate()}))
        return
    if arguments.worker:
        print(json.dumps(measure(arguments.worker, EVERY_ROW[arguments.worker], arguments.repetitions)))
        return

    from shoal.plots.texts import markdown_table
    from shoal.storage.manifest import describe_machine

    asked = arguments.rows or [*ROWS, *(ACCELERATOR_ROWS if arguments.device == "gpu" else ())]
    chosen = [row for word in asked for row in GROUPS.get(word, [word])]
    common = ("--repetitions", str(arguments.repetitions), "--device", arguments.device)
    table, measured = [], {}
    for row in chosen:
        rate = run_worker("--worker", "product", *common)["rate"]
        result = measured[row] = run_worker("--worker", row, *common)
        flop = result["flop_per_step"]
        table.append(
            {
                "row": row,
                "env-steps/s": f"{result['steps_per_second']:,.0f}",
                "lowest … highest": f"{result['lowest']:,.0f} … {result['highest']:,.0f}",
                "agent-steps/s": units.agent_steps(result["steps_per_second"], result["agents"]),
                "passes": f"{result['passes']:.3g}",
                "start-up s": f"{result['start_up']:.1f}",
                "compile s": f"{result['compile']:.1f}",
                "peak MiB": f"{result['peak_mib']:,.0f}",
                "replay MiB": f"{result['replay_mib']:,.0f}" if result["gradient_steps"] else "",
                "gradient steps/s": f"{result['steps_per_second'] * result['gradient_steps']:,.0f}"
                if result["gradient_steps"]
                else "",
                "MFLOP/step": f"{flop / 1e6:.2f}",
                "GFLOP/s of products": f"{rate / 1e9:.0f}",
                "share": f"{result['steps_per_second'] * flop / rate:.0%}",
                "devices": result["devices"],
            }
        )
        print(f"{row}: {result['steps_per_second']:,.0f} env-steps/s", file=sys.stderr)
    made_with = describe_machine()
    print(f"\n{json.dumps(made_with, indent=1)}\n\n{markdown_table(table)}")
    if {"16x128", "seeds8"} <= measured.keys():
        one, eight = measured["16x128"], measured["seeds8"]
        for steps in (1e6, 5e6):
            separate = 8 * (one["start_up"] + one["compile"] + steps / one["steps_per_second"])
            together = eight["start_up"] + eight["compile"] + 8 * steps / eight["steps_per_second"]
            share = together / separate
            print(f"Eight seeds at once take {share:.2f} of eight runs' time at {steps / 1e6:.0f}M steps each.")


if __name__ == "__main__":
    main()
