"""The settings of a run that do not belong to an algorithm."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from shoal.bounds import LARGEST_INT, Bounds, Count, Positive, bounds_text, check_bounds
from shoal.environments.wrappers import Wrapping
from shoal.errors import InputError
from shoal.game import HostEnvironment
from shoal.presets import STEPS
from shoal.sides.opponents import OpponentOptions
from shoal.types import AnyEnvironment

CHANGEABLE = frozenset(
    {"steps", "schedule_steps", "stop_at", "time_budget", "devices", "checkpoint_seconds", "keep", "tensorboard"}
    | {"eval_every", "eval_episodes", "curve_episodes"}
    | {"workers", "num_workers", "worker_timeout", "address"}
)
"""Settings that may change when a run is resumed."""

SHARE = 0.05
"""Evaluations during training should take at most this share of the time."""
STEPS_SHARE, HOST_STEPS_SHARE = 0.05, 0.02
"""By default their steps are at most these shares of the steps of training, on the device and on the host, where fewer
parallel environments make a step slower (docs/evaluation.md)."""

WORKER_TIMEOUT = 60.0
"""Default of ``worker_timeout`` in seconds."""


@dataclass(frozen=True)
class Settings:
    """Settings of a run; each field is a flag of ``shoal train``."""

    steps: Annotated[float, Bounds(least=1, most=1e15)] = STEPS
    """Environment steps per seed, rounded up to whole updates."""
    stop_at: Annotated[float, Bounds(least=-1e15, most=1e15)] | None = None
    """Training ends after the evaluation (--eval-every) by which the return of every seed, in the better of both modes
    of a stochastic policy, has reached this value at least once. Schedules span all steps, so they have not finished by
    then."""
    time_budget: Annotated[float, Bounds(above=0, most=1e9)] | None = None
    """Training ends after this many seconds, at the end of an update. Counted are the log's seconds, over all parts of
    the run, without compilation, evaluations and checkpoints. Schedules span all steps."""
    seeds: Annotated[int, Bounds(least=1, most=65_536)] = 1
    """Independent runs trained in parallel in one program."""
    seed: Annotated[int, Bounds(least=0, most=LARGEST_INT)] = 0
    """The first seed; the others are seed + 1, seed + 2, …."""
    num_envs: Annotated[int, Bounds(least=1, most=10_000_000)] = 16
    """Parallel environments per seed (E)."""
    rollout_length: Count = 128
    """Steps of each environment between two updates (T)."""
    num_starts: Annotated[int, Bounds(least=1, most=LARGEST_INT)] | None = None
    """Training episodes begin in one of this many initial states, those of the environment's seeds 0, 1, …; None for
    any. Evaluations begin in any, so that they show what training on a few initial states is worth elsewhere."""
    devices: Annotated[int, Bounds(least=1, most=65_536)] | None = None
    """Number of local devices to use; None for as many as give equal parts of environments and minibatches. Seeds are
    distributed over them first, then environments."""
    workers: Literal["processes", "ray"] = "processes"
    """Where host environments are stepped: in processes of this machine, or by actors of a Ray cluster."""
    num_workers: Annotated[int, Bounds(least=0, most=1024)] | None = None
    """Number of workers; None for one per core. 0 steps in the training process: slower, but easier to debug."""
    worker_timeout: Positive = WORKER_TIMEOUT
    """Seconds without an answer after which a worker is restarted."""
    address: str | None = None
    """Address of the Ray cluster; None starts a local one."""
    normalise_rewards: bool = False
    """Learn from rewards divided by the running standard deviation of the discounted return (Engstrom et al. 2020);
    reported returns do not change."""
    reward_clip: Positive = 10.0
    """Normalised rewards are clipped to ± this value. Engstrom et al. 2020: 10."""
    init_from: str | None = None
    """Start a new run with the networks and normalisers of the earlier run in this folder, where names and shapes
    match. The optimiser, exploration and schedules are reset. Seed i starts from the earlier run's seed i modulo its
    number of seeds."""
    schedule_steps: Annotated[float, Bounds(least=1, most=1e15)] | None = None
    """Environment steps per seed over which learning rates, coefficients and exploration change; after them they keep
    their last values. None for --steps."""
    wrapping: Wrapping = field(default_factory=Wrapping)
    """Wrappers of the environment."""
    opponent_options: OpponentOptions = field(default_factory=OpponentOptions)
    """Frozen opponents and partners."""
    separate_sides: bool = True
    """Algorithms that learn from a whole team, such as QMIX, COMA and MAT, train sides that compete as a team each: the
    sides that the environment declares, and the two sides of --opponents past. False: all agents are one team, which
    learns from the mean over rivals too."""
    rows: Count = 500
    """Rows of metrics in the log of a run: about so many, and up to nearly twice as many; each is a mean over the
    updates since the previous row."""
    checkpoint_seconds: Annotated[float, Bounds(least=0, most=1e9)] = 30.0
    """Seconds between checkpoints; the first and the last state are always saved."""
    keep: Count = 3
    """Number of newest checkpoints to keep."""
    eval_episodes: Annotated[int, Bounds(least=0, most=1_000_000)] | None = None
    """Episodes per seed of the final evaluation, in each mode of a stochastic policy; 0 for none, None for 256 on the
    device and 32 on the host. With 0 evaluations during training are greedy only."""
    eval_every: Annotated[float, Bounds(least=1, most=1e15)] | None = None
    """Environment steps per seed between evaluations during training, rounded up to whole updates; the best policy of
    each seed is kept in addition to the last. None: only the last is evaluated."""
    curve_episodes: Annotated[int, Bounds(least=1, most=1_000_000)] | None = None
    """Episodes per seed of an evaluation during training (--eval-every), in each mode of a stochastic policy; None for
    as many as take at most 5 % (host: 2 %) of the steps between two evaluations, at least 4 and at most 32."""
    tensorboard: bool = True
    """Also write TensorBoard events."""

    def check(self) -> None:
        """Check the bounds of all fields.

        Raises:
            InputError: a field is out of range.
        """
        check_bounds(self)
        self.opponent_options.check()
        if self.init_from is not None and not (self.init_from and self.init_from.isprintable()):
            raise InputError("init_from must be the name of a folder, in printable characters.")
        if self.stop_at is not None and self.eval_every is None:
            raise InputError("stop_at is compared with evaluations during training, so it requires eval_every.")
        if self.seed + self.seeds - 1 > LARGEST_INT:
            raise InputError(f"{self.seeds} seeds from {self.seed} on exceed the largest seed, {LARGEST_INT}.")
        if self.num_updates > LARGEST_INT:
            raise InputError(
                f"{bounds_text(self.steps)} steps are {self.num_updates} updates, and the limit is {LARGEST_INT}; "
                f"lower steps, or raise num_envs or rollout_length."
            )

    def evaluation_episodes(self, env: AnyEnvironment) -> int:
        """Episodes per seed of the final evaluation in ``env``."""
        if self.eval_episodes is not None:
            return self.eval_episodes
        return 32 if isinstance(env, HostEnvironment) else 256

    def episodes_between(self, env: AnyEnvironment, modes: int = 1) -> int:
        """Episodes per seed of an evaluation during training in ``env``, in each of ``modes`` modes; ``eval_every`` is
        not None."""
        if self.curve_episodes is not None:
            return self.curve_episodes
        share = HOST_STEPS_SHARE if isinstance(env, HostEnvironment) else STEPS_SHARE
        return min(32, max(4, int(share * self.updates_between * self.steps_per_update / (modes * env.spec.horizon))))

    @property
    def updates_between(self) -> int:
        """Updates between two evaluations during training; ``eval_every`` is not None."""
        assert self.eval_every is not None
        return max(1, -(-int(self.eval_every) // self.steps_per_update))

    @property
    def num_updates(self) -> int:
        """Updates of the whole run."""
        return -(-int(self.steps) // self.steps_per_update)

    @property
    def schedule_updates(self) -> int:
        """Updates that schedules span."""
        return -(-int(self.schedule_steps or self.steps) // self.steps_per_update)

    @property
    def last_step(self) -> int:
        """Environment steps per seed after the last update."""
        return self.num_updates * self.steps_per_update

    @property
    def steps_per_update(self) -> int:
        """Environment steps per seed and update: E · T."""
        return self.num_envs * self.rollout_length
