"""Every algorithm trains, is stopped and resumed to the bit, and is deployed.

Not those that are another's program with other options or another mixing net, nor SePS, whose own tests do the same.
"""

import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
import toys
from shoal import algorithms
from shoal.options.flags import flags_of
from shoal.storage import log
from shoal.storage.checkpoint import Checkpoints
from shoal.training import program
from shoal.training.evaluation import BEST_FOLDER
from shoal.training.program import Program
from support import trained
from support.selection import quick

FLAGS: dict[str, Any] = {
    "seeds": 2,
    "devices": 1,
    "num_envs": 4,
    "rollout_length": 6,
    "steps": 8 * 24,
    "rows": 8,
    "hidden": (6,),
    "orthogonal": False,
    "epochs": 1,
    "minibatches": 1,
    "chunk_length": 6,
    "batch_size": 8,
    "buffer_size": 4 * 18,  # overwritten twice
    "learning_starts": 40,  # the first rollout is collected only
    "eval_episodes": 0,
    "tensorboard": False,
    "checkpoint_seconds": 0.0,
    "keep": 100,
}


SAME = (
    "coma", "haa2c", "haddpg", "ia2c", "iddpg", "ippo", "ipqn", "iql", "masac", "matd3", "poca", "qplex", "seps",
    "shaq", "vdn",
)  # fmt: skip


def flags_for(name: str) -> dict[str, Any]:
    known = set(flags_of(algorithms.get(name).Config())) | set(flags_of(shoal.training.settings.Settings()))
    return {key: value for key, value in FLAGS.items() if key in known}


def arrays(folder: Path, template: Any) -> dict[str, bytes]:
    state, _, update = Checkpoints(folder / "checkpoints").restore(template)
    assert update == 8
    state = state._replace(key=jax.random.key_data(state.key))
    rollout = [x for x in jax.tree.leaves(state.rollout) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    leaves = jax.tree_util.tree_leaves_with_path((state.learner, state.feed, state.key, rollout))
    return {jax.tree_util.keystr(path): np.asarray(x).tobytes() for path, x in leaves}


TRACED_AGAIN = ("mappo", "maddpg", "qmix", "vdn")
"""One of each family is resumed as another process resumes it. All other algorithms continue by the program that they
began with, as it takes most of the time to trace it again: they may differ in what a checkpoint or run.json loses."""

CASES = [(name, 1) for name in algorithms.NAMES if name not in SAME] + [("vdn", 2), ("sarsa", 2)]
"""With two devices, half of the environments and of the replay buffer lie on each."""


@pytest.mark.parametrize(("name", "devices"), quick(CASES, ("mappo", 1)))
def test_it_trains_resumes_and_acts(name: str, devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.training.trainer.CALL_SECONDS", 0.0)  # a checkpoint after every update
    monkeypatch.setattr("shoal.training.ending.FIRST", 1)  # also of those with which learning begins
    made: list[Program] = []

    def compile_program(*args: Any) -> Program:
        if not made or name in TRACED_AGAIN:
            made.append(program.compile_program(*args))
        return made[-1]

    monkeypatch.setattr("shoal.training.trainer.compile_program", compile_program)
    whole = tmp_path / "whole"
    flags: dict[str, Any] = flags_for(name) | ({"seeds": 1, "devices": 2} if devices == 2 else {})
    if name == "mappo":  # the program of other tests of runs
        flags |= {of: trained.SMALL[of] for of in ("hidden", "learning_rate", "schedule_steps", "curve_episodes")}
        flags |= {"eval_every": 2 * 24}
    run = shoal.train(name, "toys:busy", folder=whole, progress=False, **flags)
    assert run.finished
    rows = log.read_log(whole)
    assert [row["update"] for row in rows] == list(range(1, 9))
    learned = {name for name, x in rows[-1].items() if isinstance(x, list)} - {"return", "episode_length"}
    assert all(np.isfinite(rows[-1][name]).all() for name in learned if "/" not in name) and len(learned) > 4

    stopped = trained.copied(whole, tmp_path / "stopped")
    for part in ("checkpoints", "policy"):
        for later in [path for path in (stopped / part).iterdir() if path.name.isdigit() and int(path.name) > 4]:
            shutil.rmtree(later)
    assert Checkpoints(stopped / "checkpoints").latest() == 4
    resumed = shoal.resume(stopped, progress=False)
    assert resumed.finished and (resumed.config, resumed.settings) == (run.config, run.settings)
    template = made[-1].template()
    here, there = arrays(stopped, template), arrays(whole, template)
    assert [key for key in there if here[key] != there[key]] == [] and len(there) > 10
    if name == "mappo":
        here, there = (Checkpoints(folder / BEST_FOLDER).load_meta() for folder in (stopped, whole))
        assert here == there and min(there["step"]) <= 4 * 24, "a best policy of before the stop"

    policies, spec = shoal.load(whole), toys.busy().spec
    seen = {agent: np.ones(width) for agent, width in zip(spec.agents, spec.obs_dims, strict=True)}
    legal = {agent: np.arange(width) != 1 for agent, width in zip(spec.agents, spec.action_dims, strict=True)}
    action = policies.act(seen, legal)
    assert action.keys() == set(spec.agents) and all(legal[agent][action[agent]] for agent in spec.agents)
