"""Programs: inputs, and outputs that are terms laid out as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from eqsat.ir.axis import Axis, Layout, layout_shape
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Call, Leaf, Opaque
from eqsat.ir.term import Term, Terms, reachable


@dataclass(frozen=True, slots=True)
class Output:
    """A term laid out as an array.

    The term is broadcast along the axes of `layout` that it lacks.
    """

    term: Term
    layout: Layout

    @property
    def shape(self) -> tuple[int, ...]:
        return layout_shape(self.layout)

    @property
    def bytes(self) -> int:
        count = itemsize(self.term.dtype)
        for length in self.shape:
            count *= length
        return count


@dataclass(frozen=True, slots=True)
class KnownFact:
    """The user's statement that a term has a property of `eqsat.ir.properties` along some of its axes."""

    property: str
    term: Term
    axes: tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Program:
    """A function, or a body of control flow, as terms.

    Programs are compared by identity.

    **Attributes:**

    - `inputs`: one `Leaf` term per flat input of the function, then one per hoisted constant. Unused inputs
      are included. A body has one input per entry of `Body.sources`.
    - `outputs`: the outputs, in the function's flat order.
    - `terms`: the table that interns all terms of the program.
    - `equalities`: pairs of a term that the outputs need and another one that is always equal to it. For
      example, the body of a named operation and the `Operation`, or a contraction in the order written
      and in a better one.
    - `facts`: properties of terms that the user has stated.
    - `aliased`: the bytes of those outputs that overwrite donated inputs.
    - `alike`: terms whose values must be bitwise equal wherever they are computed.
    """

    inputs: tuple[Term, ...]
    outputs: tuple[Output, ...]
    terms: Terms
    equalities: tuple[tuple[Term, Term], ...] = ()
    facts: tuple[KnownFact, ...] = ()
    aliased: int = 0
    alike: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        # What two makers of inputs number alike would be one value.
        assert len({term.number for term in self.inputs}) == len(self.inputs), "two inputs are one"

    def reachable(self) -> Iterator[Term]:
        """Yields every term that the outputs need, operands first."""
        return iter(self._reachable)

    @cached_property
    def _reachable(self) -> tuple[Term, ...]:
        return tuple(reachable(output.term for output in self.outputs))

    @property
    def argument_bytes(self) -> int:
        """The size of all inputs in bytes. Unused inputs count, because the caller holds them in memory."""
        return sum(term.bytes for term in self.inputs)

    @property
    def fixed_bytes(self) -> int:
        """The bytes of inputs and outputs, which every way of computing the program needs."""
        return self.argument_bytes + sum(output.bytes for output in self.outputs) - self.aliased

    def axes(self) -> frozenset[Axis]:
        """Returns all axes of the terms that the outputs need."""
        return frozenset().union(*(term.axes for term in self.reachable()))

    def inside(self, *, known: bool = False) -> Iterator[Program]:
        """Yields this program and the bodies of all control flow in it, outer before inner.

        **Arguments:**

        - `known`: whether to include control flow that only equalities or facts refer to.
        """
        stack = [self]
        seen: set[Program] = set()
        while stack:
            program = stack.pop()
            if program in seen:
                continue
            seen.add(program)
            yield program
            for term in program.known() if known else program.reachable():
                if isinstance(term.op, Opaque):
                    stack.extend(body.program for body in term.op.call.bodies)

    def controls(self) -> Iterator[tuple[Call, tuple[Term, ...]]]:
        """Yields the calls of control flow, with their operands; once for each of their results."""
        for term in self.known():
            if isinstance(term.op, Opaque) and term.op.call.bodies:
                yield term.op.call, term.args

    def next_call(self) -> int:
        """Returns a number that no call of the program, of the bodies inside, or of any other term has."""
        numbers = (
            term.op.call.id
            for program in self.inside(known=True)
            for term in program.known()
            if isinstance(term.op, Opaque)
        )
        return 1 + max((self.terms.last_call, *numbers))

    def next_input(self) -> int:
        """Returns a negative number below those of the inputs of the program and of the bodies inside."""
        leaves = (leaf.op for program in self.inside(known=True) for leaf in program.inputs)
        return min([0, *(leaf.index for leaf in leaves if isinstance(leaf, Leaf))]) - 1

    def known(self) -> Iterator[Term]:
        """Yields every term that the outputs, the equalities or the facts refer to, operands first."""
        return iter(self._known)

    @cached_property
    def _known(self) -> tuple[Term, ...]:
        roots = [output.term for output in self.outputs]
        roots += [term for pair in self.equalities for term in pair]
        return tuple(reachable([*roots, *(fact.term for fact in self.facts)]))
