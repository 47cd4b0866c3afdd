"""Terms that are made of inputs by moving their entries, as what is moved of these inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eqsat.ir.axis import Axis, Layout, as_dimension, layout_axes, parts
from eqsat.ir.moved_arrays import Filled, Moved
from eqsat.ir.moving_calls import arranged, moved_by, moved_operands, repeats
from eqsat.ir.ops import Const, Opaque, Rename
from eqsat.ir.term import Term


@dataclass(frozen=True)
class MovedTerm:
    """A term that is made of inputs by moving their entries.

    **Attributes:**

    - `layout`: its dimensions, as those of `moved`.
    - `apart`: whether a chunk of it along the longest axis is no chunk of an input.
    """

    moved: Moved
    layout: Layout
    apart: bool

    @property
    def layout_axes(self) -> frozenset[Axis]:
        return frozenset(layout_axes(self.layout))


@dataclass
class MovedTerms:
    """The terms of a program, or of a body, that are made of some inputs so.

    **Attributes:**

    - `inputs`: what these inputs are, by number.
    """

    inputs: Mapping[int, MovedTerm]
    _known: dict[int, MovedTerm | None] = field(default_factory=dict)

    def add(self, term: Term, of: MovedTerm) -> None:
        """Note that a term is that."""
        self._known[term.number] = of

    def of(self, term: Term) -> MovedTerm | None:
        """What a term is of these inputs; None if it is not of them, or computed."""
        stack = [term]
        while stack:
            one = stack[-1]
            if one.number in self._known:
                stack.pop()
            elif one.number in self.inputs:
                self._known[one.number] = self.inputs[one.number]
            else:
                waiting = [arg for arg in operands_of(one) if arg.number not in self._known]
                if waiting:
                    stack.extend(waiting)
                else:
                    self._known[one.number] = self._made_of(one)
        return self._known[term.number]

    def _made_of(self, term: Term) -> MovedTerm | None:
        match term.op:
            case Rename(old=old, new=new):
                of = self._known[term.args[0].number]
                if of is None:
                    return None
                names = {old: new}
                layout = tuple(
                    as_dimension(names.get(axis, axis) for axis in parts(each)) for each in of.layout
                )
                return replace(of, layout=layout)
            case Opaque(call=call, result=result):
                operands = operands_of(term)
                known = [self._known[arg.number] or filled(arg) for arg in operands]
                if any(of is None for of in known) or all(map(filled, operands)):
                    return None
                found = [of for of in known if of is not None]
                arrays = []
                for of, layout in zip(found, call.arg_layouts, strict=False):
                    array = arranged(of.moved, of.layout, layout)
                    if array is None:
                        return None
                    arrays.append(array)
                moved = moved_by(term, arrays)
                layout = call.out_layouts[result]
                if moved is None or repeats(layout):
                    return None
                apart = any(of.apart or not longest_axes(of.layout) <= call.passing for of in found)
                return MovedTerm(moved, layout, apart)
            case _:
                return None


def filled(term: Term) -> MovedTerm | None:
    """What a constant is, as zeros that are joined to an input; None for other terms."""
    if not isinstance(term.op, Const):
        return None
    return MovedTerm(Filled(term.op.text, term.op.dtype, ()), (), False)


def operands_of(term: Term) -> tuple[Term, ...]:
    """The operands whose entries a term moves."""
    return term.args if isinstance(term.op, Rename) else moved_operands(term)


def longest_axes(layout: Layout) -> frozenset[Axis]:
    """The longest axis of an array, or the longest ones."""
    axes = layout_axes(layout)
    most = max((axis.size for axis in axes), default=0)
    return frozenset(axis for axis in axes if axis.size == most)
