"""An instance of a rule: axes with lengths, values of the variables, and both sides as terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.checking.arithmetic import DtypeArithmetic
from eqsat.checking.building import Builder, IllFormed
from eqsat.checking.dtypes import Dtypes
from eqsat.checking.memberships import variable_names
from eqsat.checking.placement import Placement
from eqsat.checking.statement import Statement
from eqsat.checking.typing import Kinds
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_real_float
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Chunk, Concat, Const, Leaf, Map
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, Terms
from eqsat.language.rewriting import rewritten
from eqsat.language.syntax import ChunkOf, Expression

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Instance:
    """An instance of a statement: everything that is drawn to evaluate both sides.

    **Attributes:**

    - `lengths`: the length of each axis of the placement.
    - `values`: the value of each variable, with its dimensions in the order of the axes' names.
    - `constants`: the variables whose values are scalar constants of the program, not inputs.
    - `style`: what the values are like, as text.
    - `chunk`: the length of chunks; 0 for whole axes.
    """

    statement: Statement
    placement: Placement
    dtypes: Dtypes
    lengths: Mapping[str, int]
    values: Mapping[str, Array]
    constants: frozenset[str]
    style: str
    chunk: int = 0

    @property
    def kinds(self) -> Kinds:
        return self.dtypes.kinds

    def axes_of(self, variable: str) -> tuple[str, ...]:
        """Returns the axes of a variable, in the order of its value's dimensions."""
        return tuple(sorted(self.placement.of(variable)))

    @cached_property
    def axes(self) -> dict[str, Axis]:
        """The axes of the IR, by name."""
        return {name: Axis(number, self.lengths[name]) for number, name in enumerate(sorted(self.lengths))}

    @cached_property
    def sides(self) -> Sides:
        return Sides(self)


def values_of(instance: Instance, expressions: Sequence[Expression]) -> list[Array]:
    """Returns the values of expressions of the right side, with whole axes in place of chunks.

    All values are broadcast to the axes of all expressions.
    """
    sides = instance.sides
    terms = [sides.builder.build(_whole(node), sides.matched.dtype, matching=False) for node in expressions]
    layout = tuple(sorted(frozenset[Axis]().union(*(term.axes for term in terms))))
    outputs = tuple(Output(term, layout) for term in terms)
    return interpret(replace(sides.program, outputs=outputs), sides.arrays)


def _whole(node: Expression) -> Expression:
    """Returns an expression without its chunks."""

    def stripped(found: Expression) -> Expression | None:
        while isinstance(found, ChunkOf):
            found = found.operand
        return found

    return rewritten(node, stripped)


class Sides:
    """Both sides of an instance as terms in one table, and as the outputs of one program.

    **Attributes:**

    - `matched`, `made`: the left and the right side as they are written, which may be chunks.
    - `left`, `right`: the same, with their chunks closed by loops.
    - `arrays`: the values of the program's inputs.

    **Raises:** `IllFormed` if a side is not well-formed; its `of_right` says whether it is the right side.
    `NoSuchNumber` if a number does not exist in its dtype.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.terms = Terms()
        self.arrays: list[Array] = []
        leaves = {name: self.leaf(name) for name in variable_names(instance.statement.rule)}
        self.inputs = [leaf for leaf in leaves.values() if isinstance(leaf.op, Leaf)]
        self.builder = builder = Builder(
            instance.statement, instance.placement, instance.axes, leaves, instance.dtypes, self.terms
        )
        rule = instance.statement.rule
        dtype = instance.dtypes.of(rule.left)
        self.matched = builder.build(rule.left, dtype, matching=True)
        try:
            self.made = builder.build(rule.right, self.matched.dtype, matching=False)
            builder.check_sides(self.matched, self.made)
        except IllFormed as error:
            error.of_right = True
            raise
        opened = self.matched.open | self.made.open
        self.left, self.right = (self.closed(side, opened) for side in (self.matched, self.made))
        layout = tuple(sorted(self.left.axes))
        self.program = Program(
            tuple(self.inputs),
            (Output(self.left, layout), Output(self.right, layout)),
            self.terms,
        )

    def leaf(self, name: str) -> Term:
        instance = self.instance
        value, dtype = instance.values[name], instance.dtypes.of_variable(name)
        if name in instance.constants:
            number = value.item()
            text = repr(float(number)) if is_real_float(dtype) else repr(int(number))
            return self.terms.make(Const(text, dtype))
        if value.dtype.kind == "i":
            dtype = str(value.dtype)
        layout = tuple(instance.axes[axis] for axis in instance.axes_of(name))
        self.arrays.append(value)
        return self.terms.make(Leaf(len(self.arrays) - 1, layout, dtype))

    def closed(self, side: Term, opened: frozenset[Axis]) -> Term:
        """Returns a side in loops that concatenate its chunks, so that it is not open in any axis.

        A side that lacks one of the `opened` axes is broadcast along it, since the other side has it.
        """
        for axis in sorted(opened):
            if axis not in side.axes:
                side = self.terms.make(Map("select_n", side.dtype), [self.chunk_of_false(axis), side, side])
            if axis in side.open:
                side = self.terms.make(Concat(axis), [side])
        return side

    def chunk_of_false(self, axis: Axis) -> Term:
        """Returns a chunk of an input along an axis that is false everywhere."""
        number = len(self.inputs)
        leaf = self.terms.make(Leaf(number, (axis,), "bool"))
        if leaf not in self.inputs:
            self.inputs.append(leaf)
            self.arrays.append(np.zeros(axis.size, bool))
        return self.terms.make(Chunk(axis), [leaf])

    def evaluate(self, precision: str = "double", arrays: list[Array] | None = None) -> tuple[Array, Array]:
        """Evaluates both sides with the reference interpreter."""
        left, right = interpret(self.program, arrays or self.arrays, self.chunk_lengths(), precision)
        return left, right

    def evaluate_left(self) -> Array:
        """Evaluates the left side with the reference interpreter."""
        (left,) = interpret(self.program_left, self.arrays, self.chunk_lengths())
        return left

    @property
    def program_left(self) -> Program:
        return replace(self.program, outputs=self.program.outputs[:1])

    def run(self, arithmetic: DtypeArithmetic) -> tuple[Array, Array]:
        """Evaluates both sides in an arithmetic of choice."""
        left, right = arithmetic.run(self.program, self.arrays, self.chunk_lengths())
        return left, right

    def run_left(self, arithmetic: DtypeArithmetic) -> Array:
        """Evaluates the left side in an arithmetic of choice."""
        (left,) = arithmetic.run(self.program_left, self.arrays, self.chunk_lengths())
        return left

    def chunk_lengths(self) -> dict[Axis, int]:
        chunk = self.instance.chunk
        lengths = {axis: min(chunk, axis.size) for axis in self.instance.axes.values()} if chunk else {}
        return {axis: length for axis, length in lengths.items() if length}
