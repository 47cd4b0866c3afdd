"""A program: inputs, and outputs as views of terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.ir.axis import Axis, Layout, layout_shape
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Opaque
from eqsat.ir.term import Term, Terms, reachable


@dataclass(frozen=True, slots=True)
class Output:
    """A term laid out as an array.

    An axis of `layout` that the term lacks is broadcast.
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
    """A term has a property of `eqsat.ir.properties` along some of its axes, as the user assures."""

    property: str
    term: Term
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A function, or a body of control flow, as terms. Compared by identity.

    **Attributes:**

    - `inputs`: one `Leaf` term per flat input of the function, then one per hoisted constant;
      an input that nothing uses is still there. Of a body, one per source.
    - `outputs`: in the function's flat order.
    - `terms`: the table that interns all of them.
    - `equalities`: pairs of a term that the outputs need and another one that is always equal to it:
      the body of a named operation and its name, a contraction in the order written and in a better one.
    - `facts`: what is known of terms.
    - `aliased`: bytes of the outputs that take the place of donated inputs.
    - `alike`: terms that are to be the same bits wherever they are computed.
    """

    inputs: tuple[Term, ...]
    outputs: tuple[Output, ...]
    terms: Terms
    equalities: tuple[tuple[Term, Term], ...] = ()
    facts: tuple[KnownFact, ...] = ()
    aliased: int = 0
    alike: tuple[Term, ...] = ()

    def reachable(self) -> Iterator[Term]:
        """Every term that the outputs need, operands first."""
        return reachable(output.term for output in self.outputs)

    @property
    def argument_bytes(self) -> int:
        """Bytes of the inputs, of those that nothing uses too: they are there all the same."""
        return sum(term.bytes for term in self.inputs)

    @property
    def fixed_bytes(self) -> int:
        """Bytes of inputs and outputs: however the program is computed, it needs these."""
        return self.argument_bytes + sum(output.bytes for output in self.outputs) - self.aliased

    def axes(self) -> frozenset[Axis]:
        """Every axis that occurs in a reachable term's schema."""
        return frozenset().union(*(term.axes for term in self.reachable()))

    def inside(self) -> Iterator[Program]:
        """This program and the bodies in it, and in those, outer before inner."""
        stack = [self]
        seen: set[Program] = set()
        while stack:
            program = stack.pop()
            if program in seen:
                continue
            seen.add(program)
            yield program
            for term in program.reachable():
                if isinstance(term.op, Opaque):
                    stack.extend(body.program for body in term.op.call.bodies)

    def known(self) -> Iterator[Term]:
        """Every term that the outputs need, or that is known to be equal to one of those; operands first."""
        roots = [output.term for output in self.outputs]
        roots += [term for pair in self.equalities for term in pair]
        return reachable([*roots, *(fact.term for fact in self.facts)])
