"""Options of which one would silently leave another without effect are refused, by every algorithm that has them."""

from typing import Any

import pytest

from shoal import algorithms
from shoal.errors import InputError
from shoal.options.flags import flags_of, override
from shoal.types import Scale
from support.trajectories import E, T, make_spec

SPEC = make_spec()
SMALL = {"hidden": (4,), "chunk_length": T, "minibatches": 1}

PAIRS: list[tuple[dict[str, Any], str]] = [
    ({"entropy_coef": 0.1, "entropy_final": 0.0, "target_entropy": 0.5}, "entropy_final and target_entropy both"),
    ({"entropy_coef": 0.0, "target_entropy": 0.5}, "target_entropy multiplies entropy_coef by factors"),
    ({"kl_coef": 0.0, "kl_target": 0.01}, "kl_target doubles and halves kl_coef"),
    ({"target_interval": 50, "target_rate": 0.1}, "target_interval 50 is for targets that are copied"),
    ({"burn_in": 2}, "burn_in needs a recurrent network"),
    ({"stored_state": True}, "stored_state and sequence_start need a recurrent network"),
    ({"sequence_start": "episode"}, "stored_state and sequence_start need a recurrent network"),
    ({"policies": "inferred", "critic_input": "local"}, "policies 'inferred' models the others' actions"),
    ({"policies": "inferred", "critic_input": "concat", "local_roles": (0, 1)}, "policies 'inferred' models"),
    ({"lam": 0.5, "n_step": 2}, "lam and n_step are two kinds of target"),
    ({"dead_value": "masked", "critic_input": "concat"}, "dead_value"),
    ({"dead_value": "unmasked", "critic_input": "state"}, "dead_value"),
    ({"dead_value": "masked", "critic_input": "local", "baseline": "optimal"}, "baseline"),
]
APART: list[dict[str, Any]] = [
    {"entropy_coef": 0.1, "entropy_final": 0.0},
    {"entropy_coef": 0.0, "entropy_final": 0.1},
    {"entropy_coef": 0.1, "target_entropy": 0.5},
    {"kl_coef": 0.1, "kl_target": 0.01},
    {"target_interval": 50, "target_rate": None},
    {"target_rate": 0.1},
    {"policies": "inferred", "critic_input": "concat", "local_roles": (1,)},
]


def having(flags: dict[str, Any]) -> list[str]:
    return [name for name in algorithms.NAMES if flags.keys() <= flags_of(algorithms.get(name).Config()).keys()]


def made(name: str, flags: dict[str, Any]) -> None:
    module = algorithms.get(name)
    module.make(SPEC, override(module.Config(), SMALL | flags), Scale(E, T, 10))


@pytest.mark.parametrize(("flags", "said"), PAIRS, ids=["+".join(flags) for flags, _ in PAIRS])
def test_an_option_that_another_would_disable_is_refused(flags: dict[str, Any], said: str) -> None:
    assert having(flags)
    for name in having(flags):
        with pytest.raises(InputError, match=said) as error:
            made(name, flags)
        assert str(error.value).count(". ") == 0 and str(error.value).endswith("."), "one sentence"


@pytest.mark.parametrize("flags", APART, ids=["+".join(flags) for flags in APART])
def test_one_of_two_conflicting_options_alone_is_accepted(flags: dict[str, Any]) -> None:
    assert having(flags)
    for name in having(flags):
        made(name, flags)


@pytest.mark.parametrize("name", algorithms.NAMES)
def test_defaults_have_no_conflicting_options(name: str) -> None:
    made(name, {})
