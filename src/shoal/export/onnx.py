"""A :class:`shoal.export.program.Program` as an ONNX model.

Each of JAX's primitives that policies consist of is written as a few of ONNX's operators. Broadcasts are not written
where the operator that reads them broadcasts itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.export.program import INDEX, STACK, Operation, Program, Value, is_known
from shoal.system.extras import install, lacking

OPSET = 17
"""Version of the operators, of ONNX 1.12 (2022)."""
IR_VERSION = 8
"""Version of the file format, of ONNX 1.12."""


def to_onnx(program: Program, name: str, notes: dict[str, str]) -> bytes:
    """The model in its serialised form.

    Args:
        program: the operations.
        name: of the graph.
        notes: entries of the model's metadata.

    Raises:
        InputError: ``onnx`` is not installed, or an operation has no counterpart.
    """
    try:
        import onnx  # pyright: ignore[reportMissingImports]
        from onnx import helper  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(lacking("Export to ONNX", "onnx", error, install("onnx"))) from None
    graph = Graph(helper, program)
    for operation in program.operations:
        graph.add(operation)
    inputs = [graph.port(name, value) for name, value in program.inputs.items()]
    outputs = [graph.output(name, value) for name, value in program.outputs.items()]
    made = helper.make_graph(graph.nodes, name, inputs, outputs, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="shoal")
    model.ir_version = IR_VERSION
    helper.set_model_props(model, notes)
    onnx.checker.check_model(model)
    return model.SerializeToString()


class Graph:
    """The nodes of a model while they are made."""

    def __init__(self, helper: Any, program: Program):
        self._helper = helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._names: dict[int, str] = {}
        self._held: dict[int, tuple[Any, ...]] = {}
        """The shape that a value has in the model: with 1 where a broadcast is left to its readers."""
        self._known: dict[tuple, str] = {}
        self._symbol: str | None = None
        self._count = 0
        self._alive = [*program.operations, *program.outputs.values(), *program.inputs.values()]  # ids stay unique
        self._first, (self._batch, *_) = next((name, value.shape) for name, value in program.inputs.items())
        for name, value in program.inputs.items():
            self._names[id(value)], self._held[id(value)] = name, value.shape

    # Names of arrays.

    def node(self, kind: str, operands: Sequence[str], **attributes: Any) -> str:
        """Add a node with one output, and return the output's name."""
        return self.node_of_several(kind, operands, 1, **attributes)[0]

    def node_of_several(self, kind: str, operands: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """Add a node, and return the names of its outputs."""
        names = [self._fresh(kind.lower()) for _ in range(outputs)]
        self.nodes.append(self._helper.make_node(kind, list(operands), names, **attributes))
        return names

    def _fresh(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"

    def kind(self, dtype: Any) -> int:
        """ONNX's number of a type."""
        return self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def cast(self, name: str, dtype: Any) -> str:
        """An array in another type."""
        return self.node("Cast", [name], to=self.kind(dtype))

    def constant(self, array: Any) -> str:
        """The name of a constant; equal ones are stored once."""
        array = np.ascontiguousarray(np.asarray(array))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            name = self._fresh("constant")
            kind, data = self.kind(array.dtype), array.tobytes()
            self.constants.append(self._helper.make_tensor(name, kind, array.shape, data, raw=True))
            self._known[key] = name
        return self._known[key]

    def integers(self, values: Sequence[Any]) -> str:
        """A constant vector of int64, as shapes and axes are."""
        return self.constant(np.asarray(values, np.int64).reshape(-1))

    def held(self, operand: Any) -> tuple[Any, ...]:
        """The shape of an operand in the model."""
        return np.shape(operand) if is_known(operand) else self._held[id(operand)]

    def loose(self, operand: Any) -> str:
        """An operand for an operator that broadcasts."""
        return self.constant(operand) if is_known(operand) else self._names[id(operand)]

    def full(self, operand: Any) -> str:
        """An operand in its whole shape."""
        if is_known(operand) or self._held[id(operand)] == operand.shape:
            return self.loose(operand)
        target = [1 if a == b else b for a, b in zip(self._held[id(operand)], operand.shape, strict=True)]
        self.name(operand, self.node("Expand", [self.loose(operand), self.shape(target)]), operand.shape)
        return self._names[id(operand)]

    def name(self, value: Value, name: str, held: Sequence[Any] | None = None) -> None:
        """Set the name of a value, and its shape in the model if that differs from its own."""
        self._names[id(value)], self._held[id(value)] = name, value.shape if held is None else tuple(held)

    def shape(self, sizes: Sequence[Any]) -> str:
        """A shape as a vector of int64, computed where it depends on the batch."""
        if all(isinstance(size, int) for size in sizes):
            return self.integers(sizes)
        return self.node("Concat", [self._size(size) for size in sizes], axis=0)

    def _size(self, size: Any) -> str:
        """One size as a vector of length 1; those that depend on the batch are multiples of it."""
        if isinstance(size, int):
            return self.integers([size])
        if self._symbol is None:
            whole = self.node("Shape", [self._first])
            self._symbol = self.node("Slice", [whole, self.integers([0]), self.integers([1])])
        times = self._multiple(size)
        return self._symbol if times == 1 else self.node("Mul", [self._symbol, self.integers([times])])

    def _multiple(self, size: Any) -> int:
        times = size // self._batch
        if not isinstance(times, int) or times * self._batch != size:
            raise InputError(f"A size of the policy is {size}, no multiple of the batch, so it cannot be exported.")
        return times

    def reshaped(self, name: str, sizes: Sequence[Any]) -> str:
        """A ``Reshape``; one size that depends on the batch is left to the operator."""
        if sum(not isinstance(size, int) for size in sizes) == 1 and 0 not in sizes:
            return self.node("Reshape", [name, self.integers([x if isinstance(x, int) else -1 for x in sizes])])
        return self.node("Reshape", [name, self.shape(sizes)])

    # The model's inputs and outputs.

    def port(self, name: str, value: Any) -> Any:
        """The description of an input or an output."""
        sizes = [size if isinstance(size, int) else str(size) for size in np.shape(value)]
        return self._helper.make_tensor_value_info(name, self.kind(value.dtype), sizes)

    def output(self, name: str, value: Any) -> Any:
        """Name an output, and describe it."""
        self.nodes.append(self._helper.make_node("Identity", [self.full(value)], [name]))
        return self.port(name, value)

    def add(self, operation: Operation) -> None:
        """Add an operation.

        Raises:
            InputError: it has no counterpart.
        """
        name = operation.name
        if name in ELEMENTWISE:
            held = _broadcast([self.held(one) for one in operation.operands], operation.results[0].shape)
            made = ELEMENTWISE[name](self, operation)
            self.name(operation.results[0], made, held)
        elif name in OTHERS:
            OTHERS[name](self, operation)
        else:
            raise InputError(f"The policy computes {name!r}, which has no counterpart in ONNX here.")


def _broadcast(shapes: Sequence[tuple[Any, ...]], whole: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape that ONNX gives an elementwise result; ``whole`` is that of the value."""
    padded = [(1,) * (len(whole) - len(shape)) + shape for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


# Elementwise operations: (graph, operation) -> the name of the result.


Elementwise = Callable[[Graph, Operation], str]


def _same(kind: str) -> Elementwise:
    """An operator that does the same."""
    return lambda graph, operation: graph.node(kind, [graph.loose(x) for x in operation.operands])


def _then(kind: str, then: str) -> Elementwise:
    """Two operators, one after the other."""
    return lambda graph, operation: graph.node(then, [graph.node(kind, [graph.loose(x) for x in operation.operands])])


def _like(operation: Operation, number: int) -> np.ndarray:
    return np.asarray(number, operation.operands[0].dtype)


def _integer_pow(graph: Graph, operation: Operation) -> str:
    x, power = graph.loose(operation.operands[0]), operation.params["y"]
    if power == 2:
        return graph.node("Mul", [x, x])
    return graph.node("Pow", [x, graph.constant(_like(operation, power))])


def _select(graph: Graph, operation: Operation) -> str:
    which, *cases = operation.operands
    if which.dtype != bool or len(cases) != 2:
        raise InputError("The policy selects among more than two cases, which has no counterpart in ONNX here.")
    names = [graph.loose(which), graph.loose(cases[1]), graph.loose(cases[0])]
    if cases[0].dtype == bool:  # onnxruntime's Where has no boolean kernel
        chosen = graph.node("And", names[:2]), graph.node("And", [graph.node("Not", names[:1]), names[2]])
        return graph.node("Or", chosen)
    return graph.node("Where", names)


def _clamp(graph: Graph, operation: Operation) -> str:
    low, x, high = map(graph.loose, operation.operands)
    return graph.node("Min", [graph.node("Max", [x, low]), high])


def _convert(graph: Graph, operation: Operation) -> str:
    return graph.cast(graph.loose(operation.operands[0]), operation.params["new_dtype"])


def _logic(kind: str) -> Elementwise:
    def made(graph: Graph, operation: Operation) -> str:
        if operation.operands[0].dtype != bool:
            raise InputError(
                f"The policy computes a bitwise {operation.name!r}, which has no counterpart in ONNX here."
            )
        return graph.node(kind, [graph.loose(x) for x in operation.operands])

    return made


def _is_finite(graph: Graph, operation: Operation) -> str:
    x = graph.loose(operation.operands[0])
    return graph.node("Not", [graph.node("Or", [graph.node("IsNaN", [x]), graph.node("IsInf", [x])])])


def _with_number(kind: str, number: int, then: str | None = None, first: bool = False) -> Elementwise:
    """An operator with a constant, as its second operand or its ``first``; ``then`` another one of the result."""

    def made(graph: Graph, operation: Operation) -> str:
        pair = [graph.loose(operation.operands[0]), graph.constant(_like(operation, number))]
        found = graph.node(kind, pair[::-1] if first else pair)
        return found if then is None else graph.node(then, [found])

    return made


def _expm1(graph: Graph, operation: Operation) -> str:
    exp = graph.node("Exp", [graph.loose(operation.operands[0])])
    return graph.node("Sub", [exp, graph.constant(_like(operation, 1))])


def _square(graph: Graph, operation: Operation) -> str:
    x = graph.loose(operation.operands[0])
    return graph.node("Mul", [x, x])


ELEMENTWISE: dict[str, Elementwise] = {
    **{name: _same(kind) for name, kind in {
        "add": "Add", "add_any": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min",
        "pow": "Pow", "neg": "Neg", "abs": "Abs", "sign": "Sign", "exp": "Exp", "log": "Log", "tanh": "Tanh",
        "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "floor": "Floor", "ceil": "Ceil", "erf": "Erf",
        "logistic": "Sigmoid", "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater",
        "ge": "GreaterOrEqual", "copy": "Identity", "copy_p": "Identity", "stop_gradient": "Identity",
        "reduce_precision": "Identity",
    }.items()},
    "ne": _then("Equal", "Not"),
    "rsqrt": _then("Sqrt", "Reciprocal"),
    "log1p": _with_number("Add", 1, "Log"),
    "exp2": _with_number("Pow", 2, first=True),
    "expm1": _expm1,
    "square": _square,
    "integer_pow": _integer_pow,
    "is_finite": _is_finite,
    "select_n": _select,
    "clamp": _clamp,
    "convert_element_type": _convert,
    "and": _logic("And"),
    "or": _logic("Or"),
    "xor": _logic("Xor"),
    "not": _logic("Not"),
}  # fmt: skip


# Operations on shapes, sums and products: (graph, operation) sets the names of the results.


Other = Callable[[Graph, Operation], None]


def _broadcast_in_dim(graph: Graph, operation: Operation) -> None:
    (x, *_), (result,) = operation.operands, operation.results
    held, sizes = graph.held(x), [1] * len(result.shape)
    for axis, size in zip(operation.params["broadcast_dimensions"], held, strict=True):
        sizes[axis] = size
    name = graph.loose(x)
    if tuple(sizes) != held:
        name = graph.reshaped(name, sizes)
    graph.name(result, name, sizes)


def _reshape(graph: Graph, operation: Operation) -> None:
    (result,) = operation.results
    graph.name(result, graph.reshaped(graph.full(operation.operands[0]), result.shape))


def _held_reshape(graph: Graph, operation: Operation) -> None:
    """Axes of size 1 removed or added: a broadcast stays with its readers."""
    x, (result,) = operation.operands[0], operation.results
    held = list(graph.held(x))
    axes = sorted(axis % max(len(held), len(result.shape)) for axis in operation.params["dimensions"])
    for axis in reversed(axes) if operation.name == "squeeze" else axes:
        if operation.name == "squeeze":
            del held[axis]
        else:
            held.insert(axis, 1)
    graph.name(result, graph.reshaped(graph.loose(x), held), held)


def _transpose(graph: Graph, operation: Operation) -> None:
    x, order = operation.operands[0], operation.params["permutation"]
    held = graph.held(x)
    graph.name(
        operation.results[0], graph.node("Transpose", [graph.loose(x)], perm=list(order)), [held[i] for i in order]
    )


def _concatenate(graph: Graph, operation: Operation) -> None:
    names = [graph.full(x) for x in operation.operands]
    graph.name(operation.results[0], graph.node("Concat", names, axis=operation.params["dimension"]))


def _split(graph: Graph, operation: Operation) -> None:
    operands = [graph.full(operation.operands[0]), graph.integers(operation.params["sizes"])]
    names = graph.node_of_several("Split", operands, len(operation.results), axis=operation.params["axis"])
    for result, name in zip(operation.results, names, strict=True):
        graph.name(result, name)


def _sliced(graph: Graph, name: str, axes: Sequence[tuple[Any, ...]]) -> str:
    """``Slice`` along some axes: (axis, start, limit, stride)."""
    if not axes:
        return name
    which, starts, limits, strides = zip(*axes, strict=True)
    operands = [graph.integers(starts), graph.shape(limits), graph.integers(which), graph.integers(strides)]
    return graph.node("Slice", [name, *operands])


def _slice(graph: Graph, operation: Operation) -> None:
    x, params = operation.operands[0], operation.params
    strides = params["strides"] or (1,) * len(x.shape)
    each = zip(range(len(x.shape)), params["start_indices"], params["limit_indices"], strides, strict=True)
    axes = [one for one in each if (one[1], one[3]) != (0, 1) or one[2] != x.shape[one[0]]]
    graph.name(operation.results[0], _sliced(graph, graph.full(x), axes))


def _dynamic_slice(graph: Graph, operation: Operation) -> None:
    x, *starts = operation.operands
    name, sizes = graph.full(x), operation.params["slice_sizes"]
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if size == x.shape[axis]:
            continue
        if is_known(start):
            at = int(np.clip(start, 0, x.shape[axis] - size))
            name = _sliced(graph, name, [(axis, at, at + size, 1)])
        else:
            least, most = graph.integers([0]), graph.integers([x.shape[axis] - size])
            at = graph.node("Reshape", [graph.cast(graph.full(start), np.int64), graph.integers([1])])
            at = graph.node("Min", [graph.node("Max", [at, least]), most])
            end = graph.node("Add", [at, graph.integers([size])])
            name = graph.node("Slice", [name, at, end, graph.integers([axis])])
    graph.name(operation.results[0], name)


def _dynamic_update_slice(graph: Graph, operation: Operation) -> None:
    x, update, *starts = operation.operands
    axes = [i for i, (a, b) in enumerate(zip(x.shape, update.shape, strict=True)) if a != b]
    if len(axes) > 1 or any(not is_known(starts[i]) for i in axes):
        raise InputError("The policy writes into an array at computed indices, which has no counterpart in ONNX here.")
    name = graph.full(update)
    for axis in axes:
        size, length = update.shape[axis], x.shape[axis]
        at = int(np.clip(starts[axis], 0, length - size))
        whole = graph.full(x)
        parts = [_sliced(graph, whole, [(axis, 0, at, 1)])] if at else []
        parts.append(name)
        if at + size < length:
            parts.append(_sliced(graph, whole, [(axis, at + size, length, 1)]))
        name = graph.node("Concat", parts, axis=axis)
    graph.name(operation.results[0], name)


def _reverse(graph: Graph, operation: Operation) -> None:
    x = operation.operands[0]
    axes = [(axis, -1, -(2**62), -1) for axis in operation.params["dimensions"]]
    graph.name(operation.results[0], _sliced(graph, graph.full(x), axes))


def _pad(graph: Graph, operation: Operation) -> None:
    x, value = operation.operands
    low, high, inner = zip(*operation.params["padding_config"], strict=True)
    if any(inner):
        raise InputError("The policy pads between elements, which has no counterpart in ONNX here.")
    name = graph.full(x)
    if any(size > 0 for size in (*low, *high)):
        pads = graph.integers([max(size, 0) for size in (*low, *high)])
        name = graph.node("Pad", [name, pads, graph.full(value)])
    cut = [
        (axis, max(-a, 0), -max(-b, 0) if b < 0 else 2**62, 1)
        for axis, (a, b) in enumerate(zip(low, high, strict=True))
        if a < 0 or b < 0
    ]
    graph.name(operation.results[0], _sliced(graph, name, cut))


def _index(graph: Graph, operation: Operation) -> None:
    i = operation.params["i"]
    taken = _sliced(graph, graph.full(operation.operands[0]), [(0, i, i + 1, 1)])
    graph.name(operation.results[0], graph.node("Squeeze", [taken, graph.integers([0])]))


def _stack(graph: Graph, operation: Operation) -> None:
    axis = operation.params["axis"]
    rows = [graph.node("Unsqueeze", [graph.full(x), graph.integers([axis])]) for x in operation.operands]
    graph.name(operation.results[0], graph.node("Concat", rows, axis=axis))


def _size_as_number(graph: Graph, operation: Operation) -> None:
    size = graph.node("Squeeze", [graph.shape([operation.params["dim"]]), graph.integers([0])])
    graph.name(operation.results[0], graph.cast(size, operation.results[0].dtype))


def _bitcast(graph: Graph, operation: Operation) -> None:
    """Four bytes [..., 4] as a finite float32: (-1)^s · 2^(e - 127) · (1 + m / 2^23), or m · 2^-149 where e = 0."""
    x, (result,) = operation.operands[0], operation.results
    if (np.dtype(x.dtype), np.dtype(result.dtype)) != (np.uint8, np.float32):
        raise InputError("The policy reads the bits of a number, which has no counterpart in ONNX here.")
    axis, whole = len(x.shape) - 1, graph.cast(graph.full(x), np.int32)
    bytes_ = [
        graph.node("Squeeze", [_sliced(graph, whole, [(axis, i, i + 1, 1)]), graph.integers([axis])]) for i in range(4)
    ]

    def number(kind: str, a: str, b: int) -> str:
        return graph.node(kind, [a, graph.constant(np.int32(b))])

    exponent = graph.node("Add", [number("Mul", number("Mod", bytes_[3], 128), 2), number("Div", bytes_[2], 128)])
    mantissa = graph.node("Add", [bytes_[0], number("Mul", bytes_[1], 256)])
    mantissa = graph.node("Add", [mantissa, number("Mul", number("Mod", bytes_[2], 128), 65536)])
    parts = graph.cast(mantissa, np.float32)
    exponents = np.arange(256) - 127.0
    unit = graph.constant(np.exp2(np.maximum(exponents, -126.0) - 23).astype(np.float32))
    leading = graph.constant(np.where(np.arange(256) == 0, 0.0, 2.0**23).astype(np.float32))
    sign = graph.constant(np.array([1, -1], np.float32))
    size = graph.node("Add", [parts, graph.node("Gather", [leading, exponent])])
    size = graph.node("Mul", [size, graph.node("Gather", [unit, exponent])])
    graph.name(result, graph.node("Mul", [size, graph.node("Gather", [sign, number("Div", bytes_[3], 128)])]))


def _through_barrier(graph: Graph, operation: Operation) -> None:
    for x, result in zip(operation.operands, operation.results, strict=True):
        graph.name(result, graph.loose(x), graph.held(x))


def _reduction(kind: str) -> Other:
    def reduced(graph: Graph, operation: Operation) -> None:
        x, axes = operation.operands[0], [int(axis) for axis in operation.params["axes"]]
        name, logical = graph.full(x), x.dtype == bool
        if logical:
            name = graph.cast(name, np.int32)
        if not axes:
            pass
        elif kind == "ReduceSum":  # the only one whose axes are an operand in this version of the operators
            name = graph.node(kind, [name, graph.integers(axes)], keepdims=0)
        else:
            name = graph.node(kind, [name], axes=axes, keepdims=0)
        if logical:
            name = graph.cast(name, bool)
        graph.name(operation.results[0], name)

    return reduced


def _arg(kind: str) -> Other:
    def found(graph: Graph, operation: Operation) -> None:
        x, (axis,) = operation.operands[0], operation.params["axes"]
        name = graph.full(x)
        if x.dtype == bool:
            name = graph.cast(name, np.int32)
        name = graph.node(kind, [name], axis=int(axis), keepdims=0)
        graph.name(operation.results[0], graph.cast(name, operation.params["index_dtype"]))

    return found


def _cumulative_sum(graph: Graph, operation: Operation) -> None:
    axis, backwards = operation.params["axis"], int(operation.params["reverse"])
    operands = [graph.full(operation.operands[0]), graph.constant(np.asarray(axis, np.int64))]
    graph.name(operation.results[0], graph.node("CumSum", operands, reverse=backwards))


def _dot_general(graph: Graph, operation: Operation) -> None:
    """A product: both operands with the axes (batch, rows, inner) and (batch, inner, columns), then ``MatMul``."""
    (x, y), (result,) = operation.operands, operation.results
    (inner_x, inner_y), (batch_x, batch_y) = operation.params["dimension_numbers"]
    rows = [i for i in range(len(x.shape)) if i not in (*inner_x, *batch_x)]
    columns = [i for i in range(len(y.shape)) if i not in (*inner_y, *batch_y)]
    left = _ordered(graph, x, (*batch_x, *rows, *inner_x))
    right = _ordered(graph, y, (*batch_y, *inner_y, *columns))
    batch = [x.shape[i] for i in batch_x]

    def product(operand: Any, axes: Sequence[Any]) -> Any:
        found: Any = 1
        for axis in axes:
            found = found * operand.shape[axis]
        return found

    inner = product(x, inner_x)
    if len(inner_x) != 1 or (len(rows) != 1 and (batch or len(rows) == 0)):
        left = graph.reshaped(left, [*batch, product(x, rows), inner])
    if len(inner_y) != 1 or len(columns) != 1:
        right = graph.reshaped(right, [*batch, inner, product(y, columns)])
    made = graph.node("MatMul", [left, right])
    if len(columns) != 1 or len(inner_x) != 1 or (len(rows) != 1 and (batch or len(rows) == 0)):
        made = graph.reshaped(made, result.shape)
    graph.name(result, made)


def _ordered(graph: Graph, operand: Any, axes: Sequence[Any]) -> str:
    axes = [int(axis) for axis in axes]
    if axes == list(range(len(axes))):
        return graph.full(operand)
    if is_known(operand):
        return graph.constant(np.transpose(np.asarray(operand), axes))
    return graph.node("Transpose", [graph.full(operand)], perm=axes)


def _gather(graph: Graph, operation: Operation) -> None:
    """Slices, entries at indices (``x[:, i, j]``), or other entries in each row of the leading axes
    (``take_along_axis``). Indices are clipped to the axis."""
    x, indices = operation.operands
    numbers, (result,) = operation.params["dimension_numbers"], operation.results
    lead, rows = np.shape(indices)[:-1], tuple(numbers.operand_batching_dims)
    sizes = operation.params["slice_sizes"]
    whole = [a == b for a, b in zip(sizes, x.shape, strict=True)]
    if not lead and is_known(indices):  # x[i] and x[..., i:j]
        starts = zip(numbers.start_index_map, np.asarray(indices).tolist(), strict=True)
        at = {axis: min(max(start, 0), x.shape[axis] - sizes[axis]) for axis, start in starts if not whole[axis]}
        name = _sliced(graph, graph.full(x), [(axis, start, start + sizes[axis], 1) for axis, start in at.items()])
        if numbers.collapsed_slice_dims:
            name = graph.node("Squeeze", [name, graph.integers(numbers.collapsed_slice_dims)])
        graph.name(result, name)
        return
    axes = tuple(numbers.start_index_map)
    rest = [i for i in range(len(x.shape)) if i not in (*rows, *axes)]
    if (
        set(numbers.collapsed_slice_dims) != set(axes)
        or rows != tuple(range(len(rows)))
        or rows != tuple(numbers.start_indices_batching_dims)
        or not all(whole[i] for i in rest)
    ):
        raise InputError("The policy gathers entries in a way that has no counterpart in ONNX here.")
    most = np.array([x.shape[axis] - 1 for axis in axes], np.int64)
    if is_known(indices):
        at = graph.constant(np.clip(np.asarray(indices, np.int64), 0, most))
    else:
        at = graph.node("Max", [graph.cast(graph.full(indices), np.int64), graph.integers([0])])
        at = graph.node("Min", [at, graph.constant(most)])
    name = graph.node("GatherND", [_ordered(graph, x, (*rows, *axes, *rest)), at], batch_dims=len(rows))
    places = iter(range(len(lead)))  # of the indices' axes; then those of the array's rest follow
    others = iter(range(len(lead), len(result.shape)))
    order = [next(others) if i in numbers.offset_dims else next(places) for i in range(len(result.shape))]
    if order != sorted(order):
        name = graph.node("Transpose", [name], perm=order)
    graph.name(result, name)


OTHERS: dict[str, Other] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "squeeze": _held_reshape,
    "expand_dims": _held_reshape,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "split": _split,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "rev": _reverse,
    "pad": _pad,
    INDEX: _index,
    STACK: _stack,
    "bitcast_convert_type": _bitcast,
    "dim_as_value": _size_as_number,
    "optimization_barrier": _through_barrier,
    "reduce_sum": _reduction("ReduceSum"),
    "reduce_max": _reduction("ReduceMax"),
    "reduce_min": _reduction("ReduceMin"),
    "reduce_prod": _reduction("ReduceProd"),
    "reduce_or": _reduction("ReduceMax"),
    "reduce_and": _reduction("ReduceMin"),
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "cumsum": _cumulative_sum,
    "dot_general": _dot_general,
    "gather": _gather,
}
