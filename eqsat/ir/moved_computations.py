"""What moves entries of computed arrays, computed from what is moved: a flip of `f(x)` is `f` of a flip.

    f(a, b)[::-1]      =  f(a[::-1], b[::-1])
    f(a, b)[indices]   =  f(a[indices], b[indices])
    concatenate(a, b)_i  =  a_i if i < m, else b_(i - m)        for an a of length m

Elementwise functions, and reductions and contractions over other axes, are computed again. Indices become
those of the entries, and of all else entries are looked up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jax import lax

from eqsat.ir.axis import Axis, Layout, layout_shape
from eqsat.ir.comparing import same_bits
from eqsat.ir.constants import constant_text
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.ops import Call, Const, Dot, Iota, Map, Opaque, Operation, Reduce, Rename
from eqsat.ir.picked_entries import outside_value
from eqsat.ir.single_entries import entry_at
from eqsat.ir.term import Term, Terms

MOST_TERMS = 200
"""The most terms that are computed again for one that moves entries."""

INDICES = ("int8", "int16", "int32", "uint8", "uint16")
"""The dtypes of indices that are no others as int32."""


@dataclass(frozen=True)
class Move:
    """Which entries of an axis there are, in the place of the axis.

    **Attributes:**

    - `index`: their indices; any where `outside` says that there are none.
    - `axes`: the axes that come in the place of the one.
    - `places`: the indices, if they are evenly spaced; `outside`: how many others are before them and after.
    - `count`: how often all of these come, one time after the other.
    """

    index: Term
    axes: tuple[Axis, ...]
    places: range | None = None
    outside: tuple[int, int] = (0, 0)
    count: int = 1


Moves = Mapping[Axis, Move]


@dataclass(frozen=True)
class Piece:
    """A part of what a call makes: the entries `moves` of an operand.

    **Attributes:**

    - `inside`: where it is that; None if everywhere.
    - `other`: what it is elsewhere; None for what the next piece says.
    """

    operand: Term
    moves: Moves
    inside: Term | None = None
    other: Term | None = None


class Moving:
    """Computes terms along moved axes.

    **Attributes:**

    - `given`: the entries of a term that are known otherwise; None for terms that are not.
    - `forms`: by number, terms in whose place others are moved: a roll is made of two slices, for example.
    - `found`: how many were given.
    - `same_bits`: whether all that is computed again is the same bits.
    """

    def __init__(
        self, terms: Terms, given: Callable[[Term, Moves], Term | None], forms: Mapping[int, Term]
    ) -> None:
        self.terms = terms
        self.given = given
        self.forms = forms
        self.found = 0
        self.same_bits = True

    def computed(self, term: Term) -> Term | None:
        """A call that moves entries, as computed from moved ones; None if there are none that are known."""
        pieces = self._pieces(term)
        if not pieces or any(self._is_long(piece) for piece in pieces):
            return None
        made: Term | None = None
        for piece in reversed(pieces):
            value = self._along(piece.operand, piece.moves, {})
            other = piece.other or made
            if piece.inside is not None and other is not None:
                value = self.terms.make(Map("select_n", term.dtype), [piece.inside, other, value])
            made = value
        return made if self.found and made is not None and made.axes == term.axes else None

    def _is_long(self, piece: Piece) -> bool:
        new = {axis for move in piece.moves.values() for axis in move.axes}
        seen, stack = set[int](), [piece.operand]
        while stack:
            term = self._form(stack.pop())
            if term.number in seen or (term.axes.isdisjoint(piece.moves) and not isinstance(term.op, Rename)):
                continue
            seen.add(term.number)
            if len(seen) > MOST_TERMS or (new - piece.moves.keys()) & term.axes:
                return True
            if isinstance(term.op, Map | Reduce | Dot | Rename):
                stack.extend(term.args)
        return False

    def _form(self, term: Term) -> Term:
        return self.forms.get(term.number, term)

    def _along(self, term: Term, moves: Moves, made: dict[int, Term]) -> Term:
        term = self._form(term)
        moves = {axis: move for axis, move in moves.items() if axis in term.axes}
        if not moves:
            return term
        if term.number not in made:
            given = self.given(term, moves)
            self.found += given is not None
            made[term.number] = self._again(term, moves, made) if given is None else given
        return made[term.number]

    def _again(self, term: Term, moves: Moves, made: dict[int, Term]) -> Term:
        self.same_bits &= isinstance(term.op, Iota | Rename) or same_bits(term, moves)
        match term.op:
            case Map():
                return self.terms.make(term.op, [self._along(arg, moves, made) for arg in term.args])
            case Reduce(axes=axes) | Dot(axes=axes) if axes.isdisjoint(moves):
                return self.terms.make(term.op, [self._along(arg, moves, made) for arg in term.args])
            case Iota(axis=axis, dtype=dtype):
                return self._converted(moves[axis].index, dtype)
            case Rename(old=old, new=new) if new in moves and len(moves) == 1:
                return self._along(term.args[0], {old: moves[new]}, {})
            case _:
                for axis, move in moves.items():
                    if move.places is not None and len(move.places) == 1 and not move.axes:
                        # Whatever takes the entries along the axis in order can pick one on its way.
                        term = entry_at(self.terms, term, axis, move.places[0])
                        self.found += 1
                        continue
                    take = Operation(OPERATIONS["take"], (axis,), term.dtype)
                    term = self.terms.make(take, [term, move.index])
                return term

    # What calls move

    def _pieces(self, term: Term) -> Sequence[Piece]:
        if not isinstance(term.op, Opaque):
            return ()
        call, result = term.op.call, term.op.result
        layouts = (*call.arg_layouts, *call.out_layouts)
        lengths = [length for layout in layouts for length in layout_shape(layout)]
        if 0 in lengths or max(lengths, default=0) > np.iinfo(np.int32).max:
            return ()
        out, params, first = call.out_layouts[result], call.params, call.arg_layouts[0]
        shape = layout_shape(first)
        match call.primitive.name:
            case "slice":
                steps = params["strides"] or (1,) * len(first)
                ranges = map(range, params["start_indices"], params["limit_indices"], steps)
                return self._piece(term.args[0], first, out, list(ranges))
            case "split":
                ends = list(itertools.accumulate(params["sizes"], initial=0))
                places = list(map(range, shape))
                places[params["axis"]] = range(ends[result], ends[result + 1])
                return self._piece(term.args[0], first, out, places)
            case "rev":
                places = [
                    range(length)[::-1] if number in params["dimensions"] else range(length)
                    for number, length in enumerate(shape)
                ]
                return self._piece(term.args[0], first, out, places)
            case "pad":
                config = [tuple(map(int, each)) for each in params["padding_config"]]
                if any(low < 0 or high < 0 or inner for low, high, inner in config):
                    return ()
                outside = [(low, high) for low, high, _ in config]
                return self._piece(term.args[0], first, out, list(map(range, shape)), outside, term.args[1])
            case "concatenate":
                return self._joined(call, term.args)
            case "tile":
                return self._tiled(term.args[0], first, out)
            case "gather":
                return self._gathered(term, call)
            case _:
                return ()

    def _piece(
        self,
        operand: Term,
        layout: Layout,
        out: Layout,
        places: Sequence[range],
        outside: Sequence[tuple[int, int]] = (),
        other: Term | None = None,
    ) -> list[Piece]:
        """The piece of an operand that is at some places of its dimensions; none if these are no axes."""
        moves: dict[Axis, Move] = {}
        tests: list[Term] = []
        for number, (axis, new) in enumerate(zip(layout, out, strict=True)):
            before, after = outside[number] if outside else (0, 0)
            if axis == new and not before and not after and places[number].step == 1:
                continue
            if not isinstance(axis, Axis) or isinstance(new, tuple) or axis not in operand.axes:
                return []
            index = self._index(new, places[number], before)
            if before or after:
                assert new is not None
                count = self.terms.make(Iota(new, "int32"))
                tests += [self._test("ge", count, before)] if before else []
                tests += [self._test("lt", count, before + len(places[number]))] if after else []
            moves[axis] = Move(index, () if new is None else (new,), places[number], (before, after))
        inside = tests[0] if tests else None
        for test in tests[1:]:
            inside = self.terms.make(Map("and", "bool"), [inside or test, test])
        return [Piece(operand, moves, inside, other)] if moves else []

    def _joined(self, call: Call, args: Sequence[Term]) -> list[Piece]:
        at, (out,) = int(call.params["dimension"]), call.out_layouts
        lengths = [layout_shape(layout)[at] for layout in call.arg_layouts]
        pieces: list[Piece] = []
        joined, begin = out[at], 0
        if not isinstance(joined, Axis):
            return []
        for arg, layout, length in zip(args, call.arg_layouts, lengths, strict=True):
            ends = (begin, sum(lengths) - begin - length)
            begin += length
            places = [range(each) for each in layout_shape(layout)]
            if layout[at] is None or (isinstance(layout[at], Axis) and layout[at] not in arg.axes):
                count = self.terms.make(Iota(joined, "int32"))
                pieces.append(Piece(arg, {}, self._test("lt", count, begin)))
                continue
            outside = [ends if number == at else (0, 0) for number in range(len(layout))]
            made = self._piece(arg, layout, out, places, outside)
            if not made:
                return []
            # Earlier pieces come first, so only where a piece ends matters.
            count = self.terms.make(Iota(joined, "int32"))
            pieces.append(Piece(arg, made[0].moves, self._test("lt", count, begin)))
        return pieces

    def _tiled(self, operand: Term, layout: Layout, out: Layout) -> list[Piece]:
        """The piece of an operand that is repeated along some of its axes."""
        moves: dict[Axis, Move] = {}
        for axis, new in zip(layout, out, strict=True):
            if axis == new:
                continue
            if not isinstance(axis, Axis) or not isinstance(new, Axis) or axis not in operand.axes:
                return []
            index = self.terms.make(
                Map("rem", "int32"), [self._index(new, range(1), 0), self._number(axis.size)]
            )
            moves[axis] = Move(index, (new,), range(axis.size), count=new.size // axis.size)
        return [Piece(operand, moves)] if moves else []

    def _gathered(self, term: Term, call: Call) -> list[Piece]:
        """The rows that a gather takes by one column of indices; along shared axes, each of its own.

        An index may be that of the first of several rows, as of the frames of a series.
        """
        numbers, (table, indices) = call.params["dimension_numbers"], term.args
        layout = call.arg_layouts[0]
        if len(numbers.start_index_map) != 1:
            return []
        shared = [layout[number] for number in numbers.operand_batching_dims]
        if shared != [call.arg_layouts[1][number] for number in numbers.start_indices_batching_dims]:
            return []
        (at,) = numbers.start_index_map
        axis, length = layout[at], layout_shape(layout)[at]
        count = call.params["slice_sizes"][at]
        single = {at: count, **dict.fromkeys(numbers.operand_batching_dims, 1)}
        sizes = tuple(single.get(number, each) for number, each in enumerate(layout_shape(layout)))
        if call.params["slice_sizes"] != sizes or indices.dtype not in INDICES or count == length:
            return []
        if not isinstance(axis, Axis) or axis not in table.axes:
            return []
        index = self._converted(indices, "int32")
        clipped = self.terms.make(Map("max", "int32"), [index, self._number(0)])
        clipped = self.terms.make(Map("min", "int32"), [clipped, self._number(length - count)])
        axes, place = tuple(sorted(indices.axes - frozenset(shared))), clipped
        if count > 1:
            gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
            kept = [number for number in range(len(layout)) if number not in gone]
            along = call.out_layouts[0][numbers.offset_dims[kept.index(at)]]
            if not isinstance(along, Axis) or along in indices.axes:
                return []
            place = self.terms.make(Map("add", "int32"), [clipped, self.terms.make(Iota(along, "int32"))])
            axes = (*axes, along)
        moves = {axis: Move(place, axes)}
        if call.params["mode"] != lax.GatherScatterMode.FILL_OR_DROP:
            return [Piece(table, moves)]
        inside = self.terms.make(Map("eq", "bool"), [index, clipped])
        other = self.terms.make(Const(constant_text(outside_value(call)), term.dtype))
        return [Piece(table, moves, inside, other)]

    # Terms

    def _index(self, axis: Axis | None, places: range, before: int) -> Term:
        """The indices of places, of which so many others are in front."""
        if axis is None:
            return self._number(places[0])
        index = self.terms.make(Iota(axis, "int32"))
        for name, value, nothing in (
            ("mul", places.step, 1),
            ("add", places.start - before * places.step, 0),
        ):
            if value != nothing:
                index = self.terms.make(Map(name, "int32"), [index, self._number(value)])
        return index

    def _test(self, name: str, count: Term, bound: int) -> Term:
        return self.terms.make(Map(name, "bool"), [count, self._number(bound)])

    def _number(self, value: int) -> Term:
        return self.terms.make(Const(str(value), "int32"))

    def _converted(self, term: Term, dtype: str) -> Term:
        return term if term.dtype == dtype else self.terms.make(Map("convert", dtype), [term])
