"""Matrices for routines of LAPACK, and of cuSOLVER, which take column after column.

A compiler gives an array the order in which a routine reads it, from where the array is made on. Chunks of
an input are made of the input: the compiler would bring all of it into the other order, ahead of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.backend.layout import Emitted
from eqsat.ir.axis import Axis, Layout
from eqsat.ir.ops import Call, Operation
from eqsat.ir.term import Term

COLUMNS = "columns_in_order"
"""The name of the function in the emitted program."""

FUNCTION = f"""def {COLUMNS}(a):
    # A library takes column after column. XLA would bring whole inputs into this order, ahead of the loop.
    return jnp.swapaxes(lax.optimization_barrier(jnp.swapaxes(a, -1, -2)), -1, -2)
"""

PRIMITIVES = frozenset(
    {"cholesky", "eig", "eigh", "geqrf", "householder_product", "lu", "ormqr", "qr", "schur", "svd"}
)
"""Primitives that are routines, for the last two dimensions of their operands."""

SOLVES = frozenset({"triangular_solve", "solve_lower", "solve_upper"})
"""Those of which the same is true for a batch of matrices: one is read as it lies."""

OPERATIONS = frozenset(
    {"cholesky", "det", "eigenvalues", "inv", "logdet", "qr_q", "qr_qt", "qr_r", "qr_r_beside_q", "solve"}
    | {"svd_s", "svd_u", "svd_v", "svd_v_beside_u"}
)
"""Operations of which the first operand is a matrix for one."""


def operand_of_call(text: str, call: Call, arg: Term, layout: Layout) -> str:
    """An operand of a call as its routine takes it, in a loop over chunks."""
    name = call.primitive.name
    called = name in PRIMITIVES or (name in SOLVES and len(layout) > 2)
    # The scales of reflections are vectors.
    matrix = called and arg.open and len(layout) == len(call.arg_layouts[0]) and None not in layout[-2:]
    return f"{COLUMNS}({text})" if matrix else text


def operands_of(op: Operation, args: Sequence[Term], operands: Sequence[Emitted]) -> list[Emitted]:
    """The operands of an operation as its routine takes them, in a loop over chunks."""
    found = list(operands)
    matrix = found[0] if found else None
    order: tuple[Axis, ...] = matrix.order if matrix is not None else ()
    core, name = order[-2:], op.spec.name
    called = name in OPERATIONS or (name in SOLVES and len(order) > 2)
    if called and args[0].open and len(core) == 2 and set(core) <= set(op.axes):
        assert matrix is not None
        found[0] = Emitted(f"{COLUMNS}({matrix.text})", matrix.order)
    return found
