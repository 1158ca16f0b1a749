"""An update over two devices is the update over one: gradients are averaged, nothing is counted twice."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from numpy.typing import ArrayLike

import toys
from shoal.algorithms import mappo, vdn
from shoal.environments import registry
from shoal.equations.reduce import DEVICES
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.runs.build import build
from shoal.training import sharding
from shoal.training.settings import Settings
from shoal.types import Algorithm, Scale, Step, Trajectory

T, E = 4, 3
"""Per device."""


def algorithm(num_envs: int) -> Algorithm:
    flags = {
        "hidden": (8,),
        "normalise_inputs": True,
        "epochs": 2,
        "max_grad_norm": 0.05,  # small enough to bite: a norm of half the gradient would show
        "learning_rate": 0.05,
        "value_norm": "popart",
        "target_entropy": 0.5,
        "kl_target": 0.01,
        "kl_coef": 0.1,
    }
    return mappo.make(toys.busy().spec, override(mappo.Config(), flags), Scale(num_envs, T, 10))


def test_copies_of_an_array_that_differ_between_devices_are_named() -> None:
    devices = jax.devices()[:2]
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))

    def of(one: float, other: float, spec: Any) -> Any:
        shards = [jax.device_put(jnp.full((1, 2), x), device) for x, device in zip((one, other), devices, strict=True)]
        shape = (2, 2) if spec else (1, 2)
        return jax.make_array_from_single_device_arrays(shape, jax.NamedSharding(mesh, jax.P(*spec)), shards)

    equal, parts = of(1.0, 1.0, ()), of(1.0, 2.0, ("x",))
    assert sharding.unequal_copies({"equal": equal, "parts": parts, "nan": of(np.nan, np.nan, ())}) == ""
    assert sharding.unequal_copies({"equal": equal, "net": {"bias": of(1.0, 1.01, ())}}) == "net/bias"


def noise(num_envs: int) -> Trajectory:
    """A trajectory that nobody played."""
    rng, spec = np.random.default_rng(0), toys.busy().spec

    def array(x: ArrayLike, kind: Any = jnp.float32) -> Array:
        return jnp.asarray(x, kind)

    def step() -> Step:
        legal = rng.random((T, num_envs, 3, 4)) < 0.7
        legal[..., 0] = True
        return Step(
            obs=array(rng.normal(size=(T, num_envs, 3, 6))),
            state=array(rng.normal(size=(T, num_envs, spec.state_dim))),
            legal=array(legal & (np.arange(4) < np.array(spec.action_dims)[:, None]), bool),
            alive=array(rng.random((T, num_envs, 3)) < 0.7, bool),
            reward=array(rng.normal(size=(T, num_envs, 3))),
            discount=array(rng.random((T, num_envs, 3)) < 0.8),
            first=array(rng.random((T, num_envs)) < 0.2, bool),
            last=array(rng.random((T, num_envs)) < 0.2, bool),
        )

    extras = {"log_prob": array(-rng.random((T, num_envs, 3)))}
    action = jnp.zeros((T, num_envs, 3), jnp.int32)  # always legal
    return Trajectory(step(), action, extras, step(), algorithm(num_envs).initial_carry(num_envs))


@pytest.fixture(scope="module")
def updated() -> dict[str, Any]:
    """One update of one learner: with all environments on one device, and with half of them on each of two."""
    whole, on_one, on_two = noise(2 * E), algorithm(2 * E), algorithm(E)
    learner, key = on_one.init(jax.random.key(0)), jax.random.key(1)
    cut = jax.P(None, DEVICES)
    shard = partial(jax.shard_map, mesh=sharding.plan_layout(1, 2 * E, 2).mesh, check_vma=False)
    over_two = shard(on_two.update, in_specs=(jax.P(), cut, jax.P()), out_specs=jax.P())
    one, two = (jax.jit(update)(learner, whole, key) for update in (on_one.update, over_two))
    return {"before": learner, "one": one, "two": two}


def test_training_on_two_devices_equals_training_on_one(updated: dict[str, Any]) -> None:
    one, two = updated["one"], updated["two"]
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5, err_msg=jax.tree_util.keystr(path))
    moved = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), updated["before"].policy.actor, one[0].policy.actor)
    assert min(jax.tree.leaves(moved)) > 1e-3


def test_both_devices_hold_the_same_learner_to_the_bit(updated: dict[str, Any]) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(updated["two"]):
        one, two = (np.asarray(shard.data).tobytes() for shard in leaf.addressable_shards)
        assert one == two, jax.tree_util.keystr(path)


@pytest.mark.parametrize(("minibatches", "wanted"), [(5, 2), (10, 1), (3, None)])
def test_a_run_uses_as_many_devices_as_its_minibatches_allow(minibatches: int, wanted: int | None) -> None:
    """Where nobody chose their number: 2 environments × 5 steps are 5 timesteps on each of two devices."""
    env = registry.make("matrix/climbing")
    config = mappo.Config(minibatches=minibatches)
    settings = Settings(num_envs=2, rollout_length=5, steps=10.0)
    if wanted is None:
        with pytest.raises(InputError, match=r"10 timesteps per device .* do not divide into 3 minibatches; 2 would."):
            build("mappo", env, config, settings)
    else:
        built = build("mappo", env, config, settings)
        assert built.layout.mesh.size == wanted and built.layout.num_envs == 2 // wanted
    if wanted == 1:
        with pytest.raises(InputError, match="5 timesteps per device"):
            build("mappo", env, config, replace(settings, devices=2))


def test_a_run_uses_as_many_devices_as_divide_the_batches_of_its_replay_buffer() -> None:
    env, settings = registry.make("matrix/climbing"), Settings(num_envs=2, rollout_length=8, steps=1000.0)
    assert [build("vdn", env, vdn.Config(batch_size=n), settings).layout.mesh.size for n in (32, 33)] == [2, 1]
    with pytest.raises(InputError, match="batch_size 33 is not divisible by devices 2: set batch_size or devices"):
        build("vdn", env, vdn.Config(batch_size=33), replace(settings, devices=2))


def test_a_program_does_not_read_empty_arguments() -> None:
    """jaxlib 0.11.2 crashes while it compiles one that does, for several devices."""
    layout = sharding.plan_layout(1, 4, 2)
    spec = layout.rollout
    f = sharding.sharded(lambda x, empty: (x + empty.sum(-1), empty), layout, spec, spec)
    x, empty = jnp.ones((1, 4)), jnp.ones((1, 4, 0))
    (call,) = jax.make_jaxpr(f)(x, empty).eqns
    body = call.params["jaxpr"]
    body = getattr(body, "jaxpr", body)
    read = [name for equation in body.eqns for name in equation.invars] + list(body.outvars)
    assert body.invars[0] in read and body.invars[1] not in read
    total, same = jax.jit(f)(x, empty)
    np.testing.assert_array_equal(total, x)
    assert same.shape == empty.shape
