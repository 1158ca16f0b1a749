"""The commands of studies: run the missing runs, write the page of results, search hyper-parameters."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import shoal
from shoal.bounds import Bounds
from shoal.cli.output import attempted
from shoal.environments.names import path_words
from shoal.errors import InputError

_CLUSTER = ("workers", "address", "cpus_per_run", "gpus_per_run")


@dataclasses.dataclass
class Study:
    """Run the missing runs of a study, a grid of runs that a file describes, and write its pages of results."""

    file: str
    """A study file *.toml, or the name of one in studies/."""
    dry_run: bool = False
    """Only check the study, and print what is missing and how long it takes."""
    again: bool = False
    """Measure the study again: train all its runs with other seeds, in folders of their own, and write a table of the
    primary metric before and now (docs/study-files.md)."""
    seed: Annotated[int, Bounds(least=0, most=2**31 - 1)] | None = None
    """With --again: the first of the other seeds; None for 100."""
    renew: bool = False
    """Also train the runs again whose records are stale, or whose modules of your own have changed since; the former
    records and folders are kept (docs/study-files.md)."""
    extract: bool = False
    """Only move the records of a finished study from its compressed file to a file for each run, for example to delete
    the record of a run that is to run again."""
    only: tuple[str, ...] = ()
    """Run only the runs with these values of axes, for example algorithm=mappo; several values of one axis are
    alternatives."""
    separate_seeds: bool = False
    """Train each seed of a missing run as a run of its own (docs/study-files.md), which needs the memory of one seed;
    --only seed=1 selects seeds, for example for several processes."""
    out: Path = Path("runs/studies")
    """Folder that contains the study's folder of runs."""
    records: Path | None = None
    """Folder that contains the study's folder of records; None for records/ next to the study file."""
    progress: bool = True
    """Show the progress of the study and of its runs; warnings are always shown."""
    workers: Literal["ray"] | None = None
    """ray executes the runs on a Ray cluster, as many at a time as its resources allow; None: one after the other in
    this process."""
    address: str | None = None
    """Address of the cluster, HOST:PORT; None for RAY_ADDRESS, or a local cluster that is started if that is not
    set."""
    cpus_per_run: Annotated[int, Bounds(least=1, most=65_536)] | None = None
    """CPUs of each run on the cluster; None for all CPUs of its smallest node."""
    gpus_per_run: Annotated[float, Bounds(least=0, most=1024)] = 0.0
    """GPUs of each run on the cluster: a whole number, or a fraction of one."""
    trust: bool = False
    """With --dry-run: import the algorithms and environments of your own that the file names (docs/security.md);
    without it, they are imported to be run."""

    def __call__(self) -> int:
        """Run it, and print what is recorded, what failed, the page of results and the report."""
        from shoal.studies.again import AGAIN_SEED

        paths: dict[str, Any] = {"records": self.records}
        where = {name: getattr(self, name) for name in _CLUSTER}
        if self.seed is not None and not self.again:
            raise InputError("--seed requires --again; seed in [defaults] of the file is that of the study's own runs.")
        if self.extract:
            return self.extracted()
        try:
            report = shoal.study(
                self.file,
                only=chosen_axes(self.only),
                out=self.out,
                dry_run=self.dry_run,
                again=(AGAIN_SEED if self.seed is None else self.seed) if self.again else None,
                renew=self.renew,
                separate_seeds=self.separate_seeds,
                progress=self.progress,
                trust=self.trust,
                **paths,
                **where,
            )
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"{str(stop) or 'Stopped.'} Continue with\n{self.continued()}") from None
        print(report.plan if self.dry_run else report)
        if report.page is not None:
            print(f"comparison: {report.page}")
        elif not self.dry_run:
            print(f"results: {shoal.results(self.file, **paths)}", flush=True)
            print(f"report: {attempted(lambda: shoal.report(self.file, runs=self.out, **paths))}")
        return 0 if report.ok else 1

    def extracted(self) -> int:
        """Move the records to a file for each run, and print the folder."""
        from shoal.studies.archive import extract
        from shoal.studies.state import records_folder
        from shoal.studies.study_file import read_study, study_path

        if self.dry_run or self.again or self.renew or self.only or self.separate_seeds:
            raise InputError(
                "--extract moves all records of a study, without --dry-run, --again, --renew, --only and "
                "--separate-seeds."
            )
        folder = records_folder(read_study(study_path(self.file)), self.records)
        print(f"{extract(folder)} records moved to files in {folder}")
        return 0

    def continued(self) -> str:
        """The command that continues the study."""
        words = repeated("study", self, Study.out)
        words += ["--again"] if self.again else []
        words += [f"--seed {self.seed}"] if self.seed is not None else []
        words += ["--renew"] if self.renew else []
        words += ["--separate-seeds"] if self.separate_seeds else []
        for name in _CLUSTER:
            if value := getattr(self, name):
                words.append(f"--{name.replace('_', '-')} {path_words(str(value))}")
        return " ".join(words)


@dataclasses.dataclass
class Results:
    """Write the pages of results of studies from their records."""

    files: tuple[str, ...] = ()
    """Study files *.toml, or names of studies in studies/; by default all in studies/ that have records."""
    records: Path | None = None
    """Folder that contains each study's folder of records; None for records/ next to the study file."""
    marl_eval: Path | None = None
    """Also write the records of one study to this file, in the JSON format of marl-eval."""
    trust: bool = False
    """Import the algorithms and environments of your own that the files name (docs/security.md)."""

    def __call__(self) -> int:
        """Write them and print their paths."""
        from shoal.studies.study_file import shipped

        files = self.files or tuple(str(path) for path in shipped().values() if _records(path, self.records).is_dir())
        if not files:
            raise InputError("There is no study with records in 'studies'; give a study file *.toml.")
        if self.marl_eval is not None and len(files) > 1:
            raise InputError("--marl-eval writes the records of one study; give its name or file.")
        for file in files:
            print(shoal.results(file, records=self.records, marl_eval=self.marl_eval, trust=self.trust))
        return 0


def repeated(command: str, given: Any, out: Path) -> list[str]:
    """The words of a command on a study file, with the flags that every such command has and that are not defaults.

    Args:
        command: its name.
        given: its values of ``file``, ``only``, ``out`` and ``records``.
        out: the default of ``out``.
    """
    words = [f"shoal {command}", path_words(given.file)]
    words += [f"--only {' '.join(map(path_words, given.only))}"] if given.only else []
    words += [f"--out {path_words(given.out)}"] if given.out != out else []
    words += [f"--records {path_words(given.records)}"] if given.records else []
    return words


def _records(file: Path, records: Path | None) -> Path:
    from shoal.studies.study_file import home

    return (home(file) / "records" if records is None else records) / file.stem


def chosen_axes(only: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The values of axes in words such as ``algorithm=mappo`` and ``gamma=0.9``, as text.

    Raises:
        InputError: a word is not of this form.
    """
    found: dict[str, tuple] = {}
    for word in only:
        axis, equals, text = word.partition("=")
        if not axis or not equals or not text:
            raise InputError(f"--only takes the value of an axis, for example algorithm=mappo, not {word!r}.")
        found[axis] = (*found.get(axis, ()), text)
    return found


# Search of hyper-parameters.


@dataclasses.dataclass
class Tune:
    """Search the hyper-parameters for which a study file gives ranges, with many trials in one compiled program."""

    file: str
    """A study file *.toml with a table [tuning], or the name of one in studies/."""
    dry_run: bool = False
    """Only check the study, and print trials, rungs, the budget, and which hyper-parameters are traced or
    structural."""
    only: tuple[str, ...] = ()
    """Tune only the methods with these values of axes, for example algorithm=qmix; several values of one axis are
    alternatives."""
    out: Path = Path("runs/studies")
    """Folder that contains the study's folder with the states of its searches."""
    records: Path | None = None
    """Folder that contains the study's folder of records; None for records/ next to the study file."""
    progress: bool = True
    """Show the progress of the search; warnings are always shown."""
    trust: bool = False
    """With --dry-run: import the algorithms and environments of your own that the file names (docs/security.md)."""

    def __call__(self) -> int:
        """Search, and print the winners' flags and what failed."""
        try:
            report = shoal.tune(
                self.file,
                only=chosen_axes(self.only),
                out=self.out,
                records=self.records,
                dry_run=self.dry_run,
                progress=self.progress,
                trust=self.trust,
            )
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"{str(stop) or 'Stopped.'} Continue with\n{self.again()}") from None
        print(report.plan if self.dry_run else report)
        if report.ok and not self.dry_run and not self.only:
            from shoal.studies.tuning.page import tuning_page_path  # imports JAX, as the search has

            page = shoal.results(self.file, records=self.records)
            print(f"trials:  {tuning_page_path(page)}\nresults: {page}")
        return 0 if report.ok else 1

    def again(self) -> str:
        """The command that continues the search."""
        return " ".join(repeated("tune", self, Tune.out))
