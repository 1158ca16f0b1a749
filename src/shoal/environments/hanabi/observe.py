"""What players observe, the state and the legal moves: the canonical encoding of the Hanabi Learning Environment.

A row of zeros and ones is made as words of 32 bits, from fields of up to 32 bits, and taken apart into numbers at last:
almost all of the time is spent on writing the numbers.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt32

from shoal.environments.hanabi.tasks import Game

if TYPE_CHECKING:
    from shoal.environments.hanabi.engine import State

WORD = 32
Field = tuple[Array, int]
"""A word [*b, E], and how many of its bits count; the others are 0."""


def observed(
    game: Game, s: "State", over: Bool[Array, " E"]
) -> tuple[Float[Array, "E P O"], Float[Array, "E S"], Bool[Array, "E P A"]]:
    """Observations, global states and legal actions, from a state with E last."""
    players, zero = game.players, np.uint32(0)
    seats = np.arange(players)

    def around(x: Array) -> Array:
        """[P, H, E] by seat -> [P, H, P, E]: by distance to the left of each observer."""
        return jnp.stack([jnp.roll(x, -seat, axis=0) for seat in range(players)], axis=2)

    hands, possible, hinted = around(s.hands), around(s.possible), around(s.hinted)
    on_turn = seats[:, None] == s.turn
    ahead = jnp.uint32(1) << ((s.turn - seats[:, None]) % players).astype(jnp.uint32)

    row = _hands(game, hands) + _board(game, s) + _last_move(game, s)
    row += [
        field
        for k in range(players)
        for h in range(game.hand)
        for field in ((possible[k, h], game.kinds), (hinted[k, h], game.colors + game.ranks))
    ]
    words = [jnp.broadcast_to(word, on_turn.shape) for word in packed(row)]
    width = game.seen
    widths = [min(WORD, width - at) for at in range(0, width, WORD)]
    obs = unpacked(packed([*zip(words, widths, strict=True), (ahead, players)]), width + players)

    # THE PLAYER ON TURN
    def theirs(x: Array) -> Array:
        return jax.lax.reduce_or(jnp.where(on_turn, x, zero), axes=(x.ndim - 2,))

    hand = theirs(hands)  # [P, H, E]: the player's own first
    state = [(card, game.kinds) for card in hand[0]]
    state += [(theirs(word), n) for word, n in zip(words, widths, strict=True)]
    state += [(jnp.uint32(1) << s.turn.astype(jnp.uint32), players)]
    team = unpacked(packed(state), game.hand * game.kinds + width + players)
    return obs, team, _legal(game, s, hand, on_turn & ~over)


def _hands(game: Game, hands: UInt32[Array, "P H P E"]) -> list[Field]:
    """The others' cards, and whose hand lacks one."""
    lacking = _numbered([hands[k, -1] == 0 for k in range(game.players)])
    cards = [(hands[k, h], game.kinds) for k in range(1, game.players) for h in range(game.hand)]
    return [*cards, (lacking, game.players)]


def _board(game: Game, s: "State") -> list[Field]:
    """The size of the deck, fireworks, tokens, discards."""
    fields = [*_counted(s.left, game.undealt), (s.tops, game.kinds)]
    fields += [*_counted(s.hints, game.hints), *_counted(s.lives, game.lives)]
    return fields + [(s.discards[c], sum(game.copies)) for c in range(game.colors)]


def _last_move(game: Game, s: "State") -> list[Field]:
    """The last move; who moved and who was meant, by their distance to the left of each observer."""
    move, n = s.move, game.players
    seats = np.arange(n, dtype=np.uint32)[:, None]

    def relative(who: UInt32[Array, " E"]) -> UInt32[Array, "P E"]:
        return (who >> seats | who << (n - seats)) & np.uint32((1 << n) - 1)

    return [
        (relative(move.actor), n),
        (move.kind, 4),
        (relative(move.target), n),
        (move.clue, game.colors + game.ranks),
        (move.touched, game.hand),
        (move.place, game.hand),
        (move.card, game.kinds),
        (move.result, 2),
    ]


def _legal(game: Game, s: "State", hand: UInt32[Array, "P H E"], acts: Bool[Array, "P E"]) -> Bool[Array, "E P A"]:
    """Legal actions: those of who ``acts``, and no-ops."""
    ranks, kinds = game.ranks, np.arange(game.kinds)
    held = hand[0] != 0
    parts = [held & (s.hints < game.hints), held]
    shown = jax.lax.reduce_or(hand[1:], axes=(1,))[:, None]
    for groups in (kinds // ranks, kinds % ranks):  # colours, ranks
        sets = np.array([(1 << kinds[groups == g]).sum() for g in range(groups.max() + 1)], np.uint32)
        named = (shown & sets[:, None] != 0) & (s.hints > 0)
        parts.append(named.reshape(-1, named.shape[-1]))
    own = jnp.concatenate([*parts, jnp.zeros_like(held[:1])])
    passing = np.arange(game.moves + 1) == game.moves
    return jnp.where(acts.T[..., None], own.T[:, None], passing)


def _counted(number: Array, most: int) -> list[Field]:
    """A number from 0 to ``most`` as that many ones, followed by zeros."""
    fields = []
    for at in range(0, most, WORD - 1):
        n = jnp.clip(number - at, 0, WORD - 1).astype(jnp.uint32)
        fields.append(((jnp.uint32(1) << n) - 1, min(WORD - 1, most - at)))
    return fields


def _numbered(conditions: list[Array]) -> UInt32[Array, "*b E"]:
    """The set of the conditions that hold, by their number."""
    shifted = [c.astype(jnp.uint32) << np.uint32(i) for i, c in enumerate(conditions)]
    return jax.lax.reduce_or(jnp.stack(shifted), axes=(0,))


def packed(fields: list[Field]) -> list[UInt32[Array, "*b E"]]:
    """Fields one after another, as words."""
    words, at = [], 0
    for value, width in fields:
        first, shift = divmod(at, WORD)
        parts = [value << np.uint32(shift)]
        if shift + width > WORD:
            parts.append(value >> np.uint32(WORD - shift))
        for index, part in enumerate(parts, first):
            if index < len(words):
                words[index] = words[index] | part
            else:
                words.append(part)
        at += width
    return words


def unpacked(words: list[UInt32[Array, "*b E"]], width: int) -> Float[Array, "E *b width"]:
    """The first bits of words as numbers."""
    rows = jnp.moveaxis(jnp.stack(jnp.broadcast_arrays(*words)), (0, -1), (-1, 0))
    numbers = (rows[..., None] >> np.arange(WORD, dtype=np.uint32)) & np.uint32(1)
    return numbers.reshape(*rows.shape[:-1], -1)[..., :width].astype(jnp.float32)
