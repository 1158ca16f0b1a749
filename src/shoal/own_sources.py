"""Digests of the files of the user's own modules, which tell whether one has changed since a run was made."""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shoal import notices, own_modules

_told: set[tuple[str, str, str]] = set()
"""Folder, module and digest of the notices of this process."""


def digests(modules: Iterable[str], *, imported: bool = False) -> dict[str, str]:
    """A digest of each module's file; modules without a file are omitted, and the files that they import do not count.

    Args:
        modules: their names; none of them is imported.
        imported: give the digests that the files had when this process imported them.
    """
    each = {module: own_modules.source(module, imported=imported) for module in modules}
    return {module: digest for module, digest in each.items() if digest is not None}


def with_imports(modules: Iterable[str], folder: str) -> dict[str, str]:
    """Digests of the modules in a folder and of those there that they import, as far as import statements tell.

    Modules elsewhere and installed ones are omitted. Nothing is imported.

    Args:
        modules: their names.
        folder: where they are searched, a folder of ``sys.path``.
    """
    found: dict[str, str] = {}
    seen, left = set(), list(modules)
    while left:
        name = left.pop()
        first = own_modules.top(name)
        if name in seen or first == "shoal" or own_modules.standard(first) or own_modules.installed(first):
            continue
        seen.add(name)
        file, digest = own_modules.file_of(name), own_modules.source(name, imported=True)
        if file is None or digest is None or not file.absolute().is_relative_to(folder):
            continue
        found[name] = digest
        left += _imported_by(file.read_bytes(), name)
        left += [name.rpartition(".")[0]] if "." in name else []
    return found


def _imported_by(text: bytes, name: str) -> list[str]:
    """Names in import statements, of modules or of what is in them; ``name`` is the importing module's."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # it has changed since it was imported
        return []
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            words = name.split(".")
            # A relative import is looked for in the module's package, and in the module itself, if it is a package.
            bases = [words[: len(words) - node.level], words[: len(words) - node.level + 1]] if node.level else [[]]
            for base in bases:
                package = ".".join([*base, *([node.module] if node.module else [])])
                names += [f"{package}.{alias.name}".lstrip(".") for alias in node.names] + [package] * bool(package)
    return names


def tell_of_changes(folder: Path, before: Any, modules: Iterable[str]) -> None:
    """Warn once of each module that has changed since a run was trained, since its parameters may not fit it.

    Compared is the file as this process has imported it, if it has, since that is what the process uses.

    Args:
        folder: the run's.
        before: the digests that its ``run.json`` holds; runs of earlier versions have none.
        modules: the modules that it uses.
    """
    if not isinstance(before, Mapping):
        return
    for module, digest in digests(modules, imported=True).items():
        key = (str(folder), module, digest)
        if before.get(module, digest) != digest and key not in _told:
            _told.add(key)
            notices.warn(
                f"The module {module!r} has changed since {folder} was trained; the run now uses the new version."
            )
