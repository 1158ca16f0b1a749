"""Shoal on an accelerator in one command of less than eight minutes: is it right, how fast, and with which sizes.

    python benchmarks/accelerator.py                          # everything
    python benchmarks/accelerator.py correct                  # a part: correct, resume, rates, or beside
    python benchmarks/accelerator.py --jaxmarl PATH           # and JaxMARL's MAPPO from a checkout (beside_jaxmarl.py)
    python benchmarks/accelerator.py --platform cpu --small   # tries this program itself on a machine without one

It prints which JAX and which devices it found, and needs no network. Each measurement is a process of its own, so that
one that fails or runs out of memory is a line of the table. What does not fit into ``--seconds`` is listed as left
out.

``correct``: one update of five algorithms from equal learners and data, on the CPU and on the accelerator, with
products in full single precision: the largest difference of losses (of their size, or of 0.01 if they are smaller) and
of gradients (of the largest entry of an array; they are read from Adam's first moments). Both may be at most 1e-4. The
column ``default`` has the gradients' difference with JAX's default precision, which uses TF32 where there is hardware
for it.

``resume``: a run that is stopped and resumed has the parameters of one that was not, bit by bit.

``rates``: environment steps per second of whole training, median of three calls of about a second with the lowest and
the highest, time to compile, and the largest memory in use. Of each group of rows the fastest is named.

``beside``: the same sizes in JaxMARL, alternated.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CORRECT = (
    ("mappo", None, "discrete", "shared"),
    ("mappo", 4, "discrete", "shared"),
    ("happo", None, "box", "independent"),
    ("mat", None, "discrete", "shared"),
    ("qmix", 4, "discrete", "shared"),
    ("maddpg", None, "box", "independent"),
)
"""Algorithm, recurrent width, kind of actions, sharing."""
LARGEST = 1e-4
"""Difference of losses and gradients that is taken for rounding."""

SPREAD = {"environment": "mpe/simple_spread", "rollout_length": 25}
BATTLE = {"rollout_length": 32, "hidden": (64, 64), "critic_input": "state"}
Q_LEARNING = SPREAD | {"algorithm": "qmix", "minibatches": 1, "buffer_size": 200_000, "learning_starts": 0}
RATES: dict[str, dict[str, dict]] = {
    "environments": {f"spread, E {n}": SPREAD | {"num_envs": n} for n in (4096, 1024, 16_384, 128)},
    "minibatches": {
        f"spread, E 4096, minibatches {n}": SPREAD | {"num_envs": 4096, "minibatches": n} for n in (1, 4, 16)
    },
    "seeds": {f"spread, E 512, seeds {n}": SPREAD | {"num_envs": 512, "seeds": n} for n in (1, 8)},
    "3m": {f"3m, E {n}": BATTLE | {"environment": "skirmish/3m", "num_envs": n} for n in (1024, 4096, 128)},
    "MMM2": {f"MMM2, E {n}": BATTLE | {"environment": "skirmish/MMM2", "num_envs": n} for n in (1024, 256)},
    "qmix": {
        f"QMIX on spread, E {n}, {steps} steps of {batch}": Q_LEARNING
        | {"num_envs": n, "gradient_steps": steps, "batch_size": batch}
        for n, steps, batch in ((256, 4, 1024), (2048, 4, 4096), (16, 4, 256))
    },
    "gru": {
        f"spread, GRU 64, E {n}": SPREAD | {"num_envs": n, "recurrent": 64, "chunk_length": 25} for n in (1024, 4096)
    },
    "blocks": {f"spread, E 4096, blocks of {n}": SPREAD | {"num_envs": 4096, "rows": n} for n in (8192, 65_536)},
}
"""Groups of rows, most valuable first; ``rows`` is the least size of a block, all others are training's own values."""
SMALL = {"num_envs": 16, "rollout_length": 8, "chunk_length": 8, "seeds": 2, "buffer_size": 4096, "batch_size": 8}
ROWS = {name: row for group in RATES.values() for name, row in group.items()}


# What runs in a process of its own


def found() -> dict[str, Any]:
    """JAX and the devices."""
    import jax

    devices = jax.devices()
    limit = (devices[0].memory_stats() or {}).get("bytes_limit")
    return {
        "jax": jax.__version__,
        "platform": devices[0].platform,
        "devices": [device.device_kind for device in devices],
        "memory GiB": None if limit is None else round(limit / 2**30, 1),
        "precision": str(jax.config.jax_default_matmul_precision),  # pyright: ignore[reportAttributeAccessIssue]
    }


def correct(name: str, recurrent: int | None, kind: str, sharing: str) -> dict[str, Any]:
    """Differences of one update between the CPU and the first device, relative as the docstring above says."""
    import jax
    import numpy as np
    import optax

    from frozen import prepared

    algorithm, steps, update = prepared(name, recurrent, kind, sharing, epochs=1, minibatches=1)
    cpu, device = jax.devices("cpu")[0], jax.devices()[0]
    with jax.default_device(cpu):
        rng = np.random.default_rng(0)
        given = jax.jit(algorithm.init)(jax.random.key(0)), (steps(rng), steps(rng)), jax.random.key(1)

    def numbers(where: Any, precision: str | None) -> tuple[dict[str, float], list[Any]]:
        with jax.default_matmul_precision(precision) if precision else jax.default_device(where):
            learner, metrics, _ = jax.jit(update)(*jax.device_put(given, where))
        moments = [x for _, x in optax.tree.get_all_with_path(learner.optimiser, "mu")]
        return {key: float(x) for key, x in metrics.items()}, [np.asarray(x) for x in jax.tree.leaves(moments)]

    def apart(a: list[Any], b: list[Any]) -> float:
        return max(float(np.abs(x - y).max() / max(np.abs(x).max(), 1e-8)) for x, y in zip(a, b, strict=True))

    here, there, plain = numbers(cpu, "highest"), numbers(device, "highest"), numbers(device, None)
    losses = max(abs(x - there[0][key]) / max(abs(x), 1e-2) for key, x in here[0].items() if np.isfinite(x))
    return {"losses": losses, "gradients": apart(here[1], there[1]), "default": apart(here[1], plain[1])}


def resume() -> dict[str, Any]:
    """Whether a run that is stopped and resumed ends with the same parameters."""
    import jax
    import numpy as np

    import shoal

    class Stop(shoal.Callback):
        def on_metrics(self, context: Any, metrics: Any) -> None:
            if context.update == 8:
                context.stop("half")

    sizes: dict[str, Any] = {"steps": 4096, "num_envs": 16, "rollout_length": 16, "hidden": (16,), "progress": False}
    with tempfile.TemporaryDirectory() as folder:
        whole, cut = Path(folder) / "whole", Path(folder) / "cut"
        one = shoal.train("mappo", "mpe/simple_spread", folder=whole, **sizes)
        stopped = shoal.train("mappo", "mpe/simple_spread", folder=cut, callbacks=[Stop()], **sizes)
        parts = stopped.at.update
        two = shoal.resume(cut, continue_stopped=True, progress=False)
        pairs = zip(*(jax.tree.leaves(run._learner().policy) for run in (one, two)), strict=True)
        equal = all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)
        return {"equal": equal, "stopped at": parts, "updates": two.at.update}


def rate(name: str, small: bool) -> dict[str, Any]:
    """One row of ``rates``."""
    import jax

    import shoal
    from programs import Calls, build
    from shoal.learning import sgd

    row = dict(ROWS[name])
    if small:
        row |= {key: value for key, value in SMALL.items() if key in row}
    sgd.ACCELERATOR_ROWS = row.pop("rows", sgd.ACCELERATOR_ROWS)
    env, seeds, began = shoal.make(row.pop("environment")), row.get("seeds", 1), time.perf_counter()
    call = Calls(build(row, env), seeds)
    compiled = time.perf_counter() - began
    steps = row["num_envs"] * row["rollout_length"] * seeds
    call(1)
    n = max(1, min(256, int(1.0 / (call(4) / 4))))
    rates = sorted(n * steps / call(n) for _ in range(3))
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return {"rates": rates, "compile": compiled, "agents": env.spec.num_agents, "peak": peak}


# The parent


class Clock:
    """What is left of ``--seconds``."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()


def asked(clock: Clock, *words: str) -> dict[str, Any]:
    """The answer of a process, or its last line under ``failed``."""
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, __file__, "--worker", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=max(clock.left, 1), env=environment
        )
    except subprocess.TimeoutExpired:
        return {"failed": "out of time"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"failed": next((x for x in reversed(lines) if "Error" in x or "RESOURCE" in x), lines[-1])[:160]}
    return json.loads(done.stdout.splitlines()[-1])


def correctness_table(clock: Clock) -> Iterator[dict[str, str]]:
    """A line for each case."""
    for case in CORRECT:
        answer = asked(clock, "correct", json.dumps(case))
        line = {"update": f"{case[0]}{f', GRU {case[1]}' if case[1] else ''}, {case[2]}, {case[3]}"}
        if "failed" in answer:
            yield line | {"result": answer["failed"]}
            continue
        right = answer["losses"] <= LARGEST and answer["gradients"] <= LARGEST
        yield line | {key: f"{x:.1e}" for key, x in answer.items()} | {"result": "equal" if right else "DIFFERENT"}


def rates_table(clock: Clock, small: bool) -> Iterator[dict[str, str]]:
    """A line for each row; at the end of each group, one that names the fastest."""
    for group, rows in RATES.items():
        best: tuple[float, str] = (0.0, "")
        for name in rows:
            line = {"row": name}
            if clock.left < 30:
                yield line | {"env-steps/s": "left out"}
                continue
            answer = asked(clock, "rate", name, *(["--small"] if small else []))
            if "failed" in answer:
                yield line | {"env-steps/s": answer["failed"]}
                continue
            low, middle, high = answer["rates"]
            best = max(best, (middle, name))
            yield line | {
                "env-steps/s": f"{middle:,.0f} ({low:,.0f} … {high:,.0f})",
                "agent-steps/s": f"{middle * answer['agents']:,.0f}",
                "compile s": f"{answer['compile']:.1f}",
                "peak MiB": "unknown" if answer["peak"] is None else f"{answer['peak'] / 2**20:,.0f}",
            }
        if best[1]:
            yield {"row": f"fastest of {group}: {best[1]}"}


def write(title: str, rows: Iterator[dict[str, str]], pages: list[str]) -> list[dict[str, str]]:
    """Print lines as they are measured, then add the table to the pages."""
    from shoal.plots.texts import markdown_table

    lines = []
    for row in rows:
        print("  ".join(row.values()), file=sys.stderr, flush=True)
        lines.append(row)
    pages.append(f"## {title}\n\n{markdown_table(lines)}")
    return lines


def main() -> int:
    """Print the tables; 1 if something differs or failed."""
    parts = ("correct", "resume", "rates", "beside")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; default: all")
    parser.add_argument("--platform", default="cuda,cpu", help="JAX_PLATFORMS; default: cuda,cpu")
    parser.add_argument("--seconds", type=float, default=460.0, help="time for everything")
    parser.add_argument("--jaxmarl", help="a checkout of JaxMARL")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try this program")
    parser.add_argument("--out", type=Path, help="file for the tables in Markdown")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(parts)}.")
    os.environ.setdefault("JAX_PLATFORMS", options.platform)
    if options.worker:
        what, *rest = options.worker
        workers = {"found": found, "resume": resume, "correct": lambda: correct(*json.loads(rest[0]))}
        workers["rate"] = lambda: rate(rest[0], options.small)
        print(json.dumps(workers[what]()))
        return 0

    clock, chosen = Clock(options.seconds), options.parts or parts
    here = asked(clock, "found")
    print(json.dumps(here), file=sys.stderr, flush=True)
    if "failed" in here:
        raise SystemExit(f"JAX finds no device of {os.environ['JAX_PLATFORMS']}: {here['failed']}")
    if here["platform"] == "cpu" and not options.small:
        raise SystemExit("There is no accelerator here; --platform cpu --small tries this program without one.")
    pages, bad = [f"```json\n{json.dumps(here, indent=1)}\n```"], False
    if "correct" in chosen:
        lines = write("One update on the CPU and here", correctness_table(clock), pages)
        bad |= any(line["result"] != "equal" for line in lines)
    if "resume" in chosen:
        answer = asked(clock, "resume")
        bad |= not answer.get("equal")
        pages.append(f"## Stopped and resumed\n\n{json.dumps(answer)}")
        print(pages[-1], file=sys.stderr)
    if "rates" in chosen:
        write("Rates of training", rates_table(clock, options.small), pages)
    if "beside" in chosen and options.jaxmarl:
        script = str(Path(__file__).with_name("beside_jaxmarl.py"))
        command = [sys.executable, script, options.jaxmarl, "mappo-1024x25", "qmix-gru64", "--rounds", "3"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=max(clock.left, 1))
            pages.append(f"## Beside JaxMARL\n\n{done.stdout if done.returncode == 0 else done.stderr[-400:]}")
        except subprocess.TimeoutExpired:
            pages.append("## Beside JaxMARL\n\nOut of time.")
    text = "\n\n".join(pages) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
