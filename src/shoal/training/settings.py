"""The size of a run: everything the user chooses that no algorithm may know."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from shoal.bounds import LARGEST_INT, Bounds, Count, Positive, check, text
from shoal.environments.wrappers import Wrapping
from shoal.errors import InputError
from shoal.game import HostEnvironment
from shoal.presets.sizes import STEPS
from shoal.types import AnyEnvironment

CHANGEABLE = frozenset(
    {"steps", "devices", "checkpoint_seconds", "keep", "eval_episodes", "tensorboard"}
    | {"workers", "num_workers", "worker_timeout", "address"}
)
"""Settings that may change when a run is resumed; anything else would make it another run."""


@dataclass(frozen=True)
class Settings:
    """How long, how wide and how often; each field is a flag of ``shoal train``."""

    steps: Annotated[float, Bounds(least=1, most=1e15)] = STEPS
    """Environment steps per seed; rounded up to whole updates."""
    seeds: Annotated[int, Bounds(least=1, most=65_536)] = 1
    """Independent runs trained at once in one program."""
    seed: Annotated[int, Bounds(least=0, most=LARGEST_INT)] = 0
    """The first seed; the others follow."""
    num_envs: Annotated[int, Bounds(least=1, most=10_000_000)] = 16
    """Environments per seed that are stepped side by side (E)."""
    rollout_length: Count = 128
    """Steps of each environment between two updates (T)."""
    devices: Annotated[int, Bounds(least=1, most=65_536)] | None = None
    """Local devices to use; None for all. Seeds are spread over them first, then environments."""
    workers: Literal["processes", "ray"] = "processes"
    """What steps environments that are Python objects: processes of this machine, or actors of a Ray cluster."""
    num_workers: Annotated[int, Bounds(least=0, most=1024)] | None = None
    """How many of them; None for one per core. 0 steps in the training process, which is slower and easier to debug."""
    worker_timeout: Positive = 60.0
    """Seconds of silence after which a worker is taken to hang, and is started again."""
    address: str | None = None
    """The Ray cluster's address; None for a local one, which starts by itself."""
    normalise_rewards: bool = False
    """Learn from rewards divided by the running standard deviation of the discounted return (Engstrom et al. 2020);
    reported returns stay as they are."""
    reward_clip: Positive = 10.0
    """Largest size of a normalised reward. Engstrom et al. 2020: 10."""
    wrapping: Wrapping = field(default_factory=Wrapping)
    """What is changed of the environment."""
    rows: Count = 500
    """Rows of metrics that a whole run writes; each is a mean over the updates since the last."""
    checkpoint_seconds: Annotated[float, Bounds(least=0, most=1e9)] = 30.0
    """Wall time between checkpoints; the first and the last state are always saved."""
    keep: Count = 3
    """Newest checkpoints that stay on the disk."""
    eval_episodes: Annotated[int, Bounds(least=0, most=1_000_000)] | None = None
    """Greedy episodes per seed that judge the finished run; 0 for none, None for 256 on the device and 32 elsewhere."""
    tensorboard: bool = True
    """Write TensorBoard events beside metrics.jsonl."""

    def check(self) -> None:
        """Refuse sizes out of their bounds.

        Raises:
            InputError: a field is out of range.
        """
        check(self)
        if self.seed + self.seeds - 1 > LARGEST_INT:
            raise InputError(f"{self.seeds} seeds from {self.seed} on pass the largest seed, {LARGEST_INT}.")
        if self.num_updates > LARGEST_INT:
            raise InputError(
                f"{text(self.steps)} steps would be {self.num_updates} updates, and there can be {LARGEST_INT}; lower "
                f"steps, or raise num_envs or rollout_length."
            )

    def judged_by(self, env: AnyEnvironment) -> int:
        """Episodes per seed that judge a run in ``env``."""
        if self.eval_episodes is not None:
            return self.eval_episodes
        return 32 if isinstance(env, HostEnvironment) else 256

    @property
    def num_updates(self) -> int:
        """Updates of the whole run."""
        return -(-int(self.steps) // self.steps_per_update)

    @property
    def last_step(self) -> int:
        """Environment steps per seed after the last update."""
        return self.num_updates * self.steps_per_update

    @property
    def steps_per_update(self) -> int:
        """Environment steps per seed and update: E · T."""
        return self.num_envs * self.rollout_length
