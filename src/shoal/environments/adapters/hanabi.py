"""Hanabi on OpenSpiel: players see all cards but their own, and pay for each hint.

One step is one move of the player on turn. The others have exactly one legal action, the no-op, which is the last
action and illegal for the player on turn; all agents stay alive.

An agent observes OpenSpiel's tensor from its own seat (its own hand hidden, the others by their distance to its left)
and whose turn it is, as a one-hot by the same distance, so that seats are interchangeable. The global state is what
MAPPO's critic is given (Yu et al. 2022, section on Hanabi): the hand of the player on turn, card by card, what that
player observes, and its seat. It is one vector for the team, and it is complete: everything hidden from the player on
turn, apart from the order of the deck, is its own hand.

Rewards: every agent receives the increment of the score at every timestep. MAPPO's code instead keeps only a player's
own turns, and gives a turn the sum of the rewards until the player's next turn. Here the timesteps in between are part
of the trajectory: they carry the same reward, their only action has probability 1 and no gradient, and the advantage
carries the reward back to the player's last own move. With a discount of 1 both give the same returns; with γ < 1 time
is counted in moves here and in own turns there, so that their γ corresponds to γ^(1/N) here. Losing all lives gives a
negative reward that cancels the score: the return of such a game is 0, OpenSpiel's convention.
"""

import functools
import random
from typing import Any

import numpy as np

from shoal.errors import InputError, unknown
from shoal.game import HostEnvironment, HostTimestep
from shoal.spec import equal_agents
from shoal.system.extras import install, lacking

_VARIANTS: dict[str, dict[str, int]] = {
    "full": {},
    "mini": {"colors": 3, "ranks": 3, "hand_size": 3, "max_information_tokens": 5, "max_life_tokens": 3},
    "small": {"colors": 2, "ranks": 5, "hand_size": 2, "max_information_tokens": 3, "max_life_tokens": 1},
}
_PLAYERS = (2, 3, 4, 5)


def make(task: str) -> HostEnvironment:
    """``hanabi/full-2p`` … ``hanabi/full-5p``, and ``mini-Np``, ``small-Np``.

    ``full`` is the whole game (25 points; hands of 5, from 4 players on of 4). ``small`` is Hanabi-Small of the Hanabi
    Learning Environment: 2 colours, hands of 2, 3 hints, 1 life (10 points). ``mini`` has the size of jax-aht's
    mini-Hanabi, 3 colours, 3 ranks, hands of 3, 5 hints, 3 lives (9 points), but OpenSpiel's deck, which has three, two
    and one cards of a colour's ranks, where jax-aht's has two, two and one.

    The metric of an episode is ``perfect``, 1 if all points were scored.

    Raises:
        InputError: the variant or number of players is unknown, or OpenSpiel is missing.
    """
    if task not in (known := [f"{variant}-{players}p" for variant in _VARIANTS for players in _PLAYERS]):
        raise unknown("Hanabi", task, known)
    maker = functools.partial(_Hanabi, task)
    return HostEnvironment(maker().spec, maker)


def original(task: str) -> Any:
    """OpenSpiel's game.

    Raises:
        InputError: OpenSpiel is missing.
    """
    try:
        import pyspiel
    except ImportError as error:
        raise InputError(lacking("hanabi/…", "OpenSpiel", error, install("hanabi"), ("pyspiel",))) from error
    variant, _, players = task.partition("-")
    return pyspiel.load_game("hanabi", {"players": int(players.removesuffix("p")), **_VARIANTS[variant]})


def deal(state: Any, rng: random.Random) -> None:
    """Resolve chance nodes until a player is on turn or the game is over."""
    while state.is_chance_node():
        cards, odds = zip(*state.chance_outcomes(), strict=True)
        state.apply_action(rng.choices(cards, odds)[0])


def _relative(players: int, width: int, size: dict[str, int]) -> tuple[int, ...]:
    """Indices of the observation features that depend on the observer; ``width`` is that of OpenSpiel's tensor.

    The state holds the tensor of the player on turn, in which the other features have the same positions. The tensor
    is the others' hands; the board and the discards; the last move; what each player knows of its own hand.
    """
    colors, ranks = size.get("colors", 5), size.get("ranks", 5)
    hand, kinds = size.get("hand_size", 5 if players < 4 else 4), colors * ranks
    knowledge = width - players * hand * (kinds + colors + ranks)
    move = knowledge - (players + 4 + players + colors + ranks + 2 * hand + kinds + 2)
    mover, target = range(move, move + players), range(move + players + 4, move + 2 * players + 4)
    hands = range((players - 1) * hand * kinds + players)
    return (*hands, *mover, *target, *range(knowledge, width + players))


class _Hanabi:
    def __init__(self, task: str, render: bool = False):
        self._rules = rules = original(task)
        from open_spiel.python.observation import make_observation

        # It writes a player's tensor into ``.tensor``, ten times faster than OpenSpiel's lists.
        self._view: Any = make_observation(rules)
        self._seen: int = self._view.tensor.size
        self._players = players = rules.num_players()
        self._pass: int = rules.num_distinct_actions()
        size = _VARIANTS[task.partition("-")[0]]
        self._most = size.get("colors", 5) * size.get("ranks", 5)
        hand = size.get("hand_size", 5 if players < 4 else 4) * size.get("colors", 5) * size.get("ranks", 5)
        # The tensor starts with the others' hands, of which the right neighbour's is the last.
        self._right = slice((players - 2) * hand, (players - 1) * hand)
        self.spec = equal_agents(
            f"hanabi/{task}",
            "player",
            players,
            obs=self._seen + players,
            state=hand + self._seen + players,
            actions=self._pass + 1,
            horizon=rules.max_game_length(),
            shared_reward=True,
            score="mean",
            metrics=("perfect",),
            novel=_relative(players, self._seen, size),
        )
        # The player on turn relative to each observer.
        distance = (np.arange(players)[:, None] - np.arange(players)) % players
        self._turns = np.eye(players, dtype=np.float32)[distance]  # [seat on turn, observer, distance]
        self._hand = hand
        self._rng = random.Random()
        self._state: Any = None
        self._turn = 0
        self._score = 0.0

    def reset(self, seed: int, out: HostTimestep) -> None:
        self._rng.seed(seed)
        self._state = self._rules.new_initial_state()
        self._score = 0.0
        self._arrive(out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        self._state.apply_action_with_legality_check(int(action[self._turn]))
        self._arrive(out)
        score = self._state.player_return(0)
        out.reward[...] = score - self._score
        out.metrics[0] = score == self._most
        self._score = score

    def _arrive(self, out: HostTimestep) -> None:
        """Resolve chance nodes and write the timestep."""
        state = self._state
        deal(state, self._rng)
        over = state.is_terminal()
        # After the end, the player who would be next.
        self._turn = turn = (self._turn + 1) % self._players if over else state.current_player()
        legal = out.legal
        legal[...] = False
        legal[:, self._pass] = True
        if over:
            out.discount[...] = 0.0
            out.last[...] = True
        else:
            legal[turn, self._pass] = False
            legal[turn, state.legal_actions()] = True
        view, seen = self._view, self._seen
        for player in range(self._players):
            view.set_from(state, player)
            out.obs[player, :seen] = view.tensor
        out.obs[:, seen:] = self._turns[turn]
        out.state[: self._hand] = out.obs[(turn + 1) % self._players, self._right]
        out.state[self._hand : -self._players] = out.obs[turn, :seen]
        out.state[-self._players :] = self._turns[turn, 0]

    def render(self) -> np.ndarray | None:
        return None

    def close(self) -> None:
        pass
