"""Helpers for the tests of the pipeline's stages: they lower functions, and show terms as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from eqsat.frontend.lower import lower
from eqsat.frontend.trace import trace
from eqsat.ir.axis import Axis
from eqsat.ir.formula import Monoid
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import (
    Concat,
    Const,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Program
from eqsat.ir.spec import check_program
from eqsat.ir.term import Term


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """Returns an array of normally distributed numbers, the same at every call."""
    return np.asarray(np.random.default_rng((seed, *shape)).normal(size=shape)).astype(dtype)


def lowered(
    fn: Callable[..., Any], *args: Any, reshapes: bool = True, streamed: bool = False
) -> tuple[Program, list[Any]]:
    """Returns the program of a function, after checking that it is well-formed, and its hoisted constants."""
    program, constants = lower(trace(fn, args, {}).closed, reshapes, streamed=streamed)
    check_program(program)
    return program, constants


def before_and_after(
    change: Callable[[Program], Program], fn: Callable[..., Any], *args: Any
) -> tuple[Program, Program]:
    """Lowers a function, and changes its program, after checking that all values stay the same to the bit."""
    program, constants = lowered(fn, *args)
    found = change(program)
    check_program(found)
    arrays = [*jax.tree.leaves(args), *constants]
    for before, after in zip(interpret(program, arrays), interpret(found, arrays), strict=True):
        np.testing.assert_array_equal(before, after)
    return program, found


def check_meaning(fn: Callable[..., Any], *args: Any, rtol: float = 1e-5, reshapes: bool = True) -> Program:
    """Lowers a function, and checks that its program, interpreted, gives the function's results."""
    program, constants = lowered(fn, *args, reshapes=reshapes)
    leaves = jax.tree.leaves(args)
    results = interpret(program, [*leaves, *constants])
    wanted = jax.tree.leaves(fn(*jax.tree.map(jax.numpy.asarray, args)))
    assert len(results) == len(wanted)
    for result, value in zip(results, wanted, strict=True):
        assert result.shape == value.shape
        np.testing.assert_allclose(result, value, rtol=rtol, atol=rtol)
    return program


def text(term: Term) -> str:
    """Returns a term as text, with axes named by their lengths: `sum[3](square(sub(0{5 3}, 1{7 3})))`.

    The text depends neither on the order of the operands of sums and products, nor on the layout of inputs.
    """
    operands = [text(arg) for arg in term.args]
    match term.op:
        case Leaf(index=index):
            return f"{index}{{{_lengths(term.axes)}}}"
        case Const(text=value):
            return value
        case Iota(axis=axis):
            return f"iota[{axis.size}]"
        case Map(name="mul" | "add"):
            operands = sorted(operands)
        case Dot(axes=axes):
            return f"dot[{_lengths(axes)}]({', '.join(sorted(operands))})"
    return f"{_head(term.op)}({', '.join(operands)})"


def _head(op: Op) -> str:
    match op:
        case Map(name=name):
            return name
        case Reduce(kind=kind, axes=axes):
            return f"{kind}[{_lengths(axes)}]"
        case Select(kind=kind, axis=axis, result=result):
            return f"{kind}.{result}[{axis.size}]"
        case Rename(old=old):
            return f"rename[{old.size}]"
        case Opaque(call=call):
            return str(call.primitive.name)
        case Operation(spec=spec, axes=axes):
            return f"{spec.name}[{' '.join(str(axis.size) for axis in axes)}]"
        case Fold(axis=axis, monoid=Select(kind=kind) | Monoid(name=kind)):
            return f"fold[{axis.size}, {kind}]"
        case Fold(axis=axis, monoid=Opaque(call=call)):
            return f"fold[{axis.size}, {call.primitive.name}]"
        case Fold(axis=axis, monoid=kind):
            return f"fold[{axis.size}, {kind}]"
        case Concat(axis=axis):
            return f"concat[{axis.size}]"
        case _:
            return f"{type(op).__name__.lower()}[{getattr(op, 'axis', '')}]"


def _lengths(axes: frozenset[Axis]) -> str:
    return " ".join(str(axis.size) for axis in sorted(axes, key=lambda axis: -axis.size))


def result_text(fn: Callable[..., Any], *args: Any) -> str:
    """Returns a function's only result as text, after checking that it means the same as the function."""
    (output,) = check_meaning(fn, *args).outputs
    return text(output.term)


def no_nodes(fn: Callable[..., Any], *args: Any) -> None:
    """Checks that a function only changes the layout of its input, and so lowers to no ops."""
    assert result_text(fn, *args).startswith("0{")


def ops(program: Program, *kinds: type[Op]) -> list[Any]:
    """Returns the program's ops of the given kinds, operands first."""
    return [term.op for term in program.reachable() if isinstance(term.op, kinds)]


def without_log(text: str) -> str:
    """Returns what a process wrote, without what compilers for absent devices log when they are loaded."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(r"WARNING: .*written to STDERR|[IWE]\d{4} ", line))
