"""Writes the results of a study from its records: the page, its figures, and scores for other tools."""

from pathlib import Path

from shoal.statistics import marl_eval as marl_eval_format
from shoal.studies.exchange import to_marl_eval
from shoal.studies.page import draw_figures, page
from shoal.studies.plan import plan
from shoal.studies.stale import former
from shoal.studies.state import recorded, records_folder
from shoal.studies.study_file import found, read
from shoal.studies.trust import check_imports
from shoal.studies.tuning import page as tuning_page
from shoal.studies.tuning.record import winner
from shoal.system.files import make_folder, write_text, written_to


def results(
    file: str | Path,
    *,
    records: str | Path | None = None,
    output: str | Path | None = None,
    marl_eval: str | Path | None = None,
    trust: bool = False,
) -> Path:
    """Write the page of a study's results, only from its file and its records; returns the page's path.

    Values of stale records (:mod:`shoal.studies.stale`) are marked, and replace those of runs that have no other.

    Figures are written to the page's folder.

    Args:
        file: a study file ``*.toml``, or the name of one in ``studies/``.
        records: see :func:`shoal.study`.
        output: the page; by default ``results/STUDY.md`` next to the folder ``records``.
        marl_eval: if given, also write the records to this file in the JSON format of marl-eval.
        trust: import algorithms and environments of the user's own that the file names; not needed if this process
            has imported them or has run the study.

    Raises:
        InputError: the file or a combination in it is invalid, a record is damaged, there is none for ``marl_eval``, or
            the file names a module that is not imported without ``trust``.
        WriteError: the page cannot be written.
    """
    described = read(found(file))
    check_imports(described, trust)
    where = records_folder(described, records)
    cells = plan(described, Path(), winner(described, where))
    default = where.parent.parent / "results" / f"{described.name}.md"
    path, held = written_to(default if output is None else output, default), recorded(where, cells)
    if marl_eval is not None:
        if not held:
            raise described.error("no run is recorded, so no file can be written for marl-eval.")
        make_folder(Path(marl_eval).parent)
        marl_eval_format.write(marl_eval, to_marl_eval(cells, held))
    held |= former(where, cells, held)
    write_text(path, page(described, cells, held, draw_figures(described, cells, held, path.parent)))
    tuning_page.write(described, where, path)
    return path
