"""Horizontal fusion: products of one matrix with several narrow ones, and its sums, computed as one product.

Multiplying a matrix by a few columns takes little longer than reading it. Gradients multiply the same matrix
several times: Σ_c P_ac v_c and Σ_c P_ac W_cb are columns of Σ_c P_ac [v W]_cz, which takes little longer than
either of them (docs/log/products.md). Rules cannot express this: a rule rewrites one term at a time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.engine.cost import CostModel
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Chunk, Dot, Map, Reduce, Rename
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, FusedProducts, Schedule
from eqsat.planning.memo import NO_CHUNKS, Remembered
from eqsat.planning.storage import is_given
from eqsat.targets.machine import Machine

MOST_COLUMNS = 128
"""The most columns of all narrow matrices together: with more, reading the large one hardly counts."""

READING = 9
"""Reading a matrix takes as long as multiplying it by this many columns."""

LARGE = 1.5
"""A matrix is large if its rows, and the entries summed per row, are at least this many times the columns of
the narrow operands.

So joining the operands and separating the products copies no more than is read of the matrix.
"""

COPYING = 8
"""The same factor for rows alone, if the narrow operands are concatenated again in every iteration."""

NEARBY = 8
"""The number of later products of a matrix considered for fusion with one: a recurrence has thousands."""

MOST_STEPS = 16
"""The most terms of a later product's operand that may be computed early, for the first product."""

LEAST_BYTES = 1 << 18
"""The smallest matrix considered, in bytes: reading a smaller one takes no longer than starting a product."""

FLOATS = frozenset({"float32", "float64"})

_FUSED: Remembered[tuple[FusedProducts, ...]] = Remembered()


@dataclass(frozen=True, slots=True)
class _Product:
    """A step that multiplies a matrix by a narrow one, or sums it; a sum has neither `op` nor `narrow`.

    **Attributes:**

    - `step`: the position of the step in its block.
    - `added`: the axes that are summed over.
    """

    step: int
    term: Term
    op: Dot | None
    matrix: Term
    narrow: Term | None
    added: frozenset[Axis]
    columns: int


def padded(columns: int) -> int:
    """The most columns with which a product takes no longer than with `columns` (docs/log/products.md).

    >>> [padded(columns) for columns in (1, 3, 5, 9, 17)]
    [1, 4, 8, 16, 32]
    """
    if columns == 1:
        return 1
    tile = 4 if columns <= 4 else 8 if columns <= 8 else 16
    return math.ceil(columns / tile) * tile


def fused_products(block: Block, model: CostModel) -> tuple[FusedProducts, ...]:
    """The groups of products in a block that are fused, each in the order of the steps."""
    if not (model.machine.joins and model.machine.copies):
        return ()
    return _FUSED.recall(block, model, NO_CHUNKS, lambda: tuple(_fused_products(block, model)))


def _fused_products(block: Block, model: CostModel) -> Iterator[FusedProducts]:
    alike: dict[Hashable, list[_Product]] = {}
    for product in _products(block, model):
        alike.setdefault((product.matrix.number, product.added), []).append(product)
    places = {
        result.number: index
        for index, step in enumerate(block.steps)
        for result in step.results
        if not is_given(result)
    }
    for products in alike.values():
        taken: set[int] = set()
        for place, first in enumerate(products):
            if first.step in taken:
                continue
            later = products[place + 1 : place + 1 + NEARBY]
            together = _together(first, [p for p in later if p.step not in taken], places, model)
            taken.update(product.step for product in together)
            op = next((product.op for product in together if product.op), None)
            if op is not None and len(together) > 1:
                yield _fusion(op, together, places, model)


def _products(block: Block, model: CostModel) -> Iterator[_Product]:
    """The products of a large matrix with a narrow one in a block, and the sums of large matrices."""
    for index, step in enumerate(block.steps):
        if not isinstance(step, Compute):
            continue
        term = step.term
        if (
            term.number in block.apart
            or term.dtype not in FLOATS
            or any(arg.dtype != term.dtype for arg in term.args)
        ):
            continue
        match term.op:
            case Reduce(kind="sum", axes=added) if _is_large(term.args[0], added, 1, model):
                yield _Product(index, term, None, term.args[0], None, added, 1)
            case Dot(axes=added) as op if term.args[0].axes & term.args[1].axes == added:
                for matrix, narrow in (term.args, term.args[::-1]):
                    columns = _columns(narrow, added)
                    if columns and _is_large(matrix, added, columns, model):
                        yield _Product(index, term, op, matrix, narrow, added, columns)
                        break


def _columns(value: Term, added: frozenset[Axis]) -> int | None:
    """The number of columns of a narrow matrix: all axes but those added; None if one of them is chunked."""
    columns = value.axes - added
    return None if columns & value.open else math.prod(axis.size for axis in columns)


def _is_large(matrix: Term, added: frozenset[Axis], columns: int, model: CostModel) -> bool:
    """Whether a matrix is large compared with a narrow one of `columns` columns, and takes long to read."""
    sides = (model.elements(axes, matrix.open) for axes in (matrix.axes - added, added))
    return LARGE * columns <= min(sides) and columns <= MOST_COLUMNS and model.bytes(matrix) >= LEAST_BYTES


def _together(
    first: _Product, others: Sequence[_Product], places: Mapping[int, int], model: CostModel
) -> list[_Product]:
    """A product, followed by those of the others that are worth fusing with it."""
    found = [first]
    rows = model.elements(first.matrix.axes - first.added, first.matrix.open)
    for other in others:
        before = sum(product.columns for product in found)
        columns = padded(before + other.columns)
        longer = columns - padded(before) - padded(other.columns)
        ops = {product.op for product in (*found, other) if product.op}
        copied = any(product.narrow and product.narrow.number in places for product in (*found, other))
        if (
            len(ops) == 1
            and longer < READING
            and _is_large(first.matrix, first.added, columns, model)
            and (not copied or rows >= COPYING * columns)
            and _is_ready(other, first.step, places, model)
        ):
            found.append(other)
    return found


def _is_ready(product: _Product, step: int, places: Mapping[int, int], model: CostModel) -> bool:
    """Whether a product's narrow operand is available at an earlier step, or cheap to compute there."""
    if product.narrow is None:
        return True
    most = model.elements(product.narrow.axes, product.narrow.open)
    waiting, seen = [product.narrow], {product.narrow.number}
    while waiting:
        term = waiting.pop()
        if places.get(term.number, -1) < step:
            continue
        if not isinstance(term.op, (Map, Chunk, Rename)) or model.elements(term.axes, term.open) > most:
            return False
        if len(seen) > MOST_STEPS:
            return False
        waiting += [arg for arg in term.args if arg.number not in seen]
        seen.update(arg.number for arg in term.args)
    return True


def _fusion(
    op: Dot, products: Sequence[_Product], places: Mapping[int, int], model: CostModel
) -> FusedProducts:
    matrix = products[0].matrix
    narrow = tuple(product.narrow for product in products)
    columns = padded(sum(product.columns for product in products))
    row = columns * itemsize(matrix.dtype)
    size = row * model.elements(op.axes, matrix.open)
    inside = any(value is not None and value.number in places for value in narrow)
    return FusedProducts(
        op,
        matrix,
        tuple(product.term for product in products),
        narrow,
        columns,
        size if inside else 0,
        0 if inside else size,
        row * model.elements(matrix.axes - op.axes, matrix.open),
    )


def fused_products_in(schedule: Schedule, machine: Machine) -> dict[Block, tuple[FusedProducts, ...]]:
    """By block, the products that are fused, for a whole schedule."""
    found: dict[Block, tuple[FusedProducts, ...]] = {}

    def within(block: Block, lengths: Mapping[Axis, int]) -> None:
        if here := fused_products(block, CostModel(machine, lengths)):
            found[block] = here
        for body in block.bodies:
            within(body, lengths)
        for loop in block.own_loops:
            within(loop.body, {**lengths, loop.axis: schedule.chunks[loop.id]})

    within(schedule.block, {})
    return found
