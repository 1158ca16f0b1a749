"""A process that was forked from one in which JAX runs is told so, where it would wait for ever."""

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import shoal
from shoal.errors import InputError
from shoal.system import forks
from shoal.system.forks import check_not_forked

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system"),
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]


def said_by(function: Any, *given: Any) -> str:
    """What a forked process is told, or nothing."""
    ours, theirs = multiprocessing.Pipe()

    def do() -> None:
        try:
            function(*given)
            theirs.send("")
        except InputError as error:
            theirs.send(str(error))

    process = multiprocessing.get_context("fork").Process(target=do)
    process.start()
    try:
        assert ours.poll(30), "it waits"
        return ours.recv()
    finally:
        process.kill()
        process.join()


def test_a_forked_process_is_told_instead_of_waiting(tmp_path: Path) -> None:
    assert float(jnp.ones(3).sum()) == 3.0
    said = said_by(shoal.train, "mappo", "mpe/simple_spread")
    assert said.startswith("This process was forked from one in which JAX runs") and "spawn" in said
    assert said_by(shoal.load, tmp_path) == said_by(shoal.resume, tmp_path) == said
    check_not_forked()  # this process was not


def test_a_process_forked_before_jax_runs_may_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_forked_from_jax", False)
    monkeypatch.delitem(sys.modules, "jax._src.xla_bridge")
    forks._mark()
    check_not_forked()
