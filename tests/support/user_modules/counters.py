"""One small environment written twice, for the device and for the host, to be the same number for number. The host's
half knows no JAX: worker processes import it.

Two counters with ragged rows; agent i adds its action + 1 to its own, modulo 16. Termination when both agree, a time
limit, an agent that dies while the other plays on, an action that is illegal for a while. An episode is won where both
agree, and the gap between the counters is a metric that is known while both agents live. All numbers are exact.
"""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shoal.game import Game, HostEnvironment, HostTimestep
from shoal.spec import Box, Discrete, EnvSpec

HORIZON = 6


def spec_of(continuous: bool = False) -> EnvSpec:
    return EnvSpec(
        name="toys/counters",
        agents=("one", "two"),
        obs_dims=(2, 3),
        state_dim=3,
        action=Box(2, -1.0, 3.0) if continuous else Discrete(3),
        action_dims=(1, 2) if continuous else (2, 3),
        roles=(0, 1),
        horizon=HORIZON,
        shared_reward=False,
        metrics=("won", "gap"),
    )


class Counters:
    """The host's."""

    def __init__(self, continuous: bool = False, trouble: str = "", folder: str = ""):
        self.spec, self.continuous, self.trouble, self.folder = spec_of(continuous), continuous, trouble, Path(folder)
        self.x, self.t, self.alive = np.zeros(2, int), 0, True
        self.played = 0
        if trouble == "program":
            subprocess.Popen(["sleep", "600"])
        self.slow = trouble == "slow" and self.first()

    def reset(self, seed: int, out: HostTimestep) -> None:
        if self.trouble == "reset" or (self.trouble == "second reset" and self.played):
            raise RuntimeError("no board")
        self.x = np.array([seed % 16, seed // 16 % 16])
        self.t, self.alive = 0, True
        self.look(out)
        if self.trouble == "nan at reset":
            out.obs[1, 0] = np.nan

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        self.misbehave()
        alive = np.array([True, self.alive])
        moved = np.round(action[:, 0] + 1).astype(int) if self.continuous else action + 1
        self.x = (self.x + np.where(alive, moved, 0)) % 16
        self.t += 1
        self.alive = self.alive and self.x[1] < 12
        out.reward[...] = np.where(alive, self.x / 16, 0)
        if self.trouble == "nan" and self.t == 3:
            out.reward[1] = np.nan
        ended = self.x[0] == self.x[1]
        out.discount[...] = 0.0 if ended else 1.0
        out.last[...] = ended or self.t >= HORIZON
        if self.trouble == "endless":
            out.discount[...], out.last[...] = 1.0, False
        out.metrics[0] = ended
        if self.alive:
            out.metrics[1] = abs(self.x[0] - self.x[1])
        self.look(out)

    def look(self, out: HostTimestep) -> None:
        seen = self.x / 16
        out.obs[0, :2] = seen[0], self.t / 8
        out.obs[1, :3] = (seen[1], seen[0], self.t / 8) if self.alive else (0, 0, 0)
        out.state[...] = *seen, self.t / 8
        out.alive[1] = self.alive
        if not self.continuous:
            out.legal[1, 2] = self.t % 2 == 0

    def misbehave(self) -> None:
        """Do what the test asks."""
        self.played += 1
        if (self.trouble == "raise" and self.t == 2) or (self.trouble == "raise later" and self.played > 40):
            raise ValueError("the counter is stuck.")
        if self.trouble == "exit" and self.t == 2:
            sys.exit(0)
        if self.slow:
            time.sleep(0.05)
        if self.trouble in ("die", "die and break", "hang", "program") and self.t == 3 and self.first():
            if self.trouble in ("hang", "program"):
                time.sleep(600)
            os._exit(7)
        if self.trouble == "close its pipes" and self.t == 3 and self.first():
            os.closerange(3, 256)
            time.sleep(600)
        if self.trouble == "die in every episode" and self.t == 1:
            os._exit(7)
        if self.trouble == "die always":
            os._exit(7)

    def first(self) -> bool:
        """Whether no game with this folder has asked before."""
        try:
            (self.folder / "done").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def render(self) -> np.ndarray:
        return np.full((20, 30, 3), 10 * self.t, np.uint8)

    def close(self) -> None:
        if self.trouble in ("raise", "close") and self.folder.name:
            (self.folder / f"closed {id(self)} {os.getpid()}").touch()
        if self.trouble == "hang at the end":
            time.sleep(600)
        if self.trouble == "close":
            raise RuntimeError("the lid is stuck")


def new(continuous: bool = False, trouble: str = "", folder: str = "", render: bool = False) -> Game:
    if trouble == "make" or (trouble == "die and break" and (Path(folder) / "done").exists()):
        raise OSError("no licence")
    return Counters(continuous, trouble, folder)


def hosted(continuous: bool = False, trouble: str = "", folder: str = "") -> HostEnvironment:
    """Counters in worker processes."""
    return HostEnvironment(spec_of(continuous), partial(new, continuous, trouble, folder))


def algorithm(name: str = "ippo", num_envs: int = 3, **flags: Any) -> Any:
    """An algorithm for counters, small."""
    from shoal import algorithms
    from shoal.options.flags import override
    from shoal.types import Scale

    module = algorithms.get(name)
    config = override(module.Config(), {"hidden": (8,)} | flags)
    return module.make(spec_of(), config, Scale(num_envs, 9, 1))


def device(continuous: bool = False) -> Any:
    """Counters on the device."""
    import jax
    import jax.numpy as jnp

    from shoal.types import Environment, Step

    spec = spec_of(continuous)
    own = jnp.arange(spec.action.width) < jnp.array(spec.action_dims)[:, None]

    def look(state: Any, reward: Any, ended: Any, first: bool) -> Step:
        x, t, alive = state
        seen, clock = x / 16, t / 8
        rows = jnp.stack([jnp.stack([seen[0], clock, 0.0]), jnp.where(alive, jnp.stack([seen[1], seen[0], clock]), 0)])
        legal = own if continuous else own & ~((jnp.arange(3) == 2) & (jnp.arange(2)[:, None] == 1) & (t % 2 != 0))
        return Step(
            obs=rows,
            state=jnp.stack([*seen, clock]),
            legal=legal,
            alive=jnp.stack([jnp.array(True), alive]),
            reward=reward,
            discount=jnp.full(2, jnp.where(ended, 0.0, 1.0)),
            first=jnp.array(first),
            last=ended | (t >= HORIZON),
            metrics=jnp.stack([jnp.float32(ended), jnp.where(alive, jnp.abs(x[0] - x[1]), jnp.nan)]),
        )

    def reset(key: Any) -> Any:
        seed = (jax.random.key_data(key)[-1] & 0x7FFFFFFF).astype(jnp.int32)
        state = jnp.stack([seed % 16, seed // 16 % 16]), jnp.int32(0), jnp.array(True)
        return state, look(state, jnp.zeros(2), jnp.array(False), True)

    def step(key: Any, state: Any, action: Any) -> Any:
        x, t, alive = state
        both = jnp.stack([jnp.array(True), alive])
        moved = jnp.round(action[:, 0] + 1).astype(jnp.int32) if continuous else action + 1
        x = (x + jnp.where(both, moved, 0)) % 16
        after = x, t + 1, alive & (x[1] < 12)
        return after, look(after, jnp.where(both, x / 16, 0.0), x[0] == x[1], False)

    return Environment(spec, reset, step)
