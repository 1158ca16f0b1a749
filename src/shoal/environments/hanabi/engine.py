"""The rules of Hanabi for E games at once, as operations on the bits of words.

Sets are ``uint32`` words: a card is the bit of its kind, colour · R + rank, among the K kinds, and an empty place of a
hand is 0. Within a step arrays have E as their last axis, where a processor's vector instructions work; the state that
rollouts keep has it first.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from shoal.environments.batching import select, single
from shoal.environments.grid.field import distinct
from shoal.environments.hanabi.observe import observed
from shoal.environments.hanabi.tasks import Game
from shoal.types import Batched, Environment, EnvSpec, Step

WORD = 32
"""Bits of a word."""


class Move(NamedTuple):
    """The last move as sets; 0 at the start of an episode."""

    actor: UInt32[Array, " E"]
    """The seat of who moved."""
    kind: UInt32[Array, " E"]
    """Play, discard, name a colour, name a rank."""
    target: UInt32[Array, " E"]
    """The seat of who was given a hint."""
    clue: UInt32[Array, " E"]
    """The colour named, or C + the rank."""
    touched: UInt32[Array, " E"]
    """Places of the target's hand that the hint names."""
    place: UInt32[Array, " E"]
    """The place in the hand of a card played or discarded."""
    card: UInt32[Array, " E"]
    """The card played or discarded."""
    result: UInt32[Array, " E"]
    """Whether playing it scored, and whether it returned a hint."""


class State(NamedTuple):
    """A game. Within a step the axis of environments is the last one, in rollouts the first."""

    hands: UInt32[Array, "E P H"]
    """Cards by seat and place, oldest first."""
    possible: UInt32[Array, "E P H"]
    """The kinds that hints have left possible for each card."""
    hinted: UInt32[Array, "E P H"]
    """The colour and C + the rank that hints have named of each card."""
    deck: UInt32[Array, "E 2"]
    """Cards of the deck: of all cards, ordered by kind, those that are left."""
    left: Int[Array, " E"]
    """The number of cards in the deck."""
    discards: UInt32[Array, "E C"]
    """For each colour, its copies by rank; of each rank, as many of the first ones as are discarded."""
    tops: UInt32[Array, " E"]
    """The highest card of each firework."""
    playable: UInt32[Array, " E"]
    """The next card of each firework."""
    hints: Int[Array, " E"]
    lives: Int[Array, " E"]
    points: Int[Array, " E"]
    """Cards in the fireworks."""
    final: Int[Array, " E"]
    """Moves left when the deck is empty."""
    turn: Int[Array, " E"]
    """The seat on turn; after the end, of who would be next."""
    move: Move


def environment(spec: EnvSpec, game: Game, keep_points: bool) -> Environment:
    """The environment of a game.

    Args:
        spec: its spec.
        game: its sizes.
        keep_points: whether losing all lives keeps the points.
    """
    rules = Rules(game)

    def timestep(s: State, earned: Array, over: Array, first: bool) -> Step:
        obs, state, legal = observed(game, s, over)
        count = over.shape[0]
        discount = 1.0 - over.astype(jnp.float32)
        return Step(
            obs=obs,
            state=state,
            legal=legal,
            alive=jnp.ones((count, game.players), bool),
            reward=jnp.broadcast_to(earned[:, None], (count, game.players)),
            discount=jnp.broadcast_to(discount[:, None], (count, game.players)),
            first=jnp.full(count, first),
            last=over,
            metrics=(s.points == game.kinds).astype(jnp.float32)[:, None],
        )

    def reset(key: PRNGKeyArray, count: int) -> tuple[State, Step]:
        s = rules.deal(key, count)
        return _environments_first(s), timestep(s, jnp.zeros(count), jnp.zeros(count, bool), first=True)

    def step(key: PRNGKeyArray, state: State, action: Int[Array, "E P"]) -> tuple[State, Step]:
        before = _environments_last(state)
        chosen = jnp.where(np.arange(game.players)[:, None] == before.turn, action.T, 0).sum(0)
        s = rules.play(before, chosen, jax.random.uniform(key, chosen.shape))
        lost = s.lives < 1
        over = lost | (s.points == game.kinds) | (s.final < 1)
        earned = (s.points - before.points).astype(jnp.float32)
        if not keep_points:
            earned = jnp.where(lost, -s.points.astype(jnp.float32), earned)
        return _environments_first(s), timestep(s, earned, over, first=False)

    def restart(key: PRNGKeyArray, which: Bool[Array, " E"], state: State) -> tuple[State, Step]:
        fresh, first = reset(key, which.shape[0])
        return select(which, fresh, state), first

    return single(spec, Batched(reset, step, restart))


class Rules:
    """The rules of a game."""

    def __init__(self, game: Game):
        self.game = game
        colors, ranks, kinds = game.colors, game.ranks, game.kinds
        self.every = bits(range(kinds))
        self.of_color = [bits(range(c * ranks, (c + 1) * ranks)) for c in range(colors)]
        self.of_rank = [bits(range(r, kinds, ranks)) for r in range(ranks)]
        self.rank_bits = bits(range(ranks))
        # The copies of a rank among those of its colour.
        starts = np.cumsum((0, *game.copies))
        self.starts = starts[1:-1]
        self.copies = [bits(range(a, b)) for a, b in itertools.pairwise(starts)]

    def deal(self, key: PRNGKeyArray, count: int) -> State:
        """The start of E games."""
        game = self.game
        places = (game.players, game.hand, count)
        zero = jnp.zeros(count, jnp.uint32)
        luck = jax.random.uniform(key, (game.players * game.hand, count))
        dealt = jax.vmap(lambda draws: distinct(draws, game.deck), in_axes=1, out_axes=1)(luck)
        bit = np.uint32(1) << (dealt % WORD).astype(jnp.uint32)
        gone = jnp.stack([merged(jnp.where(dealt // WORD == half, bit, np.uint32(0))) for half in (0, 1)])
        full = np.array([bits(range(max(0, min(WORD, game.deck - WORD * half)))) for half in (0, 1)])

        def number(n: int) -> Int[Array, " E"]:
            return jnp.full(count, n, jnp.int32)

        return State(
            hands=self.card(dealt).reshape(places),
            possible=jnp.full(places, self.every),
            hinted=jnp.zeros(places, jnp.uint32),
            deck=gone ^ full[:, None],
            left=number(game.undealt),
            discards=jnp.zeros((game.colors, count), jnp.uint32),
            tops=zero,
            playable=jnp.full(count, self.of_rank[0]),
            hints=number(game.hints),
            lives=number(game.lives),
            points=number(0),
            final=number(game.players),
            turn=number(0),
            move=Move(*(zero,) * len(Move._fields)),
        )

    def drawn(
        self, deck: UInt32[Array, "2 E"], left: Int[Array, " E"], luck: Float[Array, " E"]
    ) -> tuple[UInt32[Array, " E"], UInt32[Array, "2 E"]]:
        """A card of the deck, each equally likely, and the deck without it; ``luck`` is in [0, 1)."""
        n = jnp.minimum((luck * left).astype(jnp.int32), left - 1)
        low = jax.lax.population_count(deck[0]).astype(jnp.int32)
        second = n >= low
        word = jnp.where(second, deck[1], deck[0])
        n = jnp.where(second, n - low, n)
        # The n-th bit of the word: is it among the lower half, the lower quarter of what is left, …?
        at = jnp.zeros_like(n)
        for width in (16, 8, 4, 2, 1):
            below = jax.lax.population_count(word >> at.astype(jnp.uint32) & bits(range(width))).astype(jnp.int32)
            beyond = n >= below
            n, at = jnp.where(beyond, n - below, n), jnp.where(beyond, at + width, at)
        taken = np.uint32(1) << at.astype(jnp.uint32)
        which = jnp.stack([~second, second])
        return self.card(at + WORD * second), deck ^ jnp.where(which, taken, np.uint32(0))

    def card(self, number: Int[Array, "... E"]) -> UInt32[Array, "... E"]:
        """The card with a number among all cards, which are ordered by kind."""
        color, copy = jnp.divmod(number, sum(self.game.copies))
        rank = sum((copy >= start).astype(jnp.int32) for start in self.starts)
        return np.uint32(1) << (color * self.game.ranks + rank).astype(jnp.uint32)

    def play(self, s: State, action: Int[Array, " E"], luck: Float[Array, " E"]) -> State:
        """The state after the move of who is on turn, which is legal."""
        game = self.game
        zero, one = np.uint32(0), np.uint32(1)
        seats, places = np.arange(game.players)[:, None], np.arange(game.hand)[:, None]

        # WHAT IS DONE
        discards, cards = action < game.hand, action < 2 * game.hand
        plays = cards & ~discards
        hint = action - 2 * game.hand
        names_color = ~cards & (hint < (game.players - 1) * game.colors)
        names_rank = ~cards & ~names_color
        to_color, color = jnp.divmod(hint, game.colors)
        to_rank, rank = jnp.divmod(hint - (game.players - 1) * game.colors, game.ranks)
        mine = seats == s.turn

        # CARDS
        place = jnp.where(cards, action % game.hand, game.hand)
        own = merged(jnp.where(mine[:, None], s.hands, zero))
        card = merged(jnp.where(places == place, own, zero))
        scores = plays & (card & s.playable != 0)
        fails = plays & ~scores
        completes = scores & (card & self.of_rank[-1] != 0)
        returns = completes & (s.hints < game.hints)
        tops = jnp.where(scores, s.tops ^ ((card & ~self.of_rank[0]) >> one) | card, s.tops)
        playable = jnp.where(scores, s.playable ^ card | (card & ~self.of_rank[-1]) << one, s.playable)
        thrown = jnp.where(discards | fails, card, zero)
        heap = jnp.stack([self._thrown(s.discards[c], thrown >> np.uint32(c * game.ranks)) for c in range(game.colors)])

        # HINTS
        to = jnp.where(names_color, to_color, to_rank) + 1
        aimed = ((seats - s.turn) % game.players == to) & ~cards
        clue = one << jnp.where(names_color, color, game.colors + rank).astype(jnp.uint32)
        named = jnp.where(
            names_color,
            self.of_color[0] << (color * game.ranks).astype(jnp.uint32),
            self.of_rank[0] << rank.astype(jnp.uint32),
        )
        hit = s.hands & named != 0
        told = jnp.where(hit, s.possible & named, s.possible & ~named)
        possible = jnp.where(aimed[:, None], told, s.possible)
        hinted = jnp.where(aimed[:, None] & hit, s.hinted | clue, s.hinted)

        # A NEW CARD
        new, deck = self.drawn(s.deck, s.left, luck)
        lives, points = s.lives - fails, s.points + scores
        draws = cards & (s.left > 0) & (lives > 0) & (points < game.kinds)
        gone = (mine & cards)[:, None] & (places >= place)

        def refilled(hands: Array, last: Array) -> Array:
            moved = jnp.concatenate([hands[:, 1:], jnp.broadcast_to(last, hands[:, :1].shape)], axis=1)
            return jnp.where(gone, moved, hands)

        return State(
            hands=refilled(s.hands, jnp.where(draws, new, zero)),
            possible=refilled(possible, jnp.where(draws, self.every, zero)),
            hinted=refilled(hinted, jnp.zeros_like(new)),
            deck=jnp.where(draws, deck, s.deck),
            left=s.left - draws,
            discards=heap,
            tops=tops,
            playable=playable,
            hints=s.hints + discards + returns - ~cards,
            lives=lives,
            points=points,
            final=s.final - (s.left == 0),
            turn=(s.turn + 1) % game.players,
            move=Move(
                actor=one << s.turn.astype(jnp.uint32),
                kind=_numbered(plays, discards, names_color, names_rank),
                target=_numbered(*aimed),
                clue=jnp.where(cards, zero, clue),
                touched=merged(jnp.where(aimed, _numbered(*jnp.moveaxis(hit, 1, 0)), zero)),
                place=_numbered(*(places == place)),
                card=card,
                result=_numbered(scores, returns),
            ),
        )

    def _thrown(self, heap: UInt32[Array, " E"], card: UInt32[Array, " E"]) -> UInt32[Array, " E"]:
        """A colour's discards with a card whose rank is the set among its lowest bits; 0 for none."""
        group = merged(jnp.stack([jnp.where(card >> np.uint32(r) & 1 != 0, x, 0) for r, x in enumerate(self.copies)]))
        free = group & ~heap
        return heap | free & (~free + 1)


def bits(which: range) -> np.uint32:
    """The word in which these bits are set."""
    return np.uint32(sum(1 << i for i in which))


def merged(sets: UInt32[Array, "... E"]) -> UInt32[Array, "... E"]:
    """The union along the first axis."""
    return jax.lax.reduce_or(sets, axes=(0,))


def _numbered(*conditions: Bool[Array, "*b"]) -> UInt32[Array, "*b"]:
    """The set of the conditions that hold, by their number."""
    return merged(jnp.stack([c.astype(jnp.uint32) << np.uint32(i) for i, c in enumerate(conditions)]))


def _environments_last(state: State) -> State:
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), state)


def _environments_first(state: State) -> State:
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), state)
