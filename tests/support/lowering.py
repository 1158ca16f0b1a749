"""A context of MLIR for many programs instead of one for each, which takes a quarter of the time of a small one.

Tests lower thousands of programs of one operation. JAX has no option for this, so its function is replaced, where it
has it; contexts are renewed, since types and constants of all programs stay in them.
"""

import threading

from jax._src.interpreters import mlir
from jaxlib.mlir import ir

PROGRAMS = 200
"""Number of programs after which a thread takes another context."""


def install() -> None:
    """Let the threads of this process lower their programs in contexts that they keep."""
    new = getattr(mlir, "make_ir_context", None)
    if new is None:
        return
    kept = threading.local()

    def make_ir_context() -> object:
        if _inside_another():
            return new()
        uses = getattr(kept, "uses", 0)
        if uses % PROGRAMS == 0:
            kept.context = new()
        kept.uses = uses + 1
        return kept.context

    mlir.make_ir_context = make_ir_context


def _inside_another() -> bool:
    """Whether this thread lowers a program already: in the same context this one would become a part of it."""
    try:
        return ir.Context.current is not None
    except ValueError:
        return False
