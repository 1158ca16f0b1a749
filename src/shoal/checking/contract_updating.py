"""Requirements of ``update``: stable types, no effect of dead agents, determinism, ``vmap``, and checkpoints."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from shoal.checking.contract_acting import blinded, error
from shoal.checking.findings import Finding
from shoal.checking.specimen import Specimen, difference, fast, made, updating
from shoal.storage.checkpoint import Checkpoints
from shoal.types import Box, Learner, Trajectory

KEY = jax.random.key(1)


def types(one: Specimen) -> Iterator[Finding]:
    """The learner keeps its structure, shapes and types, as the compiled loop around the update requires."""
    before, (after, _) = (
        jax.eval_shape(lambda: one.learner),
        jax.eval_shape(one.update, one.learner, one.trajectory, KEY),
    )
    if jax.tree.structure(before) != jax.tree.structure(after):
        yield error(
            "types",
            "update returns a learner with a different structure from the one it received: return the same "
            "NamedTuples, dicts and tuples with the same entries.",
        )
        return
    for (path, x), y in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            yield error(
                "types",
                f"update changes {jax.tree_util.keystr(path).lstrip('.')} from {_text(x)} to {_text(y)}: shapes and "
                f"types must not change; use, for example, jnp.asarray(x, jnp.float32) in init and update.",
            )
            return
    if int(one.update(one.learner, one.trajectory, KEY)[0].updates) != 1:
        yield error("types", "Learner.updates is not 1 after the first update: return updates=learner.updates + 1.")


def _text(x: Any) -> str:
    return f"{x.dtype.name}[{', '.join(map(str, x.shape))}]"


def metrics(one: Specimen) -> Iterator[Finding]:
    """Metrics are scalars by name, and neither they nor the learner become NaN over some updates."""
    learner = one.learner
    for number in range(1, 4):
        learner, found = one.update(learner, one.trajectory, jax.random.key(number))
        if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
            yield error("metrics", "update must return its metrics as a flat dict from names to scalars.")
            return
        for name, x in found.items():
            if jnp.shape(x) != ():
                yield error(
                    "metrics",
                    f"the metric {name!r} has the shape {jnp.shape(x)}: it must be a scalar.",
                )
                return
            if not jnp.isfinite(x):
                yield error("finite", f"the metric {name!r} is {float(x)} after update {number}; it must stay finite.")
                return
        if where := _unsound(learner):
            yield error("finite", f"{where} is NaN or infinite after update {number}; check for 0 / 0 and log 0.")
            return
    if not difference(learner.policy, one.learner.policy, 0.0):
        yield Finding("warning", "learning", "three updates do not change Learner.policy.")


def dead_agents(one: Specimen) -> Iterator[Finding]:
    """Dead agents' observations (NaN), actions, legal actions and extras do not change the update."""
    traj = one.trajectory
    expected = one.update(one.learner, traj, KEY)
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
        if path := difference(one.update(one.learner, spoiled, KEY), expected):
            yield error(
                "dead agents",
                f"{path.removeprefix('[0].')} depends on {what}: mask with jnp.where and step.alive, and weight "
                f"every mean over agents by step.alive, as in docs/your-algorithm.md.",
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
    if _unsound(one.update(one.learner, empty, KEY)):
        yield error(
            "dead agents",
            "an update from a rollout in which every agent is dead gives NaN: divide by the number of living agents "
            "only where it is not 0, for example by jnp.maximum(alive.sum(), 1).",
        )


def _unsound(tree: Any) -> str:
    """The path of the first leaf that is NaN or infinite; empty if there is none."""
    for path, x in jax.tree.leaves_with_path(tree):
        if x.dtype.kind == "f" and not jnp.isfinite(x).all():
            return jax.tree_util.keystr(path).lstrip(".")
    return ""


def repetition(one: Specimen) -> Iterator[Finding]:
    """The same update made twice gives bit-identical results."""
    once, twice = (one.update(one.learner, one.trajectory, KEY) for _ in range(2))
    if path := difference(once, twice, 0.0):
        yield error(
            "determinism",
            f"{path.removeprefix('[0].')} differs when the same update is made twice: draw every random number from "
            f"the key that update receives, and keep all state in the learner.",
        )


def seeds(one: Specimen) -> Iterator[Finding]:
    """Two learners updated under ``vmap``, by a newly made algorithm, equal those updated one by one."""
    again = made(one.module, one.config, one.spec)[0]
    several = [(one.learner, one.trajectory, KEY), (_moved(one), one.trajectory, jax.random.key(5))]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
    together = fast(jax.vmap(updating(again)))(*stacked)
    for i, arguments in enumerate(several):
        here = jax.tree.map(lambda x, i=i: x[i], together)
        if path := difference(here, one.update(*arguments), 1e-3):
            yield error(
                "seeds",
                f"{path.removeprefix('[0].')} of a seed differs when two seeds are updated together under jax.vmap "
                f"by a newly made algorithm: make and update must be pure functions of their arguments, without "
                f"NumPy's random numbers or other state outside the learner.",
            )
            return


def _moved(one: Specimen) -> Learner:
    """Another learner: the first one after an update."""
    return one.update(one.learner, one.trajectory, jax.random.key(4))[0]


def checkpoint(one: Specimen) -> Iterator[Finding]:
    """A learner that was saved and restored gives bit-identical updates."""
    learner = _moved(one)
    with tempfile.TemporaryDirectory(prefix="shoal-check-") as folder:
        checkpoints = Checkpoints(Path(folder))
        try:
            checkpoints.save(1, learner, {})
            read = checkpoints.restore(jax.eval_shape(lambda: learner))[0]
        except Exception as problem:
            yield error(
                "resume",
                f"the learner cannot be saved and restored ({type(problem).__name__}: "
                f"{' '.join(str(problem).split())[:120]}): its leaves must be arrays.",
            )
            return
    restored = jax.tree.map(jnp.asarray, read)
    if path := difference(one.update(restored, one.trajectory, KEY), one.update(learner, one.trajectory, KEY), 0.0):
        yield error(
            "resume",
            f"{path.removeprefix('[0].')} differs after an update of a learner that was saved and restored: "
            f"everything that the next update needs must be in the learner.",
        )


RULES = (types, metrics, dead_agents, no_agents_alive, repetition, seeds, checkpoint)
