"""The end of an update's gradient steps at a KL, against a plain loop."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_every_algorithm import config_of

from shoal import algorithms
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.options.flags import flags_of, override
from shoal.types import Scale
from support.selection import quick
from support.trajectories import E, T, make_spec, make_trajectory

SPEC = make_spec()
KEY = jax.random.key(0)
EPOCHS, MINIBATCHES, RATE = 3, 4, 0.5
X = np.linspace(0.5, 2.0, 8).astype(np.float32)


class Batch(NamedTuple):
    x: jax.Array
    weight: jax.Array


def loss(params: Any, part: Batch) -> tuple[Any, Any]:
    """It pulls ``params`` towards 3; the KL is what it has moved by, and depends on the minibatch."""
    value = jnp.sum(part.weight * (part.x * (params - 3.0) ** 2))
    return value, {"kl": jnp.sum(part.weight * part.x * params), "loss": value}


def step(gradient: Any, state: Any, params: Any) -> tuple[Any, Any, Any]:
    return params - RATE * 0.1 * gradient, state + 1, {"norm": jnp.abs(gradient)}


@jax.jit
def stopped(limit: Any) -> Any:
    """Whose limit is a traced number."""
    batch = Batch(jnp.array(X)[:, None, None], jnp.ones((8, 1, 1)))

    def later(params: Any) -> Batch:
        return batch._replace(x=batch.x + 0.1 * params)

    return sgd.sgd(
        loss, step, jnp.float32(0.0), jnp.int32(0), batch, KEY, epochs=EPOCHS, minibatches=MINIBATCHES, block=2,
        refresh=later, kl_stop=limit,
    )  # fmt: skip


def by_loop(limit: float) -> tuple[Any, int, dict[str, float]]:
    params, steps, seen = np.float32(0.0), 0, []
    for epoch, key in enumerate(jax.random.split(KEY, EPOCHS)):
        order = np.asarray(sgd.shuffle(key, 8)).reshape(MINIBATCHES, -1)
        now = X + 0.1 * params if epoch else X  # recomputed before every epoch but the first
        for rows in order:
            x = now[rows]
            gradient = (2 * x * (params - 3)).mean()
            seen.append({"kl": (x * params).mean(), "loss": (x * (params - 3) ** 2).mean(), "norm": abs(gradient)})
            if seen[-1]["kl"] > 1.5 * limit:
                mean = {name: float(np.mean([row[name] for row in seen])) for name in seen[0]}
                return params, steps, mean | {"epochs_done": steps / MINIBATCHES}
            params, steps = params - RATE * 0.1 * gradient, steps + 1
    mean = {name: float(np.mean([row[name] for row in seen])) for name in seen[0]}
    return params, steps, mean | {"epochs_done": steps / MINIBATCHES}


@pytest.mark.parametrize(("limit", "steps"), [(1e-3, 1), (0.9, 5), (2.2, 8), (1e6, 12)])
def test_the_steps_that_are_taken_are_those_of_a_loop(limit: float, steps: int) -> None:
    """Stops within an epoch, at its start, and not at all."""
    params, count, metrics = stopped(jnp.float32(limit))
    expected, taken, means = by_loop(limit)
    assert int(count) == taken == steps
    np.testing.assert_allclose(params, expected, rtol=1e-5)
    assert set(metrics) == set(means)
    for name, value in means.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, err_msg=name)


OFFERED = [name for name in algorithms.NAMES if "kl_stop" in flags_of(algorithms.get(name).Config())]


def test_the_ppo_family_has_kl_stop() -> None:
    assert {"commnet", "mappo", "ippo", "happo", "magpo", "mat", "mat_dec", "poca", "sable", "tarmac"} == set(OFFERED)


@pytest.mark.parametrize("name", quick(OFFERED, "mappo", "happo"))
def test_kl_stop_reaches_the_gradient_steps_of_every_algorithm(name: str) -> None:
    """Shapes only; ``test_traced.py`` has it as a traced number."""
    traj = make_trajectory(SPEC)

    def updated() -> Any:
        config = override(config_of(name, "discrete"), {"epochs": 2, "kl_stop": 0.01})
        algorithm = algorithms.get(name).make(SPEC, config, Scale(E, T, 10))
        learner, carry = algorithm.init(KEY), algorithm.initial_carry(E)
        return learner, *algorithm.update(learner, traj._replace(carry=carry), KEY)

    before, after, metrics = jax.eval_shape(updated)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, before)
    assert metrics["epochs_done"].shape == ()


def test_with_one_gradient_step_there_is_nothing_to_stop() -> None:
    module = algorithms.get("mappo")
    with pytest.raises(InputError, match="epochs 1 with minibatches 1 has only one"):
        module.make(SPEC, module.Config(kl_stop=0.01, epochs=1, minibatches=1), Scale(E, T, 10))
