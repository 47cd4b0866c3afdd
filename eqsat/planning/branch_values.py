"""What the branches of a choice give, in terms of its operands."""

from __future__ import annotations

from eqsat.ir.control import Switch
from eqsat.ir.ops import Const, Leaf, Map, Opaque
from eqsat.ir.substitution import substituted
from eqsat.ir.term import Term, Terms, reachable


def as_selection(terms: Terms, term: Term) -> Term | None:
    """The result of a choice between two branches as a selection of elements; None if it is no such result.

    Each branch must return one of its operands, or a constant: nothing is computed that was not before. A
    selection can be computed by chunks, although the branches compute other results from whole arrays.
    """
    values = _values(terms, term, computed=False)
    if values is None:
        return None
    made = terms.make(Map("select_n", term.dtype), [second_is_chosen(terms, term), *values])
    return made if made.axes == term.axes else None


def branch_values(terms: Terms, term: Term) -> tuple[Term, Term] | None:
    """What each of two branches gives for the result; None if the term is no result of such a choice."""
    return _values(terms, term, computed=True)


def second_is_chosen(terms: Terms, term: Term) -> Term:
    """Whether the second of the two branches of a choice runs, of which the term is a result."""
    index = term.args[0]
    if index.dtype == "bool":
        return index
    return terms.make(Map("gt", "bool"), [index, terms.make(Const("0", index.dtype))])


def _values(terms: Terms, term: Term, computed: bool) -> tuple[Term, Term] | None:
    match term.op:
        case Opaque(call=call, result=result) if isinstance(call.control, Switch) and len(call.bodies) == 2:
            pass
        case _:
            return None
    if term.args[0].axes or term.open:
        return None
    values: list[Term] = []
    for body in call.bodies:
        output = body.program.outputs[result]
        if output.layout != call.out_layouts[result]:
            return None
        if not computed and not isinstance(output.term.op, Leaf | Const):
            return None
        given: dict[int, Term] = {}
        for leaf, source in zip(body.program.inputs, body.sources, strict=True):
            same = isinstance(leaf.op, Leaf) and leaf.op.layout == call.arg_layouts[source]
            if same and term.args[source].axes == leaf.axes:
                given[leaf.number] = term.args[source]
        (value,) = substituted(terms, [output.term], given)
        inputs = {leaf.number for leaf in body.program.inputs}
        if _reads(output.term, inputs - given.keys()):
            return None
        values.append(value)
    return values[0], values[1]


def _reads(term: Term, inputs: set[int]) -> bool:
    return any(at.number in inputs for at in reachable([term]))
