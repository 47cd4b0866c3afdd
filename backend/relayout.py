"""Copies of operands in another order of their axes, for short reductions.

XLA fuses a transposition into its consumers, barrier or not, and entries are then read from their old places.
Only operands of loops and results of branches are really stored. They have one dimension here, since XLA
chooses the layout of arrays with more, and would choose the one that needs no copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eqsat.backend.layout import Emitted, transposed, tuple_text
from eqsat.backend.slicing import sliced
from eqsat.ir.axis import Axis
from eqsat.ir.term import Term
from eqsat.planning.blocks import Block, Compute, Loop, Relayout

if TYPE_CHECKING:
    from eqsat.backend.emit import Emitter
    from eqsat.backend.scope import Scope

COPY = "in_order"
"""The name of the function in the emitted program."""

COPYING = """def in_order(a, axes, start):
    # A copy. That a start is not negative is not known to XLA, so it fuses nothing into the branch.
    copy = lax.cond(start >= 0, lambda: lax.transpose(a, axes).ravel(), lambda: jnp.zeros(a.size, a.dtype))
    return copy.reshape([a.shape[axis] for axis in axes])
"""


def copied(emitter: Emitter, term: Term, relayout: Relayout, scope: Scope) -> Emitted:
    """An operand of a reduction out of its copy, which is made unless there is one."""
    source = relayout.sources[term.number]
    value = _copy(emitter, source, relayout, scope)
    if source is term:
        return value
    key = (term.number, value.order)
    if key not in scope.copies:
        scope.copies[key] = sliced(emitter, term, value, scope)
    return scope.copies[key]


def copy_ahead(emitter: Emitter, loop: Loop, scope: Scope) -> None:
    """Make the copies that a loop's reductions read and that are the same in all of its iterations."""
    for block, inside in _nested(loop.body, frozenset({loop.axis})):
        around = scope.starts.keys() - inside
        for step in block.steps:
            # What its operands are made of may be computed in other loops, too, for something else.
            relayout = emitter.relayouts.get(step.term.number) if isinstance(step, Compute) else None
            if relayout is not None:
                for source in relayout.sources.values():
                    if source.open <= around:
                        _copy(emitter, source, relayout, scope)


def _nested(block: Block, inside: frozenset[Axis]) -> Iterator[tuple[Block, frozenset[Axis]]]:
    """A block and those of the loops in it, but not the bodies of its calls; each with the loops it is in."""
    yield block, inside
    for step in block.steps:
        if isinstance(step, Loop):
            yield from _nested(step.body, inside | {step.axis})


def _copy(emitter: Emitter, source: Term, relayout: Relayout, scope: Scope) -> Emitted:
    value = emitter.value(source, scope)
    order = _order(value, relayout)
    if order == value.order:
        return value
    key = (source.number, order)
    if key not in scope.copies:
        name = emitter.local(f"transposed_{source.number}")
        if scope.starts:
            emitter.copies = True
            axes = tuple_text([str(value.order.index(axis)) for axis in order])
            text = f"{COPY}({value.text}, {axes}, {next(reversed(scope.starts.values()))})"
        else:
            text = f"lax.optimization_barrier({transposed(value, order).text})"
        emitter.line(scope, f"{name} = {text}")
        scope.copies[key] = Emitted(name, order)
    return scope.copies[key]


def _order(value: Emitted, relayout: Relayout) -> tuple[Axis, ...]:
    others = [axis for axis in value.order if axis not in relayout.reduced and axis != relayout.last]
    reduced = [axis for axis in value.order if axis in relayout.reduced]
    return (*others, *reduced, relayout.last)
