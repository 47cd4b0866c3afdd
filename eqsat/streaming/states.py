"""Folds over chunks as terms: what a fold starts from, how it takes in a chunk, and what it ends with.

In a compiled loop, the emitter writes these as text. Where the loop runs in Python, each is a program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jax import lax

from eqsat.ir.axis import Axis, Layout, layout_axes
from eqsat.ir.dtypes import accumulator, is_inexact, numpy_dtype
from eqsat.ir.formula import Monoid
from eqsat.ir.merging import Merging
from eqsat.ir.ops import Call, Const, Fold, Iota, Leaf, Map, Opaque, Operation, Reduce, Select
from eqsat.ir.reduction_monoids import MERGES, identity_text
from eqsat.ir.term import Term, Terms, reachable
from eqsat.streaming.factor_states import FactorState


@dataclass(frozen=True)
class Part:
    """One array of a fold's state.

    **Attributes:**

    - `axes`: its dimensions, in the axes of the whole program.
    - `initial`: the text of the constant that it starts as. None: the first chunk makes it, or it is given.
    - `given`: whether it starts as the fold's first operand.
    """

    axes: tuple[Axis, ...]
    dtype: str
    initial: str | None
    given: bool = False


def state_parts(result: Term) -> tuple[Part, ...]:
    """The arrays of a fold's state."""
    assert isinstance(result.op, Fold)
    match result.op.monoid:
        case str(kind):
            wide = accumulator(result.dtype)
            return (Part(tuple(sorted(result.axes)), wide, identity_text(kind, wide)),)
        case Monoid() as monoid:
            state = Merging().state(monoid, result.args)
            parts = []
            for constant, leaf in zip(state.identity, state.earlier, strict=True):
                assert isinstance(constant.op, Const)
                parts.append(Part(tuple(sorted(leaf.axes)), leaf.dtype, constant.op.text))
            return tuple(parts)
        case Select() as select:
            axes = tuple(sorted(result.axes))
            indices = select.dtype if select.result == "indices" else "int32"
            return Part(axes, result.args[0].dtype, None), Part(axes, indices, None)
        case Opaque(call=call):
            return (Part(layout_axes(call.out_layouts[0]), result.dtype, None, given=True),)
        case Operation():
            return tuple(Part(*array) for array in FactorState.of(result).arrays())
    raise AssertionError(result.op)


class StateTerms:
    """Builds the terms by which one fold goes on, and those of its result.

    **Attributes:**

    - `terms`: the table in which they are built.
    - `free`: the next number that no axis has; `calls`: the same for calls.
    """

    def __init__(self, terms: Terms, free: int, calls: int) -> None:
        self.terms = terms
        self.free = free
        self.calls = calls

    def merged(
        self,
        result: Term,
        earlier: Sequence[Term],
        later: Sequence[Term],
        part: Axis,
        start: Callable[[], Term],
        names: Mapping[Axis, Axis],
    ) -> list[Term]:
        """The state after a chunk.

        **Arguments:**

        - `earlier`: the state before it; empty for the first chunk of a fold that has no identity.
        - `later`: the values of the chunk that the fold combines.
        - `part`: the axis of the chunk.
        - `start`: gives where the chunk begins.
        - `names`: the axes of the chunks by those that are open.
        """
        assert isinstance(result.op, Fold)
        match result.op.monoid:
            case str(kind):
                value = self._converted(later[0], earlier[0].dtype)
                name = MERGES[kind]
                if earlier[0].dtype == "bool":
                    name = {"add": "or", "mul": "and", "max": "or", "min": "and"}.get(name, name)
                return [self.terms.make(Map(name, value.dtype), [earlier[0], value])]
            case Monoid() as monoid:
                return self._declared(result, monoid, earlier, later)
            case Select() as select:
                return self._selected(select, earlier, later[0], part, start())
            case Opaque(call=call):
                return [self.terms.make(Opaque(call.renamed(names), 0), [*earlier, *later])]
            case Operation():
                self.calls += 1
                chunk = part, start(), names
                return FactorState.of(result).merged(self.terms, self.calls - 1, earlier, later, *chunk)
        raise AssertionError(result.op)

    def finished(self, result: Term, state: Sequence[Term], names: Mapping[Axis, Axis]) -> Term:
        """The result of a fold, given its state in the end.

        **Arguments:**

        - `names`: the axes of the chunks by those that are open.
        """
        assert isinstance(result.op, Fold)
        match result.op.monoid:
            case str() | Opaque():
                return self._converted(state[0], result.dtype)
            case Monoid() as monoid:
                built = Merging().state(monoid, result.args)
                known = {leaf.number: value for leaf, value in zip(built.earlier, state, strict=True)}
                return self._converted(self._copied([built.finished], known)[0], result.dtype)
            case Select() as select:
                return state[1] if select.result == "indices" else state[0]
            case Operation():
                self.calls += 1
                return FactorState.of(result).finished(self.terms, self.calls - 1, state, names)[-1]
        raise AssertionError(result.op)

    def _converted(self, term: Term, dtype: str) -> Term:
        return term if term.dtype == dtype else self.terms.make(Map("convert", dtype), [term])

    def _declared(
        self, result: Term, monoid: Monoid, earlier: Sequence[Term], later: Sequence[Term]
    ) -> list[Term]:
        state = Merging().state(monoid, result.args)
        known = {leaf.number: value for leaf, value in zip(state.earlier, earlier, strict=True)}
        for leaf, value in zip(state.later, later, strict=True):
            known[leaf.number] = self._converted(value, leaf.dtype)
        return self._copied(state.merged, known)

    def _copied(self, roots: Sequence[Term], known: Mapping[int, Term]) -> list[Term]:
        """Formulas with their leaves replaced by terms, by number."""
        found = dict(known)
        for term in reachable(roots):
            if term.number not in found:
                assert isinstance(term.op, (Const, Map))
                found[term.number] = self.terms.make(term.op, [found[arg.number] for arg in term.args])
        return [found[root.number] for root in roots]

    def _selected(
        self, select: Select, earlier: Sequence[Term], operand: Term, part: Axis, start: Term
    ) -> list[Term]:
        """The best entries so far: of equal ones the first, and NaN is better than any number."""
        indices_dtype = select.dtype if select.result == "indices" else "int32"
        k = min(select.k, part.size)
        out = select.out_axis
        here = None
        if out is not None:
            here = out if k == select.k else self._axis(k)
        chosen = replace(select, axis=part, k=k, out_axis=here)
        indices = self.terms.make(replace(chosen, result="indices", dtype=indices_dtype), [operand])
        offset = self._converted(start, indices_dtype)
        indices = self.terms.make(Map("add", indices_dtype), [indices, offset])
        if select.kind == "top_k":
            values = self.terms.make(replace(chosen, result="values", dtype=operand.dtype), [operand])
        else:
            kind = "max" if select.kind == "argmax" else "min"
            values = self.terms.make(Reduce(kind, frozenset({part}), operand.dtype), [operand])
        if not earlier:
            return [values, indices]
        if out is None:
            return self._better(select.kind, earlier, values, indices)
        assert here is not None
        among = self._axis(out.size + here.size)
        old, new = (
            (tuple(sorted(earlier[0].axes - {out}))),
            (tuple(sorted(values.axes - {here}))),
        )
        rest = tuple(dict.fromkeys((*old, *new)))
        layouts = [(out, *rest), (here, *rest)]
        all_values = self._joined([earlier[0], values], layouts, (among, *rest))
        all_indices = self._joined([earlier[1], indices], layouts, (among, *rest))
        best = replace(select, axis=among)
        values = self.terms.make(replace(best, result="values", dtype=operand.dtype), [all_values])
        chosen_at = self.terms.make(replace(best, result="indices", dtype="int32"), [all_values])
        is_it = self.terms.make(Map("eq", "bool"), [self.terms.make(Iota(among, "int32")), chosen_at])
        zero = self.terms.make(Const("0", indices_dtype))
        kept = self.terms.make(Map("select_n", indices_dtype), [is_it, zero, all_indices])
        return [values, self.terms.make(Reduce("sum", frozenset({among}), indices_dtype), [kept])]

    def _better(self, kind: str, earlier: Sequence[Term], values: Term, indices: Term) -> list[Term]:
        """Of two extremes with their indices, the better one; the earlier one of equals."""

        def test(name: str, first: Term, second: Term) -> Term:
            return self.terms.make(Map(name, "bool"), [first, second])

        old, old_indices = earlier
        better = test("gt" if kind == "argmax" else "lt", values, old)
        if is_inexact(values.dtype):
            is_nan = self.terms.make(Map("and", "bool"), [test("ne", values, values), test("eq", old, old)])
            better = self.terms.make(Map("or", "bool"), [better, is_nan])
        return [
            self.terms.make(Map("select_n", values.dtype), [better, old, values]),
            self.terms.make(Map("select_n", indices.dtype), [better, old_indices, indices]),
        ]

    def _axis(self, size: int) -> Axis:
        self.free += 1
        return Axis(self.free - 1, size)

    def _joined(self, terms: Sequence[Term], layouts: Sequence[Layout], whole: Layout) -> Term:
        return self.call(lax.concatenate_p, {"dimension": 0}, layouts, whole, terms)

    def call(
        self,
        primitive: object,
        params: Mapping[str, object],
        old: Sequence[Layout],
        new: Layout,
        args: Sequence[Term],
    ) -> Term:
        """A call along all axes that its operands and its result share."""
        kept = frozenset(layout_axes(new))
        for layout in old:
            kept &= frozenset(layout_axes(layout)) or kept
        self.calls += 1
        made = Call(self.calls - 1, primitive, dict(params), tuple(old), (new,), (args[0].dtype,), kept)
        return self.terms.make(Opaque(made, 0), args)

    def leaf(self, index: int, layout: Layout, dtype: str) -> Term:
        """An input."""
        return self.terms.make(Leaf(index, layout, dtype))


def part_bytes(part: Part, lengths: Mapping[Axis, int]) -> int:
    """Bytes of an array of a state, at the lengths of chunks of the axes that are open around it."""
    return math.prod(lengths.get(axis, axis.size) for axis in part.axes) * numpy_dtype(part.dtype).itemsize
