"""Policy folders: what acting needs of a run, with a card; and the zoo, those that come with Shoal (docs/zoo.md).

A policy folder is a run folder that holds only ``run.json``, ``policy/``, ``opponents/`` where the run has them, and
``evaluation.json``. Its card names the command that trains the run again, the licence, and the digest of every file.
``zoo/NAME`` is the name of one that comes with Shoal wherever a run's folder is expected.
"""

from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import InputError, shortened, unknown
from shoal.security import reading
from shoal.storage import folders, manifest
from shoal.system import shipped
from shoal.system.files import dumps, file_digests, write_text

ZOO = "zoo"
"""First part of the names of the policies that come with Shoal."""
CARD_FILE = "card.json"
CARD_FORMAT = 1
MAX_CARD_BYTES = reading.MIB
"""Largest size in bytes of a card."""


class Card(NamedTuple):
    """What a policy folder says of itself beside ``run.json`` and ``evaluation.json``."""

    command: str
    """Trains the run again."""
    licence: str
    """Of the policies, as an SPDX identifier."""
    files: dict[str, str]
    """The SHA-256 of every other file, by its path in the folder."""


def write_card(folder: Path, command: str, licence: str) -> None:
    """Write the card of a folder whose other files are complete.

    Raises:
        WriteError: it cannot be written.
    """
    entries = Card(command, licence, file_digests(folder, but=CARD_FILE))
    text = dumps({"format": CARD_FORMAT} | entries._asdict(), "card", indent=1)
    write_text(folder / CARD_FILE, text + "\n")


def read_card(folder: Path) -> Card:
    """The card of a policy folder.

    Raises:
        InputError: there is none, or it is damaged.
    """
    where = f"{CARD_FILE} in {str(folder)!r}"
    try:
        found = reading.parse_json(reading.read_bytes(folder / CARD_FILE, MAX_CARD_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"There is no {CARD_FILE} in {str(folder)!r}, so it is not a policy folder.") from None
    except reading.ReadingError as error:
        raise InputError(f"{where} {error}.") from None
    if not isinstance(found, dict) or set(found) != {"format", *Card._fields} or found["format"] != CARD_FORMAT:
        raise InputError(f"{where} is not a card of format {CARD_FORMAT}.")
    card = Card(found["command"], found["licence"], found["files"])
    texts: list[Any] = [card.command, card.licence]
    texts += [*card.files, *card.files.values()] if isinstance(card.files, dict) else [None]
    if wrong := [text for text in texts if not isinstance(text, str) or not text.isprintable()]:
        raise InputError(f"{where} has {shortened(wrong[0])} in the place of printable text.")
    return card


def check_files(folder: Path) -> Card:
    """Compare the files of a policy folder with the digests on its card, which is returned.

    Raises:
        InputError: the card is damaged, or a file is missing, differs or is not on the card; the message names it.
    """
    card = read_card(folder)
    try:
        found = file_digests(folder, but=CARD_FILE)
    except OSError as error:
        raise InputError(f"{folder} is damaged: {error}.") from None
    for name in sorted(card.files | found):
        if found.get(name) != card.files.get(name):
            what = "is missing" if name not in found else "is not on the card" if name not in card.files else "differs"
            raise InputError(f"{folder} is damaged: {name} {what} ({CARD_FILE}); get the folder again.")
    return card


def is_policy_folder(folder: Path) -> bool:
    """Whether a folder has a card, with the digests of all its files, so that none may be added."""
    return (folder / CARD_FILE).is_file()


def names() -> list[str]:
    """The names of the zoo's policies, without ``zoo/``."""
    return sorted(path.parent.name for path in shipped.zoo().glob(f"*/{CARD_FILE}"))


def described(folder: Path) -> str:
    """A policy folder in a few lines: what it plays, its size and score, and how it was trained.

    Raises:
        InputError: a file of it is damaged.
    """
    card, run = check_files(folder), manifest.read_run_json(folder)
    config, made, found = run["config"], run["made_with"], folders.read_evaluation(folder) or {}
    mode = "sampled" if found.get("greedy") is False else "greedy"
    size = sum((folder / name).stat().st_size for name in card.files)
    commit = f", commit {made['commit'][:12]}" if isinstance(made.get("commit"), str) else ""
    lines = [
        f"{config['algorithm']} in {config['environment']}, {found.get('step', 0):,} steps, {size / 1000:.0f} kB",
        *(f"{mode} score {found.get('text', 'unknown')}".split("\n")),
        card.command,
        f"Shoal {made['versions']['shoal']}{commit}, {card.licence}",
    ]
    return "\n".join([shown(folder), *(f"  {x}" for x in lines)])


def shown(folder: Path) -> str:
    """A run's folder for messages: ``zoo/NAME`` for a policy that comes with Shoal, otherwise the path as it is."""
    return name_of(folder) if shipped.in_zoo(folder) else str(folder)


def name_of(folder: Path) -> str:
    """The name of a run's folder, which is ``zoo/NAME`` for a policy that comes with Shoal."""
    return f"{ZOO}/{folder.name}" if shipped.in_zoo(folder) else folder.resolve().name


def located(folder: str | Path) -> Path:
    """The path of a run's folder that a user names: for ``zoo/NAME`` that of a policy that comes with Shoal, whose
    files are compared with its card, and otherwise the path, in which a leading ``~`` is the user's home folder.

    Raises:
        InputError: there is no such policy; it is damaged; or the working directory holds a folder of this name too, so
            that the name has two meanings.
    """
    path = folders.expanded(folder)
    if len(path.parts) != 2 or path.parts[0] != ZOO:
        return path
    name, known = path.parts[1], names()
    if name not in known:
        if path.is_dir():
            return path
        raise unknown(f"policy in the {ZOO} named", name, known)
    own = shipped.zoo() / name
    if path.is_dir() and not path.samefile(own):
        raise InputError(
            f"{path} is a policy that comes with Shoal, and a folder here too: rename the folder, or write its path "
            f"from the root ({path.absolute()})."
        )
    check_files(own)
    return own


def output_of(folder: Path, name: str) -> Path:
    """Where a file about a run is written by default: in its folder, or for a policy of the zoo in the working
    directory, with the policy's name.

    Raises:
        InputError: there is a symbolic link of this name.
    """
    if shipped.in_zoo(folder):
        return reading.own_file(Path(), f"{folder.name}-{name}")
    return reading.own_file(folder, name)


def check_trainable(folder: Path) -> None:
    """Check that a folder is none of policies alone, which cannot be resumed.

    Raises:
        InputError: it is one.
    """
    if is_policy_folder(located(folder)):
        raise InputError(
            f"{folder} has policies without the rest of their training, so it cannot be resumed: start a new run from "
            f"it with --init-from {folder}."
        )
