"""Which values of a program are known to be computed by tiles, too, and the program with all of them so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from eqsat.ir.axis import Axis
from eqsat.ir.ops import Opaque
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

STENCIL = frozenset({"slice", "pad"})
"""Primitives that are in the place of these in a function without any: shifted parts of one array are what a
stencil reads, and its derivative adds."""


def tiled_values(program: Program) -> Iterator[tuple[Term, Term]]:
    """What computes such values as a whole, each with what computes them by tiles (`frontend/tiles.py`)."""
    for whole, tiles, _ in _tiled(program):
        yield whole, tiles


def tile_axes(program: Program) -> frozenset[Axis]:
    """The axes of tiles: those that pass through window operations, or slices of stencils, only there."""
    return frozenset[Axis]().union(*(axes for _, _, axes in _tiled(program)))


def _tiled(program: Program) -> Iterator[tuple[Term, Term, frozenset[Axis]]]:
    """The values that are computed by tiles, these, and the axes of tiles."""
    if not program.equalities:
        return
    windows, parts = _Passing(is_windowed), _Passing(_is_part)
    for term in program.known():
        windows.see(term)
        parts.see(term)
    written = frozenset[Axis]().union(*(term.axes for term in program.reachable()))
    for whole, tiles in program.equalities:
        axes = windows.only(tiles) - windows.through[whole.number]
        # Axes of tiles are new, or parts of the rows of the whole, which do not pass through all its slices.
        rows = whole.axes - parts.only(whole)
        axes |= parts.only(tiles) - (written - rows)
        if axes:
            yield whole, tiles, axes


class _Passing:
    """Which axes pass through all of some calls that a term is computed by.

    **Attributes:**

    - `counts`: whether a term is such a call.
    - `through`, `stopped`: by number of a term, the axes that pass through one of them, and the others.
    """

    def __init__(self, counts: Callable[[Term], bool]) -> None:
        self.counts = counts
        self.through: dict[int, frozenset[Axis]] = {}
        self.stopped: dict[int, frozenset[Axis]] = {}

    def see(self, term: Term) -> None:
        """Enter a term, after its operands."""
        called = self.counts(term)
        passing = _passing(term) if called else frozenset[Axis]()
        met = term.axes.union(*(arg.axes for arg in term.args)) if called else frozenset[Axis]()
        others = met - passing
        self.through[term.number] = passing.union(*(self.through[arg.number] for arg in term.args))
        self.stopped[term.number] = others.union(*(self.stopped[arg.number] for arg in term.args))

    def only(self, term: Term) -> frozenset[Axis]:
        """The axes that pass through those that they meet."""
        return self.through[term.number] - self.stopped[term.number]


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
