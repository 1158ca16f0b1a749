"""Episodes that nobody played, and runs that they could be of: nothing is compiled for them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import ippo
from shoal.environments import registry
from shoal.reporting import replays as module
from shoal.runs.run import Run
from shoal.training.episodes import RecordedEpisode
from shoal.training.settings import Settings
from shoal.types import Learner

NO_LEARNER = Learner({"none": jnp.zeros(2)}, (), (), (), jnp.zeros(2, int))
"""Of two seeds."""


def made_of(patch: pytest.MonkeyPatch, episodes: list[RecordedEpisode]) -> list[int]:
    """Let every seed of every run have played ``episodes``; returns a list of how many learners each call plays."""
    calls: list[int] = []

    def record_each(env: Any, algorithm: Any, learners: list[Learner], *_: Any, **__: Any) -> list:
        calls.append(len(learners))
        return [episodes for _ in learners]

    patch.setattr(module, "learner_with_critic", lambda *_: NO_LEARNER)
    patch.setattr(module, "record_each", record_each)
    return calls


def start_of(env: Any) -> Any:
    """A state after a reset; compiled as a whole, which takes a tenth of the time of its operations one by one."""
    return jax.device_get(jax.jit(env.reset)(jax.random.key(0))[0])


def run_in(folder: Path, env: Any) -> Run:
    return Run(folder, "ippo", env.spec.name, {}, Settings(), ippo.Config(), env)


def battle(folder: Path) -> tuple[Run, RecordedEpisode]:
    """Of 3m: ally 0 attacks enemy 0 in the first step and kills it in the second."""
    env = registry.make("skirmish/3m")
    start = start_of(env)
    shot = np.array([0, -1, -1, -1, -1, -1], np.int32)
    states = [start]
    for health in (20.0, 0.0):
        last = states[-1]
        hurt = np.array(last.health)
        hurt[3] = health
        states.append(last._replace(x=last.x + 0.5, health=hurt, shot=shot, t=last.t + 1))
    return run_in(folder, env), episode_of(env, states, won=1.0)


def long_battle(folder: Path) -> tuple[Run, list[RecordedEpisode]]:
    """Two episodes of 150 steps of 10m_vs_11m in which everything is noise."""
    env, rng = registry.make("skirmish/10m_vs_11m", horizon=150), np.random.default_rng(0)
    start = start_of(env)
    walk = np.cumsum(rng.normal(size=(151, *start.x.shape)) * 0.1, 0)
    states = [start._replace(x=start.x + step) for step in walk]
    return run_in(folder, env), [episode_of(env, states, seed) for seed in (1, 2)]


def painted(folder: Path) -> tuple[Run, RecordedEpisode]:
    """Of an environment that renders pictures, of which the second and the third are the same."""
    env = replace(registry.make("mpe/simple_spread"), outline=None)
    state = start_of(env)
    frames = [np.full((40, 60, 3), shade, np.uint8) for shade in (0, 90, 90, 200)]
    for frame in frames:
        frame[10:20, 10:30, 0] = 255
    return run_in(folder, env), episode_of(env, [state] * 4)._replace(frames=frames)


def bare(folder: Path) -> tuple[Run, RecordedEpisode]:
    """Of an environment that shows nothing."""
    env = registry.make("matrix/climbing")
    return run_in(folder, env), episode_of(env, [None] * 6)._replace(states=[])


def episode_of(env: Any, states: list[Any], seed: int = 0, **metrics: float) -> RecordedEpisode:
    """An episode of these states with random observations, rewards and actions."""
    rng, spec, length = np.random.default_rng(seed), env.spec, len(states) - 1
    shape = (length, spec.num_agents)
    actions = np.minimum(rng.integers(0, 9, shape), np.array(spec.action_dims) - 1).astype(np.int32)
    legal = rng.random((*shape, spec.action.width)) < 0.7
    np.put_along_axis(legal, actions[..., None], True, -1)
    decisions = {
        "obs": rng.normal(size=(*shape, spec.obs_dim)).astype(np.float32),
        "legal": legal,
        "alive": np.ones(shape, bool),
        "utilities": np.where(legal, rng.normal(size=legal.shape), np.nan).astype(np.float32),
    }
    rewards = rng.normal(size=shape).astype(np.float32)
    return RecordedEpisode(states, None, actions, rewards, metrics, decisions)


def pushing(folder: Path) -> tuple[Run, RecordedEpisode]:
    """Of a speaker and a listener with continuous actions: both have 5 components, of which the speaker uses 3."""
    env, rng = registry.make("mpe/simple_speaker_listener", continuous_actions=True), np.random.default_rng(0)
    state = start_of(env)
    used = np.arange(5) < np.array(env.spec.action_dims)[:, None]
    mean = np.where(used, rng.random((2, 2, 5)), np.nan).astype(np.float32)
    actions = np.where(used, np.clip(np.nan_to_num(mean) + 0.1, 0.0, 1.0), 0.0).astype(np.float32)
    told = {
        "obs": rng.normal(size=(2, 2, env.spec.obs_dim)).astype(np.float32),
        "alive": np.ones((2, 2), bool),
        "mean": mean,
        "std": np.full_like(mean, 0.2),
    }
    rewards = np.array([[-1.5812, -1.5812], [-1.5905, -1.5905]], np.float32)
    return run_in(folder, env), RecordedEpisode([state] * 3, None, actions, rewards, {}, told)


def talking(folder: Path, label: int) -> tuple[Run, RecordedEpisode]:
    """Of two agents that move, talk, and attend to each other; each label has other actions and the same start."""
    env, rng = registry.make("mpe/simple_reference"), np.random.default_rng(label)
    start = start_of(env)
    word = np.eye(10)[[2, 5]]
    walk = np.cumsum(rng.normal(size=(9, *start.pos.shape)) * 0.1, 0) * (np.arange(9) > 0)[:, None, None]
    states = [start._replace(pos=start.pos + step, comm=word) for step in walk]
    episode = episode_of(env, states, label)
    told = episode.decisions or {}
    legal = told.pop("legal")
    shares = np.where(legal, rng.random(legal.shape), 0.0)
    told |= {
        "legal": legal,
        "probabilities": shares / shares.sum(-1, keepdims=True),
        "attention": rng.dirichlet(np.ones(2), (8, 2)),
        "value": rng.normal(size=(8, 2)),
    }
    del told["utilities"]
    return run_in(folder, env), episode
