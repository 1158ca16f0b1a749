"""Checks of a run before it starts, and the notes and warnings that are printed then."""

from collections.abc import Sequence
from typing import Any

from shoal.bounds import bounds_text
from shoal.equations.reduce import DEVICES
from shoal.errors import InputError
from shoal.options.flags import flags_of
from shoal.sides.opponents import PAST
from shoal.system.shipped import page
from shoal.training import feed, memory
from shoal.training.crossplay import first_side, past_sides
from shoal.training.program import Program
from shoal.training.settings import WORKER_TIMEOUT, Settings
from shoal.training.sharding import Layout
from shoal.types import Algorithm, AnyEnvironment, Environment, EnvSpec, Replay

SHOWN = 10
"""Largest number of agents that are named in a line."""


def check_evaluations(env: Environment, settings: Settings, modes: int = 1) -> None:
    """Check that the evaluations of a run fit in memory.

    Args:
        env: the environment.
        settings: the run's.
        modes: of acting that evaluations play, each with all episodes.

    Raises:
        InputError: they do not.
    """
    played = {"eval_episodes": modes * settings.evaluation_episodes(env)}
    if settings.eval_every is not None:
        both = modes if settings.eval_episodes != 0 else 1  # as in shoal.training.evaluation.selection_of
        played["curve_episodes"] = both * settings.episodes_between(env, both)
    for name, episodes in played.items():
        memory.check_episode_memory(env.spec, settings.seeds, episodes, env.spec.horizon, name)


def check_rewards(settings: Settings, config: Any) -> None:
    """Check that rewards are not scaled twice, by a setting of the run and by an option of the algorithm.

    Raises:
        InputError: they are.
    """
    for flag, value in flags_of(config).items() if settings.normalise_rewards else ():
        if flag.endswith("reward_norm") and value != "none":
            raise InputError(
                f"normalise_rewards and {flag} {value} would both scale rewards; set {flag} to none, or remove "
                f"normalise_rewards."
            )


def notes_on_roles(spec: EnvSpec, settings: Settings, config: Any, num_envs: int) -> list[str]:
    """Lines to print when the run starts: which agents are trained, who controls the others, and frozen parts.

    Args:
        spec: the wrapped environment's.
        settings: the run's.
        config: the algorithm's.
        num_envs: environments of a device.
    """
    lines, opponent_options = [], settings.opponent_options
    if (name := opponent_options.opponents) is not None:
        own = (
            past_sides(spec, opponent_options.side, config)[0]
            if name == PAST
            else first_side(spec, opponent_options.side)
        )
        others = [i for i in range(spec.num_agents) if i not in own]
        if name == PAST:
            held = round(opponent_options.past_share * num_envs)
            who = f"All agents are trained. In {held} of {num_envs} environments, past selves control"
            who += f" {names_of_agents(spec, own)} or {names_of_agents(spec, others)}."
        else:
            trained, fixed = names_of_agents(spec, own), names_of_agents(spec, others)
            who = f"Trained: {trained}. Controlled by {name}, not trained: {fixed}."
        lines.append(who)
        if spec.shared_reward:
            armies = " With --env.both, skirmish/ maps have two sides." if spec.name.startswith("skirmish/") else ""
            kind = "past selves" if name == PAST else f"policies of {name}"
            lines.append(f"All agents of {spec.name} share one reward, so {kind} are partners, not opponents.{armies}")
    frozen = {flag: parts for flag, parts in flags_of(config).items() if flag.endswith("freeze") and parts}
    return lines + [f"Not trained ({flag}): {', '.join(parts)}." for flag, parts in frozen.items()]


def notes_on_workers(env: AnyEnvironment, settings: Settings) -> list[str]:
    """A line to print when the run starts, if options of worker processes have no effect in its environment."""
    given = {
        "num_workers": settings.num_workers is not None,
        "worker_timeout": settings.worker_timeout != WORKER_TIMEOUT,
    }
    unused = [name for name, set_here in given.items() if set_here and isinstance(env, Environment)]
    verb = "has" if len(unused) == 1 else "have"
    what = f"{' and '.join(unused)} {verb} no effect: {env.spec.name} is compiled with the update."
    return [what] if unused else []


def note_on_schedules(before: Settings, after: Settings, config: Any) -> str:
    """A sentence if a resumed run's new settings stretch a schedule of its algorithm's ``config``; otherwise empty."""
    flags = flags_of(config)
    ends = {name: value for name, value in flags.items() if name.endswith("_final") and value is not None}
    starts = {name: 1.0 if name.endswith("lr_final") else flags.get(name.removesuffix("_final")) for name in ends}
    if after.num_updates <= before.num_updates or after.schedule_steps is not None or ends == starts:
        return ""
    return (
        f"Schedules stretch to {bounds_text(int(after.steps))} steps, so that rates and exploration jump back; "
        f"--schedule-steps {bounds_text(int(before.steps))} keeps their last values."
    )


def names_of_agents(spec: EnvSpec, who: Sequence[int]) -> str:
    """The names of some agents, of which the first few are named if there are many."""
    names = [spec.agents[i] for i in who]
    return ", ".join(names) if len(names) <= SHOWN else f"{', '.join(names[:SHOWN])} … ({len(names)} agents)"


def before(
    spec: EnvSpec, algorithm: Algorithm, program: Program, settings: Settings, layout: Layout
) -> tuple[list[str], list[str]]:
    """(notes, warnings) to print when the run starts.

    Raises:
        InputError: the run does not fit in memory.
    """
    notes, warnings = [], []
    if what := algorithm.unequal_rewards:
        remedy = f" If some of them are rivals, train them as sides ({page('docs/crossplay.md')}), or use --opponents."
        remedy = "" if "(side " in what else remedy
        warnings.append(f"Agents of {spec.name} may receive different rewards; the team learns from {what}.{remedy}")
    size = settings.seeds, settings.num_envs, settings.rollout_length, program.feed.sample_bytes * layout.seeds
    memory.check_run(spec, program.template().learner, *size, layout.mesh.devices)
    if replays := feed.wanted(algorithm.replay):
        notes.append(check_buffers(program.feed, layout, settings.seeds))
        warnings += _of_replay(spec, replays, settings)
    return notes, warnings


def check_buffers(one: feed.Feed, layout: Layout, seeds: int) -> str:
    """Check that all replay buffers fit in memory; returns one sentence on their size.

    Args:
        one: of one seed on one device.
        layout: over devices.
        seeds: number of buffers.

    Raises:
        InputError: they do not.
    """
    timesteps = one.timesteps * layout.mesh.shape[DEVICES]
    return memory.check_memory(one.num_bytes * layout.seeds, layout.mesh.devices, timesteps, seeds)


def _of_replay(spec: EnvSpec, replays: Sequence[Replay], settings: Settings) -> list[str]:
    """Warnings of what a run never learns from, and of schedules that are over when it begins to learn."""
    found, per_update = [], settings.steps_per_update
    reason = reason_of_filling(replays, settings.num_envs)
    waiting = feed.updates_before_learning(replays, settings.num_envs, settings.rollout_length)
    if settings.num_updates <= waiting:
        found.append(
            f"A run of {settings.last_step:,} steps has no update, the first of which takes "
            f"{(waiting + 1) * per_update:,}: the replay buffer is filled first ({reason})."
        )
    elif settings.schedule_updates <= waiting:
        found.append(
            f"Schedules of schedule_steps {settings.schedule_updates * per_update:,} are over when learning begins, "
            f"after {waiting * per_update:,} steps ({reason}): rates and exploration have their "
            "final values from the second update on."
        )
    shortest = min((one.length for one in replays if one.starts is not None), default=spec.horizon)
    if shortest < spec.horizon:
        found.append(
            f"sequence_start 'episode' with a sequence_length of {shortest} learns from the first {shortest} steps of "
            f"each episode only, and episodes of {spec.name} have up to {spec.horizon}."
        )
    return found


def reason_of_filling(replays: Sequence[Replay], num_envs: int) -> str:
    """What the replay buffers wait for longest, for messages."""
    one = max(replays, key=lambda one: feed.least_held(one, num_envs))
    if one.warm_up >= one.length * num_envs:
        return f"learning_starts {one.warm_up:,}"
    return f"sequences of {one.length} steps in each of {num_envs} environments"
