"""Folders of strangers: nothing that they name is imported or called, except what is Shoal's or an extra's."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal as library
import toys
from shoal import algorithms
from shoal.environments import registry
from shoal.errors import CheckpointError, InputError
from shoal.presets import preset
from shoal.runs import open as opening
from shoal.runs.run import Run
from shoal.security import user_modules
from shoal.sides.opponents import OpponentOptions
from shoal.storage import manifest
from shoal.storage.checkpoint import Checkpoints
from shoal.training.settings import Settings
from shoal.trust import permission, provenance
from shoal.trust.run_file import Described, described_run
from support.selection import quick

TRAP = "from pathlib import Path\nPath(__file__).with_name('pwned').touch()\n"
"""A module that leaves a trace where it is imported."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory full of traps, and a path and modules that are put back."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("evil", "gymnasium", "pettingzoo", "mpe2", "classic", "json", "gfootball", "smaclite", "jax_plugins"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(TRAP, encoding="utf-8")
    monkeypatch.chdir(folder)
    path = list(sys.path)
    yield folder
    sys.path[:] = path
    for name in [name for name in sys.modules if user_modules.top(name) == "evil"]:
        del sys.modules[name]


def written(folder: Path, environment: str, options: dict[str, Any], **settings: Any) -> Path:
    """The folder of a run in ``environment``, as a stranger may have written it."""
    said = Described(
        "mappo",
        environment,
        options,
        True,
        Settings(steps=1.0, **settings),
        algorithms.get("mappo").Config(),
        toys.coordination().spec,
    )
    folder.mkdir(exist_ok=True)
    manifest.write_run_json(folder, said.as_json())
    (folder / "metrics.jsonl").write_text('{"step": 1, "return": [1.0]}\n', encoding="utf-8")
    return folder


def with_policy(folder: Path) -> Path:
    """The folder with its initial policy."""
    run = library.open_run(folder)
    init = run._acting().init
    Checkpoints(folder / "policy", run=run._identity()).save(0, jax.vmap(init)(jax.random.key(0)[None]).policy, {})
    return folder


CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("os:system", {"command": "touch pwned"}, "'os'"),
    ("subprocess:getoutput", {"cmd": "touch pwned"}, "'subprocess'"),
    ("evil:make", {}, "'evil'"),
    ("evil.deep.down:Game", {}, "'evil.deep.down'"),
    ("gymnasium:evil:X-v0", {}, "'evil'"),
    ("gymnasium:evil.deep:X-v0", {}, "'evil.deep'"),
    ("pettingzoo:evil", {}, "'evil'"),
    ("pettingzoo:evil.deep", {}, "'evil.deep'"),
    ("pettingzoo:os", {}, "'os'"),
    ("pip:main", {"args": ["--version"]}, "'pip'"),
    ("shoal.cli:main", {"argv": ["check", "evil:make"]}, "'shoal.cli'"),
    ("shoal.environments.registry:make", {"name": "evil:make"}, "'shoal.environments.registry'"),
    ("gymnasium.envs.registration:make", {"id": "evil:X-v0"}, "hand it 'evil:X-v0'"),
    ("numpy:fromfile", {"file": "/etc/passwd"}, "hand it '/etc/passwd'"),
    ("gymnasium:Ant-v5", {"xml_file": "./evil.xml"}, "hand it './evil.xml'"),
    ("gymnasium:Ant-v5", {"camera": {"deep": ["module:name"]}}, "hand it 'module:name'"),
    ("gymnasium:Ant-v5", {"xml_file": "evil"}, "hand it 'evil'"),
    ("jaxmarl/hanabi", {"weights": "C:\\evil.pkl"}, "hand it 'C:\\\\evil.pkl'"),
]

COMMANDS = ["evaluate RUN", "replay RUN", "crossplay RUN RUN", "train --resume RUN"]


@pytest.mark.parametrize(("name", "options", "said"), CALLS, ids=[name for name, _, _ in CALLS])
def test_a_strangers_name_is_refused(
    name: str, options: dict[str, Any], said: str, here: Path, shoal: Callable, tmp_path: Path
) -> None:
    folder = written(here / "run", name, options)
    for call in (lambda: library.open_run(folder).evaluate(1), lambda: library.resume(folder, progress=False)):
        with pytest.raises(InputError) as caught:
            call()
        assert said in str(caught.value) and "trust=True" in str(caught.value) and "\n" not in str(caught.value)
    code, out, err = shoal("evaluate", folder, "--episodes", "1")
    assert (code, out) == (2, "") and said in err and "--trust" in err and err.count("\n") == 1
    assert not list(here.rglob("pwned")) and "evil" not in sys.modules


def test_an_environment_that_is_given_is_not_handed_a_strangers_files(here: Path) -> None:
    """Neither one that is named nor a factory; the options of the user's own run are taken."""
    handed: list[Any] = []

    def make(file: str = "", mode: str = "") -> Any:
        handed.append(file or mode)
        return toys.coordination()

    named = written(here / "named", "gymnasium:Ant-v5", {"xml_file": "/tmp/evil.xml"})
    folder = written(here / "run", "elsewhere:make", {"file": "evil"})
    calls: list[Callable] = [
        lambda: library.open_run(named, "gymnasium:HalfCheetah-v5").evaluate(1),
        lambda: library.open_run(folder, make).evaluate(1),
        lambda: library.resume(folder, environment=make, progress=False),
        lambda: library.crossplay([folder], environment=make),
        lambda: library.agent(folder=folder, environment=make),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"building '.*' with its options would hand it '.*evil.*trust=True"):
            call()
    assert not handed
    assert library.open_run(folder, make, trust=True).env is not None
    opening.remember(library.open_run(folder))
    assert library.open_run(folder, make).env is not None
    assert library.open_run(written(here / "choice", "elsewhere:make", {"mode": "rgb"}), make).env is not None
    assert handed == ["evil", "evil", "rgb"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses(command: str, here: Path, shoal: Callable) -> None:
    folder = with_policy(written(here / "run", "evil:make", {}))
    code, out, err = shoal(*command.replace("RUN", str(folder)).split())
    assert (code, out) == (2, "") and "'evil'" in err and "--trust" in err and err.count("\n") == 1
    assert not list(here.rglob("pwned"))


@pytest.mark.parametrize("name", quick(["os:system", "evil:make", "gymnasium:evil:X-v0"], "evil:make"))
def test_what_needs_no_environment_asks_for_no_trust(name: str, here: Path, shoal: Callable) -> None:
    folder = written(here / "run", name, {"command": "touch pwned"})
    assert shoal("curves", folder)[0] == 0 and shoal("curves", folder, folder, "--output", "two.png")[0] == 0
    code, out, _ = shoal("train", "--resume", folder, "--help")
    assert code == 0 and "--trust" in out
    assert library.open_run(folder).summary() and library.open_run(folder).spec.num_agents == 2
    assert library.load(with_policy(folder)).act(np.ones((2, 1))).shape == (2,)
    assert not list(here.rglob("pwned"))


NEVER: list[tuple[str, dict[str, Any], str]] = [
    ("os:system", {"command": "touch pwned"}, "of Python's standard library"),
    ("subprocess:getoutput", {"cmd": "touch pwned"}, "of Python's standard library"),
    ("helpers:system", {"command": "touch pwned"}, "of Python's standard library"),
    ("helpers:check_output", {"args": ["touch", "pwned"]}, "of Python's standard library"),
    ("helpers:Popen", {"args": ["touch", "pwned"]}, "of Python's standard library"),
    ("helpers:later", {}, "of Python's standard library"),
    ("helpers:wipe", {"path": "x"}, "neither a class with reset, step and close nor a function"),
    ("helpers:Report", {}, "neither a class with reset, step and close nor a function"),
    ("helpers:count", {}, "neither a class with reset, step and close nor a function"),
    ("numpy:array", {"object": 1}, "neither a class with reset, step and close nor a function"),
    ("shoal.cli:main", {"argv": []}, "names a part of Shoal that is not an environment"),
    ("shoal.environments.registry:make", {"name": "helpers:wipe"}, "names a part of Shoal that is not an environment"),
]

HELPERS = """
import functools
from os import system
from pathlib import Path
from subprocess import Popen, check_output

import toys
from shoal.types import Environment

later = functools.partial(system, "touch pwned")

def wipe(path: str = ""):
    Path("pwned").touch()

def count() -> int:
    Path("pwned").touch()
    return 1

class Report:
    def __init__(self):
        Path("pwned").touch()

def coordination() -> Environment:
    return toys.coordination()

def liar() -> Environment:
    return 3
"""


@pytest.fixture
def helpers(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user's own beside the traps; it defines an environment and much else."""
    (here / "helpers.py").write_text(HELPERS, encoding="utf-8")
    yield here
    sys.modules.pop("helpers", None)


@pytest.mark.parametrize(("name", "options", "said"), NEVER, ids=[name for name, _, _ in NEVER])
def test_trust_calls_nothing_but_environments(
    name: str, options: dict[str, Any], said: str, helpers: Path, shoal: Callable
) -> None:
    folder = written(helpers / "run", name, options)
    code, out, err = shoal("evaluate", folder, "--trust")
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1
    assert not list(helpers.rglob("pwned"))


def test_trust_imports_an_environment_from_the_working_directory(helpers: Path, shoal: Callable) -> None:
    folder = written(helpers / "run", "helpers:coordination", {})
    assert "'helpers'" in shoal("evaluate", folder)[2]
    code, _, err = shoal("evaluate", folder, "--trust")
    assert code == 2 and "has no trained policy yet" in err  # it was built; there is nothing to play with
    assert "helpers" in sys.modules
    said = shoal("evaluate", written(helpers / "liar", "helpers:liar", {}), "--trust")[2]
    assert "gives a int, which is neither" in said


def test_names_that_are_typed_work_from_the_working_directory(helpers: Path, shoal: Callable) -> None:
    code, out, err = shoal("train", "mappo", "helpers:wipe", "--help")
    assert code == 0 and "--env.path" in out, err
    assert shoal("check", "helpers:coordination", "--episodes", "1")[0] in (0, 1)
    assert "of Python's standard library" in shoal("check", "os:system", "--env.command", "touch pwned")[2]
    assert "--trust is only for --resume" in shoal("train", "mappo", "mpe/simple_spread", "--trust")[2]


def test_the_working_directory_is_on_the_path_for_own_modules_only(helpers: Path, shoal: Callable) -> None:
    shoal("train", "mappo", "mpe/simple_spread", "--help")
    shoal("evaluate", written(helpers / "run", "mpe/simple_spread", {}))
    assert str(helpers) not in sys.path
    shoal("train", "mappo", "helpers:coordination", "--help")
    assert sys.path[-1] == str(helpers)


def test_built_in_names_need_no_trust(here: Path) -> None:
    for name, options in (("mpe/simple_spread", {"num_agents": 2}), ("shoal.environments.matrix:climbing", {})):
        with pytest.raises(InputError, match="is not the environment it was"):
            library.open_run(written(here / name.replace("/", "_"), name, options)).evaluate(1)


@pytest.mark.parametrize(
    "name", ["mpe/simple_spread", "gymnasium:CartPole-v1", "gymnasium:CartPole", "mamujoco/Ant-4x2", "lbf/8x8-2p-2f"]
)
def test_families_need_no_trust(name: str) -> None:
    assert permission.beyond(name, {}) is None


def test_pettingzoos_own_modules_need_no_trust() -> None:
    assert permission.beyond("pettingzoo:mpe2.simple_tag_v3", {"num_good": 1}) is None
    assert permission.beyond("pettingzoo:classic.tictactoe_v3", {}) is None


def test_a_file_in_the_place_of_an_extra_is_not_imported(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Python itself has put the working directory first, as in an interactive session."""
    for name in [name for name in sys.modules if user_modules.top(name) in ("gfootball", "smaclite")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(here))
    for name, package in (("football/5_vs_5", "gfootball"), ("smac/3m", "smaclite")):
        folder = written(here / package / "run", name, {})
        with pytest.raises(InputError, match=rf"import a '{package}' that does not lie where Python installs packages"):
            library.open_run(folder).evaluate(1)
    assert "'classic.tictactoe_v3'" in str(permission.beyond("pettingzoo:classic.tictactoe_v3", {}))
    assert not list(here.rglob("pwned"))


def test_gymnasiums_registry_can_lead_elsewhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

    monkeypatch.setitem(gymnasium.registry, "Trap-v0", EnvSpec("Trap-v0", entry_point="evil.deep:X"))
    assert "'evil.deep'" in str(permission.beyond("gymnasium:Trap-v0", {}))
    assert "'evil.deep'" in str(permission.beyond("gymnasium:Trap", {}))


@pytest.mark.parametrize("lacking", ["", "reset", "step", "close"])
def test_only_a_class_with_all_three_methods_is_called(lacking: str) -> None:
    kind: Any = type("Kind", (), {word: len for word in ("reset", "step", "close") if word != lacking})

    def make() -> Any: ...

    make.__annotations__["return"] = kind
    assert permission._makes_environments(kind) is permission._makes_environments(make) is (not lacking)


def test_a_bare_word_is_refused_if_a_module_of_ones_own_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words of installed modules may be choices; the environment could import any other."""
    (tmp_path / "bare_module.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for word, refused in (("bare_module", True), ("rgb_array", False), ("numpy", False), ("json", False)):
        said = permission.beyond("gymnasium:CartPole-v1", {"render_mode": word})
        assert said == (f"hand it {word!r}" if refused else None), word


# The record of the user's own training.


def own_run(folder: Path, environment: str = "helpers:coordination", **settings: Any) -> Run:
    """A run as training leaves it, without the training."""
    if ":" in environment:  # training has imported it
        importlib.import_module(environment.partition(":")[0])
    said = library.open_run(written(folder, environment, {}, **settings))
    opening.keep_run_json(said)
    return said


def built(folder: Path) -> bool:
    """Whether the environment of a folder is built without a flag."""
    try:
        return library.open_run(folder).env is not None
    except InputError as error:
        assert "trust=True" in str(error)
        return False


@pytest.fixture
def importable(helpers: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(helpers))
    return helpers


def test_a_folder_of_ones_own_training_needs_no_flag(importable: Path, tmp_path: Path) -> None:
    run = own_run(tmp_path / "run")
    assert built(run.folder)
    (tmp_path / "link").symlink_to(run.folder)
    assert built(tmp_path / "link")


def test_a_copy_or_a_change_is_another_folder(importable: Path, tmp_path: Path) -> None:
    run = own_run(tmp_path / "run")
    text = (run.folder / "run.json").read_text(encoding="utf-8")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "run.json").write_text(text, encoding="utf-8")
    assert not built(tmp_path / "copy")
    said = json.loads(text)
    for part, key, value in (
        ("env", "horizon", 3),
        ("settings", "address", "evil:6379"),
        ("settings", "workers", "ray"),
    ):
        changed = json.loads(text)
        changed["config"][part][key] = value
        (run.folder / "run.json").write_text(json.dumps(changed), encoding="utf-8")
        assert not built(run.folder), key
    said["config"]["environment"] = "helpers:wipe"
    (run.folder / "run.json").write_text(json.dumps(said), encoding="utf-8")
    assert not built(run.folder)
    (run.folder / "run.json").write_text(text, encoding="utf-8")
    assert built(run.folder)


def test_what_a_folder_contains_is_never_a_record(
    importable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "run" / "state"))
    run = own_run(tmp_path / "run")
    assert not built(run.folder) and "cannot be written" in capsys.readouterr().err
    monkeypatch.setenv("XDG_STATE_HOME", "state")  # relative to the working directory, which may be anybody's
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert provenance.provenance_folder() == (tmp_path / "home" / ".local" / "state" / "shoal" / "runs").resolve()


def test_a_folder_in_the_place_of_a_deleted_one_is_another(importable: Path, tmp_path: Path) -> None:
    """Also one that holds all that the deleted one held, but for its mark, or with the mark of another run."""
    run, other = own_run(tmp_path / "run"), own_run(tmp_path / "other")
    shutil.copytree(run.folder, tmp_path / "stranger")
    mark = run.folder / provenance.MARK_FILE
    right = mark.read_bytes()
    for wrong in (None, (other.folder / provenance.MARK_FILE).read_bytes(), b"", right + b"0", b"\xff" * 32):
        shutil.rmtree(run.folder)
        shutil.copytree(tmp_path / "stranger", run.folder)
        mark.unlink()
        if wrong is not None:
            mark.write_bytes(wrong)
        assert not built(run.folder), wrong
    mark.write_bytes(right)
    assert built(run.folder)  # what was deleted, restored


def test_a_mark_that_was_there_before_is_replaced(importable: Path, tmp_path: Path) -> None:
    """Somebody else may know it; that of an own run is kept."""
    folder = written(tmp_path / "run", "helpers:coordination", {})
    (folder / provenance.MARK_FILE).write_text("0" * 32)
    run = library.open_run(folder)
    opening.remember(run)
    mark = (folder / provenance.MARK_FILE).read_text()
    assert mark != "0" * 32 and built(folder)
    opening.remember(run)
    assert (folder / provenance.MARK_FILE).read_text() == mark and built(folder)


def test_a_record_without_a_mark_counts_as_none(importable: Path, tmp_path: Path, shoal: Callable) -> None:
    run = own_run(tmp_path / "run")
    path = provenance._file(run.folder)
    entry = json.loads(path.read_text("utf-8"))
    del entry["mark"], entry["modules"]
    path.write_text(json.dumps(entry), "utf-8")
    (run.folder / provenance.MARK_FILE).unlink()
    code, _, err = shoal("evaluate", run.folder)
    assert code == 2 and "is not recorded as your own run" in err and "--trust" in err
    assert err.count("\n") == 1
    opening.remember(library.open_run(run.folder, trust=True))  # as training with --trust does
    assert built(run.folder)


@pytest.mark.parametrize("changed", ["tasks/game.py", "tasks/rules.py", "tasks/__init__.py", "tools.py"])
def test_every_own_file_that_a_run_imports_is_compared(changed: str, tmp_path: Path, shoal: Callable) -> None:
    """Shadowing a library is no way around it: the folder is searched last."""
    here = tmp_path / "project"
    (here / "tasks").mkdir(parents=True)
    texts = {
        "tasks/__init__.py": "",
        "tasks/game.py": "import toys\nfrom shoal.types import Environment\nfrom .rules import x\nimport colorsys\n"
        "def make() -> Environment:\n    return toys.coordination()\n",
        "tasks/rules.py": "from tools import x\n",
        "tools.py": "x = 1\n",
        "unrelated.py": "",
    }
    for name, text in texts.items():
        (here / name).write_text(text, "utf-8")

    def forget() -> None:
        for name in ("tasks", "tasks.game", "tasks.rules", "tools", "colorsys"):
            sys.modules.pop(name, None)

    path = list(sys.path)
    try:
        with user_modules.found_in(str(here)):
            run = library.open_run(written(tmp_path / "run", "tasks.game:make", {}), trust=True)
            assert run.env is not None
            opening.keep_run_json(run)
        forget()
        sys.path[:] = path
        (here / "unrelated.py").write_text("x = 2", "utf-8")
        (here / "colorsys.py").write_text(TRAP, "utf-8")
        assert "has no trained policy yet" in shoal("evaluate", run.folder)[2]
        assert not list(here.rglob("pwned"))
        forget()
        sys.path[:] = path
        (here / changed).write_text(texts[changed] + TRAP, "utf-8")
        code, _, err = shoal("evaluate", run.folder)
        module = changed.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert code == 2 and f"another version of the module {module!r}" in err
        assert not list(here.rglob("pwned"))
    finally:
        forget()
        sys.path[:] = path


@pytest.mark.parametrize("damage", [b"", b"null", b"[]", b"{}", b'{"folder": 3}', b"\xff", b"[" * 10**5])
def test_a_damaged_record_is_none(damage: bytes, importable: Path, tmp_path: Path) -> None:
    run = own_run(tmp_path / "run")
    provenance._file(run.folder).write_bytes(damage)
    assert not built(run.folder)
    opening.remember(run)
    assert built(run.folder)


def test_a_record_of_another_user_is_none(importable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write into the folder of records could otherwise trust a run in another user's name."""
    run = own_run(tmp_path / "run")
    me = os.geteuid()
    for name in ("geteuid", "getuid"):
        monkeypatch.setattr(os, name, lambda: me + 1)
    assert not built(run.folder)


def test_a_record_that_cannot_be_written_is_a_warning(
    importable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    run = own_run(tmp_path / "run")
    assert "cannot be written" in capsys.readouterr().err and not built(run.folder)
    own_run(tmp_path / "builtin", "mpe/simple_spread")
    assert capsys.readouterr().err == ""  # it needs no record


def test_many_processes_record_at_once(tmp_path: Path) -> None:
    """A record is whole or not there, also where several write the same one."""
    code = (
        "import sys; from pathlib import Path; from shoal.trust import provenance\n"
        "for i in range(50): provenance.record_folder(Path(sys.argv[1]), {'a': 1}, 'x' * 2000)"
    )
    folder = tmp_path / "run"
    folder.mkdir()
    command = [sys.executable, "-c", code, str(folder)]
    workers = [subprocess.Popen(command) for _ in range(2)]
    seen = set()
    while any(worker.poll() is None for worker in workers):
        seen.add(provenance.marked_record(folder, {"a": 1}))
    assert [worker.wait() for worker in workers] == [0, 0]
    assert seen <= {None, provenance.OwnRecord("x" * 2000)} and provenance.marked_record(folder, {"a": 1})
    assert not list(provenance.provenance_folder().glob(".*"))


def test_the_module_comes_from_where_it_was_trained(helpers: Path, shoal: Callable, tmp_path: Path) -> None:
    """A file of the same name in another working directory is not the module that was trained in."""
    with user_modules.found_in(str(helpers)):
        user_modules.reachable()
    run = library.open_run(written(tmp_path / "run", "helpers:coordination", {}), trust=True)
    assert run.env is not None
    opening.keep_run_json(run)
    folder = run.folder
    sys.modules.pop("helpers")
    sys.path.remove(str(helpers))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "helpers.py").write_text(TRAP, encoding="utf-8")
    os.chdir(elsewhere)
    assert "has no trained policy yet" in shoal("evaluate", folder)[2]
    assert Path(sys.modules["helpers"].__file__ or "").parent == helpers and not (elsewhere / "pwned").exists()


# Algorithms of somebody's own.


def test_a_module_that_has_changed_is_named_once(
    importable: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = own_run(tmp_path / "run")
    assert built(run.folder) and not capsys.readouterr().err
    with (importable / "helpers.py").open("a", encoding="utf-8") as file:
        file.write("# another version")
    assert built(run.folder) and not capsys.readouterr().err  # this process uses what it has imported
    sys.modules.pop("helpers")
    with pytest.raises(InputError, match=r"was trained with another version of the module 'helpers', and.*trust"):
        _ = library.open_run(run.folder).env
    assert "helpers" not in sys.modules
    for _ in range(2):
        assert library.open_run(run.folder, trust=True).env is not None
    said = capsys.readouterr().err
    sentence = f"The module 'helpers' is not the version with which {run.folder} was trained; the run now uses "
    assert said.count(f"{sentence}{importable / 'helpers.py'}.") == 1


ALGORITHM = "from shoal.algorithms.mappo import Config, make\n"


def by(folder: Path, algorithm: str) -> Path:
    """A folder of :func:`written` whose ``run.json`` names another algorithm, which has MAPPO's configuration."""
    text = (folder / "run.json").read_text(encoding="utf-8")
    assert text.count('"mappo"') == 1
    (folder / "run.json").write_text(text.replace('"mappo"', json.dumps(algorithm)), encoding="utf-8")
    return folder


@pytest.fixture
def own_algorithm(here: Path) -> Iterator[Path]:
    """A module with an algorithm, beside the traps."""
    (here / "pupil.py").write_text(ALGORITHM, encoding="utf-8")
    yield here
    sys.modules.pop("pupil", None)


@pytest.mark.parametrize("name", ["evil:make", "evil.deep:make", "mappo+evil:make", "os:system"])
def test_a_strangers_algorithm_is_not_imported(name: str, here: Path, shoal: Callable) -> None:
    folder = by(written(here / "run", "mpe/simple_spread", {}), name)
    for call in (library.open_run, library.resume, library.load):
        with pytest.raises(InputError) as caught:
            call(folder)
        assert f"its algorithm {name!r} would import the module" in str(caught.value)
        assert "trust=True" in str(caught.value) and "\n" not in str(caught.value)
    for command in (*COMMANDS, "curves RUN", "train --resume RUN --help"):
        code, out, err = shoal(*command.replace("RUN", str(folder)).split())
        assert (code, out) == (2, "") and "--trust" in err and err.count("\n") == 1, command
    assert not list(here.rglob("pwned")) and "evil" not in sys.modules


def test_trust_imports_an_algorithm_from_the_working_directory(own_algorithm: Path, shoal: Callable) -> None:
    folder = by(written(own_algorithm / "run", "mpe/simple_spread", {}), "pupil:make")
    for words in (["--trust=False"], ["--trust", "false"], ["--no-trust"], ["--no_trust"], ["--trust", "--no-trust"]):
        assert shoal("train", "--resume", folder, *words)[0] == 2 and "pupil" not in sys.modules
    assert shoal("curves", folder, "--trust")[0] == 0
    for words in (["--trust"], ["--trust=True"], ["--trust", "true"]):
        sys.modules.pop("pupil", None)
        assert shoal("train", "--resume", folder, *words, "--help")[0] == 0 and "pupil" in sys.modules
    assert library.open_run(folder, trust=True).spec.num_agents == 2
    with pytest.raises(InputError, match="has no trained policy yet"):
        library.load(folder, trust=True)


def test_copies_of_opponents_of_ones_own_training_need_no_trust(
    own_algorithm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the run that they come from was itself trained against such opponents, and in an agent's copy."""
    with user_modules.found_in(str(own_algorithm)):
        folder = by(written(tmp_path / "run0", "toys:coordination", {}), "pupil:make")
        opening.keep_run_json(library.open_run(folder, trust=True))
        for name in ("run1", "run2"):
            (folder / "policy").mkdir()
            against = OpponentOptions(opponents=str(folder))
            folder = written(tmp_path / name, "toys:coordination", {}, opponent_options=against)
            opening.keep_run_json(library.open_run(folder))
    assert described_run(folder / "opponents" / "opponents").algorithm == "pupil:make"
    agent = library.agent(folder=folder)
    monkeypatch.setattr(agent._parts, "begin", lambda: None)
    copy = agent.save(tmp_path / "copy")
    assert described_run(copy / "opponents" / "opponents").algorithm == "pupil:make"


def test_opponents_of_a_stranger_play_if_the_user_trusts_them(
    own_algorithm: Path, shoal: Callable, tmp_path: Path
) -> None:
    theirs = by(written(tmp_path / "theirs", "toys:coordination", {}), "pupil:make")
    (theirs / "policy").mkdir()
    words = ["train", "mappo", "toys:coordination", "--opponents", theirs, "--print-config"]
    code, _, err = shoal(*words)
    assert code == 2 and "would import the module 'pupil': use --trust" in err and "pupil" not in sys.modules
    assert "There is no checkpoint in" in shoal(*words, "--trust")[2] and "pupil" in sys.modules
    for start in (
        library.make_train,
        partial(library.train, folder=tmp_path / "new"),
        lambda *names, **given: library.agent(*names, folder=tmp_path / "new", **given).evaluate(),
    ):
        for trust, said in ((False, "trust=True"), (True, "There is no checkpoint in")):
            with pytest.raises(InputError, match=said):
                start("mappo", "toys:coordination", opponents=theirs, trust=trust)
    run = library.open_run(written(tmp_path / "mine", "toys:coordination", {}), trust=True)
    run.settings = replace(run.settings, opponent_options=OpponentOptions(opponents=str(theirs)))
    opening.keep_run_json(run)
    assert described_run(run.folder / "opponents").algorithm == "pupil:make", "the copy is recorded with the run"


def test_an_algorithm_of_ones_own_training_comes_from_where_it_was_trained(
    own_algorithm: Path, shoal: Callable, tmp_path: Path
) -> None:
    with user_modules.found_in(str(own_algorithm)):
        run = library.open_run(by(written(tmp_path / "run", "mpe/simple_spread", {}), "pupil:make"), trust=True)
    opening.keep_run_json(run)
    sys.modules.pop("pupil")
    sys.path.remove(str(own_algorithm))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.chdir(elsewhere)
    assert library.open_run(run.folder).algorithm == "pupil:make"
    sys.modules.pop("pupil")
    sys.path.remove(str(own_algorithm))  # where the library found it
    (elsewhere / "pupil.py").write_text(TRAP, encoding="utf-8")
    assert shoal("curves", run.folder)[0] == 0
    assert Path(sys.modules["pupil"].__file__ or "").parent == own_algorithm and not (elsewhere / "pwned").exists()
    text = (run.folder / "run.json").read_text(encoding="utf-8")
    (run.folder / "run.json").write_text(text.replace("pupil:make", "evil:make"), encoding="utf-8")
    assert "'evil'" in shoal("curves", run.folder)[2]
    (run.folder / "run.json").write_text(text, encoding="utf-8")
    (own_algorithm / "pupil.py").write_text(f"{ALGORITHM}# another version", encoding="utf-8")
    sys.modules.pop("pupil")
    code, _, err = shoal("curves", run.folder)
    assert code == 2 and "was trained with another version of the module 'pupil'" in err and "--trust" in err
    assert "pupil" not in sys.modules


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pupil:learn", "has the name of its module: 'pupil', not 'pupil:learn'"),
        ("pupils", "There is no algorithm 'pupils'"),
        ("pupil.py", "has the name of its module: 'pupil', not 'pupil.py'"),
        ("pupil.py+mappo", "has the name of its module: 'pupil', not 'pupil.py'"),
        ("json", "There is no algorithm 'json'"),
        ("bare", "'bare' needs a frozen dataclass Config"),
        ("pupils:make", "no module 'pupils', which the algorithm 'pupils:make' needs"),
        ("json:make", "leads to the module 'json' of Python's standard library, which has no algorithms"),
        ("helpers:make", "'helpers' has no attribute 'make'"),
        ("bare:make", "'bare' needs a frozen dataclass Config whose fields all have defaults"),
        ("loose:make", "'loose' needs a frozen dataclass Config whose fields all have defaults"),
        ("short:make", "make of 'short' must take (spec, config, scale)."),
        ("acting", "make_policy of 'acting' must take (spec, config)."),
    ],
)
def test_an_algorithm_that_is_none_is_refused(
    name: str, said: str, own_algorithm: Path, helpers: Path, shoal: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_algorithm / "bare.py").write_text("def make(spec, config, scale): ...", encoding="utf-8")
    loose = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    x: int = 1\ndef make(): ..."
    (own_algorithm / "loose.py").write_text(loose, encoding="utf-8")
    short = "from shoal.algorithms.mappo import Config\ndef make(spec, config): ..."
    (own_algorithm / "short.py").write_text(short, encoding="utf-8")
    acting = "from shoal.algorithms.mappo import Config, make\ndef make_policy(spec): ..."
    (own_algorithm / "acting.py").write_text(acting, encoding="utf-8")
    code, out, err = shoal("train", name, "mpe/simple_spread")
    for module in ("bare", "loose", "short", "acting"):
        sys.modules.pop(module, None)
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1


def test_a_make_that_returns_nothing_is_told_so(own_algorithm: Path, shoal: Callable) -> None:
    text = "from shoal.algorithms import mappo\nConfig = mappo.Config\ndef make(*given): mappo.make(*given)\n"
    (own_algorithm / "pupil.py").write_text(text, encoding="utf-8")
    said = "make of 'pupil' must return a shoal.types.Algorithm, but returned None."
    code, _, err = shoal("train", "pupil", "matrix/climbing", "--folder", own_algorithm / "run")
    assert code == 2 and err.endswith(f"shoal: {said}\n") and not (own_algorithm / "run").exists()
    code, out, _ = shoal("check", "pupil")
    assert code == 1 and said in " ".join(out.split())


def test_an_algorithm_whose_actions_have_another_shape_is_told_so(own_algorithm: Path, shoal: Callable) -> None:
    text = (
        "from shoal.algorithms import mappo\nConfig = mappo.Config\ndef make(*given):\n    made = mappo.make(*given)\n"
        "    def act(*seen):\n        carry, action, extras = made.act(*seen)\n"
        "        return carry, action[..., None], extras\n"
        "    return made._replace(act=act)\n"
    )
    (own_algorithm / "pupil.py").write_text(text, encoding="utf-8")
    code, _, err = shoal("train", "pupil", "matrix/climbing", "--num-envs", 4, "--folder", own_algorithm / "run")
    said = "What act of 'pupil' returns as actions must be an array [E, N], here [2, 2], not an array [2, 2, 1]."
    assert code == 2 and err.endswith(f"shoal: {said}\n") and not (own_algorithm / "run").exists()


def test_an_algorithm_that_is_typed_works_from_the_working_directory(own_algorithm: Path, shoal: Callable) -> None:
    for name in ("pupil:make", "pupil"):
        code, out, err = shoal("train", name, "mpe/simple_spread", "--help")
        assert code == 0 and "--critic-input" in out, err
    assert algorithms.own("pupil:make+mappo+a.b:make") == ["pupil", "a.b"]


def test_a_module_is_named_by_its_bare_name(own_algorithm: Path) -> None:
    """Without being imported; Shoal's own names come first, and what is canonical stays so."""
    (own_algorithm / "qmix.py").write_text(TRAP, encoding="utf-8")
    (own_algorithm / "empty").mkdir()
    (own_algorithm / "ideas").mkdir()
    (own_algorithm / "ideas" / "trap.py").write_text(TRAP, encoding="utf-8")
    with user_modules.found_in(str(own_algorithm)):
        found = {name: algorithms.canonical(name) for name in ("pupil", "evil", "evil.deep", "ideas.trap", "qmix+evil")}
        assert found == {
            "pupil": "pupil:make",
            "evil": "evil:make",
            "evil.deep": "evil.deep",  # not there
            "ideas.trap": "ideas.trap:make",
            "qmix+evil": "qmix+evil:make",
        }
        for name in ("pupil:make", "ppo", "json", "empty", "mpe/simple_spread", "", "..", "evil."):
            assert algorithms.canonical(name) == {"ppo": "ippo"}.get(name, name)
        assert algorithms.alone("pupil") and algorithms.alone("qmix") and not algorithms.alone("pupil:make")
    assert not list(own_algorithm.rglob("pwned"))


@pytest.mark.parametrize("name", ["evil", "evil.deep", "mappo+evil", "pupil"])
def test_a_bare_name_in_a_folder_is_no_module(name: str, own_algorithm: Path, shoal: Callable) -> None:
    """Not even where the user trusts the folder: Shoal writes canonical names."""
    folder = by(written(own_algorithm / "run", "mpe/simple_spread", {}), name)
    for words in (("curves", folder), ("curves", folder, "--trust"), ("train", "--resume", folder, "--trust")):
        code, out, err = shoal(*words)
        assert (code, out) == (2, "") and "There is no algorithm" in err and err.count("\n") == 1
    assert not list(own_algorithm.rglob("pwned")) and "evil" not in sys.modules and "pupil" not in sys.modules


PRESETS = """
PRESETS = {"mpe/simple_spread": {"gamma": 0.5, "num_envs": 4}, "mpe/*": {"gamma": 0.25}, "matrix/*": {"gama": 0.5}}
"""


def test_presets_stand_in_the_module(own_algorithm: Path, shoal: Callable) -> None:
    (own_algorithm / "pupil.py").write_text(ALGORITHM + PRESETS, encoding="utf-8")
    with user_modules.found_in(str(own_algorithm)):
        assert preset("pupil:make", "mpe/simple_spread") == {"gamma": 0.5, "num_envs": 4}
        assert preset("mappo+pupil:make", "mpe/simple_tag")["side2_gamma"] == 0.25
        assert preset("pupil:make", "grid/stag_hunt") == preset("mappo", "grid/stag_hunt")  # of the Config it inherits
    code, out, _ = shoal("train", "pupil", "mpe/simple_tag", "--help")
    assert code == 0 and "(default: 0.25" in out
    code, out, err = shoal("train", "pupil", "matrix/climbing")
    assert (code, out) == (2, "") and "in the preset of pupil:make for matrix/climbing" in err and "'gamma'?" in err
    for wrong in ("[]", '{"mpe/*": 3}', "{3: {}}", '{"mpe/*": {3: 4}}'):
        (own_algorithm / "pupil.py").write_text(f"{ALGORITHM}PRESETS = {wrong}", encoding="utf-8")
        sys.modules.pop("pupil")
        code, out, err = shoal("train", "pupil", "mpe/simple_spread")
        assert (code, out) == (2, "") and "PRESETS of pupil:make must" in err and err.count("\n") == 1


WITH_DEFAULTS = """
from dataclasses import dataclass, field
from shoal.algorithms import mappo
from shoal.networks.body import Body

@dataclass(frozen=True)
class Config(mappo.Config):
    epochs: int = 2
    network: Body = field(default_factory=lambda: Body(hidden=(48,)))

make = mappo.make
"""


def test_defaults_of_the_module_come_before_an_inherited_preset(own_algorithm: Path) -> None:
    (own_algorithm / "pupil.py").write_text(WITH_DEFAULTS, encoding="utf-8")
    with user_modules.found_in(str(own_algorithm)):
        assert preset("pupil:make", "somewhere:else") == {"minibatches": 4, "lr_final": 0.0}
        theirs = preset("mappo", "skirmish/2s3z")
        assert "hidden" in theirs and "epochs" in theirs
        changed = {"hidden", "epochs"}
        assert preset("pupil:make", "skirmish/2s3z") == {key: x for key, x in theirs.items() if key not in changed}


def test_a_module_of_another_project_is_not_used_by_the_same_name(
    own_algorithm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(own_algorithm))
    ours = algorithms.get("pupil:make")
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    (folder / "pupil.py").write_text(ALGORITHM, encoding="utf-8")
    assert algorithms.get("pupil:make") is ours  # a copy
    (folder / "pupil.py").write_text(WITH_DEFAULTS, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        algorithms.get("pupil:make")
    assert str(caught.value) == (
        f"The module 'pupil' is now {folder / 'pupil.py'}, but this process has imported "
        f"{own_algorithm / 'pupil.py'} by that name: start another process, or rename one."
    )


GAINED = """
from dataclasses import dataclass
from shoal.algorithms import mappo

@dataclass(frozen=True)
class Config(mappo.Config):
    gained: float = 0.25

make = mappo.make
"""


def test_runs_outlive_new_fields_of_their_config(own_algorithm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = by(written(own_algorithm / "run", "mpe/simple_spread", {}), "pupil:make")
    before = json.loads((folder / "run.json").read_text(encoding="utf-8"))["config"]
    (own_algorithm / "pupil.py").write_text(GAINED, encoding="utf-8")
    with user_modules.found_in(str(own_algorithm)):
        for _ in range(2):
            run = described_run(folder, trust=True)
            assert run.config.gained == 0.25
        assert capsys.readouterr().err.count("gained, which the Config of pupil has gained") == 1
        here = manifest.identity(run.as_json(), ())
        manifest.check_same({"format": manifest.RUN_FORMAT, "config": before}, here, 7)
        before["config"] |= {"gamma": 0.5}
        with pytest.raises(CheckpointError, match=r"config\.gamma is"):
            manifest.check_same({"format": manifest.RUN_FORMAT, "config": before}, here, 7)

        manifest.write_run_json(folder, before | {"config": before["config"] | {"lost": 3}})
        with pytest.raises(InputError, match=r"was trained with 'lost' 3, but the Config of pupil has no such field"):
            described_run(folder, trust=True)


def test_a_default_that_the_module_restates_comes_before_an_inherited_preset(own_algorithm: Path) -> None:
    same = algorithms.get("mappo").Config().epochs
    text = WITH_DEFAULTS.replace("epochs: int = 2", f"epochs: int = {same}\n    minibatches: int")
    (own_algorithm / "pupil.py").write_text(text, encoding="utf-8")
    with user_modules.found_in(str(own_algorithm)):
        theirs, mine = preset("mappo", "skirmish/2s3z"), preset("pupil:make", "skirmish/2s3z")
    assert theirs["epochs"] != same and "minibatches" in mine, "an annotation alone states no default"
    assert mine == {key: x for key, x in theirs.items() if key not in ("hidden", "epochs")}


# What training writes.


def test_typed_names_are_found_whoever_trained_the_run_of_their_configuration(
    own_algorithm: Path, helpers: Path, shoal: Callable
) -> None:
    """The folder's own names are not imported, but its options of the environment are taken."""
    mine = written(helpers / "mine", "mpe/simple_spread", {"shared_reward": True})
    opening.remember(library.open_run(mine))
    theirs = written(helpers / "theirs", "mpe/simple_spread", {"shared_reward": True})
    evil, path = written(helpers / "stranger", "evil:make", {"shared_reward": True}), list(sys.path)
    for folder, *typed in (
        (mine, "mappo", "helpers:coordination"),
        (evil, "mappo", "helpers:coordination"),
        (mine, "pupil:make"),
        (theirs, "pupil:make"),
    ):
        sys.path[:] = path
        for name in ("helpers", "pupil"):
            sys.modules.pop(name, None)
        code, out, err = shoal("train", *typed, "--config", folder, "--print-config")
        assert code == 0 and "shared_reward = true" in out, err
    assert not list(helpers.rglob("pwned")) and "evil" not in sys.modules


def test_a_link_out_of_a_strangers_folder_is_not_followed(here: Path, shoal: Callable, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "2024").mkdir(parents=True)
    folder = written(here / "run", "mpe/simple_spread", {})
    (folder / "inside").symlink_to(folder / "metrics.jsonl")
    (folder / "checkpoints").symlink_to(photos)
    code, _, err = shoal("train", "--resume", folder)
    assert code == 2 and "checkpoints is a symbolic link that leads out" in err and err.count("\n") == 1
    assert (photos / "2024").exists()
    opening.remember(library.open_run(folder))  # an own run's is not followed either
    for words in (["--trust"], []):
        assert "checkpoints is a symbolic link that leads out" in shoal("train", "--resume", folder, *words)[2]
    with pytest.raises(CheckpointError, match="is a symbolic link, so no checkpoint is removed there"):
        Checkpoints(folder / "checkpoints").drop_after(0)
    assert (photos / "2024").exists()
    (folder / "checkpoints").unlink()
    (folder / "curves.png").symlink_to(tmp_path / "mine.txt")
    (tmp_path / "mine.txt").write_text("mine")
    for words in (["curves", str(folder)], ["train", "--resume", str(folder)]):
        code, _, err = shoal(*words)
        assert code == 2 and "is a symbolic link" in err
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["checkpoints", "policy", "opponents", "tensorboard"])
def test_a_new_run_is_not_written_through_a_link(name: str, here: Path, shoal: Callable) -> None:
    """Also not through one whose target does not exist yet."""
    (here / "run").mkdir()
    (here / "run" / name).symlink_to(here / "elsewhere")
    code, _, err = shoal("train", "mappo", "matrix/climbing", "--folder", here / "run")
    assert code == 2 and f"{name} is a symbolic link" in err and err.count("\n") == 1
    assert not (here / "elsewhere").exists()


def test_a_strangers_folder_joins_no_cluster(here: Path, shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster executes what it is sent and sends what is unpickled."""
    monkeypatch.setattr("shoal.rollouts.ray.connect", lambda *_: pytest.fail("connected"))
    folder = written(here / "run", "gymnasium:CartPole-v1", {}, workers="ray", address="evil:6379")
    code, _, err = shoal("train", "--resume", folder)
    assert code == 2 and "would use a Ray cluster" in err and "--trust" in err


def test_a_strangers_folder_without_a_checkpoint_starts_from_no_other_run(here: Path) -> None:
    """Also where it has a folder for them."""
    folder = written(here / "run", "mpe/simple_spread", {}, init_from=str(here / "other"))
    run, checkpoints = library.open_run(folder), folder / "checkpoints"
    for _ in range(2):
        with pytest.raises(InputError, match=f"would start from {here / 'other'}"):
            opening.permit_training(run, False, {})
        checkpoints.mkdir(exist_ok=True)
    (checkpoints / "0").mkdir()
    opening.permit_training(run, False, {})


def test_a_strangers_folder_names_no_cluster(here: Path, shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the user gives the workers, and not whose they are."""
    monkeypatch.setattr("shoal.rollouts.ray.connect", lambda *_: pytest.fail("connected"))
    folder = written(here / "run", "gymnasium:CartPole-v1", {}, address="evil:6379")
    code, _, err = shoal("train", "--resume", folder, "--workers", "ray")
    assert code == 2 and "would use a Ray cluster" in err and "or give workers and address yourself" in err
    run = library.open_run(folder)
    for given in ({}, {"workers": "processes"}, {"workers": "ray"}):
        with pytest.raises(InputError, match="would use a Ray cluster"):
            opening.permit_training(run, False, given)
        opening.permit_training(run, True, given)
        opening.permit_training(run, False, given | {"address": None})
        opening.permit_training(run, False, given | {"address": "mine:6379"})


def test_every_family_says_what_it_imports() -> None:
    assert permission.PACKAGES.keys() == registry.FAMILIES.keys()
