"""What terms are under an assumption: a term's value is given, and what follows is simplified.

The loops of a batch are proved independent in this way: what does an iteration do with a row that is done?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.ir.control import Body, Scan, While
from eqsat.ir.ops import Call, Const, Map, Opaque, Reduce
from eqsat.ir.term import Term, Terms
from eqsat.ir.written_back import writes_what_is_there

TRUE, FALSE = Const("True", "bool"), Const("False", "bool")


def under(terms: Terms, roots: Sequence[Term], assumed: Mapping[int, Term]) -> list[Term]:
    """Returns terms that are equal to the roots if the assumptions hold.

    They may lack axes along which the roots are then the same.

    **Arguments:**

    - `terms`: the table in which new terms are built.
    - `assumed`: the values of terms, by their number.
    """
    found = dict(assumed)
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        term, leaving = stack.pop()
        if term.number in found:
            continue
        if not leaving:
            stack.append((term, True))
            stack.extend((arg, False) for arg in term.args)
            continue
        made = found[term.number] = _simplified(terms, term, [found[arg.number] for arg in term.args])
        if term.number in terms.origins:
            terms.origins.setdefault(made.number, terms.origins[term.number])
    return [found[root.number] for root in roots]


def _simplified(terms: Terms, term: Term, args: list[Term]) -> Term:
    """Returns a term for operands that are equal to its own."""
    match term.op:
        case Map(name="select_n"):
            which, *cases = args
            if which.op in (TRUE, FALSE):
                return cases[which.op == TRUE]
            if all(case is cases[0] for case in cases):
                return cases[0]
        case Map(name="and", dtype="bool"):
            return _connected(terms, term, args, FALSE, TRUE)
        case Map(name="or", dtype="bool"):
            return _connected(terms, term, args, TRUE, FALSE)
        case Map(name="not", dtype="bool") if args[0].op in (TRUE, FALSE):
            return terms.make(FALSE if args[0].op == TRUE else TRUE)
        case Reduce(kind="or" | "and") if args[0].op in (TRUE, FALSE):
            return args[0]
        case Opaque(call=call) if call.bodies:
            start = _kept(term, args) if args != list(term.args) else None
            if start is not None and start.axes == term.axes:
                return start
        case Opaque() if writes_what_is_there(term, args):
            return args[0]
        case _:
            pass
    if not isinstance(term.op, Map):
        # An op on whole axes needs operands that have them.
        args = [new if new.axes == old.axes else old for new, old in zip(args, term.args, strict=True)]
    return terms.make(term.op, args)


def constant_carries(call: Call, args: Sequence[Term]) -> dict[int, Term]:
    """Returns the carries of a loop that stay constant, by the position of the operand, with their values."""
    control = call.control
    if not isinstance(control, Scan | While):
        return {}
    body = call.bodies[-1]
    outputs = dict(zip(control.carried, body.program.outputs, strict=False))
    # All are taken to be constant, until one is found that is not if the others are.
    constants = {place: args[place] for place in control.carried if isinstance(args[place].op, Const)}
    while True:
        assumed = _assumed(body, constants)
        found = under(body.program.terms, [outputs[place].term for place in constants], assumed)
        wrong = [place for place, term in zip(constants, found, strict=True) if term.op != args[place].op]
        if not wrong:
            return constants
        for place in wrong:
            del constants[place]


def _assumed(body: Body, constants: Mapping[int, Term]) -> dict[int, Term]:
    """Returns the constants for the inputs of a body, by the operands that feed them."""
    return {
        leaf.number: constants[source]
        for leaf, source in zip(body.program.inputs, body.sources, strict=True)
        if source in constants
    }


def _kept(term: Term, args: Sequence[Term]) -> Term | None:
    """Returns the operand that a result of a loop is: a carry that no iteration changes."""
    assert isinstance(term.op, Opaque)
    call, result = term.op.call, term.op.result
    if not isinstance(call.control, Scan | While) or result >= len(call.control.carried):
        return None
    place, body = call.control.carried[result], call.bodies[-1]
    assumed = _assumed(body, constant_carries(call, args))
    (after,) = under(body.program.terms, [body.program.outputs[result].term], assumed)
    inputs = zip(body.program.inputs, body.sources, strict=True)
    return args[place] if any(leaf is after and source == place for leaf, source in inputs) else None


def _connected(terms: Terms, term: Term, args: list[Term], decides: Const, neutral: Const) -> Term:
    """Returns a conjunction or disjunction, which one of the constants decides and the other leaves."""
    if any(arg.op == decides for arg in args):
        return terms.make(decides)
    left = [arg for arg in args if arg.op != neutral]
    if not left:
        return terms.make(neutral)
    return left[0] if left[0] is left[-1] else terms.make(term.op, args)
