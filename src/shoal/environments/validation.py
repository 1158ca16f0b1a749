"""Does an environment keep its own promises? Shapes and dtypes are checked by tracing, so nothing is run."""

import re
from typing import Any

import jax
import jax.numpy as jnp

from shoal.errors import InputError, shortened
from shoal.types import Box, Discrete, Environment, EnvSpec, Step

Shape = tuple[int, ...]

COLUMNS = ("step", "update", "seconds", "steps_per_second", "return", "episode_length")
"""Columns of every run's log, which no metric of an environment may be called."""
_METRIC = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
LARGEST = 2**28
"""Numbers that one step of an environment may hold, padding included."""
LONGEST = 1000
"""Characters of a name."""


def validate(env: Environment) -> None:
    """Trace ``reset`` and ``step`` and compare what they return with the spec.

    Raises:
        InputError: naming the first field of the spec or of a :class:`Step` that is not as promised, or what the
            environment's own code raised while it was traced.
    """
    spec = env.spec
    check_spec(spec)
    key = jax.eval_shape(lambda: jax.random.key(0))
    state, first = _traced(spec.name, "reset", env.reset, key)
    _check_step(spec, "reset", first)
    shape, dtype = (spec.num_agents,), jnp.int32
    if not isinstance(spec.action, Discrete):
        shape, dtype = (spec.num_agents, spec.action.dim), jnp.float32
    after, outcome = _traced(spec.name, "step", env.step, key, state, jax.ShapeDtypeStruct(shape, dtype))
    _check_step(spec, "step", outcome)
    before_tree, after_tree = jax.tree.structure(state), jax.tree.structure(after)
    if before_tree != after_tree:
        raise InputError(f"{spec.name}: step returns a state built as {after_tree}, but reset returns {before_tree}.")
    leaves = jax.tree_util.tree_leaves_with_path(state)
    for (path, was), now in zip(leaves, jax.tree.leaves(after), strict=True):
        if (was.shape, was.dtype) != (now.shape, now.dtype):
            field = jax.tree_util.keystr(path) or "itself"
            raise InputError(
                f"{spec.name}: state {field} is {_word(was)} after reset but {_word(now)} after step; a compiled loop "
                f"needs both alike."
            )


def _traced(name: str, function: str, call: Any, *arguments: Any) -> tuple[Any, Step]:
    try:
        result = jax.eval_shape(call, *arguments)
    except Exception as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise InputError(f"{name}: {function} cannot be traced by JAX ({type(error).__name__}: {reason}).") from error
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Step)):
        raise InputError(f"{name}: {function} must return a pair (state, shoal.types.Step).")
    return result


def check_spec(spec: EnvSpec) -> None:
    """Refuse a spec whose parts do not fit together.

    Raises:
        InputError: naming the field.
    """
    if not spec.agents:
        raise InputError(f"{spec.name}: spec.agents is empty, but a team needs at least one agent.")
    for name in (spec.name, *spec.agents):
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST:
            raise InputError(
                f"{shortened(name)} cannot name an environment or an agent: a name is short printable text."
            )
    if len(set(spec.agents)) < spec.num_agents:
        raise InputError(f"{spec.name}: spec.agents has a name twice: {shortened(spec.agents)}.")
    for field in ("obs_dims", "action_dims", "roles"):
        length = len(getattr(spec, field))
        if length != spec.num_agents:
            raise InputError(f"{spec.name}: spec.{field} has {length} entries for {spec.num_agents} agents.")
    if min(spec.obs_dims) < 0 or spec.state_dim < 0:
        raise InputError(f"{spec.name}: spec.obs_dims and spec.state_dim cannot be negative.")
    if isinstance(spec.action, Box) and not spec.action.low < spec.action.high:
        raise InputError(f"{spec.name}: spec.action.low must be below spec.action.high.")
    if spec.num_agents * max(spec.obs_dim, spec.action.width) + spec.state_dim > LARGEST:
        raise InputError(f"{spec.name}: one step of the environment would hold more than {LARGEST:,} numbers.")
    if spec.horizon < 1:
        raise InputError(f"{spec.name}: spec.horizon must be at least 1, not {spec.horizon}.")
    if min(spec.action_dims) < 1 or max(spec.action_dims) != spec.action.width:
        raise InputError(
            f"{spec.name}: spec.action_dims must lie between 1 and the padded width {spec.action.width} and reach it, "
            f"not {spec.action_dims}."
        )
    if set(spec.roles) != set(range(len(set(spec.roles)))):  # the largest may be very large
        raise InputError(f"{spec.name}: spec.roles must be numbered 0, 1, 2 … without a gap, not {spec.roles}.")
    if not isinstance(spec.metrics, tuple):
        raise InputError(f"{spec.name}: spec.metrics must be a tuple of names, not {spec.metrics!r}.")
    for name in spec.metrics:
        if not isinstance(name, str) or _METRIC.fullmatch(name) is None:
            raise InputError(
                f"{spec.name}: spec.metrics holds {name!r}, but a metric's name is made of letters, digits, '_', '-' "
                f"and '.', and begins with a letter."
            )
        if name in COLUMNS:
            raise InputError(f"{spec.name}: spec.metrics holds {name!r}, which is another column of the log already.")
    if len(set(spec.metrics)) != len(spec.metrics):
        raise InputError(f"{spec.name}: spec.metrics names a metric twice: {', '.join(spec.metrics)}.")
    novel = spec.novel or ()
    if len(set(novel)) != len(novel) or any(index not in range(spec.obs_dim) for index in novel):
        raise InputError(f"{spec.name}: spec.novel must hold distinct indices below {spec.obs_dim}, not {novel}.")


def _check_step(spec: EnvSpec, function: str, step: Step) -> None:
    agents: Shape = (spec.num_agents,)
    promised: dict[str, tuple[Shape, Any]] = {
        "obs": ((*agents, spec.obs_dim), jnp.floating),
        "state": ((spec.state_dim,), jnp.floating),
        "legal": ((*agents, spec.action.width), jnp.bool_),
        "alive": (agents, jnp.bool_),
        "reward": (agents, jnp.floating),
        "discount": (agents, jnp.floating),
        "first": ((), jnp.bool_),
        "last": ((), jnp.bool_),
    }
    if function == "step":  # nothing reads those of an episode's start
        if spec.metrics:
            promised["metrics"] = ((len(spec.metrics),), jnp.floating)
        elif not isinstance(step.metrics, tuple):
            raise InputError(f"{spec.name}: step gives metrics, but spec.metrics names none.")
    for field, (shape, kind) in promised.items():
        value = getattr(step, field)
        if not hasattr(value, "shape") or value.shape != shape:
            found = getattr(value, "shape", type(value).__name__)
            raise InputError(f"{spec.name}: {function} gives {field} of shape {found}, but the spec says {shape}.")
        if not jnp.issubdtype(value.dtype, kind):
            wanted = "bool" if kind is jnp.bool_ else "float"
            raise InputError(f"{spec.name}: {function} gives {field} of type {value.dtype}, but it must be {wanted}.")


def _word(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"
