"""A small game on the host that does everything right, and the same game with one fault at a time."""

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep
from shoal.spec import Discrete, EnvSpec

HORIZON = 10
SPEC = EnvSpec(
    name="faulty/none",
    agents=("red", "blue"),
    obs_dims=(3, 2),
    state_dim=2,
    action=Discrete(3),
    action_dims=(3, 2),
    roles=(0, 1),
    horizon=HORIZON,
    shared_reward=False,
)

Alter = Callable[["Game", HostTimestep], Any]


def at(t: int, alter: Alter) -> Alter:
    return lambda game, out: alter(game, out) if game.t == t else None


def gone(game: "Game", out: HostTimestep, discount: float, paid: bool, seen: bool = False) -> None:
    """Blue is gone from step 4 on, but is still there at the end of the reckoning."""
    if game.t >= 4:
        out.alive[1] = False
        out.obs[1] = 1.0 if seen else 0.0
        out.obs[1, 2] = 0.0
        out.reward[1] *= paid
    if game.t == 4:
        out.discount[1] = discount


def shared_by_the_living(game: "Game", out: HostTimestep) -> None:
    """Blue dies at step 4 and earns nothing after it; until then both earn the same."""
    out.reward[:] = game.t
    gone(game, out, 0.0, paid=game.t <= 4)


def fall_apart(game: Any, out: HostTimestep) -> None:
    raise ValueError("which wheel fell off?")


def refuse(game: Any, out: HostTimestep) -> None:
    raise InputError("A wheel is missing.")


def tire(game: "Game", out: HostTimestep) -> None:
    """All episodes but the first end at step 4, and cannot be played any further."""
    if game.total > HORIZON and game.t >= 4:
        if game.t > 4:
            fall_apart(game, out)
        out.last[...] = True


def share(game: "Game", out: HostTimestep) -> None:
    """Blue's luck comes from NumPy's global generator, which each reset seeds. Red may move as this luck has it."""
    if game.t == 0:
        np.random.seed(game.length)  # noqa: NPY002
    out.obs[1, 0] = luck = np.random.random()  # noqa: NPY002
    if game.moved is not None and not game.allowed[game.moved]:
        raise ValueError("red has cheated")
    game.allowed[:] = True
    game.allowed[int(3 * luck)] = False
    out.legal[0] = game.allowed


def put(field: str, index: Any, value: Any) -> Alter:
    def alter(game: Any, out: HostTimestep) -> None:
        getattr(out, field)[index] = value

    return alter


FAULTS: dict[str, Alter] = {
    "nan": at(4, put("obs", (1, 0), np.nan)),
    "infinite reward": at(3, put("reward", 0, np.inf)),
    "nan state": at(2, put("state", 1, np.nan)),
    "no legal": at(5, put("legal", 0, False)),
    "beyond": at(2, put("legal", (1, 2), True)),
    "padding": at(3, put("obs", (1, 2), 7.0)),
    "wrong shape": at(3, put("obs", (1, slice(2)), np.zeros(5))),
    "paid at reset": at(0, put("reward", 1, 2.0)),
    "over at reset": at(0, put("last", (), True)),
    "nobody": at(0, put("alive", (), False)),
    "endless": put("last", (), False),
    "half": at(3, put("discount", (), 0.5)),
    "goes on": at(4, put("discount", (), 0.0)),
    "clock ends": at(HORIZON, put("discount", (), 0.0)),
    "cut early": lambda game, out: put("last", (), game.t == game.length)(game, out),
    "blind": put("obs", 0, 1.0),
    "still": put("state", (), 1.0),
    "poor": put("reward", (), 0.0),
    "alike": lambda game, out: put("reward", (), game.t % 2)(game, out),
    "dies": lambda game, out: gone(game, out, 0.0, paid=False),
    "dies for the team": lambda game, out: gone(game, out, 1.0, paid=True),
    "dies and is paid": lambda game, out: gone(game, out, 0.0, paid=True),
    "dies unsaid": lambda game, out: gone(game, out, 1.0, paid=False),
    "dies and shows": lambda game, out: gone(game, out, 0.0, paid=False, seen=True),
    "shared by the living": lambda game, out: shared_by_the_living(game, out),
    "undead": at(4, put("discount", 1, 0.0)),
    "chance": lambda game, out: put("obs", (0, 1), np.random.default_rng().random())(game, out),
    "memory": lambda game, out: put("obs", (0, 1), game.total)(game, out),
    "shares": lambda game, out: share(game, out),
    "tires": tire,
    "segfault": at(3, lambda game, out: os.kill(os.getpid(), signal.SIGSEGV)),
    "exit": at(3, lambda game, out: os._exit(3)),
    "sys.exit": at(3, lambda game, out: sys.exit("enough")),
    "exit at reset": at(0, lambda game, out: os._exit(4)),
    "hang": at(3, lambda game, out: time.sleep(60)),
    "child keeps the pipe": at(3, lambda game, out: (os.fork() and os._exit(5)) or time.sleep(60)),
    "prints": lambda game, out: print("noise"),
    "raises": at(3, fall_apart),
    "raises at reset": at(0, fall_apart),
    "refuses": at(3, refuse),
}
SPECS: dict[str, dict[str, Any]] = {
    "claims": {"shared_reward": True},
    "claims of sides": {"sides": (0, 0)},
    "shared by the living": {"shared_reward": True},
    "roles": {"roles": (0, 2)},
}


class Game:
    """Both see luck and time; each earns what it played, and a little more."""

    def __init__(self, fault: str = "", render: bool = False):
        if fault == "unmakeable":
            fall_apart(None, None)  # type: ignore[arg-type]
        if fault == "exit on making":
            os._exit(6)
        self.fault, self.t, self.length, self.total = fault, 0, 0, 0
        self.spec = replace(SPEC, **SPECS.get(fault, {}))
        self.random = np.random.default_rng()
        self.moved: int | None = None
        self.allowed = np.ones(3, bool)

    def reset(self, seed: int, out: HostTimestep) -> None:
        self.random = np.random.default_rng(0 if self.fault == "seedless" else seed)
        self.t, self.length, self.moved = 0, 3 + seed % 4, None
        self._show(out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        self.t += 1
        self.total += 1
        self.moved = int(action[0])
        out.reward[:] = np.add(action, (0.25, 0.5))
        out.last[...] = self.t >= HORIZON
        self._show(out)

    def _show(self, out: HostTimestep) -> None:
        out.obs[0] = (*self.random.random(2), self.t)
        out.obs[1, :2] = (self.random.random(), self.t)
        if not (self.fault == "unwritten" and self.t == 6):
            out.state[:] = (self.random.random(), self.t)
        if self.fault in FAULTS:
            FAULTS[self.fault](self, out)

    def render(self) -> None:
        return None

    def close(self) -> None:
        if self.fault == "slow to close":
            time.sleep(0.02)
        if self.fault == "exit on closing":
            os._exit(7)
        if self.fault == "raises on closing":
            fall_apart(self, None)  # type: ignore[arg-type]


def nan_then_exit(game: "Game", out: HostTimestep) -> None:
    FAULTS["nan"](game, out)
    if game.t == 6:
        os._exit(9)


FAULTS["nan, then exit"] = nan_then_exit
made: list["Game"] = []


def second_exits() -> "Game":
    """A sound game; in one process, the second that is made ends it."""
    if made:
        os._exit(10)
    made.append(Game())
    return made[-1]


def listed(*, sizes: list[int] | None = None) -> HostEnvironment:
    """Takes an option of a type that no flag has."""
    return make()


calls: list[dict[str, Any]] = []
"""The options that :func:`flexible` was called with."""


def make(fault: str = "") -> HostEnvironment:
    """A game with a fault.

    Args:
        fault: which; nothing for none.
    """
    spec = replace(SPEC, **SPECS.get(fault, {}))
    return HostEnvironment(spec, functools.partial(Game, fault))


def flexible(fault: str = "", **options: Any) -> HostEnvironment:
    """A game that takes any option, and does nothing with it."""
    calls.append(options)
    return make(fault)


def calls_back() -> Any:
    """A device environment whose host callback ends the process on step 3."""
    import jax
    import jax.numpy as jnp

    import toys

    spec = toys.spec_of("faulty/device", (1,), Discrete(2), HORIZON)

    def look(t: Any) -> np.ndarray:
        if t == 3:
            os._exit(8)
        return np.asarray(t, np.float32)

    def shown(t: Any, first: bool) -> Any:
        seen = jax.pure_callback(look, jax.ShapeDtypeStruct((), jnp.float32), t)
        return t, toys.step_of(spec, jnp.ones(1) * seen, 0.0, False, False, first)

    return toys.Environment(spec, lambda key: shown(jnp.int32(0), True), lambda key, t, action: shown(t + 1, False))
