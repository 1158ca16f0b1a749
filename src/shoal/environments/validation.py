"""Validation of device environments: shapes and dtypes are checked by tracing, without execution."""

from typing import Any

import jax
import jax.numpy as jnp

from shoal.environments.spec_rules import check_spec
from shoal.errors import InputError
from shoal.types import Discrete, Environment, EnvSpec, Step

Shape = tuple[int, ...]


def validate(env: Environment) -> None:
    """Trace ``reset`` and ``step`` and compare what they return with the spec.

    Raises:
        InputError: a field of the spec or of a :class:`Step` is wrong, or the environment's code raised while it was
            traced.
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
    if function == "step":  # metrics at reset are not read
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
