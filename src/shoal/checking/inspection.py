"""``check``: build an environment, play it, repeat what was played, time it, and gather what the rules say."""

import contextlib
import pickle
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shoal.checking import metrics, rules, sense
from shoal.checking.play import DevicePlayer, Episode, HostPlayer, Player, play, repeat
from shoal.checking.report import Finding, Report, describe, ordered
from shoal.checking.speed import ENVS, vmapped_rate
from shoal.environments import registry
from shoal.environments.spelling import commands
from shoal.environments.validation import check_spec, validate
from shoal.errors import InputError
from shoal.game import Moment
from shoal.types import Environment

REPEATED = 1000
"""Steps of the first episode that are played again, to see whether they go alike."""
SLOW = 2.0
"""Seconds that closing may take."""


def check(
    environment: Any, *, env: Mapping[str, Any] | None = None, episodes: int = 5, steps: int = 5000, seed: int = 0
) -> Report:
    """Play random legal actions in an environment and say what is wrong with it, and how fast it is.

    Args:
        environment: a name, ``package.module:factory``, a factory, or an environment, as for :func:`shoal.train`.
        env: options of the environment's factory.
        episodes: episodes to play, each from a seed of its own.
        steps: steps to play in all at the most.
        seed: the seed of the first episode, and of the actions.

    Raises:
        InputError: there is no such environment, its library is missing, or an argument is out of range.
    """
    for name, value in (("episodes", episodes), ("steps", steps)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, not {value}.")
    if not 0 <= seed < 2**31:
        raise InputError(f"seed must lie between 0 and 2147483647, not {seed}.")
    options = dict(env or {})
    name, findings, facts = registry.called(environment), [], []
    try:
        made = registry.make(environment, **options)
    except InputError:
        raise
    except Exception as error:
        findings.append(_raised("making the environment", error))
    else:
        _inspect(made, findings, facts, episodes, steps, seed)
    train, again = commands(environment, options)
    return Report(name, ordered(findings), tuple(facts), train, again)


def _inspect(
    env: Any, findings: list[Finding], facts: list[tuple[str, str]], episodes: int, steps: int, seed: int
) -> None:
    """Everything there is to see in an environment that can be built."""
    try:
        check_spec(env.spec)
        facts += describe(env.spec)
        if isinstance(env, Environment):
            validate(env)
    except InputError as error:
        cause = error.__cause__
        findings.append(Finding("error", "interface", str(error), own_traceback(cause) if cause else ""))
        return
    player = _player(env, findings)
    if player is None:
        return
    played = _played(player, env, episodes, steps, seed)
    findings += [finding for rule in (*rules.RULES, *metrics.RULES, *sense.RULES) for finding in rule(played)]
    broken = [_fault(e) for e in played.episodes if e.error is not None]
    findings += broken
    total, seconds = sum(e.steps for e in played.episodes), sum(e.seconds for e in played.episodes)
    said = f"{len(played.episodes)} episodes, {total} steps, random legal actions{metrics.means(played)}"
    facts.append(("played", said))
    if not broken:
        findings += _repeated(player, env, played.episodes[0])
        rate = f"{_rounded(total / seconds)} steps/s, one at a time in one process" if total and seconds else ""
        facts.append(("speed", rate or "unknown"))
        if isinstance(env, Environment):
            rate, compiling = vmapped_rate(env)
            facts.append(("", f"{_rounded(rate)} steps/s, {ENVS} at once compiled ({compiling:.1f} s to compile)"))
    findings += _closed(player)


def _player(env: Any, findings: list[Finding]) -> Player | None:
    """Something to play; None where it cannot be had, which is then among the findings."""
    if isinstance(env, Environment):
        return DevicePlayer(env)
    maker = env.make
    try:
        maker = pickle.loads(pickle.dumps(maker))
    except Exception as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        text = (
            f"what makes the environment cannot be sent to worker processes ({type(error).__name__}: {reason}); it "
            f"must be a function of a module that can be imported, or a functools.partial of one."
        )
        findings.append(Finding("error", "make", text))
    try:
        game = maker()
    except Exception as error:
        findings.append(_raised("making the environment", error))
        return None
    if game.spec != env.spec:
        differs = [name for name, value in vars(env.spec).items() if getattr(game.spec, name, None) != value]
        text = f"the game that is made describes itself differently from the environment: {', '.join(differs)} differ."
        findings.append(Finding("error", "spec", text))
        return None
    return HostPlayer(game, env.spec)


def _played(player: Player, env: Any, episodes: int, steps: int, seed: int) -> rules.Played:
    rng, done, left = np.random.default_rng(seed), [], steps
    while len(done) < episodes and left > 0:
        limit = min(env.spec.horizon, left)
        episode = play(player, env.spec, len(done) + 1, (seed + len(done)) % 2**31, rng, limit)
        done.append(episode)
        left -= episode.steps
        if episode.error is not None:
            break
    return rules.Played(env.spec, done)


def _repeated(player: Player, env: Any, episode: Episode) -> list[Finding]:
    """Whether the first episode goes alike in another copy, and in the same one after others."""
    try:
        if not isinstance(env, Environment):
            other = HostPlayer(env.make(), env.spec)
            try:
                difference = _difference(env.spec, episode, repeat(other, env.spec, episode, REPEATED))
            finally:
                with contextlib.suppress(Exception):  # said when the first one is closed
                    other.close()
            if difference:
                text = f"two copies given the same seed and the same actions differ: {difference}. {_RANDOM}"
                return [Finding("warning", "determinism", text)]
        difference = _difference(env.spec, episode, repeat(player, env.spec, episode, REPEATED))
    except Exception as error:
        return [_raised("playing the first episode's seed and actions a second time", error)]
    if not difference:
        return []
    text = (
        f"an episode depends on those before it: played a second time, with the same seed and the same actions, "
        f"{difference}. {_LEFT if not isinstance(env, Environment) else _RANDOM}"
    )
    return [Finding("warning", "determinism", text)]


_RANDOM = (
    "Draw every random number from what reset is given as its seed, or runs cannot be repeated or resumed exactly."
)
_LEFT = "Let reset begin everything anew, random numbers too."


def _difference(spec: Any, episode: Episode, again: Moment) -> str:
    """The first difference between an episode and its repetition, in words; empty where there is none."""
    for t in range(len(again.last)):
        for name in ("obs", "state", "reward", "discount", "legal", "alive", "last", "metrics"):
            was, now = getattr(episode.moments, name)[t], getattr(again, name)[t]
            unlike = np.argwhere(~((was == now) | ((was != was) & (now != now))))
            if len(unlike):
                index = tuple(map(int, unlike[0]))
                whose = f" of {spec.agents[index[0]]}" if index and name not in ("state", "metrics") else ""
                feature = f", feature {index[-1]}," if name in ("obs", "state") else ""
                title = {"obs": "the observation", "legal": "the legal actions"}.get(name, name)
                title = f"the metric {spec.metrics[index[0]]}" if name == "metrics" else title
                values = (
                    f"{was[index]:g} and then {now[index]:g}" if was.dtype != bool else f"{was[index]}, {now[index]}"
                )
                return f"{title}{whose}{feature} is first {values} {rules.when(episode, t)}"
    return ""


def _closed(player: Player) -> list[Finding]:
    before = time.perf_counter()
    try:
        player.close()
    except Exception as error:
        return [_raised("closing the environment", error)]
    seconds = time.perf_counter() - before
    if seconds <= SLOW:
        return []
    text = f"closing took {seconds:.1f} s; each worker process waits for that at the end of a run."
    return [Finding("warning", "close", text)]


def _fault(episode: Episode) -> Finding:
    assert episode.error is not None
    if episode.tried is None:
        return _raised(f"being reset (episode {episode.number}, seed {episode.seed})", episode.error)
    at = f"step {episode.steps + 1} of episode {episode.number} (seed {episode.seed})"
    return _raised(f"{at}, given the joint action {rules.said(episode.tried)}", episode.error)


def _raised(doing: str, error: Exception) -> Finding:
    what = " ".join(traceback.format_exception_only(error)[-1].split()).rstrip(".")
    return Finding("error", "exception", f"{doing} raised {what}.", own_traceback(error))


def own_traceback(error: BaseException) -> str:
    """The frames of an exception that are not of this package or of JAX, as Python prints them."""
    ours = (str(Path(__file__).parent), str(Path(jax.__file__).parent), str(Path(registry.__file__)))
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(ours) and "<frozen" not in f.filename]
    return "".join(traceback.format_list(theirs or list(frames)[-1:])).rstrip()


def _rounded(rate: float) -> str:
    """Three figures, 12,300."""
    digits = max(0, len(str(int(rate))) - 3)
    return f"{round(rate, -digits):,.0f}"
