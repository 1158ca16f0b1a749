"""FLOP of the matrix products of training, counted from parameters and passes or from a traced program."""

import math
import re
from collections.abc import Iterator
from typing import Any

FIRST = re.compile(r"Dense_0'\]|\['layers'\]\[0\]")
"""Path of the first layer of a net: Flax Linen names it Dense_0, Shoal's nets layers[0]."""


def kernels(params: Any) -> list[tuple[int, int]]:
    """(inputs, outputs) of every kernel of a net, without leading axes."""
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(params)
    return [x.shape[-2:] for path, x in leaves if "kernel" in jax.tree_util.keystr(path)]


def input_width(params: Any) -> int:
    """Width of a net's input; all nets within ``params``, such as hypernetworks, read the same."""
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(params)
    found = [x for path, x in leaves if "kernel" in (name := jax.tree_util.keystr(path)) and FIRST.search(name)]
    return found[0].shape[-2]


def from_passes(params: Any, forward: float, trained: float) -> float:
    """FLOP per row of a net's matrix products.

    A layer's backward pass is two products, that of the weights' gradient and that of the input's. A layer that reads
    the net's input has no gradient of its input.

    Args:
        params: parameters of the net.
        forward: forward passes without a gradient.
        trained: forward passes with a gradient.
    """
    shapes, width = kernels(params), input_width(params)
    every = sum(i * o for i, o in shapes)
    first = sum(i * o for i, o in shapes if i == width)
    return 2 * (every * (forward + 3 * trained) - first * trained)


def from_program(jaxpr: Any) -> float:
    """FLOP of all ``dot_general`` of a jaxpr; the body of a loop of unknown length counts once."""
    total = 0.0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            ((contracted, _), _), left = params["dimension_numbers"], equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[i] for i in contracted)
            continue
        inner = [from_program(sub) for value in params.values() for sub in _jaxprs(value)]
        if name == "cond":
            total += max(inner)
        else:
            total += sum(inner) * (params["length"] if name == "scan" else 1)
    return total


def _jaxprs(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _jaxprs(item)
    elif hasattr(value, "eqns"):
        yield value
    elif hasattr(value, "jaxpr"):
        yield from _jaxprs(value.jaxpr)
