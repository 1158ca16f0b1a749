"""No command executes a file of the working directory that nobody named (docs/security.md)."""

import importlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import shoal
import toys
from shoal import algorithms
from shoal.checking import process as checking
from shoal.cli import commands
from shoal.environments import registry
from shoal.errors import InputError
from shoal.plots import figures
from shoal.rollouts import ray
from shoal.rollouts import worker as workers
from shoal.security import isolation, user_modules
from shoal.storage import manifest
from shoal.training.settings import Settings
from shoal.trust.run_file import Described
from support.working_directories import command, sprung, with_traps

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="starts POSIX programs")

MUJOCO = "gymnasium:InvertedPendulum-v5"
TINY = (
    "--steps 64 --num-envs 2 --rollout-length 8 --seeds 1 --hidden 4 --epochs 1 --minibatches 1 --eval-episodes 1 "
    "--rows 2 --no-progress"
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_traps(tmp_path_factory.mktemp("working") / "here")


def test_the_modules_of_the_working_directory_are_imported_without_protection(tmp_path: Path) -> None:
    """What the other tests rely on: a child ``python -c`` imports from the working directory."""
    folder = with_traps(tmp_path / "here")
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import ctypes'])"
    assert command(folder, program=child).returncode == 0
    # Python 3.13 itself imports linecache for ``-c``, before the program's own import.
    assert {"ctypes", "linecache"}.intersection(sprung(folder).split())


def test_a_mujoco_run_is_opened_and_drawn(here: Path) -> None:
    """The environment is built, for which glfw starts a process, and matplotlib is imported: in one process."""
    spec = Described("mappo", MUJOCO, {}, True, Settings(), algorithms.get("mappo").Config(), toys.coordination().spec)
    folder = here.parent / "run"
    folder.mkdir()
    manifest.write_run_json(folder, spec.as_json())
    (folder / "metrics.jsonl").write_text('{"step": 1, "return": [1.0]}\n{"step": 2, "return": [1.5]}\n', "utf-8")
    program = f"""if True:
        import sys
        from shoal.cli import main
        codes = [main(["evaluate", {str(folder)!r}]), main(["curves", {str(folder)!r}])]
        import matplotlib
        assert {{"glfw", "mujoco"}} <= set(sys.modules) and matplotlib.rcParams["font.size"] == 10, sys.modules
        import mujoco
        ball = "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
        model = mujoco.MjModel.from_xml_string(ball)
        data = mujoco.MjData(model)
        data.qvel[:] = 1e30
        mujoco.mj_step(model, data)
        sys.exit(codes != [2, 0])
    """
    done = command(here, program=program)
    assert done.returncode == 0 and "is not the environment it was" in done.stderr, done.stderr
    assert "MuJoCo warns: Nan, Inf or huge value in QVEL" in done.stderr and not (here / "MUJOCO_LOG.TXT").exists()
    assert not sprung(here)


def test_variables_and_finders_are_put_back(shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(isolation.SETTINGS, "relative")
    monkeypatch.delenv(isolation.SAFE_PATH, raising=False)
    finders, exists = list(sys.meta_path), os.path.exists
    with isolation.isolated():
        assert os.environ[isolation.SAFE_PATH] == "1" and sys.meta_path != finders
    with isolation.packaged_settings():
        assert os.environ[isolation.SETTINGS] == str(isolation.OWN_SETTINGS) and isolation.OWN_SETTINGS.is_file()
    monkeypatch.setenv(isolation.SETTINGS, "/own/file")
    with isolation.packaged_settings():
        assert os.environ[isolation.SETTINGS] == "/own/file"
    with figures.figures():
        pass
    shoal("list", "algorithms")
    assert sys.meta_path == finders and os.path.exists is exists and isolation.SAFE_PATH not in os.environ
    assert os.environ[isolation.SETTINGS] == "/own/file"


@pytest.mark.parametrize("module", [workers, checking], ids=["worker", "check"])
def test_processes_do_not_search_the_working_directory(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither do those that they start, for which ``-P`` alone does nothing."""
    started: list[tuple] = []

    def start(words: list[str], **rest: Any) -> None:
        started.append((words, rest["env"]))
        raise InterruptedError

    monkeypatch.setattr(module.subprocess, "Popen", start)
    monkeypatch.delenv(isolation.SAFE_PATH, raising=False)
    with (tmp_path / "trace").open("w") as file, pytest.raises(InterruptedError):
        monkeypatch.setattr(module.tempfile, "TemporaryFile", lambda: file)
        workers.Worker(0, [range(1)]).start(0, {}) if module is workers else checking.Process()
    assert started[0][0][1] == "-P" and started[0][1][isolation.SAFE_PATH] == "1"


def test_processes_of_ray_do_not_search_the_working_directory_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray adds the folder of the driver's script and the working directory to this list."""
    names = SimpleNamespace(job_config=SimpleNamespace(JobConfig=SimpleNamespace))
    monkeypatch.chdir(tmp_path)
    here, scripts = str(tmp_path), str(tmp_path.parent)
    for script, searched, expected in (
        (f"{scripts}/shoal", [], [scripts]),
        (f"{here}/own.py", [here], [scripts, here]),  # its folder comes before the libraries in the driver too
        (f"{here}/own.py", [], [scripts]),
    ):
        monkeypatch.setattr(sys, "argv", [script])
        monkeypatch.setattr(sys, "path", searched)
        path = ray._job(names)._py_driver_sys_path
        path.extend([scripts, here])
        assert list(path) == expected


@pytest.fixture
def beside_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module ``own_named`` that imports its neighbour, and one with the name of a library."""
    texts = {
        "own/own_named.py": "from own_neighbour import make",
        "own/own_neighbour.py": "def make(): ...",
        "own/own_library.py": "def make(): raise AssertionError",
        "libraries/own_library.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "libraries")])
    yield tmp_path / "own"
    for name in ("own_named", "own_neighbour", "own_library"):
        sys.modules.pop(name, None)


def test_a_module_that_is_named_brings_no_file_in_the_place_of_a_library(beside_a_library: Path) -> None:
    with user_modules.found_in(str(beside_a_library)):
        assert user_modules.import_user_object("own_named:make", "environment").__module__ == "own_neighbour"
        found = importlib.import_module("own_library").__file__
    assert found == str(beside_a_library.parent / "libraries" / "own_library.py")


def test_a_module_that_is_named_as_a_library_is_not_exchanged_for_it(beside_a_library: Path) -> None:
    """Worker processes would import the library, too."""
    with user_modules.found_in(str(beside_a_library)), pytest.raises(InputError) as refused:
        user_modules.import_user_object("own_library:make", "environment")
    said = r"own/own_library\.py and .*libraries/own_library\.py are both the module 'own_library': rename or .*\."
    assert re.search(said, str(refused.value)) and "own_library" not in sys.modules


@pytest.mark.parametrize("name", ["pettingzoo:own_library", "gymnasium:own_library:Own-v0"])
def test_nor_is_one_that_another_library_imports(name: str, beside_a_library: Path) -> None:
    pytest.importorskip(name.partition(":")[0])
    said = r"own/own_library\.py and .*libraries/own_library\.py are both the module 'own_library'"
    with user_modules.found_in(str(beside_a_library)), pytest.raises(InputError, match=said):
        registry.make(name)
    assert "own_library" not in sys.modules


def test_matplotlib_is_imported_in_one_place() -> None:
    package = Path(shoal.__file__).parent
    files = {path.name: path.read_text("utf-8") for path in package.rglob("*.py")}
    importing = [name for name, text in files.items() if re.search(r"^ *(import|from) matplotlib", text, re.MULTILINE)]
    assert importing == ["figures.py"]


# Every command, slowly.


@pytest.fixture(scope="module")
def run(here: Path) -> Path:
    """A MuJoCo run that was trained among the traps, with worker processes."""
    folder = here.parent / "mujoco"
    done = command(here, "train", "mappo", MUJOCO, "--folder", folder, *TINY.split(), "--num-workers", "1")
    assert (folder / "evaluation.json").exists() and "Traceback" not in done.stderr, done.stderr
    assert not sprung(here)
    return folder


STUDY = """
title = "T"
question = "Q?"

[defaults]
environment = "gymnasium:InvertedPendulum-v5"
algorithm = "mappo"
steps = 128
seeds = 2
num_envs = 2
rollout_length = 8
hidden = [4]
devices = 1
epochs = 1
minibatches = 1
tensorboard = false

[evaluation]
episodes = 2

[[variants]]
name = "one"
"""

TUNING = (
    STUDY.replace(MUJOCO, "matrix/two_step").replace("steps = 128", "steps = 1024")
    + """
[[variants]]
name = "tuned"
tuned = true

[tuning]
trials = 4
rungs = 2
eta = 2
seeds = 2
episodes = 2

[tuning.ranges]
learning_rate = { low = 1e-4, high = 1e-1, log = true }
"""
)

DRAWING = ("train", "study", "replay", "report")
"""Commands that may draw the environment."""

COMMANDS = [
    "evaluate RUN --episodes 2",
    "replay RUN --episodes 1 --output OUT.gif",
    "export RUN --output OUT.onnx",
    "curves RUN --output OUT.svg",
    "curves RUN RUN --output OUT.png",
    "compare RUN",
    "crossplay RUN RUN --episodes 2",
    "report RUN --out OUT.html",
    "train --resume RUN --steps 96 --no-progress",
    "train --resume RUN --help",
    "train mappo --config RUN --help",
    "train mappo gymnasium:InvertedPendulum-v5 --print-config",
    "check gymnasium:InvertedPendulum-v5 --episodes 1",
    "check mappo",
    "study study.toml --dry-run",
    "study study.toml --no-progress --out OUT",
    "results study.toml",
    "tune tuning.toml --no-progress --out OUT",
    "list algorithms",
    "list environments",
    "zoo",
    "push --help",
    "pull --help",
    "--help",
    "--version",
    "completion bash",
    "completion --words train mappo RUN --",
]


def test_every_command_is_listed() -> None:
    assert set(commands.COMMANDS) <= {words.split()[0] for words in COMMANDS}


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_imports_from_the_working_directory(words: str, here: Path, run: Path, tmp_path: Path) -> None:
    for name, text in (("study.toml", STUDY), ("tuning.toml", TUNING)):
        (tmp_path / name).write_text(text, "utf-8")
    places = {"RUN": run, "OUT": tmp_path / "out", "study.toml": tmp_path / "study.toml"}
    places |= {"tuning.toml": tmp_path / "tuning.toml"}
    for name, path in places.items():
        words = words.replace(name, str(path))
    done = command(here, *words.split())
    # A team of one cannot play against another, and one run cannot be compared; without a display MuJoCo's pictures
    # may end the process.
    allowed = {
        0,
        *([2] if words.startswith(("crossplay", "compare")) else []),
        *([-signal.SIGABRT] if words.split()[0] in DRAWING else []),
    }
    assert done.returncode in allowed and "Traceback" not in done.stderr, done.stderr + done.stdout
    assert not sprung(here)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["train", "study"])
def test_no_process_of_ray_imports_from_the_working_directory(words: str, here: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    if words == "train":
        flags = ["mappo", MUJOCO, "--folder", tmp_path / "run", *TINY.split(), "--workers", "ray", "--num-workers", "1"]
    else:
        (tmp_path / "study.toml").write_text(STUDY, "utf-8")
        flags = [tmp_path / "study.toml", "--workers", "ray", "--out", tmp_path / "out", "--no-progress"]
    done = command(here, words, *flags)
    assert done.returncode in (0, -signal.SIGABRT) and "Traceback" not in done.stderr, done.stderr + done.stdout
    assert list(tmp_path.rglob("index.json"))  # policies
    assert not sprung(here)


@pytest.mark.slow
def test_a_script_elsewhere_imports_nothing_from_the_working_directory(here: Path, run: Path) -> None:
    """As a library, where nothing but the search path of the script protects it."""
    program = f"import shoal; run = shoal.open_run({str(run)!r}); run.evaluate(1); run.curves('{run}/script.png')"
    done = command(here, program=program)
    assert done.returncode == 0 and not sprung(here), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("more", ["--num-workers 1", "--num-workers 1 --workers ray"])
def test_modules_that_are_named_work_in_every_process(more: str, tmp_path: Path) -> None:
    """Although no process searches the working directory by itself."""
    if "ray" in more:
        pytest.importorskip("ray")
    text = Path(toys.__file__).with_name("counters.py").read_text("utf-8")
    (tmp_path / "own_environment.py").write_text(text, "utf-8")
    flags = [*TINY.split(), "--folder", "run", *more.split()]
    done = command(tmp_path, "train", "mappo", "own_environment:Counters", *flags)
    assert done.returncode == 0, done.stderr
    done = command(tmp_path, "evaluate", "run", "--episodes", "2")
    assert done.returncode == 0, done.stderr
