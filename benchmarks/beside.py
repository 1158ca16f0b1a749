"""Training throughput beside a library on PyTorch: PufferLib, XuanCe, BenchMARL or EPyMARL.

    python benchmarks/beside.py xuance --python ENV/bin/python
    python benchmarks/beside.py epymarl --python ENV/bin/python --checkout PATH
    python benchmarks/beside.py pufferlib target --python ENV/bin/python --rounds 7 --out numbers.json

The peer is installed in an environment of its own (Python 3.11), with torch 2.13.0 for CPUs first:

    pufferlib   pip install torch==2.13.0
                pip install 'numpy<2' 'setuptools<77' wheel
                pip install --no-build-isolation pufferlib==3.0.0
                pip install --no-deps mpe2==1.1.1 pettingzoo==1.27.0 pygame
                (it needs a C++ compiler and downloads parts of its environments; nvcc must not be in PATH)
    xuance      pip install torch==2.13.0 torchvision==0.28.0 xuance==1.4.4 mpe2==1.1.1
    benchmarl   pip install torch==2.13.0 torchvision==0.28.0 benchmarl==1.5.2 vmas==1.5.2
    epymarl     pip install torch==2.13.0 mpe2==1.1.1 gymnasium pyyaml pandas sacred scipy
                and a checkout of cbc38c0

Each side of a row is a process that trains for about two seconds on request. The sides take turns, and the one that
begins a round changes. Printed are medians over rounds of environment steps per second with the lowest and the highest,
ratios of medians, agent steps per second (environment steps times agents), passes over the data (epochs), and the rate
of a 2048³ float32 product just before. Numbers of environments, steps, agents, gradient steps, epochs and minibatches,
the length of episodes, activations and the sizes of inner layers must be equal.

``same`` are Shoal's worker processes in the very environment of the peer, mpe2's spread; ``own`` is Shoal's
environment on the device. Rows whose peer has an environment of another package have ``own`` only.

What differs: the peers' losses, and the norms and statistics that they compute. MAPPO's critic has a row per agent in
the peers, one per environment (with an output per agent) in Shoal. PufferLib has no centralised critic, so both sides
train without (``ippo``), on a policy of separate actor and critic; its own environment Target has 18 observations, as
spread with three agents, but two actions of 9 and 5 choices, no physics of contacts, and no episodes. Its advantages
are computed again before each minibatch; priorities are off (prio_alpha 0). VMAS has another physics of spread, and 14
observations. EPyMARL trains on all of whole episodes, so there is one minibatch and rollouts are as long as episodes;
its actor is computed timestep by timestep, as for a recurrent net, and its rewards are standardised. Logs, evaluations
and checkpoints are off on both sides, but BenchMARL computes what it would log. XuanCe steps environments in two
processes, EPyMARL in one for each, PufferLib in its own. PyTorch has one
thread or one for each core, whichever was faster before.
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

PPO = {"epochs": 4, "minibatches": 4, "num_agents": 3, "hidden": (64, 64), "activation": "tanh"}
SMALL = PPO | {"env": "mpe2", "num_envs": 32, "rollout_length": 50}
WIDE = PPO | {"num_envs": 128, "rollout_length": 128}
VMAS = PPO | {"env": "vmas", "num_envs": 128, "rollout_length": 32}
ONCE = {"epochs": 1, "minibatches": 1}
ROWS = {
    "pufferlib": {
        "mpe2": SMALL | {"algorithm": "ippo"},
        "target": WIDE | {"env": "target", "algorithm": "ippo"},
        "target-once": WIDE | ONCE | {"env": "target", "algorithm": "ippo"},
    },
    "xuance": {"mpe2": SMALL},
    "benchmarl": {"vmas": VMAS, "vmas-once": VMAS | ONCE},
    "epymarl": {"mpe2": SMALL | {"rollout_length": 25, "minibatches": 1, "activation": "relu"}},
}
"""What is compared; ``env`` is the peer's environment, all others are Shoal's settings."""
EQUAL = (
    "environments", "steps per rollout", "gradient steps per rollout", "epochs", "minibatches", "agents", "activation",
    "inner weights",
)  # fmt: skip


def work(side: str, options: argparse.Namespace) -> None:
    """One side of a row, in a process of its own."""
    row = ROWS[options.peer][options.rows[0]]

    def make() -> Made:
        if side == "peer":
            import peer_sides

            return peer_sides.make(options.peer, row, options.seconds, options.checkout)
        import shoal
        from shoal_side import trained

        own = shoal.make("mpe/simple_spread", num_agents=row["num_agents"], horizon=25)
        return trained(shoal.make("pettingzoo:mpe2.simple_spread_v3") if side == "same" else own, row, options.seconds)

    answer(make)


def compare(name: str, options: argparse.Namespace) -> dict:
    """Measure a row.

    Raises:
        SystemExit: the settings of the sides differ, or a side fails.
    """
    rate = run_worker("--worker", "product")["rate"]
    pythons = {"peer": options.python, "own": sys.executable}
    if ROWS[options.peer][name]["env"] == "mpe2":
        pythons["same"] = sys.executable
    arguments = [__file__, options.peer, name, "--seconds", str(options.seconds), "--checkout", options.checkout]
    sides = {side: Worker([python, *arguments, "--worker", side]) for side, python in pythons.items()}
    reports = {side: worker.report for side, worker in sides.items()}
    print(f"{name}: {json.dumps(reports, indent=1)}", file=sys.stderr)
    if unequal := differing(list(reports.values()), EQUAL):
        raise SystemExit(f"{name}: the sides differ in {', '.join(unequal)}.")
    alternate(list(sides.values()), options.rounds)
    return {"library": options.peer, "row": name, "product rate": rate} | {
        side: worker.report | {"steps per second": worker.speeds} for side, worker in sides.items()
    }


def columns(result: dict) -> dict[str, str]:
    """A line of the table."""
    row = ROWS[result["library"]][result["row"]]
    medians = {side: statistics.median(result[side]["steps per second"]) for side in SIDES if side in result}
    line = {"row": f"{result['library']}: {result['row']}", "passes": f"{row['epochs']}"}
    for side, median in medians.items():
        line[SIDES[side]] = spread(result[side]["steps per second"])
        line[f"{SIDES[side]}: agent-steps/s"] = units.agent_steps(median, row["num_agents"])
    for side in ("same", "own"):
        if side in medians:
            line[f"ratio, {side}"] = f"{medians[side] / medians['peer']:.1f}"
    return line | {"product GFLOP/s": f"{result['product rate'] / 1e9:.0f}"}


SIDES = {"peer": "peer", "same": "Shoal, same environment", "own": "Shoal, own environment"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=ROWS)
    parser.add_argument("rows", nargs="*", help="rows of the peer; default: all")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the peer's environment")
    parser.add_argument("--checkout", default="", help="path of EPyMARL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a timed call")
    parser.add_argument("--out", type=Path, help="file for the numbers as JSON")
    parser.add_argument("--worker", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    chosen = options.rows or list(ROWS[options.peer])
    if unknown := [name for name in chosen if name not in ROWS[options.peer]]:
        parser.error(f"{options.peer} has no row {unknown[0]!r}; its rows are {', '.join(ROWS[options.peer])}")
    if options.peer == "epymarl" and not (Path(options.checkout) / "src" / "run.py").is_file():
        parser.error("epymarl needs --checkout, the path of an EPyMARL checkout")
    if options.worker:
        work(options.worker, options)
        return

    from shoal.plots.texts import markdown_table
    from shoal.storage.manifest import describe_machine

    results = in_turn(chosen, lambda name: compare(name, options), columns, options.out)
    print(f"{json.dumps(describe_machine(), indent=1)}\n\n{markdown_table([columns(result) for result in results])}")


if __name__ == "__main__":
    main()
