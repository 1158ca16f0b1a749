"""Runs in environments with images: bytes in rollouts, buffers and deployment, on the device and on the host."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import images
import shoal
from shoal.algorithms import iql
from shoal.environments.rows import as_bytes
from shoal.environments.spec_rules import check_spec
from shoal.environments.wrappers import Wrapping, wrap
from shoal.errors import InputError
from shoal.networks import inputs
from shoal.options.flags import override
from shoal.rollouts import fused
from shoal.rollouts.host import HostRollout, Parallelism
from shoal.sides.sides import narrowed
from shoal.training import feed
from shoal.training.episodes import record_episodes
from shoal.types import Scale
from support.trained import untrained

SMALL: dict[str, Any] = {
    "hidden": (8,),
    "num_envs": 2,
    "rollout_length": 8,
    "channels": (4,),
    "orthogonal": False,
    "epochs": 1,
    "minibatches": 1,
    "eval_episodes": 0,
    "tensorboard": False,
    "progress": False,
}


def policy(run: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.policies()._learner.policy)]


WRAPPED: dict[str, Any] = {"resize": (4, 4), "frame_stack": 2, "last_action": True}


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run in wrapped images beside numbers, with noise for what it has learned."""
    with untrained():
        return shoal.train(
            "mappo", "images:device", folder=tmp_path_factory.mktemp("run"), steps=64, **WRAPPED, **SMALL
        )


def test_a_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    """Four updates, or two and two."""
    whole = shoal.train("mappo", "images:device", folder=tmp_path / "whole", steps=64, **WRAPPED, **SMALL)
    shoal.train("mappo", "images:device", folder=tmp_path / "run", steps=32, **WRAPPED, **SMALL)
    resumed = shoal.resume(tmp_path / "run", steps=64, progress=False)
    for one, two in zip(policy(resumed), policy(whole), strict=True):
        np.testing.assert_array_equal(one, two)


def test_deployed_policies_take_raw_images(noise: Any) -> None:
    """Arrays by name, sequences of them, and rows of bytes give the same actions as the run's environment."""
    run, raw = noise, images.device()
    policies = run.policies()
    assert policies.spec == replace(raw.spec, novel=None)
    algorithm = policies._algorithm
    env = wrap(raw, Wrapping(resize=(4, 4), frame_stack=2, last_action=True))
    step_raw, step_wrapped = jax.jit(raw.step), jax.jit(env.step)
    act = jax.jit(algorithm.act, static_argnums=4)
    (state, now), (outer, seen) = jax.jit(raw.reset)(jax.random.key(3)), jax.jit(env.reset)(jax.random.key(3))
    others = run.policies(), run.policies()
    carry = algorithm.initial_carry(1)
    for t in range(4):
        batch = jax.tree.map(lambda x: x[None], seen)
        carry, wanted, _ = act(policies._learner, carry, batch, jax.random.key(0), True)
        row = np.asarray(now.obs)
        pictures = [x[:192].reshape(8, 8, 3) for x in row]
        clock = np.frombuffer(row[1, 192:].tobytes(), "<f4")
        given = {"left": pictures[0], "right": {"view": pictures[1], "clock": clock}}
        chosen = policies.act(given)
        assert [chosen["left"], chosen["right"]] == np.asarray(wanted[0]).tolist()
        assert others[0].act(row).tolist() == others[1].act([pictures[0], (pictures[1], clock)]).tolist()
        assert others[0]._executed.tolist() == [*chosen.values()]
        state, now = step_raw(jax.random.key(t), state, wanted[0])
        outer, seen = step_wrapped(jax.random.key(t), outer, wanted[0])
    picture = np.zeros((8, 8, 3), np.uint8)
    right = {"view": picture, "clock": np.zeros(2)}
    with pytest.raises(InputError, match="left's observation has an array"):
        policies.act({"left": np.zeros((4, 4, 3), np.uint8), "right": right})
    for wrong in ((picture / 255).astype(np.float32), picture == 0):
        with pytest.raises(InputError, match=f"pass uint8 numbers from 0 to 255, not {wrong.dtype}"):
            policies.act({"left": wrong, "right": right})
    with pytest.raises(InputError, match="whole numbers from 0 to 255, not of int64"):
        policies.act({"left": picture.astype(np.int64) + 256, "right": right})
    with pytest.raises(InputError, match="right's observation lacks 'clock'"):
        policies.act({"left": picture, "right": {"view": picture}})


def test_the_host_rolls_out_the_same_bytes_in_shared_memory() -> None:
    """A worker process and this process give the trajectory of two devices' halves."""

    def act(policy: Any, carry: Any, step: Any, key: Any, greedy: bool) -> Any:
        return carry, (step.obs[..., 0].astype(jnp.int32) + step.obs[..., 9]) % 2, {}

    wrapping = Wrapping(greyscale=True, agent_ids=True)
    found = []
    for workers in (0, 1):
        rollout = HostRollout(wrap(images.host(), wrapping), lambda count: (), Parallelism(1, 2, workers), 8)
        try:
            rollout.init(jax.random.split(jax.random.key(0), 1))
            found.append(rollout.collect(act, (), jax.random.split(jax.random.key(1), 1))[0])
        finally:
            rollout.close()
    for leaf, other in zip(jax.tree.leaves(found[0]), jax.tree.leaves(found[1]), strict=True):
        np.testing.assert_array_equal(leaf, other)
    assert found[0].step.obs.dtype == found[0].outcome.obs.dtype == np.uint8
    assert len(np.unique(found[0].step.obs)) > 50


def test_buffers_hold_bytes() -> None:
    rollout = fused.make_rollout(wrap(images.device(), Wrapping(frame_stack=2)), 2, 8)

    def act(policy: Any, carry: Any, step: Any, key: Any, greedy: bool) -> Any:
        return carry, jnp.zeros((2, 2), jnp.int32), {}

    begun = jax.jit(lambda key: rollout.init(key, ()))(jax.random.key(1))
    _, traj, _ = jax.jit(lambda state, key: rollout.collect(act, (), state, key))(begun, jax.random.key(2))
    assert traj.step.obs.dtype == traj.outcome.obs.dtype == jnp.uint8
    config = override(iql.Config(), {"buffer_size": 64, "learning_starts": 16, "batch_size": 4, "hidden": (4,)})
    replay = iql.make(wrap(images.device(), Wrapping(frame_stack=2)).spec, config, Scale(1, 1, 1)).replay
    fed = feed.make_feed(replay, traj._replace(extras={}), 2, 1)
    buffers = fed.init()
    widths = [x.dtype for x in jax.tree.leaves(buffers) if x.shape[-1:] == traj.step.obs.shape[-1:]]
    assert widths == [jnp.uint8] * 2 and fed.num_bytes < 64 * 2 * (2 * 400) + 64 * 200


def test_off_policy_runs_read_bytes(tmp_path: Path) -> None:
    """The buffer of a run is of bytes, and takes the memory that they take."""
    flags = {k: v for k, v in SMALL.items() if k not in ("epochs", "minibatches")}
    flags |= {"buffer_size": 64, "learning_starts": 16, "batch_size": 4, "steps": 32, "eval_episodes": 1}
    with pytest.raises(InputError, match=r"glimpse has no global state.*use mixer_input 'concat'"):
        shoal.train("qmix", images.device(), folder=tmp_path / "refused", **flags)
    run = shoal.train("iql", images.device(), folder=tmp_path / "run", **flags)
    assert all(np.isfinite(leaf).all() for leaf in policy(run))


def test_recorded_decisions_leave_out_images(noise: Any) -> None:
    policies = noise.policies()
    env = wrap(images.device(), Wrapping(resize=(4, 4), frame_stack=2, last_action=True))
    [episode] = record_episodes(env, policies._algorithm, policies._learner, jax.random.key(0), 1, decisions=True)
    assert episode.decisions is not None and "obs" not in episode.decisions and "legal" in episode.decisions


def test_a_side_reads_its_part_of_the_bytes() -> None:
    """Also a side that observes numbers only, beside one that observes images."""
    numbers = replace(images.spec_of(True), parts=((images.IMAGE,), (images.VECTOR,)), obs_dims=(192, 8))
    for spec, width, features in ((images.spec_of(True), 200, 194), (numbers, 8, 2)):
        side = narrowed(spec, (1,))
        check_spec(side)
        assert side.packed and side.obs_dim == width and side.feature_dim == features
        row = np.concatenate([np.full(width - 8, 255, np.uint8), as_bytes(np.array([0.5, -2.0]))])
        found = inputs.observation_features(side, jnp.asarray(row[None]))
        np.testing.assert_array_equal(found[0], np.array([1.0] * (width - 8) + [0.5, -2.0], np.float32))
    assert narrowed(replace(numbers, parts=None), (0,)).parts is None
