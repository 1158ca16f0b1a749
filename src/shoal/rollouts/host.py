"""The rollout of host environments: worker processes step one half of the games while the policy acts for the other.

Random numbers are those of :mod:`shoal.rollouts.fused`, with halves in place of devices: a game implemented both ways
gives the same trajectory as on two devices, for any number of workers.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from shoal.environments.rows import all_numbers
from shoal.errors import GameError
from shoal.game import HostEnvironment, HostTimestep, blank, departed, entry_name
from shoal.rollouts.drawing import WatchedGame
from shoal.rollouts.fused import SEEDS, Act
from shoal.rollouts.pool import PATIENCE, RESETTING, Pool, workers_for
from shoal.system import notices
from shoal.system.notices import Warn
from shoal.types import Box, EpisodeStats, PyTree, Seconds, Step, Trajectory


class Workers(NamedTuple):
    """The worker processes of rollouts that a run makes besides training."""

    number: int | None = None
    """None for one per core, 0 to step in this process."""
    timeout: float = 60.0
    """Seconds without an answer after which a worker counts as hung."""


WORKERS = Workers()


class Parallelism(NamedTuple):
    """Numbers of seeds, environments and workers of a host rollout."""

    seeds: int
    """S."""
    num_envs: int
    """E of each seed."""
    num_workers: int | None = None
    """Worker processes; None for one per core, 0 to step in this process."""
    timeout: float = 60.0
    """Seconds without an answer after which a worker counts as hung."""
    halves: int | None = None
    """Number of parts that take turns; None for two if E is even, else one."""

    @property
    def parts(self) -> int:
        """Number of parts that take turns."""
        return self.halves or (1 if self.num_envs % 2 else 2)


class Half:
    """A batch of environments that act together: E / halves of every seed. The first axis of arrays is S · size."""

    def __init__(self, index: int, seeds: int, size: int, initial_carry: Callable[[int], PyTree]):
        self.index, self.seeds, self.size = index, seeds, size
        self.envs = slice(index * size, (index + 1) * size)
        self.initial = jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), initial_carry(size))
        self.carry = self.initial
        self.step: HostTimestep | None = None
        self.returns = self.lengths = np.zeros(0)

    def begin(self, step: HostTimestep) -> None:
        """Start all episodes at ``step`` [S · size, ...]."""
        self.step, self.carry = step, self.initial
        self.returns, self.lengths = np.zeros_like(step.reward), np.zeros(len(step.reward), np.float32)

    def begin_again(self, ended: np.ndarray, fresh: HostTimestep) -> HostTimestep:
        """The half's timesteps with those of ``ended`` episodes replaced by ``fresh``; resets returns and lengths."""
        assert self.step is not None
        self.returns, self.lengths = np.where(ended[:, None], 0, self.returns), np.where(ended, 0, self.lengths)
        return HostTimestep._make(np.where(_wide(ended, b), a, b) for a, b in zip(fresh, self.step, strict=True))

    def shown(self) -> Step:
        """The input of the policy; leaves [S, size, ...]."""
        assert self.step is not None
        return self.shaped(visible(self.step))

    def shaped(self, rows: Any) -> Any:
        """Reshape [S · size, ...] to [S, size, ...]."""
        return jax.tree.map(lambda x: x.reshape(self.seeds, self.size, *x.shape[1:]), rows)


class Ended(NamedTuple):
    """The result of one step of a half; arrays are [S · size, ...]."""

    outcome: HostTimestep
    returns: np.ndarray
    """Undiscounted return of the episode so far, including this step."""
    lengths: np.ndarray
    lost: np.ndarray
    """Episodes truncated by the loss of a worker, which are not counted."""


class Recording:
    """Arrays of a trajectory in progress; leaves [S, T, E, ...]. ``decided`` gives the shapes of action and extras."""

    def __init__(self, env: HostEnvironment, parallelism: Parallelism, length: int, decided: PyTree):
        batch = (parallelism.seeds, length, parallelism.num_envs)
        self.step, self.outcome = visible(blank(env.spec, *batch)), visible(blank(env.spec, *batch))
        self.action, self.extras = jax.tree.map(lambda x: np.empty((*batch, *x.shape[2:]), x.dtype), decided)
        self.episodes, self.lengths = np.zeros(parallelism.seeds, np.float32), np.zeros(parallelism.seeds, np.float32)
        self.returns = np.zeros((parallelism.seeds, env.spec.num_agents), np.float32)
        self._leaves = jax.tree.leaves((self.step, self.outcome, self.action, self.extras))
        self.metrics = np.zeros((parallelism.seeds, len(env.spec.metrics)), np.float32)
        self.known = np.zeros_like(self.metrics)

    def write(self, half: Half, t: int, before: tuple[Step, Any, Any], ended: Ended) -> None:
        """Write one timestep of one half: ``before`` is (step, action, extras), ``ended`` the result."""
        step, *decided = before
        at = (slice(None), t, half.envs)
        rows = jax.tree.leaves((step, half.shaped(visible(ended.outcome)), decided))
        for there, here in zip(self._leaves, rows, strict=True):
            there[at] = here
        counted = ended.outcome.last & ~ended.lost
        if counted.any():
            metrics = ended.outcome.metrics
            counted, returns, lengths, metrics = half.shaped((counted, ended.returns, ended.lengths, metrics))
            self.episodes += counted.sum(1)
            self.returns += np.where(counted[..., None], returns, 0).sum(1)
            self.lengths += np.where(counted, lengths, 0).sum(1)
            known = counted[..., None] & np.isfinite(metrics)
            self.metrics += np.where(known, metrics, 0).sum(1)
            self.known += known.sum(1)

    def trajectory(self, carry: PyTree) -> Trajectory:
        """The recorded trajectory; ``carry`` is the recurrent state before its first step."""
        return Trajectory._make((self.step, self.action, self.extras, self.outcome, carry))

    def stats(self) -> EpisodeStats:
        """Sums over the episodes that ended; leaves [S, ...]."""
        measured = (self.metrics, self.known) if self.metrics.size else ((), ())
        return EpisodeStats._make((self.episodes, self.returns, self.lengths, *measured))


class Episodes:
    """Whole episodes of every seed, ``episodes`` in all, of which each environment plays a fixed number.

    Counting the first episodes to end would over-represent short ones.
    """

    def __init__(self, env: HostEnvironment, parallelism: Parallelism, episodes: int):
        self.name, seeds, num_envs = env.spec.name, parallelism.seeds, parallelism.num_envs
        playing = min(num_envs, episodes)
        self.quota = np.array([episodes // playing + (e < episodes % playing) for e in range(num_envs)])
        self.quota[playing:] = 0
        self.first = np.concatenate([[0], np.cumsum(self.quota)[:-1]])
        self.done = np.zeros((seeds, num_envs), int)
        self.losses = np.zeros((seeds, num_envs), int)
        """Number of episodes lost by each environment since the last that it finished."""
        self.returns = np.zeros((seeds, episodes, env.spec.num_agents), np.float32)
        self.lengths = np.zeros((seeds, episodes))
        self.metrics = np.zeros((seeds, episodes, len(env.spec.metrics)), np.float32)

    def add(self, half: Half, ended: Ended) -> None:
        """Count the episodes of a half that ended at this step.

        Raises:
            GameError: an environment has lost more than :data:`PATIENCE` episodes in a row.
        """
        if ended.lost.any():
            self.losses[:, half.envs] += half.shaped(ended.lost & ~self.finished(half))
            if (most := int(self.losses.max())) > PATIENCE:
                what = f"{self.name}: a worker died or did not answer in {most} episodes of one environment in a row"
                raise GameError(what, None, "", "")
        for s, e in np.argwhere(half.shaped(ended.outcome.last & ~ended.lost)):
            env, row = e + half.envs.start, s * half.size + e
            if self.done[s, env] < self.quota[env]:
                at = self.first[env] + self.done[s, env]
                self.returns[s, at], self.lengths[s, at] = ended.returns[row], ended.lengths[row]
                self.metrics[s, at] = ended.outcome.metrics[row]
                self.done[s, env] += 1
                self.losses[s, env] = 0

    def finished(self, half: Half) -> np.ndarray:
        """bool [S · size]: games of a half that have played all their episodes."""
        return (self.done >= self.quota)[:, half.envs].reshape(-1)


def visible(timesteps: HostTimestep) -> Step:
    """Timesteps as algorithms receive them, without the metrics of episodes and without ``leaving``."""
    return Step._make(timesteps[: len(Step._fields)])._replace(metrics=())


def copied(timesteps: HostTimestep, rows: slice) -> HostTimestep:
    """Copy rows of arrays that workers continue to write to."""
    return HostTimestep._make(leaf[rows].copy() for leaf in timesteps)


def _wide(condition: np.ndarray, like: np.ndarray) -> np.ndarray:
    return condition.reshape(-1, *(1,) * (like.ndim - 1))


class HostRollout:
    """Collects trajectories of T steps in E environments for each of S seeds; leaves start with the seed axis.

    Owns worker processes; call :meth:`close`.
    """

    def __init__(
        self,
        env: HostEnvironment,
        initial_carry: Callable[[int], PyTree],
        parallelism: Parallelism,
        length: int,
        warn: Warn = notices.warn,
        pool: Pool | None = None,
    ):
        """``pool`` is that of the games, if it is not to be made here."""
        self.env, self.parallelism, self.length = env, parallelism, length
        halves = parallelism.parts
        size = parallelism.num_envs // halves
        self.halves = [Half(i, parallelism.seeds, size, initial_carry) for i in range(halves)]
        games = parallelism.seeds * size
        workers = workers_for(games, parallelism.num_workers)
        self.pool = pool or Pool(env, halves, games, workers, parallelism.timeout, warn)
        self._act: dict[tuple[Any, bool], Callable] = {}
        self._seeds = jax.jit(self._draw, static_argnums=1)

    def _draw(self, keys: Array, length: int, *numbers: Array | int) -> tuple[Array, Array]:
        """Key data [length, S, ...] for acting and seeds [length, S · size] for resets of one half, as ``fused`` draws
        them from ``keys`` folded with ``numbers``."""

        def of_seed(key: Array) -> tuple[Array, Array]:
            def of_step(key: Array) -> tuple[Array, Array]:
                key_act, _, key_reset = jax.random.split(key, 3)
                return jax.random.key_data(key_act), seed_of(jax.random.split(key_reset, self.halves[0].size))

            return jax.vmap(of_step)(jax.random.split(key, length))

        acting, resetting = jax.vmap(of_seed, out_axes=1)(_fold(keys, *numbers))
        return acting, resetting.reshape(length, -1)

    def init(self, keys: Key[Array, " S"], part: int = 0) -> None:
        """Start an episode in every environment. ``part`` is the index of the first half, if this is one of several
        rollouts."""
        self.pool.wake()
        for half in self.halves:
            each = jax.vmap(partial(jax.random.split, num=half.size))(_fold(keys, part + half.index))
            self.pool.board.seed[self.pool.rows[half.index]] = np.asarray(seed_of(each)).reshape(-1)
            self.pool.reset(half.index)
        for half in self.halves:
            self.pool.wait(half.index)
            half.begin(copied(self.pool.board.fresh, self.pool.rows[half.index]))
            self._check(half, half.step)

    def acting(self, act: Act, greedy: bool) -> Callable:
        """``act`` compiled for one half of every seed: -> (carry, action, action clipped to its space, extras)."""
        box = self.env.spec.action if isinstance(self.env.spec.action, Box) else None

        def one(learner: PyTree, carry: PyTree, step: Step, key: Array) -> tuple:
            carry, action, extras = act(learner, carry, step, jax.random.wrap_key_data(key), greedy)
            return carry, action, jnp.clip(action, box.low, box.high) if box else action, extras

        if (act, greedy) not in self._act:
            self._act[act, greedy] = jax.jit(jax.vmap(one, axis_name=SEEDS))
        return self._act[act, greedy]

    def prepare(
        self, act: Act, learner: PyTree, keys: Key[Array, " S"], greedy: bool, length: int, *numbers: int
    ) -> None:
        """Compile what :meth:`collect` computes (``length`` T) or :meth:`play` (:data:`PLAYED` and a number), so that
        neither of them has to; arguments are like theirs."""
        half, decide = self.halves[0], self.acting(act, greedy)
        key = jax.device_get(self._seeds(keys, length, half.index, *numbers))[0][0]
        step, carry = half.shaped(visible(blank(self.env.spec, len(keys) * half.size))), half.initial
        for _ in range(2):  # a state that was computed may be on its device in another way than the initial one
            carry, *_ = jax.block_until_ready(decide(learner, carry, step, key))

    def collect(
        self, act: Act, learner: PyTree, keys: Key[Array, " S"], greedy: bool = False, part: int = 0
    ) -> tuple[Trajectory, EpisodeStats]:
        """T steps of every environment, in host arrays.

        Raises:
            GameError: an environment raised or returned NaN or infinity.
        """
        decide, length = self.acting(act, greedy), self.length
        drawn = [jax.device_get(self._seeds(keys, length, part + half.index)) for half in self.halves]
        start = [jax.device_get(half.carry) for half in self.halves]
        record: Recording | None = None

        def order(half: Half, t: int) -> Any:
            return self._order(half, decide, learner, drawn[half.index][0][t], drawn[half.index][1][t])

        decided = [order(half, 0) for half in self.halves]
        for t in range(length):
            for half in self.halves:
                ended, before = self._advance(half), decided[half.index]
                if t + 1 < length:
                    decided[half.index] = order(half, t + 1)
                record = record or Recording(self.env, self.parallelism, length, before[1:])
                record.write(half, t, before, ended)  # while the workers step
        assert record is not None
        carry = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *start)
        return record.trajectory(carry), record.stats()

    def _order(self, half: Half, decide: Callable, learner: PyTree, key: Any, seeds: Any) -> tuple[Any, Any, Any]:
        """Act for a half and let its workers step; returns (step, action, extras), leaves [S, size, ...]."""
        step = half.shown()
        half.carry, action, sent, extras = decide(learner, half.carry, step, key)
        rows, board = self.pool.rows[half.index], self.pool.board
        board.action[rows] = np.asarray(sent).reshape(board.action[rows].shape)
        board.seed[rows] = seeds
        self.pool.step(half.index)
        return step, action, extras

    def _advance(self, half: Half) -> Ended:
        """Wait for the step of a half; ended episodes are followed by new ones."""
        rows, board = self.pool.rows[half.index], self.pool.board
        try:
            lost = self.pool.wait(half.index, half.step)
        except GameError as fault:
            if fault.game is None or fault.doing == RESETTING:  # for the next episode
                raise
            step = int(half.lengths[fault.game - rows.start]) + 1
            raise GameError(f"{fault.what} in step {step} of an episode,", None, fault.doing, fault.trace) from None
        outcome = copied(board.outcome, rows)
        self._check(half, outcome)
        following = departed(outcome)
        if self.env.spec.shared_reward:  # the team's reward goes on after an agent's time limit
            outcome = outcome._replace(alive=following.alive, obs=following.obs)
        returns, lengths = half.returns + outcome.reward, half.lengths + 1
        ended = outcome.last
        half.step, half.returns, half.lengths = following, returns, lengths
        if ended.any():
            half.step = half.begin_again(ended, copied(board.fresh, rows))
            self._check(half, half.step)
        return Ended(outcome, returns, lengths, lost)

    def _check(self, half: Half, timestep: HostTimestep | None) -> None:
        """Raise :class:`GameError` unless observations, states and rewards are finite."""
        assert timestep is not None
        checked = {"obs": all_numbers(self.env.spec, timestep.obs), "state": timestep.state, "reward": timestep.reward}
        for field, leaf in checked.items():
            if np.isfinite(leaf).all():
                continue
            row, *where = (int(i) for i in np.argwhere(~np.isfinite(leaf))[0])
            gave = f"{self.env.spec.name} gave {entry_name(self.env.spec, field, where)} as {leaf[(row, *where)]}"
            if timestep.first[row]:
                raise GameError(gave, None, RESETTING, "")
            action = self.pool.board.action[self.pool.rows[half.index]][row].tolist()
            step = int(half.lengths[row]) + 1
            raise GameError(f"{gave} in step {step} of an episode,", None, f"at the action {action}", "")

    def play(
        self, act: Act, learner: PyTree, keys: Key[Array, " S"], episodes: int, greedy: bool = True
    ) -> tuple[Float[np.ndarray, "S episodes N"], Float[np.ndarray, "S episodes"], Float[np.ndarray, "S episodes M"]]:
        """Returns, lengths and metrics of ``episodes`` whole episodes of every seed.

        Each environment plays a fixed number of episodes, and is not stepped after the last of them.

        Raises:
            GameError: an environment raised, an episode exceeds :data:`ENDLESS` times the horizon, or an environment
                loses one episode after the other with its worker, and so might never finish.
        """
        decide, spec, idle = self.acting(act, greedy), self.env.spec, self.pool.board.idle
        self.init(jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys))
        played = Episodes(self.env, self.parallelism, episodes)
        for chunk in itertools.count():
            drawn = [jax.device_get(self._seeds(keys, PLAYED, half.index, chunk)) for half in self.halves]
            for t in range(PLAYED):
                for half in self.halves:
                    rows = self.pool.rows[half.index]
                    self.pool.rest(rows.start + np.flatnonzero(played.finished(half) & ~idle[rows]))
                    self._order(half, decide, learner, drawn[half.index][0][t], drawn[half.index][1][t])
                for half in self.halves:
                    ended = self._advance(half)
                    if ended.lengths[~idle[self.pool.rows[half.index]]].max(initial=0) > ENDLESS * spec.horizon:
                        raise GameError(
                            f"{spec.name} continues long after its horizon of {spec.horizon} steps", None, "", ""
                        )
                    played.add(half, ended)
                if (played.done >= played.quota).all():
                    self.pool.wake()
                    return played.returns, played.lengths, played.metrics
        raise AssertionError("unreachable")

    def watch(
        self,
        act: Act,
        learner: PyTree,
        keys: Key[Array, " 1"],
        greedy: bool = True,
        pause: Callable[[Seconds], int] = lambda drawing: 1,
    ) -> Iterator[tuple[np.ndarray | None, np.ndarray | None, HostTimestep | None, dict[str, Array]]]:
        """One episode of a :class:`WatchedGame`: yields (picture, None, None, {}) at the start, then for each step its
        picture, the action [N, ...] as sent to the game, the timestep after it, and extras [1, 1 ...].

        Args:
            act: as the algorithm acts.
            learner: with a seed axis of one.
            keys: of the episode.
            greedy: act by the mode of the policy rather than by sampling.
            pause: (time that a picture took) -> the number of steps to the next one; the last step is always drawn.
                Steps in between yield None in place of a picture.

        Raises:
            GameError: the game raised, or its process died or hung.
            DrawingError: its renderer failed.
        """
        half, game = self.halves[0], self.pool
        assert isinstance(game, WatchedGame)
        self.init(jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys))
        decide, board = self.acting(act, greedy), game.board
        left = 0

        def picture(last: bool = False) -> np.ndarray | None:
            nonlocal left
            left -= 1
            if left > 0 and not last:
                return None
            before = time.perf_counter()
            found = game.picture()
            left = pause(time.perf_counter() - before)
            return found

        yield picture(), None, None, {}
        for chunk in itertools.count():
            acting, _ = jax.device_get(self._seeds(keys, PLAYED, 0, chunk))
            for t in range(PLAYED):
                half.carry, _, sent, extras = decide(learner, half.carry, half.shown(), acting[t])
                board.action[...] = np.asarray(sent).reshape(board.action.shape)
                game.play()
                outcome = copied(board.outcome, slice(None))
                half.step = departed(outcome)
                after = HostTimestep._make(leaf[0] for leaf in outcome)
                yield picture(bool(half.step.last[0])), board.action[0].copy(), after, extras
                if half.step.last[0]:
                    return

    def close(self) -> None:
        """Stop the worker processes."""
        self.pool.close()


ENDLESS = 2
"""An episode longer than this multiple of the horizon counts as endless."""

PLAYED = 64
"""Number of steps for which keys are drawn at once while episodes are played."""


def seed_of(key: Key[Array, "*b"]) -> Array:
    """The seed, 0 ≤ seed < 2³¹, of the episode that a device environment would start from ``key``."""
    return (jax.random.key_data(key)[..., -1] & 0x7FFFFFFF).astype(jnp.int32)


def _fold(keys: Array, *numbers: Array | int) -> Array:
    for number in numbers:
        keys = jax.vmap(lambda key, n=number: jax.random.fold_in(key, n))(keys)
    return keys
