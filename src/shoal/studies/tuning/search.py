"""The search of one method: rounds of successive halving. The state is stored after every step."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.algorithms import canonical
from shoal.errors import InputError, NonFiniteError
from shoal.options.flags import flags_of
from shoal.runs import behaviour
from shoal.security import reading
from shoal.storage import manifest
from shoal.storage.lock import hold
from shoal.studies.archive import MAX_RECORD_BYTES
from shoal.studies.tuning import proposals
from shoal.studies.tuning.file import Scores, ranked
from shoal.studies.tuning.methods import Method
from shoal.studies.tuning.separate import SeparateRuns
from shoal.studies.tuning.structures import (
    Instance,
    Population,
    Setting,
    Structure,
    Trial,
    TrialScores,
    sorted_by_structure,
)
from shoal.system.files import dumps, from_json, make_folder, to_json, write_text
from shoal.training.stopping import Stop

SEARCH_FILE, STATES = "search.json", "states"


@dataclass
class Search:
    """The state of the search of one method."""

    method: Method
    settings: list[Setting]
    """One for each environment."""
    traced: list[str]
    """Flags that are traced arrays."""
    trials: list[Trial] = field(default_factory=list)
    """The values of all trials so far, round after round."""
    scores: dict[str, TrialScores] = field(default_factory=dict)
    """By ``ROUND/RUNG/ENVIRONMENT`` (numbers from 0), the scores of each trial."""
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.0, "other": 0.0})
    machines: list[dict[str, Any]] = field(default_factory=list)
    """Machines, versions and commits with which it has trained, the first of them first."""
    behaviour: list[dict[str, int]] | None = field(default_factory=list)
    """Of each setting the oldest behaviour versions with which it has trained; None if they are unknown."""

    def trains_here(self) -> None:
        """Note this machine and the versions of what is trained, before anything is."""
        made = manifest.describe_machine()
        here = to_json({name: made[name] for name in manifest.MACHINE})
        now = [versions_of(setting) for setting in self.settings]
        before = now if self.behaviour == [] else self.behaviour or [None] * len(now)
        self.behaviour = [behaviour.oldest(was, is_) for was, is_ in zip(before, now, strict=True)]
        self.machines = [one for one in self.machines if one != here] + [here]

    @property
    def programs(self) -> int:
        """Structures among the trials."""
        return len(sorted_by_structure(dict(enumerate(self.trials)), self.traced))

    def propose(self) -> list[Trial]:
        """The trials of the next round."""
        method, default = self.method, []
        if method.tuning.default and not self.trials:
            default = [self.settings[0].default]
        known, count = self.trials + default, method.trials - len(default)
        if method.tuning.search == "optuna":
            return default + proposals.proposed(method, known, self.reached(), count)
        return default + proposals.drawn(method.ranges, count, method.tuning.draw, known)

    def structures(self, numbers: list[int]) -> list[Structure]:
        """The structures of some trials."""
        return sorted_by_structure({number: self.trials[number] for number in numbers}, self.traced)

    def rung(self, turn: int, rung: int) -> dict[int, list]:
        """The scores of the trials that were evaluated in all environments at a rung of a round."""
        each = [self.scores.get(f"{turn}/{rung}/{e}", {}) for e in range(len(self.settings))]
        return {trial: [found[trial] for found in each] for trial in each[0] if all(trial in x for x in each)}

    def alive(self, turn: int, rung: int) -> list[int]:
        """The trials that train to a rung of a round; after the first rung without those that diverged."""
        count = self.method.trials
        if rung == 0:
            return list(range(turn * count, (turn + 1) * count))
        before = self.rung(turn, rung - 1)
        sound = {trial: found for trial, found in before.items() if None not in found}
        return sorted(ranked(sound)[: self.method.rungs[rung].trials])

    def reached(self) -> dict[int, list[Scores]]:
        """By trial, its scores at each rung that it reached."""
        found: dict[int, list] = {number: [] for number in range(len(self.trials))}
        for turn in range(self.method.tuning.rounds):
            for rung in range(len(self.method.rungs)):
                for trial, scores in self.rung(turn, rung).items():
                    found[trial].append(scores)
        return found

    def winner(self) -> int:
        """The best of the trials that reached the last rung.

        Raises:
            NonFiniteError: all trials diverged.
        """
        last = len(self.method.rungs) - 1
        ends = {t: x for turn in range(self.method.tuning.rounds) for t, x in self.rung(turn, last).items()}
        order = ranked(ends)
        if not order or None in ends[order[0]]:
            raise NonFiniteError(
                f"Every trial of {self.method.title} diverged; lower the learning rates in its ranges."
            )
        return order[0]


def versions_of(setting: Setting) -> dict[str, int]:
    """The behaviour versions of a trial in an environment before values are drawn."""
    instance = Instance(setting, {})
    flags = flags_of(instance.settings) | flags_of(instance.config)
    return behaviour.versions(canonical(setting.cell.algorithm), setting.cell.environment, flags)


def open_search(method: Method, settings: list[Setting], traced: list[str], folder: Path) -> Search:
    """The search that is stored in ``folder``, or a new one.

    Raises:
        InputError: the file of the search is damaged.
    """
    search = Search(method, settings, traced)
    _read(search, folder)
    return search


def _read(search: Search, folder: Path) -> None:
    """Continue from what is stored in ``folder``, if anything is."""
    path = folder / SEARCH_FILE
    try:
        found = from_json(reading.parse_json(reading.read_bytes(path, MAX_RECORD_BYTES)))
        search.scores = {name: {int(t): x for t, x in each.items()} for name, each in found["scores"].items()}
        search.trials = [{flag: _tuple(value) for flag, value in one.items()} for one in found["trials"]]
        search.seconds, search.machines = found["seconds"], found.get("machines", [])
        search.behaviour = found.get("behaviour")  # searches that were begun before this was noted lack it
    except FileNotFoundError:
        return
    except (reading.ReadingError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} cannot be read ({error}); delete its folder to search again.") from None


def complete_search(search: Search, folder: Path, progress: bool, say: Callable[[str], None]) -> bool:
    """Complete a search; returns False if a signal stopped it.

    What another process has stored since the search was opened is read first. After a crash at most the training since
    the last checkpoint is lost (``checkpoint_seconds``).

    Args:
        search: the search.
        folder: where its state is stored.
        progress: show a progress line.
        say: called with sentences to print.

    Raises:
        InputError: trials do not fit in memory, another process searches in the folder, its file is damaged, or the
            disk is full.
        NonFiniteError: all trials diverged.
    """
    with hold(folder):
        _read(search, folder)
        stop = Stop(lambda sentence: say("Stopping after this call; the state is saved."))
        with stop.listening():
            for turn in range(search.method.tuning.rounds):
                if len(search.trials) <= turn * search.method.trials:
                    search.trials += search.propose()
                    _store(search, folder)
                if not search.rung(turn, 0):
                    _check_memory(search, turn, folder)
                for rung in range(len(search.method.rungs)):
                    if not _rung(search, turn, rung, folder, progress, stop, say):
                        return False
        search.winner()
    return True


def _check_memory(search: Search, turn: int, folder: Path) -> None:
    """Check that the trials of each structure of a round fit in memory, before those of any train."""
    for setting in search.settings:
        for structure in search.structures(search.alive(turn, 0)) if not setting.hosted else ():
            instance, traced = Instance(setting, structure.fixed), _traced_of(search, structure)
            Population(instance, traced, folder).check({number: search.trials[number] for number in structure.trials})


def _rung(
    search: Search, turn: int, rung: int, folder: Path, progress: bool, stop: Stop, say: Callable[[str], None]
) -> bool:
    method, alive = search.method, search.alive(turn, rung)
    for e, setting in enumerate(search.settings):
        known = search.scores.setdefault(f"{turn}/{rung}/{e}", {})
        missing = [number for number in alive if number not in known]
        for structure in search.structures(missing):
            place = f"rung {rung + 1} of {len(method.rungs)}" + (
                f", round {turn + 1}" if method.tuning.rounds > 1 else ""
            )
            named, count = f" with {structure.name}" if structure.name else "", len(structure.trials)
            where = "" if "environment" in method.values else f" in {setting.cell.environment}"
            say(f"{method.title}{where}, {place}: {count} trial{'s' if count > 1 else ''}{named}")
            began = time.monotonic()
            search.trains_here()
            _store(search, folder)
            instance = Instance(setting, structure.fixed)
            # Named by the first trial of the whole structure, which does not change when trials are dropped.
            whole = next(one for one in search.structures(search.alive(turn, 0)) if structure.trials[0] in one.trials)
            states = reading.own_file(folder, STATES) / f"{turn}-{e}-{whole.trials[0]}"
            population: SeparateRuns | Population
            if setting.hosted:
                population = SeparateRuns(instance, states)
            else:
                population = Population(instance, _traced_of(search, structure), states)
            values = {number: search.trials[number] for number in structure.trials}
            found = population.rung(rung, values, progress, stop)
            search.seconds["training"] += population.seconds
            search.seconds["other"] += time.monotonic() - began - population.seconds
            known |= found or {}
            _store(search, folder)
            if found is None:
                return False
            _report(found, say)
            if stop.asked:
                return False
    return True


def _traced_of(search: Search, structure: Structure) -> list[str]:
    """Traced flags that the structure's trials have: the default trial lacks flags for all sides."""
    traced = [flag for flag in search.traced if flag not in structure.fixed]
    return [flag for flag in traced if all(flag in search.trials[number] for number in structure.trials)]


def _report(found: TrialScores, say: Callable[[str], None]) -> None:
    means = [sum(one) / len(one) for one in found.values() if one is not None]
    lost = len(found) - len(means)
    text = f"scores {min(means):.4g} to {max(means):.4g}" if means else "no score"
    say(text + (f"; {lost} diverged" if lost else ""))


def _store(search: Search, folder: Path) -> None:
    make_folder(folder)
    found: dict[str, Any] = {"trials": search.trials, "scores": search.scores, "seconds": search.seconds}
    found |= {"machines": search.machines, "behaviour": search.behaviour}
    write_text(folder / SEARCH_FILE, dumps(found, "search", indent=1) + "\n")


def forget_states(folder: Path) -> None:
    """Delete the trained states of a search after its record was written."""
    shutil.rmtree(folder / STATES, ignore_errors=True)


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
