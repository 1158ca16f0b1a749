"""The optimiser's step of one large net, array by array, against its step of the vector of all arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.learning import optimiser as module
from support.trajectories import assert_trees_close


def net(seed: int) -> dict[str, jax.Array]:
    sizes = {"bias": (300,), "head": (300, 2), "kernel": (120, 300)}
    keys = jax.random.split(jax.random.key(seed), len(sizes))
    return {name: jax.random.normal(key, shape) for key, (name, shape) in zip(keys, sizes.items(), strict=True)}


@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("frozen", [(), ("bias",)])
def test_its_steps_are_those_of_one_vector(
    monkeypatch: pytest.MonkeyPatch, rectified: bool, frozen: tuple[str, ...]
) -> None:
    adam = module.optimiser(0.1, 0.2, [9, 7], 5.0, 1e-3, frozenset(frozen), rectified)
    first = net(0)
    assert sum(x.size for x in first.values()) > module.SPLIT_LOOPS
    state = jax.tree.map(lambda x: x[0], adam.init(jax.tree.map(lambda x: x[None], first)))
    ways = {}
    for limit in (module.SPLIT_LOOPS, 10**9):
        monkeypatch.setattr(module, "SPLIT_LOOPS", limit)
        params, after, step = first, state, jax.jit(lambda *inputs: adam.step_one(*inputs))
        for k in (1, 2, None, 3):  # None: a gradient of 0, which changes nothing
            slope = jax.tree.map(jnp.zeros_like, first) if k is None else net(k)
            before = params
            params, after, norm = step(slope, after, params, 1)
            assert k is not None or all(np.array_equal(params[name], before[name]) for name in params)
        ways[limit] = params, after, norm
    split, vector = ways.values()
    assert_trees_close(split, vector)
    assert not np.allclose(split[0]["kernel"], first["kernel"], atol=0.01)
    assert ("bias" in frozen) == bool(np.array_equal(split[0]["bias"], first["bias"]))
