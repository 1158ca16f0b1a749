"""One folder per checkpoint, committed by a rename, each with a SHA-256 per file that tells damage from soundness.

A step is the folder ``<step>`` or ``<step>.<revision>``, made under a hidden name and renamed into place when all of it
is on the disk. Saving a step again adds a revision before the old one goes, so that a crash at any moment leaves a
sound checkpoint.
"""

import json
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

from shoal.errors import CheckpointError
from shoal.notices import Warn
from shoal.records import reading
from shoal.records.files import digests, sync, sync_tree

_NAME = re.compile(r"(\d+)(?:\.(\d+))?")
_HIDDEN = ".unfinished-"
_DIGESTS = "sha256.json"
_MOST = 16 * reading.MIB


def found(folder: Path) -> list[tuple[int, int, Path]]:
    """(step, revision, path) of every committed step, newest first; nothing is verified."""
    paths = folder.iterdir() if folder.is_dir() else ()
    matches = [(match, path) for path in paths if (match := _NAME.fullmatch(path.name))]
    return sorted(((int(match[1]), int(match[2] or 0), path) for match, path in matches), reverse=True)


@contextmanager
def commit(folder: Path, step: int, keep: int):
    """Yield an empty folder to fill; when the block ends it becomes ``step``, on the disk, and old steps go.

    The newest ``keep`` steps up to ``step`` stay. Steps after it are removed: they belong to the branch that was left
    by resuming from an earlier one.

    Raises:
        CheckpointError: the operating system refused, for example because the disk is full.
    """
    work = folder / f"{_HIDDEN}{step}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync(folder.parent)
        for leftover in folder.glob(f"{_HIDDEN}*"):
            shutil.rmtree(leftover)
        work.mkdir()
        yield work
        (work / _DIGESTS).write_text(json.dumps(digests(work), indent=1), encoding="utf-8")
        sync_tree(work)
        before = found(folder)
        revision = 1 + max((revision for other, revision, _ in before if other == step), default=-1)
        work.rename(folder / (f"{step}.{revision}" if revision else f"{step}"))
        sync(folder)
        earlier = sorted({other for other, _, _ in before if other < step}, reverse=True)[: keep - 1]
        for other, _, path in before:
            if other not in earlier:
                gone = path.with_name(_HIDDEN + path.name)
                path.rename(gone)  # so that a half-deleted step never stands under its own name
                shutil.rmtree(gone)
    except OSError as error:
        raise CheckpointError(f"The checkpoint of step {step} cannot be written: {error.strerror or error}.") from error


def newest_sound(folder: Path, step: int | None, warn: Warn) -> Path:
    """The newest step (or exactly ``step``) whose files all have their SHA-256; ``warn`` is told of each damaged one.

    Raises:
        CheckpointError: there is none.
    """
    candidates = [(other, path) for other, _, path in found(folder) if step in (None, other)]
    for other, path in candidates:
        try:
            if reading.parse(reading.read_bytes(path / _DIGESTS, _MOST)) == digests(path, but=_DIGESTS):
                return path
        except (OSError, ValueError):  # a missing file, or text that is not JSON
            pass
        warn(f"The checkpoint of step {other} is damaged and is passed over.")
    which = "There is no checkpoint" if step is None else f"There is no checkpoint of step {step}"
    why = " that is not damaged" if candidates else ""
    raise CheckpointError(f"{which}{why} in the folder {folder.name!r}.")
