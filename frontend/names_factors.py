"""The names of factors: QR and singular value decompositions, and what solvers make of LAPACK's raw ones.

The factors of one matrix fit each other, but not always those of another factorisation: if columns depend on
one another, or singular values are equal, there are many. So factors that are read beside others have other
names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqsat.frontend.draft import View
from eqsat.frontend.names_linalg import Views, matrices, name_result
from eqsat.frontend.naming import Labels, Made, applied
from eqsat.frontend.registry import names
from eqsat.ir.operations import OPERATIONS

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering


@names("qr")
def _qr(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    (view,) = operands
    params = equation.params
    if params.get("full_matrices") or params.get("pivoting") or len(results) != 2:
        return
    orthogonal, triangular = results
    if lowering.shape(view)[-2] < lowering.shape(view)[-1]:
        return
    labels = matrices(len(view.layout), "i", "j")
    of_factor = (*labels[:-2], "l", "j")
    labelled = [(view, labels)]
    name_result(lowering, equation, triangular, OPERATIONS["qr_r"], labelled, of_factor, unless=[orthogonal])
    if "complex" not in view.dtype:  # what is known of the factor is about transposes, not about conjugates
        name_result(lowering, equation, orthogonal, OPERATIONS["qr_q"], labelled, labels)
        name_result(lowering, equation, triangular, OPERATIONS["qr_r_beside_q"], labelled, of_factor)


@names("svd")
def _svd(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    (view,) = operands
    params = equation.params
    if params.get("algorithm") is not None or params.get("subset_by_index") is not None:
        return
    height, width = lowering.shape(view)[-2:]
    if "complex" in view.dtype:
        return
    # The transposed matrix has the same singular values.
    labels = matrices(len(view.layout), *(("i", "j") if height >= width else ("j", "i")))
    batch, labelled = labels[:-2], [(view, labels)]
    name_result(lowering, equation, results[0], OPERATIONS["svd_s"], labelled, (*batch, "l"))
    if len(results) == 3 and height >= width and not params["full_matrices"]:
        _, left, right = results
        of_right = (*batch, "l", "j")
        name_result(lowering, equation, left, OPERATIONS["svd_u"], labelled, (*batch, "i", "l"))
        name_result(lowering, equation, right, OPERATIONS["svd_v_beside_u"], labelled, of_right)
        name_result(lowering, equation, right, OPERATIONS["svd_v"], labelled, of_right, unless=[left])


# LAPACK stores reflections below the triangular factor, and JAX hands them out as they are (`mode="raw"`).

TURNED = "Q^T b"
"""What `ormqr` is said to make of a matrix and b, if the reflections are those of the matrix."""

FACTOR = "R above reflections"
"""What the first rows of LAPACK's factors of a matrix are said to be."""


@names("ormqr")
def _ormqr(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    reflections, scales, right = operands
    params = equation.params
    made = _factored(lowering, reflections)
    beside = lowering.made.get(scales.node)
    if made is None or beside is None or (beside.primitive, beside.result) != ("geqrf", 1):
        return
    if beside.operands == made.operands and params["left"] and params["transpose"]:
        lowering.made[results[0].node] = Made(TURNED, 0, (*made.operands, right), results[0])


def _factored(lowering: Lowering, view: View) -> Made | None:
    """Where a view comes from, if it is the first result of `geqrf` of a tall real matrix."""
    made = lowering.made.get(view.node)
    if made is None or (made.primitive, made.result) != ("geqrf", 0) or made.view.layout != view.layout:
        return None
    (matrix,) = made.operands
    tall = lowering.shape(matrix)[-2] >= lowering.shape(matrix)[-1]
    return made if tall and "complex" not in matrix.dtype else None


@names("slice")
def _first_rows(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """Note what the first rows of factors are, and name those of Q^T b, as many as the matrix has columns."""
    (view,), (result,) = operands, results
    made = _factored(lowering, view) or lowering.made.get(view.node)
    if made is None or made.primitive not in ("geqrf", TURNED) or made.view.layout != view.layout:
        return
    matrix = made.operands[0]
    width = lowering.shape(matrix)[-1]
    before, after = lowering.shape(view), lowering.shape(result)
    rows = len(before) - 2
    starts = equation.params["start_indices"]
    if equation.params["strides"] is not None or starts[rows] or after[rows] != width:
        return
    if any(before[d] != after[d] for d in range(len(before)) if d != rows):
        return
    if made.primitive == "geqrf":
        lowering.made[result.node] = Made(FACTOR, 0, (matrix,), result)
        return
    labels = matrices(len(before), "i", "j")
    labelled = [(matrix, labels), (made.operands[1], (*labels[:-1], "other"))]
    name_result(lowering, equation, result, OPERATIONS["qr_qt"], labelled, (*labels[:-2], "l", "other"))


@names("triangular_solve")
def _solve(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    """Name a solve that reads the triangular factor of LAPACK's factors, and not what is below."""
    factor, right = operands
    params, made = equation.params, lowering.made.get(factor.node)
    if made is None or made.primitive != FACTOR or made.view.layout != factor.layout:
        return
    if params["lower"] or params["unit_diagonal"] or params["transpose_a"] or not params["left_side"]:
        return
    (matrix,) = made.operands
    labels = matrices(len(factor.layout), "i", "j")
    of_factor: Labels = (*labels[:-2], "l", "j")
    spec, (result,) = OPERATIONS["qr_r_beside_q"], results

    def build() -> View | None:
        shape = lowering.shape(factor)
        r = applied(lowering, spec, [(matrix, labels)], of_factor, shape, factor.dtype)
        if r is None:
            return None
        solved = [(r, labels), (right, (*labels[:-1], "other"))]
        of_result: Labels = (*labels[:-2], "j", "other")
        solve = OPERATIONS["solve_upper"]
        return applied(lowering, solve, solved, of_result, lowering.shape(result), result.dtype)

    lowering.name(equation, result, build)
