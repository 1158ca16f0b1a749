"""Hanabi beside OpenSpiel's own game: the same tensors, moves, scores and ends, move by move."""

import pickle
import random
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from shoal.environments import registry
from shoal.environments.adapters import hanabi
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep, blank, own_actions, refresh

pyspiel = pytest.importorskip("pyspiel")

MINI = {"colors": 3, "ranks": 3, "hand_size": 3, "max_information_tokens": 5, "max_life_tokens": 3}
SMALL = {"colors": 2, "ranks": 5, "hand_size": 2, "max_information_tokens": 3, "max_life_tokens": 1}

# task, OpenSpiel's parameters, width of its tensor, cards in a hand, kinds of card.
TASKS = [
    ("full-2p", {"players": 2}, 658, 5, 25),
    ("full-3p", {"players": 3}, 956, 5, 25),
    ("full-4p", {"players": 4}, 1041, 4, 25),
    ("full-5p", {"players": 5}, 1280, 4, 25),
    ("mini-2p", {"players": 2, **MINI}, 197, 3, 9),
    ("mini-5p", {"players": 5, **MINI}, 413, 3, 9),
    ("small-2p", {"players": 2, **SMALL}, 171, 2, 10),
]


def start(task: str, seed: int) -> tuple[Any, HostTimestep]:
    environment = registry.make(f"hanabi/{task}", backend="host")
    assert isinstance(environment, HostEnvironment)
    game = pickle.loads(pickle.dumps(environment.make))()
    assert game.spec == environment.spec
    out = blank(game.spec)
    refresh(out, own_actions(game.spec))
    game.reset(seed, out)
    return game, out


def cards_in_all(parameters: dict) -> int:
    return parameters.get("colors", 5) * parameters.get("ranks", 5)


class Scored:
    """OpenSpiel's state with another score."""

    def __init__(self, state: Any, points: float):
        self._state, self._points = getattr(state, "_state", state), points

    def player_return(self, player: int) -> float:
        return self._points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


def test_a_perfect_game_sets_the_metric_perfect(monkeypatch: pytest.MonkeyPatch):
    game, out = start("mini-2p", 0)
    for points, perfect in ((8.0, 0.0), (9.0, 1.0)):
        stand_in = Scored(game._state, points)
        monkeypatch.setattr(game, "_state", stand_in)
        move(game, out, np.array([np.flatnonzero(row)[0] for row in out.legal], np.int32))
        assert game.spec.metrics == ("perfect",) and out.metrics.tolist() == [perfect]


def move(game, out, action: np.ndarray) -> None:
    refresh(out, own_actions(game.spec))
    game.step(action, out)


def check(spec, out, state, seen: int, turn: int) -> None:
    """The timestep is OpenSpiel's ``state``, ``turn`` being on turn (or, after the end, the next)."""
    players = spec.num_agents
    for i in range(players):
        np.testing.assert_array_equal(out.obs[i, :seen], np.array(state.observation_tensor(i), np.float32))
        distance = np.zeros(players)
        distance[(turn - i) % players] = 1
        np.testing.assert_array_equal(out.obs[i, seen:], distance)
        same = [f for f in range(seen) if f not in spec.novel]
        np.testing.assert_array_equal(out.obs[i, same], out.state[-players - seen : -players][same])
        legal = state.legal_actions(i) if i == turn and not state.is_terminal() else [spec.action.n - 1]
        np.testing.assert_array_equal(np.flatnonzero(out.legal[i]), legal)
    np.testing.assert_array_equal(out.state[-players - seen : -players], out.obs[turn, :seen])
    np.testing.assert_array_equal(out.state[-players:], np.eye(players)[turn])
    assert out.alive.all()


@pytest.mark.parametrize(
    ("task", "parameters", "seen", "cards", "kinds"),
    [pytest.param(*row, marks=() if i < 2 else pytest.mark.slow, id=row[0]) for i, row in enumerate(TASKS)],
)
def test_games_are_openspiels(task: str, parameters: dict, seen: int, cards: int, kinds: int):
    rules = pyspiel.load_game("hanabi", parameters)
    rng = np.random.default_rng(1)
    scored = 0.0
    for seed in range(4):
        game, out = start(task, seed)
        spec, deck, state = game.spec, random.Random(seed), rules.new_initial_state()
        players = spec.num_agents
        assert spec.obs_dims == (seen + players,) * players
        assert spec.state_dim == cards * kinds + seen + players
        assert spec.action.n == rules.num_distinct_actions() + 1
        hanabi.deal(state, deck)
        check(spec, out, state, seen, 0)
        moves = 0
        while not state.is_terminal():
            turn, before = state.current_player(), state.player_return(0)
            action = np.array([rng.choice(np.flatnonzero(row)) for row in out.legal], np.int32)
            state.apply_action(int(action[turn]))
            hanabi.deal(state, deck)
            move(game, out, action)
            moves += 1
            check(spec, out, state, seen, (turn + 1) % players)
            np.testing.assert_array_equal(out.reward, np.full(players, state.player_return(0) - before))
            assert out.last == state.is_terminal()
            np.testing.assert_array_equal(out.discount, np.full(players, 0.0 if state.is_terminal() else 1.0))
            scored = max(scored, state.player_return(0))
            assert out.metrics.tolist() == [0.0] and state.player_return(0) < cards_in_all(parameters)
        assert moves <= spec.horizon
    assert scored > 0.0


@pytest.mark.parametrize("players", [2, 3, 5])
def test_state_holds_the_hand_of_who_is_on_turn(players: int):
    """As OpenSpiel prints it, card by card; the player's own observation does not hold it."""
    rng = np.random.default_rng(2)
    game, out = start(f"full-{players}p", 7)
    for _ in range(2 * players):
        turn = game._state.current_player()
        lines = str(game._state).split("Hands:\n")[1].split("Deck size")[0].replace("Cur player\n", "")
        hand = [line.split(" ")[0] for line in lines.split("-----\n")[turn].split("\n") if line]
        held = out.state[: len(hand) * 25].reshape(len(hand), 25)
        assert ["RYGWB"[kind // 5] + str(kind % 5 + 1) for kind in held.argmax(axis=1)] == hand
        assert (held.sum(axis=1) == 1).all()
        action = np.array([rng.choice(np.flatnonzero(row)) for row in out.legal], np.int32)
        move(game, out, action)
        if out.last:
            break


def test_own_hand_is_hidden():
    """Two deals that differ in the first player's hand alone look the same to that player, and not to the team."""
    rules = pyspiel.load_game("hanabi", {"players": 2})
    game, out = start("full-2p", 0)
    seen = []
    for own in ([0, 1, 2, 3, 4], [20, 21, 22, 23, 24]):
        game._state = rules.new_initial_state()
        for card in [*own, 5, 6, 7, 8, 9]:
            game._state.apply_action(card)
        game._arrive(out)
        seen.append((out.obs.copy(), out.state.copy()))
    (first, team), (second, other) = seen
    np.testing.assert_array_equal(first[0], second[0])
    assert (first[1] != second[1]).any()
    assert (team != other).any()


def test_losing_all_lives_returns_0():
    """OpenSpiel's convention: such a game returns 0."""
    ends = []
    for seed in range(60):
        game, out = start("mini-2p", seed)
        total, best = 0.0, 0.0
        while not out.last:
            row = int(game._state.current_player())
            plays = np.flatnonzero(out.legal[row])
            action = np.full(2, game.spec.action.n - 1, np.int32)
            action[row] = next(a for a in plays if a >= MINI["hand_size"])  # Plays come after discards.
            move(game, out, action)
            total += float(out.reward[0])
            best = max(best, total)
        ends.append((total, best, float(out.reward[0])))
    lost = [(total, best, last) for total, best, last in ends if total == 0.0 and best > 0.0]
    assert lost
    assert all(last == -best for _, best, last in lost)


def test_deals_follow_the_seed_and_the_deck():
    game, out = start("full-2p", 5)
    state, obs = out.state.copy(), out.obs.copy()
    game.reset(6, out)
    assert (state != out.state).any()
    game.reset(5, out)
    np.testing.assert_array_equal(state, out.state)
    np.testing.assert_array_equal(obs, out.obs)
    first = Counter()
    for seed in range(2000):
        game.reset(seed, out)
        first[int(out.state[:25].argmax()) % 5 + 1] += 1
    # Three ones, two each of two, three and four, and one five, of ten; four standard deviations at most.
    for rank, share in zip(range(1, 6), (0.3, 0.2, 0.2, 0.2, 0.1), strict=True):
        assert abs(first[rank] / 2000 - share) < 4 * (share * (1 - share) / 2000) ** 0.5


def test_an_agent_on_turn_cannot_pass():
    game, out = start("full-2p", 0)
    with pytest.raises(Exception, match="legal"):
        game.step(np.full(2, game.spec.action.n - 1, np.int32), out)


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(InputError, match=r"pip install 'open-spiel>="):
        registry.make("hanabi/full-2p", backend="host")
