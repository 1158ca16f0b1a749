"""``check`` of an algorithm: builds it for small teams, tests the requirements of every algorithm, reports findings."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shoal import algorithms
from shoal.checking import contract_acting, contract_making, contract_updating
from shoal.checking.faults import fault_of, own_traceback
from shoal.checking.findings import Finding, Report, listing, ordered
from shoal.checking.specimen import BOX, made, specimen, tiny
from shoal.errors import InputError
from shoal.options.flags import flags_of
from shoal.types import EnvSpec

RULES = (*contract_acting.RULES, *contract_updating.RULES, contract_making.numbers)
OTHERS = (contract_acting.form, contract_acting.masks, contract_updating.metrics)
"""Rules for the other kind of actions."""
RECURRENT = (contract_acting.recurrence, contract_updating.metrics)
"""Rules for a recurrent net; the other rules test code that it shares with a feed-forward net."""
NUMBERS = (contract_updating.dead_agents, contract_updating.no_agents_alive)
"""Rules that are skipped if updates give NaN in any case, since the NaN would then not be due to dead agents."""


def check_algorithm(name: str, *, train: bool = True) -> Report:
    """Test an algorithm on random data and report which requirements of an algorithm it violates.

    Args:
        name: the algorithm's name, as for :func:`shoal.train`.
        train: also train briefly in a one-step game, for information.

    Raises:
        InputError: the algorithm does not exist, its module has no valid ``Config``, or it is not trainable.
    """
    began = time.monotonic()
    if "+" in name or name in algorithms.SCRIPTED:
        raise InputError(f"shoal check requires the name of one trainable algorithm, not {name!r}.")
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
    """All findings on an algorithm's module, and rows of the report: the supported teams and the tested ones."""
    findings = list(contract_making.config(module))
    refused, accepted = contract_making.refusals(module)
    findings += refused
    played: dict[str, list[Finding]] = {}
    for spec, rules in _plan(accepted):
        played[spec.name] = _played(module, tiny(module.Config()), spec, rules)
    if accepted and "recurrent" in flags_of(module.Config()):
        _recurrent(module, accepted[0], played)
    findings += _once(played)
    return findings, [("supports", ", ".join(spec.name for spec in accepted)), ("tested", ", ".join(played))]


def _once(played: Mapping[str, list[Finding]]) -> list[Finding]:
    """Merge equal findings of several teams. A finding names its teams, unless it was found only with the first team.

    Findings are equal if they have the same text, or are exceptions raised at the same lines: the messages of these may
    differ in shapes. All rules are tested with the first team.
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
    """All rules for the first supported team, a few for a team with the other kind of actions."""
    for i, spec in enumerate(accepted):
        if i == 0 or (spec is BOX and accepted[0] is not BOX):
            yield spec, OTHERS if i else RULES


def _recurrent(module: Any, spec: EnvSpec, played: dict[str, list[Finding]]) -> None:
    """Also test a recurrent net, unless the algorithm does not support it."""
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
        return [Finding("error", "exception", f"act raises InputError: {error}")]
    except Exception as error:
        return [_raised("init or act", error)]
    for rule in rules:
        if rule in NUMBERS and any(finding.subject == "finite" for finding in findings):
            continue
        doing = "update" if rule in contract_updating.RULES else "act or update"
        try:
            findings += rule(one)
        except InputError as error:
            findings.append(Finding("error", "exception", f"{doing} raises InputError: {error}"))
            break
        except Exception as error:
            findings.append(_raised(doing, error))
            break
        if any(finding.level == "error" and finding.subject in ("actions", "types") for finding in findings):
            break  # the other rules would fail for the same reason
    return findings


def _raised(doing: str, error: Exception) -> Finding:
    what = fault_of(error).what
    what = what if len(what) <= 300 else f"{what[:297]}..."
    return Finding("error", "exception", f"{doing} {what}.", own_traceback(error, package=False))


def _trial(module: Any) -> tuple[str, list[Finding]]:
    """The result of training in a one-step game, and a note if the policy avoids reward."""
    from shoal.checking import trial

    try:
        found = trial.result(module)
    except Exception as error:
        return f"training in a one-step game {fault_of(error).what}", []
    note = "after a short training the policy earns much less reward than random actions; check the signs in the loss."
    return str(found), [Finding("note", "learning", note)] if found.worse else []
