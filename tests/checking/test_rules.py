"""The rules of ``shoal check`` on timesteps that a test has played, as tests of environments use them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoal.checking.play import Episode
from shoal.checking.rules import Played, deaths, rewards
from shoal.game import blank
from shoal.spec import equal_agents
from shoal.types import Step
from support.contract import broken_rules

TEAM = equal_agents("x", "agent", 2, obs=3, state=2, actions=2, horizon=5, shared_reward=True, metrics=("won",))
SPEC = replace(TEAM, obs_dims=(3, 2))


def timesteps(field: str = "", index: Any = 0, value: Any = 0) -> Step:
    """An episode of two steps and a timestep after its end, with one wrong value."""
    bits = {name: np.array(row, bool) for name, row in (("first", [1, 0, 0, 0]), ("last", [0, 0, 1, 0]))}
    floats = {"obs": (2, 3), "state": (2,), "reward": (2,), "discount": (2,), "metrics": (1,)}
    one = {name: np.ones((4, *shape), np.float32) for name, shape in floats.items()}
    one |= {"obs": 0 * one["obs"], "reward": 0 * one["reward"]}
    step = Step(**one, **bits, legal=np.ones((4, 2, 2), bool), alive=np.ones((4, 2), bool))  # pyright: ignore
    if field:
        getattr(step, field)[index] = value
    return step


@pytest.mark.parametrize(
    ("field", "index", "value", "subject"),
    [
        ("obs", (1, 1, 2), 7.0, "observation padding"),
        ("legal", (1, 0), False, "legal actions"),
        ("legal", (2, 0), False, "legal actions"),
        ("reward", (0, 0), 2.0, "reward"),
        ("first", 1, True, "first"),
        ("discount", (1, 0), -0.5, "discount"),
        ("alive", 0, False, "alive"),
        ("state", (1, 0), np.nan, "state"),
        ("last", 0, True, "last"),
        ("metrics", (2, 0), 1.5, "metric won"),
    ],
)
def test_a_wrong_value_breaks_a_rule(field: str, index: Any, value: Any, subject: str) -> None:
    assert broken_rules(SPEC, [timesteps(), timesteps(field, index, value)])[0].startswith(f"{subject}: ")


def test_agents_whose_episode_has_ended_need_no_legal_action() -> None:
    over = timesteps("legal", (2, 0), False)
    over.discount[2] = 0.0
    assert broken_rules(SPEC, [timesteps(), over]) == []


def test_sound_timesteps_and_those_after_an_episodes_end_break_none() -> None:
    assert broken_rules(SPEC, [timesteps(), timesteps("obs", (3, 1, 2), 7.0)]) == []
    assert broken_rules(replace(SPEC, metrics=()), [timesteps()]) == []


@pytest.mark.parametrize("episode", [1, 2])
def test_a_side_whose_rewards_differ_in_any_episode_breaks_a_rule(episode: int) -> None:
    """Also where the first episode differs between the sides alone."""
    spec = equal_agents("x", "agent", 4, obs=1, state=0, actions=2, horizon=1, shared_reward=False, sides=(0, 0, 1, 1))
    earned = [[1.0, 1.0, -1.0, -1.0], [1.0, 1.0, -1.0, -1.0]]
    earned[episode - 1][3] = -2.0
    played = []
    for number, reward in enumerate(earned, 1):
        timesteps = blank(spec, 2)
        timesteps.alive[...] = True
        timesteps.reward[1] = reward
        played.append(Episode(number, 0, timesteps, np.zeros((1, 4), np.int32)))
    (finding,) = rewards(Played(spec, played))
    assert f"agent_2 received -1 and agent_3 -2 at step 1 of episode {episode}" in finding.sentence


@pytest.mark.parametrize(
    ("discount", "paid", "level", "words"),
    [
        (0, 4, "note", "Its discount becomes 0, and it receives no reward while it is dead."),
        (0, 3, "warning", "Its discount becomes 0, but it receives rewards while it is dead, which do not"),
        (1, 5, "note", "Its discount stays 1 and its reward continues"),
    ],
)
def test_an_agent_that_becomes_alive_again_has_rewards_of_its_own(
    discount: int, paid: int, level: str, words: str
) -> None:
    """It is dead at timesteps 2 and 3, and receives one reward at ``paid``."""
    spec = equal_agents("x", "agent", 2, obs=1, state=0, actions=2, horizon=6, shared_reward=False)
    timesteps = blank(spec, 7)
    timesteps.alive[...] = timesteps.discount[...] = timesteps.reward[:, 1] = 1
    timesteps.alive[2:4, 0], timesteps.discount[2, 0], timesteps.reward[paid, 0] = False, discount, 1
    (finding,) = deaths(Played(spec, [Episode(1, 0, timesteps, np.zeros((6, 2), np.int32))]))
    assert finding.level == level and "for 2 timesteps on average, and becomes alive again" in finding.sentence
    assert words in finding.sentence
