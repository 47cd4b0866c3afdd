"""Results with the rows that tiles have in excess: whoever writes results chunk by chunk leaves them out."""

from __future__ import annotations

from dataclasses import replace

from jax import lax

from eqsat.ir.axis import Axis, Dimension, as_dimension, parts
from eqsat.ir.ops import Opaque, Rename
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term
from eqsat.ir.tiled_values import tiled_values


def with_excess_rows(program: Program) -> Program:
    """The program with results by tiles in place of those whose last tile has rows in excess."""
    known = {whole.number: tiles for whole, tiles in tiled_values(program)}
    outputs = tuple(
        _in_excess(output, known[output.term.number]) if output.term.number in known else output
        for output in program.outputs
    )
    return replace(program, outputs=outputs)


def _in_excess(output: Output, tiles: Term) -> Output:
    names: dict[Axis, Axis] = {}
    while isinstance(tiles.op, Rename):
        names = {tiles.op.old: names.get(tiles.op.new, tiles.op.new)} | names
        (tiles,) = tiles.args
    if not isinstance(tiles.op, Opaque) or tiles.op.call.primitive is not lax.slice_p:
        return output
    call = tiles.op.call
    if any(call.params["start_indices"]) or any(step != 1 for step in call.params["strides"] or ()):
        return output
    whole: dict[Dimension, Dimension] = {}
    for cut, dimension in zip(call.out_layouts[0], call.arg_layouts[0], strict=True):
        whole[as_dimension(names.get(axis, axis) for axis in parts(cut))] = dimension
    if any(dimension is not None and dimension not in whole for dimension in output.layout):
        return output
    layout = tuple(None if dimension is None else whole[dimension] for dimension in output.layout)
    return Output(tiles.args[0], layout)
