"""Loading of trained policies from a run folder, without building or importing its environment."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shoal.deploy import Policies
from shoal.errors import CheckpointError, InputError, shortened
from shoal.runs.build import acting_algorithm, opponents_of, saved_policy
from shoal.sides.opponents import PAST
from shoal.storage.checkpoint import Checkpoints, restore_part
from shoal.storage.folders import acts_greedily
from shoal.storage.manifest import identity
from shoal.storage.zoo import located, shown
from shoal.system.forks import check_not_forked
from shoal.training import hosts
from shoal.training.evaluation import check_mode, learner_of
from shoal.training.settings import CHANGEABLE, Settings
from shoal.trust.run_file import described_run
from shoal.types import Algorithm, Learner


def load(
    folder: str | Path,
    *,
    seed: int | None = None,
    greedy: bool | None = None,
    trust: bool = False,
    best: bool = False,
    sample_seed: int = 0,
) -> Policies:
    """Load the trained policies of a run; the environment itself is not needed.

    Args:
        folder: a run folder, or ``zoo/NAME`` (docs/zoo.md).
        seed: one of the run's seeds; None for the first.
        greedy: act by the mode of the policy rather than by sampling; None for what the run's final evaluation found
            better (docs/evaluation.md), and greedily without one.
        trust: import an algorithm ``module:make`` even if the folder is not of your own training (docs/security.md).
        best: the policy with the best evaluation during training (``eval_every``) instead of the last one.
        sample_seed: seed of the samples. Policies that are loaded twice with the same one draw the same actions.

    Raises:
        InputError: the folder holds no run, the run does not have the seed, ``greedy`` is no boolean, or its algorithm
            is not imported for an untrusted folder.
        CheckpointError: no saved policy is intact.
    """
    check_not_forked()
    greedy, folder = check_mode(greedy), located(folder)
    run = described_run(folder, trust)
    opponents = opponents_of(folder, run.settings, run.spec, trust)
    opponents = None if opponents is None else opponents.first()  # a team plays in one environment
    algorithm = acting_algorithm(run.algorithm, run.spec, run.config, run.settings, opponents)
    policy = saved_policy(folder, algorithm, run.settings.seeds, identity(run.as_json(), CHANGEABLE), best)
    one = jax.tree.map(lambda x: x[seed_index(run.settings, seed)], policy)
    if greedy is None:
        greedy = acts_greedily(Path(folder), run.settings.steps_per_update, best) is not False
    title = f"{run.algorithm} in {run.environment}, seed {run.settings.seed if seed is None else seed}"
    wrapping = run.settings.wrapping
    return Policies(run.spec, algorithm, one, greedy=greedy, seed=sample_seed, wrapping=wrapping, title=title)


def learner_with_critic(folder: Path, algorithm: Algorithm, seeds: int, run: Mapping[str, Any]) -> Learner:
    """A run's newest policies with their critics, leaves [S, ...].

    Without an intact checkpoint of the policies' update, ``critic`` and ``statistics`` are empty tuples: the learner
    can act, and ``Algorithm.inspect`` leaves out values. ``optimiser`` is empty. Arguments are those of
    :func:`saved_policy`.

    Raises:
        CheckpointError: there is no policy, or it was trained under another configuration.
    """
    learner = learner_of(saved_policy(folder, algorithm, seeds, run))
    template = jax.eval_shape(jax.vmap(algorithm.init), jax.random.split(jax.random.key(0), seeds))
    checkpoints, step = Checkpoints(folder / "checkpoints", run=run), Checkpoints(folder / "policy").latest()
    if step is None or step not in checkpoints.steps():
        return learner
    wanted = template._replace(policy=(), optimiser=(), updates=())  # pyright: ignore[reportArgumentType]
    try:
        found = restore_part(checkpoints, "learner", wanted, step)
    except CheckpointError:
        return learner
    return learner._replace(critic=found.critic, statistics=found.statistics)


def seed_index(settings: Settings, seed: int | None) -> int:
    """Index of ``seed`` (None: the first) on the seed axis.

    Raises:
        InputError: the run does not have the seed.
    """
    if not isinstance(seed, int | np.integer | None):
        raise InputError(f"seed must be a whole number, not {shortened(seed)}.")
    index = 0 if seed is None else seed - settings.seed
    if not 0 <= index < settings.seeds:
        last = settings.seed + settings.seeds - 1
        raise InputError(f"The run has no seed {seed}; its seeds are {settings.seed} to {last}.")
    return index


def trained_on(folder: Path) -> int | None:
    """Number of devices that a run was trained on; None for a new run."""
    checkpoints = Checkpoints(folder / "checkpoints")
    return None if checkpoints.latest() is None else math.prod(checkpoints.load_meta()["shards"].values())


def devices_before(folder: Path) -> int | None:
    """Number of devices that a run was trained on, at most those that there are; None for a new run."""
    before = trained_on(folder)
    return None if before is None else min(before, len(hosts.devices()))


def past_selves(folder: Path, algorithm: Algorithm, settings: Settings, run: Mapping[str, Any]) -> dict[int, Learner]:
    """The pool of a run against past selves: learners that can act, leaves [S, ...], by their number of updates.

    Args:
        folder: the run's.
        algorithm: the run's.
        settings: the run's.
        run: the run's configuration.

    Raises:
        InputError: the run has no such pool.
        CheckpointError: no checkpoint of its newest policy is intact.
    """
    if settings.opponent_options.opponents != PAST:
        raise InputError(f"{shown(folder)} was not trained against past selves (--opponents past).")
    pool = learner_with_critic(folder, algorithm, settings.seeds, run).statistics
    if not pool:
        raise CheckpointError(
            f"{folder} has no intact checkpoint of its newest policy, so its past policies cannot be read."
        )
    updates = np.asarray(pool.updates)[0]  # those of all seeds are equal
    return {
        int(made): learner_of(jax.tree.map(lambda x, slot=slot: x[:, slot], pool.pool))
        for made, slot in sorted(zip(updates.tolist(), range(len(updates)), strict=True))
    }
