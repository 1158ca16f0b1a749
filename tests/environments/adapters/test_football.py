"""gfootball through the adapter, beside the original step by step; skipped where it is not installed."""

from typing import Any

import numpy as np
import pytest

from shoal.environments import registry
from shoal.environments.adapters import football
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep, blank, own_actions, refresh

with football.quiet():
    gfootball = pytest.importorskip("gfootball.env", reason="gfootball is built from source (docs/football.md)")

TASK = "academy_3_vs_1_with_keeper"


def original(task: str, players: int, rewards: str = "scoring,checkpoints") -> Any:
    with football.quiet():
        return gfootball.create_environment(
            env_name=task,
            representation="simple115v2",
            rewards=rewards,
            number_of_left_players_agent_controls=players,
            other_config_options={"game_engine_random_seed": 7, "reverse_team_processing": True},
        )


def match(task: str = TASK, **options: Any) -> football.Match:
    made = registry.make(f"football/{task}", **options)
    assert isinstance(made, HostEnvironment)
    game = made.make()
    assert isinstance(game, football.Match) and game.spec == made.spec
    return game


def begun(game: football.Match, seed: int) -> tuple[HostTimestep, np.ndarray]:
    out, own = blank(game.spec), own_actions(game.spec)
    refresh(out, own)
    game.reset(seed, out)
    return out, own


def play(game: football.Match, seed: int, steps: int) -> np.ndarray:
    (out, own), rng, rows = begun(game, seed), np.random.default_rng(seed), []
    for _ in range(steps):
        rows.append(np.append(out.obs, [out.reward.sum(), out.last]))
        if out.last:
            break
        refresh(out, own)
        game.step(rng.integers(football.ACTIONS, size=game.spec.num_agents).astype(np.int32), out)
    return np.array(rows)


def moves(rng: np.random.Generator, players: int, way: str) -> np.ndarray:
    """Random actions, or runs and shots towards the goal, which end in goals more often."""
    return rng.integers(19, size=players) if way == "random" else rng.choice([5, 5, 5, 12, 13], size=players)


@pytest.mark.parametrize(
    ("task", "players", "shared", "way"),
    [
        (TASK, 3, True, "random"),
        (TASK, 2, False, "random"),
        ("academy_empty_goal_close", 1, True, "shoot"),
        ("academy_corner", 4, True, "random"),
    ],
)
def test_matches_are_gfootballs_step_by_step(task: str, players: int, shared: bool, way: str):
    game = match(task, num_agents=players, shared_reward=shared)
    beside, rng = original(task, players), np.random.default_rng(0)
    out, own = begun(game, 7)  # the seed of the original, whose first episode it is
    obs, earned = beside.reset(), 0.0
    active = lambda: [one["active"] for one in beside.unwrapped.observation()]  # noqa: E731
    for _ in range(game.spec.horizon):
        rows = np.reshape(obs, (players, 115))
        np.testing.assert_array_equal(out.obs, rows)
        np.testing.assert_array_equal(out.state[:97], rows[0, :97])
        np.testing.assert_array_equal(out.state[97:-7].reshape(players, 11).argmax(axis=1), active())
        np.testing.assert_array_equal(out.state[-7:], rows[0, -7:])
        assert out.legal.all() and out.alive.all()
        action = moves(rng, players, way).astype(np.int32)
        refresh(out, own)
        game.step(action, out)
        obs, reward, done, _ = beside.step(action)
        expected = np.full(players, np.sum(reward)) if shared else np.reshape(reward, players)
        np.testing.assert_array_equal(out.reward, expected.astype(np.float32))
        earned += float(np.abs(out.reward).sum())
        assert out.last == done
        assert (out.discount == 1.0).all() != (done and beside.unwrapped.observation()[0]["steps_left"] > 0)
        if out.last:
            break
    assert out.last and not out.discount.any() and earned > 0
    np.testing.assert_array_equal(out.obs, np.reshape(obs, (players, 115)))


def test_an_episode_depends_on_its_seed_alone():
    game = match()
    first = play(game, 4, 40)
    other = play(game, 5, 40)
    np.testing.assert_array_equal(play(game, 4, 40), first)
    np.testing.assert_array_equal(play(match(), 4, 40), first)
    assert first.shape != other.shape or not np.array_equal(first, other)


def test_the_kick_off_of_a_full_game_depends_on_its_seed_alone():
    game = match("5_vs_5")
    assert game.spec.num_agents == 4 and game.spec.horizon == 3001
    first = [play(game, seed, 5) for seed in (1, 2, 3)]
    for seed, rows in zip((1, 2, 3), first, strict=True):
        np.testing.assert_array_equal(play(game, seed, 5), rows)


@pytest.mark.parametrize("limit", [None, 30])
def test_the_end_of_playing_time_is_a_time_limit(limit: int | None):
    game = match("academy_pass_and_shoot_with_keeper", time_limit=limit)
    out, own = begun(game, 0)
    idle, steps = np.zeros(2, np.int32), 0
    while not out.last:
        assert out.discount.all()
        refresh(out, own)
        game.step(idle, out)
        steps += 1
    assert steps == game.spec.horizon == (limit or 401)
    assert out.discount.all()


@pytest.mark.parametrize(
    ("seen", "ends"),
    [
        ({"score": [0, 0], "game_mode": 0, "ball_owned_team": 0}, False),
        ({"score": [0, 0], "game_mode": 0, "ball_owned_team": -1}, False),
        ({"score": [0, 1], "game_mode": 0, "ball_owned_team": 0}, True),
        ({"score": [0, 0], "game_mode": 4, "ball_owned_team": 0}, True),
        ({"score": [0, 0], "game_mode": 0, "ball_owned_team": 1}, True),
    ],
)
def test_what_ends_an_episode_in_its_very_last_step(seen: dict[str, Any], ends: bool):
    academy = match()
    academy._first_owner = 0
    assert academy._ends_anyway(seen) == ends
    full = match("5_vs_5")
    full._first_owner = 0
    assert not full._ends_anyway(seen)


class SentOff:
    """What gfootball gives after a red card: agent 0 has no player any more."""

    def __init__(self, env: Any):
        self.env, self.unwrapped = env, env.unwrapped

    def step(self, action: np.ndarray) -> Any:
        obs, *rest = self.env.step(action)
        obs[0, 97:108] = 0.0
        return obs, *rest


def test_a_player_that_is_sent_off_is_dead_and_the_team_continues():
    game = match()
    out, own = begun(game, 0)
    game._env = SentOff(game._env)
    for _ in range(2):
        refresh(out, own)
        game.step(np.zeros(3, np.int32), out)
    np.testing.assert_array_equal(out.alive, [False, True, True])
    np.testing.assert_array_equal(out.legal.sum(axis=1), [1, 19, 19])
    assert out.legal[0, 0] and not out.obs[0].any() and out.discount.all() and not out.last
    np.testing.assert_array_equal(out.state[:97], out.obs[1, :97])


def test_wrong_requests_are_refused():
    for words, options in (
        ("did you mean 'academy_3_vs_1_with_keeper'", {}),
        ("4 players to control", {"num_agents": 5}),
        ("num_agents must be an integer", {"num_agents": 0}),
        ("ends after 401 steps", {"time_limit": 402}),
    ):
        with pytest.raises(InputError, match=words):
            registry.make(f"football/{TASK if options else TASK[:-5]}", **options)
