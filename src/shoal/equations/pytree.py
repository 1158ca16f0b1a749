"""Dataclasses as pytrees."""

from dataclasses import fields
from typing import Any, TypeVar

import jax

Class = TypeVar("Class", bound=type)


def pytree(cls: Class) -> Class:
    """Register a frozen dataclass as a pytree; fields with ``metadata={"static": True}`` are part of its structure.

    JAX also rebuilds trees with leaves that are not arrays (axis numbers, shapes, None). Rebuilding therefore skips
    ``__init__`` and its type checks, which ``jax.tree_util.register_dataclass`` would call.
    """
    static = [f.name for f in fields(cls) if f.metadata.get("static", False)]
    leaves = [f.name for f in fields(cls) if f.name not in static]

    def flatten_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in leaves]
        return children, tuple(getattr(node, name) for name in static)

    def flatten(node: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(node, name) for name in leaves], tuple(getattr(node, name) for name in static)

    def unflatten(structure: tuple[Any, ...], children: Any) -> Any:
        node = object.__new__(cls)
        for name, value in zip([*leaves, *static], [*children, *structure], strict=True):
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
