"""Compiled programs are stored for the next command, in a folder that only this user writes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal
from shoal.algorithms import mappo
from shoal.options.flags import override
from shoal.runs.run import Run
from shoal.sides.opponents import OpponentOptions
from shoal.storage.log import read_log
from shoal.training import program_cache
from shoal.training.settings import Settings
from shoal.training.sharding import plan_layout
from support import trained

COMPILE = """
import jax, jax.numpy as jnp
from shoal.training import program_cache
program_cache.QUICK = 0.0
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
program_cache.use()
jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3)))
print(len(hits))
"""


def compile_in_a_process(folder: Path) -> int:
    """Programs that the process loaded instead of compiling."""
    plain = {k: v for k, v in os.environ.items() if k not in ("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=plain | {program_cache.VARIABLE: str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return int(done.stdout)


def test_a_second_process_compiles_nothing_again(tmp_path: Path) -> None:
    assert compile_in_a_process(tmp_path) == 0
    (folder,) = tmp_path.iterdir()
    entries = sorted(folder.glob("*-cache"))
    assert entries
    assert compile_in_a_process(tmp_path) == len(entries)
    # Killed while it wrote: a part of the program, and nothing that says that it is complete.
    entries[0].write_bytes(entries[0].read_bytes()[:100])
    entries[0].with_name(entries[0].name.removesuffix("-cache") + "-atime").unlink()
    assert compile_in_a_process(tmp_path) == len(entries) - 1
    assert compile_in_a_process(tmp_path) == len(entries), "the program is stored again"
    entries[0].write_bytes(b"no program")
    assert compile_in_a_process(tmp_path) == len(entries) - 1


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """No cache is configured; afterwards everything is as before."""
    names = ["jax_compilation_cache_dir", "jax_compilation_cache_max_size"]
    names += ["jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes"]
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setattr(program_cache, "_folder", None)
    monkeypatch.setenv(program_cache.VARIABLE, str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("unset")
def test_the_cache_is_used_unless_it_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(program_cache.VARIABLE, "off")
    program_cache.use()
    assert trained.cache_folder() is None
    monkeypatch.setenv(program_cache.VARIABLE, str(tmp_path))
    program_cache.use()
    assert trained.cache_folder() == str(program_cache.folder())
    assert program_cache.folder().parent == tmp_path


@pytest.mark.usefixtures("unset")
def test_a_cache_of_the_users_own_stays(tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    program_cache.use()
    assert trained.cache_folder() == str(tmp_path / "own")


@pytest.mark.usefixtures("unset")
def test_a_folder_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    program_cache.use()
    assert trained.cache_folder() is None
    said = capsys.readouterr().err
    assert "since it belongs to another user" in said and said.count("\n") == 1


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(mode: int, capsys: pytest.CaptureFixture) -> None:
    program_cache.folder().mkdir(parents=True)
    program_cache.folder().chmod(mode)
    program_cache.use()
    assert trained.cache_folder() is None
    said = capsys.readouterr().err
    assert "other users can write it; choose another folder by SHOAL_CACHE" in said and said.count("\n") == 1
    program_cache.folder().chmod(0o755)
    program_cache.use()
    assert trained.cache_folder() == str(program_cache.folder()) and capsys.readouterr().err == ""


@pytest.mark.usefixtures("unset")
def test_a_folder_that_cannot_be_made_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(program_cache.VARIABLE, str(tmp_path / "file"))
    program_cache.use()
    assert trained.cache_folder() is None


def test_the_folder_follows_the_variable_and_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(program_cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert program_cache.folder().parent == tmp_path / "shoal"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert program_cache.folder().parent == tmp_path / ".cache" / "shoal"
    monkeypatch.setenv(program_cache.VARIABLE, "here")  # relative to the working directory, which may be anybody's
    assert program_cache.folder().parent == tmp_path / ".cache" / "shoal"
    monkeypatch.setenv(program_cache.VARIABLE, "~/own")
    assert program_cache.folder().parent == tmp_path / "own"


# Programs that are stored by what determines them.


@pytest.mark.usefixtures("unset")
def test_a_program_with_a_key_is_traced_once(capsys: pytest.CaptureFixture) -> None:
    program_cache.use()
    jax.config.update("jax_compilation_cache_dir", None)  # that of JAX, of which the next test is
    traced, x = [], np.arange(3.0, dtype=np.float32)

    def lower() -> Any:
        traced.append(1)
        return jax.jit(lambda x: {"y": 2 * x}).lower(x)

    devices = jax.devices()[:1]
    for _ in range(2):
        made = program_cache.compiled("k", devices, lower)()
        assert traced == [1] and made(x)["y"].tolist() == [0, 2, 4]
    found = program_cache.stored("k", devices)
    assert found.out_info["y"].shape == (3,) and program_cache.stored("other", devices) is None
    (entry,) = program_cache.folder().glob("shoal-k*-cache")
    entry.write_bytes(entry.read_bytes()[:-9])
    assert program_cache.compiled("k", devices, lower)()(x)["y"].tolist() == [0, 2, 4]
    assert traced == [1, 1] and program_cache.stored("k", devices)
    entry.write_bytes(b"no program")
    assert program_cache.stored("k", devices) is None and not entry.exists()
    assert program_cache.compiled("", devices, lower)()(x)["y"].tolist() == [0, 2, 4]
    assert len(traced) == 3 and not entry.exists()
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("unset")
def test_a_program_that_cannot_be_read_is_compiled_again() -> None:
    """Such as one of root's, after a command with sudo; here a folder has its name, since root may read every file."""
    program_cache.use()
    (program_cache.folder() / "shoal-k-cache").mkdir()
    assert program_cache.compiled("k", jax.devices()[:1], lambda: jax.jit(lambda x: 2 * x).lower(1.0))()(1.0) == 2


@pytest.mark.usefixtures("unset")
def test_a_program_that_jax_had_stored_is_not_stored_again() -> None:
    program_cache.use()

    class Lowered:
        def compile(self) -> str:
            program_cache._count("/jax/compilation_cache/cache_hits")
            return "program"

    assert program_cache.compiled("k", jax.devices(), Lowered)() == "program"
    assert not [*program_cache.folder().glob("shoal-*")]


def key_of_run(**changes: Any) -> str:
    """The key of a run's programs, with other settings, another configuration or another environment."""
    settings = Settings(**{"num_envs": 4, "rollout_length": 5, "devices": 1} | changes.pop("settings", {}))
    names = {"algorithm": "mappo", "environment": "matrix/climbing", "config": mappo.Config()} | changes
    env = shoal.make("matrix/climbing")
    run = Run(Path("unused"), names["algorithm"], names["environment"], {}, settings, names["config"], env)
    run.by_name = True
    return run._program_key(plan_layout(settings.seeds, settings.num_envs, 1))


@pytest.mark.usefixtures("unset")
def test_what_changes_a_program_changes_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert key_of_run() == "", "programs are not stored"
    program_cache.use()
    key = key_of_run()
    same = {"seed": 3, "keep": 1, "checkpoint_seconds": 1.0, "tensorboard": False, "eval_episodes": 3}
    assert key and key_of_run(settings=same) == key
    others = [{"settings": {name: 7}} for name in ("num_envs", "rollout_length", "seeds")]
    others += [
        {"settings": {"steps": 7.0}},
        {"settings": {"normalise_rewards": True}},
        {"config": mappo.Config(learning_rate=0.1)},
    ]
    others += [{"environment": "matrix/penalty"}, {"algorithm": "ippo"}]
    keys = {key_of_run(**other) for other in others}
    assert len(keys) == len(others) and not keys & {key, ""}
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert key_of_run() not in {key, ""}
    monkeypatch.setattr(program_cache.metadata, "version", lambda name: "0")
    assert key_of_run() not in {key, ""}


@pytest.mark.usefixtures("unset")
def test_a_run_with_code_or_policies_of_its_own_has_no_key() -> None:
    program_cache.use()
    assert key_of_run(config=override(mappo.Config(), {"network": "own:network"})) == ""
    assert key_of_run(algorithm="own:algorithm") == key_of_run(environment="own:environment") == ""
    assert key_of_run(environment="jaxmarl/MPE_simple_spread_v3") == ""
    assert key_of_run(settings={"opponent_options": OpponentOptions(opponents="past")}) == ""


def test_a_run_of_a_loaded_program_is_the_same(tmp_path: Path) -> None:
    sizes = ["--num-envs", "2", "--rollout-length", "5", "--hidden", "4", "--eval-episodes", "0"]
    words = ["train", "mappo", "matrix/climbing", "--steps", "60", *sizes]
    rows, compiled = [], []
    for cache in (tmp_path / "cache", tmp_path / "cache", "off"):
        (folder := tmp_path / str(len(rows))).mkdir()
        variables = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
        code = "import sys; from shoal.cli.command_line import main; sys.exit(main())"
        line = [sys.executable, "-c", code, *words, "--folder", str(folder)]
        done = subprocess.run(
            line, env=variables | {program_cache.VARIABLE: str(cache)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found = read_log(folder)
        rows.append([{name: x for name, x in row.items() if "second" not in name} for row in found])
        compiled.append(sorted(path.name for path in (tmp_path / "cache").glob("*/shoal-*-cache")))
    assert rows[0] == rows[1] == rows[2] and len(rows[0]) == 6
    assert compiled[0] == compiled[1] and len(compiled[0]) == 3
    assert sum("-init-" in name for name in compiled[0]) == 1  # the start of a run is stored apart from its updates
