"""Runs a function on shards of its arguments, the way training does."""

from collections.abc import Callable
from typing import Any

import jax
import pytest
from jax.sharding import AxisType, PartitionSpec

from shoal.equations.reduce import DEVICES


@pytest.fixture(params=[1, 2], ids=["one-device", "two-devices"])
def on_shards(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``on_shards(f)(*cut)``: axis 0 of every argument is cut over the devices; the result is the same on each."""
    mesh = jax.make_mesh((request.param,), (DEVICES,), axis_types=(AxisType.Auto,))

    def wrap(f: Callable[..., Any]) -> Callable[..., Any]:
        cut, equal = PartitionSpec(DEVICES), PartitionSpec()
        return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=cut, out_specs=equal, check_vma=False))

    return wrap
