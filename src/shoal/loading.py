"""The trained policies of a run folder. Its environment is neither built nor imported."""

from pathlib import Path
from typing import Any

import jax

from shoal import algorithms
from shoal.algorithms.normalisation import normalise_rewards
from shoal.configs import flags_of, override, spec_from_json
from shoal.deploy import Policies
from shoal.errors import CheckpointError, InputError
from shoal.records.checkpoint import Checkpoints
from shoal.run_file import read_configuration
from shoal.training.settings import Settings
from shoal.types import Algorithm, EnvSpec, PyTree, Scale


def load(folder: str | Path, *, seed: int | None = None, greedy: bool = True) -> Policies:
    """The trained policies of a run, to act with; the environment itself is not needed.

    Args:
        folder: a run folder.
        seed: which of the run's seeds; None for the first.
        greedy: act by the mode rather than by sampling.

    Raises:
        InputError: the folder holds no run or the run has no such seed.
        CheckpointError: no saved policy is sound.
    """
    said, settings, config = read_configuration(Path(folder))
    spec = spec_from_json(said["spec"])
    algorithm = acting(said["algorithm"], spec, config, settings)
    policy = saved_policy(Path(folder), algorithm, settings.seeds)
    one = jax.tree.map(lambda x: x[seed_index(settings, seed)], policy)
    return Policies(spec, algorithm, one, greedy=greedy, wrapping=settings.wrapping)


def made(name: str, spec: EnvSpec, config: Any, settings: Settings, scale: Scale) -> Algorithm:
    """The algorithm as it trains, also in another process."""
    algorithm = algorithms.get(name).make(spec, config, scale)
    if not settings.normalise_rewards:
        return algorithm
    gamma = max(value for flag, value in flags_of(config).items() if flag.endswith("gamma"))  # of several sides
    return normalise_rewards(algorithm, spec, gamma, settings.reward_clip)


def acting(name: str, spec: EnvSpec, config: Any, settings: Settings) -> Algorithm:
    """The algorithm for acting alone: no batch will be cut, so none needs to divide."""
    return made(name, spec, override(config, {"minibatches": 1}), settings, Scale(1, settings.rollout_length, 1))


def saved_policy(folder: Path, algorithm: Any, seeds: int) -> PyTree:
    """The newest sound ``Learner.policy`` of a run folder, with a leading axis of seeds.

    Raises:
        CheckpointError: there is none, or it is not of this algorithm and environment.
    """
    keys = jax.random.split(jax.random.key(0), seeds)
    template = jax.eval_shape(jax.vmap(algorithm.init), keys).policy
    if not (folder / "policy").exists():
        raise CheckpointError(f"{folder} holds no trained policy yet.")
    return Checkpoints(folder / "policy").restore(template)[0]


def seed_index(settings: Settings, seed: int | None) -> int:
    """Where ``seed`` (None: the first) stands on the axis of seeds.

    Raises:
        InputError: the run has no such seed.
    """
    index = 0 if seed is None else seed - settings.seed
    if not 0 <= index < settings.seeds:
        last = settings.seed + settings.seeds - 1
        raise InputError(f"The run has no seed {seed}; its seeds are {settings.seed} to {last}.")
    return index
