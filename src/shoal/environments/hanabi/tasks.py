"""``hanabi/…``: Hanabi for 2 to 5 players, on the device or on OpenSpiel.

The tasks by name, their sizes and their spec. Does not import JAX.
"""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from shoal.environments.options import check_choice, check_flag
from shoal.errors import InputError, unknown
from shoal.game import HostEnvironment
from shoal.spec import EnvSpec, equal_agents

if TYPE_CHECKING:
    from shoal.types import Environment

PLAYERS = (2, 3, 4, 5)
DECK_BITS = 64
"""Most cards in a deck, which is held as the bits of two words."""


@dataclass(frozen=True)
class Game:
    """The sizes of a game of Hanabi; hashable."""

    players: int
    """P."""
    colors: int
    """C."""
    ranks: int
    """R."""
    hand: int
    """H, the cards in a full hand."""
    hints: int
    """The most hint tokens, with which a game starts."""
    lives: int
    """Life tokens."""
    copies: tuple[int, ...]
    """Cards of each rank in one colour."""

    @property
    def kinds(self) -> int:
        """K, the kinds of cards, and the points of a perfect game."""
        return self.colors * self.ranks

    @property
    def deck(self) -> int:
        """The number of all cards."""
        return self.colors * sum(self.copies)

    @property
    def undealt(self) -> int:
        """Cards in the deck after the hands are dealt."""
        return self.deck - self.players * self.hand

    @property
    def moves(self) -> int:
        """Moves of a player: discard or play a card of the hand, name a colour or a rank to one of the others."""
        return 2 * self.hand + (self.players - 1) * (self.colors + self.ranks)

    @property
    def seen(self) -> int:
        """Width of the Hanabi Learning Environment's observation."""
        hands = (self.players - 1) * self.hand * self.kinds + self.players
        board = self.undealt + self.kinds + self.hints + self.lives
        knowledge = self.players * self.hand * (self.kinds + self.colors + self.ranks)
        return hands + board + self.deck + self.last_move + knowledge

    @property
    def last_move(self) -> int:
        """Width of its part about the last move."""
        return self.players + 4 + self.players + self.colors + self.ranks + 2 * self.hand + self.kinds + 2

    @property
    def longest(self) -> int:
        """No game has more moves: each hint takes a token, each card drawn returns one at most, and everyone moves once
        after the last card."""
        return self.hints + 2 * self.undealt + self.players


def game(variant: str, players: int) -> Game:
    """A variant of the Hanabi Learning Environment for some players."""
    colors, ranks, hand, hints, lives = {
        "full": (5, 5, 5 if players < 4 else 4, 8, 3),
        "mini": (3, 3, 3, 5, 3),
        "small": (2, 5, 2, 3, 1),
    }[variant]
    return Game(players, colors, ranks, hand, hints, lives, (3, *(2,) * (ranks - 2), 1))


TASKS = {
    f"{variant}-{players}p": game(variant, players) for variant in ("full", "mini", "small") for players in PLAYERS
}
"""The games by name."""


def make(
    task: str,
    *,
    backend: Literal["device", "host"] = "device",
    keep_points: bool = False,
    copies: tuple[int, ...] | None = None,
) -> "Environment | HostEnvironment":
    """Hanabi: players see all cards but their own, and pay for each hint.

    ``hanabi/full-2p`` … ``full-5p`` are the whole game (25 points; hands of 5, from 4 players on of 4). ``small-Np`` is
    Hanabi-Small of the Hanabi Learning Environment: 2 colours, hands of 2, 3 hints, 1 life (10 points). ``mini-Np`` has
    3 colours, 3 ranks, hands of 3, 5 hints, 3 lives (9 points).

    One step is one move of the player on turn. The others have exactly one legal action, the no-op, which is the last
    action and illegal for the player on turn; all agents stay alive.

    An agent observes the canonical encoding of the Hanabi Learning Environment from its own seat (its own hand hidden,
    the others by their distance to its left) and whose turn it is, as a one-hot by the same distance, so that seats are
    interchangeable. The global state is what MAPPO's critic is given (Yu et al. 2022, section on Hanabi): the hand of
    the player on turn, card by card, what that player observes, and its seat. It is one vector for the team, and it is
    complete: everything hidden from the player on turn, apart from the order of the deck, is its own hand.

    Every agent receives the increment of the score at every timestep. MAPPO's code instead keeps only a player's own
    turns, and gives a turn the sum of the rewards until the player's next turn. Here the timesteps in between are part
    of the trajectory: they carry the same reward, their only action has probability 1 and no gradient, and the
    advantage carries the reward back to the player's last own move. With a discount of 1 both give the same returns;
    with γ < 1 time is counted in moves here and in own turns there, so that their γ corresponds to γ^(1/N) here.

    The metric of an episode is ``perfect``, 1 if all points were scored.

    Args:
        task: the name without ``hanabi/``.
        backend: ``device`` plays inside the compiled program, ``host`` OpenSpiel's game in worker processes. Rules,
            observations and rewards are the same.
        keep_points: False: losing all lives gives a negative reward that cancels the score, so that the return of such
            a game is 0; True: the game ends with the points scored so far.
        copies: cards of each rank in one colour, for example ``2 2 1`` for jax-aht's mini-Hanabi; None: three of the
            lowest, one of the highest, two of the others. Only on the device.

    Raises:
        InputError: the variant, the number of players or an option is unknown, the deck is too small or too large, or
            OpenSpiel is missing.
    """
    if task not in TASKS:
        raise unknown("Hanabi", task, list(TASKS))
    on_host = check_choice("backend", backend, ("device", "host")) == "host"
    check_flag("keep_points", keep_points)
    rules = TASKS[task] if copies is None else _with_copies(task, copies)
    if not on_host:
        from shoal.environments.hanabi import engine

        return engine.environment(hanabi_spec(task, rules), rules, keep_points)
    if copies is not None:
        raise InputError("copies changes the deck of backend 'device'; OpenSpiel's cannot be changed.")
    from shoal.environments.adapters import hanabi

    maker = functools.partial(hanabi.Hanabi, hanabi_spec(task, rules), task, keep_points)
    maker().close()
    return HostEnvironment(maker.args[0], maker)


def _with_copies(task: str, given: Any) -> Game:
    rules = TASKS[task]
    copies = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(copies) != rules.ranks or not all(isinstance(n, int) and 1 <= n <= DECK_BITS for n in copies):
        raise InputError(f"copies must be {rules.ranks} positive numbers of cards in hanabi/{task}, not {copies}.")
    changed = Game(rules.players, rules.colors, rules.ranks, rules.hand, rules.hints, rules.lives, copies)
    if changed.undealt < 1 or changed.deck > DECK_BITS:
        least = rules.players * rules.hand + 1
        raise InputError(f"A deck of hanabi/{task} must have {least} to {DECK_BITS} cards, not {changed.deck}.")
    return changed


def hanabi_spec(task: str, rules: Game) -> EnvSpec:
    """The description that both backends share."""
    players = rules.players
    return equal_agents(
        f"hanabi/{task}",
        "player",
        players,
        obs=rules.seen + players,
        state=rules.hand * rules.kinds + rules.seen + players,
        actions=rules.moves + 1,
        horizon=rules.longest,
        shared_reward=True,
        score="mean",
        metrics=("perfect",),
        novel=_relative(rules),
        turns=True,
    )


def _relative(rules: Game) -> tuple[int, ...]:
    """Indices of the observation features that depend on the observer.

    The state holds the row of the player on turn, in which the other features have the same positions. The row is the
    others' hands; the board and the discards; the last move; what each player knows of its own hand; whose turn it is.
    """
    players, width = rules.players, rules.seen
    knowledge = width - players * rules.hand * (rules.kinds + rules.colors + rules.ranks)
    move = knowledge - rules.last_move
    mover, target = range(move, move + players), range(move + players + 4, move + 2 * players + 4)
    hands = range((players - 1) * rules.hand * rules.kinds + players)
    return (*hands, *mover, *target, *range(knowledge, width + players))
