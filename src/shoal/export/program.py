"""A function as a flat list of operations: traced by JAX, with everything that does not depend on its inputs computed.

The batch axis stays open: its size is a symbol in the shapes. Calls are inlined and loops of a known length unrolled,
so that what remains are JAX's primitive operations on arrays, each once.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jaxtyping
import numpy as np
from jax.extend.core import Literal  # pyright: ignore[reportAttributeAccessIssue]

from shoal.errors import InputError

BATCH = "batch"
FOLDED_BYTES = 1 << 16
"""A constant result of more bytes than this is computed in advance only if it has no more bytes than its operands."""
INDEX, STACK = "index", "stack"
"""Operations of unrolled loops: the i-th entry along the first axis, and entries as a first axis."""


@dataclass(eq=False)
class Value:
    """An array that depends on the inputs."""

    shape: tuple[Any, ...]
    """With a symbol, or an expression of it, where the size depends on the batch's."""
    dtype: Any


@dataclass
class Operation:
    """One of JAX's primitives, :data:`INDEX` or :data:`STACK`."""

    name: str
    operands: list[Any]
    """Each a :class:`Value`, or an array that is known."""
    results: list[Value]
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Program:
    """Operations in the order in which they can be computed."""

    inputs: dict[str, Value]
    outputs: dict[str, Any]
    """Each a :class:`Value`, or an array that is known."""
    operations: list[Operation]

    def needed(self, outputs: Iterable[str]) -> "Program":
        """The program of some outputs, in their order, without what they do not depend on."""
        kept = {name: self.outputs[name] for name in outputs}
        live = {id(value) for value in kept.values()}
        operations = []
        for operation in reversed(self.operations):
            if any(id(result) in live for result in operation.results):
                operations.append(operation)
                live.update(id(one) for one in operation.operands)
        inputs = {name: value for name, value in self.inputs.items() if id(value) in live}
        return Program(inputs, kept, operations[::-1])


def is_known(value: Any) -> bool:
    """Whether an operand does not depend on the inputs."""
    return not isinstance(value, Value)


def symbolic(inputs: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """The inputs' shapes with a symbol for the batch axis, which comes first."""
    (batch,) = jax.export.symbolic_shape(BATCH)
    return {name: jax.ShapeDtypeStruct((batch, *one.shape), one.dtype) for name, one in inputs.items()}


@contextlib.contextmanager
def shapes_unchecked() -> Iterator[None]:
    """Without jaxtyping's checks of shapes, for whoever has switched them on: they cannot compare symbols."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def traced(apply: Callable[[Mapping[str, Any]], Mapping[str, Any]], inputs: Mapping[str, Any]) -> Program:
    """Trace a function of named arrays.

    Args:
        apply: arrays by name, [batch, ...] -> arrays by name.
        inputs: the inputs' shapes without the batch axis and their types (``shape``, ``dtype``), by name.

    Raises:
        InputError: the function has a loop whose length is not known, or needs the batch's size as a number.
    """
    structs = symbolic(inputs)
    with shapes_unchecked():
        closed, shapes = jax.make_jaxpr(apply, return_shape=True)(structs)
    names, outputs = sorted(structs), sorted(shapes)  # JAX sorts the keys of dictionaries
    given: dict[str, Any] = {name: Value(structs[name].shape, structs[name].dtype) for name in names}
    operations: list[Operation] = []
    found = _run(closed.jaxpr, closed.consts, [given[name] for name in names], operations)
    return Program({name: given[name] for name in inputs}, dict(zip(outputs, found, strict=True)), operations)


def _run(jaxpr: Any, consts: Sequence[Any], given: Sequence[Any], operations: list[Operation]) -> list[Any]:
    """Add a function's operations, and return its results."""
    known: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return np.asarray(atom.val, cast(Any, atom.aval).dtype) if isinstance(atom, Literal) else known[atom]

    known.update(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, given, strict=True))
    for equation in jaxpr.eqns:
        results = _operation(equation, [read(atom) for atom in equation.invars], operations)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _opened(inner: Any) -> tuple[Any, Sequence[Any]]:
    """A function within an operation, with its constants."""
    return getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())


def _operation(equation: Any, operands: list[Any], operations: list[Operation]) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    inner = next((params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params), None)
    if inner is not None and name != "scan":
        return _run(*_opened(inner), operands, operations)
    if all(map(is_known, operands)) and (found := _computed(equation, operands)) is not None:
        return found
    if name == "scan":
        return _unrolled(params, operands, operations)
    if name == "cond" and is_known(operands[0]):
        return _run(*_opened(params["branches"][int(operands[0])]), operands[1:], operations)
    results: list[Any] = [Value(tuple(each.aval.shape), each.aval.dtype) for each in equation.outvars]
    operations.append(Operation(name, operands, results, params))
    return results


def _computed(equation: Any, operands: list[Any]) -> list[Any] | None:
    """The results of an operation on known arrays; None if a shape depends on the batch, or they are large."""
    avals = [each.aval for each in equation.outvars]
    if equation.primitive.name == "dim_as_value" or any(
        not isinstance(size, int) for aval in avals for size in aval.shape
    ):
        return None
    size = sum(aval.size * getattr(aval.dtype, "itemsize", 8) for aval in avals)
    if size > max(FOLDED_BYTES, sum(x.size * getattr(x.dtype, "itemsize", 8) for x in operands)):
        return None
    found = equation.primitive.bind(*operands, **equation.params)
    return list(found) if equation.primitive.multiple_results else [found]


def _unrolled(params: Mapping[str, Any], operands: list[Any], operations: list[Operation]) -> list[Any]:
    """The results of a scan, iteration after iteration."""
    body, length = _opened(params["jaxpr"]), params["length"]
    if not isinstance(length, int):
        raise InputError("The policy has a loop over the batch, so it cannot be exported.")
    if "ft_in" in params:  # since JAX 0.12
        count, more, _ = (len(list(part)) for part in params["ft_in"].unpack())
    else:
        count, more = params["num_consts"], params["num_carry"]
    consts, carry, xs = operands[:count], operands[count : count + more], operands[count + more :]
    rows: list[list[Any]] = []
    order = range(length)[::-1] if params["reverse"] else range(length)
    for i in order:
        found = _run(*body, [*consts, *carry, *(_entry(x, i, operations) for x in xs)], operations)
        carry = found[: len(carry)]
        rows.append(found[len(carry) :])
    if params["reverse"]:
        rows.reverse()
    return [*carry, *(_stacked(list(column), operations) for column in zip(*rows, strict=True))]


def _entry(x: Any, i: int, operations: list[Operation]) -> Any:
    if is_known(x):
        return x[i]
    result = Value(x.shape[1:], x.dtype)
    operations.append(Operation(INDEX, [x], [result], {"i": i}))
    return result


def _stacked(column: list[Any], operations: list[Operation]) -> Any:
    if all(map(is_known, column)):
        return np.stack([np.asarray(x) for x in column])
    like = next(x for x in column if not is_known(x))
    result = Value((len(column), *like.shape), like.dtype)
    operations.append(Operation(STACK, column, [result], {"axis": 0}))
    return result
