"""Hanabi on OpenSpiel, in worker processes; :mod:`shoal.environments.hanabi.tasks` says what agents observe."""

import random
from typing import Any

import numpy as np

from shoal.environments.hanabi.tasks import TASKS
from shoal.errors import InputError
from shoal.game import HostTimestep
from shoal.spec import EnvSpec
from shoal.system.extras import install, lacking


def original(task: str) -> Any:
    """OpenSpiel's game.

    Raises:
        InputError: OpenSpiel is missing.
    """
    try:
        import pyspiel
    except ImportError as error:
        raise InputError(
            lacking("hanabi/… on the host", "OpenSpiel", error, install("hanabi"), ("pyspiel",))
        ) from error
    game = TASKS[task]
    sizes = {
        "players": game.players,
        "colors": game.colors,
        "ranks": game.ranks,
        "hand_size": game.hand,
        "max_information_tokens": game.hints,
        "max_life_tokens": game.lives,
    }
    return pyspiel.load_game("hanabi", sizes)


def deal(state: Any, rng: random.Random) -> None:
    """Resolve chance nodes until a player is on turn or the game is over."""
    while state.is_chance_node():
        cards, odds = zip(*state.chance_outcomes(), strict=True)
        state.apply_action(rng.choices(cards, odds)[0])


class Hanabi:
    """OpenSpiel's game."""

    def __init__(self, spec: EnvSpec, task: str, keep_points: bool = False, render: bool = False):
        self.spec = spec
        self._rules = rules = original(task)
        from open_spiel.python.observation import make_observation

        # It writes a player's tensor into ``.tensor``, ten times faster than OpenSpiel's lists.
        self._view: Any = make_observation(rules)
        game, players = TASKS[task], spec.num_agents
        self._seen, self._pass, self._most = game.seen, game.moves, game.kinds
        self._players = players
        self._keep_points = keep_points
        self._hand = hand = game.hand * game.kinds
        # The tensor starts with the others' hands, of which the right neighbour's is the last.
        self._right = slice((players - 2) * hand, (players - 1) * hand)
        # The player on turn relative to each observer.
        distance = (np.arange(players)[:, None] - np.arange(players)) % players
        self._turns = np.eye(players, dtype=np.float32)[distance]  # [seat on turn, observer, distance]
        self._rng = random.Random()
        self._state: Any = None
        self._turn = 0
        self._score = 0.0

    def reset(self, seed: int, out: HostTimestep) -> None:
        """Start an episode."""
        self._rng.seed(seed)
        self._state = self._rules.new_initial_state()
        self._score = 0.0
        self._arrive(out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        """Play int32 [N], of which the entry of the player on turn counts."""
        self._state.apply_action_with_legality_check(int(action[self._turn]))
        self._arrive(out)
        score = self._state.player_return(0)  # 0 when all lives are lost
        if self._keep_points:
            score = max(score, self._score)
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

    def render(self) -> None:
        """Return None: there is no picture."""

    def close(self) -> None:
        """Do nothing: there are no resources."""
