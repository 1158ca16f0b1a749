"""``run.json`` holds the configuration and what the run ran on, and nothing that names a person or a machine."""

import getpass
import json
import math
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import jax
import pytest

import shoal
from shoal.errors import InputError
from shoal.storage import manifest
from shoal.system import files, shipped


@dataclass(frozen=True)
class Config:
    lr: float = 5e-4
    layers: tuple[int, ...] = (64, 64)


def test_the_manifest_has_versions_and_hardware():
    found = manifest.describe_machine()
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["jax"] == version("jax") and found["versions"]["shoal"] == shoal.__version__
    assert set(found["versions"]) == {"python", "shoal", "jax", "jaxlib", "flax", "optax", "numpy"}
    robots = manifest.describe_machine("mamujoco/Ant-4x2")["versions"]
    assert robots.items() > found["versions"].items() and robots["mujoco"] == version("mujoco")
    assert manifest.describe_machine("gymnasium:Ant-v5")["versions"]["gymnasium"] == version("gymnasium")
    hardware = found["hardware"]
    assert hardware["processor"] and hardware["cores"] >= 1 and hardware["memory_gib"] > 0
    assert hardware["devices"] == [{"platform": "cpu", "kind": jax.devices()[0].device_kind, "count": 2}]


def test_the_commit_is_shoals_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    commit = manifest.describe_machine()["commit"]
    if commit is not None:  # None where Shoal is installed rather than checked out
        assert len(commit.removesuffix("+")) == 40
    (tmp_path / ".git").mkdir()  # somebody else's repository around an installed Shoal
    monkeypatch.setattr(shipped, "PACKAGE", tmp_path / "site-packages" / "shoal")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("asked somebody else's repository"))
    assert manifest.describe_machine()["commit"] is None


def test_a_machine_is_the_same_however_many_cpu_devices_a_process_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(manifest, "product_rate", lambda: 1e9)
    here = manifest.describe_machine()["hardware"]
    cpu = here["devices"][0]
    trained = here | {"devices": [cpu | {"count": 7}]}
    assert manifest.rate_of(tmp_path, trained) == 1e9
    for other in ({"devices": [cpu | {"platform": "gpu"}]}, {"cores": 99}, {"devices": None}):
        assert manifest.rate_of(tmp_path, here | other) is None


def test_the_configuration_comes_back(tmp_path: Path):
    config = {"algorithm": Config(), "seeds": 8, "clip": math.inf, "none": None, "name": "Ünicode", "path": Path("a/b")}
    manifest.write_run_json(tmp_path, config)
    found = manifest.read_run_json(tmp_path)
    assert found["config"] == {
        "algorithm": {"lr": 5e-4, "layers": [64, 64]},
        "seeds": 8,
        "clip": math.inf,
        "none": None,
        "name": "Ünicode",
        "path": "a/b",
    }
    assert found["made_with"]["versions"]["jax"] == version("jax")


def test_the_manifest_has_no_private_data(tmp_path: Path):
    manifest.write_run_json(tmp_path, {})
    text = (tmp_path / manifest.RUN_JSON).read_text()
    for private in (platform.node(), str(Path.home()), str(tmp_path), str(Path.cwd())):
        assert len(private) < 3 or private not in text
    assert f'"{getpass.getuser()}"' not in text


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    manifest.write_run_json(tmp_path, {"version": "old"})

    def crash(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "sync", crash)
    with pytest.raises(KeyboardInterrupt):
        manifest.write_run_json(tmp_path, {"version": "new"})
    assert manifest.read_run_json(tmp_path)["config"] == {"version": "old"}


def test_errors_are_one_sentence(tmp_path: Path):
    with pytest.raises(InputError, match=r"There is no run.json in .*not the folder of a run"):
        manifest.read_run_json(tmp_path)
    with pytest.raises(InputError, match=r"run\.config\.make is a function"):
        manifest.write_run_json(tmp_path, {"make": lambda: None})
    (tmp_path / manifest.RUN_JSON).touch()
    with pytest.raises(InputError) as error:
        manifest.read_run_json(tmp_path / manifest.RUN_JSON)
    assert str(error.value) == (
        f"'{tmp_path}/run.json' is a file, not the folder of a run: give the folder, '{tmp_path}'."
    )
    for text, sentence in (
        ("{", "cannot be read as JSON"),
        (json.dumps({"format": manifest.RUN_FORMAT}), "contains no configuration"),
    ):
        (tmp_path / manifest.RUN_JSON).write_text(text)
        with pytest.raises(InputError, match=sentence):
            manifest.read_run_json(tmp_path)
