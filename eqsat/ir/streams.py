"""Inputs that are not in memory: what a program has of them, it reads.

The read of an input is a call along which every axis passes, so a read of a chunk is a chunk of the read. As
its result is stored, a cap on stored values leaves only programs that read large inputs by chunks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from jax import lax
from jax.extend.core import Primitive

from eqsat.ir.axis import Axis, Layout, as_dimension, layout_shape, parts
from eqsat.ir.ops import Call, Chunk, Leaf, Opaque, Rename
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term

read_p = Primitive("read")
"""The primitive of reads. It has no implementation: what runs such programs reads by itself."""


def is_read(term: Term) -> bool:
    """Whether a term is a read."""
    return isinstance(term.op, Opaque) and term.op.call.primitive is read_p


def input_read(term: Term) -> Leaf:
    """The input of which a read has all, or the current chunks; the axes may be renamed."""
    (operand,) = term.args
    while isinstance(operand.op, (Chunk, Rename)):
        (operand,) = operand.args
    assert isinstance(operand.op, Leaf)
    return operand.op


def stored_input(term: Term) -> tuple[Term, Layout]:
    """What a term renames the axes of, or is the current chunks of, and the layout of that if it is an input.

    The layout is as the input is stored, with the axes of `term`. For others it is empty.
    """
    names: dict[Axis, Axis] = {}
    while isinstance(term.op, (Chunk, Rename)):
        if isinstance(term.op, Rename):
            names = {term.op.old: names.get(term.op.new, term.op.new)} | names
        (term,) = term.args
    if not isinstance(term.op, Leaf):
        return term, ()
    return term, tuple(
        as_dimension(names.get(axis, axis) for axis in parts(dimension)) for dimension in term.op.layout
    )


@dataclass(frozen=True)
class View:
    """A slice of an input that is not in memory, which is read as an input of its own.

    **Attributes:**

    - `source`: the position of the input.
    - `slices`: of its dimensions, each with a start, a stop and a step.
    """

    source: int
    slices: tuple[slice, ...]


def with_views(program: Program, streamed: Collection[int]) -> tuple[Program, dict[int, View]]:
    """The program with slices of inputs that are not in memory as further inputs, and these by position.

    A slice along the longest dimension of an input needs all of it. As an input of its own, it is read by
    chunks.
    """
    known: dict[int, Term] = {}
    views: dict[int, View] = {}
    inputs = list(program.inputs)
    for term in program.reachable():
        if not isinstance(term.op, Opaque) or term.op.call.primitive is not lax.slice_p:
            continue
        operand, layout = stored_input(term.args[0])
        if not isinstance(operand.op, Leaf) or operand.op.index not in streamed:
            continue
        call = term.op.call
        (wanted,) = call.arg_layouts
        if len(wanted) != len(layout) or len(set(layout)) != len(layout) or set(wanted) != set(layout):
            continue
        # The slice may be of a transposed input, which is stored in the order of its own dimensions.
        order = [wanted.index(dimension) for dimension in layout]
        slices, shape = tuple(_slices(call)[number] for number in order), layout_shape(layout)
        longest = max(range(len(shape)), key=lambda number: shape[number])
        if slices[longest] == slice(0, shape[longest], 1):
            continue
        position = len(inputs)
        sliced = tuple(call.out_layouts[0][number] for number in order)
        leaf = program.terms.make(Leaf(position, sliced, term.dtype))
        inputs.append(leaf)
        known[term.number] = leaf
        views[position] = View(operand.op.index, slices)
    return with_inputs(program, tuple(inputs), known), views


def _slices(call: Call) -> tuple[slice, ...]:
    params = call.params
    strides = params["strides"] or (1,) * len(params["start_indices"])
    places = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return tuple(slice(start, stop, step) for start, stop, step in places)


def with_reads(program: Program, streamed: Collection[int]) -> Program:
    """The program with reads of some of its inputs in the place of these inputs.

    **Arguments:**

    - `streamed`: the positions of the inputs.
    """
    call = program.next_call()
    known = {}
    for position in sorted(streamed):
        leaf = program.inputs[position]
        assert isinstance(leaf.op, Leaf)
        layout = leaf.op.layout
        read = Call(call, read_p, {}, (layout,), (layout,), (leaf.dtype,), leaf.axes)
        known[leaf.number] = program.terms.make(Opaque(read, 0), [leaf])
        call += 1
    return with_inputs(program, program.inputs, known)
