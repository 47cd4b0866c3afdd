"""Checks programs with better orders of contractions, and counts their flops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from eqsat.engine.contraction_orders import with_contraction_orders
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Dot
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term, reachable
from tests.stages import lowered, normal, text


def ordered(program: Program, arrays: Sequence[Any] | None = None, **options: Any) -> Program:
    """Returns the program with better orders, after checking that each equals the original one."""
    result = with_contraction_orders(program, **options)
    check_equal(result, arrays)
    return result


def check_equal(program: Program, arrays: Sequence[Any] | None) -> None:
    """Checks that the terms of each equality agree in axes and dtype, and given arrays, in value."""
    outputs = []
    for pair in program.equalities:
        assert pair[0].axes == pair[1].axes
        assert pair[0].dtype == pair[1].dtype
        outputs += [Output(term, tuple(sorted(term.axes))) for term in pair]
    checked = replace(program, outputs=tuple(outputs))
    check_program(checked)
    values = [] if arrays is None else interpret(checked, arrays)
    for written, better in zip(values[::2], values[1::2], strict=True):
        if written.dtype.kind in "iu":
            np.testing.assert_array_equal(better, written)
        else:
            scale = np.abs(written).max(initial=1)
            np.testing.assert_allclose(better, written, rtol=1e-9, atol=1e-9 * scale)


def flops(*roots: Term) -> int:
    """Returns the flops of all contractions that these terms need, counting shared ones once."""
    return sum(
        2 * term.elements * math.prod(axis.size for axis in term.op.axes)
        for term in reachable(roots)
        if isinstance(term.op, Dot)
    )


def orders(fn: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """Returns the better orders of a function's contractions, as text."""
    program, constants = lowered(fn, *args)
    result = ordered(program, [*jax.tree.leaves(args), *constants], **options)
    return [text(better) for _, better in result.equalities]


def product(*factors: Any) -> Any:
    """Returns the product of matrices, evaluated from left to right."""
    result = factors[0]
    for factor in factors[1:]:
        result = result @ factor
    return result


def matrices(*lengths: int) -> list[Any]:
    """Returns a chain of matrices. Give each dimension a different length, since text shows only lengths."""
    return [normal(*pair) for pair in pairwise(lengths)]
