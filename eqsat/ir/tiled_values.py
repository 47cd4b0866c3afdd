"""Which values of a program are known to be computed by tiles, too, and the program with all of them so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eqsat.ir.axis import Axis
from eqsat.ir.changed_calls import with_changed_bodies
from eqsat.ir.control import Body
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term

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
    for whole, tiles, _ in _tiled(program):
        yield whole, tiles


def tile_axes(program: Program) -> frozenset[Axis]:
    """The axes of tiles: those that pass through window operations only there."""
    return frozenset[Axis]().union(*(axes for _, _, axes in _tiled(program)))


def _tiled(program: Program) -> Iterator[tuple[Term, Term, frozenset[Axis]]]:
    """The values that are computed by tiles, these, and the axes of tiles."""
    through: dict[int, frozenset[Axis]] = {}
    stopped: dict[int, frozenset[Axis]] = {}
    for term in program.known() if program.equalities else ():
        passing = _passing(term) if is_windowed(term) else frozenset[Axis]()
        others = term.axes - passing if is_windowed(term) else frozenset[Axis]()
        through[term.number] = passing.union(*(through[arg.number] for arg in term.args))
        stopped[term.number] = others.union(*(stopped[arg.number] for arg in term.args))
    for whole, tiles in program.equalities:
        axes = through[tiles.number] - stopped[tiles.number] - through[whole.number]
        if _is_part(whole):
            made = tiles
            while made.args and not _parts_of(whole, made):
                made = made.args[0]
            axes = _parts_of(whole, made)
        if axes:
            yield whole, tiles, axes


def _parts_of(whole: Term, tiles: Term) -> frozenset[Axis]:
    """The axes of a slice that pass through slices of tiles, and not through the whole."""
    return (_passing(tiles) - _passing(whole)) & whole.axes if _is_part(tiles) else frozenset()


def is_windowed(term: Term) -> bool:
    return isinstance(term.op, Opaque) and term.op.call.primitive.name in WINDOWED


def _is_part(term: Term) -> bool:
    return isinstance(term.op, Opaque) and term.op.call.primitive.name in STENCIL


def _passing(term: Term) -> frozenset[Axis]:
    """The axes of a call's result that pass through it."""
    return term.op.call.passing & term.axes if isinstance(term.op, Opaque) else frozenset()


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
