"""Programs of extracted e-nodes: their terms, and which rules made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.engine.encode import EQUATED, LOADED
from eqsat.engine.node_choices import Selection
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import is_inexact
from eqsat.ir.ops import Call, Const, Iota, Map, Op, Opaque, Operation
from eqsat.ir.program import Output, Program
from eqsat.ir.substitution import in_chunks
from eqsat.ir.term import Term
from eqsat.ir.unused_results import without_unused_results
from eqsat.ir.widening import widened
from eqsat.planning.extraction_state import PlannedCall
from eqsat.planning.search_space import SearchSpace
from eqsat.planning.simplified_terms import simplified
from eqsat.targets.machine import Machine

NAMED = "named-operation"
"""The report's name for calling a named operation instead of computing its body."""

REMATERIALISED = "rematerialised-in-loop"
"""The report's name for control flow that computes a large operand inside."""

REORDERED = "contraction-order"
"""The report's name for the steps of a contraction of many factors in an order found by a path solver."""

EQUAL = "equal-form"
"""The report's name for what a program is known to be equal to beforehand: a choice by index, for example."""

WRITTEN = "short-sum-written-out"
"""The report's name for a short sum as its entries added up."""


def known_as(op: Op, machine: Machine) -> str:
    """Returns the report's name for an op that was added to the e-graph as part of an equality."""
    match op:
        case Operation():
            return NAMED
        case Opaque(call=call):
            return REMATERIALISED if call.bodies else WRITTEN
        case Map() if machine.written_sum:
            return WRITTEN
        case Map(name=name, dtype=dtype) if name != "mul" or not is_inexact(dtype):
            return EQUAL
        case Iota() | Const():
            return EQUAL
        case _:
            return REORDERED


@dataclass(frozen=True)
class BuiltProgram:
    """A program of extracted terms.

    **Attributes:**

    - `makers`: the rules that made its terms, by number.
    - `classes`: the e-class of each of its terms, both by number.
    """

    program: Program
    makers: dict[int, str]
    classes: Mapping[int, int]


def built_program(
    space: SearchSpace, selection: Selection, planned: Mapping[int, PlannedCall]
) -> BuiltProgram:
    """Build the program of a selection."""
    program = space.program
    terms: dict[int, Term] = {}
    makers: dict[int, str] = {}
    calls: dict[tuple[int, frozenset[Axis]], Call] = {}

    def with_plan(call: Call, args: Sequence[Term]) -> Call:
        opened = frozenset[Axis]().union(*(arg.open for arg in args)) & call.cut
        if (call.id, opened) not in calls:
            if call.id in planned:
                makers.update(planned[call.id].makers)
                call = planned[call.id].call
            calls[call.id, opened] = in_chunks(call, opened, program.terms)
        return calls[call.id, opened]

    for number, node in selection.nodes.items():
        args = [terms[child] for child in node.children]
        op = node.op
        if isinstance(op, Opaque) and op.call.bodies:
            op = Opaque(with_plan(op.call, args), op.result)
        term = program.terms.make(op, args)
        terms[number] = term
        if node.maker == EQUATED:
            makers[term.number] = known_as(node.op, space.machine)
        elif node.maker != LOADED:
            makers[term.number] = space.rules[node.maker].name
    class_of = space.saturation.graph.class_of
    makers.update(simplified(space, terms))
    outputs = tuple(Output(terms[class_of[output.term.number]], output.layout) for output in program.outputs)
    for number, place in space.places.items():
        if number in terms:
            program.terms.origins.setdefault(terms[number].number, place)
    alike = tuple(terms[number] for number in space.families.computed(selection.nodes))
    whole = replace(program, outputs=outputs, equalities=(), facts=(), alike=alike)
    needed, replaced = without_unused_results(whole)
    wide = widened(needed)
    classes: dict[int, int] = {}
    for number, old in terms.items():
        term = replaced.get(old.number, old)
        if old.number in makers:
            makers.setdefault(term.number, makers[old.number])
        for made in wide.terms.get(term.number, (term,)):
            classes[made.number] = number
            if term.number in makers:
                makers.setdefault(made.number, makers[term.number])
    return BuiltProgram(wide.program, makers, classes)
