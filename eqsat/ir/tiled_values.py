"""Which values of a program are known to be computed by tiles, too, and the program with all of them so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eqsat.ir.ops import Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term

WINDOWED = frozenset({"conv_general_dilated", "reduce_window_max", "reduce_window_min", "reduce_window_sum"})
"""Primitives whose entries read entries around them."""


def tiled_values(program: Program) -> Iterator[tuple[Term, Term]]:
    """What computes such values as a whole, each with what computes them by tiles (`frontend/tiles.py`)."""
    for whole, tiles in program.equalities:
        if isinstance(whole.op, Opaque) and whole.op.call.primitive.name in WINDOWED:
            yield whole, tiles


def with_tiles(program: Program) -> Program:
    """The program with all of these values computed by tiles. It knows no equalities."""
    known = {whole.number: tiles for whole, tiles in tiled_values(program)}
    return with_inputs(replace(program, equalities=()), program.inputs, known) if known else program


def without_tiles(program: Program) -> Program:
    """The program without these equalities. Sums of a tile may be in another order."""
    known = set(tiled_values(program))
    return replace(program, equalities=tuple(pair for pair in program.equalities if pair not in known))
