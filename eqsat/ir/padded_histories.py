"""Pads of what is computed of some iterations of a scan, as choices by the number of the iteration.

    pad(f(h[s:]), s before)  =  (t >= s: f(h_t), otherwise 0)

The cotangent of a slice of a history is such a pad. As a choice, each iteration of the backward pass computes
its own entry, from that of the history; the same holds for every tenth entry, and for those of other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from jax import lax

from eqsat.ir.axis import Axis, layout_axes, layout_shape
from eqsat.ir.comparing import compared
from eqsat.ir.control import Scan
from eqsat.ir.history_parts import parts_read, row_of_iteration, where_read
from eqsat.ir.ops import Call, Opaque, Rename
from eqsat.ir.program import Program
from eqsat.ir.scattered_rows import is_scatter, with_rows_looked_up
from eqsat.ir.sliced_calls import SlicedTerms
from eqsat.ir.sliced_histories import history_read
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term

Numbered = Callable[[Call, Call], Call]
"""Returns a call that was made of another one with a number of its own."""


def with_padded_histories(
    program: Program, threshold: float, numbered: Numbered, exact: bool = False
) -> tuple[Program, Mapping[int, Term]]:
    """Returns the program with choices in place of large pads of functions of histories.

    Rows that are added up in a large array of zeros are looked up in a smaller one (`scattered_rows`).

    **Arguments:**

    - `threshold`: the size in bytes above which a pad is large.
    - `exact`: whether results must stay the same to the last bit.

    **Returns:** the program, and what has become of its terms, by number.
    """
    terms = list(program.reachable())
    if not any(is_pad(term) or is_scatter(term) for term in terms):
        return program, {}
    once = compared(program).once
    known: dict[int, Term] = {}
    for term in terms:
        pads = is_pad(term)
        if term.bytes > threshold and (pads or is_scatter(term)) and term.number not in once:
            args = substituted(program.terms, term.args, known) if known else term.args
            if pads:
                chosen = _chosen(program, term, args, once, numbered, exact)
            else:
                scatter = program.terms.make(term.op, args)
                chosen = with_rows_looked_up(program.terms, scatter, numbered)
            if chosen is not None and chosen.axes == term.axes:
                known[term.number] = chosen
                if term.number in program.terms.origins:
                    program.terms.origins.setdefault(chosen.number, program.terms.origins[term.number])
    if not known:
        return program, known
    found = substituted(program.terms, terms, known)
    changed = with_inputs(program, program.inputs, known)
    return changed, {term.number: new for term, new in zip(terms, found, strict=True)}


def is_pad(term: Term) -> bool:
    """Whether a term is a pad that cuts nothing off."""
    if not isinstance(term.op, Opaque) or term.op.call.primitive.name != "pad":
        return False
    return all(min(one) >= 0 for one in term.op.call.params["padding_config"])


def _chosen(
    program: Program,
    pad: Term,
    args: Sequence[Term],
    once: frozenset[int],
    numbered: Numbered,
    exact: bool,
) -> Term | None:
    """A pad as a choice; None if it is of something else than entries of these iterations.

    **Arguments:**

    - `args`: what is padded, and with what.
    - `once`: the numbers of terms that are computed only once.
    """
    assert isinstance(pad.op, Opaque)
    call, terms, (operand, nothing) = pad.op.call, program.terms, args
    place = _iterations_place(call, operand)
    if place is None:
        return None
    along, axis = call.arg_layouts[0][place], call.out_layouts[0][place]
    assert isinstance(along, Axis)
    assert isinstance(axis, Axis)
    stack = history_read(operand, along)
    assert stack is not None
    entries_padded = _entries_padded(call, place)
    if entries_padded is not None:
        operand = terms.make(Opaque(numbered(entries_padded, call), 0), [operand, nothing])
    first, _, between = map(int, call.params["padding_config"][place])
    parts = parts_read([operand], along, stack, exact)
    if parts is None or parts.iterations.step != between + 1:
        return None
    places = range(first, first + (between + 1) * along.size, between + 1)
    known: dict[int, Term] = {}
    for number, (result, lag) in parts.slices.items():
        assert isinstance(result.op, Opaque)
        assert isinstance(result.op.call.control, Scan)
        ago = -lag if result.op.call.control.reverse else lag
        entries = _entries(program, result, axis, parts.iterations.start - ago - first, numbered)
        if entries is None:
            return None
        known[number] = entries
    here = replace(parts, iterations=places)
    for number, row in parts.rows.items():
        known[number] = row_of_iteration(terms, here, axis, row)
    waiting = [operand]
    while waiting:
        term = waiting.pop()
        if along not in term.axes:
            # It may be a reduction of the same entries.
            known.setdefault(term.number, term)
        elif term.number in once:
            return None
        elif term.number not in known:
            waiting += term.args
    slices = SlicedTerms(terms, numbered)

    def made(term: Term, args: Sequence[Term]) -> Term:
        return slices.of(term, along, args, axis) if along in term.axes else terms.make(term.op, args)

    (value,) = substituted(terms, [operand], known, made)
    return where_read(terms, here, axis, value, nothing)


def _iterations_place(call: Call, operand: Term) -> int | None:
    """The dimension of what a call pads that has iterations of a scan; None if there is none."""
    (before, _), (after,), configs = call.arg_layouts, call.out_layouts, call.params["padding_config"]
    for place, (along, axis) in enumerate(zip(before, after, strict=True)):
        if not any(configs[place]) or not isinstance(along, Axis) or not isinstance(axis, Axis):
            continue
        if history_read(operand, along) is not None:
            return place
    return None


def _entries_padded(call: Call, place: int) -> Call | None:
    """A pad of the other dimensions than `place` alone: of each entry; None if these stay as they are."""
    configs = list(call.params["padding_config"])
    configs[place] = (0, 0, 0)
    if not any(map(any, configs)):
        return None
    (before, _), (after,) = call.arg_layouts, call.out_layouts
    along = before[place]
    assert isinstance(along, Axis)
    return replace(
        call,
        params={"padding_config": tuple(configs)},
        out_layouts=((*after[:place], along, *after[place + 1 :]),),
        passing=call.passing | {along},
    )


def _entries(program: Program, stack: Term, axis: Axis, first: int, numbered: Numbered) -> Term | None:
    """The entries of a stacked result from one on, along another axis; None if it has not so many."""
    assert isinstance(stack.op, Opaque)
    layout = stack.op.call.out_layouts[stack.op.result]
    own = layout[0]
    assert isinstance(own, Axis)
    if not 0 <= first <= own.size - axis.size or axis in stack.axes:
        return None
    if axis.size == own.size:
        return program.terms.make(Rename(own, axis), [stack])
    others = layout_shape(layout[1:])
    params = {
        "start_indices": (first, *(0 for _ in others)),
        "limit_indices": (first + axis.size, *others),
        "strides": None,
    }
    call = Call(
        stack.op.call.id,
        lax.slice_p,
        params,
        (layout,),
        ((axis, *layout[1:]),),
        (stack.dtype,),
        frozenset(layout_axes(layout[1:])),
    )
    return program.terms.make(Opaque(numbered(call, stack.op.call), 0), [stack])
