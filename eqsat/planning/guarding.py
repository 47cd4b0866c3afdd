"""Programs of two branches: one that is fast where guards hold of the data, and one that is right on any.

Where rules with guards match is known from the program's e-graph, in which they have not been used: all that
is equal there is equal on any data. What the guards look at is taken from it, so a guard never depends on
what it guards. Rules are granted what is cheap to test, and a second e-graph says what comes of that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import jax

from eqsat.engine.compiled import Found, Granted
from eqsat.engine.cost import CostModel
from eqsat.engine.extract import Extractor
from eqsat.ir.control import Body, Choice
from eqsat.ir.guard import NoTest, conditions, joined
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Call, Leaf, Opaque
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, reachable
from eqsat.machine import Machine
from eqsat.planning.blocks import Block, Compute, Loop, Schedule
from eqsat.planning.candidates import Candidate, predicted
from eqsat.planning.exploring import Search
from eqsat.planning.liveness import predicted_peak, predicted_seconds
from eqsat.planning.loops import build

MOST_TESTED = 64
"""Of more matches of rules with guards than this, the rest is not looked at."""

SHARE = 0.25
"""What takes longer to test than this part of the time that the program takes is not tested."""


@dataclass(frozen=True)
class Granting:
    """What rules may be used on, if tests hold.

    **Attributes:**

    - `tests`: for each of `granted`, truth values without axes. Those that are known to hold are left out.
    - `guards`: by the numbers of the rules, their names and guards.
    """

    granted: tuple[Granted, ...]
    tests: tuple[tuple[Term, ...], ...]
    guards: Mapping[int, str]

    @property
    def texts(self) -> tuple[str, ...]:
        """The names and guards of the rules of which anything has to be tested."""
        tested = [one.rule for one, tests in zip(self.granted, self.tests, strict=True) if tests]
        return tuple(self.guards[number] for number in dict.fromkeys(tested))

    def of_rules(self, numbers: frozenset[int]) -> Granting:
        """What is granted to some rules."""
        kept = [
            (one, tests) for one, tests in zip(self.granted, self.tests, strict=True) if one.rule in numbers
        ]
        return Granting(tuple(one for one, _ in kept), tuple(tests for _, tests in kept), self.guards)

    @property
    def rules(self) -> frozenset[int]:
        """The numbers of the rules that are granted something."""
        return frozenset(one.rule for one in self.granted)

    def all_tests(self) -> list[Term]:
        """All tests, each once."""
        return list(dict.fromkeys(test for tests in self.tests for test in tests))


def grantings(search: Search, seconds: float, budget: int) -> Granting:
    """What rules with guards can be granted in a program that has been saturated without them.

    **Arguments:**

    - `seconds`: what the program takes without them.
    - `budget`: bytes that there are.
    """
    granted: list[Granted] = []
    tests: list[tuple[Term, ...]] = []
    found = search.saturation.found[:MOST_TESTED]
    terms = _terms_of(search, {number for one in found for number in one.classes})
    for one in found:
        values = tuple(terms[number] for number in one.classes if number in terms)
        if len(values) < len(one.classes):
            continue
        wanted = _tests(search, one, values)
        if wanted is not None and _is_cheap(search, wanted, seconds, budget):
            granted.append(Granted(one.rule, values, one.axes))
            tests.append(wanted)
    rules = {one.rule: search.rules[one.rule] for one in granted}
    guards = {number: f"{rule.name}: {rule.guard}" for number, rule in rules.items()}
    return Granting(tuple(granted), tuple(tests), guards)


def _terms_of(search: Search, numbers: set[int]) -> dict[int, Term]:
    """For classes, the terms that compute them fastest, without loops; not for all, if some have none."""
    graph = search.saturation.graph
    found: dict[int, Term] = {}
    # All at once, if that can be; or else one by one.
    for roots in [sorted(numbers), *([number] for number in sorted(numbers))]:
        if not roots or all(number in found for number in roots):
            continue
        model = CostModel(search.machine, {})
        selection = Extractor(graph, model, roots, {}).extract(math.inf, frozenset())
        if selection is None:
            continue
        for number, node in selection.nodes.items():
            if number not in found:
                args = [found[child] for child in node.children]
                found[number] = search.program.terms.make(node.op, args)
    return found


def _tests(search: Search, found: Found, values: Sequence[Term]) -> tuple[Term, ...] | None:
    """What has to be tested for a match, but for what is known to hold; None if it can't be used."""
    guard = search.rules[found.rule].guard
    assert guard is not None
    terms = search.program.terms
    axes = dict(zip(guard.axes, found.axes, strict=True))
    try:
        tests = conditions(guard, dict(zip(guard.variables, values, strict=True)), axes, terms)
    except NoTest:
        return None
    unknown = []
    for test in tests:
        if any(isinstance(term.op, Leaf | Opaque) for term in reachable([test])):
            unknown.append(test)
        elif not bool(interpret(Program((), (Output(test, ()),), terms), [])[0]):
            return None
    return tuple(unknown)


def _is_cheap(search: Search, tests: Sequence[Term], seconds: float, budget: int) -> bool:
    """Whether tests take a small part of the time, and not too much memory."""
    if any(isinstance(t.op, Opaque) and t.op.call.bodies for t in reachable(tests)):
        return False
    program = replace(search.program, outputs=tuple(Output(test, ()) for test in tests), aliased=0)
    schedule = Schedule(program, build(program), {})
    if _seconds(schedule, search.machine) > SHARE * seconds:
        return False
    results = search.program.fixed_bytes + search.program.aliased - program.fixed_bytes
    return predicted_peak(schedule, search.machine) + results <= budget


def _seconds(schedule: Schedule, machine: Machine) -> float:
    return predicted_seconds(schedule.block, CostModel(machine, {}), schedule.chunks)


def guarded(
    plain: Candidate, fast: Candidate, granting: Granting, machine: Machine, budget: float
) -> Candidate:
    """The program that is `fast` where all tests hold and `plain` elsewhere; `fast` itself if there are none.

    What it should take is what it takes where they hold.
    """
    tests = granting.all_tests()
    if not tests:
        return fast
    program = _program(plain.schedule.program, fast.schedule.program, tests)
    first = max((loop.id for loop in plain.schedule.block.loops), default=0) + 1
    renumbered = {loop.id: first + place for place, loop in enumerate(fast.schedule.block.loops)}
    chunks = {renumbered[number]: length for number, length in fast.schedule.chunks.items()}
    bodies = (plain.schedule.block, _renumbered(fast.schedule.block, renumbered))
    block = _with_bodies(build(program), program, bodies)
    schedule = Schedule(program, block, {**plain.schedule.chunks, **chunks})
    makers = {**fast.makers, **plain.makers}
    found = predicted(schedule, makers, predicted_peak(schedule, machine), machine)
    if found.predicted_peak > budget:
        # Without copies for its reductions and products, it may fit.
        bare = replace(machine, copies=False)
        found = predicted(schedule, makers, predicted_peak(schedule, bare), bare)
    testing = Program(program.inputs, tuple(Output(test, ()) for test in tests), program.terms)
    seconds = fast.seconds + _seconds(Schedule(testing, build(testing), {}), machine)
    taking = machine.taking(found.predicted_peak - program.fixed_bytes)
    return replace(
        found,
        seconds=seconds,
        taking=taking,
        fused=plain.fused and fast.fused,
        branches=(plain, fast),
        tests=granting.texts,
    )


def _program(plain: Program, fast: Program, tests: Sequence[Term]) -> Program:
    """The choice between two programs of the same inputs and outputs."""
    terms = plain.terms
    used = {term.number for one in (plain, fast) for term in one.reachable()}
    inputs = tuple(leaf for leaf in plain.inputs if leaf.number in used)
    sources = tuple(range(1, len(inputs) + 1))
    bodies = tuple(Body(replace(one, inputs=inputs, aliased=0), sources) for one in (plain, fast))
    holds = joined(list(tests), terms)
    layouts = [leaf.op.layout for leaf in inputs if isinstance(leaf.op, Leaf)]
    call = Call(
        1 + max(_calls(plain, fast), default=0),
        jax.lax.cond_p,
        {},
        ((), *layouts),
        tuple(output.layout for output in plain.outputs),
        tuple(output.term.dtype for output in plain.outputs),
        frozenset(),
        control=Choice(),
        bodies=bodies,
    )
    results = [terms.make(Opaque(call, place), [holds, *inputs]) for place in range(len(plain.outputs))]
    outputs = tuple(
        Output(result, output.layout) for result, output in zip(results, plain.outputs, strict=True)
    )
    return replace(plain, outputs=outputs, equalities=(), facts=())


def _calls(*programs: Program) -> Iterator[int]:
    """The numbers of all calls in programs."""
    for program in programs:
        for inner in program.inside():
            yield from (term.op.call.id for term in inner.reachable() if isinstance(term.op, Opaque))


def _with_bodies(block: Block, program: Program, bodies: tuple[Block, ...]) -> Block:
    """A block with the blocks of the branches for the program's results."""
    results = {output.term.number for output in program.outputs}
    steps = [
        Compute(step.term, bodies) if isinstance(step, Compute) and step.term.number in results else step
        for step in block.steps
    ]
    return Block(tuple(steps), block.needs)


def _renumbered(block: Block, numbers: Mapping[int, int]) -> Block:
    """A block with other numbers for its loops."""
    known: dict[int, tuple[Block, ...]] = {}

    def bodies(step: Compute) -> tuple[Block, ...]:
        # All results of a call share its blocks.
        if step.bodies and id(step.bodies) not in known:
            known[id(step.bodies)] = tuple(_renumbered(body, numbers) for body in step.bodies)
        return known.get(id(step.bodies), ())

    steps: list[Compute | Loop] = []
    for step in block.steps:
        if isinstance(step, Loop):
            body = _renumbered(step.body, numbers)
            steps.append(Loop(numbers[step.id], step.axis, step.results, body, step.imports))
        else:
            steps.append(Compute(step.term, bodies(step)))
    return Block(tuple(steps), block.needs)
