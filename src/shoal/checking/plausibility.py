"""Plausibility checks: valid but suspicious rewards, deaths, time limits and observations."""

from collections.abc import Iterator

import numpy as np

from shoal.checking.findings import Finding, Level
from shoal.checking.play import Episode
from shoal.checking.rules import Played, Rule, when
from shoal.environments.adapters.gymnasium import DEFAULT_LIMIT
from shoal.spec import EnvSpec


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
    for episode, r in zip(played.episodes, earned, strict=True):
        acted = episode.timesteps.alive[:-1]  # a dead agent's rewards may have ended
        first = r[np.arange(len(r)), acted.argmax(-1)]
        unlike = acted & (r != first[:, None])
        if not unlike.any():
            continue
        if spec.shared_reward:
            t, i = map(int, np.argwhere(unlike)[0])
            yield Finding(
                "error",
                "shared reward",
                f"spec.shared_reward is True, so rewards must be equal, but {spec.agents[int(acted[t].argmax())]} "
                f"received {first[t]:g} and {spec.agents[i]} {r[t, i]:g} {when(episode, t + 1)}; set shared_reward to "
                f"False, or give every agent the team's reward.",
            )
        yield from _of_sides(spec, episode, r, acted)
        return
    if spec.num_agents > 1 and not spec.shared_reward:
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
        level, fate = _fate(died, i)
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
    """The timesteps, except the last, at which agent ``i`` dies."""
    alive, last = episode.timesteps.alive[:, i], episode.timesteps.last
    return [int(t) + 1 for t in np.flatnonzero(alive[:-1] & ~alive[1:] & ~last[1:])]


def _absence(episode: Episode, i: int, t: int) -> int:
    away = ~episode.timesteps.alive[t:, i]
    return len(away) if away.all() else int(np.argmin(away))


def _fate(died: list[tuple[Episode, int]], i: int) -> tuple[Level, str]:
    """Level and text on how rewards and discount of a dead agent continue."""
    # Its discount may be 0 at the first timestep at which it is dead, or at the one before.
    over = [(e.timesteps.discount[t - 1 : t + 1, i] == 0).any() for e, t in died]
    after = [np.nan_to_num(e.timesteps.reward[t + 1 :]) for e, t in died]
    goes_on = [bool(r[:, i].any()) for r in after]
    if any(a and b for a, b in zip(over, goes_on, strict=True)):
        return "warning", (
            "Its discount becomes 0, but it receives rewards later, which do not affect its targets: keep discount 1 "
            "if the team's reward continues."
        )
    if any(over):
        return "note", "Its discount becomes 0, and it receives no reward afterwards."
    if any(goes_on):
        return "note", "Its discount stays 1 and its reward continues: its targets include the team's later rewards."
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
