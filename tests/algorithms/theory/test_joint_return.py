"""HATRPO and HAPPO in games solved exactly: the team's return does not fall, which without M or line search it does.

Batches hold every path as often as its probability says, so that there is next to no sampling error; what the joint
policy is worth is computed, not estimated. In a game of one step J(π̃) − J(π) *is* Σ_m E[(r − 1) M A], however large
the steps; in longer games new states come in, which the trust region holds small.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms import get, happo, hatrpo
from shoal.equations.distributions import Categorical
from shoal.equations.trust_region import Search
from shoal.models.actor_critic import make_nets
from shoal.networks.sharing import policy_of
from shoal.options.flags import override
from shoal.types import Learner, Scale
from support import tabular_games as games

pytestmark = pytest.mark.slow

COUNT, GAMES = 4096, 8
"""Episodes of a batch; random games."""
ACTIONS, STATES = (5, 4), 4
FLAGS = {
    "output_gain": 1.0,
    "gamma": 1.0,
    "lam": 1.0,
    "critic_input": "state",
    "value_norm": "none",
    "value_clip": None,
    "entropy_coef": 0.0,
    "learning_rate": 0.05,
    "epochs": 20,
    "block": 10**6,
}
FAR = {"hidden": (2,), "activation": "relu", "output_gain": 3.0, "max_kl": 20.0, "damping": 1e-3}
"""Steps far beyond where a gradient means anything, of nets too narrow for them."""
ROUNDING = 0.005
"""What is left of the sampling error: paths are counted, not weighed."""


def problem(horizon: int, seed: int) -> games.Game:
    """A door for one: going (action 0) earns 1 alone and −1 together; random rewards, and what follows, are added."""
    rng = np.random.default_rng(seed)
    game = games.episodic(rng, ACTIONS, STATES, horizon)
    going = (np.indices(ACTIONS) == 0).sum(0)
    return game._replace(reward=0.2 * game.reward + np.where(going == 1, 1.0, -1.0 * (going > 1)))


class Program(NamedTuple):
    """Of ``GAMES`` teams side by side, one in each game."""

    horizon: int
    init: Callable[..., Learner]
    update: Callable[..., Any]
    policies: Callable[[Learner], Any]
    """[GAMES, N, S, A]."""


def build(name: str, horizon: int, **flags: Any) -> Program:
    spec, config = games.spec(problem(horizon, 0)), override(get(name).Config(), {"hidden": (8,)} | FLAGS | flags)
    algorithm = get(name).make(spec, config, Scale(COUNT, horizon, 100))
    actor = make_nets(spec, config, policy_of(spec, config.sharing)).actor
    everywhere = games.everywhere(problem(horizon, 0))

    def policies(learner: Learner) -> Any:
        dist = actor.distribution(learner.policy.actor, (), everywhere)[1]
        assert isinstance(dist, Categorical)
        return jnp.swapaxes(dist.probabilities()[0], 0, 1)

    return Program(horizon, *(jax.jit(jax.vmap(f)) for f in (algorithm.init, algorithm.update, policies)))


def gains(program: Program, updates: int) -> np.ndarray:
    """What each update adds to J [updates, GAMES]; NaN where a team is so sure that its batch lacks paths."""
    posed = [problem(program.horizon, seed) for seed in range(GAMES)]
    learner = program.init(jax.random.split(jax.random.key(0), GAMES))
    returns, whole = [], []
    for k in range(updates + 1):
        teams = []
        for policies in np.asarray(program.policies(learner), np.float64):
            own = [p[:, :n] for p, n in zip(policies, ACTIONS, strict=True)]
            teams.append([p / p.sum(-1, keepdims=True) for p in own])
        returns.append([games.solve(game, team).ret for game, team in zip(posed, teams, strict=True)])
        whole.append([COUNT * math.prod(p.min() for p in team) > 1 for team in teams])
        batches = [games.episodes(game, team, COUNT) for game, team in zip(posed, teams, strict=True)]
        batch = jax.tree.map(lambda *x: jnp.stack(x), *batches)
        learner, _ = program.update(learner, batch, jax.random.split(jax.random.key(k), GAMES))
    return np.where(whole[:-1], np.diff(returns, axis=0), np.nan)


@pytest.mark.parametrize(("horizon", "flags", "updates"), [(1, FAR, 1), (2, {"max_kl": 0.05}, 4)], ids=["far", "near"])
def test_hatrpo_never_makes_the_team_worse(horizon: int, flags: dict[str, Any], updates: int) -> None:
    gain = gains(build("hatrpo", horizon, **flags), updates)
    assert np.isfinite(gain).mean() > 0.7
    assert np.nanmin(gain) > -ROUNDING
    assert np.nanmean(gain) > 0.1


def test_happo_does_not_make_the_team_worse() -> None:
    gain = gains(build("happo", 1, clip=1.0), 2)
    assert np.isfinite(gain).mean() > 0.4
    assert np.nanmin(gain) > -ROUNDING


@pytest.mark.parametrize(("name", "flags"), [("hatrpo", FAR), ("happo", {"clip": 1.0})], ids=["hatrpo", "happo"])
def test_without_the_factor_m_the_return_falls(
    name: str, flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tests above would see if an agent did not know what those before it have become."""
    monkeypatch.setattr(happo, "importance_ratio", jnp.ones_like)
    assert gains(build(name, 1, **flags), 1).min() < -0.1


def test_without_a_line_search_steps_go_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above would see if every step were taken in full."""

    def all_of_it(trial: Callable[..., Any], expected: Any, **_: Any) -> Search:
        return Search(jnp.ones_like(expected), *trial(jnp.ones_like(expected)))

    monkeypatch.setattr(hatrpo, "line_search", all_of_it)
    assert gains(build("hatrpo", 1, **FAR), 1).min() < -0.3
