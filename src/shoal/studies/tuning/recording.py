"""The plan of a search as text, and its record when it has ended."""

from typing import Any

from shoal.algorithms import canonical
from shoal.options.flags import flags_of
from shoal.storage import manifest
from shoal.storage.machine_speed import product_rate
from shoal.studies.execution import listed
from shoal.studies.record import rounded
from shoal.studies.tuning.file import Range
from shoal.studies.tuning.methods import Method
from shoal.studies.tuning.record import TuningRecord
from shoal.studies.tuning.search import Search
from shoal.studies.tuning.structures import Instance, Setting, sort
from shoal.system.files import to_json


def plan_of(method: Method, state: Search | None) -> list[str]:
    """Trials, rungs, budget, and traced and structural hyper-parameters; ``state`` is None for a recorded method."""
    tuning, rungs = method.tuning, method.rungs
    per = f"× {tuning.seeds} seeds" + (f" × {len(method.cells)} environments" if len(method.cells) > 1 else "")
    lines = [f"rung {i}: {rung.trials} trials {per} to {rung.steps:,} steps" for i, rung in enumerate(rungs, 1)]
    rounds = f" in {tuning.rounds} rounds" if tuning.rounds > 1 else ""
    played = sum(rung.trials for rung in rungs) * tuning.seeds * tuning.episodes * len(method.cells) * tuning.rounds
    lines.append(f"budget: {method.budget:,} environment steps{rounds}, and {played:,} episodes of evaluation")
    lines.append(f"search: {tuning.search}, seeds {tuning.seed} to {tuning.seed + tuning.seeds - 1}")
    if state is not None:
        structural = [flag for flag in method.ranges if flag not in state.traced]
        lines.append(f"traced (one program): {', '.join(state.traced) or 'nothing'}")
        if structural:
            trials = state.trials or ([] if tuning.search == "optuna" else state.propose())
            count = len(sort(dict(enumerate(trials)), state.traced)) if trials else "several"
            lines.append(f"structural (a program for each combination, {count} here): {', '.join(structural)}")
    return lines


def record_of(state: Search) -> TuningRecord:
    """The record of a finished search.

    Raises:
        NonFiniteError: all trials diverged.
    """
    method, made, reached = state.method, manifest.describe(), state.reached()
    commit: str | None = made["commit"]
    tuning = method.tuning
    names = ("eta", "rounds", "seeds", "seed", "episodes", "evaluation_seed", "draw", "search", "default")
    return TuningRecord(
        study=method.study,
        method={axis: listed(value) for axis, value in method.values.items()},
        runs=[_run_of(setting) for setting in state.settings],
        tuning={name: getattr(tuning, name) for name in names},
        ranges={flag: _range(span, flag in state.traced) for flag, span in method.ranges.items()},
        rungs=[list(rung) for rung in method.rungs],
        budget={"steps": method.budget, "trained": _trained(state), "episodes": _played(state)},
        programs=state.programs,
        trials=[
            {"values": {flag: listed(x) for flag, x in values.items()}, "scores": reached[number]}
            for number, values in enumerate(state.trials)
        ],
        winner=state.winner(),
        versions=made["versions"],
        commit=commit.removesuffix("+") if commit else None,
        changed=bool(commit) and commit.endswith("+"),
        platform=made["platform"],
        hardware=made["hardware"] | {"product_gflops": rounded(product_rate() / 1e9)},
        seconds={name: rounded(value) for name, value in state.seconds.items()},
    )


def _run_of(setting: Setting) -> dict[str, Any]:
    instance = Instance(setting, {})
    return {
        "algorithm": canonical(setting.cell.algorithm),
        "environment": setting.cell.environment,
        "env": {option: listed(value) for option, value in setting.cell.env.items()},
        "settings": to_json(flags_of(instance.settings)),
        "config": to_json(flags_of(instance.config)),
    }


def _range(span: Range, traced: bool) -> dict[str, Any]:
    interval = {"low": None, "high": None} if span.values else {"low": span.low, "high": span.high}
    values = [listed(value) for value in span.values]
    return interval | {"log": span.log, "values": values, "kind": "traced" if traced else "structural"}


def _trained(state: Search) -> int:
    """Environment steps that were done, over all trials, seeds and environments."""
    total = 0
    for setting in state.settings:
        for structure in sort(dict(enumerate(state.trials)), state.traced):
            instance, reached = Instance(setting, structure.fixed), state.reached()
            updates = sum(instance.updates[len(reached[number]) - 1] for number in structure.trials if reached[number])
            total += updates * instance.settings.steps_per_update * state.method.tuning.seeds
    return total


def _played(state: Search) -> int:
    tuning = state.method.tuning
    return sum(len(one) for one in state.reached().values()) * tuning.seeds * tuning.episodes * len(state.settings)
