"""Inputs that are not in memory: what a program has of them, it reads.

The read of an input is a call along which every axis passes, so a read of a chunk is a chunk of the read. As
its result is stored, a cap on stored values leaves only programs that read large inputs by chunks.
"""

from __future__ import annotations

from collections.abc import Collection

from jax.extend.core import Primitive

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis, Layout, as_dimension, parts
from eqsat.ir.ops import Call, Chunk, Leaf, Opaque, Rename
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term


class UnsupportedError(EqsatError):
    """Steps that can't run in Python."""


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
