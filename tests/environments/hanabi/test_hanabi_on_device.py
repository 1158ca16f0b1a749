"""Hanabi on the device beside OpenSpiel's game: the same rows, moves, rewards and ends for the same cards."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.adapters.hanabi import original
from shoal.environments.hanabi.engine import Rules, State
from shoal.environments.hanabi.tasks import TASKS, Game
from shoal.errors import InputError
from shoal.types import Environment, Step
from support.environments import device_env, host_env

QUICK = "mini-3p"
_compiled: dict[str, tuple[Environment, Any, Any]] = {}


def compiled(task: str, games: int = 12, **options: Any) -> tuple[Environment, Any, Any]:
    """An environment, its reset and its step for a number of games at once."""
    name = f"{task} {games} {options}"
    if name not in _compiled:
        env = device_env(f"hanabi/{task}", **options)
        assert env.batched is not None
        batched = env.batched
        _compiled[name] = env, jax.jit(lambda key: batched.reset(key, games)), jax.jit(batched.step)
    return _compiled[name]


def kind(word: Any) -> int:
    """The number of a card's kind."""
    return int(word).bit_length() - 1


def choice(rng: np.random.Generator, game: Game, s: State, e: int, legal: np.ndarray, skill: float) -> int:
    """A legal action: with probability ``skill`` a card that can be played, or else no play."""
    moves = np.flatnonzero(legal)
    plays = (game.hand <= moves) & (moves < 2 * game.hand)
    seat = int(s.turn[e])
    good = [a for a in moves[plays] if int(s.hands[e, seat, a - game.hand]) & int(s.playable[e])]
    if rng.random() >= skill:
        return int(rng.choice(moves))
    return good[0] if good else int(rng.choice(moves[~plays] if not plays.all() else moves))


def check(game: Game, s: State, step: Step, e: int, theirs: Any) -> None:
    """Game ``e`` is OpenSpiel's state ``theirs``."""
    players, turn, hand = game.players, int(s.turn[e]), game.hand * game.kinds
    over = theirs.is_terminal()
    assert over or theirs.current_player() == turn
    for seat in range(players):
        row = step.obs[e, seat]
        np.testing.assert_array_equal(row[: game.seen], np.array(theirs.observation_tensor(seat), np.float32))
        np.testing.assert_array_equal(row[game.seen :], np.eye(players)[(turn - seat) % players])
        legal = theirs.legal_actions(seat) if seat == turn and not over else [game.moves]
        np.testing.assert_array_equal(np.flatnonzero(step.legal[e, seat]), legal)
    # The right neighbour is the last whose hand a player sees.
    held = step.obs[e, (turn + 1) % players, (players - 2) * hand : (players - 1) * hand]
    row = step.obs[e, turn, : game.seen]
    np.testing.assert_array_equal(step.state[e], np.concatenate([held, row, np.eye(players)[turn]]))
    assert step.last[e] == over and (step.discount[e] == (not over)).all() and step.alive[e].all()


def played(task: str, seed: int) -> list[float]:
    """Twelve games beside OpenSpiel's, played with different skill; their returns."""
    pytest.importorskip("pyspiel")
    game, (env, reset, step) = TASKS[task], compiled(task)
    rng, theirs = np.random.default_rng(seed), []
    s, found = jax.device_get(reset(jax.random.key(seed)))
    for hands in s.hands:
        state: Any = original(task).new_initial_state()
        for card in hands.reshape(-1):
            state.apply_action(kind(card))
        theirs.append(state)
    assert found.first.all() and (found.reward == 0).all()
    skill = np.resize([0.0, 0.9, 1.0], len(theirs))
    for e, state in enumerate(theirs):
        check(game, s, found, e, state)
    moves, going = 0, set(range(len(theirs)))
    while going:
        action = np.full((len(theirs), game.players), game.moves, np.int32)
        for e in going:
            turn = int(s.turn[e])
            action[e, turn] = choice(rng, game, s, e, found.legal[e, turn], skill[e])
        before = s
        s, found = jax.device_get(step(jax.random.key(1000 * seed + moves), s, jnp.asarray(action)))
        moves += 1
        for e in going:
            turn, state = int(before.turn[e]), theirs[e]
            points = state.player_return(0)
            state.apply_action(int(action[e, turn]))
            if state.is_chance_node():
                state.apply_action(kind(s.hands[e, turn, -1]))
            check(game, s, found, e, state)
            np.testing.assert_array_equal(found.reward[e], np.full(game.players, state.player_return(0) - points))
            assert found.metrics[e] == (state.player_return(0) == game.kinds) and not found.first[e]
        going = {e for e in going if not theirs[e].is_terminal()}
    assert moves <= env.spec.horizon
    return [state.player_return(0) for state in theirs]


def test_games_are_openspiels() -> None:
    returns = played(QUICK, 0)
    assert 0 in returns and max(returns) > 6


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_all_games_are_openspiels(task: str) -> None:
    returns = [x for seed in (1, 2, 3) for x in played(task, seed)]
    assert 0 in returns and max(returns) > 0.7 * TASKS[task].kinds


def test_both_backends_have_one_spec() -> None:
    pytest.importorskip("pyspiel")
    host = host_env("hanabi/mini-2p", backend="host")
    assert device_env("hanabi/mini-2p").spec == host.spec
    assert host_env("hanabi/mini-2p", backend="host", keep_points=True).make().spec == host.spec


def test_every_card_of_the_deck_is_drawn_alike() -> None:
    """From decks with holes: luck that is spread evenly draws each remaining card once."""
    rng = np.random.default_rng(0)
    for task in ("full-2p", "small-2p"):
        game = TASKS[task]
        kinds = np.repeat(np.tile(np.arange(game.ranks), game.colors), game.colors * list(game.copies))
        kinds += np.repeat(np.arange(game.colors), sum(game.copies)) * game.ranks
        draw = jax.jit(Rules(game).drawn)
        for _ in range(4):
            there = rng.random(game.deck) < 0.6
            left, padded = int(there.sum()), np.append(there, np.zeros(64 - game.deck, bool))
            deck = np.packbits(padded, bitorder="little").view(np.uint32)[:, None].repeat(64, axis=1)
            luck = (np.resize(np.arange(left), 64) + 0.5) / left
            card, after = jax.device_get(draw(deck, np.full(64, left), luck.astype(np.float32)))
            assert sorted(map(kind, card[:left])) == sorted(kinds[there])
            rest = np.unpackbits(np.ascontiguousarray(after.T).view(np.uint8), axis=1, bitorder="little").astype(bool)
            assert (rest.sum(1) == left - 1).all() and not (rest & ~padded).any()
            taken = (padded & ~rest).argmax(1)
            assert (kinds[taken] == [kind(word) for word in card]).all()


def test_deals_differ_and_follow_the_key() -> None:
    _, reset, _ = compiled(QUICK)
    first, again, other = (jax.device_get(reset(jax.random.key(k))[0].hands) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any() and (first[0] != first[1]).any()


def last_rewards(**options: Any) -> tuple[np.ndarray, np.ndarray]:
    """(the reward of the move that loses the last life, the points before) of twelve games of a single life."""
    _, reset, step = compiled("small-2p", **options)
    game, rng = TASKS["small-2p"], np.random.default_rng(0)
    s, found = jax.device_get(reset(jax.random.key(3)))
    reward, points, going = np.zeros(12), np.zeros(12), np.ones(12, bool)
    for t in range(game.longest):
        action = np.full((12, 2), game.moves, np.int32)
        for e in range(12):
            turn = int(s.turn[e])
            action[e, turn] = choice(rng, game, s, e, found.legal[e, turn], 0.8)
        before = s.points
        s, found = jax.device_get(step(jax.random.key(t), s, jnp.asarray(action)))
        lost = going & (s.lives == 0)
        reward[lost], points[lost] = found.reward[lost, 0], before[lost]
        going &= ~found.last
    return reward, points


def test_losing_the_last_life_costs_the_points_unless_they_are_kept() -> None:
    reward, points = last_rewards()
    assert points.max() > 1
    np.testing.assert_array_equal(reward, -points)
    reward, points = last_rewards(keep_points=True)
    assert points.max() > 1 and (reward == 0).all()


def test_another_deck() -> None:
    env = device_env("hanabi/mini-2p", copies=(2, 2, 1))
    assert env.spec.obs_dim == device_env("hanabi/mini-2p").spec.obs_dim - 2 * 3
    hands = jax.device_get(
        jax.jit(jax.vmap(lambda key: env.reset(key)[0].hands))(jax.random.split(jax.random.key(0), 500))
    )
    ranks = np.array([kind(card) % 3 for card in hands.reshape(-1)])
    np.testing.assert_allclose(np.bincount(ranks) / len(ranks), [0.4, 0.4, 0.2], atol=0.03)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"copies": (2, 2)}, "copies must be 3 positive numbers"),
        ({"copies": 2}, "copies must be 3 positive numbers"),
        ({"copies": (2, 0, 1)}, "copies must be 3 positive numbers"),
        ({"copies": (1, 1, 1)}, "must have 10 to 64 cards, not 9"),
        ({"copies": (20, 2, 1)}, "must have 10 to 64 cards, not 69"),
        ({"copies": (2, 2, 1), "backend": "host"}, "OpenSpiel's cannot be changed"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], said: str, unchecked_annotations: None) -> None:
    del unchecked_annotations
    with pytest.raises(InputError, match=said):
        device_env("hanabi/mini-3p", **options)


@pytest.mark.parametrize("task", ["full-6p", "full", "tiny-2p", "full-2"])
def test_unknown_tasks_are_refused(task: str) -> None:
    with pytest.raises(InputError, match="Hanabi"):
        device_env(f"hanabi/{task}")
