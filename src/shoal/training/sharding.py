"""Layout over devices: first seeds, which need no communication, then the environments of each seed."""

import math
import os
from dataclasses import dataclass

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Key

from shoal.equations.reduce import DEVICES
from shoal.errors import InputError
from shoal.system.machine import cores

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

    def named(self, spec: P) -> NamedSharding:
        """``spec`` as a sharding on this mesh."""
        return NamedSharding(self.mesh, spec)

    def keys(self, seed: int) -> Key[Array, " S"]:
        """The keys of all seeds, of which ``seed`` is the first, on their devices."""
        count = self.seeds * self.mesh.shape[SEED_SHARDS]
        return jax.device_put(jax.vmap(jax.random.key)(seed + jax.numpy.arange(count)), self.named(self.learner))

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
                f"This run was trained on {was} and cannot continue bit-exactly on {now}; it needs {count} (on a CPU, "
                f"the environment variable JAX_NUM_CPU_DEVICES={count} gives them)."
            )


def shape_on(sharding: NamedSharding, array: Array | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """The shape and type of an array with its sharding, to compile for it."""
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def one_device_per_core(least: int = 1) -> None:
    """On a CPU, create one XLA device per core: sharding environments is faster than threads in small products.

    With ``least``, at least as many, for a run that was trained on another machine.

    Does nothing if JAX has started its devices, or if the user has set their number.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if jax.config.jax_num_cpu_devices > 0:  # pyright: ignore[reportAttributeAccessIssue]
        return
    try:
        jax.config.update("jax_num_cpu_devices", max(least, cores()))
    except RuntimeError:  # already started
        return


def plan_layout(seeds: int, num_envs: int, devices: int | None) -> Layout:
    """The layout of a run over the local devices.

    Raises:
        InputError: there are fewer devices than requested, or E is not divisible by their number.
    """
    local = jax.local_devices()
    if devices is not None and devices > len(local):
        raise InputError(f"devices is {devices}, but this machine has only {len(local)}.")
    count = devices or len(local)
    seed_shards = math.gcd(seeds, count)
    env_shards = count // seed_shards
    if devices is None:  # use fewer devices if E is not divisible by their number
        env_shards = math.gcd(env_shards, num_envs)
    if num_envs % env_shards:
        raise InputError(f"num_envs {num_envs} is not divisible by the {env_shards} devices.")
    chosen = local[: seed_shards * env_shards]
    mesh = jax.make_mesh((seed_shards, env_shards), (SEED_SHARDS, DEVICES), (AxisType.Auto,) * 2, devices=chosen)
    return Layout(mesh, seeds // seed_shards, num_envs // env_shards)
