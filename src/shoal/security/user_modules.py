"""Search path for modules of the user's own, for example environments, and which modules are installed. No JAX.

The working directory may hold files with the names of libraries, so it is added to ``sys.path`` only when a module of
the user's own is imported, and at its end: worker processes, which have the same path, find the module there, and no
file beside it is imported in the place of a library.
"""

import ast
import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.system import notices

_folders: list[str] | None = None
"""Folders that the command line adds to ``sys.path``; None when Shoal is used as a library."""
_typed: list[str] | None = None
"""The same for names that the user types, whatever :func:`instead` has set."""
_sources: dict[str, tuple[Any, str | None]] = {}
"""The spec of each imported module and the digest that its file had then."""


@contextmanager
def found_in(folder: str) -> Iterator[None]:
    """On the command line: also search ``folder`` (the working directory) for the user's own modules."""
    global _folders, _typed
    before, _folders, _typed = (_folders, _typed), [folder], [folder]
    try:
        yield
    finally:
        _folders, _typed = before


@contextmanager
def searching_working_directory() -> Iterator[None]:
    """Search the working directory for a name that the user types, also after :func:`instead`.

    Then ``sys.path`` is restored, so that a run's environment does not import from there.
    """
    global _folders
    before, path, _folders = _folders, [*sys.path], _typed
    try:
        yield
    finally:
        if before != _folders:
            sys.path[:] = path
        _folders = before


def reachable() -> None:
    """Append the folders to ``sys.path``; called before a module of the user's own is imported."""
    sys.path += [folder for folder in _folders or () if folder not in sys.path]


def instead(folder: str | None) -> None:
    """Search ``folder``, where the module was when the run was trained, instead of the working directory.

    It is searched last, so that no file in it comes before a library's; see also :func:`differs`.
    """
    global _folders
    if _folders is not None:
        _folders = []
    if folder and folder not in sys.path:
        sys.path.append(folder)


def top(module: str) -> str:
    """The first word of a module's name."""
    return module.partition(".")[0]


def places(package: str) -> list[Path] | None:
    """The paths of a package, found without importing it; None if it is missing, an empty list if it is built in."""
    try:
        found = importlib.util.find_spec(package)
    except (ValueError, ImportError):  # a module without spec, created at run time
        return []
    if found is None:
        return None
    if found.has_location and found.origin:
        return [Path(found.origin).absolute()]
    return [Path(place).absolute() for place in found.submodule_search_locations or ()]


def named_rightly(module: str) -> bool:
    """Whether a text is the absolute name of a module: identifiers joined by dots."""
    return all(word.isidentifier() for word in module.split("."))


def is_importable(module: str) -> bool:
    """Whether Python, with the folders of :func:`reachable`, finds a module that is not of its standard library.

    Nothing is imported, also not the packages that ``module`` is in.
    """
    if not named_rightly(module):
        return False
    reachable()
    if standard(top(module)):
        return False
    if module in sys.modules:
        return True
    found = _spec(module)
    return found is not None and found.origin is not None  # a folder without __init__.py has no origin


def _spec(module: str, last: str | None = None) -> ModuleSpec | None:
    """Where Python finds a module, also in the folder ``last``; neither it nor its packages are imported."""
    importlib.invalidate_caches()  # the file may have been written a moment ago
    try:
        found = importlib.util.find_spec(top(module))
        if last is not None and (found is None or found.origin is None):
            found = PathFinder.find_spec(top(module), [last]) or found
        for end in [i for i, letter in enumerate(module + ".") if letter == "."][1:]:
            inside = found.submodule_search_locations if found else None
            found = PathFinder.find_spec(module[:end], inside) if inside is not None else None
    except (ValueError, ImportError):
        return None
    return found


def source(module: str, *, imported: bool = False) -> str | None:
    """A digest of the file that defines a module, without its other files; None if there is no such file.

    Nothing is imported.

    Args:
        module: the module's name.
        imported: give the file's digest when :func:`import_user_object` imported it, which this process uses, if it has
            done so.
    """
    reachable()
    if imported and (kept := _sources.get(module)) and kept[0] is getattr(sys.modules.get(module), "__spec__", None):
        return kept[1]
    return _digest(_spec(module))


def differs(module: str, digest: str, folder: str | None) -> bool:
    """Whether importing a module after :func:`instead` would execute another file than the one with a digest.

    A module that this process has imported already is not executed again, so it does not differ.

    Args:
        module: the module's name.
        digest: see :func:`source`.
        folder: the folder that is searched last.
    """
    return module not in sys.modules and _digest(_spec(module, folder)) != digest


def file_of(module: str) -> Path | None:
    """The file that defines a module; None if there is no such file. Nothing is imported."""
    reachable()
    found = _spec(module)
    return Path(found.origin) if found and found.has_location and found.origin else None


def _digest(found: ModuleSpec | None) -> str | None:
    data = _contents(found)
    return None if data is None else hashlib.sha256(data).hexdigest()[:16]


def _contents(found: ModuleSpec | None) -> bytes | None:
    try:
        return Path(found.origin).read_bytes() if found and found.has_location and found.origin else None
    except OSError:
        return None


def installed(package: str) -> bool:
    """Whether a package is in a folder for installed packages, rather than in another folder on ``sys.path``."""
    folders, found = _installed_in(), places(package)
    return bool(found) and all(any(path.is_relative_to(folder) for folder in folders) for path in found)


def _installed_in() -> list[Path]:
    """The folders for installed packages."""
    roots = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    roots += [site.getusersitepackages(), Path(np.__file__).parents[1]]  # the folder of Shoal's own dependencies
    return [form for root in roots for form in (Path(root).absolute(), Path(root).resolve())]


def standard(package: str) -> bool:
    """Whether a package is in Python's standard library; a file that shadows it is not."""
    if package not in sys.stdlib_module_names:
        return False
    folder = Path(sysconfig.get_path("stdlib"))
    return all(path.resolve().is_relative_to(folder.resolve()) for path in places(package) or ())


def is_imported(module: str) -> bool:
    """Whether this process has imported a module as one of the user's own.

    Python's, Shoal's and installed modules, which Shoal imports for itself, count only if a name that the user gave led
    to them (:func:`import_user_object`).
    """
    if module not in sys.modules:
        return False
    return module in _sources or not (top(module) == "shoal" or standard(top(module)) or installed(top(module)))


def folder_of(module: str) -> str | None:
    """The folder on ``sys.path`` of an imported module; None if it is installed."""
    found = sys.modules.get(top(module))
    if found is None or installed(top(module)) or standard(top(module)):
        return None
    lies = places(top(module)) or []
    if not lies:
        return None
    first = lies[0]
    return str(first.parents[1] if first.name == "__init__.py" else first.parent)


def naming(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a run's options, by their names in ``run.json``, that may name a module: networks and opponents."""
    return {option: value for option, value in options.items() if option.endswith("network") or option == "opponents"}


def named_in(*options: Mapping[str, Any]) -> list[str]:
    """The user's modules that a run's options, by their names in ``run.json``, name as networks or opponents."""
    named = [value for part in options for value in naming(part).values() if isinstance(value, str)]
    return list(dict.fromkeys(value.partition(":")[0] for value in named if ":" in value))


def import_user_object(name: str, kind: str) -> Any:
    """Import what ``module:attribute``, the name of the user's own environment, algorithm or network, refers to.

    Args:
        name: the name.
        kind: ``environment``, ``algorithm`` or ``network``, for messages.

    Raises:
        InputError: there is no such module or attribute, the module belongs to the standard library, or one of the
            working directory has the name of another.
    """
    reachable()
    module = name.partition(":")[0]
    refuse_standard(module, name, kind)
    refuse_hidden(module)
    factory = imported(name, name, kind)
    _sources[module] = getattr(sys.modules[module], "__spec__", None), source(module, imported=True)
    return factory


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Whether a function can be called with so many arguments, as far as it tells."""
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:  # a C function without a signature
        pass
    return True


def defining(made: Any) -> str:
    """The module that defines an object, or the function inside a ``functools.partial``."""
    inner = made.func if isinstance(made, functools.partial) else made
    return getattr(inner, "__module__", None) or type(inner).__module__


def refuse_standard(module: str, name: str, kind: str) -> None:
    """Refuse a name that leads to a module of Python's standard library.

    Raises:
        InputError: it does.
    """
    if standard(top(module)):
        raise InputError(f"{name!r} leads to the module {module!r} of Python's standard library, which has no {kind}s.")


def refuse_hidden(module: str) -> None:
    """Refuse a module that Python does not give, as another one has its name.

    Raises:
        InputError: it is in the working directory, and another is found first; or this process has imported one from
            another folder, as happens if it works in several projects.
    """
    if not named_rightly(module):
        return
    for folder in _folders or ():
        own, found = PathFinder.find_spec(top(module), [folder]), _spec(top(module))
        here, there = (each.origin if each else None for each in (own, found))  # None of a folder without __init__.py
        if here and there and Path(here).resolve() != Path(there).resolve():
            raise InputError(f"{here} and {there} are both the module {top(module)!r}: rename or uninstall one.")
    old, new = getattr(sys.modules.get(module), "__spec__", None), _on_path(module)
    if old is not None and old.has_location and new is not None and new.has_location and old.origin and new.origin:
        same = Path(old.origin).resolve() == Path(new.origin).resolve()
        if not same and _digest(old) != _digest(new):
            raise InputError(
                f"The module {module!r} is now {new.origin}, but this process has imported {old.origin} by that name: "
                f"start another process, or rename one."
            )


def _on_path(module: str) -> ModuleSpec | None:
    """Where Python would find a module on ``sys.path`` if it were not imported yet."""
    importlib.invalidate_caches()
    found, words = PathFinder.find_spec(top(module)), module.split(".")
    for end in range(2, len(words) + 1):
        inside = found.submodule_search_locations if found else None
        found = PathFinder.find_spec(".".join(words[:end]), inside) if inside is not None else None
    return found


def refuse_file(name: str, kind: str) -> None:
    """Refuse the file of a module in place of its name, before the colon if there is one.

    Raises:
        InputError: it is one; the message has the name.
    """
    file, colon, attribute = name.partition(":")
    if file.endswith(".py"):
        right = file.removeprefix("./").removesuffix(".py").replace("/", ".") + colon + attribute
        raise InputError(f"Your own {kind} has the name of its module: {right!r}, not {name!r}.")


def no_module(module: str | None, of: str) -> InputError:
    """That there is no such module, which ``of`` needs, and on the command line where it was looked for."""
    here = "".join(f": neither in {folder} nor among installed packages" for folder in _folders or ())
    return InputError(f"There is no module {module!r}, which {of} needs{here}.")


def imported(path: str, name: str, kind: str) -> Any:
    """Import ``path``, ``package.module:factory``, for the environment or algorithm called ``name``.

    Raises:
        InputError: the module or the attribute is missing, cannot be called, or the module raises, as the message says.
    """
    module_name, _, attribute = path.partition(":")
    refuse_file(path, kind)
    if not named_rightly(module_name):
        raise InputError(f"{name!r} is not of the form 'package.module:factory'.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise no_module(error.name, f"the {kind} {name!r}") from error
    except (InputError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {' '.join(getattr(error, 'msg', str(error)).split())}".rstrip(":. ")
        raise InputError(f"The module {module_name!r} cannot be imported: {said} ({place_of(error)}).") from error
    factory = getattr(module, attribute, None)
    if factory is None:
        near = difflib.get_close_matches(
            attribute, [one for one, value in vars(module).items() if callable(value)], n=1
        )
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise InputError(f"The module {module_name!r} has no attribute {attribute!r}{hint}")
    if not callable(factory):
        article = "an" if kind[0] in "aeiou" else "a"
        raise InputError(f"{name!r} is not callable, so it cannot build {article} {kind}.")
    return factory


def place_of(error: BaseException) -> str:
    """The file and line of the user's own code at which importing a module failed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    others = [*_installed_in(), Path(sysconfig.get_path("stdlib")).resolve(), Path(__file__).resolve().parents[1]]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    files = {frame.filename: Path(frame.filename).resolve() for frame in frames}
    own = [each for each in frames if not any(files[each.filename].is_relative_to(folder) for folder in others)]
    last = (own or frames)[-1]
    return f"{last.filename}, line {last.lineno}"


# Digests of the files of the user's own modules, which tell whether one has changed since a run was made.


_told: set[tuple[str, str, str]] = set()
"""Folder, module and digest of the notices of this process."""


def digests(modules: Iterable[str], *, imported: bool = False) -> dict[str, str]:
    """A digest of each module's file; modules without a file are omitted, and the files that they import do not count.

    Args:
        modules: their names; none of them is imported.
        imported: give the digests that the files had when this process imported them.
    """
    each = {module: source(module, imported=imported) for module in modules}
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
        first = top(name)
        if name in seen or first == "shoal" or standard(first) or installed(first):
            continue
        seen.add(name)
        file, digest = file_of(name), source(name, imported=True)
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
                f"The module {module!r} is not the version with which {folder} was trained; the run now uses "
                f"{file_of(module)}."
            )
