"""Count what has to be read to understand an algorithm's update, and to follow a command to it.

    python benchmarks/reading.py                   # every algorithm, then the ways to it
    python benchmarks/reading.py mappo happo --lines
    python benchmarks/reading.py --ways --lines    # only these, with the switches into each file

An update is traced once (feed-forward nets, discrete actions, otherwise the defaults), and every line of Shoal that
runs meanwhile is noted. ``equations/`` and ``networks/`` are counted apart: they are read as formulas and as layers, on
their own. A hop is a step from one file to another on the way from an algorithm's file to an equation: 1 where a file
of ``algorithms/`` calls the equation itself.

A way is what runs of Shoal from a call until a point: ``shoal train`` until its program first calls ``update`` (while
it is traced for compilation), ``shoal.load``, and the first ``Policies.act``. Counted are the files with functions that
run, and the switches: places in one file that call a function of another, with or without other libraries in between. A
place counts once, however often it is passed (``calls`` counts each time), since a loop over flags is read once. Code
that runs when a module is imported is left out. A line ``before`` counts what runs before a point of the way.
"""

import argparse
import contextlib
import io
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shoal
from shoal import algorithms, cli
from shoal.options.flags import flags_of, override
from shoal.types import Discrete, EnvSpec, Experience, Replay, Scale, Step, Trajectory

HOME = Path(shoal.__file__).parent
APART = ("equations", "networks")
GENERAL = ("types.py", "spec.py", "bounds.py", "errors.py")
"""Vocabulary, read once."""
T, E, N = 4, 2, 3

SPEC = EnvSpec(
    name="reading", agents=tuple(f"agent_{i}" for i in range(N)), obs_dims=(5,) * N, state_dim=4, action=Discrete(4),
    action_dims=(4,) * N, roles=(0,) * N, horizon=8, shared_reward=True,
)  # fmt: skip
SMALL = {"epochs": 1, "minibatches": 1, "batch_size": 2, "buffer_size": 96, "learning_starts": 8, "sequence_length": T}


class Read:
    """What ran: lines by file, and the fewest hops to each function of ``equations/``."""

    def __init__(self) -> None:
        self.lines: dict[str, set[int]] = defaultdict(set)
        self.hops: dict[str, int] = {}

    def watch(self, frame: FrameType, event: str, _: Any) -> Any:
        """A trace function; see :func:`sys.settrace`."""
        name = _name(frame)
        if name is None or frame.f_code.co_name == "<module>":
            return None
        if event == "call":
            self._called(frame, name)
        elif event == "line":
            self.lines[name].add(frame.f_lineno)
        return self.watch

    def _called(self, frame: FrameType, name: str) -> None:
        if not name.startswith("equations/") or frame.f_code.co_name.startswith("<"):
            return
        files, at = [name], frame.f_back
        while at is not None:
            above = _name(at)
            if above is not None and above != files[-1]:
                files.append(above)
            if above is not None and above.startswith("algorithms/"):
                break
            at = at.f_back
        if len(files) > 1 and not files[1].startswith(APART):
            equation = f"{frame.f_code.co_name}"
            self.hops[equation] = min(self.hops.get(equation, 99), len(files) - 1)


def _name(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return path.relative_to(HOME).as_posix() if path.is_relative_to(HOME) else None


def read_update(name: str) -> Read:
    """Trace one update of an algorithm."""
    module = algorithms.get(name)
    config = module.Config()
    known = flags_of(config)
    config = override(config, {flag: value for flag, value in SMALL.items() if flag in known})
    algorithm = module.make(SPEC, config, Scale(E, T, 10))

    def step() -> Step:
        return Step(
            obs=jnp.ones((T, E, N, 5)), state=jnp.ones((T, E, 4)), legal=jnp.ones((T, E, N, 4), bool),
            alive=jnp.ones((T, E, N), bool), reward=jnp.ones((T, E, N)), discount=jnp.ones((T, E, N)),
            first=jnp.zeros((T, E), bool), last=jnp.zeros((T, E), bool),
        )  # fmt: skip

    def data(key: Any) -> Any:
        learner, carry = algorithm.init(key), algorithm.initial_carry(E)
        now = jax.tree.map(lambda x: x[0], step())
        _, action, extras = algorithm.act(learner, carry, now, key, False)
        action, extras = jax.tree.map(lambda x: jnp.broadcast_to(x, (T, *x.shape)), (action, extras))
        traj = Trajectory(step(), action, extras, step(), carry)
        if not jax.tree.leaves(algorithm.replay):
            return learner, traj

        def drawn(one: Replay) -> Any:
            return jax.tree.map(lambda x: x[None, : one.length], one.keep(traj))

        samples = jax.tree.map(drawn, algorithm.replay, is_leaf=lambda x: isinstance(x, Replay))
        return learner, Experience(traj, samples)

    learner, experience = jax.eval_shape(data, jax.random.key(0))
    found = Read()
    sys.settrace(found.watch)
    try:
        jax.eval_shape(algorithm.update, learner, experience, jax.random.key(0))
    finally:
        sys.settrace(None)
    return found


class Reached(BaseException):
    """A way has reached its end."""


class Way:
    """What ran from a call until a point: files, and switches between them."""

    def __init__(self, until: Callable[[str, str], bool] = lambda *_: False, parts: tuple[tuple[str, str], ...] = ()):
        """Prepare; ``until`` is the end, and ``parts`` are points in between, as (file, function)."""
        self.until, self.parts = until, parts
        self.files: list[str] = []
        """In the order in which they are first entered."""
        self.places: set[tuple[str, int, str, str]] = set()
        """(file, line) of each call and (file, function) that it calls."""
        self.calls = 0
        self.passed: dict[tuple[str, str], tuple[int, int, int]] = {}
        """Files, switches and calls before each of ``parts``."""

    def counts(self) -> tuple[int, int, int]:
        """Files, switches and calls so far."""
        return len(self.files), len(self.places), self.calls

    def watch(self, frame: FrameType, event: str, _: Any) -> None:
        """A trace function for calls only; see :func:`sys.settrace`."""
        name, function = _name(frame), frame.f_code.co_name
        if name is None or function in ("<module>", "find_spec") or _importing(frame):
            return  # find_spec: what an import statement asks Shoal's finder of modules
        if self.until(name, function):
            sys.settrace(None)
            raise Reached
        if (name, function) in self.parts:
            self.passed.setdefault((name, function), self.counts())
        if name not in self.files:
            self.files.append(name)
        above = frame.f_back
        while above is not None and _name(above) is None:
            above = above.f_back
        if above is not None and (caller := _name(above)) is not None and caller != name:
            self.calls += 1
            self.places.add((caller, above.f_lineno, name, function))

    @contextlib.contextmanager
    def walked(self) -> Iterator[None]:
        """Count what runs inside the block, which ends where the way does."""
        sys.settrace(self.watch)
        try:
            yield
        except Reached:
            pass
        finally:
            sys.settrace(None)


def _importing(frame: FrameType) -> bool:
    """Whether a function runs because a module of Shoal is imported, for example a decorator."""
    at = frame.f_back
    while at is not None:
        if at.f_code.co_name == "<module>" and _name(at) is not None:
            return True
        if _name(at) is not None and at.f_code.co_name != "<module>" and _name(at) != _name(frame):
            return False
        at = at.f_back
    return False


COMMAND = "mappo", "mpe/simple_spread", "--steps", "1024", "--num-envs", "4", "--rollout-length", "128"
COMMAND += ("--devices", "1", "--eval-episodes", "0", "--no-progress", "--folder")
PARTS = (("training/trainer.py", "run"),)
"""The training loop."""


def ways() -> dict[str, Way]:
    """The ways of ``shoal train`` to its first update, of ``shoal.load``, and of the first action."""
    with tempfile.TemporaryDirectory() as home, contextlib.redirect_stdout(io.StringIO()):
        where = Path(home) / "run"
        asked = [*COMMAND, str(where)]
        train = Way(lambda file, function: file.startswith("algorithms/") and function == "update", PARTS)
        with train.walked():
            cli.main(["train", *asked])
        flags = {"num_envs": 4, "rollout_length": 8, "steps": 32, "devices": 1, "eval_episodes": 0, "progress": False}
        trained = shoal.train("mappo", "mpe/simple_spread", folder=Path(home) / "trained", **flags)
        load, act = Way(), Way()
        with load.walked():
            policies = shoal.load(trained.folder)
        observations = {name: np.zeros(18, np.float32) for name in policies.agents}
        with act.walked():
            policies.act(observations)
    return {"shoal train": train, "shoal.load": load, "act": act}


def print_ways(lines: bool) -> None:
    """Print the files and switches of each way."""
    print("\nway          files  switches  calls")
    for name, way in ways().items():
        for (file, function), counted in (*way.passed.items(), (("", ""), way.counts())):
            print("{:11}  {:5}  {:8}  {:5}".format(name, *counted), f"  before {function} in {file}" * bool(file))
        for file in way.files if lines else ():
            print(f"             {sum(place[2] == file for place in way.places):15}  {file}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", default=list(algorithms.NAMES))
    parser.add_argument("--lines", action="store_true", help="also print the lines of each file")
    parser.add_argument("--ways", action="store_true", help="only the ways to an update")
    asked = parser.parse_args()
    if asked.ways:
        print_ways(asked.lines)
        return
    print("algorithm  files  lines  equations/, networks/  hops to equations (1, 2, 3 and more)")
    for name in asked.algorithms:
        found = read_update(name)
        own = {file: len(lines) for file, lines in found.lines.items() if not file.startswith((*APART, *GENERAL))}
        apart = {file: len(lines) for file, lines in found.lines.items() if file.startswith(APART)}
        hops = [sum(h == 1 for h in found.hops.values()), sum(h == 2 for h in found.hops.values())]
        hops.append(len(found.hops) - sum(hops))
        files = f"{len(apart)} files, {sum(apart.values())} lines"
        print(f"{name:9}  {len(own):5}  {sum(own.values()):5}  {files:21}  {hops[0]}, {hops[1]}, {hops[2]}")
        if asked.lines:
            packages = Counter(file.split("/")[0] for file in found.lines)
            print(f"             files: {', '.join(f'{package} {count}' for package, count in packages.most_common())}")
            for file, count in sorted(own.items(), key=lambda item: -item[1]):
                print(f"             {count:4}  {file}")
    print_ways(asked.lines)


if __name__ == "__main__":
    main()
