"""A loss whose metric is not one number is refused, rather than averaged over agents that may be dead."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from shoal.errors import InputError
from shoal.learning import sgd


class Batch(NamedTuple):
    weight: jax.Array


def test_a_metric_of_all_agents_is_refused() -> None:
    def loss(params: Any, part: Any) -> tuple[Any, Any]:
        gap = params * part.weight
        return gap.sum(), {"gap": gap}

    def step(gradient: Any, state: Any, params: Any) -> tuple[Any, Any, Any]:
        return params - gradient, state, {"norms": jnp.ones(3)}

    def descend(key: Any) -> Any:
        batch = Batch(jnp.ones((4, 1, 2)))
        return sgd.sgd(loss, step, jnp.float32(1.0), (), batch, key, epochs=1, minibatches=2, block=64)

    with pytest.raises(InputError) as refused:
        jax.eval_shape(descend, jax.random.key(0))
    assert str(refused.value) == (
        "The loss's metric 'gap' has the shape (1, 2, 2); it must be one number, a sum over rows times batch.weight."
    )
