"""Training stale runs again in place (``shoal study --renew``): their records and folders are set aside first.

A run without a record is missing, so everything else is as for any missing run: an interruption loses nothing, and
``shoal study`` continues with or without ``--renew``. Until the run is recorded again, the page of results shows the
record that was set aside (:func:`shoal.studies.state.former_records`).
"""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from shoal.errors import WriteError
from shoal.studies.archive import extract
from shoal.studies.plan import Cell
from shoal.studies.separate import SEEDS_FOLDER, seed_cells
from shoal.studies.state import FORMER, stored_records


def set_aside(folder: Path, cells: Sequence[Cell]) -> str:
    """Move the records of ``cells`` to ``folder/former``, and their folders, also those of single seeds, to
    ``NAME.former`` beside them; returns a sentence that says so.

    Args:
        folder: the records of the study.
        cells: runs whose records are stale.

    Raises:
        InputError: another process gathers or extracts the records, or the archive is damaged.
        WriteError: a file or a folder cannot be moved.
    """
    extract(folder)
    every = stored_records(folder / SEEDS_FOLDER, cells) | stored_records(folder, cells)
    try:
        (folder / FORMER).mkdir(exist_ok=True)
        for cell in cells:
            for run in {cell.folder, *(one.folder for one in seed_cells(cell))}:
                if run.exists():
                    run.rename(_free(run.with_name(f"{run.name}.former")))
            if (path := every[cell.name].path).exists():  # a tuned run may be the default, and share its record
                path.rename(_free(folder / FORMER / path.name))
    except OSError as error:
        raise WriteError(f"The record of a stale run cannot be moved to {folder / FORMER}: {error.strerror}.") from None
    runs = "1 stale run is" if len(cells) == 1 else f"{len(cells)} stale runs are"
    return f"{runs} trained again; the former records are in {folder / FORMER}, former run folders end in .former."


def _free(path: Path) -> Path:
    """``path``, or with a number if it is taken."""
    names = (path.with_name(f"{path.stem}-{i}{path.suffix}") for i in count(2))
    return path if not path.exists() else next(one for one in names if not one.exists())
