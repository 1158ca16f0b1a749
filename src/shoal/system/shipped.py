"""What comes with Shoal beside its code: pages of ``docs/``, study files and trained policies, in a checkout or
installed."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package ``shoal``."""


def checkout() -> Path | None:
    """The checkout that this package is used from in place; None if it is installed elsewhere."""
    root = PACKAGE.parents[1]
    return root if root / "src" / "shoal" == PACKAGE and (root / "pyproject.toml").is_file() else None


def docs() -> Path:
    """The folder of the documentation's pages; an installed package has them without their pictures."""
    root = checkout()
    return PACKAGE / "docs" if root is None else root / "docs"


def studies() -> Path:
    """The folder of the study files that come with Shoal."""
    root = checkout()
    return PACKAGE / "studies" / "shipped" if root is None else root / "studies"


def zoo() -> Path:
    """The folder of the trained policies that come with Shoal."""
    root = checkout()
    return PACKAGE / "zoo" if root is None else root / "zoo"


def in_zoo(folder: Path) -> bool:
    """Whether a folder is one of :func:`zoo`, in which nothing is written."""
    return folder.resolve().parent == zoo().resolve()


def installed(path: Path) -> bool:
    """Whether a file belongs to the installed package, where nothing is to be written beside it."""
    return checkout() is None and path.resolve().is_relative_to(PACKAGE)


def page(name: str) -> str:
    """Where a page of the documentation is, for a message.

    Args:
        name: the page as in the sources, for example ``docs/tuning.md``.

    Returns:
        Its path, relative to the working directory if it is below that.
    """
    path, here = docs() / name.removeprefix("docs/"), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
