"""Saves the carries of scans for every iteration, in place of large stacked results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from eqsat.ir.axis import Axis, layout_axes
from eqsat.ir.control import Body, Scan, carried
from eqsat.ir.control_axes import given_layouts
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.dtypes import itemsize
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Output
from eqsat.ir.term import Term, Terms, reachable


@dataclass(frozen=True, slots=True, eq=False)
class Stacking:
    """A variant of a scan that stacks its carries instead of large results.

    **Attributes:**

    - `results`: by result of the original scan, apart from the large ones, the same result of this one.
    - `iterations`: by operand that is the initial value of a carry, the result that stacks the carry as the
      iterations received it, and the axis of iterations.
    """

    call: Call
    results: dict[int, int]
    iterations: dict[int, tuple[int, Axis]]


@dataclass
class Carries:
    """Variants of scans that save their carries, made on demand.

    **Arguments:**

    - `numbered`: returns a call that was made of another one with a number of its own.
    - `threshold`: the size in bytes above which a result is large.
    - `given`: the stacked carries requested so far.
    """

    terms: Terms
    numbered: Callable[[Call, Call], Call]
    threshold: float
    given: list[Term] = field(default_factory=list)
    _made: dict[tuple[Call, tuple[int, ...]], Stacking | None] = field(default_factory=dict)

    def stacked(self, call: Call, args: tuple[Term, ...], place: int) -> tuple[Term, Axis] | None:
        """A carry as the iterations of a scan received it, stacked, with their axis; None if impossible.

        **Arguments:**

        - `place`: the operand that is the carry's initial value.
        """
        key = (call, tuple(arg.number for arg in args))
        if key not in self._made:
            self._made[key] = self._stacking(call, args)
        made = self._made[key]
        if made is None or place not in made.iterations:
            return None
        result, axis = made.iterations[place]
        term = self.terms.make(Opaque(made.call, result), args)
        self.given.append(term)
        return term, axis

    def instead(self, term: Term) -> Term | None:
        """The same value as a result of the scan that saves its carries, if that scan was requested."""
        assert isinstance(term.op, Opaque)
        made = self._made.get((term.op.call, tuple(arg.number for arg in term.args)))
        if made is None or term.op.result not in made.results:
            return None
        return self.terms.make(Opaque(made.call, made.results[term.op.result]), term.args)

    def _stacking(self, call: Call, args: tuple[Term, ...]) -> Stacking | None:
        control = call.control
        assert isinstance(control, Scan)
        (body,) = call.bodies
        program = body.program
        first = len(carried(control))
        large = {
            result
            for result in range(first, len(call.out_layouts))
            if result_bytes(call, result) > self.threshold
        }
        axes = [axis for result in large if isinstance(axis := call.out_layouts[result][0], Axis)]
        if not axes:
            return None
        kept = [result for result in range(len(call.out_layouts)) if result not in large]
        needed = {term.number for term in reachable([program.outputs[result].term for result in large])}
        outputs = [program.outputs[result] for result in kept]
        layouts = [call.out_layouts[result] for result in kept]
        dtypes = [call.out_dtypes[result] for result in kept]
        iterations: dict[int, tuple[int, Axis]] = {}
        entries = given_layouts(call)
        for leaf, source in zip(program.inputs, body.sources, strict=True):
            if source in control.carried and source not in iterations and leaf.number in needed:
                layout = entries[control.carried.index(source)]
                if leaf.axes != frozenset(layout_axes(layout)) or axes[0] in leaf.axes:
                    return None
                iterations[source] = len(outputs), axes[0]
                outputs.append(Output(leaf, layout))
                layouts.append((axes[0], *layout))
                dtypes.append(leaf.dtype)
        made = replace(call, out_layouts=tuple(layouts), out_dtypes=tuple(dtypes), bodies=())
        inside = Body(replace(program, outputs=tuple(outputs)), body.sources)
        results = {result: number for number, result in enumerate(kept)}
        made = self.numbered(with_bodies(made, [inside], args), call)
        return Stacking(made, results, iterations)


def result_bytes(call: Call, result: int) -> int:
    """The size of a result in its layout."""
    elements = math.prod(axis.size for axis in layout_axes(call.out_layouts[result]))
    return elements * itemsize(call.out_dtypes[result])
