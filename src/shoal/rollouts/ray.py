"""Rollouts on a Ray cluster: each actor steps its own environments with its own compiled policy.

Parameters are sent once per version through the object store, and trajectories are returned. On-policy learning waits
for a chunk of every actor, made with the newest parameters. Off-policy learning takes chunks as they arrive. The chunk
of a lost actor is lost; the other actors collect its part until a replacement has started.

The only file that imports Ray, and only inside functions.
"""

import os
import pickle
import re
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from shoal.errors import GameError, InputError
from shoal.game import HostEnvironment
from shoal.rollouts.host import HostRollout, Parallelism
from shoal.rollouts.pool import BUILDING, PATIENCE, workers_for
from shoal.security import isolation
from shoal.system.extras import install, lacking
from shoal.system.notices import Warn
from shoal.types import Algorithm, EpisodeStats, PyTree, Trajectory

# Import, start and join Ray, and convert its errors.


SILENCE = 10.0
"""Seconds within which the head of a cluster has to answer."""


def library(what: str = "Rollouts") -> Any:
    """The module ``ray``, for ``what`` on a cluster.

    Raises:
        InputError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise InputError(
            lacking(f"{what} on a cluster", "Ray", error, install("ray"), ("ray",), needs="need")
        ) from None
    return ray


def actors(parallelism: Parallelism) -> int:
    """W, the number of actors; by default the largest number up to one per core that divides E.

    Raises:
        InputError: the number of environments is not divisible by it.
    """
    count = workers_for(parallelism.num_envs, parallelism.num_workers) or 1
    if parallelism.num_workers is None:
        return next(n for n in range(count, 0, -1) if parallelism.num_envs % n == 0)
    if parallelism.num_envs % count:
        raise InputError(f"num_envs {parallelism.num_envs} is not divisible by the {count} Ray actors.")
    return count


def connect(address: str | None, workers: int) -> None:
    """Join the cluster at ``address`` (or ``RAY_ADDRESS``), or start a local one with ``workers`` cores.

    Raises:
        InputError: the cluster cannot be reached or started.
    """
    ray = library()
    address = address or os.environ.get("RAY_ADDRESS")
    _check_there(address)
    # Niceness 0, since this process waits for the others.
    own = {"num_cpus": workers, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}
    size = {} if address else own
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # if several actors raise, the first error is reported
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():  # Ray forks only to execute another program
            warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
            # "local", since without an address Ray would join any cluster on this machine
            job = None if (address or "").startswith("ray://") else _job(ray)
            ray.init(address=address or "local", job_config=job, log_to_driver=False, logging_level="ERROR", **size)
    except ConnectionError as error:
        raise InputError(f"Ray cannot reach a cluster at {address}: {_first_line(error)}.") from None
    except Exception as error:  # for example no space, no port, or a folder that cannot be written
        where = f"at {address}" if address else "on this machine"
        raise InputError(f"Ray cannot start {where}: {type(error).__name__}: {_first_line(error)}.") from error
    finally:  # Ray's handler would end the process without saving
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


class _SearchPath(list[str]):
    """Folders in which the processes of a job search for modules first.

    Ray adds the driver's script folder and its working directory. The latter is left out unless the script is there,
    since its files would come before Python's own and the libraries'; what the driver searches is sent to each process
    and searched last (:class:`Actor`, ``studies/ray_runs.py``).
    """

    def extend(self, folders: Iterable[str]) -> None:
        script = os.path.dirname(os.path.realpath(sys.argv[0]))  # noqa: PTH120
        searched = script if script in sys.path else None
        super().extend(folder for folder in folders if folder == searched or folder != str(Path.cwd()))


def _job(ray: Any) -> Any:
    """The configuration of this process's job on the cluster; a client of Ray does not send its working directory."""
    job = ray.job_config.JobConfig()
    job._py_driver_sys_path = _SearchPath()
    return job


def _check_there(address: str | None) -> None:
    """Check the address first, since Ray would retry for minutes.

    The head of a cluster speaks HTTP/2, whose servers answer a client's first frame by one of settings, type 4.
    """
    host, colon, port = (address or "").rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or "/" in host:
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=SILENCE) as head:
            if os.environ.get("RAY_USE_TLS", "0") not in ("0", ""):
                return
            head.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            if head.recv(9)[3:4] != b"\x04":
                raise InputError(f"The server at {address} is not a Ray cluster.")
    except TimeoutError:
        raise InputError(f"Nothing answers at {address} within {SILENCE:g} s, so there is no Ray cluster.") from None
    except OSError as error:
        raise InputError(f"There is no Ray cluster at {address}: {error}.") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["it does not say why"])[0].rstrip(".")


def cause(error: Any) -> Exception:
    """The exception raised in an actor; with the actor's traceback unless it is one of Shoal's errors."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, GameError | InputError):
        return inner
    return error.as_instanceof_cause() if hasattr(error, "as_instanceof_cause") else error


# The actor in a process of a Ray cluster: environments and a compiled policy.


class Chunk(NamedTuple):
    """T steps of one actor's environments; leaves [S, T, E / W, ...]."""

    slot: int
    """Index of the part of the environments."""
    version: int
    """Version of the parameters that acted."""
    trajectory: Trajectory
    stats: EpisodeStats


class Order(NamedTuple):
    """Arguments of a rollout, the same for all actors."""

    version: int
    """Version of the parameters."""
    first: np.ndarray
    """Key data of S keys for the first episodes of an actor."""
    keys: np.ndarray
    """Key data of S keys for acting and resets."""
    number: int = 0
    """Number of chunks already requested with these keys."""


class Actor:
    """Collects rollouts in a process of the cluster."""

    def __init__(self, recipe: bytes, parallelism: Parallelism, length: int, paths: list[str]):
        isolation.guard_libraries()
        sys.path.extend(path for path in paths if path not in sys.path)
        self.recipe = recipe  # pickled, since arguments are read before sys.path is extended
        self.parallelism, self.length, self.begun = parallelism, length, False

    def ready(self) -> None:
        """Build environments and algorithm, and compile; not in the constructor, whose errors Ray reports less
        clearly."""
        env, remake = pickle.loads(self.recipe)
        self.algorithm: Algorithm = remake()
        self.rollout = HostRollout(env, self.algorithm.initial_carry, self.parallelism, self.length)
        keys = jax.random.split(jax.random.key(0), self.parallelism.seeds)
        learner = jax.eval_shape(jax.vmap(self.algorithm.init), keys)._replace(optimiser=())
        self.rollout.prepare(self.algorithm.act, jax.tree.map(_blank, learner), keys, False, self.length)

    def collect(self, order: Order, slot: int, learner: PyTree) -> Chunk:
        """T steps of its environments."""
        if not self.begun:
            self.rollout.init(_keys(order.first, order.version), slot)
            self.begun = True
        keys = _keys(order.keys, order.number)
        trajectory, stats = self.rollout.collect(self.algorithm.act, learner, keys, part=slot)
        return Chunk(slot, order.version, trajectory, stats)


def _blank(leaf: jax.ShapeDtypeStruct) -> Any:
    """An array in the place of a learner's: zeros, or keys."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), leaf.shape)
    return np.zeros(leaf.shape, leaf.dtype)


def _keys(data: np.ndarray, number: int) -> Array:
    keys = jax.random.wrap_key_data(jnp.asarray(data))
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys) if number else keys


def joined_chunks(chunks: list[Chunk]) -> tuple[Trajectory, EpisodeStats]:
    """Concatenate chunks along the environment axis and sum their statistics; leaves [S, T, E, ...] and [S, ...]."""
    trajectories = [chunk.trajectory for chunk in chunks]
    whole = jax.tree.map(lambda *parts: np.concatenate(parts, axis=2), *[t._replace(carry=()) for t in trajectories])
    carry = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *[t.carry for t in trajectories])
    stats = jax.tree.map(lambda *parts: np.sum(parts, axis=0), *[chunk.stats for chunk in chunks])
    return whole._replace(carry=carry), stats


# Rollouts on a cluster.


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
            GameError: an actor raised, no actor is left and none can be started, or the cluster failed: training saves
                the run before it ends.
        """
        ray = library()
        try:
            return self._collect(learner, version, keys, together)
        except ray.exceptions.RayError as error:  # for example a full object store
            what = f"{self.name}: the Ray cluster failed: {type(error).__name__}: {_first_line(error)}"
            raise GameError(what, None, "", "") from error

    def _collect(self, learner: PyTree, version: int, keys: Key[Array, " S"], together: bool) -> list[Chunk]:
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
            inner = error.cause
            if isinstance(inner, GameError):
                raise inner from None
            what = f"{self.name}: a Ray actor raised {type(inner).__name__}: {_first_line(inner)}"
            raise GameError(what, None, "", str(error)) from None
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
