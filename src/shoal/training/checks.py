"""What is checked and said of a run before it starts."""

from typing import Any

from shoal.configs import flags_of
from shoal.errors import InputError
from shoal.training import feed, memory
from shoal.training.program import Program
from shoal.training.settings import Settings
from shoal.training.sharding import Layout
from shoal.types import Algorithm, Environment, EnvSpec


def evaluations(env: Environment, settings: Settings) -> None:
    """Check that the evaluations of a run fit in memory.

    Raises:
        InputError: the episodes of one do not.
    """
    played = {"eval_episodes": settings.evaluation_episodes(env)}
    if settings.eval_every is not None:
        played["curve_episodes"] = settings.episodes_between(env)
    for name, episodes in played.items():
        memory.check_episodes(env.spec, settings.seeds, episodes, env.spec.horizon, name)


def rewards(settings: Settings, config: Any) -> None:
    """Check that rewards are not scaled twice, by a setting of the run and by an option of the algorithm.

    Raises:
        InputError: they would be.
    """
    for flag, value in flags_of(config).items() if settings.normalise_rewards else ():
        if flag.endswith("reward_norm") and value != "none":
            raise InputError(
                f"normalise_rewards and {flag} {value} would both scale rewards; set {flag} to none, or leave out "
                f"normalise_rewards."
            )


def before(
    spec: EnvSpec, algorithm: Algorithm, program: Program, settings: Settings, layout: Layout
) -> tuple[list[str], list[str]]:
    """(notes, warnings) to print when the run starts.

    Raises:
        InputError: the run does not fit in memory.
    """
    notes, warnings = [], []
    if what := algorithm.unequal_rewards:
        warnings.append(f"Agents of {spec.name} may earn different rewards; the team learns from {what}.")
    buffers = feed.wanted(algorithm.replay)
    drawn = sum(one.draws * one.batch * one.length for one in buffers)
    size = settings.seeds, settings.num_envs, settings.rollout_length, drawn
    memory.check_run(spec, program.template().learner, *size, layout.mesh.devices)
    if buffers:
        timesteps = sum(one.capacity for one in buffers)
        notes.append(memory.check(program.replay_bytes, layout.mesh.devices, timesteps, settings.seeds))
        steps, waiting = settings.last_step, max(one.warm_up for one in buffers)
        if steps < waiting:
            warnings.append(f"Nothing is learned in {steps:,} steps, since learning_starts is {waiting:,}.")
    return notes, warnings
