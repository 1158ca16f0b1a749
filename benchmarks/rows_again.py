"""Draws recorded runs of the studies at random, and prints the commands that measure them again with other seeds.

    python benchmarks/rows_again.py --rows 10 --seed 0

Drawn are runs that are recorded and not stale, with more than one seed, neither in matrix games nor of teams that do
not learn. The draw depends on all records, so it repeats only at the same commit.
"""

import argparse
import random
import shlex
from pathlib import Path

from shoal.studies.combinations import axes_of
from shoal.studies.keys import label
from shoal.studies.plan import Cell, plan
from shoal.studies.record import Record
from shoal.studies.state import recorded_in, records_of_cells, silent, stale_records
from shoal.studies.study_file import StudyFile, read_study, shipped
from shoal.studies.tuning.record import winner

SCRIPTS = ("constant", "random", "scripted")
TUNING = range(20_000, 30_000)
"""Seeds of studies on tuning tasks (docs/protocol.md), which keep among these."""


def recorded(study: StudyFile) -> list[tuple[Cell, Record, str]]:
    """The runs of a study that may be drawn, with their records and commands."""
    where = recorded_in(study, None)
    cells = plan(study, Path(), winner(study, where))
    records = records_of_cells(where, cells, silent)
    stale = stale_records(cells, records)
    several = [axis for axis, known in axes_of([cell.values for cell in cells]).items() if len(known) > 1]
    found = []
    for cell in cells:
        record = records.get(cell.name)
        if record is None or cell.name in stale or record.seeds < 2 or cell.algorithm in SCRIPTS:
            continue
        if not cell.environment.startswith("matrix/"):
            chosen = " ".join(shlex.quote(f"{axis}={label(cell.values[axis])}") for axis in several)
            seed = " --seed 20100" if record.run["settings"]["seed"] in TUNING else ""
            only = f" --only {chosen}" if chosen else ""
            found.append((cell, record, f"shoal study {study.name} --again{seed}{only}"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10, help="number of runs")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    given = parser.parse_args()
    every = [one for _, path in sorted(shipped().items()) for one in recorded(read_study(path))]
    print(f"{given.rows} of {len(every)} runs")
    for _, record, command in random.Random(given.seed).sample(every, given.rows):
        print(f"{command}    # {record.seconds['training'] / 60:.0f} min in the record")


if __name__ == "__main__":
    main()
