"""Names, options, a user's own environments, and what is said when any of them is wrong."""

import copy
import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.registry import check_spec, make, names, options_of, validate
from shoal.errors import InputError
from shoal.types import Box, Discrete, Environment
from support.environments import device_env

OWN = """
from shoal.environments.matrix import matrix_game

number = 7

def game(*, payoff=1.0, horizon=2):
    return matrix_game([payoff, 0.0], horizon=horizon, name="own/game")

def needy(*, size):
    return matrix_game([0.0] * size)

def anything(**options):
    return matrix_game([0.0, 1.0], **options)

def wrong():
    return 3
"""


@pytest.fixture(autouse=True)
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_games.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_games", raising=False)


def test_every_name_builds_and_keeps_its_promises() -> None:
    assert len(names()) == 32 and list(names()) == sorted(names())
    for name in names():
        env = device_env(name)
        assert env.spec.name == name
        validate(env)


def test_options_are_listed_with_their_defaults() -> None:
    options = options_of("mpe/simple_spread")
    assert options["num_agents"].default == 3
    assert options["convention"].default == "mpe2"
    assert options_of("own_games:game")["horizon"].default == 2


def test_own_environments() -> None:
    assert make("own_games:game").spec.name == "own/game"
    assert make("own_games:game", horizon=5).spec.horizon == 5
    assert make("own_games:anything", horizon=5).spec.horizon == 5
    env = make("own_games:game")
    assert make(env) is env


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("mpe/simple_spred", {}, "no environment 'mpe/simple_spred'; did you mean 'mpe/simple_spread'"),
        ("zzz", {}, "the name of your own is .module:name"),
        ("no_such_module:game", {}, "no module 'no_such_module'"),
        ("own_broken:game", {}, "no module 'no_such_dependency', which the environment 'own_broken:game' needs"),
        ("own_games:absent", {}, "'own_games' has no attribute 'absent'"),
        ("own_games:number", {}, "not callable"),
        ("own_games:wrong", {}, "gives a int, which is neither a shoal.Environment"),
        ("own_games:needy", {}, "needs the option 'size'"),
        ("own_games:game", {"colour": 1}, "takes no option 'colour'; it accepts 'payoff', 'horizon'"),
        ("mpe/simple", {"num_agents": 2}, "takes no option 'num_agents'; it accepts 'horizon', 'continuous_actions'"),
        (":game", {}, "not of the form"),
        ("..own:game", {}, "not of the form"),
    ],
)
def test_notices_are_printed(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make(name, **options)


def test_a_factory_is_called_by_its_name_in_messages() -> None:
    game = importlib.import_module("own_games").game
    with pytest.raises(InputError, match=r"^own_games:game takes no option 'colour'"):
        make(game, colour=1)
    with pytest.raises(InputError, match=r"^own_games:needy needs the option 'size'"):
        make(importlib.import_module("own_games").needy)


def test_a_built_environment_takes_no_options() -> None:
    with pytest.raises(InputError, match="already built"):
        make(make("own_games:game"), horizon=3)


def broken_spec(**changes: Any) -> Environment:
    env = device_env("matrix/two_step")
    return dataclasses.replace(env, spec=dataclasses.replace(env.spec, **changes))


def broken_outcome(field: str, value: Any) -> Environment:
    env = device_env("matrix/two_step")

    def step(key: Any, state: Any, action: Any) -> Any:
        state, outcome = env.step(key, state, action)
        return state, outcome._replace(**{field: value})

    return dataclasses.replace(env, step=step)


def broken_step(**changes: Any) -> Environment:
    env = device_env("matrix/two_step")

    def step(key: Any, state: Any, action: Any) -> Any:
        state, outcome = env.step(key, state, action)
        return state._replace(**changes), outcome

    return dataclasses.replace(env, step=step)


def half_precision(kind: Any) -> Environment:
    env = device_env("matrix/two_step")

    def cast(result: tuple[Any, Any]) -> Any:
        return result[0], result[1]._replace(reward=result[1].reward.astype(kind))

    reset, step = (lambda *given, call=call: cast(call(*given)) for call in (env.reset, env.step))
    return dataclasses.replace(env, reset=reset, step=step)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (broken_spec(obs_dims=(2, 2)), r"reset gives obs of shape \(2, 3\), but the spec says \(2, 2\)"),
        (broken_spec(state_dim=5), r"reset gives state of shape \(3,\)"),
        (broken_spec(obs_dims=(3,)), "spec.obs_dims has 1 entries for 2 agents"),
        (broken_spec(roles=(0,)), "spec.roles has 1 entries"),
        (broken_spec(roles=(0, 2)), "spec.roles must be numbered"),
        (broken_spec(sides=(0,)), "spec.sides must be None or give each of the 2 agents a side"),
        (broken_spec(sides=(0, 2)), "spec.sides must be None or give each of the 2 agents a side"),
        (broken_spec(action_dims=(2, 3)), "spec.action_dims must lie between 1 and the padded width 2"),
        (broken_spec(agents=()), "spec.agents is empty"),
        (broken_spec(horizon=0), "spec.horizon"),
        (broken_spec(novel=(3,)), "spec.novel must hold distinct indices below 3"),
        (broken_spec(metrics=("return",)), "'return', which is already another column of the log"),
        (broken_spec(metrics=("won", "won")), "names a metric twice: won, won"),
        (broken_spec(metrics=("return/agent_0",)), "'return/agent_0', but a metric's name is made of letters"),
        (broken_spec(metrics=("",)), "'', but a metric's name"),
        (broken_spec(metrics=("won",)), r"step gives metrics of shape tuple, but the spec says \(1,\)"),
        (broken_outcome("metrics", jnp.zeros(1)), "step gives metrics, but spec.metrics names none"),
        (broken_outcome("reward", jnp.zeros(())), r"step gives reward of shape \(\), but the spec says \(2,\)"),
        (broken_outcome("last", jnp.zeros(())), "step gives last of type float32, but it must be bool"),
        (broken_outcome("discount", 1.0), "step gives discount"),
        (broken_outcome("reward", jnp.zeros(2, int)), "reward of type int32, but it must be float"),
        (broken_step(t=jnp.zeros(())), r"state \.t is int32\[\] after reset but float32\[\] after step"),
        (broken_step(t=None), "step returns a state built as"),
        (
            broken_outcome("reward", jnp.zeros(2, jnp.float16)),
            r"Step \.reward is float32\[2\] after reset but float16\[2\] after step",
        ),
        (half_precision(jnp.float16), "rewards of type float16 lose precision or overflow where an"),
        (half_precision(jnp.bfloat16), "rewards of type bfloat16 lose precision"),
        (dataclasses.replace(make("matrix/two_step"), step=lambda key, state, action: 3), "must return a pair"),
        (
            dataclasses.replace(make("matrix/two_step"), reset=lambda key: float(jnp.zeros(3).sum() + key)),
            "reset cannot be traced by JAX",
        ),
    ],
)
def test_broken_promises_are_named(env: Environment, words: str) -> None:
    with pytest.raises(InputError, match=words):
        validate(env)


@pytest.mark.parametrize("value", ["won", b"\0\1", {0: "a"}, [0, 1], {"a"}, ("a", 1), 3, np.arange(2)], ids=str)
def test_only_tuples_are_tuples_of_names_or_numbers(value: Any) -> None:
    for field in ("agents", "metrics", "obs_dims", "action_dims", "roles", "novel", "sides", "scored"):
        spec = copy.copy(make("matrix/two_step").spec)
        object.__setattr__(spec, field, value)  # tests would refuse it earlier, by its type
        with pytest.raises(
            InputError, match=rf"spec\.{field} must be a tuple of (names|whole numbers), such as"
        ) as caught:
            check_spec(spec)
        assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("horizon", 20.0, "spec.horizon must be a whole number, not 20.0."),
        ("horizon", float("nan"), "spec.horizon must be a whole number, not nan."),
        ("state_dim", 3.0, "spec.state_dim must be a whole number, not 3.0."),
        ("state_dim", True, "spec.state_dim must be a whole number, not True."),
        ("action", 2, "spec.action must be shoal.Discrete(n) or shoal.Box(dim, low, high), not 2."),
        ("action", (Discrete, 2.0), "spec.action.n must be a whole number, not 2.0."),
        ("action", (Box, 2.0, -1.0, 1.0), "spec.action.dim must be a whole number, not 2.0."),
        ("action", (Box, 2, "a", 1), "spec.action.low must be a number, not 'a'."),
        ("action", (Box, 2, -1.0, np.ones(2)), "spec.action.high must be a number, not array([1., 1.])."),
        ("action", (Box, 2, float("nan"), 1.0), "spec.action.low must be below spec.action.high."),
        ("shared_reward", "no", "spec.shared_reward must be True or False, not 'no'."),
        ("score", "avg", "spec.score must be 'sum' or 'mean', not 'avg'."),
        ("score", "Sum", "spec.score must be 'sum' or 'mean', not 'Sum'."),
    ],
)
def test_numbers_and_words_of_a_spec_have_their_types(field: str, value: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        check_spec(unchecked_spec(**{field: value}))
    assert str(caught.value) == f"matrix/two_step: {words}"


def test_the_numbers_of_a_spec_may_be_numpys() -> None:
    check_spec(unchecked_spec(horizon=np.int64(3), state_dim=np.int32(3), action=(Box, 2, np.float32(-1), 1)))


def unchecked_spec(**fields: Any) -> Any:
    """A spec with any values, which tests would refuse earlier; a tuple is the type and the values of a space."""
    spec = copy.copy(make("matrix/two_step").spec)
    for field, value in fields.items():
        if isinstance(value, tuple):
            space = object.__new__(value[0])
            for part, number in zip(dataclasses.fields(space), value[1:], strict=True):
                object.__setattr__(space, part.name, number)
            value = space
        object.__setattr__(spec, field, value)
    return spec
