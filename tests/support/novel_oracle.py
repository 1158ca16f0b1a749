"""An oracle of ``EnvSpec.novel``: what a global state holds of observations, seen from their numbers alone."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from shoal.game import blank, own_actions, refresh
from shoal.spec import Box, EnvSpec

Seen = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Observations [K, N, O], states [K, S] and who was alive [K, N], at K timesteps."""

TOLERANCE = 1e-4


def gather(timesteps: Iterable[Any]) -> Seen:
    """``obs``, ``state`` and ``alive`` of many timesteps, in double precision."""
    rows = [(np.array(m.obs, float), np.array(m.state, float), np.array(m.alive, bool)) for m in timesteps]
    obs, state, alive = zip(*rows, strict=True)
    return np.stack(obs), np.stack(state), np.stack(alive)


def random_play(game: Any, steps: int, seed: int = 0, choose: Callable[..., np.ndarray] | None = None) -> Seen:
    """Random legal play in a :class:`shoal.Game`, one episode after another."""
    spec, rng, timesteps = game.spec, np.random.default_rng(seed), []
    out, own = blank(spec), own_actions(spec)
    refresh(out, own)
    game.reset(seed, out)
    for step in range(steps):
        timesteps.append(out._replace(**{name: getattr(out, name).copy() for name in ("obs", "state", "alive")}))
        if out.last:
            refresh(out, own)
            game.reset(seed + step + 1, out)
            continue
        action = (choose or _chosen)(spec, out, rng)
        refresh(out, own)
        game.step(action, out)
    return gather(timesteps)


def _chosen(spec: EnvSpec, out: Any, rng: np.random.Generator) -> np.ndarray:
    if isinstance(spec.action, Box):
        shape = (spec.num_agents, spec.action.dim)
        return rng.uniform(spec.action.low, spec.action.high, shape).astype(np.float32)
    return np.array([rng.choice(np.flatnonzero(row)) for row in out.legal], np.int32)


def fresh(seen: Seen) -> np.ndarray:
    """bool [N, O]: features that vary, and are no single entry of the state up to shift, scale and clipping."""
    obs, state, alive = seen
    return np.stack([_fresh(obs[alive[:, i], i], state[alive[:, i]]) for i in range(obs.shape[1])])


def _fresh(x: np.ndarray, state: np.ndarray) -> np.ndarray:
    known: dict[bytes, bool] = {}  # many columns are alike
    for column in x.T:
        if column.tobytes() not in known:
            known[column.tobytes()] = not _held(column, state)
    return np.array([known[column.tobytes()] for column in x.T])


def _held(x: np.ndarray, state: np.ndarray) -> bool:
    """Whether x [K] is constant, or min(max(a s + b, low), high) of one column s of ``state`` [K, S]."""
    low, high = x.min(), x.max()
    if high - low < TOLERANCE:
        return True
    inside = (x > low + TOLERANCE) & (x < high - TOLERANCE)
    if inside.any() and np.ptp(x[inside]) > TOLERANCE:
        y, s = x[inside], state[inside]
    else:
        y, s = x, state
    n, mean, middle = len(y), y.mean(), s.mean(0)
    along, spread = y @ s / n - mean * middle, np.einsum("ks,ks->s", s, s) / n - middle**2
    for j in np.flatnonzero(along**2 > 0.99 * spread * y.var()):  # correlated; an exact fit is among these
        if spread[j] > 1e-12:
            guess = np.clip(mean + (state[:, j] - middle[j]) * along[j] / spread[j], low, high)
            if np.abs(guess - x).max() < TOLERANCE * max(1.0, high - low):
                return True
    return False


def check_novel(spec: EnvSpec, seen: Seen, hidden: bool = False, least: float = 1.0) -> None:
    """Assert that the state holds all features outside ``spec.novel``, and lacks a share ``least`` of those in it.

    With ``hidden``, what an agent does not see reads zero: then a feature is held where the state has it while some
    novel feature is not zero, and it is zero while that is.
    """
    assert spec.novel is not None
    obs, state, alive = seen
    novel, found = set(spec.novel), fresh(seen)
    for i, width in enumerate(spec.obs_dims):
        x, s = obs[alive[:, i], i], state[alive[:, i]]
        gates = [x[:, g] != 0 for g in sorted(novel) if g < width] if hidden else []
        for f in np.flatnonzero(found[i, :width]):
            assert f in novel or any(_gated(x[:, f], s, gate) for gate in gates), (
                f"{spec.agents[i]}'s feature {f} is not in the state"
            )
    assert np.any(found, 0)[list(spec.novel)].sum() >= least * len(spec.novel), (
        f"the state holds {sorted(novel - set(np.flatnonzero(np.any(found, 0)).tolist()))}"
    )


def _gated(x: np.ndarray, state: np.ndarray, gate: np.ndarray) -> bool:
    return not x[~gate].any() and (gate.sum() < 2 or _held(x[gate], state[gate]))
