"""Numeric hyper-parameters may be traced arrays, so that one program can train with many values of them."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from test_every_algorithm import KEY, NAMES, config_of, played

from shoal import algorithms
from shoal.errors import InputError
from shoal.options.flags import flags_of, override
from shoal.types import Algorithm, Scale
from support.selection import quick
from support.trajectories import (
    E,
    T,
    assert_trees_close,
    compiled,
    distance,
    from_trajectories,
    make_spec,
    make_trajectory,
)

SPEC = make_spec()
TRAJECTORY = make_trajectory(SPEC)
NOT_TRACED = {"pretrain_rate", "kl_weight", "gain", "output_gain", "log_std"}
"""Those of SePS's pre-training, which is before its program is compiled, and those of initial parameters."""


def numbers(config: Any) -> dict[str, jax.Array]:
    """Every hyper-parameter of floating-point type that has a value."""
    found = {
        name: jnp.float32(value)
        for name, value in flags_of(config).items()
        if type(value) is float and name not in NOT_TRACED
    }
    return found | ({"kl_stop": jnp.float32(0.01)} if "kl_stop" in flags_of(config) else {})


pytestmark = pytest.mark.usefixtures("unchecked_annotations")


def made(name: str, values: dict[str, Any]) -> Algorithm:
    config = override(config_of(name, "discrete"), values)
    return from_trajectories(algorithms.get(name).make(SPEC, config, Scale(E, T, 10)))


@pytest.mark.parametrize("name", quick(NAMES, "mappo", "hatrpo", "mapg", "qmix", "maddpg"))
def test_every_number_may_be_traced(name: str) -> None:
    values = numbers(config_of(name, "discrete"))
    assert len(values) >= 8

    def updated(values: dict[str, jax.Array]) -> Any:
        algorithm = made(name, values | ({"epochs": 2} if "kl_stop" in values else {}))
        learner, carry = algorithm.init(KEY), algorithm.initial_carry(E)
        step = jax.tree.map(lambda x: x[0], TRAJECTORY.step)
        extras = algorithm.act(learner, carry, step, KEY, False)[2]
        extras = {key: jnp.broadcast_to(x, (T, *x.shape)) for key, x in extras.items()}
        return learner, algorithm.update(learner, TRAJECTORY._replace(extras=extras, carry=carry), KEY)[0]

    before, after = jax.eval_shape(updated, values)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, before)


def test_the_step_size_of_inferred_policies_may_be_traced() -> None:
    def initial(rate: jax.Array) -> Any:
        return made("maddpg", {"policies": "inferred", "model_learning_rate": rate}).init(KEY)

    jax.eval_shape(initial, jnp.float32(0.01))


@pytest.mark.parametrize("name", ["mappo", "qmix"])
def test_one_program_gives_each_setting_its_own_update(name: str) -> None:
    prog, traj = played(name, "discrete")
    settings = {"learning_rate": [0.5, 0.25], "gamma": [0.99, 0.5], "max_grad_norm": [10.0, 0.1]}

    def updated(values: dict[str, Any]) -> Any:
        return made(name, values).update(prog.learner, traj, KEY)[0].policy.actor

    got = compiled(jax.vmap(updated))({name: jnp.array(x) for name, x in settings.items()})
    first, second = (jax.tree.map(lambda x, i=i: x[i], got) for i in range(2))
    assert_trees_close(first, prog.update(prog.learner, traj, KEY)[0].policy.actor, 1e-5, 1e-6)
    assert distance(first, second) > 1e-3


def test_an_array_is_refused_as_an_option() -> None:
    config = config_of("mappo", "discrete")
    for bad in ({"clip": jnp.zeros(2)}, {"epochs": jnp.int32(2)}, {"clip": jnp.int32(1)}):
        with pytest.raises(InputError, match="must be a"):
            override(config, bad)
