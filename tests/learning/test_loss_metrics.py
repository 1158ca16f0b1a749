"""A loss whose metric is not one number is refused, rather than averaged over agents that may be dead; so is one
without a metric that an option reads."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from shoal.algorithms import mappo
from shoal.errors import InputError
from shoal.learning import sgd
from shoal.types import Scale
from support.algorithm_cases import BASE
from support.trajectories import E, T, make_spec, make_trajectory


class Batch(NamedTuple):
    weight: jax.Array


@pytest.mark.parametrize("which", ["", "'s metric 'gap'"])
def test_a_loss_or_a_metric_of_all_agents_is_refused(which: str) -> None:
    def loss(params: Any, part: Any) -> tuple[Any, Any]:
        gap = params * part.weight
        return (gap.sum(), {"gap": gap}) if which else (gap, {"gap": gap.sum()})

    def step(gradient: Any, state: Any, params: Any) -> tuple[Any, Any, Any]:
        return params - gradient, state, {"norms": jnp.ones(3)}

    def descend(key: Any) -> Any:
        batch = Batch(jnp.ones((4, 1, 2)))
        return sgd.sgd(loss, step, jnp.float32(1.0), (), batch, key, epochs=1, minibatches=2, block=64)

    with pytest.raises(InputError) as refused:
        jax.eval_shape(descend, jax.random.key(0))
    assert str(refused.value) == (
        f"The loss{which} has the shape (1, 2, 2); it must be one number, a sum over rows times batch.weight."
    )


@pytest.mark.parametrize(("option", "value", "metric"), [("kl_stop", 0.01, "kl"), ("target_entropy", 0.5, "entropy")])
def test_an_option_that_reads_a_metric_of_the_loss_names_the_one_that_is_missing(
    option: str, value: float, metric: str
) -> None:
    def without_metrics(*given: Any) -> tuple[Any, Any]:
        return mappo.policy_loss(*given)[0], {}

    spec, config = make_spec(), replace(BASE, epochs=2, entropy_coef=0.1, **{option: value})
    algorithm = mappo.make(spec, config, Scale(E, T, 1), without_metrics)
    traj, key = make_trajectory(spec), jax.random.key(0)
    with pytest.raises(InputError, match=f"^{option} is compared with the loss's metric '{metric}', which this loss"):
        jax.eval_shape(lambda: algorithm.update(algorithm.init(key), traj, key))
