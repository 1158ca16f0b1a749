"""Requirements of ``Config`` and ``make``: flags that can be saved, errors of one sentence, traced hyper-parameters."""

import dataclasses
import json
import typing
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from shoal import algorithms, bounds
from shoal.checking.contract_acting import error
from shoal.checking.faults import fault_of, own_traceback
from shoal.checking.findings import Finding, listing
from shoal.checking.specimen import ALONE, BOX, DISCRETE, TEAM, Specimen, acting, made, tiny, updating
from shoal.errors import InputError
from shoal.options.flags import check_names, flags_of, override
from shoal.presets import own_presets
from shoal.presets.sizes import sizes_for
from shoal.system.files import to_json
from shoal.training.settings import Settings
from shoal.types import EnvSpec

AT_FIRST = frozenset({"gain", "output_gain", "log_std", "pretrain_rate", "kl_weight"})
"""Shoal's options of initial parameters and of preparation before training, which are read before compilation."""


def config(module: Any) -> Iterator[Finding]:
    """Every field has an annotation of which a flag can be made, and its value survives ``run.json``."""
    default = module.Config()
    try:
        kept = override(default, json.loads(json.dumps(to_json(flags_of(default)))))
    except (InputError, TypeError, ValueError) as problem:
        yield error(
            "Config",
            f"its default values cannot be saved in run.json ({' '.join(str(problem).split())[:120].rstrip('.')}): a "
            f"field is a bool, int, float, str, a Literal, a tuple of one of them, None or another frozen dataclass.",
        )
        return
    if kept != default:
        name = next((name for name, x in flags_of(default).items() if flags_of(kept)[name] != x), "a field")
        yield error("Config", f"{name} has a different value when it is read from run.json; annotate it with its type.")
    plain = (bool, int, float, str, type(None), tuple, typing.Literal)
    for field in dataclasses.fields(module.Config):
        hint = typing.get_type_hints(module.Config)[field.name]
        parts = (
            [typing.get_origin(x) or x for x in typing.get_args(hint) or (hint,)]
            if _union(hint)
            else [typing.get_origin(hint) or hint]
        )
        if not dataclasses.is_dataclass(getattr(default, field.name)) and not all(part in plain for part in parts):
            yield error(
                "Config", f"the field {field.name} of type {hint} cannot be a flag; see docs/your-algorithm.md."
            )


def _union(hint: Any) -> bool:
    return type(None) in typing.get_args(hint) or typing.get_origin(hint) in (typing.Union, type(int | str))


def presets(name: str, module: Any) -> Iterator[Finding]:
    """The presets of a user's module have flags that exist, with valid values.

    Args:
        name: the algorithm's canonical name.
        module: its module.
    """
    if not algorithms.own(name):
        return
    try:
        found = own_presets(name)
    except InputError as problem:
        yield error("PRESETS", str(problem))
        return
    for pattern, flags in found:
        whose = f"the preset of {name} for {pattern}"
        try:
            check_names(flags, Settings(), module.Config(), of=whose)
        except InputError as problem:
            yield error("PRESETS", str(problem))
            continue
        try:
            given = {flag: value for flag, value in flags.items() if flag not in sizes_for(1) or value is not None}
            override(Settings(), given).check()
            bounds.check(override(module.Config(), given))
        except InputError as problem:
            yield error("PRESETS", f"in {whose}, {problem}")


def refusals(module: Any) -> tuple[list[Finding], list[EnvSpec]]:
    """Unsupported teams raise an ``InputError`` of one sentence; returns findings and the supported teams."""
    findings, accepted = [], []
    raised: dict[str, tuple[Exception, list[str]]] = {}
    for spec in (DISCRETE, BOX, TEAM, ALONE):
        try:
            made(module, tiny(module.Config()), spec)
            accepted.append(spec)
        except InputError as problem:
            if "\n" in str(problem) or not str(problem).endswith("."):
                text = f"the message of make's InputError for {spec.name} is not one sentence: {str(problem)!r}."
                findings.append(Finding("warning", "refusals", text))
        except Exception as problem:
            raised.setdefault(own_traceback(problem, package=False), (problem, []))[1].append(spec.name)
    for trace, (problem, teams) in raised.items():
        text = (
            f"make {fault_of(problem).what} for {listing(teams)}: support it, or raise shoal.InputError with "
            f"one sentence that says what the algorithm does not support."
        )
        findings.append(Finding("error", "refusals", text, trace))
    if not accepted:
        findings.append(error("refusals", "make rejects every team: discrete and continuous actions, and one agent."))
    return findings, accepted


def numbers(one: Specimen) -> Iterator[Finding]:
    """Every hyper-parameter of floating-point type may be a traced array, so that tuning is one program."""
    names = [name for name, x in flags_of(one.config).items() if type(x) is float and name not in AT_FIRST]
    if _traces(one, names):
        return
    if fixed := [name for name in names if not _traces(one, [name])]:
        yield Finding(
            "warning",
            "traced numbers",
            f"{', '.join(fixed)} cannot be a traced array, so tuning compiles a program for each value: use Python "
            f"branches only on options, and jnp.where, jnp.maximum and x * (1 / n) for numbers.",
        )


def _traces(one: Specimen, names: list[str]) -> bool:
    def updated(values: dict[str, jax.Array]) -> Any:
        algorithm = made(one.module, override(one.config, values), one.spec)[0]
        learner = algorithm.init(jax.random.key(0))
        traj = acting(algorithm)(learner, one.trajectory)[0]
        return learner, updating(algorithm)(learner, traj, jax.random.key(1))[0]

    flags = flags_of(one.config)
    try:
        before, after = jax.eval_shape(updated, {name: jnp.float32(flags[name]) for name in names})
    except Exception:  # many types: a Python branch on the value, a shape, an option that must be a constant
        return False
    return jax.tree.map(jnp.shape, before) == jax.tree.map(jnp.shape, after)
