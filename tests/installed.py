"""What has to work where Shoal is installed and there is no checkout: the command ``shoal`` in a folder of the user's.

``make test-install`` runs this file with the built wheel, in an environment with nothing but what pip installs with it.
"""

import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import shoal
from shoal.system import shipped

SHOAL = Path(sysconfig.get_path("scripts")) / "shoal"
PACKAGE = Path(shoal.__file__).parent
EXAMPLE = re.compile(r"\]\(((?:\.\./)+examples/[^)#]*)\)")
SMALL = "--num-envs 4 --rollout-length 25 --minibatches 1 --epochs 1 --hidden 8 --eval-episodes 4 --no-progress"


def command(folder: Path, words: str, code: int = 0) -> str:
    """What a command prints in ``folder``."""
    done = subprocess.run([SHOAL, *words.split()], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == code and "Traceback" not in done.stderr, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def check_package() -> None:
    """The distribution's name, and the files beside the code."""
    assert shipped.checkout() is None and PACKAGE.is_relative_to(sysconfig.get_path("purelib")), PACKAGE
    assert importlib.metadata.version("shoal-marl") == shoal.__version__
    assert (PACKAGE / "py.typed").is_file() and (PACKAGE / "studies" / "shipped" / "two_step.toml").is_file()
    named = {
        name for path in PACKAGE.rglob("*.py") for name in re.findall(r"docs/([\w/-]+\.md)", path.read_text("utf-8"))
    }
    missing = [name for name in sorted(named) if not (PACKAGE / "docs" / name).is_file()]
    assert len(named) > 20 and not missing, missing
    pages = {page: page.read_text("utf-8") for page in (PACKAGE / "docs").rglob("*.md")}
    linked = {(page.parent / link).resolve() for page in pages for link in EXAMPLE.findall(pages[page])}
    assert len(linked) > 10 and all(path.exists() for path in linked), linked


def check_run(folder: Path) -> None:
    """A run, from training to its report."""
    command(folder, f"train mappo mpe/simple_spread --steps 400 --seeds 2 --folder run {SMALL}")
    assert {"curves.png", "replay.gif", "report.html"} <= {path.name for path in (folder / "run").iterdir()}
    assert "seed 1: " in command(folder, "evaluate run --episodes 4")
    command(folder, "report run --out page.html")
    assert (folder / "page.html").stat().st_size


def check_study(folder: Path) -> None:
    """A study that comes with Shoal: its records and results are kept in the working directory."""
    before = sorted(PACKAGE.rglob("*.[!p]*"))  # but compiled modules
    said = command(folder, "study two_step --only algorithm=vdn --no-progress")
    assert "two_step: 1 of 1 runs recorded" in said, said
    page = folder / "studies" / "results" / "two_step.md"
    assert (
        f"results: {page.relative_to(folder)}\n" in said and "two_step.toml, which comes with Shoal" in page.read_text()
    )
    assert len(list((folder / "studies" / "records" / "two_step").iterdir())) == 1
    page.unlink()
    assert command(folder, "results") == f"{page.relative_to(folder)}\n" and page.is_file()
    assert (folder / "runs" / "studies" / "two_step" / "report.html").is_file()
    assert sorted(PACKAGE.rglob("*.[!p]*")) == before
    assert "no study 'two_stepp'" in command(folder, "study two_stepp", 2)


def check_messages(folder: Path) -> None:
    """What a message and the help say about pages is true."""
    named = re.search(r"missing \((\S+tuning\.md)\)", command(folder, "tune two_step --dry-run", 2))
    assert named and Path(named[1]).is_file()
    where = re.search(r"The pages of docs/ are in (\S+)\.\n", command(folder, "train --help"))
    assert where and (Path(where[1]) / "hooks.md").is_file()


def main() -> None:
    """Raise an AssertionError for what does not hold."""
    check_package()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        for name in ("numpy", "json", "shoal", "two_step"):  # that no command executes
            (folder / f"{name}.py").write_text("raise SystemExit('a file of the working directory was executed')\n")
        check_run(folder)
        check_study(folder)
        check_messages(folder)
    print(f"shoal-marl {shoal.__version__}: trained, evaluated, reported and studied by the command in an empty folder")


if __name__ == "__main__":
    sys.exit(main())
