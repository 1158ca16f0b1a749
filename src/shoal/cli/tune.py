"""The command that searches hyper-parameters."""

import dataclasses
from pathlib import Path

import shoal
from shoal.cli.study import chosen, repeated


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
                only=chosen(self.only),
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
            print(f"results: {shoal.results(self.file, records=self.records)}")
        return 0 if report.ok else 1

    def again(self) -> str:
        """The command that continues the search."""
        return " ".join(repeated("tune", self, Tune.out))
