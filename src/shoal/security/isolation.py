"""Keep Python processes and matplotlib from running files of the working directory, and MuJoCo from writing one there.
Imports nothing of Shoal.

A process ``python -c`` searches the working directory for modules before Python's own, unless ``PYTHONSAFEPATH`` is
set; libraries start such processes (glfw, for example, when it is imported). matplotlib reads ``matplotlibrc`` in the
working directory before any other settings, and its versions 3.9.0 to 3.10.8 execute what that file contains. MuJoCo
appends its warnings, such as that a simulation is unstable, to ``MUJOCO_LOG.TXT`` in the working directory.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable of Python: do not search the working directory for modules."""
SETTINGS = "MATPLOTLIBRC"
"""Environment variable of matplotlib: the file of its settings."""
OWN_SETTINGS = Path(__file__).with_name("matplotlibrc")
"""Settings that matplotlib reads if :data:`SETTINGS` does not name an absolute path."""


def child_environment() -> dict[str, str]:
    """Environment variables for a Python process that Shoal starts."""
    return {**os.environ, SAFE_PATH: "1"}


def child_command(module: str, *numbers: int) -> list[str]:
    """The command of a Python process that searches the folders of this one for modules, and calls ``main`` of one of
    them with ``numbers``."""
    program = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    program += f"import {module} as started; started.main(*map(int, sys.argv[1:]))"
    folders = [folder for folder in sys.path if isinstance(folder, str)]  # Python passes over others, such as a Path
    # Without -P the working directory would precede the standard library on the path; without -u what an environment
    # prints before its process crashes or is killed would be lost.
    return [sys.executable, "-P", "-u", "-c", program, json.dumps(folders), *map(str, numbers)]


@contextmanager
def safe_children() -> Iterator[None]:
    """Python processes started in this context, also by libraries, do not search the working directory for modules."""
    with _variable(SAFE_PATH, "1"):
        yield


@contextmanager
def packaged_settings() -> Iterator[None]:
    """matplotlib, if it is imported in this context, does not read a ``matplotlibrc`` in the working directory.

    It reads the file that ``MATPLOTLIBRC`` names by an absolute path, or else :data:`OWN_SETTINGS`.
    """
    exists = os.path.exists
    named = os.environ.get(SETTINGS, "")
    with _variable(SETTINGS, named if Path(named).is_absolute() else str(OWN_SETTINGS)):
        # matplotlib has no option for this: it looks for this name before it reads the variable. Only this name is
        # affected, so that other threads are not.
        os.path.exists = lambda path: path != "matplotlibrc" and exists(path)
        try:
            yield
        finally:
            os.path.exists = exists


class _Finder:
    """Finds matplotlib and MuJoCo, whoever imports them.

    It executes matplotlib with :func:`packaged_settings`, and lets MuJoCo print its warnings and write them to no file.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`."""
        spec = PathFinder.find_spec(name, path, target) if name in ("matplotlib", "mujoco") else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def guarded(module: Any) -> None:
            if name == "mujoco":
                execute(module)
                module.set_mju_user_warning(_print_warning)
                return
            with packaged_settings():
                execute(module)

        spec.loader.exec_module = guarded
        return spec


def _print_warning(message: str) -> None:
    sys.stderr.write(f"MuJoCo warns: {message}\n")


_FINDER = _Finder()


def guard_libraries() -> None:
    """Let every later import of matplotlib in this process ignore a ``matplotlibrc`` in the working directory, and
    MuJoCo write no ``MUJOCO_LOG.TXT`` there."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


@contextmanager
def isolated() -> Iterator[None]:
    """For a process that is Shoal's own: :func:`safe_children` and :func:`guard_libraries`, as long as it lasts."""
    guarded = _FINDER in sys.meta_path
    with safe_children():
        guard_libraries()
        try:
            yield
        finally:
            if not guarded:
                sys.meta_path.remove(_FINDER)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
