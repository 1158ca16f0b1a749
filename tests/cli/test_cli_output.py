"""Streams that were closed, readers that went away and disks that are full: one sentence or silence, no traceback."""

import io
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from shoal import cli
from shoal.cli.output import Lenient
from shoal.errors import BuildError

CALL = f"{sys.executable} -c 'import sys; from shoal.cli import main; sys.exit(main())'"

STREAMS = [
    ("list algorithms >&-", 0, ""),
    ("list algorithms <&- >&- 2>&-", 0, ""),
    ("list nothing 2>&-", 2, ""),
    ("list algorithms > /dev/full", 1, "shoal: The operating system reports an error: No space left on device.\n"),
    ("list nothing 2> /dev/full", 2, ""),
]


@pytest.mark.parametrize(("words", "code", "said"), STREAMS)
def test_streams_that_cannot_be_written(words: str, code: int, said: str) -> None:
    if "/dev/full" in words and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    done = subprocess.run(["sh", "-c", f"{CALL} {words}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_an_error_stream_that_cannot_be_written_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its flush at exit would fail again, which is exit code 120 from Python 3.14 on."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    program = (
        "import sys\nfrom shoal.cli.output import safe_streams\n"
        "with safe_streams(): print(1, file=sys.stderr)\nsys.stderr.flush()"
    )
    done = subprocess.run(["sh", "-c", f"{sys.executable} -c '{program}' 2> /dev/full"], check=False)
    assert done.returncode == 0


def test_output_is_not_written_to_other_files(tmp_path: Path) -> None:
    """Where stdout was closed, the next file that is opened would take its number."""
    program = (
        "import os, sys; from shoal.cli.output import fill_closed_streams; fill_closed_streams(); "
        f"file = open({str(tmp_path / 'file')!r}, 'w'); print('lost'); os.write(1, b'lost'); sys.stdout.flush(); "
        "file.write('kept'); file.close()"
    )
    done = subprocess.run(["sh", "-c", f'"{sys.executable}" -c "{program}" >&-'], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "kept"


class Gone(io.StringIO):
    """A terminal that is gone."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise OSError(5, "Input/output error")


def test_a_failing_error_stream_does_not_end_the_command() -> None:
    stream = Lenient(Gone())
    print("a sentence", file=stream, flush=True)  # type: ignore[call-overload]
    assert stream.write("more") == 4 and not stream.isatty()


def test_commands_go_on_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    assert cli.main(["list", "algorithm"]) == 2
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("shoal ")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError(), 1, "There is not enough memory; reduce seeds, num_envs"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."), 1, "not enough memory"),
        (OSError(28, "No space left on device"), 1, "The operating system reports an error: No space left on device."),
        (PermissionError(13, "Permission denied", "/root/x"), 2, "/root/x cannot be used: Permission denied."),
        (SystemExit(), 1, "The command was ended by sys.exit(), in "),
        (SystemExit("no licence"), 1, "The command was ended by sys.exit('no licence'), in "),
    ],
)
def test_an_operating_system_error_is_one_sentence(
    error: Exception, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def raising(*_: object) -> None:
        raise error

    monkeypatch.setattr("shoal.cli.command_line._dispatch", raising)
    monkeypatch.setattr("shoal.cli.command_line.abandon_output", lambda stream: None)
    assert cli.main([]) == code
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_an_environment_that_cannot_be_built_has_its_traceback_before_the_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def raising(*_: object) -> None:
        raise BuildError("own:Env cannot be built: no map.", "Traceback of own:Env")

    monkeypatch.setattr("shoal.cli.command_line._dispatch", raising)
    assert cli.main([]) == 2
    assert capsys.readouterr().err == "Traceback of own:Env\nshoal: own:Env cannot be built: no map.\n"


def test_an_unexpected_error_has_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object) -> None:
        raise jax.errors.JaxRuntimeError("INTERNAL: a fault of the compiler")

    monkeypatch.setattr("shoal.cli.command_line._dispatch", raising)
    with pytest.raises(jax.errors.JaxRuntimeError):
        cli.main([])


def test_help_and_unknown_names_are_answered_without_jax() -> None:
    """Importing JAX would take a second."""
    requests = [
        ["--help"],
        ["--version"],
        ["list", "algorithms"],
        ["trian"],
        ["train"],
        ["train", "mapo", "mpe/simple_spread"],
        ["train", "mappo", "mpe/simple_sprad"],
        ["check", "mpe/simple_sprad"],
        ["evaluate"],
        ["study"],
    ]
    program = (
        f"import sys; from shoal.cli import main; codes = [main(words) for words in {requests!r}]; "
        "print(codes, [name for name in ('jax', 'flax', 'optax') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 2, 2, 2, 2, 2, 2, 2] []"
    assert len(done.stderr.splitlines()) == 7
