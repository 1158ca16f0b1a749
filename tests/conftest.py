"""Two CPU devices for every test, so that sharding is exercised; quick compilation; shapes are checked at run time."""

import atexit
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from support import annotations, xla_flags

# What is compiled here runs for milliseconds. Compiling without optimisation takes half the time, and of that the
# emitters of fusions, each with a pipeline of its own, take another half. Without its division into 32 parts, for
# threads that find no idle core here, compilation takes a fifth less. Processes of pytest-xdist inherit the variable.
_FAST = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XLA_FLAGS"] = xla_flags.known(_FAST, os.environ.get("XLA_FLAGS", ""))

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

from support import kept_programs, lowering, selection  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_traceback_in_locations_limit", 0)  # recording source lines took 8 % of the time
lowering.install()
kept_programs.install()

# Compiled programs are kept on disk for this session and its subprocesses, which are given the folder. A folder named
# by JAX_COMPILATION_CACHE_DIR is kept between sessions, which makes repeated runs of the same tests much faster. Also
# small programs are kept: two workers need many of the same, and reading one takes a third of compiling it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _FOLDER = tempfile.TemporaryDirectory(prefix="shoal-tests-")
    atexit.register(_FOLDER.cleanup)
    jax.config.update("jax_compilation_cache_dir", _FOLDER.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Compiled modules are kept beside their sources, also where the environment says otherwise: without them each worker
# rewrites the assertions of all tests, and each process that a test starts compiles Shoal.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What tests write need not outlive a loss of power, and waiting for disks takes a hundredth of the time.
os.fsync = lambda fd: None

# Commands that tests start as processes leave the user's own cache alone.
os.environ["SHOAL_CACHE"] = "off"

# What training records of its folders stays out of the user's own state folder.
_STATE = tempfile.TemporaryDirectory(prefix="shoal-tests-state-")
atexit.register(_STATE.cleanup)
os.environ["XDG_STATE_HOME"] = _STATE.name

# Background jobs of a script, and what ``nohup`` starts, ignore signals that tests send; so would their subprocesses.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)

# Modules that stand for a user's own, and examples/sarsa.py, which is tested as every algorithm is.
sys.path.append(str(Path(__file__).parent / "support" / "user_modules"))
sys.path.append(str(Path(__file__).parents[1] / "examples"))

annotations.install()

# The rate of the machine, which reports and records state, takes seconds to measure with matrices of the real size.
from shoal.storage import manifest  # noqa: E402

manifest.MATRIX_SIZE = 64

# Tracing makes many objects that live on; collecting them as often as Python does by default takes a tenth of the time.
gc.set_threshold(50_000, 20, 100)


TESTS = Path(__file__).parent
SLOW = [line for line in (TESTS / "slow.txt").read_text("utf-8").splitlines() if line and not line.startswith("#")]


def pytest_configure() -> None:
    """Refuse two test files of one name, of which pytest imports one; ``make test`` alone would not notice a slow one.

    Raises:
        pytest.UsageError: there are such files.
    """
    first: dict[str, Path] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if (other := first.setdefault(path.name, path)) != path:
            raise pytest.UsageError(f"{other.relative_to(TESTS)} and {path.relative_to(TESTS)} have the same name.")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whole files that ``slow.txt`` lists are not even imported by ``make test``."""
    left_out = config.option.markexpr == "not slow" and collection_path.is_relative_to(TESTS)
    return True if left_out and collection_path.relative_to(TESTS).as_posix() in SLOW else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what ``slow.txt`` lists, and keep the lines that fit no test, which ``test_slow_lines.py`` refuses: an error
    raised here in a process of pytest-xdist is printed as one of pytest's own."""
    slow = frozenset(SLOW)
    used = {line for line in SLOW if line.endswith(".py") and (TESTS / line).is_file()}
    for item in items:
        name = item.path.relative_to(TESTS).as_posix() + item.nodeid[item.nodeid.find("::") :]
        if lines := selection.fitting(name, slow):
            item.add_marker(pytest.mark.slow)
            used.update(lines)
    config.stash[selection.UNUSED] = [] if config.option.file_or_dir else [line for line in SLOW if line not in used]


@pytest.fixture(scope="module", autouse=True)
def programs_are_freed_in_time() -> Iterator[None]:
    """Free what was compiled when it is much: each program holds memory maps, of which a process may have 65,530 on
    Linux. Beyond that XLA crashes, and all the files of one worker together come near it. What is needed again comes
    from the disk."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > 40_000:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def unchecked_annotations() -> Iterator[None]:
    """Annotations say ``float``, which is what users write; with traced hyper-parameters there are arrays."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def shoal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """(words) -> (exit code, stdout, stderr)."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands are processes, which do not search each other's folders

    from shoal import cli

    def call(*words: str | Path) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return call
