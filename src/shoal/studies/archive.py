"""The files of a study's records: a JSON file for each run, or one compressed file for all of them.

A run that finishes writes ``records/STUDY/NAME-DIGEST.json``, a file of its own, so that several processes can write at
once and files of several checkouts can be copied into one folder. When all runs of a study are recorded, :func:`gather`
moves the records to ``records/STUDY/records.jsonl.xz``, about a sixth of the bytes: a line of JSON for each run, with
its name as the first key, sorted by name and compressed by xz. A record in a file of its own is newer than the
line of the same run, and is used instead. Archives can be appended to each other; of equal names the last counts.
"""

import contextlib
import json
import lzma
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import FolderTakenError, InputError
from shoal.security import reading
from shoal.storage import lock
from shoal.system.files import from_json, write_bytes, write_text

ARCHIVE_FILE = "records.jsonl.xz"
"""Name of the archive in the folder of a study's records."""
CROSSPLAY_PREFIX, TUNING_PREFIX = "crossplay-", "tuning-"
"""The beginnings of the names of records of games and of searches, with which the name of no run begins."""
MAX_RECORD_BYTES = 2**26
"""Largest size in bytes of a record, and of an archive as it is stored."""
MAX_ARCHIVE = 2**30
"""Largest size in bytes of an archive's text."""
_MEMORY = 2**28
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME}]
_NAME = re.compile(rb'\{"name": ?"([A-Za-z0-9_][A-Za-z0-9_.-]{0,199})", ?"')


class Stored(NamedTuple):
    """A record on the disk, whose contents have not been read."""

    name: str
    """The run's name: ``NAME-DIGEST``."""
    path: Path
    """Its file, or the archive."""
    line: bytes | None = None
    """Its line in the archive; None if it has a file of its own."""

    @property
    def where(self) -> str:
        """The file, and in an archive the name, for messages."""
        return str(self.path) if self.line is None else f"{self.path} ({self.name})"

    @property
    def is_tuning(self) -> bool:
        """Whether the name is that of the record of a search (:mod:`shoal.studies.tuning.record`)."""
        return self.name.startswith(TUNING_PREFIX)

    @property
    def is_crossplay(self) -> bool:
        """Whether the name is that of the record of games (:mod:`shoal.studies.crossplay`)."""
        return self.name.startswith(CROSSPLAY_PREFIX)

    @property
    def is_run(self) -> bool:
        """Whether the name is that of a run's record."""
        return not self.is_tuning and not self.is_crossplay

    def contents(self) -> Any:
        """The record as JSON, also if it was moved to the archive meanwhile (:func:`gather`).

        Raises:
            InputError: it is damaged, or no longer there.
        """
        if self.line is None:
            try:
                return parsed(self.path)
            except InputError:
                moved = None if self.path.exists() else archived(self.path.with_name(ARCHIVE_FILE)).get(self.name)
                if moved is None:
                    raise
                return moved.contents()
        found = from_json(_parsed(self.line, self.where))
        found.pop("name", None)
        return found


def stored(folder: Path) -> dict[str, Stored]:
    """All records of a study by name, in the order of names, also those of tuning, of cross-play and of runs that it no
    longer has.

    Args:
        folder: the folder of the study's records, which may not exist.

    Raises:
        InputError: the archive cannot be decompressed, or a line of it has no name.
    """
    files = {path.stem: Stored(path.stem, path) for path in _files(folder)}  # before the archive: see gather
    lines = archived(folder / ARCHIVE_FILE)
    own = {name: one for name, one in files.items() if name not in lines or one.path.exists()}
    return dict(sorted((lines | own).items()))


def archived(path: Path) -> dict[str, Stored]:
    """The records in an archive by name; none if there is no such file.

    Raises:
        InputError: it cannot be decompressed, or a line of it has no name.
    """
    return {name: Stored(name, path, line) for name, line in _lines(path).items()}


def find(records: Mapping[str, Stored], name: str) -> Stored | None:
    """The record of a run, also if an earlier version of the study's file gave the run another readable name.

    Args:
        records: those of :func:`stored`.
        name: the run's name, which ends in its digest.
    """
    same = [one for one in records.values() if _digest(one.name) == _digest(name)]
    return min(same, key=lambda one: (one.line is not None, one.name != name), default=None)


def parsed(path: Path) -> Any:
    """The contents of the JSON file of one record.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    try:
        return from_json(_parsed(reading.read_bytes(path, MAX_RECORD_BYTES), str(path)))
    except FileNotFoundError:
        raise InputError(f"There is no record {path}.") from None
    except reading.ReadingError as error:
        raise InputError(f"The record {path} {error}.") from None


def gather(folder: Path) -> int:
    """Move all records with a file of their own to the archive; returns their number.

    Files that are damaged or no records remain. The archive is replaced atomically before files are deleted, so an
    interruption loses nothing. Other processes may write records meanwhile; if one gathers, this one moves none. The
    same records give the same archive.

    Args:
        folder: the folder of the study's records.

    Raises:
        InputError: the archive is damaged.
        WriteError: it cannot be written.
    """
    if not _files(folder):
        return 0
    with contextlib.suppress(FolderTakenError), _locked(folder):
        found, before = {}, {}
        for path in _files(folder):
            with contextlib.suppress(InputError, FileNotFoundError, reading.ReadingError):
                before[path] = path.stat()
                record = _parsed(reading.read_bytes(path, MAX_RECORD_BYTES), str(path))
                line = _line(path.stem, record) if isinstance(record, dict) and "format" in record else b""
                if _NAME.match(line):
                    found[path.stem] = line
        replaced = {_digest(name) for name in found}
        kept = {name: line for name, line in _lines(folder / ARCHIVE_FILE).items() if _digest(name) not in replaced}
        if found:
            _write(folder / ARCHIVE_FILE, kept | found)
        for path in (path for path in before if path.stem in found):
            with contextlib.suppress(OSError):
                now = path.stat()
                if (now.st_ino, now.st_mtime_ns) == (before[path].st_ino, before[path].st_mtime_ns):
                    path.unlink()
        return len(found)
    return 0


def extract(folder: Path) -> int:
    """Move all records of the archive to files of their own, and delete the archive; returns their number.

    A record that has a file of its own already is newer, and is kept.

    Raises:
        InputError: the archive is damaged, or another process gathers or extracts the records.
        WriteError: a file cannot be written.
    """
    if not (folder / ARCHIVE_FILE).exists():
        return 0
    with _alone(folder):
        own = {_digest(path.stem) for path in _files(folder)}
        lines = {name: line for name, line in _lines(folder / ARCHIVE_FILE).items() if _digest(name) not in own}
        for name, line in lines.items():
            record = _parsed(line, f"{folder / ARCHIVE_FILE} ({name})")
            record.pop("name")
            write_text(folder / f"{name}.json", json_text(record) + "\n")
        (folder / ARCHIVE_FILE).unlink()
    return len(lines)


def json_text(value: Any, indent: str = "") -> str:
    """JSON with sorted keys, and each list without objects on one line."""
    deeper = indent + " "
    if isinstance(value, dict) and value:
        names = {key: json.dumps(key, ensure_ascii=False) for key in sorted(value)}
        lines = [f"{deeper}{name}: {json_text(value[key], deeper)}" for key, name in names.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(one, list | dict) for one in value):
        return "[\n" + ",\n".join(f"{deeper}{json_text(one, deeper)}" for one in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _files(folder: Path) -> list[Path]:
    """The files of single records, without temporary ones that are being written."""
    return sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of records, whose file is deleted at the end, since the folder is committed.

    Raises:
        FolderTakenError: another process holds it.
    """
    with lock.hold(folder):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                (folder / lock.LOCK_FILE).unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    try:
        with _locked(folder):
            yield
    except FolderTakenError:
        raise InputError(f"Another process moves the records in {folder}; repeat this command later.") from None


def _digest(name: str) -> str:
    """The digest at the end of a run's name."""
    return name.rpartition("-")[2]


def _line(name: str, record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f'{{"name":{json.dumps(name)},{text[1:]}'.encode("ascii")


def _write(path: Path, lines: Mapping[str, bytes]) -> None:
    text = b"".join(lines[name] + b"\n" for name in sorted(lines))
    write_bytes(path, lzma.compress(text, filters=_FILTERS))


def _lines(path: Path) -> dict[str, bytes]:
    """The lines of an archive by name; none if there is no archive."""
    try:
        data = reading.read_bytes(path, MAX_RECORD_BYTES)
    except FileNotFoundError:
        return {}
    except reading.ReadingError as error:
        raise InputError(f"The archive of records {path} {error}.") from None
    lines = {}
    for number, line in enumerate(_decompressed(data, path).splitlines(), 1):
        if not (name := _NAME.match(line)):
            raise InputError(f"The archive of records {path} is damaged: line {number} does not start with a name.")
        lines[name[1].decode("ascii")] = line
    return lines


def _decompressed(data: bytes, path: Path) -> bytes:
    """The text of an archive, also of several that were appended to each other."""
    parts, size = [], 0
    while data:
        decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
        try:
            part = decompressor.decompress(data, max_length=MAX_ARCHIVE - size + 1)
        except lzma.LZMAError:
            raise InputError(f"The archive of records {path} is damaged: it cannot be decompressed.") from None
        size += len(part)
        if size > MAX_ARCHIVE:
            raise InputError(f"The text of the archive of records {path} is larger than {MAX_ARCHIVE // 2**20} MiB.")
        if not decompressor.eof:
            raise InputError(f"The archive of records {path} is damaged: its end is missing.")
        parts.append(part)
        data = decompressor.unused_data
    return b"".join(parts)


def _parsed(data: bytes, where: str) -> Any:
    try:
        return reading.parse_json(data)
    except reading.ReadingError as error:
        raise InputError(f"The record {where} {error}.") from None
