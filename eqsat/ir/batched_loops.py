"""Batches of `while` loops, which go on until all are done: whether each could end by itself.

    while any(unfinished(rows)) and more(state):
        rows, state = choose(running(rows), step(rows, state), rows), next(state)

Rows that are done stay as they are. So if nothing reads the state in the end, a loop over a part of the rows
that ends with these gives the same rows. JAX makes such loops of `vmap`, without a state that the rows share;
Equinox, with which Diffrax and Optimistix loop, counts the iterations of all rows together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsat.ir.alpha_equivalence import alpha_equivalent
from eqsat.ir.assumptions import FALSE, TRUE, under
from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, While
from eqsat.ir.ops import Call, Const, Leaf, Map, Reduce
from eqsat.ir.substitution import substituted
from eqsat.ir.term import Term, reachable


def predicate_of(condition: Body, axis: Axis) -> Term | None:
    """Returns what must hold anywhere along the axis for a loop to go on; None if its condition is another.

    Whatever else must hold for that must not depend on the axis.
    """
    (output,) = condition.program.outputs
    found = None
    for part in _conjuncts(output.term):
        match part.op:
            case Reduce(kind="or", axes=axes) if axis in axes and found is None:
                (found,) = part.args
            case _ if any(axis in term.axes for term in reachable([part])):
                return None
    return found


def ends_for_each(call: Call, axis: Axis, predicate: Term, args: Sequence[Term] | None) -> bool:
    """Returns whether rows for which the predicate does not hold stay as they are ever after.

    Results that nothing reads may change. The body must work slice by slice along the axis.

    **Arguments:**

    - `predicate`: a term of the loop's condition that works slice by slice along the axis.
    - `args`: the operands of the call, if they are known.
    """
    control = call.control
    assert isinstance(control, While)
    condition, body = call.bodies
    terms = body.program.terms
    fed = _inputs(call, args)
    alias = {
        leaf.number: fed[source]
        for leaf, source in zip(body.program.inputs, body.sources, strict=True)
        if fed[source] is not leaf
    }
    results = under(terms, [output.term for output in body.program.outputs], alias)
    outputs = dict(zip(control.carried, results, strict=True))
    known = {}
    for leaf, source in zip(condition.program.inputs, condition.sources, strict=True):
        if source in fed:
            known[leaf.number] = fed[source]
    for running, same in _candidates(call, predicate, axis, known):
        changing = _changing(call, running, outputs, fed, args)
        read = {
            source
            for inside, root in ((condition, predicate), (body, running))
            for source in _read(inside, root)
        }
        unread = {control.carried[result] for result in call.unread}
        if not changing <= unread or changing & read:
            continue
        if same or (args and _implies(call, running, predicate, outputs, fed, args)):
            return True
    return False


def _inputs(call: Call, args: Sequence[Term] | None) -> dict[int, Term]:
    """Returns the input of a loop's body for each operand that it is given; for equal operands, the same."""
    assert isinstance(call.control, While)
    body = call.bodies[1]
    first: dict[object, Term] = {}
    found = {}
    for leaf, source in zip(body.program.inputs, body.sources, strict=True):
        steady = args is not None and source not in call.control.carried
        key = (args[source].number, call.arg_layouts[source]) if args and steady else source
        found[source] = first.setdefault(key, leaf)
    return found


def _candidates(
    call: Call, predicate: Term, axis: Axis, known: dict[int, Term]
) -> Iterator[tuple[Term, bool]]:
    """Yields terms of the body that may say of each row whether it is still running, and whether they do.

    The predicate does. If it makes calls, the body makes them again.
    """
    body = call.bodies[1]
    inputs = {leaf.number for leaf in body.program.inputs}
    (same,) = substituted(body.program.terms, [predicate], known)
    chosen = {
        term.args[0].number: term.args[0]
        for term in body.program.reachable()
        if isinstance(term.op, Map) and term.op.name == "select_n"
    }
    if all(term.number in inputs for term in reachable([same]) if isinstance(term.op, Leaf)):
        yield same, True
        yield from ((term, True) for term in chosen.values() if alpha_equivalent(term, same))
    for term in chosen.values():
        if term.number in inputs and axis in term.axes and term.dtype == "bool":
            yield term, False


def _changing(
    call: Call, running: Term, outputs: dict[int, Term], fed: dict[int, Term], args: Sequence[Term] | None
) -> set[int]:
    """Returns the carries, by the position of the operand, that change although a row is not running.

    What the rows share does not depend on whether they are running.
    """
    terms = call.bodies[1].program.terms
    given = terms.make(FALSE)
    places = list(outputs)
    done = under(terms, [outputs[place] for place in places], {running.number: given})
    changing = set()
    for place, term in zip(places, done, strict=True):
        leaf = fed.get(place)
        stays = term is leaf or (leaf is running and term is given)
        start = None if args is None else args[place]
        constant = outputs[place] is start and isinstance(outputs[place].op, Const)
        if not stays and not constant:
            changing.add(place)
    return changing


def _implies(
    call: Call,
    running: Term,
    predicate: Term,
    outputs: dict[int, Term],
    fed: dict[int, Term],
    args: Sequence[Term],
) -> bool:
    """Returns whether the predicate holds of every row that is running, before every iteration.

    That is so if it is so in the beginning, and after the iterations of the rows that are running.
    """
    condition, body = call.bodies
    terms = body.program.terms
    place = next((source for source, leaf in fed.items() if leaf is running), None)
    if place not in outputs:
        return False
    leaves = list(zip(condition.program.inputs, condition.sources, strict=True))
    read = _read(condition, predicate)
    if any(source not in outputs and source not in fed for source in read):
        return False

    def holds_where(flag: Term, values: dict[int, Term]) -> bool:
        given = {leaf.number: values[source] for leaf, source in leaves if source in read}
        first, second = under(terms, [flag, *under(terms, [predicate], given)], {})
        known = list(_conjuncts(first))
        return all(any(alpha_equivalent(term, one) for one in known) for term in _conjuncts(second))

    steady = {source: leaf for source, leaf in fed.items() if source not in outputs}
    after = dict(
        zip(outputs, under(terms, list(outputs.values()), {running.number: terms.make(TRUE)}), strict=True)
    )
    return holds_where(args[place], dict(enumerate(args))) and holds_where(after[place], steady | after)


def _conjuncts(term: Term) -> Iterator[Term]:
    """Yields the terms that must all be true for a term to be so."""
    match term.op:
        case Map(name="and", dtype="bool"):
            for arg in term.args:
                yield from _conjuncts(arg)
        case _ if term.op != TRUE:
            yield term


def _read(body: Body, root: Term) -> set[int]:
    """Returns the operands that a term of a body depends on, by position."""
    numbers = {term.number for term in reachable([root])}
    return {
        source
        for leaf, source in zip(body.program.inputs, body.sources, strict=True)
        if leaf.number in numbers
    }
