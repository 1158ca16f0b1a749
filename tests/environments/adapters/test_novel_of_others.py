"""``EnvSpec.novel`` of the adapters: what the states of others' environments hold, by random play. SMAC's, SMAX's and
Brax's stand beside their other tests."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from shoal.environments import registry
from shoal.environments.adapters import football, foreign
from shoal.errors import InputError
from shoal.game import HostTimestep, blank
from shoal.spec import Discrete, EnvSpec
from support.novel_oracle import check_novel, fresh, gather, random_play

_OLD = pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")


def game_of(name: str, **options: Any) -> Any:
    made = registry.make(name, **options)
    assert isinstance(made, shoal.HostEnvironment)
    game = made.make()
    assert game.spec == made.spec
    return game


@pytest.mark.parametrize(
    ("name", "library", "options"),
    [
        ("lbf/2s-6x6-2p-1f-coop", "lbforaging", {"backend": "host"}),
        ("rware/tiny-2ag", "rware", {"backend": "host"}),
        ("gymnasium:CartPole-v1", "gymnasium", {}),
        ("pettingzoo:mpe2.simple_tag_v3", "mpe2", {}),
        pytest.param("pettingzoo:classic.tictactoe_v3", "pettingzoo", {}, marks=_OLD),
    ],
)
def test_a_state_of_all_observations_holds_everything(name: str, library: str, options: dict[str, Any]):
    pytest.importorskip(library)
    game = game_of(name, **options)
    assert game.spec.novel == ()
    check_novel(game.spec, random_play(game, 60))
    game.close()


@pytest.mark.parametrize("task", ["mini-3p", "small-2p"])
def test_hanabis_state_holds_what_is_the_same_from_every_seat(task: str):
    pytest.importorskip("pyspiel")
    game = game_of(f"hanabi/{task}", backend="host")
    seen = random_play(game, 700)
    check_novel(game.spec, seen, least=0.85)  # some cards are never known, and few hands lack one
    assert not fresh(seen)[:, [i for i in range(game.spec.obs_dim) if i not in game.spec.novel]].any()


@pytest.mark.parametrize(
    ("task", "depth", "novel"),
    [("Ant-4x2", 1, 0), ("HalfCheetah-6x1", 1, 0), ("Hopper-3x1", 0, 0), ("Walker-2x3", 1, 6), ("Swimmer-10x2", 1, 0)],
)
def test_the_robots_states_hold_all_but_speeds_that_they_clip(task: str, depth: int, novel: int):
    pytest.importorskip("gymnasium_robotics")
    game = game_of(f"mamujoco/{task}", agent_obsk=depth)
    assert game.spec.novel is not None and len(game.spec.novel) == novel
    check_novel(game.spec, random_play(game, 250), least=0.0)
    if novel:  # no random walk is so fast
        velocity, out = game._body.data.qvel, blank(game.spec)
        velocity[:] = np.linspace(20.0, 30.0, len(velocity))
        game._write(game._body._get_obs(), out)
        there = np.isin(out.obs, out.state)
        assert tuple(np.flatnonzero(~there.all(0))) == game.spec.novel


@pytest.mark.parametrize("task", ["Pusher-3p", "Reacher-2x1", "ManySegmentAnt-2x2"])
def test_robots_whose_agents_see_more_than_the_state_holds_are_unknown(task: str):
    pytest.importorskip("gymnasium_robotics")
    assert game_of(f"mamujoco/{task}").spec.novel is None


def test_footballs_state_holds_every_players_one_hot():
    """On observations as gfootball lays out ``simple115v2``: 97 of the match, 11 of the player, 7 of the mode."""
    game, rng = football.Match.__new__(football.Match), np.random.default_rng(0)
    n = 3
    game.spec = EnvSpec(
        "football/x", ("a", "b", "c"), (115,) * n, 104 + 11 * n, Discrete(19), (19,) * n, (0,) * n, 9, True
    )
    rows = []
    for _ in range(200):
        out = blank(game.spec)
        match, mode = rng.normal(size=97), np.eye(7)[rng.integers(7)]
        game._write_observations(
            np.stack([[*match, *np.eye(11)[player], *mode] for player in rng.integers(11, size=n)]), out
        )
        rows.append(out)
    assert not fresh(gather(rows)).any()


class Market(gymnasium.Env):
    """PettingZoo's parallel interface with, or without, a state of its own."""

    possible_agents = ("seller", "buyer")

    def __init__(self):
        self.agents = list(self.possible_agents)

    def observation_space(self, agent: str):
        return spaces.Box(0, 1, (2,))

    def action_space(self, agent: str):
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None):
        self.agents = list(self.possible_agents)
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]):
        each = dict.fromkeys(self.agents, False)
        seen = {agent: np.zeros(2, np.float32) for agent in self.agents}
        return seen, dict.fromkeys(self.agents, 0.0), each, each, {agent: {} for agent in self.agents}


class Told(Market):
    def state(self):
        return np.zeros(3, np.float32)


def test_what_a_state_of_ones_own_holds_is_unknown_and_pruned_is_refused_at_once(tmp_path: Any):
    assert foreign.wrap(Market(), "mine:Market").spec.novel == ()
    assert foreign.wrap(Told(), "mine:Told").spec.novel is None
    with pytest.raises(InputError, match=r"test_novel_of_others:Told does not declare .*: use 'agent'"):
        shoal.train("mappo", Told, critic_input="pruned", folder=tmp_path / "run")
    assert not (tmp_path / "run" / "policy").exists()


class Own:
    """A game of one's own that says what its state lacks: the second feature."""

    def __init__(self, novel: tuple[int, ...] | None):
        self.spec = EnvSpec("own", ("a",), (2,), 1, Discrete(2), (2,), (0,), 5, True, novel=novel)

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode."""
        self.rng, self.time = np.random.default_rng(seed), 0
        self._look(out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play an action."""
        self.time += 1
        self._look(out)
        out.last[...] = self.time == 5

    def _look(self, out: HostTimestep) -> None:
        out.obs[:] = self.rng.random(2)
        out.state[:] = out.obs[0, 0]

    def render(self) -> None:
        """No picture."""

    def close(self) -> None:
        """Nothing to free."""


def test_an_environment_of_ones_own_says_it_itself():
    check_novel(Own((1,)).spec, random_play(Own((1,)), 30))
    for wrong in ((), (0, 1)):
        with pytest.raises(AssertionError, match="state"):
            check_novel(Own(wrong).spec, random_play(Own(wrong), 30))
    assert foreign.wrap(Own((1,)), "mine:Own").spec.novel == (1,)
