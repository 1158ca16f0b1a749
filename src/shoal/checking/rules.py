"""Rules of an environment: requirements of its arrays, images and metrics, and what is valid but suspicious."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from shoal.checking.findings import Finding, Level
from shoal.checking.play import Episode
from shoal.environments import rows
from shoal.environments.adapters.gymnasium import DEFAULT_LIMIT
from shoal.game import HostTimestep, entry_name, own_actions
from shoal.plots.texts import metric_text
from shoal.spec import Box, Discrete, EnvSpec


class Played(NamedTuple):
    """Episodes played in one environment."""

    spec: EnvSpec
    episodes: list[Episode]
    bounds: tuple[np.ndarray, np.ndarray] | None = None
    """Float [N, O], the smallest and the largest value of each observation by its space, if known."""
    limit: int = 0
    """Steps after which an episode was not played any further; 0: the horizon."""
    overran: int = 0
    """Episodes that went on after a limit that an attribute of the environment seems to hold, and were cut off."""
    unread: tuple[str, ...] = ()
    """Parts of observations that their spaces lack."""
    empty: tuple[tuple[int, int, int], ...] = ()
    """Seed, timestep and agent of each mask of a living agent that allows nothing while the episode goes on."""


Rule = Callable[[Played], Iterator[Finding]]

_FIELDS = {"obs": "observation", "state": "state", "reward": "reward", "discount": "discount"}


def written_arrays(played: Played) -> Iterator[Finding]:
    """Observations and state are written completely at every timestep."""
    for name in ("obs", "state"):
        for episode in played.episodes:
            if name in episode.unwritten:
                index = episode.unwritten[name]
                t, *rest = (int(i) for i in index[0])
                yield Finding(
                    "error",
                    _FIELDS[name],
                    f"{entry_name(played.spec, name, rest)} is not written {when(episode, t)}, so it keeps an earlier "
                    f"value; every reset and step must write all entries{_more(len(index))}.",
                )
                break


def finite(played: Played) -> Iterator[Finding]:
    """Observations, states, rewards and discounts are finite."""
    for name, title in _FIELDS.items():
        if wrong := _first(played, lambda episode, name=name: ~np.isfinite(getattr(episode.timesteps, name))):
            episode, (t, *rest), count = wrong
            value = str(getattr(episode.timesteps, name)[t, *rest])
            said = {"nan": "NaN", "inf": "infinite", "-inf": "minus infinity"}[value]
            found = f"{entry_name(played.spec, name, rest)} is {said} {when(episode, t)}{_more(count)}."
            yield Finding("error", title, found)


def choices(played: Played) -> Iterator[Finding]:
    """Each agent has a legal action, unless the episode has ended for it, and only its own actions are legal."""
    spec = played.spec
    own = own_actions(spec)
    what = "action" if isinstance(spec.action, Discrete) else "action dimension"

    def goes_on(steps: HostTimestep) -> np.ndarray:  # at a time limit a target may read the best legal action
        return ~steps.last[:, None] | (steps.alive & (steps.discount > 0))

    if wrong := _first(played, lambda episode: ~episode.timesteps.legal.any(-1) & goes_on(episode.timesteps)):
        episode, (t, i), count = wrong
        yield Finding(
            "error",
            "legal actions",
            f"{spec.agents[i]} has no legal {what} {when(episode, t)}; every agent needs at least one legal "
            f"{what}, also a dead one or at a time limit, for example a no-op{_more(count)}.",
        )
    if wrong := _first(played, lambda episode: episode.timesteps.legal & ~own):
        episode, (t, i, a), count = wrong
        yield Finding(
            "error",
            "action space",
            f"{spec.agents[i]} has {spec.action_dims[i]} {what}s by spec.action_dims, but {what} {a} is "
            f"marked legal {when(episode, t)}{_more(count)}.",
        )
    chosen = _first(played, lambda episode: (episode.timesteps.legal.sum(-1) > 1).sum(-1) > 1) if spec.turns else None
    if chosen:
        episode, (t,), count = chosen
        yield Finding(
            "error",
            "turns",
            f"several agents have a choice {when(episode, t)}; with spec.turns at most one may{_more(count)}.",
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


def empty_masks(played: Played) -> Iterator[Finding]:
    """The mask of an agent that has to act allows an action."""
    if not played.empty:
        return
    seed, t, i = played.empty[0]
    episode = next(episode for episode in played.episodes if episode.seed == seed)
    count = len(played.empty) - 1
    more = f" (and {count} more time{'s' * (count > 1)})" if count else ""
    yield Finding(
        "warning",
        "legal actions",
        f"{played.spec.agents[i]}'s action_mask allows nothing {when(episode, t)}, so it takes action 0{more}; the "
        f"mask of an agent that is alive should allow at least one action, for example a no-op.",
    )


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
        if not episode.ended and episode.steps >= (played.limit or spec.horizon):
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


def _more(count: int) -> str:
    """The number of further occurrences, as text."""
    return f" (and {count - 1} more time{'s' * (count > 2)} in this episode)" if count > 1 else ""


def unread_parts(played: Played) -> Iterator[Finding]:
    """Every part of an observation is in its space."""
    if not played.unread:
        return
    parts = ", ".join(played.unread[:4]) + (f" and {len(played.unread) - 4} more" if len(played.unread) > 4 else "")
    yield Finding(
        "warning",
        "observation",
        f"agents do not see parts of their observations, since the Dict spaces lack these keys: {parts}. Add them to "
        f"the spaces, or leave them out of the observations.",
    )


ARRAY_RULES: tuple[Rule, ...] = (
    written_arrays,
    finite,
    choices,
    empty_masks,
    padding,
    spaces,
    unread_parts,
    beginnings,
    discounts,
    endings,
)


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
        if unknown and len(unknown) == len(ended):
            said = f"it is unknown (NaN) in all {len(ended)} episodes that ended; its name may be misspelt."
            yield Finding("warning", f"metric {name}", said)
        elif unknown:
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


def rewards(played: Played) -> Iterator[Finding]:
    """Rewards are not all zero, and equal for all agents if and only if the spec says so."""
    spec = played.spec
    steps = sum(e.steps for e in played.episodes)
    if not steps:
        return
    earned = [np.nan_to_num(e.timesteps.reward[1:]) for e in played.episodes]
    if not any(r.any() for r in earned):
        yield Finding(
            "warning",
            "reward",
            f"all rewards are 0 in {steps} random steps; either rewards are so sparse that exploration will be "
            f"hard, or the environment does not return them.",
        )
        return
    unequal = False
    for episode, r in zip(played.episodes, earned, strict=True):
        acted = episode.timesteps.alive[:-1]  # a dead agent's rewards may have ended
        first = r[np.arange(len(r)), acted.argmax(-1)]
        unlike = acted & (r != first[:, None])
        if not unlike.any():
            continue
        if spec.shared_reward and not unequal:
            t, i = map(int, np.argwhere(unlike)[0])
            yield Finding(
                "error",
                "shared reward",
                f"spec.shared_reward is True, so rewards must be equal, but {spec.agents[int(acted[t].argmax())]} "
                f"received {first[t]:g} and {spec.agents[i]} {r[t, i]:g} {when(episode, t + 1)}; set shared_reward to "
                f"False, or give every agent the team's reward.",
            )
        unequal = True
        if found := list(_of_sides(spec, episode, r, acted)):
            yield from found
            return
    if not unequal and spec.num_agents > 1 and not spec.shared_reward:
        yield Finding(
            "note",
            "shared reward",
            f"all agents that acted received equal rewards at each of {steps} steps; if that is always so, set "
            f"shared_reward to True (in the spec or as an option), so that critics predict one value for the team.",
        )


def _of_sides(spec: EnvSpec, episode: Episode, r: np.ndarray, acted: np.ndarray) -> Iterator[Finding]:
    """Agents of one side receive equal rewards."""
    for side in sorted(set(spec.sides or ())):
        own = acted & (np.array(spec.sides) == side)
        first = r[np.arange(len(r)), own.argmax(-1)]
        found = np.argwhere(own & (r != first[:, None]))
        if found.size:
            t, i = map(int, found[0])
            yield Finding(
                "error",
                "shared reward",
                f"spec.sides requires equal rewards within a side, but {spec.agents[int(own[t].argmax())]} "
                f"received {first[t]:g} and {spec.agents[i]} {r[t, i]:g} {when(episode, t + 1)}; set sides to None, or "
                f"give every agent its side's reward.",
            )
            return


def time_limits(played: Played) -> Iterator[Finding]:
    """Time limits are not reported as terminations, nor terminations as time limits."""
    spec = played.spec
    if spec.horizon == DEFAULT_LIMIT:
        yield Finding(
            "note",
            "time limit",
            f"the horizon is {DEFAULT_LIMIT} steps, Shoal's default for an environment without a time limit: longer "
            f"episodes are truncated there. Set a limit in the environment (max_episode_steps, max_cycles, or the true "
            f"horizon in its spec), or train with --time-limit.",
        )
    if played.overran:
        yield Finding(
            "warning",
            "time limit",
            f"{played.overran} of {len(played.episodes)} episodes were not over after {spec.horizon} steps, which an "
            f"attribute of the environment seems to limit them to (max_cycles, max_steps, episode_limit or the like), "
            f"and were cut off at {played.limit}. If it means something else, give the environment the attribute "
            f"max_cycles with the true limit, which is read first.",
        )
    ended = [e for e in played.episodes if e.ended]
    lengths = {e.steps for e in ended}
    if len(ended) < 2:
        return
    zero = [bool((e.timesteps.discount[-1] == 0)[e.timesteps.alive[-2]].all()) for e in ended]
    if len(lengths) == 1 and all(zero) and (length := lengths.pop()) > 1:
        limit = "its horizon" if length == spec.horizon else f"though the horizon is {spec.horizon}"
        yield Finding(
            "warning",
            "time limit",
            f"all {len(ended)} episodes ended after exactly {length} steps ({limit}) with discount 0: very likely a "
            f"time limit reported as termination, so that targets do not bootstrap there. Keep discount 1 where a "
            f"time limit ends an episode (in Gymnasium and PettingZoo: truncated, not terminated), or truncate it one "
            f"step earlier with the option time_limit={length - 1}. Ignore this warning if the game truly ends then.",
        )
    early = [e for e, over in zip(ended, zero, strict=True) if not over and e.steps < spec.horizon]
    early = [e for e in early if (e.timesteps.discount[-1] == 1).all()]
    if len({e.steps for e in early}) > 1:
        shortest = min(early, key=lambda e: e.steps)
        yield Finding(
            "note",
            "time limit",
            f"{len(early)} of {len(ended)} episodes ended before the horizon of {spec.horizon} steps (the earliest "
            f"after {shortest.steps}, seed {shortest.seed}) with discount 1, which means truncation; where the game "
            f"is over, won or lost, discount must be 0.",
        )


def deaths(played: Played) -> Iterator[Finding]:
    """Agents that die: when, for how long, and their rewards and discounts afterwards."""
    spec = played.spec
    for i, agent in enumerate(spec.agents):
        died = [(e, t) for e in played.episodes for t in _deaths(e, i)]
        if not died:
            continue
        absent = [_absence(e, i, t) for e, t in died]
        back = any(t + away < len(e.timesteps.alive) for (e, t), away in zip(died, absent, strict=True))
        first, at = died[0]
        episodes = len({e.number for e, _ in died})
        level, fate = _fate(died, i, bool(spec.interface))
        yield Finding(
            level,
            "agent death",
            f"{agent} dies (alive becomes False) in {episodes} of {len(played.episodes)} episodes, first at step {at} "
            f"of episode {first.number} (seed {first.seed}), for {np.mean(absent):.3g} timesteps on average"
            f"{', and becomes alive again' if back else ''}. {fate}",
        )
        seen = [(e, t) for e, t in died if e.timesteps.obs[t : t + _absence(e, i, t), i].any()]
        if seen:
            e, t = seen[0]
            yield Finding(
                "warning",
                "agent death",
                f"{agent}'s observation is not 0 while it is dead, from step {t} of episode {e.number} on; critics "
                f"that receive all observations use it as input.",
            )
    for e in played.episodes:
        timesteps = e.timesteps
        still = (timesteps.discount[:-1] == 0) & timesteps.alive[:-1] & timesteps.alive[1:] & ~timesteps.last[:-1, None]
        still[:1] = False  # reported by another rule
        if still.any() and not (timesteps.discount[1:] == 0).all(-1)[~timesteps.last[1:]].any():
            t, i = map(int, np.argwhere(still)[0])
            yield Finding(
                "warning",
                "discount",
                f"{spec.agents[i]}'s discount is 0 {when(e, t)}, which means that its rewards end, but it is still "
                f"alive one step later; set alive to False, or keep discount 1.",
            )
            return


def _deaths(episode: Episode, i: int) -> list[int]:
    """The timesteps, except the last, at which agent ``i`` dies, rather than leaves since it is cut off alone."""
    alive, last, leaving = episode.timesteps.alive[:, i], episode.timesteps.last, episode.timesteps.leaving
    died = alive[:-1] & ~alive[1:] & ~last[1:]
    if leaving.shape[-1]:  # on the device there is none
        died &= ~leaving[1:, i]
    return [int(t) + 1 for t in np.flatnonzero(died)]


def _absence(episode: Episode, i: int, t: int) -> int:
    away = ~episode.timesteps.alive[t:, i]
    return len(away) if away.all() else int(np.argmin(away))


def _fate(died: list[tuple[Episode, int]], i: int, adapted: bool) -> tuple[Level, str]:
    """Level and text on how rewards and discount of a dead agent continue; ``adapted`` if an adapter writes these."""
    # Its discount may be 0 at the first timestep at which it is dead, or at the one before.
    over = [(e.timesteps.discount[t - 1 : t + 1, i] == 0).any() for e, t in died]
    after = [np.nan_to_num(e.timesteps.reward[t + 1 :]) for e, t in died]
    # An agent that becomes alive again earns for its targets from then on.
    paid = [r[: _absence(e, i, t) - 1, i].any() for (e, t), r in zip(died, after, strict=True)]
    if any(a and b for a, b in zip(over, paid, strict=True)):
        return "warning", (
            "Its discount becomes 0, but it receives rewards while it is dead, which do not affect its targets: keep "
            "discount 1 if the team's reward continues."
        )
    if any(over):
        return "note", "Its discount becomes 0, and it receives no reward while it is dead."
    if any(r[:, i].any() for r in after):
        return "note", "Its discount stays 1 and its reward continues: its targets include the team's later rewards."
    if any(r.any() for r in after) and adapted:  # a termination would have discount 0
        return "warning", (
            "It is truncated while the others play on, without an observation at that step from which its value could "
            "be bootstrapped: return its last observation in the step that truncates it."
        )
    if any(r.any() for r in after):
        return "warning", (
            "Its discount stays 1 although only other agents receive rewards afterwards: set its discount to 0 at the "
            "step where it dies, so that its targets do not bootstrap there."
        )
    return (
        "note",
        "Its discount stays 1, which is right if the team's reward continues; no agent received a reward afterwards.",
    )


def sights(played: Played) -> Iterator[Finding]:
    """Observations and state change, and differ between episodes."""
    spec = played.spec
    whole = [e for e in played.episodes if e.steps]
    if not whole:
        return
    steps = sum(e.steps for e in whole)
    # Games of one step may have constant observations.
    level: Level = "note" if all(e.steps == 1 for e in whole) else "warning"
    blind = [
        agent
        for i, agent in enumerate(spec.agents)
        if all((e.timesteps.obs[:, i] == whole[0].timesteps.obs[0, i])[e.timesteps.alive[:, i]].all() for e in whole)
    ]
    if blind:
        who = f"{blind[0]}'s observation is" if len(blind) == 1 else f"The observations of {', '.join(blind)} are"
        text = f"{who} the same at all {steps + len(whole)} timesteps played, so it carries no information."
        yield Finding(level, "observation", text)
    if spec.state_dim and all((e.timesteps.state == whole[0].timesteps.state[0]).all() for e in whole):
        text = f"The state is the same at all {steps + len(whole)} timesteps played, so it carries no information."
        yield Finding(level, "state", text)
    starts = [(e.timesteps.obs[0], e.timesteps.state[0]) for e in whole]
    if len(starts) > 1 and not blind:
        alike = all(np.array_equal(a, b) for start in starts[1:] for a, b in zip(starts[0], start, strict=True))
        if alike:
            yield Finding(
                "note",
                "seed",
                f"{len(starts)} episodes with different seeds start alike; if starts should differ, reset ignores its "
                f"seed.",
            )


PLAUSIBILITY_RULES: tuple[Rule, ...] = (rewards, time_limits, deaths, sights)
