"""Layout over devices: first seeds, which need no communication, then the environments of each seed."""

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Key

from shoal.equations.reduce import DEVICES
from shoal.errors import InputError
from shoal.system.machine import cores
from shoal.training import hosts
from shoal.types import PyTree

SEED_SHARDS = "seed_shards"


@dataclass(frozen=True)
class Layout:
    """A mesh of seed shards × environment shards, and the sharding of arrays on it."""

    mesh: Mesh
    seeds: int
    """Seeds on one device."""
    num_envs: int
    """Environments of one seed on one device."""

    @property
    def learner(self) -> P:
        """Leaves [seeds, ...], the same on all environment shards."""
        return P(SEED_SHARDS)

    @property
    def rollout(self) -> P:
        """Leaves [seeds, E, ...]."""
        return P(SEED_SHARDS, DEVICES)

    @property
    def rows(self) -> P:
        """Leaves [updates, seeds]."""
        return P(None, SEED_SHARDS)

    @property
    def results(self) -> P:
        """Leaves [updates, seeds] that are read on the host: by one of several processes as a whole."""
        return P() if self.mesh.is_multi_process else self.rows

    def named(self, spec: P) -> NamedSharding:
        """``spec`` as a sharding on this mesh."""
        return NamedSharding(self.mesh, spec)

    def keys(self, seed: int) -> Key[Array, " S"]:
        """The keys of all seeds, of which ``seed`` is the first, on their devices."""
        count = self.seeds * self.mesh.shape[SEED_SHARDS]
        return put(jax.vmap(jax.random.key)(seed + jax.numpy.arange(count)), self.named(self.learner))

    def check_same(self, shards: dict[str, int]) -> None:
        """Check that a run was trained on a mesh of the same shape, given as ``shards``.

        Raises:
            InputError: the shapes differ.
        """
        here = dict(self.mesh.shape)
        if shards != here:
            was, now = (f"{x[SEED_SHARDS]} × {x[DEVICES]} (seed × environment) devices" for x in (shards, here))
            count = math.prod(shards.values())
            raise InputError(
                f"This run was trained on {was} and cannot continue bit-exactly on {now}; it needs --devices {count} "
                f"(on a CPU, the environment variable JAX_NUM_CPU_DEVICES={count} gives them)."
            )


def put(tree: PyTree, sharding: PyTree, donate: bool = False) -> PyTree:
    """Arrays on the devices of ``sharding``: a tree, or one for all. Every process has whole and equal arrays."""
    if all(where.is_fully_addressable for where in jax.tree.leaves(sharding)):
        return jax.device_put(tree, sharding, donate=donate)

    def part(where: NamedSharding, array: Array) -> Array:
        return jax.make_array_from_callback(array.shape, where, lambda index: array[index], dtype=array.dtype)

    return jax.tree.map(lambda where, arrays: jax.tree.map(lambda x: part(where, x), arrays), sharding, tree)


def shape_on(sharding: NamedSharding, array: Array | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """The shape and type of an array with its sharding, to compile for it."""
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def sharded(f: Callable[..., Any], layout: Layout, in_specs: PyTree, out_specs: PyTree) -> Callable[..., Any]:
    """``f`` on the devices of ``layout``: ``jax.shard_map`` without ``check_vma``, since JAX cannot prove which values
    are equal on all shards (see equations/reduce.py).

    Empty arrays that enter ``f`` are made anew: jaxlib 0.11.2 crashes in the compilation for several devices if ``f``
    reads an argument without elements, as messages are in environments without communication.
    """

    @functools.wraps(f)
    def inside(*args: PyTree) -> PyTree:
        return f(*jax.tree.map(lambda x: x if x.size else jax.numpy.zeros_like(x), args))

    return jax.shard_map(inside, mesh=layout.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def unequal_copies(tree: PyTree) -> str:
    """The path of the first array whose copies on several devices differ by more than a thousandth of its largest
    number; empty if none does. Only devices of this process are compared."""
    for path, leaf in jax.tree.leaves_with_path(tree):
        if not isinstance(leaf, jax.Array) or not jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating):
            continue
        if len(leaf.addressable_shards) < 2:  # nothing is copied from a single device
            continue
        first: dict[str, np.ndarray] = {}
        for shard in leaf.addressable_shards:
            x = np.asarray(shard.data, np.float32)
            other = first.setdefault(str(shard.index), x)
            if not np.allclose(
                x, other, rtol=0.0, atol=1e-3 * np.abs(np.nan_to_num(other)).max(initial=0.0), equal_nan=True
            ):
                return jax.tree_util.keystr(path, simple=True, separator="/")
    return ""


def one_device_per_core(least: int = 1) -> None:
    """On a CPU, create one XLA device per core: sharding environments is faster than threads in small products.

    With ``least``, at least as many, for a run that was trained on another machine.

    Does nothing if JAX has started its devices, or if the user has set their number.
    """
    start_devices(max(least, cores()))


def start_devices(count: int) -> None:
    """On a CPU, create so many XLA devices.

    Does nothing if JAX has started its devices, or if the user has set their number.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if jax.config.jax_num_cpu_devices > 0:  # pyright: ignore[reportAttributeAccessIssue]
        return
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # already started
        return


def plan_layout(seeds: int, num_envs: int, devices: int | None) -> Layout:
    """The layout of a run over the local devices, or over those of all processes of the run.

    Raises:
        InputError: there are fewer devices than requested, E is not divisible by their number, or processes would have
            unequal numbers.
    """
    found, crew = hosts.devices(), hosts.crew()
    if devices is not None and devices > len(found):
        where = f"the {crew.count} processes have" if crew else "this machine has"
        raise InputError(f"devices is {devices}, but {where} only {len(found)}.")
    count = devices or len(found)
    seed_shards = math.gcd(seeds, count)
    env_shards = count // seed_shards
    if devices is None and crew is None:  # use fewer devices if E is not divisible by their number
        env_shards = math.gcd(env_shards, num_envs)
    if num_envs % env_shards:
        raise InputError(f"num_envs {num_envs} is not divisible by the {env_shards} devices.")
    chosen = _each(found, count, crew.count) if crew else found[: seed_shards * env_shards]
    mesh = jax.make_mesh((seed_shards, env_shards), (SEED_SHARDS, DEVICES), (AxisType.Auto,) * 2, devices=chosen)
    return Layout(mesh, seeds // seed_shards, num_envs // env_shards)


def _each(found: Sequence[Any], count: int, processes: int) -> list[Any]:
    """``count`` devices, as many of each process.

    Raises:
        InputError: that is not possible.
    """
    of = [[device for device in found if device.process_index == i] for i in range(processes)]
    if len(set(map(len, of))) > 1:
        numbers = ", ".join(str(len(here)) for here in of)
        raise InputError(f"The processes of --hosts need equal numbers of devices, and have {numbers}.")
    if count % processes:
        raise InputError(f"devices {count} is not divisible by the {processes} processes of --hosts.")
    return [device for here in of for device in here[: count // processes]]
