"""Named operations as JAX expressions.

Most JAX functions take arrays with more dimensions than an operation's core axes, each in a way of its
own. Where one surely does what the operation means for every slice, it is called directly; everything
else is mapped over the other axes by `jax.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.backend.elementwise import dtype_text
from eqsat.backend.layout import (
    Emitted,
    Lengths,
    broadcastable,
    length_text,
    merge_orders,
    shape_text,
    transposed,
    tuple_text,
)
from eqsat.backend.magnitudes import PLACES, magnitude_text
from eqsat.backend.namespace import Namespace
from eqsat.ir.axis import Axis
from eqsat.ir.operation_function import core_sizes, filled, operand_names
from eqsat.ir.ops import Operation

Order = tuple[Axis, ...]
Native = Callable[[Operation, Sequence[Emitted], Lengths], Emitted | None]


def operation_text(op: Operation, operands: Sequence[Emitted], lengths: Lengths, names: Namespace) -> Emitted:
    """`op` applied to operands, as an expression."""
    native = _NATIVE.get(op.spec.name) if op.spec.function is None else None
    value = native(op, operands, lengths) if native else None
    if value is None:
        value = _mapped(op, operands, names)
    if op.spec.dtype:
        # An index is as wide as JAX's settings say, unless it is told.
        return Emitted(f"lax.convert_element_type({value.text}, {dtype_text(op.dtype)})", value.order)
    return value


def _text(op: Operation, operands: Sequence[str]) -> str:
    return filled(op.spec, operands, {letter: str(size) for letter, size in core_sizes(op).items()})


def _rest(op: Operation, order: Order) -> Order:
    """The axes along which the operation is done slice by slice."""
    return tuple(axis for axis in order if axis not in op.axes)


# Mapping over all other axes.


def _mapped(op: Operation, operands: Sequence[Emitted], names: Namespace) -> Emitted:
    """The operation as a function of core axes, mapped over every other axis, one `jax.vmap` for each."""
    arranged = []
    for operand, (_, letters) in zip(operands, op.spec.signature.operands, strict=True):
        core = iter(op.core(letters))
        arranged.append(transposed(operand, [next(core) if a in op.axes else a for a in operand.order]))
    batch = merge_orders([_rest(op, operand.order) for operand in arranged])
    texts = [operand.text for operand in arranged]
    order = (*batch, *op.core(op.spec.signature.result))
    if op.spec.function is not None:
        function = names.function(op.spec.function, op.spec.name)
    elif not batch:
        return Emitted(_text(op, texts), order)
    else:
        parameters = operand_names(op.spec)
        function = f"lambda {', '.join(parameters)}: {_text(op, parameters)}"
    mapped = _vmapped(function, [operand.order for operand in arranged], batch)
    return Emitted(f"{mapped}({', '.join(texts)})", order)


def _vmapped(function: str, orders: Sequence[Order], batch: Order) -> str:
    """A function mapped over the axes of `batch`, the first one outermost."""
    text = function
    for level in reversed(range(len(batch))):
        left = [[axis for axis in order if axis not in batch[:level]] for order in orders]
        places = [str(order.index(batch[level])) if batch[level] in order else "None" for order in left]
        if set(places) == {"0"}:
            text = f"jax.vmap({text})"
        else:
            text = f"jax.vmap({text}, in_axes={places[0] if len(places) == 1 else tuple_text(places)})"
    return text


# Functions that do the same for arrays of more dimensions.


def _of_matrices(op: Operation, operands: Sequence[Emitted], lengths: Lengths) -> Emitted:
    """A function of the last two dimensions."""
    (matrix,) = operands
    core = op.core(op.spec.signature.operands[0][1])
    rest = _rest(op, matrix.order)
    text = _text(op, [transposed(matrix, (*rest, *core)).text])
    return Emitted(text, (*rest, *op.core(op.spec.signature.result)))


def _triangle(op: Operation, operands: Sequence[Emitted], lengths: Lengths) -> Emitted:
    """A triangle of a matrix: of one that lies the other way round, it is the other triangle."""
    (matrix,) = operands
    rows, columns = (matrix.order.index(axis) for axis in op.axes)
    order = (*_rest(op, matrix.order), *(axis for axis in matrix.order if axis in op.axes))
    lower = (op.spec.name == "tril") == (rows < columns)
    return Emitted(f"jnp.{'tril' if lower else 'triu'}({transposed(matrix, order).text})", order)


def _diagonal(op: Operation, operands: Sequence[Emitted], lengths: Lengths) -> Emitted:
    (matrix,) = operands
    rows, columns = (matrix.order.index(axis) for axis in op.axes)
    order = (*_rest(op, matrix.order), op.axes[0])
    if len(matrix.order) == 2:
        return Emitted(f"jnp.diagonal({matrix.text})", order)
    return Emitted(f"jnp.diagonal({matrix.text}, axis1={rows}, axis2={columns})", order)


def _along(text: str) -> Native:
    """A function along the one dimension {axis}, whose result's length is {size}, if it has any."""

    def native(op: Operation, operands: Sequence[Emitted], lengths: Lengths) -> Emitted:
        (operand,) = operands
        axis = op.axes[0]
        result = op.core(op.spec.signature.result)
        place = operand.order.index(axis)
        size = result[0].size if result else 0
        order = (*operand.order[:place], *result, *operand.order[place + 1 :])
        return Emitted(text.format(a=operand.text, axis=place, size=size), order)

    return native


def _reshaped(op: Operation, operands: Sequence[Emitted], lengths: Lengths) -> Emitted:
    """Two neighbouring dimensions as one, or one as two, where they stand."""
    (operand,) = operands
    core = op.core(op.spec.signature.operands[0][1])
    place = operand.order.index(core[0])
    before, after = (_rest(op, part) for part in (operand.order[:place], operand.order[place:]))
    order = (*before, *op.core(op.spec.signature.result), *after)
    text = transposed(operand, (*before, *core, *after)).text
    return Emitted(f"jnp.reshape({text}, {shape_text(order, lengths)})", order)


def _take(op: Operation, operands: Sequence[Emitted], lengths: Lengths) -> Emitted | None:
    """Entries along one dimension, whole slices of them if the index lacks the others."""
    operand, index = operands
    (axis,) = op.axes
    if set(operand.order) & set(index.order):
        return None
    place = operand.order.index(axis)
    text = _text(op, [operand.text, f"{':, ' * place}{index.text}"])
    return Emitted(text, (*operand.order[:place], *index.order, *operand.order[place + 1 :]))


# Linear systems.


def _solved(
    op: Operation, matrix: Emitted, right: Emitted, lengths: Lengths, solve: Callable[[str, str], str]
) -> Emitted:
    """Linear systems whose right-hand sides are the columns of matrices.

    **Arguments:**

    - `matrix`: its last two dimensions are the core axes, in either order.
    - `solve`: the text of a solution, from those of a matrix and of its right-hand sides: an array of
      the same dimensions but for columns, or one vector.
    """
    rows, unknowns = op.axes
    batch = _rest(op, matrix.order)
    columns = tuple(axis for axis in right.order if axis != rows and axis not in batch)
    text = broadcastable(right, (*batch, rows, *columns))
    if not batch and len(columns) <= 1:
        return Emitted(solve(matrix.text, text), (unknowns, *columns))
    if len(columns) == 1:
        return Emitted(solve(matrix.text, text), (*batch, unknowns, *columns))
    # All columns as one dimension; one column has none yet.
    outer = [length_text(axis, lengths) if axis in right.order else "1" for axis in batch]
    count = " * ".join(length_text(axis, lengths) for axis in columns) or "1"
    flat = f"jnp.reshape({text}, {tuple_text([*outer, str(rows.size), count])})"
    order = (*batch, unknowns, *columns)
    return Emitted(f"jnp.reshape({solve(matrix.text, flat)}, {shape_text(order, lengths)})", order)


def _solve(op: Operation, operands: Sequence[Emitted], lengths: Lengths) -> Emitted:
    matrix, right = operands
    arranged = transposed(matrix, (*_rest(op, matrix.order), *op.axes))
    return _solved(op, arranged, right, lengths, lambda a, b: f"jnp.linalg.solve({a}, {b})")


def _solve_triangular(op: Operation, operands: Sequence[Emitted], lengths: Lengths) -> Emitted:
    """A matrix that lies the other way round stays so: its transpose is solved with instead."""
    matrix, right = operands
    rows, unknowns = op.axes
    flipped = matrix.order.index(rows) > matrix.order.index(unknowns)
    batch = _rest(op, matrix.order)
    matrix = transposed(matrix, (*batch, *(op.axes[::-1] if flipped else op.axes)))
    lower = (op.spec.name == "solve_lower") != flipped
    columns = _rest(op, right.order)
    if not batch and len(columns) == 1:
        # LAPACK reads an array by columns: solved from the right, none has to be copied.
        text = broadcastable(right, (*columns, rows))
        options = f"lower={lower}{'' if flipped else ', transpose_a=True'}"
        return Emitted(f"lax.linalg.triangular_solve({matrix.text}, {text}, {options})", (*columns, unknowns))
    options = f"{'trans=1, ' if flipped else ''}lower={lower}"
    return _solved(
        op,
        matrix,
        right,
        lengths,
        lambda a, b: f"jax.scipy.linalg.solve_triangular({a}, {b}, {options})",
    )


def _magnitude(op: Operation, operands: Sequence[Emitted], lengths: Lengths) -> Emitted | None:
    (operand,) = operands
    return magnitude_text(op, operand)


_NATIVE: dict[str, Native] = {
    **dict.fromkeys(PLACES, _magnitude),
    **dict.fromkeys(("inv", "det", "logdet", "cholesky", "qr_q", "qr_r", "eigenvalues"), _of_matrices),
    **dict.fromkeys(("qr_r_beside_q", "svd_u", "svd_s", "svd_v", "svd_v_beside_u"), _of_matrices),
    **dict.fromkeys(("tril", "triu"), _triangle),
    "diagonal": _diagonal,
    "softmax": _along("jax.nn.softmax({a}, axis={axis})"),
    "logsumexp": _along("jax.nn.logsumexp({a}, axis={axis})"),
    "sort": _along("jnp.sort({a}, axis={axis})"),
    "argsort": _along("jnp.argsort({a}, axis={axis})"),
    "reverse": _along("lax.rev({a}, ({axis},))"),
    "head": _along("lax.slice_in_dim({a}, 0, {size}, axis={axis})"),
    **dict.fromkeys(("merge", "split"), _reshaped),
    "take": _take,
    "solve": _solve,
    **dict.fromkeys(("solve_lower", "solve_upper"), _solve_triangular),
}
"""By name of the operation; a result of None means that it has to be mapped after all."""
