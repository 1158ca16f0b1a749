"""``run.json`` from anybody: what is not exactly a run's configuration is refused in one sentence naming the key."""

import copy
import json
import os
import socket
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shoal as library
import toys
from shoal import algorithms
from shoal.environments import registry
from shoal.environments.spec_rules import MAX_STEP_NUMBERS
from shoal.environments.wrappers import Wrapping, wrap
from shoal.errors import CheckpointError, InputError
from shoal.options.flags import games_to_json, leaves, spec_to_json
from shoal.spec import Part
from shoal.storage import manifest
from shoal.storage.checkpoint import Checkpoints
from shoal.system.files import dumps
from shoal.training.settings import Settings
from shoal.trust.run_file import Described, check_same_spec, described_run, spec_of
from shoal.types import EnvSpec


def written(folder: Path, algorithm: str = "mappo", options: dict[str, Any] | None = None, **changed: Any) -> Path:
    """The folder of a run in ``toys:busy`` that was never trained."""
    here, options = Settings(seeds=2, **changed), options or {}
    spec = wrap(toys.busy(**options), here.wrapping).spec
    run = Described(algorithm, "toys:busy", options, True, here, algorithms.get(algorithm).Config(), spec)
    folder.mkdir(exist_ok=True)
    manifest.write_run_json(folder, run.as_json())
    return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``run.json`` of such a run holds."""
    folder = written(tmp_path_factory.mktemp("sound"), options={"horizon": 5}, wrapping=Wrapping(frame_stack=2))
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def again(folder: Path) -> Any:
    """What Shoal read, as it would write it."""
    return json.loads(dumps(described_run(folder).as_json()))


def refused(folder: Path) -> str:
    """The sentence with which a folder is refused."""
    with pytest.raises(InputError) as caught:
        described_run(folder)
    said = str(caught.value)
    assert "\n" not in said and said.isprintable() and ("run.json" in said or "is a file" in said)
    return said


@pytest.mark.parametrize("algorithm", [*algorithms.NAMES, "mappo+iql"])
def test_what_is_written_is_read(algorithm: str, tmp_path: Path) -> None:
    folder = written(
        tmp_path, algorithm, {"horizon": 4}, steps=1e5, wrapping=Wrapping(last_action=True, agent_ids=True)
    )
    run = described_run(folder)
    assert run == Described(algorithm, "toys:busy", {"horizon": 4}, True, run.settings, run.config, run.spec)
    assert run.settings == Settings(seeds=2, steps=1e5, wrapping=Wrapping(last_action=True, agent_ids=True))
    assert run.config == algorithms.get(algorithm).Config()
    assert run.spec == wrap(toys.busy(4), run.settings.wrapping).spec and hash(run.spec)
    assert again(folder) == json.loads((folder / "run.json").read_text(encoding="utf-8"))["config"]


PICTURE = (Part((4, 5, 3), "uint8", "image"), Part((2,), name="speed"))
STACKED = Part((4, 5, 6), "uint8", "image", (8, 10, 3))
SPECS = [registry.make(name).spec for name in registry.names()] + [
    toys.busy().spec,
    toys.drift().spec,
    replace(toys.busy().spec, parts=(PICTURE,) * 3, obs_dims=(68,) * 3, novel=()),
    replace(toys.busy().spec, parts=((STACKED,),) * 3, obs_dims=(120,) * 3, novel=None),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_spec_through_json(spec: Any) -> None:
    again = spec_of(json.loads(json.dumps(spec_to_json(spec))))
    assert again == spec and hash(again) == hash(spec)


# What can be wrong with one place of the file. A path leads to it; ``GONE`` deletes it.


class GONE:
    """Stands for no value: the key is deleted."""


DEEP: Any = 0
for _ in range(200):
    DEEP = [DEEP]


def parts(**fields: Any) -> Any:
    """An array for each of three agents, as in run.json."""
    return [[{"shape": [2], "dtype": "uint8", "name": "", "source": None} | fields]] * 3


DAMAGES: list[tuple[str, Any, str]] = [
    ("format", 10, f"has format 10, of a newer version of Shoal; this one reads {manifest.RUN_FORMAT}"),
    ("format", 8, "has format 8, of a version of Shoal before 0.2.0; train the run again"),
    ("format", GONE, "has format 1, of a version of Shoal before 0.2.0"),
    ("format", "2", "has an unknown format: '2'"),
    ("format", True, "has an unknown format: True"),
    ("format", 0, "has an unknown format: 0"),
    ("format", None, "has an unknown format: None"),
    ("extra", 1, "has the unknown key 'extra'; known: format, config, made_with"),
    ("config", GONE, "contains no configuration"),
    ("config", None, "contains no configuration"),
    ("config", [], "contains no configuration"),
    ("made_with", GONE, "contains no 'made_with'"),
    ("made_with", "me", "contains no 'made_with'"),
    ("config.algorithm", GONE, "'config' lacks 'algorithm'"),
    ("config.algorithm", None, "'algorithm' must be short printable text, not None"),
    ("config.algorithm", 7, "'algorithm' must be short printable text, not 7"),
    ("config.algorithm", "mapo", "no algorithm 'mapo'; did you mean 'mappo'"),
    ("config.algorithm", "mappo+", "no algorithm ''"),
    ("config.algorithm", "os", "no algorithm 'os'"),
    ("config.algorithm", "mappo+mappo+mappo+mappo", "at most 3"),
    ("config.environment", GONE, "'config' lacks 'environment'"),
    ("config.environment", ["toys:busy"], "'environment' must be short printable text"),
    ("config.environment", "", "'environment' must be short printable text"),
    ("config.environment", "toys:busy\x1b]0;owned\x07", "'environment' must be short printable text"),
    ("config.environment", "toys:busy\ud800", "'environment' must be short printable text"),
    ("config.environment", "x" * 10**5, "'environment' must be short printable text"),
    ("config.by_name", GONE, "'config' lacks 'by_name'"),
    ("config.by_name", 1, "'by_name' must be true or false, not 1"),
    ("config.enviroment", "toys:busy", "no key in 'config' named 'enviroment'; did you mean 'environment'"),
    ("config.env", None, "'env' must be an object, not None"),
    ("config.env", [], "'env' must be an object, not []"),
    ("config.env", {"a\nb": 1}, "a key in 'env' must be short printable text"),
    ("config.settings", GONE, "'config' lacks 'settings'"),
    ("config.settings", "fast", "'settings' must be an object, not 'fast'"),
    ("config.settings.seeds", GONE, "'settings' lacks 'seeds'"),
    ("config.settings.seds", 2, "no key in 'settings' named 'seds'; did you mean 'seeds'"),
    ("config.settings.wrapping", {"frame_stack": 2}, "no key in 'settings' named 'wrapping'"),
    ("config.settings.seeds", 0, "seeds must be at least 1 and at most 65536, not 0"),
    ("config.settings.seeds", None, "seeds must be a whole number, not None"),
    ("config.settings.seeds", [2], "seeds must be a whole number, not [2]"),
    ("config.settings.seeds", 1.5, "seeds must be a whole number, not 1.5"),
    ("config.settings.steps", "Infinity", "steps must be at least 1 and at most 1e15, not inf"),
    ("config.settings.steps", "NaN", "steps must be a number, not nan"),
    ("config.settings.workers", "threads", "workers must be 'processes' or 'ray', not 'threads'"),
    ("config.settings.frame_stack", 5, "frame_stack 5, last_action and agent_ids do not fit the widths of 'obs_dims'"),
    ("config.settings.last_action", True, "last_action and agent_ids do not fit the widths of 'obs_dims'"),
    ("config.settings.last_action", GONE, "'settings' lacks 'last_action'"),
    ("config.settings.agent_ids", True, "frame_stack 2, last_action and agent_ids do not fit the widths of 'obs_dims'"),
    ("config.settings.action_mask", GONE, "'settings' lacks 'action_mask'"),
    ("config.settings.action_mask", "no", "action_mask must be True or False, not 'no'"),
    ("config.config", GONE, "'config' lacks 'config'"),
    ("config.config", None, "'config' must be an object, not None"),
    ("config.config.learning_rate", GONE, "'config' lacks 'learning_rate'"),
    ("config.config.learning_rat", 7e-4, "no key in 'config' named 'learning_rat'; did you mean 'learning_rate'"),
    ("config.config.hidden", 64, "hidden must be a list or tuple with each item a whole number, not 64"),
    ("config.config.hidden", ["x" * 10**5], "not ['xxx"),
    ("config.config.network", {"hidden": [64]}, "network must be a string, not {'hidden': [64]}"),
    ("config.spec", GONE, "'config' lacks 'spec'"),
    ("config.spec", [], "'spec' must be an object, not []"),
    ("config.spec.horizon", GONE, "'spec' lacks 'horizon'"),
    ("config.spec.windows", 1, "no key in 'spec' named 'windows'"),
    ("config.spec.horizon", 0, "horizon must be at least 1"),
    ("config.spec.horizon", "7", "horizon must be a whole number, not '7'"),
    ("config.spec.agents", [], "agents is empty"),
    ("config.spec.agents", ["a", "b"], "obs_dims has 3 entries for 2 agents"),
    ("config.spec.agents", ["a", "b", "a"], "has a name twice"),
    ("config.spec.agents", ["a", "b", "c\x1b[2J"], "a name is short printable text"),
    ("config.spec.agents", 5, "not 5"),
    ("config.spec.obs_dims", [4, 6], "obs_dims has 2 entries for 3 agents"),
    ("config.spec.obs_dims", [4, -6, 4], "cannot be negative"),
    ("config.spec.obs_dims", [4, 10**12, 4], "would hold more than 268,435,456 numbers"),
    ("config.spec.state_dim", 10**15, "would hold more than"),
    ("config.spec.state_dim", -1, "cannot be negative"),
    ("config.spec.action", None, "'action' must be an object whose 'kind' is 'discrete' or 'box', not None"),
    ("config.spec.action", {"kind": "tuple"}, "'action' must be an object whose 'kind'"),
    ("config.spec.action", {"kind": ["box"]}, "'action' must be an object whose 'kind'"),
    ("config.spec.action", {"kind": "box", "dim": 4, "low": 1, "high": 1}, "low must be below"),
    ("config.spec.action.n", GONE, "'action' lacks 'n'"),
    ("config.spec.action.n", 10**12, "would hold more than"),
    ("config.spec.action.n", 5, "action_dims must lie between 1 and the padded width 5 and reach it"),
    ("config.spec.action.m", 4, "no key in 'action' named 'm'"),
    ("config.spec.action_dims", [3, 0, 2], "action_dims must lie between 1 and"),
    ("config.spec.roles", [0, 2, 1 << 62], "roles must be numbered 0, 1, 2"),
    ("config.spec.novel", [10**6], "novel must hold distinct indices below"),
    ("config.spec.interface", GONE, "'spec' lacks 'interface'"),
    ("config.spec.interface", None, "interface must be a string, not None"),
    ("config.spec.interface", {"kind": "one"}, "not {'kind': 'one'}"),
    ("config.spec.interface", "{}", "spec.interface is not the description of an environment's interface"),
    ("config.spec.interface", '{"kind":"one","agents":[]}', "spec.interface describes other actions than"),
    ("config.spec.parts", GONE, "'spec' lacks 'parts'"),
    ("config.spec.parts", [[]], "parts has 1 entries for 3 agents"),
    ("config.spec.parts", [[[1, 2]]], "'parts' must be a list of lists of objects with a shape"),
    ("config.spec.parts", parts(dtype="f"), "not 'f'"),
    ("config.spec.parts", parts(shape=[-2]), "is not the shape of an array"),
    ("config.spec.parts", parts(), "takes 2 bytes, but spec.obs_dims"),
    ("config.spec.parts", parts(name="\n"), "not short printable text"),
    ("config.spec.parts", parts(source=[2**30]), "(1073741824,) in spec.parts is not the shape of an array"),
    ("config.settings.greyscale", True, "do not fit the widths of 'obs_dims'"),
    (
        "config.settings.blind",
        True,
        "blind, crop, greyscale, resize, frame_stack 2, last_action and agent_ids do not fit",
    ),
    ("config.settings.crop", [1, 1, 1, 1], "crop, greyscale, resize, frame_stack 2"),
    ("config.settings.resize", [0, 4], "resize must be at least 1"),
    ("config.spec.score", "median", "not 'median'"),
    ("config.spec.shared_reward", "yes", "shared_reward must be True or False, not 'yes'"),
    ("config.spec", DEEP, "is nested too deeply"),
]


@pytest.mark.parametrize(("path", "value", "said"), DAMAGES, ids=lambda x: "GONE" if x is GONE else str(x)[:40])
def test_a_damaged_place_is_named(path: str, value: Any, said: str, sound: dict[str, Any], tmp_path: Path) -> None:
    damaged = copy.deepcopy(sound)
    *parts, key = path.split(".")
    held = damaged
    for part in parts:
        held = held[part]
    if value is GONE:
        del held[key]
    else:
        held[key] = value
    (tmp_path / "run.json").write_text(json.dumps(damaged), encoding="utf-8")
    assert said in refused(tmp_path)


def lists(kind: Any) -> list[str]:
    """The fields of ``kind`` that may hold a list."""
    if not isinstance(kind, type):
        return [leaf.name for leaf in leaves(kind) if "tuple" in str(leaf.hint)]
    return [name for name, hint in typing.get_type_hints(kind).items() if "tuple" in str(hint)]


@pytest.mark.parametrize("value", ["mappo", "[]", "", {"a": 1}], ids=str)
def test_what_is_no_list_is_none(value: Any, sound: dict[str, Any], tmp_path: Path) -> None:
    """The letters of a string and the keys of an object are no items, and neither is a string alone."""
    config = algorithms.get("mappo").Config()
    fields = {"settings": lists(Settings()), "config": lists(config), "spec": lists(EnvSpec)}
    assert {"side", "crop"} <= {*fields["settings"]} and {"hidden", "freeze"} <= {*fields["config"]}
    assert {"agents", "metrics", "novel", "sides", "parts"} <= {*fields["spec"]}
    for part, names in fields.items():
        for name in names:
            damaged = copy.deepcopy(sound)
            damaged["config"][part][name] = value
            (tmp_path / "run.json").write_text(json.dumps(damaged), encoding="utf-8")
            assert name in refused(tmp_path)


def test_a_renamed_key_is_not_a_default(sound: dict[str, Any], tmp_path: Path) -> None:
    """The rename that trained another run: its value was dropped, and a default was taken and written back."""
    damaged = copy.deepcopy(sound)
    damaged["config"]["config"] = {
        {"learning_rate": "learning_rat"}.get(key, key): value for key, value in sound["config"]["config"].items()
    }
    (tmp_path / "run.json").write_text(json.dumps(damaged), encoding="utf-8")
    said = "no key in 'config' named 'learning_rat'; did you mean 'learning_rate'"
    for call in (library.open_run, library.resume, library.load):
        with pytest.raises(InputError, match=said):
            call(tmp_path)
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == damaged


# Texts that are no such file at all.

TEXTS: list[tuple[bytes, str]] = [
    (b"", "cannot be read as JSON"),
    (b"null", "is not a JSON object"),
    (b"[]", "is not a JSON object"),
    (b'"run"', "is not a JSON object"),
    (b"3", "is not a JSON object"),
    (b"{", "cannot be read as JSON"),
    (b'{"format": 9}', "contains no configuration"),
    (b'{"format": 9, "config": {}, "made_with": {}}', "'config' lacks 'algorithm'"),
    (b"\xff\xfe{}", "cannot be read as JSON"),
    ('{"a": "ü"}'.encode("latin-1"), "cannot be read as JSON"),
    (b'{"format": 9, "format": 9}', "has the key 'format' twice"),
    (b'{"config": {"seeds": 1, "seeds": 2}}', "has the key 'seeds' twice"),
    (b'{"format": NaN}', "contains NaN, which is not valid JSON"),
    (b'{"format": -Infinity}', "contains -Infinity, which is not valid JSON"),
    (b'{"format": 1e999}', "contains the number 1e999, which is too large"),
    (b'{"format": ' + b"9" * 5000 + b"}", "which is too large"),
    (b'{"format": ' + b"9" * 400 + b"}", "which is too large"),
    (b"[" * 100_000, "is nested too deeply"),
    (b"[" * 41 + b"]" * 41, "is nested too deeply"),
    (b'{"a":' * 100_000, "is nested too deeply"),
    (b'{"config": "' + b"x" * (17 * 2**20) + b'"}', "is larger than 16 MiB"),
]


@pytest.mark.parametrize(("text", "said"), TEXTS, ids=lambda x: str(x)[:30])
def test_a_text_that_is_no_run(text: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(text)
    assert said in refused(tmp_path)


def pipe(path: Path) -> Any:
    os.mkfifo(path)


def listening(path: Path) -> Any:
    found = socket.socket(socket.AF_UNIX)
    found.bind(os.path.relpath(path))
    return found


STRANGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pipe": (pipe, "is not a regular file"),
    "socket": (listening, "run.json"),
    "folder": (Path.mkdir, "is not a regular file"),
    "endless device": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "silent device": (lambda path: path.symlink_to("/dev/tty"), "run.json"),
    "link to itself": (lambda path: path.symlink_to(path), "cannot be read (Too many levels of symbolic links)"),
    "link to nothing": (lambda path: path.symlink_to("nothing"), "There is no run.json"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="has no such files")
@pytest.mark.parametrize("kind", STRANGE)
def test_a_run_json_that_is_no_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket has few characters
    make, said = STRANGE[kind]
    held = make(tmp_path / "run.json")
    assert said in refused(tmp_path)
    if isinstance(held, socket.socket):
        held.close()


def test_the_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a file, not the folder of a run" in refused(tmp_path / "file")
    for folder in (tmp_path / "nowhere", tmp_path / ("x" * 1000)):
        assert "run.json" in refused(folder)


# Anything else: what Shoal accepts, it has read as it stands, without a default in any place.

NAMES = st.sampled_from(["seeds", "hidden", "kind", "n", "", "algorithm", "x"]) | st.text(max_size=3)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "mappo", "iql", "box", "ray", "toys:busy", "sum", "pruned"]),
    st.text(max_size=4),
)
VALUES = st.recursive(SCALARS, lambda x: st.lists(x, max_size=3) | st.dictionaries(NAMES, x, max_size=3), max_leaves=6)


def places(said: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value."""
    yield path
    items = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


HOW = st.sampled_from(["replace", "replace", "delete", "rename", "add"])
CHANGES = st.lists(st.tuples(st.integers(0, 10**4), HOW, NAMES, VALUES), min_size=1, max_size=2)
"""Each: the number of a place, or its path; what happens there; a new key, and a new value."""

LATER = (
    ("settings", "limit_terminates", False),
    ("settings", "num_starts", None),
    ("config", "baseline_from", "return"),
)
"""Options that the format has gained: a run that lacks them has these values."""


@settings(max_examples=400, deadline=None)
@given(changes=CHANGES)
@example(changes=[("root.config.config.baseline_from", "delete", "", None)])
@example(changes=[("root.config.settings.num_starts", "delete", "", None)])
@example(changes=[("root.config.spec.metrics", "replace", "", "mappo")])  # a string passed as a list of one name
def test_any_damage_is_refused_or_read_as_it_stands(
    changes: list[tuple[int | str, str, str, Any]], sound: dict[str, Any], tmp_path_factory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any_damage"
    folder.mkdir(exist_ok=True)
    damaged: dict[str, Any] = {"root": copy.deepcopy(sound)}
    for place, how, name, value in changes:
        known = [path for path in places(damaged) if path]
        *parts, key = place.split(".") if isinstance(place, str) else known[place % len(known)]
        held: Any = damaged
        for part in parts:
            held = held[part]
        if how == "replace" or not parts:
            held[key] = value
        elif how == "delete":
            del held[key]
        elif isinstance(held, dict):
            held[name] = held.pop(key) if how == "rename" else value
        else:
            held.append(value)
    (folder / "run.json").write_text(json.dumps(damaged["root"]), encoding="utf-8")
    try:
        found = again(folder)
    except InputError as error:
        assert "\n" not in str(error) and str(error).isprintable()
        return
    config = damaged["root"]["config"]
    for part, name, default in LATER:
        config[part].setdefault(name, default)
    assert damaged["root"]["format"] == manifest.RUN_FORMAT and found == config


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_bytes(data: st.DataObject, sound: dict[str, Any], tmp_path_factory) -> None:
    folder = tmp_path_factory.getbasetemp() / "any_bytes"
    folder.mkdir(exist_ok=True)
    text = bytearray(json.dumps(sound).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    (folder / "run.json").write_bytes(text)
    try:
        found = again(folder)
    except InputError as error:
        assert "\n" not in str(error) and str(error).isprintable()
        return
    assert json.loads(text)["format"] == manifest.RUN_FORMAT and found == json.loads(text)["config"]


def test_a_hidden_mask_of_continuous_actions_is_refused(sound: dict[str, Any], tmp_path: Path) -> None:
    damaged = copy.deepcopy(sound)
    damaged["config"]["settings"]["action_mask"] = False
    (tmp_path / "run.json").write_text(json.dumps(damaged), encoding="utf-8")
    assert not described_run(tmp_path).settings.wrapping.action_mask
    damaged["config"]["spec"]["action"] = {"kind": "box", "dim": 4, "low": 0.0, "high": 1.0}
    (tmp_path / "run.json").write_text(json.dumps(damaged), encoding="utf-8")
    assert "action_mask is false, and 'action' is continuous" in refused(tmp_path)


# The configuration that a checkpoint belongs to.


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    def run(**changed: Any) -> dict[str, Any]:
        folder = written(tmp_path / "run", **changed)
        return manifest.identity(described_run(folder).as_json(), {"steps", "keep"})

    state, before = {"x": np.ones(2)}, run(options={"horizon": 5})
    Checkpoints(tmp_path / "checkpoints", 3, before).save(7, state, {"a": 1})
    for same in (run(options={"horizon": 5}), run(options={"horizon": 5}, steps=1e3, keep=9)):
        found = Checkpoints(tmp_path / "checkpoints", 3, same).restore(state)
        assert found[1:] == ({"a": 1}, 7)
    changes: list[tuple[dict[str, Any], str]] = [
        ({}, "env.horizon is missing and was 5"),
        ({"options": {"horizon": 5, "end": 0.5}}, "env.end is 0.5 and was missing"),
        ({"options": {"horizon": 5}, "rows": 400}, "settings.rows is 400 and was 500"),
        ({"options": {"horizon": 5}, "algorithm": "ippo"}, 'algorithm is "ippo" and was "mappo"'),
    ]
    for changed, said in changes:
        checkpoints = Checkpoints(tmp_path / "checkpoints", 3, run(**changed))
        with pytest.raises(CheckpointError, match=r"run\.json has changed since the checkpoint of step 7") as caught:
            checkpoints.restore(state)
        assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_checkpoint_without_a_configuration_is_refused(tmp_path: Path) -> None:
    state = {"x": np.ones(2)}
    Checkpoints(tmp_path / "checkpoints").save(7, state, {})
    here = manifest.identity(described_run(written(tmp_path / "run")).as_json(), ())
    with pytest.raises(CheckpointError, match="of step 7 does not contain the run's configuration"):
        Checkpoints(tmp_path / "checkpoints", 3, here).restore(state)
    for damaged in ({"format": 9}, {"format": 8, "config": here["config"]}):
        with pytest.raises(CheckpointError, match="does not contain the run's configuration"):
            manifest.check_same(damaged, here, 7)


def test_arrays_that_earlier_versions_did_not_describe_are_no_difference(tmp_path: Path) -> None:
    """A run of an environment that now gives its arrays' shapes is opened and resumed; bytes in place of numbers are
    another environment."""
    plain = toys.busy().spec
    shaped = replace(plain, parts=tuple((Part((1, width)),) for width in plain.obs_dims))
    check_same_spec(shaped, plain, False, "x was trained")
    with pytest.raises(InputError, match="its parts is None and was"):
        check_same_spec(plain, shaped, False, "x was trained")
    pictured = replace(plain, parts=tuple((Part((width,), "uint8"),) for width in plain.obs_dims), novel=None)
    with pytest.raises(InputError, match=r"its parts is \[\[.*\.\.\. and was None"):
        check_same_spec(pictured, plain, False, "x was trained")
    now = described_run(written(tmp_path / "run")).as_json()
    was = json.loads(json.dumps(now))
    now["spec"] = spec_to_json(shaped)
    here = manifest.identity(now, ())
    manifest.check_same({"format": 9, "config": was}, here, 7)
    there = manifest.identity(was, ())
    with pytest.raises(CheckpointError, match=r"spec\.parts"):
        manifest.check_same({"format": 9, "config": now}, there, 7)

    one, other = games_to_json(shaped, plain)
    assert one == other and "parts" not in one and games_to_json(shaped, shaped)[0]["parts"]
    assert "parts" in games_to_json(pictured, plain)[1]
    halves = tuple((Part((width - 2,), source=(1,)), Part((2,), source=(1,))) for width in plain.obs_dims)
    with pytest.raises(InputError, match="its parts is"):  # the order of stacked frames has changed
        check_same_spec(replace(plain, parts=halves), plain, False, "x was trained")


def test_the_largest_description_fits(tmp_path: Path) -> None:
    """The bound leaves room for whatever could be trained."""
    assert 100 * max(spec.num_agents * max(spec.obs_dim, spec.action.width) for spec in SPECS) <= MAX_STEP_NUMBERS


# The command line.


@pytest.mark.parametrize("command", ["curves", "evaluate", "replay", "crossplay", "train --resume"])
def test_the_command_line_says_it_in_one_sentence(command: str, tmp_path: Path, shoal: Callable) -> None:
    written(tmp_path)
    said = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    said["config"]["settings"]["seds"] = said["config"]["settings"].pop("seeds")
    (tmp_path / "run.json").write_text(json.dumps(said), encoding="utf-8")
    code, out, err = shoal(*command.split(), tmp_path)
    assert (code, out) == (2, "") and "'seds'; did you mean 'seeds'" in err and err.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="has no pipes with names")
def test_a_pipe_does_not_hang_the_command_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    command = [sys.executable, "-m", "shoal.cli", "curves", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "is not a regular file" in done.stderr


def test_a_run_from_before_an_option_existed_is_read(tmp_path: Path) -> None:
    folder = written(tmp_path, "maddpg+iddpg")
    whole = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    older = copy.deepcopy(whole)
    del older["config"]["settings"]["limit_terminates"]
    for flag in ("side1_stored_state", "side2_stored_state", "side1_noise_final", "side2_sequence_start"):
        del older["config"]["config"][flag]
    (folder / "run.json").write_text(json.dumps(older), encoding="utf-8")
    assert again(folder) == whole["config"]


@pytest.mark.parametrize(("baseline", "meant"), [("value", "return"), ("optimal", "q")])
def test_a_baseline_from_before_it_could_be_subtracted_from_returns_is_subtracted_from_q(
    baseline: str, meant: str, tmp_path: Path
) -> None:
    folder = written(tmp_path, "mappo")
    older = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    del older["config"]["config"]["baseline_from"]
    older["config"]["config"]["baseline"] = baseline
    (folder / "run.json").write_text(json.dumps(older), encoding="utf-8")
    assert again(folder)["config"]["baseline_from"] == meant
