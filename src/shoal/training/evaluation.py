"""Evaluation of policies on whole episodes, during training too, and the selection of the best policy of each seed."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from shoal.errors import DamagedError, GameError, InputError, shortened, unknown
from shoal.game import HostEnvironment
from shoal.options.convert import convert_value
from shoal.plots.charts import SHARES, metric_words
from shoal.plots.texts import decimals
from shoal.rollouts import fused
from shoal.rollouts.host import PLAYED, WORKERS, HostRollout, Parallelism, Workers
from shoal.rollouts.worker import local_workers
from shoal.statistics.intervals import interval, interval_text
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.log import or_none
from shoal.system import notices
from shoal.system.notices import Warn
from shoal.training import memory
from shoal.training.ending import Standing
from shoal.training.settings import SHARE, Settings
from shoal.training.stopping import ready, wait
from shoal.types import Algorithm, AnyEnvironment, Environment, EnvSpec, Learner, PyTree, Seconds, Step

ENVS = 32
"""Largest number of parallel host environments per seed in an evaluation."""


class Evaluation(NamedTuple):
    """Undiscounted returns and metrics of finished episodes."""

    returns: np.ndarray
    """[S, episodes, N] return of each agent."""
    lengths: np.ndarray
    """[S, episodes] number of steps."""
    scores: np.ndarray
    """[S, episodes] sum or mean of the returns over agents, by ``EnvSpec.score``."""
    metrics: Mapping[str, np.ndarray] = MappingProxyType({})
    """``EnvSpec.metrics`` and :meth:`EnvSpec.role_returns` by name: [S, episodes], NaN in episodes where unknown."""
    greedy: bool = True
    """Whether actions were the modes of the policies; otherwise they were drawn from them."""
    other: "Evaluation | None" = None
    """The same policies in the other mode, if both were played."""

    def in_mode(self, greedy: bool) -> "Evaluation":
        """This evaluation, or the one in the other mode with this as its ``other``, whichever is in the wanted mode;
        this one where the other was not played."""
        if self.other is None or self.greedy == greedy:
            return self
        return self.other._replace(other=self._replace(other=None))

    @property
    def mode(self) -> str:
        """``greedy`` or ``sampled``."""
        return mode_name(self.greedy)

    @property
    def per_seed(self) -> np.ndarray:
        """[S] mean score of each seed."""
        return self.scores.mean(1)

    @property
    def mean(self) -> float:
        """Mean score over seeds and episodes."""
        return float(self.scores.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean over seeds; with one seed, over episodes. With fewer than five values it is their
        range; see :func:`shoal.statistics.intervals.interval`."""
        _, low, high = interval(self._samples)
        return low, high

    @property
    def _samples(self) -> np.ndarray:
        """The samples of the interval: scores of seeds, or of episodes if there is one seed."""
        return self.per_seed if len(self.scores) > 1 else self.scores[0]

    def metric(self, name: str) -> "MetricMean":
        """Mean of one metric over the episodes in which it is known.

        Raises:
            InputError: the environment has no metric of that name.
        """
        if name not in self.metrics:
            raise unknown("metric", name, self.metrics)
        return _mean(self.metrics[name])

    def as_json(self) -> dict[str, Any]:
        """The numbers in ``evaluation.json``."""
        low, high = self.interval
        result = {"mean": self.mean, "low": low, "high": high, "per_seed": self.per_seed.tolist()}
        if not self.metrics:
            return result
        means = {name: self.metric(name) for name in self.metrics}
        metrics = {name: m._asdict() | {"per_seed": m.per_seed.tolist()} for name, m in means.items()}
        return result | {"metrics": metrics}

    def __str__(self) -> str:
        """The score, and one line for each metric."""
        seeds, episodes = self.scores.shape
        low, high = self.interval
        over = f"{seeds} seeds × " * (seeds > 1) + f"{episodes} episode{'s' * (episodes > 1)}"
        samples = self._samples.size
        digits = decimals(self.mean, low, high) if samples > 1 else decimals(self.mean)
        reach = f"{interval_text(samples)} {low:.{digits}f} … {high:.{digits}f}, " if samples > 1 else ""
        lines = [f"{self.mean:.{digits}f} ({reach}{over})"]
        lines += [_line(name, self.metric(name), self.scores.size) for name in self.metrics]
        if self.other is not None:
            lines.append(f"{self.other.mode} actions {str(self.other).partition(chr(10))[0]}")
        return "\n".join(lines)


def mode_name(greedy: bool) -> str:
    """The name of a mode of acting: ``greedy`` for the modes of the policies, ``sampled`` for draws from them."""
    return "greedy" if greedy else "sampled"


def preferred(greedy: Evaluation, sampled: Evaluation) -> Evaluation:
    """Of the same policies in both modes the one that they act in by default, with the other as its ``other``."""
    if sampled_is_better(greedy.scores, sampled.scores):
        return sampled._replace(other=greedy)
    return greedy._replace(other=sampled)


def sampled_is_better(greedy: np.ndarray, sampled: np.ndarray) -> bool:
    """Whether the scores [S, episodes] of sampled actions are higher than those of greedy ones of the same policies.

    They are if their mean is higher by more than the 95 % interval of the difference, which is Welch's t over episodes
    within seeds: these policies are compared, and not the ones that other seeds would have become. With one episode of
    each seed there is no interval, and they are not.
    """
    from scipy.special import stdtrit

    parts = [part for one in (greedy, sampled) for part in one.astype(np.float64)]
    better, seeds, count = float(sampled.mean()) - float(greedy.mean()), len(greedy), greedy.shape[1]
    if count < 2 or better <= 0:
        return False
    spread = np.array([part.var(ddof=1) / count for part in parts])
    freedom = spread.sum() ** 2 / max((spread**2).sum() / (count - 1), np.finfo(np.float64).tiny)
    return bool(better > stdtrit(max(freedom, 1.0), 0.975) * math.sqrt(spread.sum()) / seeds)


class MetricMean(NamedTuple):
    """The mean of a metric and its 95 % interval over seeds; with one seed, over episodes."""

    mean: float
    """Mean of the seeds' means; NaN if the metric is known in no episode."""
    low: float
    high: float
    per_seed: np.ndarray
    """[S] mean of each seed; NaN for a seed in which the metric is known in no episode."""
    episodes: int
    """Number of episodes, over all seeds, in which the metric is known."""
    samples: int
    """Number of samples of the interval."""


def known_mean(values: np.ndarray, axis: int | tuple[int, ...], keepdims: bool = False) -> np.ndarray:
    """Mean of the finite ``values``; NaN where there are none."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        total = np.where(known, values, 0.0).sum(axis, dtype=np.float64, keepdims=keepdims)
        return np.asarray(total / known.sum(axis, keepdims=keepdims))


def _mean(values: np.ndarray) -> MetricMean:
    """Mean of a metric [S, episodes] with its interval."""
    per_seed = known_mean(values, axis=1)
    samples = per_seed if len(values) > 1 else values[0].astype(np.float64)
    samples = samples[np.isfinite(samples)]
    mean, low, high = interval(samples) if samples.size else (math.nan,) * 3
    return MetricMean(mean, low, high, per_seed, int(np.isfinite(values).sum()), samples.size)


def _line(name: str, found: MetricMean, episodes: int) -> str:
    """One metric as text; shares in per cent."""
    if not found.episodes:
        return f"{metric_words(name)} is unknown in all episodes"
    estimate = (found.mean, found.low, found.high) if found.samples > 1 else (found.mean,)
    scale, digits, unit = (100.0, 1, " %") if name in SHARES else (1.0, decimals(*estimate), "")
    mean, low, high = (f"{scale * x:.{digits}f}" for x in (found.mean, found.low, found.high))
    notes = [f"{interval_text(found.samples)} {low} … {high}"] if found.samples > 1 else []
    notes += [f"known in {found.episodes} of {episodes} episodes"] if found.episodes < episodes else []
    return f"{metric_words(name)} {mean}{unit}" + (f" ({', '.join(notes)})" if notes else "")


def evaluate(
    env: AnyEnvironment,
    algorithm: Algorithm,
    learner: Learner,
    key: Key[Array, ""],
    episodes: int,
    greedy: bool | None = True,
    workers: Workers = WORKERS,
    num_envs: int | None = None,
) -> Evaluation:
    """Play ``episodes`` whole episodes with every seed's policy; learner leaves are [S, ...].

    If ``greedy`` is None, they are played in each mode where policies are stochastic (:func:`preferred`). Of a
    host environment, ``num_envs`` play at the same time for each seed (None: at most :data:`ENVS`), and decide which
    episodes these are.

    Raises:
        InputError: ``episodes`` is no whole number or below 1, ``greedy`` no boolean, or the episodes do not fit in
            memory.
        GameError: a host environment raised.
    """
    with closing(Evaluator(env, algorithm, episodes, greedy, workers, num_envs)) as evaluator:
        return evaluator(learner, key)


def workers_of(env: AnyEnvironment, settings: Settings) -> Workers:
    """The worker processes of this machine that step an environment outside of training: with Ray, whose actors may be
    more than it has cores, as many as by default."""
    wanted = None if settings.workers == "ray" else settings.num_workers
    return Workers(local_workers(env, wanted), settings.worker_timeout)


class Evaluator:
    """:func:`evaluate` for repeated use: compiled once, with the worker processes of a host environment kept."""

    def __init__(
        self,
        env: AnyEnvironment,
        algorithm: Algorithm,
        episodes: int,
        greedy: bool | None = True,
        workers: Workers = WORKERS,
        num_envs: int | None = None,
    ):
        """Prepare; nothing is compiled or started yet. Arguments are those of :func:`evaluate`.

        Raises:
            InputError: ``episodes`` is no whole number or below 1, or ``greedy`` no boolean.
        """
        self.env, self.algorithm, self.workers = env, algorithm, workers
        self.episodes, greedy = check_episodes(episodes), check_mode(greedy)
        self.num_envs = min(self.episodes, ENVS) if num_envs is None else num_envs
        self.greedy = greedy if greedy is not None or algorithm.stochastic else True
        """None: both modes."""
        self._rollout: HostRollout | None = None
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, learner: Learner, key: Key[Array, ""]) -> Evaluation:
        """Play the episodes with every seed's policy; learner leaves are [S, ...].

        Raises:
            InputError: the episodes do not fit in memory.
            GameError: a host environment raised.
        """
        self.prepare(learner)
        keys = jax.random.split(key, len(jax.tree.leaves(learner)[0]))
        if (rollout := self._rollout) is not None:
            act, episodes = self.algorithm.act, self.episodes
            try:
                return in_modes(
                    self.env.spec, self.greedy, lambda greedy: rollout.play(act, learner, keys, episodes, greedy)
                )
            except GameError:
                self.close()  # what other workers still answer belongs to no later evaluation
                raise
        assert self._compiled is not None
        played = [np.asarray(x) for x in ready(self._compiled(learner, keys))]
        halves = {True: slice(None, self.episodes), False: slice(-self.episodes, None)}
        return in_modes(self.env.spec, self.greedy, lambda greedy: [x[:, halves[greedy]] for x in played])

    def prepare(self, learner: Learner) -> None:
        """Compile, and start the worker processes of a host environment, unless that is done already.

        Raises:
            InputError: the episodes do not fit in memory.
        """
        if self._rollout is not None or self._compiled is not None:
            return
        seeds, act, carry = len(jax.tree.leaves(learner)[0]), self.algorithm.act, self.algorithm.initial_carry
        keys = jax.random.split(jax.random.key(0), seeds)
        if isinstance(self.env, HostEnvironment):
            parallelism = Parallelism(seeds, self.num_envs, *self.workers)
            self._rollout = HostRollout(self.env, carry, parallelism, 1)
            for greedy in (True, False) if self.greedy is None else (self.greedy,):
                self._rollout.prepare(act, learner, keys, greedy, PLAYED, 0)
        else:
            count = self.episodes if self.greedy is not None else 2 * self.episodes
            memory.check_episode_memory(self.env.spec, seeds, count, self.env.spec.horizon, "episodes")
            act = act if self.greedy is not None else half_greedy(act, self.episodes)
            one = first_episodes(self.env, act, carry(count), count, self.greedy is not False)
            self._compiled = wait(jax.jit(jax.vmap(one, axis_name=fused.SEEDS)).lower(learner, keys).compile)

    def close(self) -> None:
        """Stop the worker processes, if any."""
        if self._rollout is not None:
            self._rollout.close()
            self._rollout = None


def in_modes(spec: EnvSpec, greedy: bool | None, play: Callable[[bool], Sequence[np.ndarray]]) -> Evaluation:
    """The evaluation from (whether greedy) -> returns [S, episodes, N], lengths [S, episodes] and metrics
    [S, episodes, M], in one mode or, if ``greedy`` is None, in both (:func:`preferred`)."""

    def one(greedy: bool) -> Evaluation:
        return evaluation_of(spec, *play(greedy))._replace(greedy=greedy)

    return preferred(one(True), one(False)) if greedy is None else one(greedy)


def evaluation_of(spec: EnvSpec, returns: np.ndarray, lengths: np.ndarray, metrics: np.ndarray) -> Evaluation:
    """Evaluation from returns [S, episodes, N], lengths [S, episodes] and metrics [S, episodes, M]."""
    named = {name: metrics[..., i] for i, name in enumerate(spec.metrics)} | spec.role_returns(returns)
    return Evaluation(returns, lengths, spec.scores(returns), named)


def half_greedy(act: fused.Act, count: int) -> fused.Act:
    """``act`` that is greedy in the first ``count`` environments, and samples in the others; its extras are empty.

    One program plays both modes: their networks have the same inputs, and XLA computes them once.
    """

    def acts(policy: PyTree, carry: PyTree, step: Step, key: Array, _: bool) -> tuple[PyTree, Array, dict[str, Array]]:
        envs = step.first.shape[0]

        def first(x: Array, y: Array) -> Array:
            if x.shape[:1] != (envs,):  # states of frozen policies may be padded; no action changes them
                return x
            return jnp.where((jnp.arange(envs) < count).reshape(-1, *[1] * (x.ndim - 1)), x, y)

        modes, draws = (act(policy, carry, step, key, greedy)[:2] for greedy in (True, False))
        return *jax.tree.map(first, modes, draws), {}

    return acts


def first_episodes(
    env: Environment, act: fused.Act, carry: PyTree, episodes: int, greedy: bool
) -> Callable[[PyTree, Array], tuple[Array, Array, Array]]:
    """(policy, key) -> returns [episodes, N], lengths [episodes] and metrics [episodes, M] of whole episodes.

    Each episode is the first one of its own environment, from recurrent state ``carry``. Later ones are not counted,
    since short episodes would otherwise be over-represented.
    """
    rollout = fused.make_rollout(env, episodes, env.spec.horizon, greedy)

    def play(policy: PyTree, key: Array) -> tuple[Array, Array, Array]:
        key_reset, key_play = jax.random.split(key)
        _, made = rollout.play(act, policy, rollout.init(key_reset, carry), key_play)
        last = made.outcome.last
        counted = (jnp.cumsum(last, 0) - last) == 0  # the first episode of each environment, to its last step
        metrics = jnp.zeros((*last.shape, 0)) if isinstance(made.metrics, tuple) else made.metrics
        ended = (counted & last)[..., None]
        metrics = jnp.where(ended.any(0), jnp.where(ended, metrics, 0.0).sum(0), jnp.nan)
        return (made.outcome.reward * counted[..., None]).sum(0), counted.sum(0), metrics

    return play


def check_episodes(episodes: Any) -> int:
    """The number of episodes, which may be given as a float such as ``1e3``.

    Raises:
        InputError: it is no whole number, or below 1.
    """
    count = convert_value("episodes", episodes, int)
    if count < 1:
        raise InputError(f"episodes must be at least 1, not {shortened(count)}.")
    return count


def check_mode(greedy: Any) -> bool | None:
    """Whether to act greedily; None for both modes, or the better one.

    Raises:
        InputError: it is neither a boolean nor None.
    """
    return convert_value("greedy", bool(greedy) if isinstance(greedy, np.bool_) else greedy, bool | None)


# Evaluations during training, and the best policies.


UNNOTICED_SECONDS: Seconds = 5.0
"""Without a warning, evaluations may take this long in total."""

BEST_FOLDER = "best"
"""The folder of a run with the best policies; the folder ``policy`` has the last ones."""


class Best(NamedTuple):
    """The policies with the highest score of each seed."""

    policy: PyTree
    """Leaves [S, ...]."""
    score: np.ndarray
    """[S] mean score of the evaluation that selected it: the highest of several, so biased upwards."""
    step: np.ndarray
    """[S] environment steps per seed after which it was evaluated."""


class Selection:
    """Evaluates every ``Settings.eval_every`` steps and, called by the trainer, after the last update."""

    def __init__(
        self,
        evaluator: Evaluator,
        settings: Settings,
        folder: Path,
        run: Mapping[str, Any] | None = None,
        guard: Callable[[], None] = lambda: None,
    ):
        """Prepare; nothing is compiled yet.

        Args:
            evaluator: plays the episodes.
            settings: the run's; ``eval_every`` is not None.
            folder: the run's folder.
            run: the run's configuration, which saved policies record.
            guard: called before every write; raises if the folder is no longer the run's.
        """
        self.evaluator, self.settings = evaluator, settings
        self.every = settings.updates_between
        self.best: Best | None = None
        self.score: list[float | None] = []
        """Of each seed in the newest evaluation, in the mode that it found better."""
        self.seconds, self.prepared, self.told = 0.0, False, False
        """Time of the evaluations of this process except the first; whether the first was made; whether the warning on
        their cost was printed."""
        self.begun: Seconds = 0.0
        """Seconds of training in earlier processes."""
        # Saved before the checkpoint of the same update: one more, so that each checkpoint has its best policies.
        self.store = Checkpoints(folder / BEST_FOLDER, settings.keep + 1, run, guard)

    def until_next(self, update: int) -> int:
        """Number of updates from ``update`` to the next evaluation."""
        return self.every - update % self.every

    def due(self, update: int) -> bool:
        """Whether the policies are evaluated after this update, if it is not the last."""
        return update % self.every == 0

    def evaluate(self, policy: PyTree, update: int) -> dict[str, Any]:
        """Evaluate ``policy`` [S, ...] after ``update`` updates and keep it where it is a seed's best.

        Returns:
            The log's columns ``greedy/return``, ``greedy/METRIC`` (for each seed; None where unknown), the same with
            ``sampled/`` if both modes were played, with ``sampled/better`` (0 or 1, :func:`preferred`), and
            ``greedy/seconds``, the wall time of this evaluation, without compilation and the start of workers.
        """
        policy = jax.device_get(policy)
        self.evaluator.prepare(learner_of(policy))
        began = time.monotonic()
        found = self.evaluator(learner_of(policy), jax.random.fold_in(jax.random.key(self.settings.seed), update))
        self._select(policy, found.per_seed, update * self.settings.steps_per_update)
        self.score, columns = or_none(found.per_seed), {}
        for one in (found.in_mode(True), found.in_mode(False))[: 2 if found.other else 1]:
            columns[f"{one.mode}/return"] = or_none(one.per_seed)
            columns |= {f"{one.mode}/{name}": or_none(one.metric(name).per_seed) for name in one.metrics}
        spent = time.monotonic() - began
        self.seconds, self.prepared = self.seconds + spent * self.prepared, True
        better = {"sampled/better": int(not found.greedy)} if found.other else {}
        return columns | better | {"greedy/seconds": round(spent, 3)}

    def costs(self, training: Seconds) -> str:
        """One sentence if the evaluations so far took much of the time, once; otherwise empty.

        Args:
            training: seconds of training of all parts of the run.
        """
        share = self.seconds / max(training - self.begun + self.seconds, 1e-9)
        if self.told or self.seconds < UNNOTICED_SECONDS or share <= SHARE:
            return ""
        self.told = True
        return (
            f"Evaluations take {share:.0%} of the time of this run: {self.evaluator.episodes} episodes per seed "
            f"every {self.every * self.settings.steps_per_update:,} steps. To reduce this, raise eval_every or lower "
            f"curve_episodes."
        )

    def _select(self, policy: PyTree, score: np.ndarray, step: int) -> None:
        if self.best is None:
            self.best = Best(policy, score, np.full(len(score), step))
            return
        higher = score > self.best.score  # of equal scores, the earlier policy is kept

        def chosen(new: Any, old: Any) -> Any:
            where = jnp.where if jnp.issubdtype(new.dtype, jax.dtypes.prng_key) else np.where  # NumPy has no keys
            return where(higher.reshape(-1, *[1] * (np.ndim(new) - 1)), new, old)

        kept = jax.tree.map(chosen, policy, self.best.policy)
        self.best = Best(kept, chosen(score, self.best.score), np.where(higher, step, self.best.step))

    def save(self, update: int) -> None:
        """Save the best policies, in addition to the checkpoint of the same update."""
        if self.best is not None:
            meta = {"score": self.best.score.tolist(), "step": self.best.step.tolist()}
            self.store.save(update, self.best.policy, meta)

    def restore(self, at: Standing, policy: PyTree, warn: Warn = notices.warn) -> None:
        """Restore the best policies at a checkpoint; ``policy`` has the shapes.

        ``warn`` is called for damaged ones. If none is intact, they are chosen from the evaluations to come.

        Raises:
            CheckpointError: they cannot be read, or were saved under another configuration.
        """
        self.begun = at.seconds
        for step in reversed([step for step in self.store.steps() if step <= at.update]):
            try:
                self.best = restored_best(self.store, policy, step)
                return
            except DamagedError:
                warn(f"The best policies after {step} updates are damaged and are skipped.")


def selection_of(
    env: AnyEnvironment,
    algorithm: Algorithm,
    settings: Settings,
    folder: Path,
    run: Mapping[str, Any] | None,
    guard: Callable[[], None],
) -> Selection | None:
    """The evaluations during training by ``settings``, or None. Other arguments are those of :class:`Selection`."""
    if settings.eval_every is None:
        return None
    both = algorithm.stochastic and settings.eval_episodes != 0  # otherwise nothing decides how the policies act
    episodes = settings.episodes_between(env, 2 if both else 1)
    evaluator = Evaluator(env, algorithm, episodes, None if both else True, workers_of(env, settings))
    return Selection(evaluator, settings, folder, run, guard)


def restored_best(store: Checkpoints, policy: PyTree, step: int) -> Best:
    """The best policies after ``step`` updates; ``policy`` has the shapes.

    Raises:
        DamagedError: they are not intact.
        CheckpointError: they cannot be read, or were saved under another configuration.
    """
    found, meta, _ = store.restore(policy, step, lambda sentence: None)
    try:
        return Best(jax.device_get(found), np.array(meta["score"], np.float64), np.array(meta["step"]))
    except (KeyError, TypeError, ValueError):
        raise DamagedError(f"The index of the best policies after {step} updates is damaged.") from None


def learner_of(policy: PyTree) -> Learner:
    """A learner that can only act, from policies [S, ...]."""
    return Learner(policy, (), (), (), jnp.zeros(len(jax.tree.leaves(policy)[0]), jnp.int32))
