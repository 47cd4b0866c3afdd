"""The steps that read: chunks of inputs and of kept results, and entries that indices pick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.ir.axis import Layout
from eqsat.ir.ops import Chunk, Leaf, Opaque, Rename
from eqsat.ir.picked_entries import picked_layout
from eqsat.ir.streams import UnsupportedError, input_read, stored_input
from eqsat.ir.term import Term
from eqsat.streaming.keys import Key
from eqsat.streaming.needed_steps import known_value
from eqsat.streaming.places import can_be_sliced
from eqsat.streaming.segments import Root, Scope, Value
from eqsat.streaming.steps import Kept, Load, Picking


@dataclass
class ReadingSteps:
    """Makes the steps of one program that read.

    **Attributes:**

    - `sources`: by number of an input, of the program or of a body, the argument that is read.
    - `kept`: by number of a term, what is kept outside the device's memory.
    - `shares`: by argument, how much is read of it, as a share of its size.
    """

    sources: dict[int, int]
    kept: Mapping[int, Kept]
    shares: Mapping[int, float]

    def load(self, term: Term, scope: Scope) -> Load:
        assert isinstance(term.op, Opaque)
        (layout,) = term.op.call.out_layouts
        source = self.sources[input_read(term).index]
        return self._loaded(term, scope, source, layout)

    def _loaded(self, term: Term, scope: Scope, source: int, layout: Layout) -> Load:
        if not can_be_sliced(layout, term.open):
            raise UnsupportedError(f"a chunk that is no slice of argument {source}")
        key = known_value(term, scope).key
        return Load(key, "input", source, layout, term.dtype, term.open, self.shares[source])

    def picking(self, term: Term, scope: Scope) -> tuple[list[Root], Picking]:
        """The indices of a pick, and the step that reads what they pick."""
        assert isinstance(term.op, Opaque)
        call, (table, indices) = term.op.call, term.args
        leaf, layout = stored_input(table)
        assert isinstance(leaf.op, Leaf)
        if not can_be_sliced(layout, term.open):
            raise UnsupportedError(f"a chunk that is no slice of argument {leaf.op.index}")
        key = Key("index", term.number, 0, scope.id)
        roots: list[Root] = [Value(key, indices, call.arg_layouts[1])]
        source, pick = self.sources[leaf.op.index], call.params["pick"]
        result = known_value(term, scope).key
        return roots, Picking(result, source, layout, key, pick, picked_layout(term), term.dtype, term.open)

    def operand(self, term: Term, scope: Scope) -> Load | None:
        """How an operand of control flow is read, whose bodies read it; None for others.

        Its loops do not run in Python: so they have all of it, or the current chunk.
        """
        operand, layout = stored_input(term)
        if not isinstance(operand.op, Leaf) or operand.op.index not in self.sources:
            return None
        return self._loaded(term, scope, self.sources[operand.op.index], layout)

    def of_kept(self, term: Term, scope: Scope) -> Load | None:
        """How a chunk of a kept result is read back; None for other terms."""
        opened = []
        operand = term
        while isinstance(operand.op, Chunk):
            opened.append(operand.op.axis)
            (operand,) = operand.args
        if not opened or operand.number not in self.kept:
            return None
        kept = self.kept[operand.number]
        key = known_value(term, scope).key
        return Load(key, "result", kept.number, kept.axes, kept.dtype, frozenset(opened))

    def source(self, term: Term) -> int | None:
        """The position of the argument that a term is, if it is one that is read by chunks."""
        while isinstance(term.op, Rename):
            (term,) = term.args
        return self.sources.get(term.op.index) if isinstance(term.op, Leaf) else None
