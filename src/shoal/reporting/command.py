"""Writes reports; ``shoal report`` and :func:`shoal.report`."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from shoal.environments.names import path_words
from shoal.errors import GameError, InputError
from shoal.plots.texts import estimate_text
from shoal.reporting import page
from shoal.reporting.facts import Facts, facts_of, sentence_without_folders, shown_folder, without_folders
from shoal.reporting.page import Html, Page, html_table, joined_html, tag
from shoal.reporting.replays import Recorded
from shoal.reporting.replays import replays as played
from shoal.reporting.run_page import run_page
from shoal.reporting.studies_page import Studied, studies_page
from shoal.reporting.study_page import study_page
from shoal.runs.api import check_same_environment
from shoal.runs.open import open_run
from shoal.runs.run import Run
from shoal.statistics import interval_text
from shoal.storage import manifest
from shoal.storage.folders import distinct_names
from shoal.storage.manifest import rate_of
from shoal.storage.zoo import located, output_of, shown
from shoal.studies.compare import compare
from shoal.studies.crossplay import crossplays_of
from shoal.studies.levels import levels_of
from shoal.studies.plan import Cell, plan
from shoal.studies.running import OUT
from shoal.studies.state import former_records, recorded_in, records_of_cells
from shoal.studies.study_file import is_study, read_study, shipped, study_path
from shoal.studies.tuning.record import winner
from shoal.studies.user_modules import check_imports
from shoal.system import notices
from shoal.system.files import write_bytes, written_to
from shoal.training.evaluation import check_episodes

REPORT_FILE = "report.html"
MAX_PLAYED_RUNS = 4
"""Largest number of runs of a study whose episodes are played."""
_NOTHING = "No episodes are shown."
_LEFT_OUT = "The page was written without replays."


def report(
    what: Run | str | Path,
    *,
    out: str | Path | None = None,
    against: Run | str | Path | None = None,
    episodes: int = 2,
    replays: bool = True,
    records: str | Path | None = None,
    runs: str | Path = OUT,
    environment: Any = None,
    trust: bool = False,
    recorded: Recorded | None = None,
) -> Path:
    """Write a run, a study or a folder of studies as one HTML file that needs no network; returns its path.

    The file has less than 5 MB (:data:`shoal.reporting.page.MAX_PAGE_BYTES`). The page of a run has its scores, curves,
    configuration and conditions, the commands that reproduce it, and played episodes; that of a study is made from its
    records, with played episodes of at most four runs whose folders exist. The page of a folder of studies has all
    their comparisons with baselines in one table, with filters by algorithm, task and verdict, and what is recorded of
    each study. Equal files give a bit-identical page.

    Args:
        what: a run, its folder, a study file ``*.toml``, the name of a study in ``studies/``, or a folder of such
            files.
        out: the file; by default ``report.html`` in the folder of the run, of the study's runs, or of all
            studies' runs.
        against: another run; its scores, curves and episodes are shown next to those of the run ``what``.
        episodes: number of played episodes per policy.
        replays: play episodes, which requires the environment.
        records: folder of a study's records, see :func:`shoal.study`.
        runs: folder that contains a folder with the study's runs.
        environment: the environment, if the runs were not trained in an environment given by its name.
        trust: see :func:`shoal.open_run`; of a study also that of :func:`shoal.results`.
        recorded: the result of :func:`shoal.reporting.replays.recorded_episodes` for the run ``what``; seeds that it
            lacks are played.

    Raises:
        InputError: ``what`` is neither a run nor a study, a file is damaged, or an argument is invalid.
        WriteError: the file cannot be written.
    """
    try:
        episodes = check_episodes(episodes)
    except InputError as error:
        raise InputError(f"{str(error).rstrip('.')}; use replays=False for a page without replays.") from None
    if out is not None and (Path(out).suffix not in (".html", ".htm") or Path(out).is_dir()):
        raise InputError(f"The name of a report must end in .html, not {str(out)!r}.")
    if isinstance(what, Run) or _is_run(located(what)):
        if records is not None:
            raise InputError("records requires a study; the page of a run is made from its folder.")
        given = [what] if against is None else [what, against]
        return _run(given, out, episodes, replays, environment, trust, recorded or {})
    if against is not None:
        raise InputError("against requires a run; the page of a study has its own comparisons.")
    if str(what) not in shipped() and Path(what).is_dir() and (files := _studies_in(Path(what))):
        return _studies(Path(what), files, out, records, Path(runs), trust)
    return _study(_study_path(what), out, episodes, replays, records, Path(runs), trust)


def _is_run(path: Path) -> bool:
    return (path / manifest.RUN_JSON).exists()


def _studies_in(folder: Path) -> list[Path]:
    """The study files in a folder; a sentence names the TOML files that are none."""
    files = sorted(folder.glob("*.toml"))
    found = [path for path in files if is_study(path)]
    if found and (others := [path.name for path in files if path not in found]):
        notices.warn(f"Left out, since without a question or a grid they are no studies: {', '.join(others)}.")
    return found


def _study_path(what: str | Path) -> Path:
    """The study's file.

    Raises:
        InputError: there is neither a run nor a study of this name.
    """
    if Path(what).suffix == ".toml" or str(what) in shipped():
        return study_path(what)
    if Path(what).is_dir():
        raise InputError(f"There is neither {manifest.RUN_JSON} nor a study file *.toml in {str(what)!r}.")
    raise InputError(f"{str(what)!r} is neither the folder of a run nor a study: a file *.toml, or a name in studies/.")


def _run(
    given: Sequence[Run | str | Path],
    out: str | Path | None,
    episodes: int,
    replays: bool,
    environment: Any,
    trust: bool,
    recorded: Recorded,
) -> Path:
    every = [
        facts_of(one.folder, one, plays=plays)
        if isinstance(one, Run)
        else facts_of(located(one), environment=environment, trust=trust, plays=plays)
        for one, plays in zip(given, (replays, False), strict=False)
    ]
    if len(every) > 1:
        _check_comparable(*every)
    path = output_of(every[0].folder, REPORT_FILE) if out is None else written_to(out, Path())
    runs = list(zip(_labels(every), every, strict=True))
    rates = [rate_of(facts.folder, facts.made.get("hardware")) for facts in every]
    comparison = _comparison(runs) if len(runs) > 1 else None
    opened = [(label, facts.run) for label, facts in runs if facts.run is not None]

    def made(notes: Sequence[str]) -> Page:
        return run_page(runs, rates, comparison, notes)

    said = _LEFT_OUT if not replays else ""
    return _write(path, made, opened if replays else [], episodes, said, {runs[0][0]: recorded})


def _check_comparable(one: Facts, other: Facts) -> None:
    """Check that two runs have the same environment, if both can be opened.

    Raises:
        InputError: their environments differ.
    """
    if one.run is not None and other.run is not None:
        check_same_environment(one.run, other.run)
    elif one.entries["environment"] != other.entries["environment"]:
        raise InputError(f"{shown(other.folder)} and {shown(one.folder)} were trained in different environments.")


def _study(
    file: Path,
    out: str | Path | None,
    episodes: int,
    replays: bool,
    records: str | Path | None,
    runs: Path,
    trust: bool,
) -> Path:
    described, cells, held = _studied(file, records, runs, trust)
    path = written_to(runs / described.name / REPORT_FILE if out is None else out, Path())
    opened = list(islice(_opened(cells, trust), MAX_PLAYED_RUNS)) if replays else []
    kept = sum(_is_run(cell.folder) for cell in cells)
    said = f"The first {len(opened)} of {kept} runs with folders are shown." if kept > len(opened) > 0 else ""
    folder, levels = None if records is None else Path(records), levels_of(described, records, trust=trust)
    games = crossplays_of(described, cells, held, recorded_in(described, records))

    def made(notes: Sequence[str]) -> Page:
        return study_page(described, cells, held, notes if opened else None, folder, levels, games)

    return _write(path, made, opened, episodes, said, {})


def _studied(file: Path, records: str | Path | None, runs: Path, trust: bool) -> Studied:
    """A study with its records."""
    described = read_study(file)
    check_imports(described, trust)
    where = recorded_in(described, records)
    cells = plan(described, runs, winner(described, where))
    held = records_of_cells(where, cells)
    return Studied(described, cells, held | former_records(where, cells, held))


def _studies(
    folder: Path, files: Sequence[Path], out: str | Path | None, records: str | Path | None, runs: Path, trust: bool
) -> Path:
    path = written_to(runs / REPORT_FILE if out is None else out, Path())
    every = [_studied(file, records, runs, trust) for file in files]
    title = f"Studies in {path_words(without_folders(str(folder)))}"
    write_bytes(path, page.page_bytes(studies_page(every, title), None))
    return path


def _opened(cells: Sequence[Cell], trust: bool) -> Any:
    """The runs of a study whose folders exist and can be opened, with their names."""
    for cell in cells:
        if _is_run(cell.folder):
            try:
                yield cell.title, open_run(cell.folder, trust=trust)
            except InputError:
                continue


def _write(
    path: Path,
    made: Callable[[Sequence[str]], Page],
    runs: Sequence[tuple[str, Run]],
    episodes: int,
    said: str,
    recorded: Mapping[str, Recorded],
) -> Path:
    """Play episodes, reduce them to the size that the page leaves, and write the page.

    Args:
        path: the file.
        made: (sentences about the replays) -> the page.
        runs: runs to play, with their labels.
        episodes: number of episodes per policy.
        said: a sentence about the replays; may be empty.
        recorded: episodes that were played already, by label.
    """
    document, notes = None, [said] if said else []
    if runs:
        acting = _acting(runs)
        room = page.budget(made([*notes, acting, _NOTHING]))
        try:
            document = played(runs, episodes=episodes, budget=room, recorded=recorded)
            if document is not None and page.replays_size(document) > room:
                document, notes = None, [*notes, "The page has no replays, since they would exceed its size limit."]
            elif document is not None and document.get("runs"):
                notes.append(acting)
        except (InputError, GameError) as error:
            notes.append(sentence_without_folders(f"The episodes cannot be played: {error}"))
    if document is None and not notes:
        notes.append(_NOTHING)
    write_bytes(path, page.page_bytes(made(notes), document))
    return path


def _acting(runs: Sequence[tuple[str, Run]]) -> str:
    """How the policies of replays act."""
    modes = {label: "greedy" if run.acts_greedily else "sampled" for label, run in runs}
    if len(set(modes.values())) == 1:
        return f"Actions are {next(iter(modes.values()))}."
    return f"Actions are {', '.join(f'{mode} in {label}' for label, mode in modes.items())}."


def _labels(every: Sequence[Facts]) -> list[str]:
    """The names of runs on the page: their algorithms if these differ, otherwise their folders, as far as the page
    shows them."""
    algorithms = [facts.entries["algorithm"] for facts in every]
    if len(set(algorithms)) == len(every):
        return algorithms
    folders = [Path(shown_folder(facts)) for facts in every]
    return distinct_names(
        [path if path.name not in ("", "..") else Path(facts.name) for path, facts in zip(folders, every, strict=True)]
    )


def _comparison(runs: Sequence[tuple[str, Facts]]) -> Html | None:
    """The difference of two runs' final scores; None where it is not defined."""
    try:
        result = compare({label: [facts.folder] for label, facts in runs})
    except InputError:
        return None
    rows = [
        {
            "runs": f"{pair.x} − {pair.y}",
            "difference": estimate_text(pair.found.difference),
            "probability": estimate_text(pair.found.improvement),
        }
        for pair in result.pairs
    ]
    counts = sorted({n for method in result.methods.values() for n in method.seeds.values()} - {1}) or [1]
    kinds = " or ".join(dict.fromkeys(map(interval_text, counts)))
    mode = " of greedy actions" if any(facts.other is not None for _, facts in runs) else ""
    caption = (
        f"Difference of the final scores{mode} [{kinds}], and probability that a seed of the first run scores higher "
        "than one of the second [95% interval]"
    )
    known = all(math.isfinite(pair.found.difference[1]) for pair in result.pairs)
    said = None if known else tag("p", "A run has one seed, so there is no interval.", class_="note")
    return joined_html(html_table(rows, caption), said)
