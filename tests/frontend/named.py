"""Finds the named operations in a function's program, for the tests of recognition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Const, Leaf, Map, Opaque, Operation, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term
from tests.stages import check_meaning, normal


def spd(*shape: int, seed: int = 0) -> Any:
    """Returns well conditioned symmetric positive definite matrices."""
    a = normal(*shape, dtype=np.float64, seed=seed)
    return (a @ np.swapaxes(a, -1, -2) / shape[-1] + np.eye(shape[-1])).astype(np.float32)


def names(fn: Callable[..., Any], *args: Any) -> list[str]:
    """Returns the operations of a function's program as text, after checks that they equal their bodies."""
    return texts(named(fn, *args))


def named(fn: Callable[..., Any], *args: Any) -> Program:
    """Returns the program of a function, after checking that its operations equal their bodies.

    The values are compared on the arguments. Reshapes become calls, since otherwise they have no names.
    """
    program = check_meaning(fn, *args, rtol=1e-3, reshapes=False)
    for body, name in program.equalities:
        assert body.axes == name.axes
        assert body.dtype == name.dtype
    if program.equalities and len(program.inputs) == len(args):
        outputs = tuple(
            Output(term, tuple(sorted(term.axes))) for pair in program.equalities for term in pair
        )
        both = Program(program.inputs, outputs, program.terms)
        check_program(both)
        values = interpret(both, args)
        for body, name in zip(values[::2], values[1::2], strict=True):
            np.testing.assert_allclose(body, name, rtol=1e-8, atol=1e-8)
    return program


def choices(program: Program) -> list[tuple[Term, Term]]:
    """Returns the values that are known to be choices by index, each with the choice."""
    return [
        pair for pair in program.equalities if isinstance(pair[1].op, Map) and pair[1].op.name == "select_n"
    ]


def check_choice(program: Program, args: Sequence[Any]) -> None:
    """Checks that one value is known to be a choice, of the same bits on these arguments."""
    ((value, choice),) = choices(program)
    layout = tuple(sorted(value.axes))
    both = Program(program.inputs, (Output(value, layout), Output(choice, layout)), program.terms)
    one, other = interpret(both, args)
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(np.signbit(one), np.signbit(other))


def texts(program: Program) -> list[str]:
    """Returns the operations of a program as text."""
    return [text(name) for _, name in program.equalities]


def text(term: Term) -> str:
    """Returns a term as text, with the lengths of an operation's axes, and without renamings."""
    operands = ", ".join(text(argument) for argument in term.args)
    match term.op:
        case Operation(spec=spec, axes=axes):
            return f"{spec.name}[{' '.join(str(axis.size) for axis in axes)}]({operands})"
        case Leaf(index=index):
            return str(index)
        case Const(text=value):
            return value
        case Rename():
            return operands
        case Map(name=name):
            return f"{name}({operands})"
        case Opaque(call=call):
            return f"{call.primitive.name}({operands})"
        case op:
            return f"{type(op).__name__.lower()}({operands})"
