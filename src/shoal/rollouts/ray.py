"""Rollouts on a Ray cluster: each actor steps its own environments with its own compiled policy.

Parameters are sent once per version through the object store, and trajectories are returned. On-policy learning waits
for a chunk of every actor, made with the newest parameters. Off-policy learning takes chunks as they arrive. The chunk
of a lost actor is lost; the other actors collect its part until a replacement has started.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from shoal import isolation
from shoal.errors import GameError, InputError
from shoal.game import HostEnvironment
from shoal.notices import Warn
from shoal.rollouts.pool import BUILDING, PATIENCE
from shoal.rollouts.ray_actor import Actor, Chunk, Order
from shoal.rollouts.ray_library import actors, cause, connect, library
from shoal.rollouts.recording import Parallelism
from shoal.types import Algorithm, PyTree

SLOWEST = 20.0
"""An actor is given up if its chunk takes this multiple of the slowest chunk so far, plus the time-out."""


class Member(NamedTuple):
    """An actor and the index of its part of the environments."""

    actor: Any
    home: int


class RayRollout:
    """W actors on a cluster, each with E / W environments of every seed; call :meth:`close`."""

    def __init__(
        self,
        env: HostEnvironment,
        remake: Callable[[], Algorithm],
        parallelism: Parallelism,
        length: int,
        address: str | None,
        warn: Warn,
    ):
        ray = library()
        self.workers = actors(parallelism)
        self.warn, self.timeout, self.name = warn, parallelism.timeout, env.spec.name
        self.started = not ray.is_initialized()
        if self.started:
            connect(address, self.workers)
        each = Parallelism(parallelism.seeds, parallelism.num_envs // self.workers, 0, parallelism.timeout, 1)
        threads = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        variables = {isolation.SAFE_PATH: "1", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "XLA_FLAGS": threads}
        kind = ray.remote(num_cpus=1, max_restarts=0, runtime_env={"env_vars": variables})(Actor)
        recipe = ray.cloudpickle.dumps((env, remake))
        self.new = partial(kind.remote, recipe, each, length, [str(Path(path).absolute()) for path in sys.path])
        self.members: list[Member] = []
        """Actors that are ready."""
        self.building: dict[Any, tuple[Member, float]] = {}
        """Promise of readiness -> (actor, start time)."""
        self.busy: dict[Any, tuple[Member, int, float]] = {}
        """Promise of a chunk -> (actor, slot, start time)."""
        self.waiting: list[int] = []
        """Slots whose chunks no actor is collecting."""
        self.slowest, self.first, self.failures = 0.0, np.zeros(0), 0
        try:
            self._build_all(ray.cluster_resources().get("CPU", 0.0))
        except BaseException:
            self.close()
            raise

    def _build_all(self, cores: float) -> None:
        if cores < self.workers:
            self.warn(
                f"The cluster has {cores:g} CPUs, and each of {self.workers} actors takes one; some wait for more."
            )
        for slot in range(self.workers):
            self._build(slot)
        began = time.monotonic()
        while self.building:
            self._attend(training=False)
            if time.monotonic() - began > BUILDING:
                raise InputError(
                    f"Only {len(self.members)} of {self.workers} Ray actors started within {BUILDING:g} s; the cluster "
                    f"has {cores:g} CPUs, and each actor takes one."
                )

    def init(self, keys: Key[Array, " S"]) -> None:
        """Set the keys of the actors' first episodes."""
        self.first = np.asarray(jax.random.key_data(keys))

    def collect(self, learner: PyTree, version: int, keys: Key[Array, " S"], together: bool) -> list[Chunk]:
        """W chunks: one of every slot, all with these parameters (``together``), or the first W to arrive.

        Args:
            learner: the learner for acting, in host arrays.
            version: number of its updates.
            keys: a key for each seed.
            together: wait for all slots (on-policy). Otherwise actors continue with the newest available parameters,
                also during updates.

        Raises:
            GameError: an environment raised, or no actor is left and none can be started.
        """
        shared = library().put(learner)
        order = Order(version, self.first, np.asarray(jax.random.key_data(keys)))
        taken = {slot for _, slot, _ in self.busy.values()}
        self.waiting = [slot for slot in range(self.workers) if slot not in taken]
        chunks: list[Chunk] = []
        while len(chunks) < self.workers:
            self._hand_out(order._replace(number=0 if together else len(chunks)), shared, together)
            for slot, chunk in self._attend():
                if chunk is not None:
                    chunks.append(chunk)
                if chunk is None or not together:
                    self.waiting.append(slot)
        if not together:
            self._hand_out(order._replace(number=len(chunks)), shared, together)
        return sorted(chunks, key=lambda chunk: chunk.slot) if together else chunks

    def _hand_out(self, order: Order, learner: Any, together: bool) -> None:
        """Let idle actors collect waiting slots: their own, or that of a lost actor if all slots are needed."""
        engaged = [member for member, _, _ in self.busy.values()]
        idle = [member for member in self.members if member not in engaged]
        homes = {member.home for member in self.members}
        for member in idle:
            orphans = [slot for slot in self.waiting if together and slot not in homes]
            for slot in [member.home] * (member.home in self.waiting) + orphans[:1]:
                self.waiting.remove(slot)
                promise = member.actor.collect.remote(order, slot, learner)
                self.busy[promise] = (member, slot, time.monotonic())
                break

    def _build(self, home: int) -> None:
        actor = self.new()
        self.building[actor.ready.remote()] = (Member(actor, home), time.monotonic())

    def _attend(self, training: bool = True) -> list[tuple[int, Chunk | None]]:
        """Wait up to a second for actors; returns slots with their chunks, None for a lost chunk."""
        ray = library()
        done, _ = ray.wait([*self.busy, *self.building], num_returns=1, timeout=1.0)
        found: list[tuple[int, Chunk | None]] = []
        for promise in done:
            if promise in self.building:
                self._finish_building(promise, self.building.pop(promise)[0], training)
                continue
            member, slot, since = self.busy.pop(promise)
            found.append((slot, self._chunk(promise, member, time.monotonic() - since)))
        return found + self._overdue()

    def _finish_building(self, promise: Any, member: Member, training: bool) -> None:
        ray = library()
        try:
            ray.get(promise)
        except ray.exceptions.RayError as error:
            self.failures += 1
            if isinstance(error, ray.exceptions.RayTaskError) and not training:
                raise cause(error) from None
            if not self.members or self.failures > PATIENCE:
                raise GameError(f"{self.name}: a Ray actor cannot be built: {cause(error)}", None, "", "") from None
            self._build(member.home)
            return
        self.failures = 0
        self.members.append(member)

    def _chunk(self, promise: Any, member: Member, seconds: float) -> Chunk | None:
        ray = library()
        try:
            chunk = ray.get(promise)
        except ray.exceptions.RayTaskError as error:
            raise cause(error) from None
        except ray.exceptions.RayError:  # the actor, its node, or the stored object is lost
            self._lose(member, "is gone")
            return None
        self.slowest = max(seconds, self.slowest)
        return chunk

    def _overdue(self) -> list[tuple[int, Chunk | None]]:
        """Replace actors that take too long; returns their slots."""
        lost: list[tuple[int, Chunk | None]] = []
        now, limit = time.monotonic(), self.timeout + SLOWEST * (self.slowest or BUILDING / SLOWEST)
        late = [promise for promise, (_, _, since) in self.busy.items() if now - since > limit]
        if late:  # this process may have been busy, so look again which chunks have arrived
            _, late = library().wait(late, num_returns=len(late), timeout=0)
        for promise in late:
            member, slot, _ = self.busy.pop(promise)
            self._lose(member, f"did not answer for {limit:.0f} s")
            lost.append((slot, None))
        waited = [now - since for _, since in self.building.values()]
        if not self.members and waited and min(waited) > BUILDING:
            raise GameError(f"{self.name}: no Ray actor is left and none starts within {BUILDING:g} s", None, "", "")
        return lost

    def _lose(self, member: Member, how: str) -> None:
        self.warn(f"A Ray actor {how}; its current rollout is lost, and a new actor is started.")
        self.members.remove(member)
        library().kill(member.actor)
        self._build(member.home)

    def close(self) -> None:
        """Kill the actors, and shut down Ray if it was started here."""
        ray = library()
        if ray.is_initialized():
            for member in [*self.members, *(member for member, _ in self.building.values())]:
                ray.kill(member.actor)
            if self.started:
                ray.shutdown()
        self.members, self.building, self.busy = [], {}, {}
