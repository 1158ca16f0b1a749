"""The findings of a check, and their text."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shoal.algorithms import ONE_REWARD
from shoal.spec import Box, EnvSpec

Level = Literal["error", "warning", "note"]
_LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One finding of a check."""

    level: Level
    """``error``: training would be wrong or fail; ``warning``: probably a mistake; ``note``: information."""
    subject: str
    """Topic, for example ``reward``."""
    sentence: str
    detail: str = ""
    """Further lines, for example the environment's traceback."""


@dataclass(frozen=True)
class Report:
    """All findings of a check; ``str()`` gives the text that ``shoal check`` prints."""

    name: str
    """Name of the environment or the algorithm."""
    findings: tuple[Finding, ...]
    """Errors first, then warnings, then notes."""
    facts: tuple[tuple[str, str], ...] = ()
    """Rows (title, text) of the table: the spec, the episodes played, the speed."""
    train: str = ""
    """Command to train in the environment."""
    again: str = ""
    """Command to repeat the check."""
    by: str = "random play"
    """The method of the check, for the text of the report."""

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.count("error")

    def count(self, level: Level) -> int:
        """Number of findings of a level."""
        return sum(finding.level == level for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One line: whether the environment or algorithm is ready for training, and the next command."""
        counts = {level: self.count(level) for level in _LEVELS}
        parts = [f"{n} {level}{'s' * (n != 1)}" for level, n in counts.items() if n]
        if not self.ok:
            return f"NOT READY: {self.name} has {listing(parts)}. Fix the errors, then check again: {self.again}"
        found = f"{self.name} has {listing(parts)}" if parts else f"{self.by} found no problem in {self.name}"
        return f"READY: {found}. Next: {self.train}"

    def __str__(self) -> str:
        """The table, the findings and the verdict."""
        lines = [self.name, ""]
        width = max((len(title) for title, _ in self.facts), default=0)
        lines += [f"{title:<{width}}  {text}" for title, text in self.facts]
        for level in _LEVELS:
            for finding in (f for f in self.findings if f.level == level):
                text = textwrap.fill(f"{finding.subject}: {finding.sentence}", 108, break_on_hyphens=False)
                lines += ["", *textwrap.indent(text, " " * 9).splitlines()]
                lines[-text.count("\n") - 1] = f"{level.upper():<7}  {text.splitlines()[0]}"
                lines += [f"         {line}".rstrip() for line in finding.detail.splitlines()]
        return "\n".join([*lines, "", self.verdict])


def ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings with errors first; warnings and notes with the same subject as an error are left out."""
    wrong = {finding.subject for finding in findings if finding.level == "error"}
    kept = [finding for finding in findings if finding.level == "error" or finding.subject not in wrong]
    return tuple(sorted(kept, key=lambda finding: _LEVELS.index(finding.level)))


def listing(words: Sequence[str]) -> str:
    """Words as a list in a sentence: ``a, b and c``."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def spec_rows(spec: EnvSpec) -> list[tuple[str, str]]:
    """Rows of the table that describe a spec."""
    kind = "a box" if isinstance(spec.action, Box) else "discrete"
    bounds = f" in [{spec.action.low:g}, {spec.action.high:g}]" if isinstance(spec.action, Box) else ""
    unit = "dimensions" if isinstance(spec.action, Box) else "choices"
    shared = "one for the whole team" if spec.shared_reward else "one per agent"
    if spec.num_agents == 1:
        shared = "of the only agent"
    *most, one = ONE_REWARD
    sides = " of a side" if len(spec.competing) > 1 else ""
    unequal = [("", f"{', '.join(most)} and {one} learn from the mean over agents{sides}")]
    return [
        ("agents", f"{spec.num_agents}: {_listed(spec.agents)}"),
        ("roles", _roles(spec)),
        ("observation", f"features: {_runs(spec.feature_dims)}"),
        *([("", _arrays(spec))] if spec.parts is not None else []),
        ("state", f"features: {spec.state_dim}"),
        ("actions", f"{kind}{bounds}, {unit}: {_runs(spec.action_dims)}"),
        ("horizon", f"{spec.horizon} steps"),
        ("reward", f"{shared}; the score is the {spec.score} over agents"),
        *(unequal if spec.num_agents > 1 and not spec.shared_reward else []),
        *([("metrics", ", ".join(spec.metrics))] if spec.metrics else []),
    ]


def _arrays(spec: EnvSpec) -> str:
    """The arrays of an observation, for each agent whose arrays differ from those of the agents before."""
    shown = []
    for own in dict.fromkeys(spec.parts or ()):
        each = [
            f"{part.name + ' ' if part.name else ''}{' × '.join(map(str, part.shape))} {part.dtype}" for part in own
        ]
        shown.append(_listed(tuple(each)))
    return " | ".join(shown[:4]) + (" | …" if len(shown) > 4 else "")


def _listed(words: tuple[str, ...], most: int = 8) -> str:
    return ", ".join(words[:most]) + (f", … {words[-1]}" if len(words) > most else "")


def _roles(spec: EnvSpec) -> str:
    """The groups of agents by role, as text."""
    groups = [[a for a, r in zip(spec.agents, spec.roles, strict=True) if r == k] for k in range(max(spec.roles) + 1)]
    if len(groups) == spec.num_agents > 1:
        return f"{len(groups)}: one per agent"
    return f"{len(groups)}: " + " | ".join(_listed(tuple(group), 4) for group in groups)


def _runs(values: tuple[int, ...]) -> str:
    """One number if it is the same for all agents, else each agent's."""
    if len(set(values)) == 1:
        return str(values[0]) if len(values) == 1 else f"{values[0]} each"
    return _listed(tuple(map(str, values)), 16)
