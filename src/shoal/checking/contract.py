"""``check`` of an algorithm: builds it for small teams, tests the requirements of every algorithm, reports findings."""

import dataclasses
import json
import shlex
import tempfile
import time
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal import algorithms, bounds
from shoal.checking.findings import Finding, Report, listing, ordered
from shoal.checking.play import fault_of, own_traceback
from shoal.checking.specimen import (
    ALONE,
    BOX,
    DISCRETE,
    TEAM,
    UPDATES,
    E,
    Specimen,
    compiled_act,
    fast,
    made,
    short_training,
    specimen,
    tiny,
    tree_difference,
    updating,
)
from shoal.equations.reduce import DEVICES
from shoal.errors import InputError, with_full_stop
from shoal.options.flags import check_fields, check_names, flags_of, override
from shoal.presets import own_presets, sizes_for
from shoal.storage.checkpoint import Checkpoints
from shoal.system.files import to_json
from shoal.system.shipped import page
from shoal.training.settings import Settings
from shoal.training.sharding import plan_layout
from shoal.types import Box, EnvSpec, Learner, Scale, Step, Trajectory

# Requirements of ``Config`` and ``make``: flags that can be saved, errors of one sentence, traced hyper-parameters.


NO_FLAGS: Mapping[str, Any] = MappingProxyType({})
AT_FIRST = frozenset({"gain", "output_gain", "log_std", "pretrain_rate", "kl_weight"})
"""Shoal's options of initial parameters and of preparation before training, which are read before compilation."""


def saved_config(module: Any) -> Iterator[Finding]:
    """Every field has a flag of its own and a type of which one can be made, and its value survives ``run.json``."""
    default = module.Config()
    try:
        check_fields(module.Config.__module__, default, Settings())
    except InputError as problem:
        yield contract_error("Config", str(problem))
    try:
        kept = override(default, json.loads(json.dumps(to_json(flags_of(default)))))
    except (InputError, TypeError, ValueError) as problem:
        yield contract_error(
            "Config",
            f"its default values cannot be saved in run.json ({' '.join(str(problem).split())[:120].rstrip('.')}): a "
            f"field is a bool, int, float, str, a Literal, a tuple of one of them, None or another frozen dataclass.",
        )
        return
    if kept != default:
        name = next((name for name, x in flags_of(default).items() if flags_of(kept)[name] != x), "a field")
        yield contract_error(
            "Config", f"{name} has a different value when it is read from run.json; annotate it with its type."
        )
    plain = (bool, int, float, str, type(None), tuple, typing.Literal)
    for field in dataclasses.fields(module.Config):
        hint = typing.get_type_hints(module.Config)[field.name]
        parts = (
            [typing.get_origin(x) or x for x in typing.get_args(hint) or (hint,)]
            if _union(hint)
            else [typing.get_origin(hint) or hint]
        )
        if not dataclasses.is_dataclass(getattr(default, field.name)) and not all(part in plain for part in parts):
            yield contract_error(
                "Config",
                f"the field {field.name} of type {hint} cannot be a flag; see {page('docs/your-algorithm.md')}.",
            )


def _union(hint: Any) -> bool:
    return type(None) in typing.get_args(hint) or typing.get_origin(hint) in (typing.Union, type(int | str))


def valid_presets(name: str, module: Any) -> Iterator[Finding]:
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
        yield contract_error("PRESETS", str(problem))
        return
    for pattern, flags in found:
        whose = f"the preset of {name} for {pattern}"
        try:
            check_names(flags, Settings(), module.Config(), of=whose)
        except InputError as problem:
            yield contract_error("PRESETS", str(problem))
            continue
        try:
            given = {flag: value for flag, value in flags.items() if flag not in sizes_for(1) or value is not None}
            override(Settings(), given).check()
            bounds.check_bounds(override(module.Config(), given))
        except InputError as problem:
            yield contract_error("PRESETS", f"in {whose}, {problem}")


def refusals(module: Any, flags: Mapping[str, Any] = NO_FLAGS) -> tuple[list[Finding], list[EnvSpec]]:
    """Unsupported teams raise an ``InputError`` of one sentence; returns findings and the supported teams."""
    findings, accepted, rejected = [], [], dict[str, None]()
    raised: dict[str, tuple[Exception, list[str]]] = {}
    for spec in (DISCRETE, BOX, TEAM, ALONE):
        try:
            made(module, tiny(module.Config(), **flags), spec)
            accepted.append(spec)
        except InputError as problem:
            rejected[" ".join(str(problem).split())] = None
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
        teams = "of discrete and of continuous actions, and of one agent"
        findings.append(contract_error("refusals", f"make rejects every team, {teams}: {' '.join(rejected)}"))
    return findings, accepted


def traced_numbers(one: Specimen) -> Iterator[Finding]:
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
        traj = compiled_act(algorithm)(learner, one.trajectory)[0]
        return learner, updating(algorithm)(learner, traj, jax.random.key(1))[0]

    flags = flags_of(one.config)
    try:
        before, after = jax.eval_shape(updated, {name: jnp.float32(flags[name]) for name in names})
    except Exception:  # many types: a Python branch on the value, a shape, an option that must be a constant
        return False
    return jax.tree.map(jnp.shape, before) == jax.tree.map(jnp.shape, after)


# Requirements of ``act``: legal actions, no effect of dead agents' observations, and no use of the critic.


def contract_error(subject: str, sentence: str) -> Finding:
    """A finding that makes the check fail."""
    return Finding("error", subject, sentence)


def action_form(one: Specimen) -> Iterator[Finding]:
    """Actions have the shape and the type that rollouts expect."""
    box, n = isinstance(one.spec.action, Box), one.spec.num_agents
    shape = (one.length, E, n, one.spec.action.width) if box else (one.length, E, n)
    action = one.trajectory.action
    if action.shape != shape or (action.dtype.kind == "f") != box:
        wanted = f"{'float32' if box else 'int32'}[{', '.join(map(str, shape[1:]))}]"
        text = f"{action.dtype.name}[{', '.join(map(str, action.shape[1:]))}]"
        yield contract_error(
            "actions", f"act returns an action {text}; for {one.spec.name} it must be {wanted}, [E, N ...]."
        )


def extras_form(one: Specimen) -> Iterator[Finding]:
    """Extras are arrays by name whose first axis is that of the environments, which rollouts divide over devices."""
    extras: Any = one.trajectory.extras
    if not isinstance(extras, dict) or not all(isinstance(x, jax.Array) for x in extras.values()):
        yield contract_error(
            "extras", "act must return its extras as a flat dict from names to arrays [E ...], {} for none."
        )
        return
    for name, x in extras.items():
        if x.shape[1:2] != (E,):
            yield contract_error(
                "extras",
                f"act returns the extra {name!r} with the shape {x.shape[1:]}: the first axis of every extra must be "
                f"that of the environments, which has the length {E} here.",
            )
            return


def action_masks(one: Specimen) -> Iterator[Finding]:
    """Sampled and greedy actions are legal; padded dimensions of a continuous action are 0."""
    for how, traj in (("sampled", one.trajectory), ("greedy", one.greedy)):
        legal, action = np.asarray(traj.step.legal), np.asarray(traj.action)
        alive = np.asarray(traj.step.alive)
        if isinstance(one.spec.action, Box):
            if (action[~legal] != 0).any():
                yield contract_error(
                    "masks",
                    f"{how} actions are not 0 in dimensions that an agent does not have: multiply by step.legal, or "
                    f"sample with shoal.equations.distributions.",
                )
            continue
        inside = (action >= 0) & (action < legal.shape[-1])
        chosen = np.take_along_axis(legal, np.clip(action, 0, legal.shape[-1] - 1)[..., None], -1)[..., 0] & inside
        if not chosen[alive].all():
            share = 1.0 - chosen[alive].mean()
            yield contract_error(
                "masks",
                f"{share:.0%} of the {how} actions of living agents are illegal or out of range: act must read "
                f"step.legal, which is also False for actions that an agent with fewer actions does not have.",
            )


def dead_agents_in_act(one: Specimen) -> Iterator[Finding]:
    """Observations of dead agents, even NaN, do not affect the actions of living agents."""
    traj = one.trajectory
    spoiled = traj._replace(step=blinded(traj.step, jnp.nan))
    alive = np.asarray(traj.step.alive)
    for how, before, after in zip(
        ("sampled", "greedy"), (one.trajectory, one.greedy), one.acts(one.learner, spoiled), strict=True
    ):
        same = np.asarray(before.action) == np.asarray(after.action)
        same = np.asarray(same.all(-1) if same.ndim > alive.ndim else same)
        extras = {name: x for name, x in after.extras.items() if x.shape[:3] == alive.shape}
        broken = [name for name, x in extras.items() if np.isnan(np.asarray(x, np.float32)[alive]).any()]
        if not same[alive].all() or broken:
            what = "actions" if not same[alive].all() else f"the extras {broken[0]!r}"
            yield contract_error(
                "dead agents",
                f"{how} {what} of living agents change if dead agents observe NaN: replace a dead agent's input by 0 "
                f"with jnp.where(alive, x, 0), since 0 times NaN is NaN.",
            )
            return


def blinded(step: Any, value: float) -> Any:
    """The steps with ``value`` in the observations of dead agents."""
    return step._replace(obs=jnp.where(step.alive[..., None], step.obs, value))


def without_critic(one: Specimen) -> Iterator[Finding]:
    """Greedy actions need only the policy, as in deployment."""
    act = fast(compiled_act(one.algorithm))
    try:
        traj = act(_deployed(one.learner), one.trajectory)[1]
    except Exception as problem:
        yield contract_error(
            "deployment",
            f"act raises {type(problem).__name__} when the learner has only its policy, as shoal.load returns "
            f"it: keep everything that act needs in Learner.policy.",
        )
        return
    if tree_difference(traj.action, one.greedy.action):
        yield contract_error(
            "deployment",
            "greedy actions change when the learner has only its policy: act must read only Learner.policy.",
        )


def _deployed(learner: Learner) -> Learner:
    """The learner with only its policy."""
    return Learner(learner.policy, (), (), (), learner.updates)


def recurrent_state(one: Specimen) -> Iterator[Finding]:
    """The recurrent state is reset where ``step.first`` is True, and has an effect elsewhere."""
    if not jax.tree.leaves(one.trajectory.carry):
        return
    stale = _with_stale_carry(one)
    for before, after in zip((one.trajectory, one.greedy), one.acts(one.learner, stale), strict=True):
        if tree_difference((before.action, before.extras), (after.action, after.extras)):
            yield contract_error(
                "recurrent state",
                "actions at the start of an episode depend on the recurrent state of the previous episode: reset it "
                "where step.first is True, before it is used.",
            )
            return
    key = jax.random.key(3)
    if path := tree_difference(
        one.update(one.learner, one.trajectory._replace(carry=stale.carry), key)[0],
        one.update(one.learner, one.trajectory, key)[0],
    ):
        yield contract_error(
            "recurrent state",
            f"after an update from a rollout that begins with new episodes, {path} depends on the recurrent state "
            f"before the rollout: the update must reset it where step.first is True, as act does.",
        )


def _with_stale_carry(one: Specimen) -> Trajectory:
    """The trajectory, which begins with first steps, with noise in place of its recurrent state."""
    rng = np.random.default_rng(1)

    def fill(x: jax.Array) -> jax.Array:
        return jnp.asarray(rng.normal(size=x.shape), x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return one.trajectory._replace(carry=jax.tree.map(fill, one.trajectory.carry))


ACT_RULES = (action_form, extras_form, action_masks, dead_agents_in_act, without_critic, recurrent_state)


# Requirements of ``update``: stable types, no effect of dead agents, determinism, ``vmap``, and checkpoints.


UPDATE_KEY = jax.random.key(1)


def learner_types(one: Specimen) -> Iterator[Finding]:
    """The learner keeps its structure, shapes and types, as the compiled loop around the update requires."""
    before, (after, _) = (
        jax.eval_shape(lambda: one.learner),
        jax.eval_shape(one.update, one.learner, one.trajectory, UPDATE_KEY),
    )
    if jax.tree.structure(before) != jax.tree.structure(after):
        yield contract_error(
            "types",
            "update returns a learner with a different structure from the one it received: return the same "
            "NamedTuples, dicts and tuples with the same entries.",
        )
        return
    for (path, x), y in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            yield contract_error(
                "types",
                f"update changes {jax.tree_util.keystr(path).lstrip('.')} from {_text(x)} to {_text(y)}: shapes and "
                f"types must not change; use, for example, jnp.asarray(x, jnp.float32) in init and update.",
            )
            return
    if int(one.update(one.learner, one.trajectory, UPDATE_KEY)[0].updates) != 1:
        yield contract_error(
            "types", "Learner.updates is not 1 after the first update: return updates=learner.updates + 1."
        )


def _text(x: Any) -> str:
    return f"{x.dtype.name}[{', '.join(map(str, x.shape))}]"


def update_metrics(one: Specimen) -> Iterator[Finding]:
    """Metrics are scalars by name, and neither they nor the learner become NaN over some updates."""
    learner = one.learner
    for number in range(1, 4):
        learner, found = one.update(learner, one.trajectory, jax.random.key(number))
        if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
            yield contract_error("metrics", "update must return its metrics as a flat dict from names to scalars.")
            return
        for name, x in found.items():
            if jnp.shape(x) != ():
                yield contract_error(
                    "metrics",
                    f"the metric {name!r} has the shape {jnp.shape(x)}: it must be a scalar.",
                )
                return
            if not jnp.isfinite(x):
                yield contract_error(
                    "finite", f"the metric {name!r} is {float(x)} after update {number}; it must stay finite."
                )
                return
        if where := _unsound(learner):
            yield contract_error(
                "finite", f"{where} is NaN or infinite after update {number}; check for 0 / 0 and log 0."
            )
            return
    if not tree_difference(learner.policy, one.learner.policy, 0.0):
        yield Finding("warning", "learning", "three updates do not change Learner.policy.")


def dead_agents_in_update(one: Specimen) -> Iterator[Finding]:
    """Dead agents' observations (NaN), actions, legal actions and extras do not change the update."""
    traj = one.trajectory
    expected = one.update(one.learner, traj, UPDATE_KEY)
    changes = {
        "the observations of dead agents": traj._replace(
            step=blinded(traj.step, jnp.nan), outcome=blinded(traj.outcome, jnp.nan)
        ),
        "the actions of dead agents": traj._replace(action=_others(one, traj)),
        "the legal actions of dead agents": traj._replace(
            step=traj.step._replace(legal=_where_dead(traj, traj.step.legal, False))
        ),
        "the extras of dead agents": traj._replace(
            extras={name: _where_dead(traj, x, 7.0) for name, x in traj.extras.items()}
        ),
    }
    for what, spoiled in changes.items():
        if path := tree_difference(one.update(one.learner, spoiled, UPDATE_KEY), expected):
            yield contract_error(
                "dead agents",
                f"{path.removeprefix('[0].')} depends on {what}: mask with jnp.where and step.alive, and weight "
                f"every mean over agents by step.alive, as in {page('docs/your-algorithm.md')}.",
            )
            return


def _where_dead(traj: Trajectory, x: jax.Array, value: Any) -> jax.Array:
    """``x`` [T, E, N ...] with ``value`` for dead agents; other arrays as they are."""
    alive = traj.step.alive
    if x.shape[:3] != alive.shape:
        return x
    return jnp.where(alive.reshape(*alive.shape, *(1,) * (x.ndim - 3)), x, jnp.asarray(value, x.dtype))


def _others(one: Specimen, traj: Trajectory) -> jax.Array:
    box = isinstance(one.spec.action, Box)
    other = jnp.full_like(traj.action, 0.5) if box else (traj.action + 1) % one.spec.action.width
    alive = traj.step.alive[..., None] if box else traj.step.alive
    return jnp.where(alive, traj.action, other)


def no_agents_alive(one: Specimen) -> Iterator[Finding]:
    """A rollout in which every agent is dead gives no NaN."""
    step, outcome = one.trajectory.step, one.trajectory.outcome
    gone = jnp.zeros_like(step.alive)
    empty = one.trajectory._replace(step=step._replace(alive=gone), outcome=outcome._replace(alive=gone))
    if _unsound(one.update(one.learner, empty, UPDATE_KEY)):
        yield contract_error(
            "dead agents",
            "an update from a rollout in which every agent is dead gives NaN: divide by the number of living agents "
            "only where it is not 0, for example by jnp.maximum(alive.sum(), 1).",
        )


def _unsound(tree: Any) -> str:
    """The path of the first leaf that is NaN or infinite; empty if there is none."""
    for path, x in jax.tree.leaves_with_path(tree):
        if jnp.issubdtype(x.dtype, jnp.floating) and not jnp.isfinite(x).all():
            return jax.tree_util.keystr(path).lstrip(".")
    return ""


def repeated_update(one: Specimen) -> Iterator[Finding]:
    """The same update made twice gives bit-identical results."""
    once, twice = (one.update(one.learner, one.trajectory, UPDATE_KEY) for _ in range(2))
    if path := tree_difference(once, twice, 0.0):
        yield contract_error(
            "determinism",
            f"{path.removeprefix('[0].')} differs when the same update is made twice: draw every random number from "
            f"the key that update receives, and keep all state in the learner.",
        )


def vmapped_seeds(one: Specimen) -> Iterator[Finding]:
    """Two learners updated under ``vmap``, by a newly made algorithm, equal those updated one by one."""
    again = made(one.module, one.config, one.spec)[0]
    several = [(one.learner, one.trajectory, UPDATE_KEY), (_moved(one), one.trajectory, jax.random.key(5))]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
    together = fast(jax.vmap(updating(again)))(*stacked)
    for i, arguments in enumerate(several):
        here = jax.tree.map(lambda x, i=i: x[i], together)
        if path := tree_difference(here, one.update(*arguments), 1e-3):
            yield contract_error(
                "seeds",
                f"{path.removeprefix('[0].')} of a seed differs when two seeds are updated together under jax.vmap "
                f"by a newly made algorithm: make and update must be pure functions of their arguments, without "
                f"NumPy's random numbers or other state outside the learner.",
            )
            return


def equal_devices(one: Specimen) -> Iterator[Finding]:
    """On two devices, each with half of the environments, the updated learner is the same; untested on one device."""
    if len(jax.devices()) < 2:
        return
    half = one.module.make(one.spec, one.config, Scale(E // 2, one.length, UPDATES))
    each: Any = jax.P(None, DEVICES)
    cut = Trajectory(each, each, each, each, jax.P(DEVICES))  # the recurrent state has no axis of timesteps
    mesh = plan_layout(1, E, 2).mesh

    def apart(learner: Learner, traj: Trajectory, key: jax.Array) -> Any:
        return jax.tree.map(lambda x: x[None], updating(half)(learner, traj, key)[0])

    two = fast(
        jax.shard_map(apart, mesh=mesh, in_specs=(jax.P(), cut, jax.P()), out_specs=jax.P(DEVICES), check_vma=False)
    )(one.learner, one.trajectory, UPDATE_KEY)
    first, second = (jax.tree.map(lambda x, i=i: x[i], two) for i in range(2))
    if path := tree_difference(first, second, 1e-3):
        yield contract_error(
            "devices",
            f"{path} differs after an update on two devices, each with half of the environments: add gradients and "
            f"means over devices with shoal.equations.reduce.",
        )


def _moved(one: Specimen) -> Learner:
    """Another learner: the first one after an update."""
    return one.update(one.learner, one.trajectory, jax.random.key(4))[0]


def restored_checkpoint(one: Specimen) -> Iterator[Finding]:
    """A learner that was saved and restored gives bit-identical updates."""
    learner = _moved(one)
    with tempfile.TemporaryDirectory(prefix="shoal-check-") as folder:
        checkpoints = Checkpoints(Path(folder))
        try:
            checkpoints.save(1, learner, {})
            read = checkpoints.restore(jax.eval_shape(lambda: learner))[0]
        except Exception as problem:
            yield contract_error(
                "resume",
                f"the learner cannot be saved and restored ({type(problem).__name__}: "
                f"{' '.join(str(problem).split())[:120]}): its leaves must be arrays.",
            )
            return
    restored = jax.tree.map(jnp.asarray, read)
    if path := tree_difference(
        one.update(restored, one.trajectory, UPDATE_KEY), one.update(learner, one.trajectory, UPDATE_KEY), 0.0
    ):
        yield contract_error(
            "resume",
            f"{path.removeprefix('[0].')} differs after an update of a learner that was saved and restored: "
            f"everything that the next update needs must be in the learner.",
        )


UPDATE_RULES = (
    learner_types,
    update_metrics,
    dead_agents_in_update,
    no_agents_alive,
    repeated_update,
    vmapped_seeds,
    equal_devices,
    restored_checkpoint,
)


# Requirements of ``inspect``: the documented shapes, and the numbers by which ``act`` acts.


DRAWS = 4000
"""Sampled actions whose frequencies are compared with probabilities."""
FREQUENCY_ERROR = 0.05
"""Largest error of a frequency: six standard errors."""


def inspection(one: Specimen) -> Iterator[Finding]:
    """What ``inspect`` returns has the documented shapes, also in deployment, and is what ``act`` acts by."""
    inspect, act, carry = one.algorithm.inspect, one.algorithm.act, one.trajectory.carry
    if inspect is None:
        return
    learner = _moved(one)  # initial policies are often nearly uniform, and some act at random before they learn
    traj = one.trajectory
    step, action, extras = jax.tree.map(lambda x: x[0], (traj.step, traj.action, traj.extras))
    told: Any = {}
    for when, those in (("", learner), (" when the learner has only its policy, as in deployment", _deployed(learner))):
        try:
            told = jax.eval_shape(inspect, those, carry, step, action, extras)
        except Exception as problem:
            text = f"inspect {fault_of(problem).what}{when}."
            yield Finding("error", "inspection", text, own_traceback(problem, package=False))
            return
        if text := _misshapen(told, one.spec):
            yield contract_error("inspection", f"{text}{when}.")
            return

    def decide(learner: Learner, key: jax.Array, greedy: bool) -> tuple[jax.Array, dict[str, jax.Array]]:
        _, action, extras = act(learner, carry, step, key, greedy)
        return action, inspect(learner, carry, step, action, extras)

    def drawn(learner: Learner, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        action, told = jax.vmap(lambda key: decide(learner, key, False))(keys)
        return jax.nn.one_hot(action, one.spec.action.width).mean(0), told["probabilities"].mean(0)

    key = jax.random.key(6)
    if text := _contradiction(one.spec, step, *fast(lambda learner: decide(learner, key, True))(learner)):
        yield contract_error("inspection", text)
    elif "probabilities" in told and one.algorithm.stochastic and not one.algorithm.guided:
        seen, expected = fast(drawn)(learner, jax.random.split(key, DRAWS))
        if not (np.abs(seen - expected) <= FREQUENCY_ERROR)[np.asarray(step.alive)].all():
            yield contract_error(
                "inspection",
                "the probabilities that inspect returns are not those by which act draws actions: compute both from "
                "the same distribution.",
            )


def _misshapen(told: Any, spec: EnvSpec) -> str:
    """How what ``inspect`` returns differs from the form in :class:`Algorithm`; empty if it does not."""
    if not isinstance(told, dict):
        return "inspect must return a dict from names to arrays, but returns another type"
    n = spec.num_agents
    names = ("probabilities", "mean", "std", "normal_mean", "normal_std", "utilities")
    shapes = dict.fromkeys(names, (E, n, spec.action.width)) | {"value": (E, n), "attention": (E, n, n)}
    for name, x in told.items():
        if name in shapes and (shape := getattr(x, "shape", None)) != shapes[name]:
            return f"inspect returns {name!r} with the shape {shape}, but it must be {shapes[name]}"
    return ""


def _contradiction(spec: EnvSpec, step: Step, action: Any, told: Mapping[str, Any]) -> str:
    """How what ``inspect`` returns of living agents contradicts their greedy actions; empty if it does not.

    Args:
        spec: the team's.
        step: what the agents saw [E ...].
        action: their greedy actions.
        told: what ``inspect`` returns of these.
    """
    alive = np.asarray(step.alive)
    legal, action = np.asarray(step.legal)[alive], np.asarray(action)[alive]
    known = ("probabilities", "utilities", "mean")  # there may be others of any shape
    told = {name: np.asarray(told[name])[alive] for name in known if name in told}
    if isinstance(spec.action, Box):
        if "mean" in told and not (np.abs(told["mean"] - action) <= 1e-4)[legal].all():
            return "the mean that inspect returns differs from the greedy action of act."
        return ""
    p = told.get("probabilities", legal / legal.sum(-1, keepdims=True))
    if not ((p >= 0).all() and (p[~legal] == 0).all() and (np.abs(p.sum(-1) - 1) <= 1e-3).all()):
        return "the probabilities that inspect returns must be 0 for illegal actions and add up to 1 over legal ones."
    for name in ("probabilities", "utilities"):
        if name in told:
            x = np.where(legal, told[name], -np.inf)
            best, chosen = x.max(-1), np.take_along_axis(x, action[:, None], -1)[:, 0]
            if not (best - chosen <= 1e-5 * (1 + np.abs(best))).all():
                return f"the greedy action of act does not have the largest of the {name} that inspect returns."
    return ""


# The check of an algorithm.


FIRST_TEAM_RULES = (*ACT_RULES, *UPDATE_RULES, inspection, traced_numbers)
SECOND_TEAM_RULES = (action_form, action_masks, update_metrics, inspection)
"""Rules for the other kind of actions."""
RECURRENT_RULES = (recurrent_state, update_metrics)
"""Rules for a recurrent net; the other rules test code that it shares with a feed-forward net."""
RULES_ON_NAN = (dead_agents_in_update, no_agents_alive, inspection)
"""Rules that are skipped if updates give NaN in any case, to which what they find would be due."""


def check_algorithm(name: str, flags: Mapping[str, Any] = NO_FLAGS, *, train: bool = True) -> Report:
    """Test an algorithm on random data and report which requirements of an algorithm it violates.

    Args:
        name: the algorithm's name, as for :func:`shoal.train`.
        flags: options of the algorithm by name; sizes that are not among them are small.
        train: also train briefly in a one-step game, for information.

    Raises:
        InputError: the algorithm does not exist, its module has no valid ``Config``, it is not trainable, or it has no
            such option or value.
    """
    began = time.monotonic()
    if "+" in name or name in algorithms.SCRIPTED:
        raise InputError(f"shoal check requires the name of one trainable algorithm, not {name!r}.")
    name = algorithms.canonical(name)
    module, shown = algorithms.get(name), name.removesuffix(":make")
    check_names(flags, module.Config())
    bounds.check_bounds(override(module.Config(), flags))
    findings, facts = inspected(module, flags)
    findings += valid_presets(name, module)
    if train and not any(finding.level == "error" for finding in findings):
        text, notes = _trial(module, flags)
        facts.append(("learned", text))
        findings += notes
    facts.append(("time", f"{time.monotonic() - began:.0f} s"))
    words = _words(flags)
    command, again = f"shoal train {shown} mpe/simple_spread{words}", f"shoal check {shown}{words}"
    return Report(shown, ordered(findings), tuple(facts), command, again, "these checks")


def _words(flags: Mapping[str, Any]) -> str:
    """Flags as words of a command line, with a leading space."""
    words = []
    for name, value in flags.items():
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple | list) else [value])]
    return "".join(f" {shlex.quote(word)}" for word in words)


def inspected(module: Any, flags: Mapping[str, Any] = NO_FLAGS) -> tuple[list[Finding], list[tuple[str, str]]]:
    """All findings on an algorithm's module, and rows of the report: the supported teams and the tested ones."""
    findings = list(saved_config(module))
    refused, accepted = refusals(module, flags)
    findings += refused
    played: dict[str, list[Finding]] = {}
    for spec, rules in _plan(accepted):
        played[spec.name] = _played(module, tiny(module.Config(), **flags), spec, rules)
    if accepted and "recurrent" in flags_of(module.Config()):
        _recurrent(module, accepted[0], played, flags)
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
            yield spec, SECOND_TEAM_RULES if i else FIRST_TEAM_RULES


def _recurrent(module: Any, spec: EnvSpec, played: dict[str, list[Finding]], flags: Mapping[str, Any]) -> None:
    """Also test a recurrent net, unless the algorithm does not support it."""
    config = tiny(module.Config(), **{**flags, "recurrent": 4})
    recurrent = replace(spec, name=f"{spec.name}, recurrent")
    try:
        made(module, config, recurrent)
    except InputError:
        return
    except Exception:  # reported with its traceback
        pass
    played["a recurrent net"] = _played(module, config, recurrent, RECURRENT_RULES)


def _played(module: Any, config: Any, spec: EnvSpec, rules: tuple[Callable, ...]) -> list[Finding]:
    findings: list[Finding] = []
    try:
        one = specimen(module, config, spec)
    except InputError as error:
        return [Finding("error", "exception", f"act raises InputError: {error}")]
    except Exception as error:
        return [_raised("init or act", error)]
    for rule in rules:
        if rule in RULES_ON_NAN and any(finding.subject == "finite" for finding in findings):
            continue
        doing = "update" if rule in UPDATE_RULES else "act or update"
        try:
            findings += rule(one)
        except InputError as error:
            findings.append(Finding("error", "exception", f"{doing} raises InputError: {error}"))
            break
        except Exception as error:
            findings.append(_raised(doing, error))
            break
        if any(finding.level == "error" and finding.subject in ("actions", "extras", "types") for finding in findings):
            break  # the other rules would fail for the same reason
    return findings


def _raised(doing: str, error: Exception) -> Finding:
    what = fault_of(error).what
    what = what if len(what) <= 300 else f"{what[:297]}..."
    return Finding("error", "exception", with_full_stop(f"{doing} {what}"), own_traceback(error, package=False))


def _trial(module: Any, flags: Mapping[str, Any] = NO_FLAGS) -> tuple[str, list[Finding]]:
    """The result of training in a one-step game, and a note if the policy avoids reward."""
    try:
        found = short_training(module, **flags)
    except Exception as error:
        return f"training in a one-step game {fault_of(error).what}", []
    note = "after a short training the policy earns much less reward than random actions; check the signs in the loss."
    return str(found), [Finding("note", "learning", note)] if found.worse else []
