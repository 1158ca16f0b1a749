"""Working directories full of traps: modules with the names of all others, and settings that execute code."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

MARK = "sprung"
"""Name of the file, beside the directory, that holds the names of the traps that were executed."""

_PROGRAM = "import sys; from shoal.cli import main; sys.exit(main(sys.argv[1:]))"


def with_traps(folder: Path) -> Path:
    """Fill a new folder with a package for each name of the standard library and of installed packages, and with
    settings of matplotlib that its versions before 3.10.9 execute. Each leaves its name in :data:`MARK`."""
    folder.mkdir()
    mark = folder.parent / MARK
    for name in {*sys.stdlib_module_names, *metadata.packages_distributions()} - {"shoal"}:
        if name.isidentifier():
            (folder / name).mkdir()
            text = f"with open({str(mark)!r}, 'a') as file:\n    file.write({name!r} + ' ')\n"
            (folder / name / "__init__.py").write_text(text, encoding="utf-8")
    cycle = f"cycler('color', [open({str(mark)!r}, 'a').write('matplotlibrc ') and 'r'])"
    (folder / "matplotlibrc").write_text(f"axes.prop_cycle: {cycle}\nfont.size: 77\ntext.usetex: True\n", "utf-8")
    return folder


def sprung(folder: Path) -> str:
    """The names of the traps of :func:`with_traps` that were executed."""
    mark = folder.parent / MARK
    return mark.read_text("utf-8") if mark.exists() else ""


def command(folder: Path, *words: str | Path, program: str = _PROGRAM) -> subprocess.CompletedProcess[str]:
    """The command ``shoal`` with these words, or another program, in a process of its own in ``folder``.

    As where it is installed, its search path has no working directory, and its processes get no help of ours.
    """
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    line = [sys.executable, "-P", "-c", program, *map(str, words)]
    return subprocess.run(line, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
