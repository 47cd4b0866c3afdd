"""Products that are rounded before something is added, so that a value is the same wherever it is computed.

XLA computes `a * b - c` with one rounding where the product has no other use in a kernel. So entries of a
product may exceed their own maximum, which another kernel has taken from rounded products, and
`exp(t - max(t))` overflows where the products are large. XLA can't add to what was selected by a condition on
the product before that is rounded.

The same holds for a value of which the next whole number is taken, and which is read otherwise as well: as
for the place of a pixel, and its share. One kernel may take a sum with a product for 5, and another one for a
little less; then the share is that of another pixel. And it holds for a value that is compared with an entry
of itself: `xs == xs[i]` would find none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from eqsat.ir.comparing import compared
from eqsat.ir.dtypes import is_inexact, is_real_float
from eqsat.ir.formula import Monoid
from eqsat.ir.moving_calls import MOVING
from eqsat.ir.ops import Chunk, Concat, Const, Fold, Map, Opaque, Operation, Reduce, Rename, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term

ROUNDED = "rounded"
"""The name of the function in the emitted program."""

ROUNDING = """def rounded(product):
    # The same numbers. XLA would add to the exact product otherwise, and compare the sum with rounded ones.
    return jnp.where(jnp.isnan(product), jnp.nan, product)
"""

PRODUCTS = frozenset({"mul", "square", "integer_pow"})

SUMS = frozenset({"add", "sub"})

JUMPS = frozenset({"floor", "ceil", "round"})
"""Functions to whole numbers."""

PLACED = frozenset({*MOVING, "squeeze", "stack", "unstack"})
"""Primitives that only move entries, to places that do not depend on values."""

MOVED = PLACED | {"dynamic_slice"}
"""Primitives that only move entries."""

PLACED_BY = frozenset({"append", "diagonal", "head", "merge", "reverse", "split", "tril", "triu"})
"""The same for named operations."""

SUMMING = frozenset(
    {
        "conv_general_dilated", "cumsum", "fft", "reduce_window_sum", "scatter-add", "scatter-sub",
        "select_and_scatter_add",
    }
)  # fmt: skip
"""Primitives whose results are sums, or their operands with something added."""


def rounded_products(program: Program) -> frozenset[int]:
    """The numbers of products that are rounded.

    These are the ones that are added to, or subtracted from, what was selected from products, and those in
    values that jump, or are compared with what was selected from them. Only whether a product is behind the
    other operand counts, not which: chunks of one value are other terms. Sums and contractions of what was
    selected are no bounds of entries any more.
    """
    made: set[int] = set()
    placed: set[int] = set()
    selected: set[int] = set()
    found: set[int] = set()
    for term in program.reachable():
        if _is_product(term) or any(arg.number in made for arg in term.args):
            made.add(term.number)
        places, keeps = _places(term), _keeps(term)
        if any(arg.number in (made if places else placed if keeps else ()) for arg in term.args):
            placed.add(term.number)
        if any(
            arg.number in (selected if places or keeps else made if _selects(term) else ())
            or (keeps and not _chooses(term) and arg.number in placed and arg.axes < term.axes)
            for arg in term.args
        ):
            selected.add(term.number)
        if isinstance(term.op, Map) and term.op.name in SUMS and is_real_float(term.dtype):
            first, second = term.args
            for one, other in ((first, second), (second, first)):
                if other.number in selected or (other.number in placed and other.axes < term.axes):
                    found.update(product.number for product in _products(one))
    return frozenset(found | _before_steps(program))


def _before_steps(program: Program) -> set[int]:
    """The products that are terms of sums, on the way to values that jump and are read otherwise as well, or
    that are compared with what was selected from them.
    """
    readers: dict[int, list[Term]] = {}
    for term in program.reachable():
        for arg in dict.fromkeys(term.args):
            readers.setdefault(arg.number, []).append(term)
    found: set[int] = set()
    seen: set[int] = set()
    stack = [
        term
        for term in program.reachable()
        if len(some := readers.get(term.number, ())) > 1
        and any(map(_jumps, some))
        and not all(map(_jumps, some))
    ]
    stack += compared(program).values
    while stack:
        term = stack.pop()
        if term.number in seen or not (isinstance(term.op, Map) or _keeps(term) or _moves(term)):
            continue
        seen.add(term.number)
        if isinstance(term.op, Map) and term.op.name in SUMS and is_real_float(term.dtype):
            found.update(product.number for arg in term.args for product in _products(arg))
        stack += term.args
    return found


def _jumps(term: Term) -> bool:
    """Whether a last digit of the operand may change the result by one."""
    if not isinstance(term.op, Map) or not is_real_float(term.args[0].dtype):
        return False
    return term.op.name in JUMPS or (
        term.op.name == "convert" and not is_inexact(term.dtype) and term.dtype != "bool"
    )


def _moves(term: Term) -> bool:
    """Whether entries of the result are entries of the operands, at other places."""
    match term.op:
        case Operation(spec=spec):
            return spec.name == "take"
        case Opaque(call=call):
            return call.primitive.name in MOVED
        case _:
            return False


def _is_product(term: Term) -> bool:
    """Whether a term is a product that may have to be rounded."""
    multiplies = isinstance(term.op, Map) and term.op.name in PRODUCTS and is_real_float(term.dtype)
    return multiplies and not any(map(_is_exact_factor, term.args))


def _is_exact_factor(term: Term) -> bool:
    """Whether products with a term are exact unless they underflow: it is 1, 1/2, 1/4, ... or minus that."""
    if not isinstance(term.op, Const) or not is_real_float(term.dtype):
        return False
    mantissa, exponent = math.frexp(float(term.op.text))
    return abs(mantissa) == 0.5 and exponent <= 1


def _selects(term: Term) -> bool:
    """Whether entries of an operand, or what depends on the largest, may be compared with the operand."""
    match term.op:
        case Reduce(kind=kind):
            return kind in {"max", "min"}
        case Fold(monoid=monoid):
            return isinstance(monoid, (Monoid, Operation)) or monoid in {"max", "min"}
        case Select() | Operation():
            return True
        case Opaque(call=call):
            return call.primitive.name not in SUMMING
        case _:
            return False


def _places(term: Term) -> bool:
    """Whether entries of the result are entries of the operands, at places that do not depend on values."""
    match term.op:
        case Operation(spec=spec):
            return spec.name in PLACED_BY
        case Opaque(call=call):
            return call.primitive.name in PLACED
        case _:
            return False


def _chooses(term: Term) -> bool:
    """Whether a term may have an operand's entries at one place of an axis that this lacks, as a pad has."""
    return isinstance(term.op, Map) and term.op.name == "select_n"


def _keeps(term: Term) -> bool:
    """Whether entries of the result are made of single entries of the operands."""
    return isinstance(term.op, (Map, Rename, Chunk, Concat))


def _products(term: Term) -> Iterator[Term]:
    """The product that a term is, but for its sign and place."""
    while isinstance(term.op, (Rename, Chunk, Concat)) or _turns_sign(term):
        term = term.args[0]
    if _is_product(term):
        yield term


def _turns_sign(term: Term) -> bool:
    return isinstance(term.op, Map) and term.op.name in {"copy", "neg"}
