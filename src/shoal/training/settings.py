"""The size of a run: everything the user chooses that no algorithm may know."""

import math
from dataclasses import dataclass, field
from typing import Literal

from shoal.environments.wrappers import Wrapping
from shoal.errors import InputError
from shoal.game import HostEnvironment
from shoal.types import AnyEnvironment


@dataclass(frozen=True)
class Settings:
    """How long, how wide and how often; each field is a flag of ``shoal train``."""

    steps: float = 5e6
    """Environment steps per seed; rounded up to whole updates."""
    seeds: int = 1
    """Independent runs trained at once in one program."""
    seed: int = 0
    """The first seed; the others follow."""
    num_envs: int = 16
    """Environments per seed that are stepped side by side (E)."""
    rollout_length: int = 128
    """Steps of each environment between two updates (T)."""
    devices: int | None = None
    """Local devices to use; None for all. Seeds are spread over them first, then environments."""
    workers: Literal["processes", "ray"] = "processes"
    """What steps environments that are Python objects: processes of this machine, or actors of a Ray cluster."""
    num_workers: int | None = None
    """How many of them; None for one per core. 0 steps in the training process, which is slower and easier to debug."""
    worker_timeout: float = 60.0
    """Seconds of silence after which a worker is taken to hang, and is started again."""
    address: str | None = None
    """The Ray cluster's address; None for a local one, which starts by itself."""
    normalise_rewards: bool = False
    """Learn from rewards divided by the running standard deviation of the discounted return (Engstrom et al. 2020);
    reported returns stay as they are."""
    reward_clip: float = 10.0
    """Largest size of a normalised reward. Engstrom et al. 2020: 10."""
    wrapping: Wrapping = field(default_factory=Wrapping)
    """What is changed of the environment."""
    rows: int = 500
    """Rows of metrics that a whole run writes; each is a mean over the updates since the last."""
    checkpoint_seconds: float = 30.0
    """Wall time between checkpoints; the first and the last moment are always kept."""
    keep: int = 3
    """Newest checkpoints that stay on the disk."""
    eval_episodes: int | None = None
    """Greedy episodes per seed that judge the finished run; 0 for none, None for 256 on the device and 32 elsewhere."""
    tensorboard: bool = True
    """Write TensorBoard events beside metrics.jsonl."""

    def check(self) -> None:
        """Refuse sizes that mean nothing.

        Raises:
            InputError: a field is out of range.
        """
        self.wrapping.check()
        for name in ("steps", "seeds", "num_envs", "rollout_length", "rows", "keep"):
            if not getattr(self, name) >= 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name):g}.")
        if not math.isfinite(self.steps):
            raise InputError("steps must be finite; Ctrl-C ends a long run, saved.")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"seed must be between 0 and 2³¹ − 1, not {self.seed}.")
        if self.devices is not None and self.devices < 1:
            raise InputError(f"devices must be at least 1, not {self.devices}.")
        if self.num_workers is not None and self.num_workers < 0:
            raise InputError(f"num_workers cannot be negative, and is {self.num_workers}.")
        if not self.worker_timeout > 0:
            raise InputError(f"worker_timeout must be positive, not {self.worker_timeout:g}.")
        if (self.eval_episodes or 0) < 0 or self.checkpoint_seconds < 0:
            raise InputError("eval_episodes and checkpoint_seconds cannot be negative.")

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
    def steps_per_update(self) -> int:
        """Environment steps per seed and update: E · T."""
        return self.num_envs * self.rollout_length
