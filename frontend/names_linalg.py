"""The names of calls, and of linear algebra."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from jax.extend.core import ClosedJaxpr

from eqsat.frontend.draft import View
from eqsat.frontend.naming import Labels, Made, applied
from eqsat.frontend.registry import names
from eqsat.ir.axis import is_flat
from eqsat.ir.operations import OPERATIONS, OperationSpec
from eqsat.ir.ops import Dot, Leaf, Map

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

Views = Sequence[View]

FACTOR = "tril(cholesky)"
"""What a Cholesky factor is said to be made by when all above its diagonal has been set to 0."""


@names("jit", "pjit")
def _call(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    for match in lowering.recogniser.matches(equation.params["name"], equation.params["jaxpr"]):
        views = operands[match.first : match.first + len(match.operands)]
        labelled = list(zip(views, match.operands, strict=True))
        name_result(lowering, equation, results[match.result], match.spec, labelled, match.labels)


def name_result(
    lowering: Lowering,
    equation: Any,
    body: View,
    spec: OperationSpec,
    operands: Sequence[tuple[View, Labels]],
    labels: Labels,
    unless: Views = (),
) -> None:
    """Note that a result of an equation is an operation, its dimensions being `labels`."""
    shape = lowering.shape(body)
    lowering.name(
        equation, body, lambda: applied(lowering, spec, operands, labels, shape, body.dtype), unless
    )


def matrices(rank: int, *last: Hashable) -> Labels:
    """Labels of arrays of matrices (or of vectors): all dimensions but the last are the batch."""
    return (*(("batch", dimension) for dimension in range(rank - len(last))), *last)


# A solve with a triangular matrix: a transposed matrix is one whose rows and columns have changed names.


@names("triangular_solve")
def _triangular_solve(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    matrix, right = operands
    params = equation.params
    if params["unit_diagonal"] or (params["conjugate_a"] and "complex" in matrix.dtype):
        return
    # a x = b is sum_j a_ij x_j = b_i; x a = b is sum_j x_j a_ji = b_i, and so is a.T x = b.
    transposed = params["left_side"] == params["transpose_a"]
    spec = OPERATIONS["solve_lower" if params["lower"] != transposed else "solve_upper"]
    rank = len(matrix.layout)
    of_matrix = matrices(rank, "j", "i") if transposed else matrices(rank, "i", "j")

    def vectors(letter: str) -> Labels:
        return matrices(rank, *((letter, "other") if params["left_side"] else ("other", letter)))

    labelled = [(matrix, of_matrix), (right, vectors("i"))]
    name_result(lowering, equation, results[0], spec, labelled, vectors("j"))


# The primitive reads the lower triangle of its operand, and leaves what it likes above the diagonal of
# its result. So it is no operation itself: what it is for symmetric matrices, its callers say.


@names("select_n")
def _cholesky(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """Note the origin of a factor whose entries above the diagonal have been set to 0."""
    if len(operands) != 3:
        return
    which, zero, factor = operands
    made = lowering.made.get(factor.node)
    if made is None or made.primitive != "cholesky" or lowering.constant_value(zero) != 0:
        return
    rows, columns = made.view.layout[-2:]
    if rows is not None and columns is not None and _is_lower_triangle(lowering, which, rows, columns):
        lowering.made[results[0].node] = Made(FACTOR, 0, made.operands, results[0])


def _is_lower_triangle(lowering: Lowering, view: View, rows: int, columns: int) -> bool:
    """Whether a view says where the index along `rows` is at least that along `columns`."""
    draft = lowering.draft
    node = draft.nodes[view.node]
    if len(node.args) != 2 or draft.op(view.node) != Map("ge", "bool"):
        return False
    return all(map(draft.counts_along, node.args, (rows, columns)))


# A solve with any matrix: `custom_linear_solve` promises that what it returns is the solution for the
# matrix that its `matvec` multiplies by. That it is found directly, by a factorisation of that same
# matrix, is seen from where the factors were made.


@names("custom_linear_solve")
def _solve(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    lengths = equation.params["const_lengths"]
    if lengths.matvec != 1 or len(results) != 1 or equation.params["jaxprs"].matvec is None:
        return
    matrix, right = operands[0], operands[-1]
    start = lengths.matvec + lengths.vecmat
    factors = operands[start : start + lengths.solve]
    if not any(_is_factor(lowering, factor, matrix) for factor in factors):
        return
    labels = _multiplied(equation.params["jaxprs"].matvec)
    if labels is None:
        return
    of_matrix, of_right, of_result = labels
    labelled = [(matrix, of_matrix), (right, of_right)]
    name_result(lowering, equation, results[0], OPERATIONS["solve"], labelled, of_result)


def _is_factor(lowering: Lowering, factor: View, matrix: View) -> bool:
    """Whether a view was made by factorising that matrix (or its transpose, where they are the same)."""
    made = lowering.made.get(factor.node)
    if made is None or (made.primitive, made.result) not in {("lu", 0), (FACTOR, 0)}:
        return False
    (origin,) = made.operands
    atoms = lowering.draft.axes.atoms
    first, second = (
        [None if axis is None else atoms(axis) for axis in view.layout] for view in (origin, matrix)
    )
    swapped = [*first[:-2], first[-1], first[-2]]
    return origin.node == matrix.node and (
        first == second or (made.primitive == FACTOR and swapped == second)
    )


def _multiplied(matvec: ClosedJaxpr) -> tuple[Labels, Labels, Labels] | None:
    """If a function of a matrix and an array multiplies the two, along which dimensions.

    **Returns:** what the dimensions are of the matrix A, of b and of x in the solution of A x = b.
    """
    # Late, since lowering knows all namers.
    from eqsat.frontend.lower import lower

    program, constants = lower(matvec)
    if constants or len(program.inputs) != 2 or len(program.outputs) != 1:
        return None
    (output,) = program.outputs
    product = output.term
    if (
        not isinstance(product.op, Dot)
        or len(product.op.axes) != 1
        or set(product.args) != set(program.inputs)
    ):
        return None
    (summed,) = product.op.axes
    matrix, vectors = (leaf.op.layout for leaf in program.inputs if isinstance(leaf.op, Leaf))
    if not all(map(is_flat, (matrix, vectors, output.layout))):
        return None
    rows = output.layout[vectors.index(summed)]
    if rows is None or rows in vectors or rows not in matrix:
        return None
    letters: dict[Hashable, Hashable] = {summed: "j", rows: "i"}
    of_matrix, of_right, of_result = (
        tuple(letters.get(axis, axis) for axis in layout) for layout in (matrix, output.layout, vectors)
    )
    if of_right != tuple("i" if label == "j" else label for label in of_result):
        return None
    return of_matrix, of_right, of_result
