"""Numbers in the ``info`` of others' environments as metrics of an episode, by name."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

import gymnasium
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from shoal.environments import registry
from shoal.errors import InputError
from shoal.game import HostEnvironment, blank, own_actions, refresh

SPACE, MOVES = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(2)
SEEN = np.zeros(2, np.float32)


class Pair(ParallelEnv):
    """``a`` leaves after two steps, ``b`` after three; what ``tell`` gives of (agent, time) is its info."""

    metadata = {"name": "pair"}  # noqa: RUF012
    max_cycles = 9

    def __init__(self, tell: str = "both"):
        self.possible_agents, self.tell = ["a", "b"], tell

    def observation_space(self, agent: str) -> Any:
        return SPACE

    def action_space(self, agent: str) -> Any:
        return MOVES

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.agents, self.time = ["a", "b"], 0
        return dict.fromkeys(self.agents, SEEN), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.time += 1
        acted = list(self.agents)
        infos = {agent: self.info(agent) for agent in acted}
        ended = {agent: self.time >= (2 if agent == "a" and self.tell == "leaves" else 3) for agent in acted}
        self.agents = [agent for agent in acted if not ended[agent]]
        return (
            dict.fromkeys(acted, SEEN),
            dict.fromkeys(acted, 1.0),
            ended,
            dict.fromkeys(acted, False),
            infos,
        )

    def info(self, agent: str) -> dict[str, Any]:
        if self.tell == "text":
            return {"kills": "many"}
        if self.tell == "late" and self.time < 3:
            return {}
        return {"kills": self.time if agent == "a" else 10 * self.time, "won": np.bool_(self.time == 3)}


class Turns(AECEnv):
    """Two players take two turns each; the info counts the moves."""

    metadata = {"name": "turns", "is_parallelizable": False}  # noqa: RUF012
    max_cycles = 9

    def __init__(self):
        self.possible_agents = ["a", "b"]

    def observation_space(self, agent: str) -> Any:
        return SPACE

    def action_space(self, agent: str) -> Any:
        return MOVES

    def observe(self, agent: str) -> Any:
        return SEEN

    def reset(self, seed: Any = None, options: Any = None) -> None:
        self.agents, self.moves, self.agent_selection = ["a", "b"], 0, "a"
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos = {agent: {} for agent in self.agents}

    def step(self, action: Any) -> None:
        self.moves += 1
        self.infos = {agent: {"moves": self.moves} for agent in self.agents}
        self.terminations = dict.fromkeys(self.agents, self.moves == 4)
        self.agent_selection = "ab"[self.moves % 2]


class Alone(gymnasium.Env):
    """Three steps; the info says how it went only where it ends by itself."""

    observation_space, action_space = SPACE, MOVES
    spec = None
    max_steps = 9

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.time = 0
        return SEEN, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return SEEN, 1.0, self.time == 3, False, {"won": True, "speed": np.float32(0.5)} if self.time == 3 else {}


class Both(Alone):
    """The same as a team of two, by tuples of spaces."""

    observation_space, action_space = spaces.Tuple((SPACE, SPACE)), spaces.Tuple((MOVES, MOVES))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return (SEEN, SEEN), super().reset()[1]

    def step(self, action: Any) -> Any:
        _, _, over, cut, info = super().step(action)
        return (SEEN, SEEN), [1.0, 1.0], over, cut, info


def told(env: Any, **options: Any) -> list[list[float]]:
    """The metrics after every step of an episode."""
    made = registry.make(env, **options)
    assert isinstance(made, HostEnvironment)
    game, out, own = made.make(), blank(made.spec), own_actions(made.spec)
    refresh(out, own)
    game.reset(0, out)
    rows = []
    while not out.last:
        refresh(out, own)
        game.step(np.zeros(made.spec.num_agents, np.int32), out)
        rows.append(out.metrics.tolist())
    return rows


def test_a_team_reports_the_mean_over_the_agents_that_tell() -> None:
    assert told(Pair, metrics=("won", "kills")) == [[0.0, 5.5], [0.0, 11.0], [1.0, 16.5]]
    assert told(Pair, tell="leaves", metrics=("kills",)) == [[5.5], [11.0], [30.0]]
    assert told(Pair) == [[], [], []]


def test_games_of_turns_report_too() -> None:
    assert told(Turns, metrics=["moves"]) == [[1.0], [2.0], [3.0], [4.0]]


@pytest.mark.parametrize("kind", [Alone, Both])
def test_gymnasiums_info_is_read(kind: Any) -> None:
    rows = told(kind, metrics=("speed", "won"))
    assert rows[2] == [0.5, 1.0]
    assert all(math.isnan(x) for row in rows[:2] for x in row)  # not known where the info does not say


def test_what_the_info_lacks_is_not_known() -> None:
    rows = told(Pair, tell="late", metrics=("kills", "shots"))
    assert math.isnan(rows[1][0]) and rows[2][0] == 16.5 and math.isnan(rows[2][1])


def test_a_metric_is_one_number() -> None:
    with pytest.raises(ValueError, match=r"info\['kills'\] is 'many', not one number"):
        told(Pair, tell="text", metrics=("kills",))


def test_names_reach_the_families(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: Any = Alone
    gymnasium.register("Alone-v0", entry_point=alone, max_episode_steps=5)
    assert told("gymnasium:Alone-v0", metrics=("won",))[2] == [1.0]
    module = type(sys)("pair_of_mine")
    module.parallel_env = Pair  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "pair_of_mine", module)
    assert told("pettingzoo:pair_of_mine", metrics=("won", "kills"), tell="leaves")[-1] == [1.0, 30.0]


@pytest.mark.parametrize(
    ("name", "metrics", "words"),
    [
        ("matrix/climbing", ("won",), "matrix/climbing takes no option 'metrics'"),
        ("own_games:game", ("won",), "names its metrics in its spec, so it takes no option 'metrics'"),
        ("own_games:Auction", ("won",), "names its metrics in its spec, so it takes no option 'metrics'"),
        ("own_games:Pair", "won", "metrics must be a tuple of names, not 'won'"),
        ("gymnasium:CartPole-v1", "won", "metrics must be a tuple of names, not 'won'"),
        ("pettingzoo:classic.tictactoe_v3", 3, "metrics must be a tuple of names, not 3"),
    ],
)
def test_the_option_metrics_is_refused_where_it_has_no_use(
    name: str, metrics: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_games.py").write_text(
        "from shoal.environments.registry import make\n"
        "from test_infos import Pair\n"
        "def game(): return make('matrix/climbing')\n"
        "class Auction:\n"
        "    from counters import spec_of\n"
        "    spec = spec_of()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "test_infos", sys.modules[__name__])
    monkeypatch.delitem(sys.modules, "own_games", raising=False)
    with pytest.raises(InputError, match=words):
        registry.make(name, metrics=metrics)


def test_the_command_line_takes_names(shoal: Any) -> None:
    code, out, _ = shoal("check", f"{__name__}:Pair", "--env.metrics", "won", "kills", "--episodes", "2")
    assert code == 0
    assert "metrics" in out and "won, kills" in out and "win rate 100.0 %, kills 16.50" in out
