"""Which values of a program are known to be computed by tiles, too, and the program with all of them so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eqsat.ir.axis import Axis
from eqsat.ir.changed_calls import with_changed_bodies
from eqsat.ir.control import Body
from eqsat.ir.ops import Call, Dot, Opaque, Reduce, Rename
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term, reachable

WINDOWED = frozenset(
    {
        "conv_general_dilated",
        "reduce_window_max",
        "reduce_window_min",
        "reduce_window_sum",
        "select_and_scatter_add",
    }
)
"""Primitives whose entries read entries around them."""

STENCIL = frozenset({"slice"})
"""Primitives that are in the place of these in a function without any: shifted parts of one array are what a
stencil reads."""


def tiled_values(program: Program) -> Iterator[tuple[Term, Term]]:
    """What computes such values as a whole, each with what computes them by tiles (`frontend/tiles.py`)."""
    for whole, tiles in program.equalities:
        if is_windowed(whole) or _tile_axes(whole, tiles):
            yield whole, tiles


def tile_axes(program: Program) -> frozenset[Axis]:
    """The axes of tiles: those that pass through the last window operation only there."""
    return frozenset[Axis]().union(*(_tile_axes(*pair) for pair in tiled_values(program)))


def _tile_axes(whole: Term, tiles: Term) -> frozenset[Axis]:
    made = tiles
    # Rows that the tiles have in excess are sliced off, and parts of sums are added up.
    if is_windowed(whole):
        while made.args and not is_windowed(made):
            made = made.args[0]
        return _passing(made) - _passing(whole) if is_windowed(made) else frozenset()
    if _is_part(whole):
        while made.args and not _parts_of(whole, made):
            made = made.args[0]
        return _parts_of(whole, made)
    while isinstance(made.op, Rename):
        made = made.args[0]
    if isinstance(whole.op, Reduce | Dot) and isinstance(made.op, Reduce | Dot):
        other = made.op.axes - whole.op.axes
    else:
        other = made.args[0].axes - whole.axes if _is_part(made) else frozenset()
    return other & _windowed_apart(made) if other else other


def _windowed_apart(term: Term) -> frozenset[Axis]:
    """The axes that pass through window operations on the way to a term, and through all that have them."""
    windowed = [one for one in reachable([term]) if is_windowed(one)]
    passing = frozenset[Axis]().union(*map(_passing, windowed))
    return passing.difference(*(one.axes - _passing(one) for one in windowed))


def _parts_of(whole: Term, tiles: Term) -> frozenset[Axis]:
    """The axes of a slice that pass through slices of tiles, and not through the whole."""
    return (_passing(tiles) - _passing(whole)) & whole.axes if _is_part(tiles) else frozenset()


def is_windowed(term: Term) -> bool:
    return isinstance(term.op, Opaque) and term.op.call.primitive.name in WINDOWED


def _is_part(term: Term) -> bool:
    return isinstance(term.op, Opaque) and term.op.call.primitive.name in STENCIL


def _passing(term: Term) -> frozenset[Axis]:
    assert isinstance(term.op, Opaque)
    return term.op.call.passing & term.axes


def with_tiles(program: Program) -> Program:
    """The program with all of these values computed by tiles. It knows no equalities."""
    known = {whole.number: tiles for whole, tiles in tiled_values(program)}
    return with_inputs(replace(program, equalities=()), program.inputs, known) if known else program


def without_tiles(program: Program) -> Program:
    """The program without these equalities, also inside of bodies. Sums of a tile may be in another order."""
    known = set(tiled_values(program))
    if known:
        kept = tuple(pair for pair in program.equalities if pair not in known)
        program = replace(program, equalities=kept)

    def changed(call: Call, _: tuple[Term, ...]) -> list[Body]:
        programs = [without_tiles(body.program) for body in call.bodies]
        return [
            body if new is body.program else Body(new, body.sources)
            for body, new in zip(call.bodies, programs, strict=True)
        ]

    return with_changed_bodies(program, changed)
