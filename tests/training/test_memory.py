"""What cannot be held in memory is refused before anything is allocated."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import counters
import shoal
import toys
from shoal.algorithms import mappo, qmix
from shoal.environments.matrix import climbing
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.rollouts import fused
from shoal.training import checks, crossplay, evaluation, memory
from shoal.training.program import trajectory_shape
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.types import Scale

HUGE: list[tuple[str, dict[str, Any], str]] = [
    ("mappo", {"hidden": (65_536, 65_536)}, "The parameters and optimisers of 2 seeds would take .* lower seeds"),
    (
        "mappo",
        {"seeds": 65_536, "hidden": (4096, 4096), "eval_episodes": 64},
        "The parameters and optimisers of 65536 seeds would take",
    ),
    ("mappo", {"recurrent": 65_536}, "The parameters and optimisers of 2 seeds would take"),
    ("mappo", {"num_envs": 10_000_000, "rollout_length": 1_000_000}, "Rollouts of 2e7 environments over 1e6 steps"),
    ("mappo", {"eval_episodes": 1_000_000, "seeds": 65_536}, "6.5536e10 episodes of up to 7 steps .* eval_episodes"),
    ("qmix", {"batch_size": 2**31 - 1}, "The samples of one update would take .* lower batch_size"),
    ("qmix", {"gradient_steps": 1_000_000, "batch_size": 2**20}, "The samples of one update would take"),
    ("qmix", {"buffer_size": 2**31 - 1}, "replay buffers of 2,147,483,616 timesteps would take"),
]


@pytest.mark.parametrize(("algorithm", "flags", "said"), HUGE)
def test_a_run_that_exceeds_the_memory_is_refused(
    algorithm: str, flags: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free", lambda _: 32 * 10**9)
    monkeypatch.setattr(Trainer, "run", lambda _: pytest.fail("training began"))
    sizes: dict[str, Any] = {"seeds": 2, "num_envs": 4, "rollout_length": 8, "minibatches": 1, "chunk_length": 8}
    if algorithm == "qmix":
        sizes = {"seeds": 2, "num_envs": 4, "rollout_length": 8, "mixer_input": "concat"}
    with pytest.raises(InputError, match=said) as caught:
        shoal.train(algorithm, toys.busy(), folder=tmp_path / "run", progress=False, **(sizes | flags))
    assert str(caught.value).count("\n") == 0 and not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(("make", "kind"), [(toys.busy, mappo), (toys.drift, mappo), (climbing, qmix)])
def test_the_estimate_of_a_roll_out_is_a_lower_bound(make: Any, kind: Any) -> None:
    """Beside what is counted there are the algorithm's own notes, and two flags of a timestep."""
    env = make()
    config = override(kind.Config(), {"hidden": (4,), "minibatches": 1, "mixer_input": "concat"})
    algorithm = kind.make(env.spec, config, Scale(4, 8, 10))._replace(replay=("anything",))
    shapes = trajectory_shape(algorithm, fused.make_rollout(env, 4, 8), 4)
    bare = shapes._replace(extras={}, carry=())
    true = sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(bare))
    flags = 2 * 2 * 4 * 8
    assert memory.timestep_bytes(env.spec) * 4 * 8 == true - flags


def test_parameters_are_counted_with_their_optimisers() -> None:
    algorithm = mappo.make(toys.busy().spec, mappo.Config(), Scale(4, 16, 10))
    learner = jax.eval_shape(algorithm.init, jax.random.key(0))
    made = jax.tree.leaves(algorithm.init(jax.random.key(0)))
    assert memory.num_bytes(learner) == sum(x.nbytes for x in made)


def test_episodes_of_evaluation_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda _: 10**6)
    env = toys.busy()
    algorithm = mappo.make(env.spec, override(mappo.Config(), {"hidden": (4,)}), Scale(1, 16, 1))
    learner = jax.vmap(algorithm.init)(jax.random.split(jax.random.key(0), 2))
    with pytest.raises(InputError, match=r"2e5 episodes of up to 7 steps would take .*; lower episodes\."):
        evaluation.evaluate(env, algorithm, learner, jax.random.key(0), 100_000)
    player = crossplay.Player("a", "mappo", algorithm, learner)
    with pytest.raises(InputError, match=r"2e5 episodes of up to 7 steps would take .*; lower episodes\."):
        crossplay.play_matches(env, [player], (0,), jax.random.key(0), 100_000)


def test_too_many_python_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="131072 host environments, and the limit is 65536"):
        shoal.train("mappo", counters.hosted(True), folder=tmp_path / "run", num_envs=65_536, seeds=2, progress=False)


@pytest.mark.parametrize(("final", "count"), [(1, "4e6"), (0, "2e6")])
def test_evaluations_during_training_count_in_the_modes_that_they_play(
    final: int, count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a final evaluation nothing decides how the policies act, and only the modes are played."""
    monkeypatch.setattr(memory, "free", lambda _: 10**6)
    flags = {"seeds": 2, "eval_every": 64, "curve_episodes": 1_000_000, "eval_episodes": final}
    with pytest.raises(InputError, match=rf"^{count} episodes of up to 7 steps .*; lower curve_episodes\.$"):
        checks.check_evaluations(toys.busy(), override(Settings(), flags), modes=2)
