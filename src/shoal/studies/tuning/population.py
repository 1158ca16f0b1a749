"""The trials of one structure in one environment, trained in parallel in one compiled program, like seeds."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from shoal.rollouts import fused
from shoal.storage.checkpoint import Checkpoints
from shoal.studies.record import rounded
from shoal.studies.tuning.structures import Instance, Trial
from shoal.system.files import make_folder
from shoal.training import feed, memory, sharding
from shoal.training.evaluation import first_episodes
from shoal.training.program import Program, TrainState, compile_program, place
from shoal.training.progress import Progress
from shoal.training.stopping import Stop, ready, wait
from shoal.training.traced import with_values
from shoal.training.trainer import CALL_SECONDS, CAPACITY, SAVING

Result = dict[int, list[float] | None]
"""By trial, the mean score of each seed; None if it diverged."""


class Population:
    """Trains the remaining trials from rung to rung. The state at the end of a rung is saved on disk.

    Entries are trials × seeds, with the seeds of a trial next to each other. They are padded with copies of the first
    entry to a multiple of the number of devices: every device has equally many, and environments are not sharded.
    """

    def __init__(self, instance: Instance, traced: Sequence[str], folder: Path):
        """Prepare; nothing is compiled.

        Args:
            instance: the setting with the structure's values.
            traced: flags of the traced hyper-parameters.
            folder: of the checkpoints.
        """
        self.instance, self.traced = instance, traced
        self.settings, self.env, self.tuning = instance.settings, instance.env, instance.setting.method.tuning
        self.checkpoints = Checkpoints(folder, keep=1)
        self.sound: Bool[np.ndarray, " S"] = np.ones(0, bool)
        """Entries without NaN or infinity so far."""
        self.update = 0
        self.seconds = 0.0
        """Of training, in this process, without compilation."""

    def rung(self, number: int, trials: Mapping[int, Trial], progress: Progress, stop: Stop) -> Result | None:
        """Train ``trials`` to a rung and evaluate them; None if a signal stopped it, in which case the state is saved.

        Args:
            number: number of the rung, from 0.
            trials: their values; all of them reached the rung before.
            progress: shows progress.
            stop: whether to stop.

        Raises:
            InputError: the trials do not fit in memory.
            CheckpointError: the state at the end of the rung before is missing or damaged.
        """
        target, last = self.instance.updates[number], number == len(self.instance.updates) - 1
        program, layout, values = self._program(trials)
        with stop.at_once():  # the stored state suffices to continue
            state = self._state(trials, program, layout, values)
        if self.update < target and not self._train(program, state, trials, target, progress, stop, keep=not last):
            return None
        return self._evaluate(self._now, trials, number)

    def _program(self, trials: Mapping[int, Trial]) -> tuple[Program, sharding.Layout, dict[str, Array]]:
        settings, seeds = self.settings, self.tuning.seeds
        count = min(settings.devices or jax.local_device_count(), len(trials) * seeds)
        entries = -(-len(trials) * seeds // count) * count
        layout = sharding.plan(entries, settings.num_envs, count)
        columns = {flag: np.array([one[flag] for one in trials.values()], np.float32) for flag in self.traced}
        filled = {flag: _filled(np.repeat(x, seeds), entries) for flag, x in columns.items()}
        default = {flag: float(x[0]) for flag, x in columns.items()}
        self.algorithm = with_values(self.instance.make, default) if columns else self.instance.make({})
        capacity = min(CAPACITY, self.instance.updates[-1])
        program = compile_program(self.env, self.algorithm, layout, settings.rollout_length, capacity)
        given = (filled,) if columns else ()
        buffers = feed.wanted(self.algorithm.replay)
        drawn = sum(one.draws * one.batch * one.length for one in buffers)
        size = entries, settings.num_envs, settings.rollout_length, drawn
        memory.check_run(self.env.spec, program.template(*given).learner, *size, layout.mesh.devices)
        if buffers:
            memory.check(program.replay_bytes, layout.mesh.devices, sum(one.capacity for one in buffers), entries)
        memory.check_episodes(self.env.spec, entries, self.tuning.episodes, self.env.spec.horizon, "episodes")
        return program, layout, filled

    def _state(
        self, trials: Mapping[int, Trial], program: Program, layout: sharding.Layout, values: dict[str, Array]
    ) -> TrainState:
        """The newest stored state, restricted to these trials; new trials are initialised."""
        seeds, entries = self.tuning.seeds, layout.seeds * layout.mesh.shape[sharding.SEED_SHARDS]
        given = (values,) if self.traced else ()
        template = program.template(*given)
        if self.checkpoints.latest() is None:
            numbers = np.tile(self.settings.seed + np.arange(seeds), len(trials))
            keys = jax.vmap(jax.random.key)(jnp.asarray(_filled(numbers, entries)))
            self.update, self.sound = 0, np.ones(entries, bool)
            self._now = program.init(*jax.device_put((keys, *given), layout.named(layout.learner)))
            return self._now
        meta = self.checkpoints.load_meta()
        before = meta["entries"]
        stored = jax.tree.map(lambda x: jax.ShapeDtypeStruct((before, *x.shape[1:]), x.dtype), template)
        state, meta, self.update = self.checkpoints.restore(stored)
        places = [meta["trials"].index(trial) * seeds + i for trial in trials for i in range(seeds)]
        chosen = np.asarray(_filled(np.asarray(places), entries))
        self.sound = np.asarray(meta["sound"], bool)[chosen]
        if chosen.tolist() != list(range(before)):
            state = jax.tree.map(lambda x: x[chosen], state)
        self._now = place(state, layout)
        return self._now

    def _train(
        self,
        program: Program,
        state: TrainState,
        trials: Mapping[int, Trial],
        target: int,
        progress: Progress,
        stop: Stop,
        keep: bool,
    ) -> bool:
        """Train to ``target`` updates; returns False if a signal stopped it before."""
        entries, size, began = len(self.sound), 4, time.monotonic()
        with stop.at_once():
            advance = program.start(state)
        progress.say(
            f"Compiled for {len(trials)} trials × {self.tuning.seeds} seeds in {time.monotonic() - began:.1f} s."
        )
        saved_at, pause = time.monotonic(), self.settings.checkpoint_seconds
        while self.update < target and not stop.asked:
            n = min(size, target - self.update, program.capacity)
            began = time.monotonic()
            state, (metrics, _) = advance(state, np.int32(n))
            for values in jax.tree.leaves(ready(metrics)):
                self.sound &= np.isfinite(np.asarray(values)[:n]).all(0)
            spent = time.monotonic() - began
            self.update, self.seconds, self._now = self.update + n, self.seconds + spent, state
            size = max(1, min(program.capacity, int(n * CALL_SECONDS / max(spent, 1e-6))))
            steps = self.settings.steps_per_update
            progress.update(self.update * steps, None, n * steps * entries / max(spent, 1e-9))
            if time.monotonic() - saved_at >= pause and self.update < target:
                began = time.monotonic()
                self._save(trials)
                saved_at = time.monotonic()
                pause = max(self.settings.checkpoint_seconds, SAVING * (saved_at - began))
        for leaf in jax.tree.leaves(state.learner):
            self.sound &= np.isfinite(np.asarray(leaf)).reshape(entries, -1).all(1)
        if keep or self.update < target:
            self._save(trials)
        return self.update >= target

    def _save(self, trials: Mapping[int, Trial]) -> None:
        make_folder(self.checkpoints.folder.parent)
        meta = {"trials": list(trials), "entries": len(self.sound), "sound": self.sound.tolist()}
        self.checkpoints.save(self.update, self._now, meta)

    def _evaluate(self, state: TrainState, trials: Mapping[int, Trial], number: int) -> Result:
        """Greedy episodes, the same for every trial, but new ones at every rung, since they select the trials."""
        seeds, episodes, entries = self.tuning.seeds, self.tuning.episodes, len(self.sound)
        key = jax.random.fold_in(jax.random.key(self.tuning.evaluation_seed), number)
        keys = jax.random.split(key, seeds)[_filled(np.tile(np.arange(seeds), len(trials)), entries)]
        carry = self.algorithm.initial_carry(episodes)
        play = jax.vmap(first_episodes(self.env, self.algorithm.act, carry, episodes, True), axis_name=fused.SEEDS)
        learner = state.learner._replace(critic=(), optimiser=(), statistics=())
        compiled = wait(jax.jit(play).lower(learner, keys).compile)
        returns = np.asarray(ready(compiled(learner, keys))[0])
        scores = self.env.spec.scores(returns).mean(1)
        found: Result = {}
        for i, trial in enumerate(trials):
            own = slice(i * seeds, (i + 1) * seeds)
            sound = self.sound[own].all() and all(map(math.isfinite, scores[own]))
            found[trial] = rounded(scores[own]) if sound else None
        return found


def _filled(values: np.ndarray, entries: int) -> Any:
    """``values`` padded with copies of the first one."""
    return np.concatenate([values, np.repeat(values[:1], entries - len(values))])
