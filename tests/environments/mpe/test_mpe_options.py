"""The options of the particle worlds: what they accept, and what they say of the rest."""

from typing import Any

import jax
import numpy as np
import pytest

from shoal.environments.options import check_convention
from shoal.environments.registry import names, options_of, validate
from shoal.errors import InputError
from support.environments import device_env

COUNTS = ("num_agents", "num_good", "num_adversaries", "num_obstacles", "num_food", "num_forests", "num_landmarks")


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("mpe/")])
def test_every_option_keeps_the_promises(name: str) -> None:
    """Team sizes 2 to 6 (and none, where none is allowed), both kinds of action, both conventions."""
    known = options_of(name)
    asked = [{"continuous_actions": True, "horizon": 7}]
    asked += [{option: size} for option in COUNTS if option in known for size in (1, 2, 6)]
    asked += [{option: 0} for option in ("num_obstacles", "num_forests") if option in known]
    asked += [{"convention": "openai"}] if "convention" in known else []
    asked += [{"channel": False, "continuous_actions": x} for x in (True, False)] if "channel" in known else []
    for options in asked:
        env = device_env(name, **options)
        validate(env)
        assert env.spec.name == name
        assert env.spec.horizon == options.get("horizon", 25)


def test_a_reference_game_without_a_channel_is_the_same_without_words() -> None:
    """Moves 1 and 3 with the words 4 and 9: all that agents observe but these, and what they earn, is the same."""
    found = []
    for channel, action in ((True, [1 + 5 * 4, 3 + 5 * 9]), (False, [1, 3])):
        env = device_env("mpe/simple_reference", channel=channel)
        state, first = jax.jit(env.reset)(jax.random.key(2))
        outcome = jax.jit(env.step)(jax.random.key(3), state, np.array(action))[1]
        found.append((first, outcome))
        assert env.spec.action.width == (50 if channel else 5)
    for with_words, without in zip(*found, strict=True):
        assert without.obs.shape == (2, 11)
        np.testing.assert_array_equal(with_words.obs[:, :11], without.obs)
        np.testing.assert_array_equal(with_words.reward, without.reward)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("mpe/simple_spread", {"num_agents": 0}, "num_agents must be an integer of at least 1, not 0"),
        ("mpe/simple_spread", {"num_agents": 10**9}, "num_agents must be at most 1024, not 1e9."),
        ("mpe/simple_spread", {"horizon": 2**31}, "horizon must be at most 2147483647, not 2147483648."),
        ("mpe/simple_tag", {"num_obstacles": 1025}, "num_obstacles must be at most 1024, not 1025."),
        ("matrix/all_ones", {"num_agents": 10**30}, "num_agents must be at most 1024, not 1e30."),
        ("mpe/simple_spread", {"num_agents": True}, "num_agents must be an integer"),
        ("mpe/simple_spread", {"num_landmarks": 0}, "num_landmarks"),
        ("mpe/simple_spread", {"local_ratio": 1.5}, "local_ratio must be a number from 0 to 1"),
        ("mpe/simple_spread", {"local_ratio": 0.5, "convention": "openai"}, "local_ratio has no meaning"),
        ("mpe/simple_spread", {"landmark_range": -1.0}, "landmark_range"),
        ("mpe/simple_spread", {"landmark_range": float("nan")}, "landmark_range"),
        ("mpe/simple_spread", {"horizon": 0}, "horizon"),
        ("mpe/simple_reference", {"local_ratio": 0.5, "convention": "openai"}, "local_ratio has no meaning"),
        ("mpe/simple_tag", {"num_obstacles": -1}, "num_obstacles must be an integer of at least 0"),
        ("mpe/simple_world_comm", {"num_food": 0}, "num_food"),
    ],
)
def test_bad_options(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        device_env(name, **options)


def test_an_unknown_convention_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'openai'"):
        check_convention("opnai")
