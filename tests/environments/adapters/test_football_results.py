"""The adapter on stand-ins for gfootball's objects: the package itself is seldom installed (``test_football.py``)."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal.environments import registry
from shoal.environments.adapters.football import ACTIONS, Match
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep, blank, own_actions, refresh
from shoal.spec import Discrete, EnvSpec

SPEC = EnvSpec("football/toy", ("a",), (115,), 115, Discrete(ACTIONS), (ACTIONS,), (0,), 9, True)


@pytest.mark.parametrize(
    ("score", "expected"), [((0, 0), (0, 0, 0)), ((2, 1), (1, 2, 1)), ((1, 1), (0, 1, 1)), ((0, 3), (0, 0, 3))]
)
@pytest.mark.parametrize("done", [True, False])
def test_who_scored_more_goals_has_won(score: Any, expected: Any, done: bool) -> None:
    match = object.__new__(Match)
    seen = {"score": score, "steps_left": 5, "game_mode": 0, "ball_owned_team": -1}
    match.__dict__ |= {
        "_env": SimpleNamespace(step=lambda action: (np.ones((1, 115)), 0.0, done, {})),
        "_match": SimpleNamespace(observation=lambda: [seen]),
        "_steps": 0,
        "_first_owner": -1,
        "spec": SPEC,
        "_ends_on_goal": True,
        "_ends_out_of_play": False,
        "_ends_on_loss": False,
    }
    out = blank(SPEC)._replace(metrics=np.full(3, np.nan, np.float32))
    match.step(np.zeros(1, np.int32), out)
    assert tuple(out.metrics) == expected


class Pitch:
    """gfootball's environment with its engine in one: nothing happens for five steps unless ``script`` says so."""

    def __init__(self, players: int, options: dict[str, Any]):
        self.players, self.unwrapped, self._config = players, self, dict(options["other_config_options"])
        self.script: dict[int, dict[str, Any]] = {}
        self.sent_off: list[int] = []

    def observation(self) -> list[dict[str, Any]]:
        seen = {"score": [0, 0], "steps_left": 5 - self.t, "game_mode": 0, "ball_owned_team": 0}
        return [seen | self.script.get(self.t, {})]

    def _rows(self) -> np.ndarray:
        rows = np.arange(self.players * 115, dtype=np.float64).reshape(self.players, 115) + self.t
        rows[:, 97:108] = np.eye(11)[: self.players]
        rows[self.sent_off, 97:108] = 0.0
        return rows

    def reset(self) -> np.ndarray:
        self.t = 0
        return self._rows()

    def step(self, action: np.ndarray) -> Any:
        self.t += 1
        over = self.t == 5 or bool(self.script.get(self.t, {}).get("over"))
        return self._rows(), np.arange(1.0, self.players + 1), over, {}

    def close(self) -> None:
        pass


@pytest.fixture
def gfootball(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name: three players of a scenario in which everything ends an episode."""
    ends = ("score", "out_of_play", "possession_change")
    scenario = {"controllable_left_players": 3, "game_duration": 4} | {f"end_episode_on_{what}": True for what in ends}
    described = SimpleNamespace(ScenarioConfig=lambda: SimpleNamespace(**scenario))
    package, env = ModuleType("gfootball"), ModuleType("gfootball.env")
    env.config = SimpleNamespace(Config=lambda _: described)  # type: ignore[attr-defined]
    env.scenario_builder = SimpleNamespace(all_scenarios=lambda: ["own_scenario"])  # type: ignore[attr-defined]
    env.create_environment = lambda **given: Pitch(given["number_of_left_players_agent_controls"], given)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gfootball", package)
    monkeypatch.setitem(sys.modules, "gfootball.env", env)


def begun(**options: Any) -> tuple[Match, Any, HostTimestep]:
    env = registry.make("football/academy_3_vs_1_with_keeper", **options)
    assert isinstance(env, HostEnvironment)
    game, out = env.make(), blank(env.spec)
    assert isinstance(game, Match) and game.spec == env.spec
    refresh(out, own_actions(env.spec))
    game.reset(7, out)
    return game, game._env, out


def played(game: Match, out: HostTimestep) -> int:
    """Steps until the episode has ended."""
    for t in range(1, 10):
        refresh(out, own_actions(game.spec))
        game.step(np.zeros(game.spec.num_agents, np.int32), out)
        if out.last:
            return t
        assert out.discount.all()
    raise AssertionError("an episode without an end")


@pytest.mark.parametrize(("limit", "steps"), [(None, 5), (3, 3)])
def test_the_end_of_the_playing_time_is_a_time_limit(gfootball: None, limit: int | None, steps: int) -> None:
    game, _, out = begun(time_limit=limit)
    assert played(game, out) == steps == game.spec.horizon and out.discount.all()


@pytest.mark.parametrize("step", [3, 5])
@pytest.mark.parametrize("event", [{"score": [0, 1]}, {"game_mode": 4}, {"ball_owned_team": 1}])
def test_what_the_scenario_ends_is_a_termination_also_in_the_last_step(
    gfootball: None, event: dict[str, Any], step: int
) -> None:
    game, pitch, out = begun()
    pitch.script[step] = event | {"over": True}
    assert played(game, out) == step and not out.discount.any()


def test_an_episode_depends_on_its_seed_and_rewards_are_shared_or_not(gfootball: None) -> None:
    game, pitch, out = begun()
    assert pitch._config == {"game_engine_random_seed": 7, "reverse_team_processing": True, "episode_number": 3}
    np.testing.assert_array_equal(out.state[97:-7].reshape(3, 11), np.eye(11)[:3])
    np.testing.assert_array_equal(out.state[:97], out.obs[0, :97])
    np.testing.assert_array_equal(out.state[-7:], out.obs[0, -7:])
    played(game, out)
    assert out.reward.tolist() == [6.0, 6.0, 6.0] and game.spec.score == "mean"
    game, _, out = begun(shared_reward=False, num_agents=2)
    played(game, out)
    assert out.reward.tolist() == [1.0, 2.0] and game.spec.score == "sum"


def test_a_player_that_is_sent_off_is_dead_and_the_team_continues(gfootball: None) -> None:
    game, pitch, out = begun()
    pitch.sent_off.append(0)
    for _ in range(2):
        refresh(out, own_actions(game.spec))
        game.step(np.zeros(3, np.int32), out)
    np.testing.assert_array_equal(out.alive, [False, True, True])
    np.testing.assert_array_equal(out.legal.sum(axis=1), [1, 19, 19])
    assert out.legal[0, 0] and not out.obs[0].any() and out.discount.all() and not out.last


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        ("academy_3_vs_1_with_keepr", {}, "did you mean 'academy_3_vs_1_with_keeper'"),
        ("own_scenario", {"num_agents": 4}, "3 players to control"),
        ("own_scenario", {"num_agents": 0}, "num_agents must be"),
        ("own_scenario", {"time_limit": 6}, "ends after 5 steps"),
    ],
)
def test_wrong_requests_are_refused(gfootball: None, task: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        registry.make(f"football/{task}", **options)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gfootball", None)
    with pytest.raises(InputError, match=r"needs gfootball, which plain pip cannot install: see docs/football\.md"):
        registry.make("football/5_vs_5")
