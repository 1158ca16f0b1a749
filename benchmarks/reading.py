"""Count what has to be read to understand an algorithm's update: the files and lines that run while it is traced.

    python benchmarks/reading.py                   # every algorithm
    python benchmarks/reading.py mappo happo --lines

An update is traced once (feed-forward nets, discrete actions, otherwise the defaults), and every line of Shoal that
runs meanwhile is noted. ``equations/`` and ``networks/`` are counted apart: they are read as formulas and as layers, on
their own. A hop is a step from one file to another on the way from an algorithm's file to an equation: 1 where a file
of ``algorithms/`` calls the equation itself.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp

import shoal
from shoal import algorithms
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
        many = jax.tree.map(lambda x: jnp.broadcast_to(x, (T, *x.shape)), (action, extras))
        traj = Trajectory(step(), *many, step(), carry)
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", default=list(algorithms.NAMES))
    parser.add_argument("--lines", action="store_true", help="also print the lines of each file")
    asked = parser.parse_args()
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
            for file, count in sorted(own.items(), key=lambda item: -item[1]):
                print(f"             {count:4}  {file}")


if __name__ == "__main__":
    main()
