"""Flags to configurations and back: what fits comes through unchanged, what does not is refused in one sentence."""

import dataclasses
import inspect
import json
import typing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal import algorithms
from shoal.errors import InputError
from shoal.networks.body import Body
from shoal.options import synonyms
from shoal.options.flags import check_names, flags_of, options_from_json, override
from shoal.options.synonyms import meant
from shoal.presets import PRESETS, preset, preset_note
from shoal.presets.tuned import OFF_POLICY
from shoal.training.settings import Settings

CONFIGS = [Settings(), Body(), *(algorithms.get(name).Config() for name in algorithms.NAMES)]

LITTLE = st.integers(-3, 300)
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.lists(st.one_of(st.none(), LITTLE, st.floats(), st.text(max_size=2)), max_size=3),
    st.dictionaries(st.text(max_size=2), LITTLE, max_size=2),
    st.sampled_from([np.int64(3), np.float32(0.5), np.bool_(True), np.arange(3), 10**400, 1 + 2j, object()]),
)


def is_a(value: Any, hint: Any) -> bool:
    """Whether a value is of a field's type, exactly."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return value in args
    if origin is tuple:
        return type(value) is tuple and all(is_a(item, args[0]) for item in value)
    if args:
        return any(is_a(value, arg) for arg in args)
    return type(value) is hint or (hint is type(None) and value is None)


def hints(config: Any) -> dict[str, Any]:
    """The type of every flag."""
    found = typing.get_type_hints(type(config))
    here = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    nested = [hints(value) for value in here.values() if dataclasses.is_dataclass(value)]
    plain = {name: found[name] for name, value in here.items() if not dataclasses.is_dataclass(value)}
    return {name: hint for part in (plain, *nested) for name, hint in part.items()}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{type(c).__module__}.{type(c).__name__}")
def test_flags_and_back(config: Any) -> None:
    flags = flags_of(config)
    assert flags.keys() == hints(config).keys()
    assert override(config, flags) == config == override(config, {})
    through_json = json.loads(json.dumps(flags))  # as run.json keeps them, with lists for tuples
    assert override(type(config)(), through_json) == config
    assert all(is_a(value, hints(config)[name]) for name, value in flags.items())


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{type(c).__module__}.{type(c).__name__}")
@settings(max_examples=12, deadline=None)
@given(value=ANYTHING)
def test_a_value_fits_its_type_or_is_refused(config: Any, value: Any) -> None:
    before, types = flags_of(config), hints(config)
    for name in before:
        try:
            after = flags_of(override(config, {name: value}))
        except InputError as error:
            assert str(error).startswith(f"{name} must be ") and "\n" not in str(error)
            assert not isinstance(value, (int, float, str, tuple)) or not is_a(value, types[name]) or value != value
            continue
        assert is_a(after[name], types[name])
        assert {**after, name: None} == {**before, name: None}
        if isinstance(value, (int, float, str)):  # nothing is rounded, cut or parsed
            alone = isinstance(value, str) and type(after[name]) is tuple  # a string is one item
            assert after[name] == ((value,) if alone else float(value) if type(after[name]) is float else value)


def test_no_flag_means_two_things() -> None:
    for module in map(algorithms.get, algorithms.NAMES):
        config = module.Config()
        nested = [f.name for f in dataclasses.fields(config) if dataclasses.is_dataclass(getattr(config, f.name))]
        own = [f.name for f in dataclasses.fields(config) if f.name not in nested]
        inner = [name for field in nested for name in flags_of(getattr(config, field))]
        names = own + inner + list(flags_of(Settings()))
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "value", "becomes"),
    [
        ("steps", 3_000_000, 3e6),
        ("seeds", 4.0, 4),
        ("seeds", np.int32(4), 4),
        ("seeds", 2**60, 2**60),
        ("steps", np.float32(0.5), 0.5),
        ("devices", None, None),
        ("side", ["a", "b"], ("a", "b")),
        ("side", "agent_0", ("agent_0",)),
        ("tensorboard", False, False),
    ],
)
def test_numbers(name: str, value: Any, becomes: Any) -> None:
    found = flags_of(override(Settings(), {name: value}))[name]
    assert found == becomes and type(found) is type(becomes)


def test_an_environment_is_built_from_json_as_from_its_options() -> None:
    def make(
        size=(3, 3), walls: tuple[tuple[int, int], ...] = (), names: tuple = (), groups: tuple[list[int], ...] = (),
        ways: tuple[int, int] | tuple[tuple[int, int], ...] | None = None, rows=None, columns: list | None = None,
        **rest,
    ) -> None: ...  # fmt: skip

    options = {
        "size": (4, 4),
        "walls": ((1, 2), (3, 4)),
        "names": ("a", ("b", 1)),
        "groups": ([1, 2], [3]),
        "ways": ((1, 2), (3, 4), (5, 6)),
        "rows": [[1], [2]],
        "columns": [1],
        "more": [1],
    }
    known = inspect.signature(make).parameters
    assert options_from_json(json.loads(json.dumps(options)), known) == options
    assert options_from_json({"size": 4, "ways": None}, known) == {"size": 4, "ways": None}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("seeds", 2.5, "seeds must be a whole number, not 2.5."),
        ("seeds", True, "seeds must be a whole number, not True."),
        ("tensorboard", 1, "tensorboard must be True or False, not 1."),
        ("devices", "all", "devices must be a whole number or None, not 'all'."),
        ("steps", "3e6", "steps must be a number, not '3e6'."),
        ("steps", 10**400, "steps must be a number, not "),
        ("gamma", float("nan"), "gamma must be a number, not nan."),
        ("hidden", (64, "a"), "hidden must be a list or tuple with each item a whole number, not (64, 'a')."),
        ("hidden", 64, "hidden must be a list or tuple with each item a whole number, not 64."),
        ("critic_input", "locl", "must be 'local' or 'concat' or 'state' or 'agent' or 'pruned', not 'locl'."),
        ("critic_input", np.arange(2), "not array([0, 1])."),
        ("sharing", "none", "or 'independent' or a list or tuple with each item a whole number, not 'none'."),
        ("recurrent", (), "recurrent must be a whole number or None, not ()."),
    ],
)
def test_notices_are_printed(name: str, value: Any, said: str) -> None:
    config = Settings() if name in flags_of(Settings()) else algorithms.get("mappo").Config()
    with pytest.raises(InputError) as caught:
        override(config, {name: value})
    assert said in str(caught.value)


def test_nested_fields_are_flat_flags() -> None:
    config = override(algorithms.get("mappo").Config(), {"hidden": [32], "recurrent": 8, "gamma": 1, "ignored": 0})
    assert (config.network.hidden, config.network.recurrent, config.gamma) == ((32,), 8, 1.0)
    assert config.network.activation == Body().activation


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("lerning_rate", "learning_rate"),
        ("seed_", "seed"),
        ("number_of_envs", "num_envs"),
        ("minibatch", "minibatches"),
        ("lr", "learning_rate"),
        ("ent_coef", "entropy_coef"),
        ("n_envs", "num_envs"),
        ("total_timesteps", "steps"),
        ("gae_lambda", "lam"),
        ("n_epochs", "epochs"),
    ],
)
def test_an_unknown_flag_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(InputError, match=f"no setting '{name}'; did you mean '{near}'"):
        check_names({name: 1}, Settings(), algorithms.get("mappo").Config())
    check_names({near: 1}, Settings(), algorithms.get("mappo").Config())


@pytest.mark.parametrize("name", ["resume", "progress", "wandb"])
def test_a_flag_of_one_call_is_not_taken_for_a_misspelt_setting(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name} is no setting of a run, but a flag of shoal train or an argument"):
        check_names({name: 1}, Settings(), algorithms.get("mappo").Config())


def test_what_options_are_called_elsewhere() -> None:
    """Each leads to an option that some algorithm has, and no name of an option leads to another."""
    known = {name for config in CONFIGS for name in flags_of(config)} | {"folder", "progress"}
    for called, names in synonyms._MEANT.items():
        assert known.issuperset(names) and called not in known, called
        for config in CONFIGS:
            assert len(flags_of(config).keys() & set(names)) <= 1, "a word stands for one option of an algorithm"
    assert (meant("kl_threshold", ["max_kl"]), meant("kl_threshold", ["kl_stop"])) == ("max_kl", "kl_stop")
    assert (
        meant("clip-range", ["gamma"]) is None and meant("side2_lr", ["side2_learning_rate"]) == "side2_learning_rate"
    )


@pytest.mark.parametrize("name", algorithms.NAMES)
def test_presets_are_flags_that_exist(name: str) -> None:
    for pattern, flags in PRESETS.get(name, []):
        check_names(flags, Settings(), algorithms.get(name).Config())
        override(Settings(), flags)
        override(algorithms.get(name).Config(), flags)
        assert bool(preset(name, pattern.replace("*", "x"))) == bool(flags), pattern
    anywhere = dict(PRESETS.get(name, [])).get("*", {})
    assert preset(name, "nothing/like-it") == anywhere
    # Rollouts of an on-policy run are too long for a gradient step each; PQN needs more environments than others, as it
    # has no replay; and passes of IPPO, MAPPO and HAPPO were studied where nothing is known.
    assert bool(anywhere) == (name in (*OFF_POLICY, "ipqn", "pqn_vdn", "ippo", "mappo", "happo"))


def test_matrix_games_have_no_preset_but_coordsum() -> None:
    """Nothing is tuned on them, and the settings for what is unknown are not for them."""
    assert preset("mappo", "matrix/climbing") == {} and preset_note("mappo", "matrix/climbing") == "preset: none"
    assert preset("mappo", "matrix/coordsum")["epochs"] == 8
    assert preset("mappo", "somewhere:else") == {"epochs": 4, "minibatches": 4, "lr_final": 0.0}
    assert preset("happo", "somewhere:else") == {"epochs": 4, "minibatches": 4}


def test_a_preset_is_a_copy() -> None:
    preset("mappo", "mpe/simple_spread")["gamma"] = 2.0
    assert preset("mappo", "mpe/simple_spread").get("gamma") != 2.0
