"""Training throughput beside JaxMARL's, whose code is driven from a checkout with its settings changed from outside.

    python benchmarks/beside_jaxmarl.py PATH                          # all rows that have a peer
    python benchmarks/beside_jaxmarl.py PATH ippo qmix --rounds 7     # some
    python benchmarks/beside_jaxmarl.py PATH seeds agents             # Shoal's rows without a peer
    python benchmarks/beside_jaxmarl.py PATH --python ENV/bin/python --out numbers.json

JaxMARL needs packages that Shoal does not; ``--python`` is the interpreter of an environment that has them, with the
same version of JAX:

    pip install jax==0.10.2 flax==0.12.8 optax==0.2.8 chex==0.1.92 flashbax==0.1.3 distrax==0.1.9
    pip install safetensors gymnax==1.0.1 jaxtyping matplotlib pillow pyyaml

wandb, hydra and omegaconf are replaced by empty modules. Shoal's row ``smax-3m`` steps the checkout's environment and
needs ``.[jaxmarl]``.

Each side of a row is a process that compiles once and then trains for about two seconds on request. The sides take
turns, and the one that begins a round changes. Printed are medians over rounds of environment steps per second with the
lowest and the highest, the ratio of the medians, arithmetic, and the rate of a 2048³ float32 product just before.
``agent-steps/s`` are environment steps times agents. ``passes`` is how often gradient steps use each sample: the
epochs, or in Q-learning the steps of all sampled sequences per collected step. Row ``once`` has one gradient step for
each rollout. ``MFLOP/step`` is that of matrix products from parameters and passes; ``program`` is the sum over
``dot_general`` of the traced program, with those of environments and without products that are written as sums.
Settings of both sides are read from what was compiled, and must be equal; the number of gradient steps is that of the
optimisers.

What differs: JaxMARL's MAPPO has a critic's row per agent, Shoal's one per environment (with an output per agent in
simple_spread); Shoal values the outcome of every step, JaxMARL once per rollout; Shoal's actors of MAPPO and IPPO read
the agent's id. Recurrent nets of MAPPO have the same layers, but JaxMARL has its second dense layer after the GRU,
Shoal before it. JaxMARL's recurrent MAPPO has whole sequences of one agent in a minibatch, Shoal's those of all agents
of an environment. In ``smax-3m`` the critic reads the state, JaxMARL's also the agent's id. Shoal stores the outcome of
every step in the replay buffer; its mixer clips gradients apart from the utilities. Every side has its own
implementation of simple_spread, with episodes of 26 steps. Shoal uses one XLA device per core, JaxMARL one with all
threads. JaxMARL's logging is removed, and so is its evaluation during Q-learning; its replay buffer is sampled from the
first rollout on. A call of JaxMARL's function also makes nets and environments; the time of a call without updates is
subtracted.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

import units
from alternated import Made, Worker, alternate, answer, differing, in_turn, spread
from throughput import run_worker

PPO = {"epochs": 4, "minibatches": 4, "num_agents": 3}
FEED_FORWARD = PPO | {"kind": "mappo", "hidden": (64, 64), "activation": "tanh", "guess": 50_000}
SQUARE = {"num_envs": 128, "rollout_length": 128}


def gru(width: int) -> dict:
    return PPO | SQUARE | {
        "kind": "mappo-gru", "hidden": (width, width), "recurrent": width, "activation": "relu", "chunk_length": 128,
        "guess": 4_000,
    }  # fmt: skip


Q_LEARNING = {
    "num_agents": 3,
    "num_envs": 8,
    "rollout_length": 26,
    "sequence_length": 26,
    "batch_size": 32,
    "gradient_steps": 1,
    "learning_starts": 0,
    "buffer_size": 5000 * 26,
    "hidden": (64,),
    "recurrent": 64,
    "activation": "relu",
    "mixer_input": "concat",
    "mixing_width": 32,
    "hyper_width": 128,
    "guess": 12_000,
}
PEER_ROWS = {
    **{
        f"mappo-{envs}x{steps}": FEED_FORWARD | {"num_envs": envs, "rollout_length": steps}
        for envs, steps in ((16, 128), (128, 128), (1024, 25))
    },
    "once": FEED_FORWARD | SQUARE | {"epochs": 1, "minibatches": 1, "guess": 120_000},
    "ippo-128x128": FEED_FORWARD | SQUARE | {"kind": "ippo", "algorithm": "ippo"},
    "mappo-gru64": gru(64),
    "mappo-gru128": gru(128),
    "qmix-gru64": Q_LEARNING | {"kind": "qmix", "algorithm": "qmix"},
    "vdn-gru64": Q_LEARNING | {"kind": "vdn", "algorithm": "vdn"},
    "smax-3m": gru(128) | {"kind": "smax", "critic_input": "state"},
}
"""What is compared. ``kind`` selects JaxMARL's script and ``guess`` is its expected rate in environment steps per
second; all others are Shoal's settings."""
OWN_ROWS = {
    **{f"seeds{n}": FEED_FORWARD | {"num_envs": 16, "rollout_length": 128, "seeds": n} for n in (1, 2, 4, 8)},
    **{f"agents{n}": FEED_FORWARD | SQUARE | {"num_agents": n} for n in (3, 6, 12, 24)},
}
ROWS = PEER_ROWS | OWN_ROWS
EQUAL = (
    "environments", "steps per rollout", "gradient steps per rollout", "epochs", "minibatches", "agents", "activation",
    "sequences per gradient step", "inner weights",
)  # fmt: skip


def passes(row: dict) -> float:
    """How often gradient steps use each sample."""
    if row["kind"] not in ("qmix", "vdn"):
        return row["epochs"]
    collected = row["num_envs"] * row["rollout_length"]
    return units.replay_ratio(row["gradient_steps"], row["batch_size"], row["sequence_length"], collected)


def work(side: str, checkout: str, name: str, seconds: float, updates: int | None) -> None:
    """One side of a row, in a process of its own."""

    def make() -> Made:
        if side == "jaxmarl":
            from jaxmarl_side import make
        else:
            from shoal_side import make
        return make(checkout, ROWS[name], seconds, updates)

    answer(make)


def command(python: str, side: str, name: str, options: argparse.Namespace) -> list[str]:
    """The command of one side of a row."""
    words = [python, __file__, options.checkout, name, "--worker", side, "--seconds", str(options.seconds)]
    return words + (["--updates", str(options.updates)] if options.updates else [])


def start(name: str, options: argparse.Namespace) -> dict[str, Worker]:
    """The processes of a row; they compile one after the other, or with ``--together`` all at once."""
    pythons = {"shoal": sys.executable} | ({"jaxmarl": options.python} if name in PEER_ROWS else {})
    wait = not options.together
    return {side: Worker(command(python, side, name, options), wait) for side, python in pythons.items()}


def compare(name: str, options: argparse.Namespace, rate: float, sides: dict[str, Worker]) -> dict:
    """Measure a row.

    Raises:
        SystemExit: the settings of the two sides differ, or a side fails.
    """
    reports = {side: worker.report for side, worker in sides.items()}
    print(f"{name}: {json.dumps(reports, indent=1)}", file=sys.stderr)
    if unequal := differing(list(reports.values()), EQUAL):
        raise SystemExit(f"{name}: the sides differ in {', '.join(unequal)}.")
    alternate(list(sides.values()), options.rounds)
    return {"row": name, "product rate": rate} | {
        side: worker.report | {"steps per second": worker.speeds} for side, worker in sides.items()
    }


def columns(result: dict) -> dict[str, str]:
    """A line of the table."""
    row, line, medians = ROWS[result["row"]], {"row": result["row"]}, {}
    for side in ("jaxmarl", "shoal"):
        if side not in result:
            continue
        report, speeds = result[side], result[side]["steps per second"]
        medians[side] = statistics.median(speeds)
        share = medians[side] * report["FLOP per step"] / result["product rate"]
        line[f"{side} steps/s"] = spread(speeds)
        line[f"{side} agent-steps/s"] = units.agent_steps(medians[side], row["num_agents"])
        line[f"{side} MFLOP/step"] = f"{report['FLOP per step'] / 1e6:.3f}"
        line[f"{side} program"] = f"{report['FLOP per step of the program'] / 1e6:.3f}"
        line[f"{side} share"] = f"{share:.0%}"
    if len(medians) == 2:
        line["ratio"] = f"{medians['shoal'] / medians['jaxmarl']:.2f}"
    line["passes"] = f"{passes(row):.3g}"
    return line | {"product GFLOP/s": f"{result['product rate'] / 1e9:.0f}"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", help="path of a JaxMARL checkout")
    parser.add_argument("rows", nargs="*", help=f"beginnings of {', '.join(ROWS)}; default: those with a peer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a timed call")
    parser.add_argument("--updates", type=int, help="updates per timed call, instead of --seconds")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--together", action="store_true", help="compile all rows at once, with many cores")
    parser.add_argument("--python", default=sys.executable, help="interpreter with JaxMARL's dependencies")
    parser.add_argument("--out", type=Path, help="file for the numbers as JSON")
    parser.add_argument("--worker", choices=("shoal", "jaxmarl"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.checkout = str(Path(options.checkout).resolve())
    os.environ.setdefault("JAX_PLATFORMS", "cpu" if options.device == "cpu" else "cuda,cpu")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share an accelerator
    if options.worker:
        work(options.worker, options.checkout, options.rows[0], options.seconds, options.updates)
        return

    from shoal.plots.texts import markdown_table
    from shoal.storage.manifest import describe_machine

    chosen = [name for name in ROWS if any(map(name.startswith, options.rows))] if options.rows else list(PEER_ROWS)

    def product_rate() -> float:
        return run_worker("--worker", "product", "--device", options.device)["rate"]

    def compare_alone(name: str) -> dict:
        rate = product_rate()  # before the processes of the row start
        return compare(name, options, rate, start(name, options))

    if options.together:
        rate, begun = product_rate(), {name: start(name, options) for name in chosen}
        for worker in [worker for sides in begun.values() for worker in sides.values()]:
            _ = worker.report
        print("All are compiled.", file=sys.stderr, flush=True)
        results = in_turn(chosen, lambda name: compare(name, options, rate, begun[name]), columns, options.out)
    else:
        results = in_turn(chosen, compare_alone, columns, options.out)
    print(json.dumps(describe_machine(), indent=1))
    for rows in (PEER_ROWS, OWN_ROWS):
        if table := [columns(result) for result in results if result["row"] in rows]:
            print(f"\n{markdown_table(table)}")


if __name__ == "__main__":
    main()
