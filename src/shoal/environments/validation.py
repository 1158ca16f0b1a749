"""Validation of device environments: shapes and dtypes are checked by tracing, without execution."""

from typing import Any

import jax
import jax.numpy as jnp

from shoal.environments.spec_rules import check_spec
from shoal.errors import InputError
from shoal.types import Discrete, Environment, EnvSpec, Step

Shape = tuple[int, ...]


COPIES = 3
"""Environments with which a batched form is traced."""


def validate(env: Environment) -> None:
    """Trace ``reset`` and ``step``, also of a batched form, and compare what they return with the spec.

    Raises:
        InputError: a field of the spec or of a :class:`Step` is wrong, or the environment's code raised while it was
            traced.
    """
    spec = env.spec
    check_spec(spec)
    key = jax.eval_shape(lambda: jax.random.key(0))
    shape, dtype = (spec.num_agents,), jnp.int32
    if not isinstance(spec.action, Discrete):
        shape, dtype = (spec.num_agents, spec.action.dim), jnp.float32
    state, first = _traced(spec.name, "reset", env.reset, key)
    _check_step(spec, "reset", first)
    after, outcome = _traced(spec.name, "step", env.step, key, state, jax.ShapeDtypeStruct(shape, dtype))
    _check_step(spec, "step", outcome)
    _check_alike(spec, "reset", state, "step", after)
    if env.batched is None:
        return
    if getattr(env.reset, "of_batch", None) is not getattr(env.step, "of_batch", None):
        raise InputError(
            f"{spec.name}: training takes the batched form of reset and step, of which one alone was replaced: replace "
            f"batched as well, or set it to None."
        )
    batch = (COPIES,)
    state, first = _traced(spec.name, "batched.reset", lambda key: env.batched.reset(key, COPIES), key)  # type: ignore[union-attr]
    _check_step(spec, "batched.reset", first, batch)
    actions = jax.ShapeDtypeStruct((*batch, *shape), dtype)
    after, outcome = _traced(spec.name, "batched.step", env.batched.step, key, state, actions)
    _check_step(spec, "batched.step", outcome, batch)
    _check_alike(spec, "batched.reset", state, "batched.step", after)
    which = jax.ShapeDtypeStruct(batch, jnp.bool_)
    after, first = _traced(spec.name, "batched.restart", env.batched.restart, key, which, state)
    _check_step(spec, "batched.restart", first, batch)
    _check_alike(spec, "batched.reset", state, "batched.restart", after)


def _check_alike(spec: EnvSpec, one: str, state: Any, other: str, after: Any) -> None:
    """Refuse states of another structure, shape or type after ``other`` than after ``one``."""
    before_tree, after_tree = jax.tree.structure(state), jax.tree.structure(after)
    if before_tree != after_tree:
        raise InputError(
            f"{spec.name}: {other} returns a state built as {after_tree}, but {one} returns {before_tree}."
        )
    leaves = jax.tree_util.tree_leaves_with_path(state)
    for (path, was), now in zip(leaves, jax.tree.leaves(after), strict=True):
        if (was.shape, was.dtype) != (now.shape, now.dtype):
            field = jax.tree_util.keystr(path) or "itself"
            raise InputError(
                f"{spec.name}: state {field} is {_word(was)} after {one} but {_word(now)} after {other}; a compiled "
                f"loop needs both to be equal."
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


def _check_step(spec: EnvSpec, function: str, step: Step, batch: Shape = ()) -> None:
    agents: Shape = (*batch, spec.num_agents)
    promised: dict[str, tuple[Shape, Any]] = {
        "obs": ((*agents, spec.obs_dim), jnp.uint8 if spec.packed else jnp.floating),
        "state": ((*batch, spec.state_dim), jnp.floating),
        "legal": ((*agents, spec.action.width), jnp.bool_),
        "alive": (agents, jnp.bool_),
        "reward": (agents, jnp.floating),
        "discount": (agents, jnp.floating),
        "first": (batch, jnp.bool_),
        "last": (batch, jnp.bool_),
    }
    if function.endswith("step"):  # metrics at reset are not read
        if spec.metrics:
            promised["metrics"] = ((*batch, len(spec.metrics)), jnp.floating)
        elif not isinstance(step.metrics, tuple):
            raise InputError(f"{spec.name}: step gives metrics, but spec.metrics names none.")
    for field, (shape, kind) in promised.items():
        value = getattr(step, field)
        if not hasattr(value, "shape") or value.shape != shape:
            found = getattr(value, "shape", type(value).__name__)
            raise InputError(f"{spec.name}: {function} gives {field} of shape {found}, but the spec says {shape}.")
        if not jnp.issubdtype(value.dtype, kind):
            wanted = {jnp.bool_: "bool", jnp.uint8: "uint8"}.get(kind, "float")
            raise InputError(f"{spec.name}: {function} gives {field} of type {value.dtype}, but it must be {wanted}.")


def _word(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"
