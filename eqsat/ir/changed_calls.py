"""Programs with their calls of control flow changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from eqsat.ir.control import Body
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Program
from eqsat.ir.substitution import with_inputs
from eqsat.ir.term import Term

Operands = tuple[Term, ...]


def with_changed_calls(
    program: Program,
    change: Callable[[Call, Operands], tuple[Call, Operands]],
    numbers: Iterator[int] | None = None,
) -> Program:
    """The program with each call of control flow changed, but not those inside of bodies.

    **Arguments:**

    - `change`: from a call and its operands to the call in its place and that one's operands; the same call
      if it stays.
    - `numbers`: numbers that no call has, for those that are made.
    """
    numbers = numbers or itertools.count(program.next_call())
    done: set[tuple[Call, Operands]] = set()
    while True:
        found = next((found for found in program.controls() if found not in done), None)
        if found is None:
            return program
        call, args = found
        done.add(found)
        made, operands = change(call, args)
        if made is call:
            continue
        made = replace(made, id=next(numbers))
        done.add((made, operands))
        known = {
            term.number: program.terms.make(Opaque(made, term.op.result), operands)
            for term in program.known()
            if isinstance(term.op, Opaque) and term.op.call == call and term.args == args
        }
        program = with_inputs(program, program.inputs, known)


def with_changed_bodies(program: Program, change: Callable[[Call, Operands], Sequence[Body]]) -> Program:
    """The program with the bodies of each call changed, but not those inside of bodies."""

    def changed(call: Call, args: Operands) -> tuple[Call, Operands]:
        bodies = change(call, args)
        same = all(new is old for new, old in zip(bodies, call.bodies, strict=True))
        return (call if same else with_bodies(call, bodies, args)), args

    return with_changed_calls(program, changed)
