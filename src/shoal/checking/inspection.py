"""``check``: build an environment, play it, repeat an episode, time it, and collect the findings of all rules."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from shoal import algorithms
from shoal.bounds import bounds_text
from shoal.checking import process, rules
from shoal.checking.device import ENVS
from shoal.checking.findings import Finding, Report, ordered, spec_rows
from shoal.checking.play import COMPARED, Copy, Episode, PlayError, play_episode, repeat, repeat_beside, unlike
from shoal.checking.process import Built, Here
from shoal.environments import registry
from shoal.environments.names import commands_with
from shoal.errors import InputError, with_full_stop
from shoal.game import HostTimestep
from shoal.options.convert import mapping
from shoal.presets import STEPS, preset, sizes_for
from shoal.rollouts.pool import workers_for
from shoal.spec import EnvSpec

REPEATED = 1000
"""Number of steps of the first episode that are repeated, to test determinism."""
BESIDE = 100
"""Number of its steps that are repeated while another copy plays between them."""
BUILDING = 300.0
"""Time-out in seconds for building or compiling an environment."""
MAX_TIMEOUT = 1e6
"""Largest ``timeout`` in seconds."""
MAX_PLAYED_BYTES = 2**29
"""Largest size in bytes of the recorded observations and states; play stops when it is reached."""
SLOW = 2.0
"""Closing for longer than this many seconds gives a warning."""


def check(
    environment: Any,
    *,
    env: Mapping[str, Any] | None = None,
    episodes: int = 5,
    steps: int = 5000,
    seed: int = 0,
    timeout: float = 60.0,
    isolate: bool = True,
    **flags: Any,
) -> Report:
    """Play random legal actions in an environment and report what is wrong with it, and its speed.

    With the name of an algorithm, of Shoal or of your own module, test the requirements of every algorithm instead
    (:func:`shoal.checking.contract.check_algorithm`); the other arguments but ``flags`` are then ignored.

    Args:
        environment: a name, ``package.module:factory``, a factory, or an environment, as for :func:`shoal.train`.
        env: options of the environment's factory.
        episodes: number of episodes, each with its own seed.
        steps: largest total number of steps; fewer if their observations take more than :data:`MAX_PLAYED_BYTES` bytes.
        seed: seed of the first episode and of the actions.
        timeout: seconds after which a reset or a step counts as a hang; building and compiling may take
            :data:`BUILDING` seconds.
        isolate: play in a separate process, so that a crash, an exit or a hang is reported with the action that caused
            it. An environment that another process cannot import, for example a device environment given as an object,
            is played in this process.
        flags: options of the algorithm; none for an environment.

    Raises:
        InputError: the environment is unknown, its library is missing, or an argument is unknown or out of range.
    """
    if isinstance(environment, str) and algorithms.alone(environment):
        from shoal.checking.contract import check_algorithm  # imports the packages of training

        return check_algorithm(environment, flags)
    if flags:
        raise InputError(f"The check of an environment takes no {next(iter(flags))!r}; its options go in env.")
    for name, value in (("episodes", episodes), ("steps", steps)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, not {bounds_text(value)}.")
    if not 0 <= seed < 2**31:
        raise InputError(f"seed must be between 0 and 2147483647, not {bounds_text(seed)}.")
    if not 0 < timeout <= MAX_TIMEOUT:
        raise InputError(f"timeout must be between 0 and {MAX_TIMEOUT:g} seconds, not {timeout:g}.")
    options = mapping("env", env)
    findings: list[Finding] = []
    facts: list[tuple[str, str]] = []
    subject = process.start(environment, options, isolate)
    try:
        _inspect(Checked(subject, timeout), environment, options, findings, facts, episodes, steps, seed)
    finally:
        subject.end()
    train, again = commands_with(environment, options)
    return Report(registry.called(environment), ordered(findings), tuple(facts), train, again)


class Checked(NamedTuple):
    """The environment under check, with the time-out of its calls."""

    subject: process.Process | Here
    timeout: float

    def copy(self, number: int) -> Copy:
        """Copy ``number`` of the environment."""
        return Copy(self.subject.call, number, self.timeout)

    def slowly(self, method: str, *arguments: Any) -> Any:
        """Call a method that builds or compiles, with a time-out of at least :data:`BUILDING` seconds."""
        return self.subject.call(method, *arguments, limit=max(self.timeout, BUILDING))


def _inspect(
    checked: Checked,
    environment: Any,
    options: dict[str, Any],
    findings: list[Finding],
    facts: list[tuple[str, str]],
    episodes: int,
    steps: int,
    seed: int,
) -> None:
    """Run all checks; adds to ``findings`` and ``facts``."""
    try:
        built: Built = checked.slowly("build", environment, options)
    except PlayError as fault:
        findings.append(_raised("making the environment", fault))
        return
    findings += built.findings
    if built.described:
        facts += spec_rows(built.spec)
    if not built.playable:
        return
    player = checked.copy(0)
    played = _played(player, built, episodes, steps, seed)
    every = (*rules.ARRAY_RULES, *rules.IMAGE_RULES, *rules.METRIC_RULES, *rules.PLAUSIBILITY_RULES)
    findings += [finding for rule in every for finding in rule(played)]
    broken = [e for e in played.episodes if e.error is not None]
    findings += [_fault(e) for e in broken]
    total, seconds = sum(e.steps for e in played.episodes), sum(e.seconds for e in played.episodes)
    where = "" if checked.subject.own else ", in this process"
    summary = f"{len(played.episodes)} episodes, {total} steps, random legal actions{where}{rules.metric_means(played)}"
    facts.append(("played", summary))
    gone = any(e.error is not None and e.error.gone for e in broken)
    if not broken:
        again = _repeated(checked, player, built, played.episodes[0])
        findings += [again[0]] if again else []
        gone = again is not None and again[1]
        rate = f"{_rounded(total / seconds)} steps/s, one at a time in one process" if total and seconds else ""
        facts.append(("speed", rate or "unknown"))
    if not broken and not gone and built.device:
        try:
            rate, compiling = checked.slowly("rate")
            facts.append(("", f"{_rounded(rate)} steps/s, {ENVS} at once compiled ({compiling:.1f} s to compile)"))
        except PlayError as fault:
            findings.append(_raised(f"stepping {ENVS} copies at once, compiled together,", fault))
            gone = fault.gone
    if not broken:
        longest = max(e.steps for e in played.episodes) if all(e.ended for e in played.episodes) else None
        rate = 0.0 if built.device else total / (seconds or 1.0)
        facts += suggested_sizes(registry.called(environment), built.spec, rate, longest)
    if not gone:
        findings += _closed(player)


def _played(player: Copy, built: Built, episodes: int, steps: int, seed: int) -> rules.Played:
    spec = built.spec
    size = spec.num_agents * spec.obs_dim * (1 if spec.packed else 4) + 4 * spec.state_dim
    rng, done, left = np.random.default_rng(seed), [], min(steps, max(1, MAX_PLAYED_BYTES // max(1, size)))
    while len(done) < episodes and left > 0:
        limit = min(built.limit, left)
        episode = play_episode(player, spec, len(done) + 1, (seed + len(done)) % 2**31, rng, limit)
        done.append(episode)
        left -= episode.steps
        if episode.error is not None:
            break
    alive = all(episode.error is None for episode in done)
    overran = player.overran() if alive and built.limit > spec.horizon else 0
    unread, empty = (tuple(player.unread()), tuple(player.empty())) if alive else ((), ())
    return rules.Played(spec, done, built.bounds, built.limit, overran, unread, empty)


def _repeated(checked: Checked, player: Copy, built: Built, episode: Episode) -> tuple[Finding, bool] | None:
    """Repeat the first episode in another copy, in the same copy after the others, and in a third in turns with that.

    Returns (finding, whether the process has ended), or None if the repetitions are equal.
    """
    spec, doing = built.spec, "playing the first episode's seed and actions a second time"
    try:
        if not built.device:
            other = checked.copy(checked.slowly("another"))
            difference = _difference(spec, episode, repeat(other, spec, episode, REPEATED))
            if lost := _lost_at_closing(other):
                return lost, True
            if difference:
                text = f"two copies given the same seed and the same actions differ: {difference}. {_RANDOM}"
                return Finding("warning", "determinism", text), False
        if difference := _difference(spec, episode, repeat(player, spec, episode, REPEATED)):
            text = (
                f"an episode depends on earlier episodes: repeated with the same seed and the same actions, "
                f"{difference}. {_RANDOM if built.device else _LEFT}"
            )
            return Finding("warning", "determinism", text), False
        if built.device or episode.unwritten:  # which is an error already, and no reason to differ
            return None
        doing = "playing two copies in turns"
        other = checked.copy(checked.slowly("another"))  # a new one, on which earlier episodes have no effect
        difference = _difference(spec, episode, repeat_beside(other, player, spec, episode, BESIDE))
        if lost := _lost_at_closing(other):
            return lost, True
    except PlayError as fault:
        return _raised(doing, fault), fault.gone
    if not difference:
        return None
    text = (
        f"an episode depends on other copies in the same process: repeated with the same seed and the same actions, "
        f"in turns with another copy, {difference}. {_SHARED}"
    )
    return Finding("warning", "determinism", text), False


def _lost_at_closing(other: Copy) -> Finding | None:
    """Close a copy; the finding if this ends the process. Otherwise closing the first copy reports what is raised."""
    try:
        other.close()
    except PlayError as fault:
        return _raised("closing the environment", fault) if fault.gone else None
    return None


_RANDOM = (
    "Draw every random number from the seed passed to reset; otherwise runs cannot be reproduced or resumed exactly."
)
_SHARED = (
    "The copies share something, probably a global generator such as np.random or random; keep a generator in each "
    "object, such as self.np_random. Otherwise results depend on the number of workers."
)
_LEFT = "reset must restore the whole state, including that of the random number generator."


def _difference(spec: Any, episode: Episode, again: HostTimestep) -> str:
    """The first difference between an episode and its repetition, as text; empty if there is none."""
    for t in range(len(again.last)):
        for name in COMPARED:
            was, now = getattr(episode.timesteps, name)[t], getattr(again, name)[t]
            differs = np.argwhere(unlike(was, now))
            if len(differs):
                index = tuple(map(int, differs[0]))
                whose = f" of {spec.agents[index[0]]}" if index and name not in ("state", "metrics") else ""
                feature = f", feature {index[-1]}," if name in ("obs", "state") else ""
                title = {"obs": "the observation", "legal": "the legal actions"}.get(name, name)
                title = f"the metric {spec.metrics[index[0]]}" if name == "metrics" else title
                values = (
                    f"{was[index]:g} and then {now[index]:g}" if was.dtype != bool else f"{was[index]}, {now[index]}"
                )
                return f"{title}{whose}{feature} is first {values} {rules.when(episode, t)}"
    return ""


def _closed(player: Copy) -> list[Finding]:
    try:
        seconds = player.close()
    except PlayError as fault:
        return [_raised("closing the environment", fault)]
    if seconds <= SLOW:
        return []
    text = f"closing took {seconds:.1f} s; each worker process waits for that at the end of a run."
    return [Finding("warning", "close", text)]


def _fault(episode: Episode) -> Finding:
    assert episode.error is not None
    if episode.tried is None:
        return _raised(f"reset (episode {episode.number}, seed {episode.seed})", episode.error)
    at = f"step {episode.steps + 1} of episode {episode.number} (seed {episode.seed})"
    return _raised(f"{at}, with the joint action {rules.action_text(episode.tried)},", episode.error)


def _raised(doing: str, fault: PlayError) -> Finding:
    return Finding("error", "exception", with_full_stop(f"{doing} {fault.what}"), fault.trace)


def _rounded(rate: float) -> str:
    """A rate rounded to three significant digits, for example 12,300."""
    digits = max(0, len(str(int(rate))) - 3)
    return f"{round(rate, -digits):,.0f}"


# The sizes of a run that a check suggests: training's defaults, and fewer steps for a slow environment.


PATIENCE = 600.0
"""Duration of a suggested first run in seconds of stepping."""


def suggested_sizes(name: str, spec: EnvSpec, rate: float, longest: int | None = None) -> list[tuple[str, str]]:
    """Rows of the table.

    Args:
        name: the environment's.
        spec: the environment's.
        rate: steps per second of one process; 0 for a device environment.
        longest: steps of the longest episode played, if all of them ended.
    """
    usual = sizes_for(spec.horizon) | preset("mappo", name)
    sizes = sizes_for(min(spec.horizon, longest or spec.horizon)) | preset("mappo", name)
    envs, length = sizes["num_envs"], sizes["rollout_length"]
    if sizes == usual:
        why = "mappo's defaults here"
    else:
        why = f"all episodes ended by step {longest}; the default for the horizon is {usual['rollout_length']}"
    rows = [("sizes", f"--num-envs {envs} --rollout-length {length} ({why}): {envs * length:,} steps per update")]
    steps = _one_digit(rate * workers_for(envs, None) * PATIENCE)
    if rate and steps < preset("mappo", name).get("steps", STEPS):
        updates = steps / (envs * length)
        flag = f"--steps {steps:g}".replace("e+0", "e")
        duration = f"{updates:,.0f} updates, about {PATIENCE / 60:.0f} minutes of stepping at this speed"
        rows.append(("", f"{flag}: {duration}"))
    return rows


def _one_digit(x: float) -> float:
    """``x`` rounded down to one significant digit, at least 1."""
    if x < 1:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(x))
    return math.floor(x / unit) * unit
