"""Roll-outs on a Ray cluster: each actor steps environments of its own and decides for them with its own compiled act.

Parameters go out once per version through the object store, and trajectories come back. On-policy learning waits for a
chunk of every actor, made by the newest parameters. Off-policy learning takes chunks as they arrive. An actor that is
lost with its node takes with it what it was collecting; the others do its part until another one has started.
"""

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from shoal.errors import GameError, InputError
from shoal.game import HostEnvironment
from shoal.rollouts.pool import BUILDING, Say, spread
from shoal.rollouts.ray_actor import Actor, Chunk, Order
from shoal.rollouts.recording import Width
from shoal.types import Algorithm, PyTree

SLOWEST = 20.0
"""A chunk may take so many times what the slowest one took, and the time-out, before its actor is given up."""


class Member(NamedTuple):
    """An actor and the part of the environments that is its own."""

    actor: Any
    home: int


class RayRollout:
    """W actors on a cluster, each with E / W environments of every seed. Close it."""

    def __init__(
        self,
        env: HostEnvironment,
        remake: Callable[[], Algorithm],
        width: Width,
        length: int,
        address: str | None,
        say: Say,
    ):
        ray = library()
        self.workers = actors(width)
        self.say, self.timeout, self.name = say, width.timeout, env.spec.name
        self.started = not ray.is_initialized()
        if self.started:
            size = {} if address else {"num_cpus": self.workers, "include_dashboard": False}
            with warnings.catch_warnings():  # Ray forks to start a program of its own at once, which is harmless
                warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **size)
        each = Width(width.seeds, width.num_envs // self.workers, 0, width.timeout, 1)
        threads = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        variables = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "XLA_FLAGS": threads}
        kind = ray.remote(num_cpus=1, max_restarts=0, runtime_env={"env_vars": variables})(Actor)
        recipe = ray.cloudpickle.dumps((env, remake))
        self.new = partial(kind.remote, recipe, each, length, list(sys.path))
        self.members: list[Member] = []
        """Actors that are built."""
        self.building: dict[Any, tuple[Member, float]] = {}
        """The promise that one is built -> who, and when it began."""
        self.busy: dict[Any, tuple[Member, int, float]] = {}
        """The promise of a chunk -> who makes it, for which slot, since when."""
        self.waiting: list[int] = []
        """Slots that nobody is making a chunk for."""
        self.slowest, self.first = 0.0, np.zeros(0)
        try:
            for slot in range(self.workers):
                self._build(slot)
            while self.building:
                self._attend()
        except BaseException:
            self.close()
            raise

    def init(self, keys: Key[Array, " S"]) -> None:
        """Where the actors' first episodes start."""
        self.first = np.asarray(jax.random.key_data(keys))

    def collect(self, learner: PyTree, version: int, keys: Key[Array, " S"], together: bool) -> list[Chunk]:
        """W chunks: one of every slot, all by these parameters, or whatever arrives first.

        Args:
            learner: what acting needs, in arrays of the host.
            version: its number.
            keys: a key for each seed.
            together: wait for all slots (on-policy). Otherwise actors go on at once with the newest parameters that
                there are, also while the learner learns.

        Raises:
            GameError: an environment raised, or no actor is left and none starts.
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
        """Let idle actors make what waits: each its own part, or that of one which is gone if all are waited for."""
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

    def _attend(self) -> list[tuple[int, Chunk | None]]:
        """Wait a moment for whatever happens; gives slots with their chunks, None where one was lost."""
        ray = library()
        done, _ = ray.wait([*self.busy, *self.building], num_returns=1, timeout=1.0)
        found: list[tuple[int, Chunk | None]] = []
        for promise in done:
            if promise in self.building:
                self._finish_building(promise, self.building.pop(promise)[0])
                continue
            member, slot, since = self.busy.pop(promise)
            found.append((slot, self._chunk(promise, member, time.monotonic() - since)))
        return found + self._overdue()

    def _finish_building(self, promise: Any, member: Member) -> None:
        ray = library()
        try:
            ray.get(promise)
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except ray.exceptions.RayError as error:
            if not self.members:
                raise GameError(f"{self.name}: a Ray actor cannot be built: {error}", None, "", "") from None
            self._build(member.home)
            return
        self.members.append(member)

    def _chunk(self, promise: Any, member: Member, seconds: float) -> Chunk | None:
        ray = library()
        try:
            chunk = ray.get(promise)
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except ray.exceptions.RayError:  # the actor, its node, or what it had put into the store is gone
            self._lose(member, "is gone")
            return None
        self.slowest = max(seconds, self.slowest)
        return chunk

    def _overdue(self) -> list[tuple[int, Chunk | None]]:
        """Slots of actors that are given up."""
        lost: list[tuple[int, Chunk | None]] = []
        now, limit = time.monotonic(), self.timeout + SLOWEST * (self.slowest or BUILDING / SLOWEST)
        for promise, (member, slot, since) in list(self.busy.items()):
            if now - since > limit:
                del self.busy[promise]
                self._lose(member, f"did not answer for {limit:.0f} s")
                lost.append((slot, None))
        waited = [now - since for _, since in self.building.values()]
        if not self.members and waited and min(waited) > BUILDING:
            raise GameError(f"{self.name}: no Ray actor is left and none starts within {BUILDING:g} s", None, "", "")
        return lost

    def _lose(self, member: Member, how: str) -> None:
        self.say(f"A Ray actor {how}; what it was collecting is lost, and another one is started.")
        self.members.remove(member)
        library().kill(member.actor)
        self._build(member.home)

    def close(self) -> None:
        """End the actors, and Ray itself if it was started here."""
        ray = library()
        if ray.is_initialized():
            for member in [*self.members, *(member for member, _ in self.building.values())]:
                ray.kill(member.actor)
            if self.started:
                ray.shutdown()
        self.members, self.building, self.busy = [], {}, {}


def actors(width: Width) -> int:
    """W.

    Raises:
        InputError: the environments do not divide over them.
    """
    count = spread(width.num_envs, width.num_workers) or 1
    if width.num_envs % count:
        raise InputError(f"num_envs {width.num_envs} does not divide over {count} Ray actors.")
    return count


def library() -> Any:
    """Ray itself.

    Raises:
        InputError: it is not installed.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("Roll-outs on a cluster need Ray: pip install 'shoal[ray]'.") from None
    return ray
