"""What is computed in another form on an accelerator gives the same numbers: tried on a CPU that says it is one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.equations.returns import backward
from shoal.learning import sgd
from shoal.networks.layers import product


def on_both(monkeypatch: pytest.MonkeyPatch, f: Callable[[], Any]) -> tuple[Any, Any]:
    """Results of ``f`` as computed for a CPU and for an accelerator."""
    here = f()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    there = f()
    return here, there


def test_a_linear_recurrence_is_an_associative_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    bias, decay = (jnp.asarray(rng.normal(size=(9, 4, 2)), jnp.float32) for _ in range(2))
    decay = jnp.where(jnp.asarray(rng.random((9, 4, 2)) < 0.3), 0.0, decay)
    final = jnp.asarray(rng.normal(size=(4, 2)), jnp.float32)

    def found() -> tuple[jax.Array, str]:
        fresh = lambda *x: backward(*x)  # noqa: E731  # a new function each time, since traces are cached
        return fresh(bias, decay, final), str(jax.make_jaxpr(fresh)(bias, decay, final))

    here, there = on_both(monkeypatch, found)
    np.testing.assert_allclose(there[0], here[0], rtol=1e-5, atol=1e-5)
    assert "scan" in here[1] and "scan" not in there[1]


@pytest.mark.parametrize("outputs", [2, 16])
def test_the_gradient_of_a_layer_is_a_plain_product(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    x, kernel, g = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((32, 8), (8, outputs), (32, outputs)))

    def found() -> tuple[jax.Array, str]:
        slope = jax.grad(lambda w: (product(x, w) * g).sum())
        return slope(kernel), str(jax.make_jaxpr(slope)(kernel))

    here, there = on_both(monkeypatch, found)
    np.testing.assert_allclose(there[0], here[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(there[0], np.asarray(x).T @ np.asarray(g), rtol=1e-5, atol=1e-5)
    assert "optimization_barrier" not in there[1] and ("optimization_barrier" in here[1]) == (outputs == 16)


class Rows(NamedTuple):
    x: jax.Array
    weight: jax.Array


def test_a_minibatch_is_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    rows = Rows(jnp.asarray(rng.normal(size=(64, 1, 3)), jnp.float32), jnp.full((64, 1), 1 / 64))
    shape = lambda: sgd.blocks(rows, 16).x.shape  # noqa: E731
    assert on_both(monkeypatch, shape) == ((4, 16, 1, 3), (1, 64, 1, 3))
