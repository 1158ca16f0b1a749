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
    _check_alike(spec, "reset", (state, first), "step", (after, outcome))
    _check_precision(spec, outcome)
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
    _check_alike(spec, "batched.reset", (state, first), "batched.step", (after, outcome))
    _check_precision(spec, outcome)
    which = jax.ShapeDtypeStruct(batch, jnp.bool_)
    after, again = _traced(spec.name, "batched.restart", env.batched.restart, key, which, state)
    _check_step(spec, "batched.restart", again, batch)
    _check_alike(spec, "batched.reset", (state, first), "batched.restart", (after, again))


def _check_precision(spec: EnvSpec, outcome: Step) -> None:
    """Refuse rewards of half precision: returns and lengths of episodes are added up in their type."""
    if jnp.finfo(outcome.reward.dtype).bits < 32:
        raise InputError(
            f"{spec.name}: rewards of type {outcome.reward.dtype} lose precision or overflow where an episode adds "
            f"them up; reset and step must give float32, for example reward.astype(jnp.float32)."
        )


def _check_alike(spec: EnvSpec, one: str, before: tuple[Any, Step], other: str, after: tuple[Any, Step]) -> None:
    """Refuse states and steps of another structure, shape or type after ``other`` than after ``one``."""
    without = [(state, step._replace(metrics=())) for state, step in (before, after)]  # metrics at reset are not read
    for what, was, now in zip(("state", "Step"), *without, strict=True):
        was_tree, now_tree = jax.tree.structure(was), jax.tree.structure(now)
        if was_tree != now_tree:
            raise InputError(
                f"{spec.name}: {other} returns a {what} built as {now_tree}, but {one} returns {was_tree}."
            )
        leaves = jax.tree_util.tree_leaves_with_path(was)
        for (path, old), new in zip(leaves, jax.tree.leaves(now), strict=True):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                field = jax.tree_util.keystr(path) or "itself"
                raise InputError(
                    f"{spec.name}: {what} {field} is {_word(old)} after {one} but {_word(new)} after {other}; a "
                    f"compiled loop needs both to be equal."
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
