"""Shoal on an accelerator in one command of less than eight minutes: is it right, how fast, and with which sizes.

    python benchmarks/accelerator.py                          # everything
    python benchmarks/accelerator.py correct                  # a part: correct, resume, rates, or beside
    python benchmarks/accelerator.py correct --only poca mat  # of some algorithms
    python benchmarks/accelerator.py --jaxmarl PATH           # and JaxMARL's MAPPO from a checkout (beside_jaxmarl.py)
    python benchmarks/accelerator.py --platform cpu --small   # tries this program itself on a machine without one

It prints which JAX and which devices it found, and needs no network. Each measurement is a process of its own, so that
one that fails or runs out of memory is a line of the table. Compilation takes longest, so ``--processes`` of them
compile at once; when all have, they are timed one after the other. What does not fit into ``--seconds`` is listed as
left out.

``correct``: one update of the algorithms from equal learners and data, on the CPU and on the accelerator, with products
in full single precision: the largest difference of losses (of their size, or of 0.01 if they are smaller) and of
gradients (of the largest entry of an array; they are read from Adam's first moments), of one seed and, in the column
``seeds``, of two seeds in one program. All may be at most 1e-4. The column ``default`` has the gradients' difference
with JAX's default precision, which uses TF32 where there is hardware for it.

``resume``: whether a run that is stopped and resumed has the parameters of one that was not, bit by bit; with XLA's
kernels as they are, and with ``--xla_gpu_deterministic_ops``.

``rates``: environment steps per second of whole training, median of three calls of about a second with the lowest and
the highest, the time to compile beside the others, and the largest memory in use. Of each group of rows the fastest is
named.

``beside``: the same sizes in JaxMARL, alternated.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

BOXES = ("facmac", "hatd3", "maddpg", "masac", "matd3")
"""Algorithms that are compared with continuous actions and parameters of their own."""
SAME_CODE = ("haddpg", "ia2c", "iddpg", "ippo", "ipqn", "iql", "maa2c", "mapg", "mat_dec", "vdn")
"""Algorithms whose update is another one's with other settings; they are not compared."""
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
LARGEST = 1e-4
"""Difference of losses and gradients that is taken for rounding."""

SPREAD = {"environment": "mpe/simple_spread", "rollout_length": 25}
BATTLE = {"rollout_length": 32, "hidden": (64, 64), "critic_input": "state"}
Q_LEARNING = SPREAD | {"algorithm": "qmix", "minibatches": 1, "buffer_size": 200_000, "learning_starts": 0}
RATES: dict[str, dict[str, dict]] = {
    "environments": {f"spread, E {n}": SPREAD | {"num_envs": n} for n in (4096, 1024, 16_384, 128)},
    "minibatches": {f"spread, E 4096, minibatches {n}": SPREAD | {"num_envs": 4096, "minibatches": n} for n in (1, 16)},
    "seeds": {f"spread, E 512, seeds {n}": SPREAD | {"num_envs": 512, "seeds": n} for n in (1, 8)},
    "3m": {f"3m, E {n}": BATTLE | {"environment": "skirmish/3m", "num_envs": n} for n in (1024, 4096, 128)},
    "MMM2": {"MMM2, E 1024": BATTLE | {"environment": "skirmish/MMM2", "num_envs": 1024}},
    "qmix": {
        f"QMIX on spread, E {n}, {steps} steps of {batch}": Q_LEARNING
        | {"num_envs": n, "gradient_steps": steps, "batch_size": batch}
        for n, steps, batch in ((2048, 4, 4096), (16, 4, 256))
    },
    "gru": {"spread, GRU 64, E 1024": SPREAD | {"num_envs": 1024, "recurrent": 64, "chunk_length": 25}},
    "methods": {
        f"{name} on spread, E 1024": SPREAD | {"num_envs": 1024, "algorithm": name}
        for name in ("happo", "mat", "pqn_vdn")
    },
    "blocks": {"spread, E 4096, blocks of 65536": SPREAD | {"num_envs": 4096, "rows": 65_536}},
}
"""Groups of rows, most valuable first; ``rows`` is the least size of a block, all others are training's own values."""
SMALL = {"num_envs": 16, "rollout_length": 8, "chunk_length": 8, "seeds": 2, "buffer_size": 4096, "batch_size": 8}
BESIDE = ("mappo-1024x25", "ippo-128x128", "mappo-gru128", "qmix-gru64")
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
    import jax.numpy as jnp
    import numpy as np
    import optax

    from frozen import prepared

    algorithm, steps, update = prepared(name, recurrent, kind, sharing, epochs=1, minibatches=1)
    cpu, device = jax.devices("cpu")[0], jax.devices()[0]
    with jax.default_device(cpu):
        rng = np.random.default_rng(0)
        given = jax.jit(algorithm.init)(jax.random.key(0)), (steps(rng), steps(rng)), jax.random.key(1)

    def numbers(where: Any, precision: str | None, seeds: bool = False) -> tuple[dict[str, float], list[Any]]:
        with jax.default_matmul_precision(precision) if precision else jax.default_device(where):
            if seeds:
                both = jax.tree.map(lambda x: jnp.stack([x, x]), jax.device_put(given, where))
                learner, metrics, _ = jax.tree.map(lambda x: x[1], jax.jit(jax.vmap(update))(*both))
            else:
                learner, metrics, _ = jax.jit(update)(*jax.device_put(given, where))
        moments = [x for _, x in optax.tree.get_all_with_path(learner.optimiser, "mu")]
        return {key: float(x) for key, x in metrics.items()}, [np.asarray(x) for x in jax.tree.leaves(moments)]

    def apart(a: list[Any], b: list[Any]) -> float:
        return max(float(np.abs(x - y).max() / max(np.abs(x).max(), 1e-8)) for x, y in zip(a, b, strict=True))

    here, there, plain = numbers(cpu, "highest"), numbers(device, "highest"), numbers(device, None)
    two = numbers(device, "highest", seeds=True)
    losses = max(abs(x - there[0][key]) / max(abs(x), 1e-2) for key, x in here[0].items() if np.isfinite(x))
    gradients = {"gradients": there, "seeds": two, "default": plain}
    return {"losses": losses} | {name: apart(here[1], one[1]) for name, one in gradients.items()}


def correct_cases(only: Collection[str]) -> list[list[Any]]:
    """Algorithm, recurrent width, kind of actions and sharing of what is compared; ``only`` some, or all."""
    from shoal import algorithms

    cases: list[list[Any]] = [[name, 4, "discrete", "shared"] for name in ("mappo", "qmix")]
    cases.append(["happo", None, "box", "independent"])
    for name in [name for name in algorithms.NAMES if name not in SAME_CODE]:
        cases.append([name, None, *(("box", "independent") if name in BOXES else ("discrete", "shared"))])
    return [case for case in cases if not only or case[0] in only]


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


def rate(name: str, small: bool) -> Iterator[dict[str, Any]]:
    """One row of ``rates``: what there is after compilation, then what is timed."""
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
    yield {"compile": time.perf_counter() - began, "agents": env.spec.num_agents}
    steps = row["num_envs"] * row["rollout_length"] * seeds
    call(1)
    n = max(1, min(256, int(1.0 / (call(4) / 4))))
    rates = sorted(n * steps / call(n) for _ in range(3))
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    yield {"rates": rates, "peak": peak}


# The parent


class Clock:
    """What is left of ``--seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end = seconds, time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()


class Child:
    """A process that answers with lines of JSON; each but the first is asked for."""

    def __init__(self, clock: Clock, *words: str) -> None:
        self.clock = clock
        self.errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115  # closed by close()
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        if words[-1] == DETERMINISTIC:
            environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {DETERMINISTIC}"
        command = [sys.executable, __file__, "--worker", *words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment
        )
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put("")

    def answer(self, spare: float = 0.0) -> dict[str, Any]:
        """The next answer, or the last line of what the process printed under ``failed``; ``spare`` seconds stay."""
        try:
            line = self.lines.get(timeout=max(self.clock.left - spare, 1))
        except queue.Empty:
            self.process.kill()
            return {"failed": "out of time"}
        if line:
            return json.loads(line)
        code = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines() or [f"exit code {code}"]
        return {"failed": next((x for x in reversed(lines) if "Error" in x or "RESOURCE" in x), lines[-1])[:160]}

    def ask(self) -> dict[str, Any]:
        """The answer to a request."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("next\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.answer()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


Begun = Future[tuple[Child, dict[str, Any]]]
"""A process and its first answer."""


def begin(clock: Clock, *words: str) -> tuple[Child, dict[str, Any]]:
    """Start a process and wait for its first answer; 40 % of the time are left for what is timed."""
    child = Child(clock, *words)
    return child, child.answer(0.4 * clock.seconds)


def asked(begun: tuple[Child, dict[str, Any]]) -> dict[str, Any]:
    """The only answer of a process."""
    child, answer = begun
    child.close()
    return answer


def correctness_table(begun: Mapping[str, Begun]) -> Iterator[dict[str, str]]:
    """A line for each case."""
    for name, future in begun.items():
        answer = asked(future.result())
        case = json.loads(name)
        line = {"update": f"{case[0]}{f', GRU {case[1]}' if case[1] else ''}, {case[2]}, {case[3]}"}
        if "failed" in answer:
            yield line | dict.fromkeys(("losses", "gradients", "seeds", "default"), "") | {"result": answer["failed"]}
            continue
        right = max(answer[name] for name in ("losses", "gradients", "seeds")) <= LARGEST
        yield line | {key: f"{x:.1e}" for key, x in answer.items()} | {"result": "equal" if right else "DIFFERENT"}


def rates_table(clock: Clock, begun: Mapping[str, Begun]) -> Iterator[dict[str, str]]:
    """A line for each row; at the end of each group, one that names the fastest."""
    for group, rows in RATES.items():
        best: tuple[float, str] = (0.0, "")
        for name in rows:
            line = {"row": name, "env-steps/s": "left out", "agent-steps/s": "", "compile s": "", "peak MiB": ""}
            child, answer = begun[name].result()
            if "failed" not in answer and clock.left > 10:
                answer |= child.ask()
            child.close()
            if "failed" in answer:
                line["env-steps/s"] = answer["failed"]
            if "rates" in answer:
                low, middle, high = answer["rates"]
                best = max(best, (middle, name))
                line["env-steps/s"] = f"{middle:,.0f} ({low:,.0f} … {high:,.0f})"
                line["agent-steps/s"] = f"{middle * answer['agents']:,.0f}"
                line["compile s"] = f"{answer['compile']:.1f}"
                line["peak MiB"] = "unknown" if answer["peak"] is None else f"{answer['peak'] / 2**20:,.0f}"
            yield line
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
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that compile at once")
    parser.add_argument("--only", nargs="+", default=[], help="algorithms whose updates are compared; default: all")
    parser.add_argument("--jaxmarl", help="a checkout of JaxMARL")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try this program")
    parser.add_argument("--out", type=Path, help="file for the tables in Markdown")
    parser.add_argument("--worker", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(parts)}.")
    os.environ.setdefault("JAX_PLATFORMS", options.platform)
    if unknown := set(options.only) - {case[0] for case in correct_cases(())}:
        parser.error(f"{', '.join(sorted(unknown))}: not among the algorithms that are compared.")
    if options.worker:
        what, *rest = options.worker
        if what == "rate":
            for answer in rate(rest[0], options.small):
                print(json.dumps(answer), flush=True)
                sys.stdin.readline()
            return 0
        workers = {"found": found, "resume": resume, "correct": lambda: correct(*json.loads(rest[0]))}
        print(json.dumps(workers[what]()))
        return 0

    clock, chosen = Clock(options.seconds), options.parts or parts
    here = asked(begin(clock, "found"))
    print(json.dumps(here), file=sys.stderr, flush=True)
    if "failed" in here:
        raise SystemExit(f"JAX finds no device of {os.environ['JAX_PLATFORMS']}: {here['failed']}")
    if here["platform"] == "cpu" and not options.small:
        raise SystemExit("There is no accelerator here; --platform cpu --small tries this program without one.")
    pages, bad = [f"```json\n{json.dumps(here, indent=1)}\n```"], False
    with ThreadPoolExecutor(options.processes) as pool:
        small = ["--small"] if options.small else []
        rates = {name: pool.submit(begin, clock, "rate", name, *small) for name in ROWS if "rates" in chosen}
        resumed = [pool.submit(begin, clock, "resume", x) for x in ("", DETERMINISTIC) if "resume" in chosen]
        cases = map(json.dumps, correct_cases(options.only)) if "correct" in chosen else ()
        compared = {case: pool.submit(begin, clock, "correct", case) for case in cases}
        if compared:
            lines = write("One update on the CPU and here", correctness_table(compared), pages)
            bad |= any(line["result"] != "equal" for line in lines)
        if resumed:
            usual, deterministic = (asked(future.result()) for future in resumed)
            bad |= not deterministic.get("equal")
            answers = json.dumps({"usual": usual, DETERMINISTIC: deterministic}, indent=1)
            pages.append(f"## Stopped and resumed\n\n{answers}")
            print(answers, file=sys.stderr)
        if rates:
            for future in rates.values():
                future.result()
            write("Rates of training", rates_table(clock, rates), pages)
    if "beside" in chosen and options.jaxmarl:
        script = str(Path(__file__).with_name("beside_jaxmarl.py"))
        command = [sys.executable, script, options.jaxmarl, *BESIDE, "--rounds", "3", "--together", "--device", "gpu"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=max(clock.left, 1))
            pages.append(f"## Beside JaxMARL\n\n{done.stdout if done.returncode == 0 else done.stderr[-2000:]}")
        except subprocess.TimeoutExpired:
            pages.append("## Beside JaxMARL\n\nOut of time.")
    text = "\n\n".join(pages) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
