"""Compare this working tree's algorithms with another commit's: the same data must give the same numbers.

    python benchmarks/frozen.py --against HEAD~1                  # every algorithm, in float64
    python benchmarks/frozen.py --against main --only happo mat   # some of them
    python benchmarks/frozen.py --against main --float32
    python benchmarks/frozen.py --against main --whole            # whole runs: two seeds, two devices
    python benchmarks/frozen.py --record --only mappo skirmish/   # after a raised version: write frozen.json anew

For every algorithm (feed-forward and recurrent nets, discrete and continuous actions, shared and independent
parameters, in four pairings) both trees
initialise a learner from one key, act in the same random timesteps, and do two updates from what they made of them.
Compared are the actions and what ``act`` notes of them, every metric of both updates, and of every array of the learner
its shape, its sum and its sum of squares, in an order that does not depend on names: an array may be renamed or moved.
What one tree refuses, the other must refuse. The relative difference may be 1e-12 in float64 and 1e-6 in float32.

A change that moves random draws (another split of a key) is a difference, as it should be.

``frozen.json`` beside this file holds some of these numbers for the behaviour versions of every algorithm, and what
random actions do in environments on the device. ``tests/runs/test_behaviour.py`` compares them, so that a change of
behaviour without a raised version (``src/shoal/runs/behaviour.py``) fails. ``--record`` writes them for the names in
``--only``: names of algorithms and families of environments.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDED = Path(__file__).with_name("frozen.json")
ENVIRONMENTS = {
    "bps/": ("bps/1",),
    "grid/": ("grid/pursuit", "grid/stag_hunt"),
    "matrix/": ("matrix/two_step",),
    "mpe/": ("mpe/simple_spread", "mpe/simple_tag"),
    "skirmish/": ("skirmish/2s3z",),
    "skirmish/terran_": ("skirmish/terran_3_vs_4",),
}
"""Tasks of each family on the device whose numbers are recorded."""
BOUNDS = {"float64": 1e-12, "float32": 1e-6}

GUARD = "ippo"
"""The algorithm whose numbers are recorded in single precision as well, for a quick test."""
T, E, N = 6, 4, 3

SMALL = {
    "hidden": (6,), "epochs": 2, "minibatches": 2, "batch_size": 4, "sequence_length": T, "buffer_size": 96,
    "learning_starts": 24, "mixing_width": 4, "hyper_width": 4, "embedding": 8, "gradient_steps": 1,
}  # fmt: skip
"""Sizes that compile quickly; each where an algorithm has it."""


def cases(names: list[str]) -> list[tuple[str, int | None, str, str]]:
    """(algorithm, recurrent width, kind of actions, sharing)."""
    kinds = (
        (None, "discrete", "shared"),
        (4, "discrete", "independent"),
        (None, "box", "independent"),
        (4, "box", "shared"),
    )
    return [(name, recurrent, actions, sharing) for name in names for recurrent, actions, sharing in kinds]


# One tree, in a process of its own


def of_this_tree(names: list[str], whole: bool, double: bool) -> dict[str, Any]:
    """Every case's numbers; with ``double`` every single-precision type that the code names becomes a double one."""
    if double:
        import jax.numpy as jnp

        jnp.float32 = jnp.float64  # before networks are imported, whose parameters have this type by default

    from shoal import algorithms
    from shoal.errors import InputError

    said: dict[str, Any] = {}
    for case in cases(names or list(algorithms.NAMES)):
        if whole and case[1:] != (None, "discrete", "shared"):
            continue
        label = " ".join(str(x) for x in case)
        try:
            said[label] = _run(case[0]) if whole else _updates(*case)
        except InputError as error:
            said[label] = f"refused: {error}"
        except Exception as error:
            said[label] = f"failed: {type(error).__name__}: {error}"[:300]
        print(label, file=sys.stderr, flush=True)
    return said


def prepared(name: str, recurrent: int | None, kind: str, sharing: str, **sizes: int) -> tuple[Any, Any, Any]:
    """An algorithm with small nets, a function that makes random timesteps [T, E] from a NumPy generator, and its
    update: (learner, (steps, outcomes), key) -> (learner, metrics, what it did in them)."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from shoal import algorithms
    from shoal.options.flags import flags_of, override
    from shoal.types import Box, Discrete, EnvSpec, Experience, Replay, Scale, Step, Trajectory

    width = 4 if kind == "discrete" else 2
    spec = EnvSpec(
        name="frozen", agents=tuple(f"agent_{i}" for i in range(N)), obs_dims=(5, 5, 4), state_dim=4,
        action=Discrete(width) if kind == "discrete" else Box(width), action_dims=(width, width, width - 1),
        roles=(0, 0, 1), horizon=8, shared_reward=True,
    )  # fmt: skip
    module = algorithms.get(name)
    default = module.Config()
    asked = {flag: value for flag, value in (SMALL | sizes).items() if flag in flags_of(default)}
    asked |= {"sharing": sharing, "recurrent": recurrent} | ({"chunk_length": T // 2} if recurrent else {})
    config = override(default, {flag: value for flag, value in asked.items() if flag in flags_of(default)})
    algorithm = module.make(spec, config, Scale(E, T, 10))

    def steps(rng: np.random.Generator) -> Step:
        def normal(*shape: int) -> jax.Array:
            return jnp.asarray(rng.normal(size=(T, E, *shape)), float)

        legal = rng.random((T, E, N, width)) > 0.3
        legal[..., 0] = True
        if kind == "box":
            legal[:] = np.arange(width) < np.array(spec.action_dims)[:, None]
        alive, team = rng.random((T, E, N)) > 0.3, rng.normal(size=(T, E, 1))
        over = rng.random((T, E)) > 0.7
        return Step(
            obs=normal(N, 5), state=normal(4), legal=jnp.asarray(legal), alive=jnp.asarray(alive),
            reward=jnp.asarray(np.broadcast_to(team, (T, E, N)), float),
            discount=jnp.asarray(np.broadcast_to(rng.random((T, E, 1)) > 0.2, (T, E, N)), float),
            first=jnp.zeros((T, E), bool), last=jnp.asarray(over),
        )  # fmt: skip

    def act(learner: Any, step: Step, key: jax.Array) -> tuple[Any, Any]:
        carry = algorithm.initial_carry(E)

        def turn(carry: Any, timestep: tuple) -> tuple:
            carry, action, extras = algorithm.act(learner, carry, *timestep, False)
            return carry, (action, extras)

        return carry, jax.lax.scan(turn, carry, (step, jax.random.split(key, T)))[1]

    def drawn(one: Replay, traj: Trajectory) -> Any:
        def cut(x: jax.Array) -> jax.Array:
            return x[None] if one.length > 1 else jnp.swapaxes(x, 0, 1).reshape(1, 1, T * E, *x.shape[2:])

        return jax.tree.map(cut, one.keep(traj))

    def following(name: str, step: Step, outcome: Step) -> jax.Array:
        """Within an episode an outcome is the next step."""
        after, own = getattr(step, name), getattr(outcome, name)
        last = outcome.last.reshape(*outcome.last.shape, *(1,) * (own.ndim - 2))
        return jnp.concatenate([jnp.where(last[:-1], own[:-1], after[1:]), own[-1:]])

    def update(learner: Any, data: tuple[Step, Step], key: jax.Array) -> tuple[Any, Any, Any]:
        step, outcome = data
        step = step._replace(first=jnp.concatenate([step.last[:1], outcome.last[:-1]]))
        names = ("obs", "state", "legal", "alive")
        outcome = outcome._replace(**{name: following(name, step, outcome) for name in names})
        key_act, key_update = jax.random.split(key)
        carry, (action, extras) = act(learner, step, key_act)
        traj: Any = Trajectory(step, action, extras, outcome, carry)
        if jax.tree.leaves(algorithm.replay):
            samples = jax.tree.map(
                lambda one: drawn(one, traj), algorithm.replay, is_leaf=lambda x: isinstance(x, Replay)
            )
            traj = Experience(traj, samples)
        return *algorithm.update(learner, traj, key_update), (action, extras)

    return algorithm, steps, update


def _updates(name: str, recurrent: int | None, kind: str, sharing: str) -> dict[str, Any]:
    import jax
    import numpy as np

    algorithm, steps, update = prepared(name, recurrent, kind, sharing)
    rng, update = np.random.default_rng(0), jax.jit(update)
    learner, numbers = jax.jit(algorithm.init)(jax.random.key(0)), {}
    for i in range(2):
        learner, metrics, noted = update(learner, (steps(rng), steps(rng)), jax.random.key(i + 1))
        numbers |= {f"{i}/{metric}": float(x) for metric, x in metrics.items()}
        numbers[f"{i}/acted"] = _signature(noted)
    return numbers | {"learner": _signature(learner)}


def _signature(tree: Any) -> list[list[Any]]:
    """[shape, sum, sum of squares] of every array of numbers, sorted."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    leaves = [
        np.asarray(x, np.float64) for x in jax.tree.leaves(tree) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    ]
    return sorted([list(x.shape), float(x.sum()), float((x**2).sum())] for x in leaves if x.size)


def summary(numbers: Any) -> Any:
    """A case's numbers with nine digits, and of each signature the sums over all arrays; a refusal as it is."""
    if isinstance(numbers, str):
        return numbers.partition(":")[0]
    found = {}
    for name, value in numbers.items():
        if isinstance(value, list):
            found[f"{name}/sum"], found[f"{name}/squares"] = (sum(array[i] for array in value) for i in (1, 2))
        else:
            found[name] = value
    return {name: float(f"{value:.9g}") for name, value in found.items()}


def played(task: str, steps: int = 12, games: int = 8) -> dict[str, float]:
    """What random legal actions do in an environment on the device, in single precision: means over games and steps."""
    import jax
    import jax.numpy as jnp

    from shoal.environments import registry
    from shoal.types import Discrete

    env: Any = registry.make(task)

    def game(key: jax.Array) -> Any:
        key_reset, key_steps = jax.random.split(key)
        state, first = env.reset(key_reset)

        def turn(carry: Any, key: jax.Array) -> Any:
            state, step = carry
            key_act, key_step = jax.random.split(key)
            if isinstance(env.spec.action, Discrete):
                action = jax.random.categorical(key_act, jnp.where(step.legal, 0.0, -jnp.inf))
            else:
                action = jax.random.uniform(key_act, step.legal.shape, minval=-1.0, maxval=1.0)
            state, outcome = env.step(key_step, state, action)
            return (state, outcome), outcome

        return first, jax.lax.scan(turn, (state, first), jax.random.split(key_steps, steps))[1]

    first, outcomes = jax.jit(jax.vmap(game))(jax.random.split(jax.random.key(0), games))
    found = {}
    for name in ("obs", "state", "legal", "alive", "reward", "discount", "last"):
        for where, step in (("first", first), ("later", outcomes)):
            values = jnp.asarray(getattr(step, name), jnp.float32)
            if values.size and (where == "later" or name in ("obs", "state", "legal")):
                found[f"{where}/{name}/mean"] = float(values.mean())
                found[f"{where}/{name}/squares"] = float((values**2).mean())
    return {name: float(f"{value:.9g}") for name, value in found.items()}


def record(only: list[str]) -> None:
    """Write the numbers of algorithms and families of environments (all if none is named) to :data:`RECORDED`."""
    import jax

    from shoal import algorithms
    from shoal.runs import behaviour

    old = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {"algorithms": {}, "families": {}}
    if old.get("jax", jax.__version__) != jax.__version__ and only:
        raise SystemExit(f"{RECORDED.name} was recorded with JAX {old['jax']}; record everything, without --only.")
    names = [name for name in algorithms.NAMES if not only or name in only]
    double = numbers_of(ROOT, "float64", names, False) if names else {}
    for name in names:
        cases = {label: summary(found) for label, found in double.items() if label.split()[0] == name}
        single = summary(_updates(name, None, "discrete", "shared")) if name == GUARD else None
        entry = {"version": behaviour.ALGORITHMS[name], "float64": cases}
        old["algorithms"][name] = entry | ({"float32": single} if single else {})
    for family, tasks in ENVIRONMENTS.items():
        if not only or family in only:
            entry = {"version": behaviour.ENVIRONMENTS[family], "tasks": {task: played(task) for task in tasks}}
            old["families"][family] = entry
    text = json.dumps(old | {"jax": jax.__version__}, indent=1, sort_keys=True, allow_nan=False)
    RECORDED.write_text(text + "\n", encoding="utf-8")


def _run(name: str) -> dict[str, Any]:
    import shoal
    from shoal import algorithms
    from shoal.options.flags import flags_of

    known = flags_of(algorithms.get(name).Config())
    flags: dict[str, Any] = {flag: value for flag, value in SMALL.items() if flag in known}
    sizes: dict[str, Any] = {
        "num_envs": E,
        "rollout_length": 8,
        "steps": 10 * E * 8,
        "seeds": 2,
        "rows": 1000,
        "eval_episodes": 4,
    }
    if "minibatches" in known:
        sizes["minibatches"] = 1
    with tempfile.TemporaryDirectory() as folder:
        run = shoal.train(
            name, "mpe/simple_spread", env={"horizon": 4}, folder=Path(folder) / "run", progress=False,
            tensorboard=False, **(flags | sizes),
        )  # fmt: skip
        rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        timing = ("seconds", "elapsed", "steps_per_second", "time")
        numbers = {f"{row['update']}/{k}": v for row in rows for k, v in row.items() if not any(x in k for x in timing)}
        return numbers | {"score": run.evaluation.per_seed.tolist() if run.evaluation else None}


# Both trees


def tree_of(revision: str, folder: Path) -> Path:
    """A checkout of ``revision`` under ``folder``, without touching the working tree."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", revision, "src"], capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def numbers_of(tree: Path, precision: str, names: list[str], whole: bool) -> dict[str, Any]:
    """What :func:`of_this_tree` gives in a process that imports Shoal from ``tree``."""
    env = os.environ | {"PYTHONPATH": str(tree / "src"), "JAX_ENABLE_X64": "1" if precision == "float64" else "0"}
    env |= {"JAX_NUM_CPU_DEVICES": "2", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    env["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quick}".strip()
    words = [sys.executable, __file__, "--child", *(["--whole"] if whole else []), "--only", *names]
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def differences(here: Any, there: Any, bound: float) -> list[str]:
    """What differs by more than ``bound``, relative to the larger of the two and 1."""
    if isinstance(here, dict) and isinstance(there, dict):
        found = [f"{key} is missing {'here' if key in there else 'there'}" for key in here.keys() ^ there.keys()]
        return found + [f"{k}: {x}" for k in here.keys() & there.keys() for x in differences(here[k], there[k], bound)]
    if isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        return [x for pair in zip(here, there, strict=True) for x in differences(*pair, bound)]
    if isinstance(here, int | float) and isinstance(there, int | float):
        scale = max(abs(here), abs(there), 1.0)
        return [] if abs(here - there) <= bound * scale else [f"{here!r} here, {there!r} there"]
    return [] if here == there else [f"{here!r} here, {there!r} there"]


def main() -> int:
    """Compare and print; 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="HEAD~1", help="a commit (default: HEAD~1)")
    parser.add_argument("--only", nargs="*", default=[], help="names of algorithms")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--whole", action="store_true", help="whole runs of two seeds on two devices, in float32")
    parser.add_argument("--record", action="store_true", help="write frozen.json for --only, or for everything")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(of_this_tree(asked.only, asked.whole, os.environ["JAX_ENABLE_X64"] == "1")))
        return 0
    if asked.record:
        record(asked.only)
        return 0
    precision = "float32" if asked.float32 or asked.whole else "float64"
    with tempfile.TemporaryDirectory(prefix="shoal-frozen-") as folder:
        trees = ROOT, tree_of(asked.against, Path(folder))
        here, there = (numbers_of(tree, precision, asked.only, asked.whole) for tree in trees)
    wrong = 0
    for label in sorted(here | there):
        found = differences(here.get(label), there.get(label), BOUNDS[precision])
        found += ["both fail"] * (not found and str(here.get(label)).startswith("failed"))
        wrong += bool(found)
        print(f"{label:40} {'; '.join(found[:3]) if found else 'same'}")
    refused = sum(isinstance(x, str) for x in here.values())
    print(f"{len(here)} cases, of which {refused} are refused; {wrong} differ by more than {BOUNDS[precision]:g}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
