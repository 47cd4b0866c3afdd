"""Dead results of control flow: what nothing reads of a loop or a choice is not computed.

A result of a `scan` that nothing reads leaves the call, with the carries and the operands that only it needs,
and the same in the bodies inside. XLA's compiler does so (`WhileLoopSimplifier`, dead code elimination);
programs that keep such results would be predicted to need more than they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from eqsat.ir.axis import Axis
from eqsat.ir.control import Body, Control, Scan, Switch, While, carried
from eqsat.ir.ops import Call, Opaque
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term

Application = tuple[Call, tuple[int, ...]]
"""A call of control flow, and the numbers of its operands."""


def without_unused_results(program: Program) -> tuple[Program, Mapping[int, Term]]:
    """Returns the program without the results of control flow that its outputs do not need.

    If there are such results, equalities and facts are left out, too: the program is meant to be carried out.

    **Returns:** the program, and its terms by the numbers of those that they replace.
    """
    known: dict[int, Term] = {term.number: term for term in program.reachable()}
    while True:
        trimmed = _Trimming(program)
        if not trimmed.changes:
            return program, known
        program, found = trimmed.result()
        known = {number: found[term.number] for number, term in known.items() if term.number in found}


def application(term: Term) -> Application:
    """The call that a term is a result of, with its operands."""
    assert isinstance(term.op, Opaque)
    return term.op.call, tuple(arg.number for arg in term.args)


class _Trimming:
    """One pass over a program.

    **Attributes:**

    - `changes`: whether there is anything to leave out.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.terms = list(program.reachable())
        self.used: dict[Application, set[int]] = {}
        self.calls: dict[Application, tuple[Call, tuple[Term, ...]]] = {}
        for term in self.terms:
            if isinstance(term.op, Opaque) and term.op.call.control is not None:
                self.used.setdefault(application(term), set()).add(term.op.result)
                self.calls[application(term)] = term.op.call, term.args
        self.trimmed = {
            key: made
            for key, (call, args) in self.calls.items()
            if (made := trimmed(call, args, self.used[key])) is not None
        }
        self.changes = bool(self.trimmed)

    def result(self) -> tuple[Program, dict[int, Term]]:
        """Returns the program, and its terms by the numbers of those that they replace."""
        table = self.program.terms
        found: dict[int, Term] = {}
        numbered: dict[Application, Call] = {}
        next_call = self.program.next_call()
        for term in self.terms:
            args = [found[arg.number] for arg in term.args]
            op = term.op
            key = application(term) if isinstance(op, Opaque) and op.call.control is not None else None
            if key in self.trimmed:
                assert key is not None
                assert isinstance(op, Opaque)
                call, results, operands = self.trimmed[key]
                if key not in numbered:
                    numbered[key] = replace(call, id=next_call)
                    next_call += 1
                op = Opaque(numbered[key], results[op.result])
                args = [args[place] for place in operands]
            made = found[term.number] = table.make(op, args)
            if term.number in table.origins:
                table.origins.setdefault(made.number, table.origins[term.number])
        outputs = tuple(Output(found[output.term.number], output.layout) for output in self.program.outputs)
        alike = tuple(found[term.number] for term in self.program.alike if term.number in found)
        program = replace(self.program, outputs=outputs, alike=alike, equalities=(), facts=())
        return program, found


Trimmed = tuple[Call, dict[int, int], list[int]]
"""A call with fewer results; by old result, the new one; the operands that are left, by place."""


def trimmed(call: Call, args: Sequence[Term], used: set[int]) -> Trimmed | None:
    """Returns the call with the results that are used, or None if it has no others."""
    kept = sorted(needed_results(call, used))
    programs = [_body(call, number, kept) for number in range(len(call.bodies))]
    sources = {
        source for body, program in zip(call.bodies, programs, strict=True) for source in _read(program, body)
    }
    control = _given(call.control)
    starts = {place for number, place in enumerate(carried(control)) if number in kept}
    if isinstance(control, Switch):
        starts = {0}
    operands = sorted(sources | starts)
    alike = all(program is body.program for program, body in zip(programs, call.bodies, strict=True))
    if alike and len(kept) == len(call.out_layouts) and len(operands) == len(args):
        return None
    made = _with_operands(call, args, operands, programs, kept)
    return made, {old: new for new, old in enumerate(kept)}, operands


def without_unread_operands(call: Call, args: tuple[Term, ...]) -> tuple[Call, tuple[Term, ...]]:
    """Returns the call without operands that no body reads or carries, and the operands that are left."""
    programs = [body.program for body in call.bodies]
    read = {source for body in call.bodies for source in _read(body.program, body)}
    control = _given(call.control)
    operands = sorted({*read, *carried(control), *([0] if isinstance(control, Switch) else [])})
    made = _with_operands(call, args, operands, programs, range(len(call.out_layouts)))
    return made, tuple(args[place] for place in operands)


def _with_operands(
    call: Call,
    args: Sequence[Term],
    operands: Sequence[int],
    programs: Sequence[Program],
    kept: Sequence[int],
) -> Call:
    """Returns the call with other bodies, of some of the operands and results.

    **Arguments:**

    - `operands`: the operands that are left, by place, and `kept`: the results.
    - `programs`: the programs of its bodies.
    """
    place = {old: new for new, old in enumerate(operands)}
    bodies = []
    for body, program in zip(call.bodies, programs, strict=True):
        fed = [
            (leaf, place[source])
            for leaf, source in zip(program.inputs, body.sources, strict=True)
            if source in place
        ]
        inputs = tuple(leaf for leaf, _ in fed)
        bodies.append(Body(replace(program, inputs=inputs), tuple(source for _, source in fed)))
    given = frozenset[Axis]().union(*(args[old].axes for old in operands))
    return replace(
        call,
        arg_layouts=tuple(call.arg_layouts[old] for old in operands),
        out_layouts=tuple(call.out_layouts[result] for result in kept),
        out_dtypes=tuple(call.out_dtypes[result] for result in kept),
        passing=call.passing & given,
        sums=call.sums & given,
        control=_renumbered(_given(call.control), kept, place),
        bodies=tuple(bodies),
        unread=frozenset(new for new, old in enumerate(kept) if old in call.unread),
    )


def _given(control: Control | None) -> Control:
    assert control is not None
    return control


def needed_results(call: Call, used: Set[int]) -> set[int]:
    """Returns the results of control flow that the used ones need: carries that an iteration reads."""
    control = _given(call.control)
    if isinstance(control, Switch):
        return set(used)
    body = call.bodies[-1]
    needed = set(used)
    waiting = list(used)
    if isinstance(control, While):
        read = _carries_read(call.bodies[0], [call.bodies[0].program.outputs[0].term], control)
        waiting += read - needed
        needed |= read
    while waiting:
        root = body.program.outputs[waiting.pop()].term
        more = _carries_read(body, [root], control) - needed
        needed |= more
        waiting += more
    return needed


def _carries_read(body: Body, roots: Sequence[Term], control: Scan | While) -> set[int]:
    """Returns the numbers of the carries that terms of a body need."""
    return {control.carried.index(source) for source in _sources(body, roots) if source in control.carried}


def _sources(body: Body, roots: Sequence[Term]) -> set[int]:
    """Returns the operands that terms of a body need, by place."""
    numbers = _needed_terms(roots)
    return {
        source
        for leaf, source in zip(body.program.inputs, body.sources, strict=True)
        if leaf.number in numbers
    }


def _needed_terms(roots: Sequence[Term]) -> set[int]:
    """Returns the numbers of the terms that others need: of inner control flow, what its results need."""
    found: set[int] = set()
    used: dict[Application, set[int]] = {}
    waiting = list(roots)
    while waiting:
        term = waiting.pop()
        if term.number in found:
            continue
        found.add(term.number)
        if isinstance(term.op, Opaque) and term.op.call.control is not None:
            results = used.setdefault(application(term), set())
            results.add(term.op.result)
            waiting += (term.args[place] for place in _needed_operands(term.op.call, results))
        else:
            waiting += term.args
    return found


def _needed_operands(call: Call, used: Set[int]) -> set[int]:
    """Returns the operands that results of control flow need, by place."""
    control = _given(call.control)
    kept = needed_results(call, used)
    places = {place for number, place in enumerate(carried(control)) if number in kept}
    if isinstance(control, Switch):
        places = {0}
    for number, body in enumerate(call.bodies):
        outputs = body.program.outputs
        is_condition = isinstance(control, While) and number == 0
        read = outputs if is_condition else [outputs[result] for result in kept]
        places |= _sources(body, [output.term for output in read])
    return places


def _body(call: Call, number: int, kept: Sequence[int]) -> Program:
    """Returns the program of a body that gives the results that are kept."""
    program = call.bodies[number].program
    is_condition = isinstance(call.control, While) and number == 0
    if not is_condition and len(kept) < len(program.outputs):
        program = replace(program, outputs=tuple(program.outputs[result] for result in kept))
    return without_unused_results(program)[0]


def _read(program: Program, body: Body) -> set[int]:
    """Returns the operands that a body reads, by place."""
    numbers = {term.number for term in program.known()}
    return {
        source for leaf, source in zip(program.inputs, body.sources, strict=True) if leaf.number in numbers
    }


def _renumbered(control: Control, kept: Sequence[int], place: Mapping[int, int]) -> Control:
    """Returns the control flow with the carries that are kept, and its operands at other places."""
    if isinstance(control, Switch):
        return control
    starts = tuple(place[old] for number, old in enumerate(control.carried) if number in kept)
    if isinstance(control, While):
        return replace(control, carried=starts)
    return replace(control, carried=starts, sliced=tuple(place[o] for o in control.sliced if o in place))
