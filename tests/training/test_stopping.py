"""Signals: a run ends saved, is told so at once, and waits for nothing that it does not need."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
from shoal.storage.checkpoint import Checkpoints
from shoal.storage.lock import hold
from shoal.system import notices
from shoal.training import stopping
from shoal.training.stopping import Stop, begin, call, ready, wait
from shoal.training.trainer import Trainer
from support import trained

ALL = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """What a test leaves going on in another thread ends with it."""
    yield
    for thread in list(stopping._busy):
        thread.join(20)
    assert not stopping.busy()


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What compiles in these tests is done when this is set, at the latest when the test ends."""
    event = threading.Event()
    yield event
    event.set()


@contextmanager
def sent(number: int, seconds: float = 0.2) -> Iterator[None]:
    """A signal comes while this thread does something."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), number))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@pytest.mark.parametrize("number", ALL)
def test_the_first_signal_asks_and_ctrl_c_after_it_insists(number: int) -> None:
    said: list[str] = []
    stop, before = Stop(said.append), [signal.getsignal(each) for each in ALL]
    with stop.listening():
        signal.raise_signal(number)
        assert stop.asked and said == ["Stopping after this call; the run is saved and --resume continues it."]
        for again in (signal.SIGHUP, signal.SIGTERM):  # a terminal and a scheduler may send several
            signal.raise_signal(again)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(each) for each in ALL] == before and len(said) == 1


def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = Stop(pytest.fail)
        with stop.listening():
            signal.raise_signal(signal.SIGHUP)
        assert not stop.asked
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_of_a_program_in_which_python_is_embedded_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python tells it as None, and cannot put it back."""
    get, put = signal.getsignal, signal.signal

    def told(handler: Any, number: int) -> Any:
        return None if number == signal.SIGHUP else handler

    monkeypatch.setattr(signal, "getsignal", lambda number: told(get(number), number))
    monkeypatch.setattr(signal, "signal", lambda number, handler: told(put(number, handler), number))
    before = get(signal.SIGHUP)
    with Stop(pytest.fail).listening():
        assert get(signal.SIGHUP) == before and get(signal.SIGTERM) != signal.SIG_DFL
    assert get(signal.SIGHUP) == before


def test_outside_of_the_main_thread_signals_are_left_alone() -> None:
    failed: list[Exception] = []

    def work() -> None:
        try:
            with Stop(pytest.fail).listening():
                assert wait(lambda: 3) == 3
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed


def test_wait_returns_the_result_or_raises_the_error() -> None:
    assert wait(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(ZeroDivisionError):
        wait(lambda: 1 // 0)
    assert call(jax.jit(jax.random.bits), jax.random.key(0)) == jax.random.bits(jax.random.key(0))
    assert call(jax.jit(jax.random.split), jax.random.key(0)).shape == (2,)
    tree = {"a": jnp.ones(3), "b": np.ones(2), "c": 1, "d": jax.random.key(0)}
    assert ready(tree) is tree


def test_what_is_called_again_is_neither_traced_nor_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[Any] = []
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    function = jax.jit(lambda x: (traced.append(x), x + 1)[1])
    for i in range(3):
        assert call(function, jnp.float32(i)) == i + 1
        if not i:
            assert any("backend_compile" in event for event in compiled)
            compiled.clear()
    assert len(traced) == 1 and not [event for event in compiled if "compile" in event]


def test_a_signal_that_interrupts_anything_is_heard() -> None:
    """Many at any place of the code that waits: a handler must not wait for a lock that the main thread holds."""
    said: list[str] = []
    stop, end = Stop(said.append), threading.Event()

    def send() -> None:
        while not end.is_set():
            stop.asked = False
            os.kill(os.getpid(), signal.SIGTERM)

    def stuck(*_: Any) -> None:
        end.set()
        pytest.fail("It waits for ever.")

    before, sender = signal.signal(signal.SIGALRM, stuck), threading.Thread(target=send)
    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    signal.alarm(15)
    with stop.listening():
        sender.start()
        try:
            for _ in range(100):
                assert wait(lambda: 1) == 1
        finally:
            end.set()
            sender.join()
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
            sys.setswitchinterval(pause)
    assert said


def test_a_warning_in_the_middle_of_another_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def write(self, text: str) -> None:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    monkeypatch.setattr(sys, "stderr", Interrupted())
    notices.warn("Stopping.")


def test_it_is_traced_by_the_callers_settings() -> None:
    """A thread of its own would not have them."""
    seen: list[Any] = []

    def traced(x: jax.Array) -> jax.Array:
        seen.append(jax.config.jax_default_matmul_precision)  # pyright: ignore[reportAttributeAccessIssue]
        return x

    with jax.default_matmul_precision("float32"):
        call(jax.jit(traced), jnp.ones(2))
    assert seen == ["float32"]


def test_work_runs_in_a_thread_until_its_result_is_needed(released: threading.Event) -> None:
    first, second = begin(lambda: released.wait(20)), begin(lambda: 1 // 0)
    assert stopping.busy()
    released.set()
    assert first() is True
    with pytest.raises(ZeroDivisionError):
        second()


def trainer_in(folder: Path, said: list[str], **program: Any) -> Trainer:
    trainer = trained.Idle(folder, updates=100, tensorboard=False)
    trainer.program = trainer.program._replace(**program)
    trainer.progress.warn = trainer.stop.warn = lambda sentence: said.append(sentence)
    return trainer


@pytest.mark.parametrize("number", ALL)
@pytest.mark.parametrize("what", ["init", "start", "ahead"])
def test_a_signal_during_compilation_ends_the_process(
    number: int, what: str, tmp_path: Path, released: threading.Event
) -> None:
    """All that was learned is saved already: nothing but the compilation is lost, which nothing can interrupt."""
    said: list[str] = []

    def compiling(*_: Any) -> Any:
        with sent(number):
            return wait(lambda: released.wait(20))

    trainer = trainer_in(tmp_path, said, **{what: (lambda: compiling) if what == "ahead" else compiling})
    began = time.monotonic()
    assert trainer.run() is False
    assert time.monotonic() - began < 15 and not released.is_set() and stopping.busy()
    assert said == ["Stopping before training begins; --resume starts the run."]
    assert trainer.checkpoints.latest() == trainer.policies.latest() == (None if what == "init" else 0)


@pytest.mark.parametrize("when", ["initialising", "saving", "tracing", "starting workers"])
def test_a_signal_before_compiling(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence comes at once; what is under way is finished, and nothing compiles after it."""
    said: list[str] = []

    def signalled(*_: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        assert said == ["Stopping before training begins; --resume starts the run."]
        return state

    def start(state: Any) -> Any:
        if when in ("tracing", "starting workers"):
            signalled()
        return pytest.fail if when == "starting workers" else wait(lambda: pytest.fail("it compiled"))

    trainer = trainer_in(tmp_path, said, start=start)
    state = trainer.program.init(jax.random.split(jax.random.key(0), 1))
    if when == "initialising":
        trainer.program = trainer.program._replace(init=signalled)
    if when == "saving":
        save = trainer._save_policy
        monkeypatch.setattr(trainer, "_save_policy", lambda: (save(), signalled()))
    assert trainer.run() is False
    assert trainer.checkpoints.latest() == trainer.policies.latest() == 0 and trainer.update == 0


@pytest.mark.parametrize("number", ALL)
def test_a_signal_in_a_long_call_is_announced_at_once_and_the_call_is_saved(
    number: int, tmp_path: Path, released: threading.Event
) -> None:
    said: list[str] = []

    def advance(state: Any, n: Any) -> Any:
        with sent(number):
            wait(lambda: released.wait(20))
        return state, ({"loss": np.ones((1, 1))}, trained.STATS)

    def hear(sentence: str) -> None:
        said.append(sentence)
        assert not released.is_set()
        released.set()  # only now the call ends

    trainer = trainer_in(tmp_path, said, start=lambda state: advance)
    trainer.stop.warn = hear
    assert trainer.run() is False
    assert said == ["Stopping after this call; the run is saved and --resume continues it."]
    assert trainer.update == 1 == trainer.checkpoints.latest() == trainer.policies.latest()


def test_a_second_ctrl_c_ends_the_process_during_a_call(tmp_path: Path, released: threading.Event) -> None:
    def advance(state: Any, n: Any) -> Any:
        with sent(signal.SIGINT), sent(signal.SIGINT, 0.5):
            wait(lambda: released.wait(20))

    trainer = trainer_in(tmp_path, [], start=lambda state: advance)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert trainer.checkpoints.latest() == 0 and stopping.busy()


@pytest.mark.parametrize("updates", [2, 1], ids=["before the last update", "in the last update"])
@pytest.mark.parametrize("number", ALL)
def test_a_program_that_trains_does_not_go_on(
    number: signal.Signals, updates: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would use the run as if it were trained, or train the next one."""
    idle = trained.idle_program()

    def start(state: Any) -> Any:
        return lambda *given: (signal.raise_signal(number), advance(*given))[1]

    state = idle.init(jax.random.split(jax.random.key(0), 1))
    advance = idle.start(state)
    program = idle._replace(start=start, template=lambda: state)
    monkeypatch.setattr(Trainer, "_program", lambda self, remake: program)
    flags = {"num_envs": 4, "rollout_length": 12, "steps": updates * 48.0, "devices": 1, "eval_episodes": 0}
    folder = tmp_path / "run"
    for train in (
        lambda: shoal.train("mappo", "toys:busy", folder=folder, progress=False, **flags),
        lambda: shoal.resume(folder, progress=False, steps=(updates + 1) * 48.0),
        lambda: shoal.agent(folder=folder, progress=False).train(updates * 48),
    ):
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as caught:
            train()
        if number == signal.SIGINT:
            assert str(caught.value).startswith("Stopped at step ")
        else:
            assert isinstance(caught.value, SystemExit) and caught.value.code == 128 + number
    assert Checkpoints(folder / "checkpoints").latest() == 3


COMPILES = """
import sys, time
from shoal import cli
from shoal.training import trainer
from shoal.training.stopping import wait

def compile_program(*args):
    made = program(*args)
    def start(state):
        print("compiling", flush=True)
        wait(lambda: time.sleep(600))
    return made._replace(start=start, ahead=None)

program, trainer.compile_program = trainer.compile_program, compile_program
sys.exit(cli.main())
"""


WORDS = ["--num-envs", "2", "--rollout-length", "8", "--minibatches", "2", "--hidden", "8", "--devices", "1"]


@contextmanager
def started(script: str, folder: Path, *words: str, **streams: Any) -> Iterator[subprocess.Popen]:
    """A process that trains, and that is killed where it hangs.

    It hears SIGINT and SIGHUP also where the process of the tests was started with ``nohup`` or by ``&`` in a script,
    which makes what it starts ignore them.
    """
    hears = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    hears += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", hears + script, "train", "mappo", "mpe/simple_spread", "--folder", str(folder)]
    environment = os.environ | trained.cache_environment()
    with subprocess.Popen([*command, *WORDS, *words], env=environment, text=True, **streams) as process:
        timer = threading.Timer(40, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


def test_the_program_ends_while_it_compiles(tmp_path: Path) -> None:
    """At once, although the compilation still runs; and the lock goes with it."""
    folder = tmp_path / "run"
    with started(COMPILES, folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == "compiling\n", process.communicate()[1]
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        said = process.communicate()[1]
    assert time.monotonic() - began < 10 and process.returncode == 130
    assert "Stopping before training begins; --resume starts the run.\n" in said
    assert "Traceback" not in said
    assert said.endswith(f"Stopped; continue with\nshoal train --resume {folder}\n")
    assert Checkpoints(folder / "checkpoints").latest() == 0
    with hold(folder):
        pass


def test_a_closed_terminal_saves_the_run(tmp_path: Path) -> None:
    """With its standard error gone, to which the run would say so."""
    reads, writes = os.pipe()
    script = "import sys\nfrom shoal import cli\nsys.exit(cli.main())"
    words = ["--steps", "1e8", "--checkpoint-seconds", "3600", "--rows", "1000000"]
    with started(script, tmp_path / "run", *words, stdout=writes, stderr=writes) as process:
        os.close(writes)
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            assert process.poll() is None, os.read(reads, 100_000).decode()
            time.sleep(0.05)
        os.close(reads)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        process.wait()
    assert process.returncode == 130
    assert (Checkpoints(tmp_path / "run" / "checkpoints").latest() or 0) > 0
