"""Requirements of an environment: its arrays, its images and its metrics."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from shoal.checking.findings import Finding
from shoal.checking.play import Episode
from shoal.environments import rows
from shoal.game import own_actions
from shoal.plots.texts import metric_text
from shoal.spec import Box, Discrete, EnvSpec


class Played(NamedTuple):
    """Episodes played in one environment."""

    spec: EnvSpec
    episodes: list[Episode]
    bounds: tuple[np.ndarray, np.ndarray] | None = None
    """Float [N, O], the smallest and the largest value of each observation by its space, if known."""


Rule = Callable[[Played], Iterator[Finding]]

_FIELDS = {"obs": "observation", "state": "state", "reward": "reward", "discount": "discount"}


def written(played: Played) -> Iterator[Finding]:
    """Observations and state are written completely at every timestep."""
    for name in ("obs", "state"):
        for episode in played.episodes:
            if name in episode.unwritten:
                index = episode.unwritten[name]
                t, *rest = (int(i) for i in index[0])
                yield Finding(
                    "error",
                    _FIELDS[name],
                    f"{_of(played.spec, name, rest)} is not written {when(episode, t)}, so it keeps an earlier value; "
                    f"every reset and step must write all entries{_more(len(index))}.",
                )
                break


def finite(played: Played) -> Iterator[Finding]:
    """Observations, states, rewards and discounts are finite."""
    for name, title in _FIELDS.items():
        if wrong := _first(played, lambda episode, name=name: ~np.isfinite(getattr(episode.timesteps, name))):
            episode, (t, *rest), count = wrong
            value = str(getattr(episode.timesteps, name)[t, *rest])
            said = {"nan": "NaN", "inf": "infinite", "-inf": "minus infinity"}[value]
            found = f"{_of(played.spec, name, rest)} is {said} {when(episode, t)}{_more(count)}."
            yield Finding("error", title, found)


def choices(played: Played) -> Iterator[Finding]:
    """Each agent has a legal action at every timestep but the last, and only its own actions are legal."""
    spec = played.spec
    own = own_actions(spec)
    what = "action" if isinstance(spec.action, Discrete) else "action dimension"
    if wrong := _first(played, lambda episode: ~episode.timesteps.legal.any(-1) & ~episode.timesteps.last[:, None]):
        episode, (t, i), count = wrong
        yield Finding(
            "error",
            "legal actions",
            f"{spec.agents[i]} has no legal {what} {when(episode, t)}; every agent needs at least one legal "
            f"{what}, also a dead one, for example a no-op{_more(count)}.",
        )
    if wrong := _first(played, lambda episode: episode.timesteps.legal & ~own):
        episode, (t, i, a), count = wrong
        yield Finding(
            "error",
            "action space",
            f"{spec.agents[i]} has {spec.action_dims[i]} {what}s by spec.action_dims, but {what} {a} is "
            f"marked legal {when(episode, t)}{_more(count)}.",
        )
    if isinstance(spec.action, Box):
        for episode in played.episodes:
            closed = np.argwhere(~episode.timesteps.legal & own & episode.timesteps.alive[..., None])
            if len(closed) and episode.timesteps.legal[tuple(closed[0, :2])].any():
                t, i, a = map(int, closed[0])
                yield Finding(
                    "warning",
                    "action space",
                    f"dimension {a} of {spec.agents[i]}'s action is marked illegal {when(episode, t)}; for a Box, "
                    f"legal marks the dimensions that an agent has, which must not change.",
                )
                break


def padding(played: Played) -> Iterator[Finding]:
    """Padding of an agent's observation is zero."""
    spec = played.spec
    outside = np.arange(spec.obs_dim) >= np.array(spec.obs_dims)[:, None]
    if wrong := _first(played, lambda episode: (episode.timesteps.obs != 0) & outside):
        episode, (t, i, k), count = wrong
        yield Finding(
            "error",
            "observation padding",
            f"{spec.agents[i]} observes {spec.obs_dims[i]} features by spec.obs_dims, but feature {k}, which is "
            f"padding, is {episode.timesteps.obs[t, i, k]:g} {when(episode, t)}; padding must stay 0{_more(count)}.",
        )


def spaces(played: Played) -> Iterator[Finding]:
    """Observations of agents that are alive lie in their spaces, up to the rounding of single precision."""
    if played.bounds is None:
        return
    low, high = played.bounds

    def outside(episode: Episode) -> np.ndarray:
        seen, alive = episode.timesteps.obs.astype(np.float64), episode.timesteps.alive[..., None]
        slack = 1e-5 * np.maximum(1.0, np.abs(seen))
        return alive & ((seen < low - slack) | (seen > high + slack))

    if wrong := _first(played, outside):
        episode, (t, i, k), count = wrong
        yield Finding(
            "warning",
            "observation space",
            f"feature {k} of {played.spec.agents[i]}'s observation is {episode.timesteps.obs[t, i, k]:g} "
            f"{when(episode, t)}, outside [{low[i, k]:g}, {high[i, k]:g}], the bounds of its observation space; "
            f"correct the space or the observation{_more(count)}.",
        )


def beginnings(played: Played) -> Iterator[Finding]:
    """At the start of an episode an agent is alive, rewards are 0, discounts 1, ``first`` True and ``last`` False."""
    spec, reported = played.spec, set()
    for episode in (e for e in played.episodes if len(e.timesteps.last)):
        timesteps, at = episode.timesteps, f"after reset (episode {episode.number}, seed {episode.seed})"
        found: list[tuple[str, str]] = []
        if timesteps.last[0]:
            found.append(("last", f"last is True {at}, before any agent has acted; it must be False there."))
        if np.any(earned := np.nan_to_num(timesteps.reward[0]) != 0):
            i = int(np.argmax(earned))
            paid = f"{spec.agents[i]} has a reward of {timesteps.reward[0, i]:g} {at}"
            found.append(("reward", f"{paid}, before any action, which training ignores; it must be 0 there."))
        if not timesteps.alive[0].any():
            found.append(("alive", f"no agent is alive {at}, so no agent acts."))
        if np.any(timesteps.discount[0] == 0):
            i = int(np.argmax(timesteps.discount[0] == 0))
            found.append(
                ("discount", f"{spec.agents[i]}'s discount is 0 {at}; nothing has ended yet, so it must be 1.")
            )
        if not timesteps.first[0]:
            found.append(("first", f"first is False {at}; recurrent policies would not reset their state."))
        if np.any(timesteps.first[1:]):
            t = int(np.argmax(timesteps.first[1:])) + 1
            found.append(("first", f"first is True {when(episode, t)}; it must be True only after reset."))
        for subject, sentence in found:
            if subject not in reported:
                reported.add(subject)
                yield Finding("error", subject, sentence)


def discounts(played: Played) -> Iterator[Finding]:
    """Discounts are 0 at true terminations, and 1 elsewhere."""
    spec = played.spec

    def between(episode: Episode) -> np.ndarray:
        given = episode.timesteps.discount
        return np.isfinite(given) & (given != 0) & (given != 1)

    if wrong := _first(played, between):
        episode, (t, i), count = wrong
        given = episode.timesteps.discount[t, i]
        yield Finding(
            "warning" if 0 <= given <= 1 else "error",
            "discount",
            f"{spec.agents[i]}'s discount is {given:g} {when(episode, t)}; it must be 0 at a true "
            f"termination and 1 otherwise; algorithms multiply it by their own gamma{_more(count)}.",
        )
        return
    for episode in played.episodes:
        over = (episode.timesteps.discount[1:] == 0).all(-1) & ~episode.timesteps.last[1:]
        if over.any():
            t = int(np.argmax(over)) + 1
            yield Finding(
                "error",
                "last",
                f"every agent's discount is 0 {when(episode, t)}, which means termination, but last is False and the "
                f"episode continues; set last as well, or keep discount 1.",
            )
            return


def endings(played: Played) -> Iterator[Finding]:
    """Episodes end within the horizon."""
    spec, whole = played.spec, [e for e in played.episodes if e.error is None]
    for episode in whole:
        if not episode.ended and episode.steps >= spec.horizon:
            yield Finding(
                "error",
                "horizon",
                f"episode {episode.number} (seed {episode.seed}) is not over after spec.horizon = {spec.horizon} "
                f"steps; set last (with discount 1, since it is a time limit) at that step, or correct the horizon.",
            )
            return
    if whole and not any(e.ended for e in whole):
        steps = max(e.steps for e in whole)
        yield Finding(
            "note",
            "horizon",
            f"no episode ended within the {steps} steps played (the horizon is {spec.horizon}), so the ends of "
            f"episodes are not tested; increase steps.",
        )


def _first(played: Played, wrong: Callable[[Episode], np.ndarray]) -> tuple[Episode, tuple[int, ...], int] | None:
    """The first entry that is wrong: its episode, its index, and how many entries of the episode are wrong."""
    for episode in played.episodes:
        index = np.argwhere(wrong(episode))
        if len(index):
            return episode, tuple(map(int, index[0])), len(index)
    return None


def when(episode: Episode, t: int) -> str:
    """The position of a timestep in an episode, and the action before it, as text."""
    if t == 0:
        return f"after reset (episode {episode.number}, seed {episode.seed})"
    after = action_text(episode.actions[t - 1])
    return f"at step {t} of episode {episode.number} (seed {episode.seed}), after the joint action {after}"


def action_text(action: np.ndarray) -> str:
    """A joint action as one short line."""
    shown = np.array2string(action, precision=3, separator=", ", threshold=24, edgeitems=4, max_line_width=10**6)
    return " ".join(shown.split())


def _of(spec: EnvSpec, name: str, index: list[Any]) -> str:
    """The entry of a field at an index (without time), for example ``feature 3 of agent_1's observation``."""
    if name == "state":
        return f"feature {index[0]} of the state"
    if name == "obs":
        return f"feature {index[1]} of {spec.agents[index[0]]}'s observation"
    return f"{spec.agents[index[0]]}'s {name}"


def _more(count: int) -> str:
    """The number of further occurrences, as text."""
    return f" (and {count - 1} more time{'s' * (count > 2)} in this episode)" if count > 1 else ""


ARRAY_RULES: tuple[Rule, ...] = (written, finite, choices, padding, spaces, beginnings, discounts, endings)


# Observations that are rows of bytes: images, and numbers that are observed with them.


DARK_IMAGE = 32
"""Arrays whose pixels all lie below this value are probably not images."""


def image_numbers(played: Played) -> Iterator[Finding]:
    """Numbers that are observed with images are finite."""
    spec = played.spec
    if not spec.packed:
        return
    for episode in played.episodes:
        for i, parts in enumerate(rows.parts_of(spec)):
            for part, values in rows.numbers(parts, True, episode.timesteps.obs[:, i, : spec.obs_dims[i]]):
                wrong = np.argwhere(~np.isfinite(values))
                if len(wrong):
                    t, k = map(int, wrong[0])
                    name = f"{part.name}: number {k}" if part.name else f"number {k}"
                    text = f"{name} of {spec.agents[i]}'s observation is {values[t, k]:g} {when(episode, t)}."
                    yield Finding("error", "observation", text)
                    return


def image_brightness(played: Played) -> Iterator[Finding]:
    """Images use the range of their type."""
    spec, brightest = played.spec, {}
    for episode in played.episodes if spec.packed else ():
        for i, parts in enumerate(rows.parts_of(spec)):
            for part, place in zip(parts, rows.slices(parts, True), strict=True):
                if part.dtype == "uint8":
                    most = int(episode.timesteps.obs[:, i, place].max(initial=0))
                    brightest[part] = max(brightest.get(part, 0), most)
    for part, most in brightest.items():
        if most < DARK_IMAGE:
            name = f"the image {part.name!r}" if part.name else "the image"
            yield Finding(
                "warning",
                "images",
                f"the values of {name} are at most {most} of 255, and networks divide them by 255; if they are codes "
                f"rather than brightness, set the true upper bound in their space or declare the part as float32 "
                f"instead of uint8, so that they are read as numbers.",
            )


IMAGE_RULES: tuple[Rule, ...] = (image_numbers, image_brightness)


# The metrics of episodes, and their means under random play.


def episode_metrics(played: Played) -> Iterator[Finding]:
    """The metrics of an ended episode are known and finite, and ``won`` lies in [0, 1]."""
    spec, ended = played.spec, [e for e in played.episodes if e.ended]
    for i, name in enumerate(spec.metrics):
        values = [(e, float(e.timesteps.metrics[-1, i])) for e in ended]
        infinite = next(((e, x) for e, x in values if np.isinf(x)), None)
        if infinite is not None:
            yield Finding("error", f"metric {name}", f"it is infinite {when(infinite[0], infinite[0].steps)}.")
        outside = next(((e, x) for e, x in values if name == "won" and np.isfinite(x) and not 0 <= x <= 1), None)
        if outside is not None:
            e, x = outside
            text = f"it is {x:g} {when(e, e.steps)}, but it must be 1 where an episode was won and 0 where it was not."
            yield Finding("error", "metric won", text)
        unknown = [e for e, x in values if np.isnan(x)]
        if unknown:
            e = unknown[0]
            yield Finding(
                "warning",
                f"metric {name}",
                f"it is unknown (NaN) in {len(unknown)} of {len(ended)} episodes that ended, first in episode "
                f"{e.number} (seed {e.seed}); its mean excludes these episodes, and is biased if the metric is "
                f"missing more often when its value would be low or high.",
            )


def metric_means(played: Played) -> str:
    """Means of the metrics as text; empty if the environment has none, or no episode ended."""
    values = [e.timesteps.metrics[-1] for e in played.episodes if e.ended]
    if not values or not played.spec.metrics:
        return ""
    known = [[float(x) for x in column if np.isfinite(x)] for column in zip(*values, strict=True)]
    named = zip(played.spec.metrics, known, strict=True)
    return "; " + ", ".join(metric_text(name, sum(xs) / len(xs)) if xs else f"{name} unknown" for name, xs in named)


METRIC_RULES: tuple[Rule, ...] = (episode_metrics,)
