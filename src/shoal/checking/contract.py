"""``check`` of an algorithm: makes it for tiny teams, plays what every algorithm must do, and collects the findings."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shoal import algorithms
from shoal.checking import contract_acting, contract_making, contract_updating
from shoal.checking.faults import fault_of, own_traceback
from shoal.checking.report import Finding, Report, listing, ordered
from shoal.checking.specimen import BOX, made, specimen, tiny
from shoal.configs import flags_of
from shoal.errors import InputError
from shoal.types import EnvSpec

RULES = (*contract_acting.RULES, *contract_updating.RULES, contract_making.numbers)
OTHERS = (contract_acting.form, contract_acting.masks, contract_updating.metrics)
"""Rules for the other kind of actions."""
RECURRENT = (contract_acting.recurrence, contract_updating.metrics)
"""Rules for a recurrent net; it takes most of them from what is shared with a feed-forward net."""
NUMBERS = (contract_updating.dead_agents, contract_updating.nobody)
"""Rules that would blame dead agents for the NaN of an algorithm that gives NaN anyway."""


def check_algorithm(name: str, *, train: bool = True) -> Report:
    """Play an algorithm on noise and say where it does not do what every algorithm must.

    Args:
        name: of an algorithm, as for :func:`shoal.train`.
        train: also train in a game of one step, for information.

    Raises:
        InputError: there is no such algorithm, its module has no sound ``Config``, or it does not learn.
    """
    began = time.monotonic()
    if "+" in name or name in algorithms.SCRIPTED:
        raise InputError(f"shoal check takes one algorithm that learns, not {name!r}.")
    name = algorithms.canonical(name)
    module, shown = algorithms.get(name), name.removesuffix(":make")
    findings, facts = inspected(module)
    findings += contract_making.presets(name, module)
    if train and not any(finding.level == "error" for finding in findings):
        text, notes = _trial(module)
        facts.append(("learned", text))
        findings += notes
    facts.append(("time", f"{time.monotonic() - began:.0f} s"))
    command = f"shoal train {shown} mpe/simple_spread"
    return Report(shown, ordered(findings), tuple(facts), command, f"shoal check {shown}", "these checks")


def inspected(module: Any) -> tuple[list[Finding], list[tuple[str, str]]]:
    """All findings on an algorithm's module, and what was made and played."""
    findings = list(contract_making.config(module))
    refused, accepted = contract_making.refusals(module)
    findings += refused
    played: dict[str, list[Finding]] = {}
    for spec, rules in _plan(accepted):
        played[spec.name] = _played(module, tiny(module.Config()), spec, rules)
    if accepted and "recurrent" in flags_of(module.Config()):
        _recurrent(module, accepted[0], played)
    findings += _once(played)
    return findings, [("accepts", ", ".join(spec.name for spec in accepted)), ("played", ", ".join(played))]


def _once(played: Mapping[str, list[Finding]]) -> list[Finding]:
    """The findings by team, each one time, with the teams unless it is the first only, with which all rules are played.

    Findings are equal if they say the same, or are exceptions of the same lines: their messages may have other shapes.
    """
    where: dict[tuple[str, ...], tuple[Finding, list[str]]] = {}
    for team, findings in played.items():
        for finding in findings:
            same = finding.subject, finding.detail or finding.sentence
            teams = where.setdefault(same, (finding, []))[1]
            teams += [team] if team not in teams else []
    first = next(iter(played), "")
    return [
        finding if teams == [first] else replace(finding, sentence=f"{finding.sentence} Found with {listing(teams)}.")
        for finding, teams in where.values()
    ]


def _plan(accepted: list[EnvSpec]) -> Iterator[tuple[EnvSpec, tuple[Callable, ...]]]:
    """All rules for the first team that it accepts, a few for the other kind of actions."""
    for i, spec in enumerate(accepted):
        if i == 0 or (spec is BOX and accepted[0] is not BOX):
            yield spec, OTHERS if i else RULES


def _recurrent(module: Any, spec: EnvSpec, played: dict[str, list[Finding]]) -> None:
    """Play a recurrent net too, unless the algorithm refuses it."""
    config = tiny(module.Config(), recurrent=4)
    recurrent = replace(spec, name=f"{spec.name}, recurrent")
    try:
        made(module, config, recurrent)
    except InputError:
        return
    except Exception:  # reported with its traceback
        pass
    played["a recurrent net"] = _played(module, config, recurrent, RECURRENT)


def _played(module: Any, config: Any, spec: EnvSpec, rules: tuple[Callable, ...]) -> list[Finding]:
    findings: list[Finding] = []
    try:
        one = specimen(module, config, spec)
    except InputError as error:
        return [Finding("error", "exception", f"acting is refused: {error}")]
    except Exception as error:
        return [_raised("init or act", error)]
    for rule in rules:
        if rule in NUMBERS and any(finding.subject == "finite" for finding in findings):
            continue
        doing = "update" if rule in contract_updating.RULES else "act or update"
        try:
            findings += rule(one)
        except InputError as error:
            findings.append(Finding("error", "exception", f"{doing} is refused: {error}"))
            break
        except Exception as error:
            findings.append(_raised(doing, error))
            break
        if any(finding.level == "error" and finding.subject in ("actions", "types") for finding in findings):
            break  # what follows would fail for the same reason
    return findings


def _raised(doing: str, error: Exception) -> Finding:
    what = fault_of(error).what
    what = what if len(what) <= 300 else f"{what[:297]}..."
    return Finding("error", "exception", f"{doing} {what}.", own_traceback(error, package=False))


def _trial(module: Any) -> tuple[str, list[Finding]]:
    """What was learned in a game of one step, and a note if that is to avoid reward."""
    from shoal.checking import trial

    try:
        found = trial.result(module)
    except Exception as error:
        return f"not in a game of one step: {fault_of(error).what}", []
    note = "after a short training it earns far less than random actions; look for a wrong sign in the loss."
    return str(found), [Finding("note", "learning", note)] if found.worse else []
