"""Which terms segments compute: those that later steps read."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.ir.term import Term
from eqsat.streaming.keys import Key
from eqsat.streaming.segments import Finish, Known, Root, Scope, Segment, Value
from eqsat.streaming.steps import ControlFlow, Load, Pass, Picking, Step, reads

Group = Sequence[Term] | Sequence[Root] | Step
"""What is made into a step: terms of which later steps need some, roots of which they do, or a step."""


def needed_steps(
    groups: Sequence[tuple[Scope, Group]],
    here: Sequence[Term],
    scope: Scope,
    last: Sequence[Root],
    wanted: frozenset[Key],
) -> list[Step]:
    """The steps, in which segments compute what later steps read."""
    steps: list[Step] = []
    needed = set(wanted)
    ending = [*last, *(root for term in here if (root := value_root(term, scope)).key in needed)]
    if ending:
        segment = Segment(tuple(ending), scope)
        steps.append(segment)
        needed |= set(segment.reads)
    for where, group in reversed(groups):
        if isinstance(group, (Segment, Pass, Load, Picking, ControlFlow)):
            steps.append(group)
            needed |= reads(group)
            continue
        every = [value_root(each, where) if isinstance(each, Term) else each for each in group]
        roots = [root for root in every if isinstance(root, (Value, Finish)) and root.key in needed]
        if roots:
            segment = Segment(tuple(roots), where)
            steps.append(segment)
            needed |= set(segment.reads)
    return steps[::-1]


def known_value(term: Term, scope: Scope) -> Known:
    """The array that holds a term, once it is computed."""
    return Known(Key("value", term.number, 0, scope.id), tuple(sorted(term.axes)), term.dtype, term.open)


def value_root(term: Term, scope: Scope) -> Value:
    """A term as a root of a segment."""
    return Value(known_value(term, scope).key, term, tuple(sorted(term.axes)))


def known_load(load: Load | Picking) -> Known:
    """The array that a load gives."""
    return Known(load.key, load.layout, load.dtype, load.open)
