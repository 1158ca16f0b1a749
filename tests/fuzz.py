"""Fuzz the command line: random commands and damaged run folders must end in success or in one clear sentence.

    python tests/fuzz.py --cases 1000            # more than an hour
    python tests/fuzz.py --only 4711             # one case again, with what it printed

Each case runs in a worker process, which is started again after a crash or a hang. A case is judged by :func:`judge`:
no traceback, an exit code that fits, one sentence where the request is refused, no file made by a hostile folder, and
no run that continues with another configuration than it had.
"""

import argparse
import contextlib
import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.fuzz_cases import Case, draw, filled
from support.fuzz_damage import HOSTILE_SOURCE, PWNED, damage

HERE = Path(__file__).parent
LONG, GRACE = 120.0, 120.0
"""Seconds until a case is interrupted as by Ctrl-C, and until it is killed after that. Compiling takes longer on a busy
machine."""

TRAINED = {
    "on_policy": "mappo mpe/simple_spread --seeds 2 --recurrent 4 --chunk-length 4 --minibatches 1 --epochs 1",
    "off_policy": "qmix matrix/two_step --learning-starts 8 --buffer-size 64 --batch-size 4",
    "host": "ippo own_parallel:Meeting --minibatches 1 --epochs 1 --num-workers 0",
}
"""Runs that are damaged and looked at; all with the same small sizes."""

SIZES = "--num-envs 2 --rollout-length 8 --steps 64 --hidden 8 --checkpoint-seconds 0 --eval-episodes 2"


class Outcome(NamedTuple):
    """What a case did."""

    code: int | None
    """Exit code; None where the process crashed, hung or raised."""
    out: str
    err: str
    interrupted: bool = False
    """It took long, and was answered by Ctrl-C."""


class Result(NamedTuple):
    """A case and what came of it."""

    case: Case
    damage: str
    """What was damaged; empty for nothing."""
    outcome: Outcome
    wrong: str
    """What is wrong; empty for nothing."""
    updated: bool
    """Training wrote a row of metrics."""


def judge(case: Case, outcome: Outcome, folder: Path, run: Path) -> str:
    """What is wrong with an outcome, or an empty text. ``folder`` is where the case worked, and ``run`` its run's."""
    code, out, err = outcome.code, outcome.out, outcome.err
    lines = err.splitlines()
    if code is None:
        return "crash, hang or exception"
    if (folder / PWNED).exists():
        return "a hostile folder ran code"
    if "Traceback" in out or ("Traceback" in err and code != 1):
        return "a traceback"
    if code not in ((0, 1, 2, 130) if outcome.interrupted else (0, 1, 2)):
        return f"exit code {code}"
    if case.refused and code != 2:
        return f"a word that cannot be read was not refused (exit code {code})"
    if code in (1, 2):
        said = lines[-1] if lines else ""
        if code == 2 and sum(line.startswith("shoal: ") for line in lines) != 1:
            return "not one sentence"
        if not said.startswith("shoal: ") and not (code == 1 and case.words[0] == "check"):
            return "the last line on stderr is not the sentence"
        if code == 2 and not (15 < len(said) < 600 and said[-1] in ".?"):
            return "the sentence has a strange form"
    if code == 2 and case.words[0] == "train" and "--resume" not in case.words:
        if len(lines) > 1:
            return "more than one sentence"
        if (folder / "new").exists():
            return "a refused run left a folder"
    if code == 0 and case.damage is not None and "--resume" in case.words and "--help" not in case.words:
        return _changed(folder, run)
    return ""


def _changed(folder: Path, run: Path) -> str:
    """Whether a resumed run has another configuration than it had before the damage."""
    before = json.loads((folder / "before.json").read_text(encoding="utf-8"))["config"]
    now = json.loads((run / "run.json").read_text(encoding="utf-8"))["config"]
    for key in ("algorithm", "environment", "env", "config", "spec"):
        if before[key] != now[key]:
            return f"the resumed run has another {key}"
    return ""


def reached_update(folder: Path) -> bool:
    """Whether training wrote a row of metrics."""
    log = folder / "new" / "metrics.jsonl"
    return log.is_file() and log.stat().st_size > 0


# The worker process


def serve() -> None:
    """Do the commands that come on stdin, one JSON line each, and answer each by a line."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import jax

    from shoal import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
    answer = {"ready": True}
    while True:
        print(json.dumps(answer), file=replies, flush=True)
        jax.clear_caches()  # after the answer: it waits for a compilation that was abandoned
        line = sys.stdin.readline()
        if not line:
            return
        asked = json.loads(line)
        os.chdir(asked["folder"])
        if asked["nowhere"]:
            gone = Path("gone").absolute()
            gone.mkdir()
            os.chdir(gone)
            gone.rmdir()
        out, err, code = io.StringIO(), io.StringIO(), None
        path = list(sys.path)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = cli.main(asked["words"])
        except BaseException as error:
            err.write(f"\n{type(error).__name__}: {error}\n")
            import traceback

            err.write("".join(traceback.format_exc()))
        sys.path[:] = path
        answer = {"code": code, "out": out.getvalue(), "err": err.getvalue()}


class Worker:
    """A process that does commands, and is started again when it is gone."""

    def __init__(self, folder: Path):
        self.log, self.state = folder / "worker.log", folder / "state"
        self.process: subprocess.Popen[str] | None = None
        self.done = 0

    def _start(self) -> subprocess.Popen:
        fast = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        env = os.environ | {
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {fast}".strip(),
            "JAX_NUM_CPU_DEVICES": "2",
            "XDG_STATE_HOME": str(self.state),  # where runs that were trained here are noted
        }
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "fuzz.py"), "--serve"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=env, start_new_session=True,
            )  # fmt: skip
        self.process, self.done = process, 0
        self._answer(120.0)
        return process

    def _answer(self, seconds: float) -> dict | None:
        """The next line, within so many seconds; None for none, an empty dict where the process is gone."""
        assert self.process is not None and self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def do(self, words: list[str], folder: Path, nowhere: bool = False, limit: float = LONG) -> Outcome:
        """Do a command in ``folder``, or in a folder inside it that is deleted; it is interrupted after ``limit`` s."""
        if self.process is None or self.process.poll() is not None or self.done >= 40:
            self.close()
            self._start()
        assert self.process is not None and self.process.stdin is not None
        self.done += 1
        print(
            json.dumps({"words": words, "folder": str(folder), "nowhere": nowhere}), file=self.process.stdin, flush=True
        )
        answer, interrupted = self._answer(limit), False
        if answer is None:
            interrupted = True
            self.process.send_signal(signal.SIGINT)
            answer = self._answer(GRACE)
        if interrupted and answer:  # what it abandoned may still be running
            self.close()
        if not answer:
            what = "hangs" if answer is None else f"crashed with {self.process.wait()}"
            self.close()
            return Outcome(None, "", f"the process {what}", interrupted)
        return Outcome(answer["code"], answer["out"], answer["err"], interrupted)

    def close(self) -> None:
        """End the process and all that it started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            self.process = None


# The cases


class Fuzzer:
    """Runs that cases look at, and a worker; everything lies in a temporary folder."""

    def __init__(self, folder: Path):
        self.worker = Worker(folder)
        self.work = folder / "work"
        self.runs: list[Path] = []
        self.updates, self.codes = 0, set[int | None]()
        for name, words in TRAINED.items():
            self._clean()
            run = self.work / "run"
            command = ["train", *words.split(), *SIZES.split(), "--folder", str(run)]
            outcome = self.worker.do(command, self.work, limit=5 * LONG)  # nothing is compiled yet
            assert outcome.code == 0, outcome.err
            self.runs.append(run.rename(folder / name))

    def _clean(self) -> None:
        """A working directory as a user with environments of their own has it, and a hostile module in it."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(HERE.parent / "examples", self.work)
        (self.work / "hostile_module.py").write_text(HOSTILE_SOURCE, encoding="utf-8")

    def run(self, seed: int) -> Result:
        """Run the case of a seed in a clean working directory."""
        case, hurt = draw(seed), ""
        self._clean()
        which = seed % len(self.runs)
        named = "run$^{$" if seed % 5 == 0 else "run"  # the first is no formula of matplotlib
        run, other = self.work / named, self.runs[(which + seed // 7 % 2) % len(self.runs)]
        shutil.copytree(self.runs[which], run)
        shutil.copy(run / "run.json", self.work / "before.json")
        if case.damage is not None:
            hurt = damage(run, case.damage)
        outcome = self.worker.do(filled(case.words, run, other, self.work / "new"), self.work, case.nowhere)
        result = Result(case, hurt, outcome, judge(case, outcome, self.work, run), reached_update(self.work))
        self.updates += result.updated
        self.codes.add(outcome.code)
        return result

    def close(self) -> None:
        """End the worker."""
        self.worker.close()


@contextlib.contextmanager
def fuzzer() -> Iterator[Fuzzer]:
    """A :class:`Fuzzer` in a temporary folder of its own."""
    with tempfile.TemporaryDirectory(prefix="shoal-fuzz-") as folder:
        made = Fuzzer(Path(folder))
        try:
            yield made
        finally:
            made.close()


def main() -> int:
    """Run the cases, print what is wrong and a count; 1 where anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--only", type=int, help="one case, with what it prints")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve()
        return 0
    seeds = range(asked.first, asked.first + asked.cases) if asked.only is None else [asked.only]
    count: Counter[str] = Counter()
    began = time.monotonic()
    with fuzzer() as made:
        for seed in seeds:
            if time.monotonic() - began > asked.seconds:
                break
            case, hurt, outcome, wrong, updated = made.run(seed)
            kind = (
                "damaged"
                if case.damage is not None
                else case.words[0]
                if case.words[0] in ("train", "check")
                else "other"
            )
            count[f"{kind}: exit {outcome.code}"] += 1
            count["cases"] += 1
            count["reached an update"] += updated
            count["interrupted"] += outcome.interrupted
            if wrong or asked.only is not None:
                count["wrong"] += bool(wrong)
                print(f"{seed}: {wrong or 'right'}\n  shoal {' '.join(map(repr, case.words))}\n  {hurt}", flush=True)
                print("  " + "\n  ".join([*outcome.out.splitlines()[-3:], *outcome.err.splitlines()[-14:]]), flush=True)
    for name, number in sorted(count.items()):
        print(f"{number:6}  {name}")
    return 1 if count["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
