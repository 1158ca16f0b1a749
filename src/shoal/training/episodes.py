"""Record episodes step by step and draw them."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from shoal.game import HostEnvironment
from shoal.plots import texts
from shoal.rollouts.drawing import DrawingError, WatchedGame
from shoal.rollouts.fused import Act
from shoal.rollouts.host import HostRollout, Parallelism
from shoal.system import notices
from shoal.training.evaluation import check_episodes
from shoal.training.stopping import call
from shoal.types import Algorithm, AnyEnvironment, Box, Environment, EnvSpec, Learner, PyTree, Scene, Seconds, Step
from shoal.video import animation
from shoal.video.picture import Frame

SHOWN = 1000
"""Largest number of steps recorded of an episode of a host environment."""

MAX_RECORDED_STEPS = 10_000
"""Largest number of steps recorded of an episode of a device environment."""

SHOWN_KEY = 1000
"""Seed of the episodes of a run that are shown."""


class RecordedEpisode(NamedTuple):
    """One episode, to be drawn."""

    states: list[PyTree]
    """T + 1 states of a device environment; empty for a host environment."""
    frames: "Sequence[Frame] | None"
    """T + 1 pictures; None if the environment has no renderer. Arrays of a device environment are drawn when they are
    read; those of a host environment may be :class:`SparsePictures`."""
    actions: np.ndarray
    """[T, N] or [T, N, A]."""
    rewards: np.ndarray
    """[T, N]."""
    metrics: dict[str, float]
    """The finite values of ``EnvSpec.metrics``; empty if the episode did not end."""
    decisions: dict[str, np.ndarray] | None = None
    """``obs`` [T, N, O] unless there are images, ``legal`` [T, N, A] and ``alive`` [T, N] of each step, and what the
    policy computed in it (``Algorithm.inspect``); None unless requested."""
    ended: bool = True
    """Whether the episode ended; False if it was truncated at the largest number of recorded steps."""


class Drawing(NamedTuple):
    """How much of an episode of a host environment is drawn, at equal intervals: each picture takes time and memory."""

    most: int
    """Largest number of pictures of the longest episode that is recorded, beside the last one."""
    seconds: Seconds
    """Time that they take at most, about."""

    def pause(self, spec: EnvSpec) -> Callable[[Seconds], int]:
        """(time that a picture took) -> the number of steps to the next one."""
        steps, fastest = min(spec.horizon, SHOWN) + 1, math.inf

        def pause(drawing: Seconds) -> int:
            nonlocal fastest
            first, fastest = fastest == math.inf, min(fastest, drawing)
            if first:
                return 1  # the first drawing may load the renderer
            return max(math.ceil(steps / self.most), math.ceil(fastest * steps / self.seconds))

        return pause


def record_episodes(
    env: AnyEnvironment,
    algorithm: Algorithm,
    learner: Learner,
    key: Key[Array, ""],
    episodes: int,
    greedy: bool = True,
    decisions: bool = False,
) -> list[RecordedEpisode]:
    """Play ``episodes`` episodes with one seed's policy (the learner's leaves have no seed axis).

    The initial state of each episode and the environment's random numbers depend only on ``key``, not on the algorithm.

    Args:
        env: the environment.
        algorithm: the algorithm.
        learner: its learner; ``policy`` is enough to act.
        key: the key of all episodes.
        episodes: number of episodes.
        greedy: act by the mode of the policy rather than by sampling.
        decisions: record :attr:`RecordedEpisode.decisions` as well.

    Raises:
        InputError: ``episodes`` is below 1.
        GameError: a host environment raised, or its process died or hung; not if only its renderer did, of which a
            warning is printed.
    """
    return record_each(env, algorithm, [learner], key, episodes, greedy, decisions)[0]


def record_each(
    env: AnyEnvironment,
    algorithm: Algorithm,
    learners: Sequence[Learner],
    key: Key[Array, ""],
    episodes: int,
    greedy: bool = True,
    decisions: bool = False,
    drawing: Drawing | None = None,
) -> list[list[RecordedEpisode]]:
    """:func:`record_episodes` with each of several learners, from the same initial states; compiled once.

    ``drawing`` limits the pictures of host environments; None draws every timestep.
    """
    check_episodes(episodes)
    keys = jax.random.split(key, episodes)
    act = observing(algorithm) if decisions else algorithm.act
    if isinstance(env, HostEnvironment):

        def watched(draws: bool) -> list[list[RecordedEpisode]]:
            pause = (drawing or Drawing(SHOWN + 1, math.inf)).pause(env.spec)
            with closing(_watching(env, algorithm, draws)) as rollout:
                play = partial(_recorded, rollout, act, greedy=greedy, decisions=decisions, pause=pause)
                return [[play(one, key) for key in keys] for one in learners]

        try:
            return watched(draws=True)
        except DrawingError as error:
            notices.warn(f"There are no pictures of {env.spec.name}: {error}.")
        return watched(draws=False)
    play = _on_device(env, algorithm, act, greedy, decisions)
    return [[play(one, key) for key in keys] for one in learners]


def _watching(env: HostEnvironment, algorithm: Algorithm, draws: bool) -> HostRollout:
    """A rollout of one game to be watched."""
    game = WatchedGame(env, draws)
    return HostRollout(env, algorithm.initial_carry, Parallelism(1, 1), 1, pool=game)


def observing(algorithm: Algorithm) -> Act:
    """``Algorithm.act`` whose extras are those of :attr:`RecordedEpisode.decisions` [E ...]."""

    def act(learner: Learner, carry: PyTree, step: Step, key: Array, greedy: bool) -> tuple[PyTree, Array, dict]:
        after, action, extras = algorithm.act(learner, carry, step, key, greedy)
        told = algorithm.inspect(learner, carry, step, action, extras) if algorithm.inspect else {}
        seen = {} if step.obs.dtype == jnp.uint8 else {"obs": step.obs}  # pictures would be too large to keep
        return after, action, seen | {"legal": step.legal, "alive": step.alive} | told

    return act


def _on_device(
    env: Environment, algorithm: Algorithm, act: Act, greedy: bool, decisions: bool
) -> Callable[[Learner, Array], RecordedEpisode]:
    """A compiled function that plays one episode."""
    space = env.spec.action

    def reset(key: Array) -> tuple[PyTree, Step, PyTree]:
        state, step = env.reset(key)
        return state, batched(step), algorithm.initial_carry(1)

    def batched(step: Step) -> Step:
        return jax.tree.map(lambda x: x[None], step._replace(metrics=()))

    def play(learner: Learner, key: Array) -> tuple:
        def step_once(loop: tuple, key: Array) -> tuple[tuple, tuple]:
            state, step, carry = loop
            key_act, key_step = jax.random.split(key)
            carry, action, extras = act(learner, carry, step, key_act, greedy)
            sent = jnp.clip(action, space.low, space.high) if isinstance(space, Box) else action
            state, outcome = env.step(key_step, state, sent[0])
            noted = {name: x[0] for name, x in extras.items()} if decisions else {}
            recorded = (state, sent[0], outcome.reward, outcome.last, outcome.metrics, noted)
            return (state, batched(outcome), carry), recorded

        key_reset, key_play = jax.random.split(key)
        start = reset(key_reset)
        return start[0], jax.lax.scan(
            step_once, start, jax.random.split(key_play, min(env.spec.horizon, MAX_RECORDED_STEPS))
        )[1]

    def cut(played: tuple) -> RecordedEpisode:
        first, (states, actions, rewards, last, metrics, noted) = jax.device_get(played)
        length = int(np.argmax(last)) + 1 if last.any() else len(last)
        states = [first] + [jax.tree.map(lambda x, t=t: x[t], states) for t in range(length)]
        frames = None if env.render is None else _pictures(env.render, states)
        final = metrics[length - 1] if last.any() and env.spec.metrics else ()
        told = {name: x[:length] for name, x in noted.items()} if decisions else None
        known = _known(env.spec, final)
        return RecordedEpisode(states, frames, actions[:length], rewards[:length], known, told, bool(last.any()))

    run = jax.jit(play)  # compiled once for all episodes
    return lambda learner, key: cut(call(run, learner, key))


class Pictures(Sequence[Frame]):
    """Pictures that are drawn each time they are read: those of a long episode would fill the memory."""

    def __init__(self, drawing: Sequence[Callable[[], Frame]]):
        self.drawing = list(drawing)

    def __len__(self) -> int:
        return len(self.drawing)

    @overload
    def __getitem__(self, index: int) -> Frame: ...

    @overload
    def __getitem__(self, index: slice) -> "Pictures": ...

    def __getitem__(self, index: int | slice) -> "Frame | Pictures":
        return Pictures(self.drawing[index]) if isinstance(index, slice) else self.drawing[index]()


def _pictures(render: Callable[[PyTree], Frame], states: Sequence[PyTree]) -> Sequence[Frame]:
    """The pictures of an episode's states; Scenes, which are small, are drawn immediately."""
    if isinstance(render(states[0]), Scene):
        return [render(state) for state in states]
    return Pictures([partial(render, state) for state in states])


class SparsePictures(Sequence[Frame]):
    """The pictures of an episode of which not all timesteps were drawn: the others have the last picture before."""

    def __init__(self, at: Sequence[int], pictures: Sequence[Frame], length: int):
        """``at``: the timesteps that were drawn, from 0 on; ``length``: the number of all."""
        self.at, self.pictures, self.length = np.asarray(at), pictures, length

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> Frame: ...

    @overload
    def __getitem__(self, index: slice) -> list[Frame]: ...

    def __getitem__(self, index: int | slice) -> Frame | list[Frame]:
        if isinstance(index, slice):
            return [self[t] for t in range(self.length)[index]]
        return self.pictures[int(np.searchsorted(self.at, range(self.length)[index], side="right")) - 1]


def _recorded(
    rollout: HostRollout,
    act: Act,
    learner: Learner,
    key: Array,
    greedy: bool,
    decisions: bool,
    pause: Callable[[Seconds], int],
) -> RecordedEpisode:
    """One episode of the only game of ``rollout``."""
    one = jax.tree.map(lambda x: x[None], learner)
    frames, actions, rewards, metrics, told, ended = {}, [], [], (), [], False
    for frame, action, outcome, extras in rollout.watch(act, one, key[None], greedy, pause):
        if frame is not None:
            frames[len(actions) + (action is not None)] = frame
        if action is not None and outcome is not None:
            actions.append(action)
            rewards.append(outcome.reward)
            ended = bool(outcome.last)
            metrics = outcome.metrics if ended else ()
            told.append(jax.device_get(extras) if decisions else {})
        if len(actions) == SHOWN:
            break
    drawn = None
    if 0 in frames:
        drawn, length = list(frames.values()), len(actions) + 1
        drawn = drawn if len(drawn) == length else SparsePictures(list(frames), drawn, length)
    noted = {name: np.stack([each[name][0, 0] for each in told]) for name in told[0]} if decisions else None
    known = _known(rollout.env.spec, metrics)
    return RecordedEpisode([], drawn, np.stack(actions), np.stack(rewards), known, noted, ended)


def _known(spec: EnvSpec, values: Sequence[Any] | np.ndarray) -> dict[str, float]:
    """The finite metrics of an episode by name; ``values`` is empty if it did not end."""
    return {name: float(x) for name, x in zip(spec.metrics, values, strict=False) if np.isfinite(x)}


def draw_episodes(
    played: Sequence[RecordedEpisode], env: AnyEnvironment, path: Path, title: str, most: int = animation.MAX_FRAMES
) -> Path:
    """Write an animated picture of recorded episodes of an environment, each of at most ``most`` frames.

    Raises:
        WriteError: it cannot be written.
    """
    drawn, spec = all(episode.frames for episode in played), env.spec
    frames, states = None, [state for episode in played for state in episode.states]
    fitted = getattr(env.render, "fitted", None) if isinstance(env, Environment) else None
    if drawn and fitted is not None and states:
        draw = fitted(states)
        frames = Pictures([partial(draw, state) for state in states])
    elif drawn and all(isinstance(episode.frames, Pictures) for episode in played):
        frames = Pictures([each for episode in played for each in cast(Pictures, episode.frames).drawing])
    elif drawn:
        frames = [frame for episode in played for frame in episode.frames or ()]
    rewards = [np.pad(e.rewards, ((drawn, 0), (0, 0))) for e in played]
    return animation.animate(
        frames,
        np.concatenate(rewards),
        path,
        title=title,
        actions=np.concatenate([e.actions for e in played]),
        first=np.concatenate([np.arange(len(r)) == 0 for r in rewards]),
        results=[texts.result_text(e.metrics) for e in played],
        scores=spec.scores,
        names=spec.agents,
        most=most,
    )
