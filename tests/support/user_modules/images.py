"""A small game of images, on the device and on the host, with the same numbers in both forms."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.environments.rows import as_bytes
from shoal.game import HostEnvironment, HostTimestep, own_actions
from shoal.spec import Discrete, EnvSpec, Part
from shoal.types import Environment, Step

IMAGE = Part((8, 8, 3), "uint8", "view")
VECTOR = Part((2,), "float32", "clock")
HORIZON = 6
"""The last agent is dead at the timestep before the last."""


def spec_of(mixed: bool) -> EnvSpec:
    """Two agents observe an image each; if ``mixed``, the second has two numbers beside it."""
    parts = ((IMAGE,), (IMAGE, VECTOR)) if mixed else ((IMAGE,), (IMAGE,))
    return EnvSpec(
        name="glimpse",
        agents=("left", "right"),
        obs_dims=(192, 200 if mixed else 192),
        state_dim=0,
        action=Discrete(3),
        action_dims=(3, 2),
        roles=(0, 1) if mixed else (0, 0),
        horizon=HORIZON,
        shared_reward=True,
        parts=parts,
    )


def picture(xp: Any, t: Any, luck: Any, agent: int) -> Any:
    """The image that an agent observes after ``t`` steps, uint8 [8, 8, 3]."""
    values = xp.arange(192).reshape(8, 8, 3) * 5 + luck * 31 + t * 17 + agent * 50
    return (values % 256).astype("uint8")


def clock(xp: Any, t: Any, luck: Any) -> Any:
    """The numbers that the second agent observes, float32 [2]."""
    return xp.stack([t + 0.1, -1.5 * luck]).astype("float32")


def look(xp: Any, mixed: bool, t: Any, luck: Any, action: Any) -> dict[str, Any]:
    rows = [picture(xp, t, luck, agent).reshape(-1) for agent in range(2)]
    if mixed:
        rows[0] = xp.concat([rows[0], xp.zeros(8, "uint8")])
        rows[1] = xp.concat([rows[1], as_bytes(clock(xp, t, luck))])
    alive = (xp.arange(2) < 1) | (t != HORIZON - 1)
    paid = (action == (t + luck) % 2).mean() * (t > 0)
    return {
        "obs": xp.where(alive[:, None], xp.stack(rows), 0),
        "alive": alive,
        "reward": (xp.ones(2) * paid).astype("float32"),
        "discount": xp.ones(2).astype("float32"),
        "last": t >= HORIZON,
    }


def device(mixed: bool = True) -> Environment:
    spec = spec_of(mixed)

    def shown(t: Any, luck: Any, action: Any) -> tuple[Any, Step]:
        fields = look(jnp, mixed, t, luck, action)
        step = Step(**fields, state=jnp.zeros(0), legal=jnp.asarray(own_actions(spec)), first=t == 0)
        return (t, luck), step

    def reset(key: Any) -> tuple[Any, Step]:
        return shown(jnp.int32(0), jax.random.key_data(key)[-1].astype(jnp.int32) % 7, jnp.zeros(2, jnp.int32))

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Step]:
        return shown(state[0] + 1, state[1], action)

    return Environment(spec, reset, step)


class Glimpse:
    """The host form."""

    def __init__(self, mixed: bool = True, render: bool = False):
        self.spec, self.mixed = spec_of(mixed), mixed

    def reset(self, seed: int, out: HostTimestep) -> None:
        self.t, self.luck = -1, np.int32(seed % 7)
        self.step(np.zeros(2, np.int32), out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        self.t += 1
        for name, x in look(np, self.mixed, np.int32(self.t), self.luck, action).items():
            getattr(out, name)[...] = x

    def render(self) -> np.ndarray | None:
        return None

    def close(self) -> None:
        pass


def host(mixed: bool = True) -> HostEnvironment:
    return HostEnvironment(spec_of(mixed), functools.partial(Glimpse, mixed))
