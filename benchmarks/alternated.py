"""Programs that train in turns, each in a process of its own, possibly of another interpreter.

A process answers on standard output with a line of JSON: first what it trains, then the time and environment steps of
every call that it is asked for.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

Made = tuple[dict, Callable[[], tuple[float, int]]]
"""What is reported, and a function that trains once and returns its seconds and environment steps."""


def answer(make: Callable[[], Made]) -> None:
    """Serve requests, a line each on standard input. To the report is added the size of the inner layers."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the libraries print goes to standard error
    report, train = make()
    print(json.dumps(report | {"inner weights": inner_weights(report["layers"])}), file=answers, flush=True)
    for _ in sys.stdin:
        took, steps = train()
        print(json.dumps({"seconds": took, "steps": steps}), file=answers, flush=True)


def inner_weights(layers: Sequence[str]) -> int:
    """Number of weights between hidden layers: inputs and numbers of outputs may differ.

    Args:
        layers: "inputs x outputs" of every layer, such as 64x64.
    """
    sizes = [[int(n) for n in layer.split("x")] for layer in layers]
    inputs = {rows for rows, _ in sizes} - {columns for _, columns in sizes}
    return sum(i * o for i, o in sizes if i not in inputs and o >= 32)


def differing(reports: Sequence[dict], names: Sequence[str]) -> list[str]:
    """Those of the names whose values are not equal in all reports."""
    return [name for name in names if len({str(report.get(name)) for report in reports}) > 1]


class Worker:
    """A program that trains on request; ``wait`` until it is compiled, so that programs compile one after the other."""

    def __init__(self, command: Sequence[str], wait: bool = True) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.speeds: list[float] = []
        if wait:
            _ = self.report

    @cached_property
    def report(self) -> dict:
        """What it trains; read before :meth:`train`."""
        return self._answer()

    def _answer(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self.process.args))} ended with {self.process.wait()}.")  # type: ignore[arg-type]
        return json.loads(line)

    def train(self) -> None:
        """One timed call."""
        assert self.process.stdin is not None
        self.process.stdin.write("train\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.speeds.append(answer["steps"] / answer["seconds"])

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def alternate(workers: Sequence[Worker], rounds: int) -> None:
    """Train in turns; the one that begins a round changes. Then end the processes."""
    for number in range(rounds):
        for worker in workers[:: 1 if number % 2 else -1]:
            worker.train()
    for worker in workers:
        worker.close()


def in_turn(
    names: Sequence[str], compare: Callable[[str], dict], columns: Callable[[dict], dict], out: Path | None
) -> list[dict]:
    """The results of ``compare`` for each name. After each, its columns are printed to stderr, and all results so far
    are written to ``out``, with the machine."""
    from shoal.storage.manifest import describe_machine

    results: list[dict] = []
    for name in names:
        results.append(compare(name))
        print(columns(results[-1]), file=sys.stderr)
        if out:
            out.write_text(json.dumps({"made with": describe_machine(), "rows": results}, indent=1))
    return results


def spread(speeds: Sequence[float]) -> str:
    """The median with the lowest and the highest, for a table."""
    return f"{statistics.median(speeds):,.0f} ({min(speeds):,.0f} … {max(speeds):,.0f})"
