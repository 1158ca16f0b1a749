"""Dataclasses as pytrees."""

from dataclasses import fields
from typing import Any, TypeVar

import jax

Class = TypeVar("Class", bound=type)


def pytree(cls: Class) -> Class:
    """Makes a frozen dataclass a pytree; fields with ``metadata={"static": True}`` are part of its structure.

    JAX rebuilds trees around things that are no arrays (axis numbers, shapes, None). Rebuilding therefore skips
    ``__init__``, and with it any check of the fields' types, which ``jax.tree_util.register_dataclass`` does not.
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
