"""Files of an exported policy: the model, and beside it a description in JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import jax

from shoal.environments.interface import parsed
from shoal.errors import InputError
from shoal.export.function import PolicyFunction
from shoal.export.onnx import OPSET, to_onnx
from shoal.export.program import BATCH, shapes_unchecked, symbolic, traced
from shoal.spec import Discrete, EnvSpec
from shoal.system.files import dumps, make_folder, write_bytes, write_text

Format = Literal["onnx", "stablehlo"]
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""On which StableHLO runs."""
VERSION = 1
"""Of the description."""


def check_path(path: Path, form: Format) -> None:
    """Check where a model is to be written, before anything is computed.

    Raises:
        InputError: its suffix is not that of the format.
    """
    if path.suffix != f".{form}":
        if (other := path.suffix[1:]) in get_args(Format):
            raise InputError(f"{path} is to be written in the format {form}; for this name the format is {other}.")
        raise InputError(f"{path} must end in .{form}; the description is written beside it as .{form}.json.")


def write_policy(path: Path, function: PolicyFunction, form: Format, title: str, mode: str) -> Path:
    """Write a policy and its description; the model first, so that a description is never without one.

    Args:
        path: of the model, whose folder is created if needed; the description has the same name followed by ``.json``.
        function: the policy.
        form: ``onnx``, or ``stablehlo`` as :func:`jax.export.deserialize` reads it.
        title: where the policy comes from.
        mode: how the team acts, ``greedy`` or ``sampled``; the description says it, and the model has both.

    Returns:
        ``path``.

    Raises:
        InputError: an operation cannot be written in this format, the policy draws random numbers, or ``onnx`` is not
            installed.
        WriteError: the disk is full, or the folder cannot be created.
    """
    check_path(path, form)
    program = traced(function.apply, function.inputs).needed(function.outputs)
    if any(operation.name.startswith(("random_", "threefry")) for operation in program.operations):
        raise InputError(
            "The policy draws random numbers even where it acts greedily, as scripts, opponents that play at random "
            "and the members of an ensemble do, and a model has none: it cannot be exported. Beside such opponents, "
            "export the agents that learned one by one (agent)."
        )
    model = to_onnx(program, "policy", {"title": title}) if form == "onnx" else _stablehlo(function)
    description = described(function, form) | {"mode": mode, "file": path.name, "title": title}
    make_folder(path.parent)
    write_bytes(path, model)
    write_text(path.with_name(f"{path.name}.json"), dumps(description, "policy", indent=1) + "\n")
    return path


def _stablehlo(function: PolicyFunction) -> bytes:
    with shapes_unchecked():
        exported = jax.export.export(jax.jit(function.apply), platforms=PLATFORMS)(symbolic(function.inputs))
    return bytes(exported.serialize())


def described(function: PolicyFunction, form: Format) -> dict[str, Any]:
    """What a program needs to know to run the policy, as JSON."""
    spec = function.spec

    def ports(of: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            {"name": name, "dtype": port.dtype, "shape": [BATCH, *port.shape], "axes": [BATCH, *port.axes]}
            | {"meaning": port.meaning}
            for name, port in of.items()
        ]

    return {
        "version": VERSION,
        "format": form,
        **({"opset": OPSET} if form == "onnx" else {"jax": jax.__version__}),
        "environment": spec.name,
        "agents": [_agent(spec, i) for i in function.agents],
        "action": _action(spec),
        "inputs": ports(function.inputs),
        "outputs": ports(function.outputs),
        "state": {name: f"next_{name}" for name in function.state},
    }


def _agent(spec: EnvSpec, i: int) -> dict[str, Any]:
    parts = None if spec.parts is None else spec.parts[i]
    arrays = [] if parts is None else [{"name": p.name, "shape": list(p.shape), "dtype": p.dtype} for p in parts]
    about = {"name": spec.agents[i], "features": spec.obs_dims[i], "actions": spec.action_dims[i]}
    space = {"space": parsed(spec.interface).actions[i]} if spec.interface else {}
    return about | space | ({"observation": arrays} if arrays else {})


def _action(spec: EnvSpec) -> dict[str, Any]:
    if isinstance(spec.action, Discrete):
        return {"kind": "discrete", "count": spec.action.n}
    return {"kind": "box", "low": spec.action.low, "high": spec.action.high, "dimensions": spec.action.dim}
