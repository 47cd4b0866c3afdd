"""Programs of two branches: a fast one for data that passes tests, and one that is right on any data.

Another order of a contraction is as accurate as the one written if nothing over- or underflows in either.
The matches of rules with guards come from the program's e-graph, to which these rules were not applied:
its equalities hold on any data. The values that guards test are extracted from it, so a guard never depends
on a rewrite that it guards. Matches and orders with cheap tests are granted, and a second e-graph is
saturated with them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import jax

from eqsat.engine.compiled import Found, Granted
from eqsat.engine.contraction_orders import Order
from eqsat.engine.cost import CostModel
from eqsat.engine.extract import Extractor
from eqsat.ir.control import Body, Switch
from eqsat.ir.guard import NoTest, conditions, joined
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Call, Leaf, Opaque
from eqsat.ir.program import Output, Program
from eqsat.ir.term import Term, reachable
from eqsat.planning.blocks import Block, Compute, Loop, Schedule
from eqsat.planning.candidates import Candidate, predicted, scheduled
from eqsat.planning.capped_extraction import CappedExtraction, first_fitting
from eqsat.planning.extracted_programs import REORDERED
from eqsat.planning.liveness import predicted_peak, predicted_seconds
from eqsat.planning.loops import build
from eqsat.planning.magnitudes import in_range
from eqsat.planning.search_space import SearchSpace, prepare
from eqsat.support.deadline import Deadline
from eqsat.targets.machine import Machine

MOST_TESTED = 64
"""At most this many matches of rules with guards are considered, and as many orders of contractions."""

MOST_SEARCHED = 8
"""The number of matches and orders whose tests are computed in chunks if they do not fit whole."""

IN_RANGE = "nothing over- or underflows in either order"
"""The guard of another order of a contraction, as text."""

SHARE = 0.25
"""A match or order is not granted if its test takes longer than this part of the program's time."""


@dataclass(frozen=True)
class Grant:
    """A match of a rule, or an order of a contraction, that may be used if tests hold.

    **Attributes:**

    - `what`: the match or the order.
    - `maker`: the rule's name, or `REORDERED`.
    - `guard`: the condition that is tested, as text.
    - `tests`: truth values without axes, except those that are known to hold.
    """

    what: Granted | Order
    maker: str
    guard: str
    tests: tuple[Term, ...]


@dataclass(frozen=True)
class Granting:
    """All matches and orders that may be used if all tests hold."""

    grants: tuple[Grant, ...]

    @property
    def granted(self) -> tuple[Granted, ...]:
        """The matches of rules."""
        return tuple(one.what for one in self.grants if isinstance(one.what, Granted))

    @property
    def orders(self) -> tuple[Order, ...]:
        """The orders of contractions."""
        return tuple(one.what for one in self.grants if isinstance(one.what, Order))

    @property
    def texts(self) -> tuple[str, ...]:
        """The makers and guards of the grants that have tests."""
        return tuple(dict.fromkeys(f"{one.maker}: {one.guard}" for one in self.grants if one.tests))

    @property
    def makers(self) -> frozenset[str]:
        """The makers of all grants."""
        return frozenset(one.maker for one in self.grants)

    def of_makers(self, names: Collection[str]) -> Granting:
        """The grants of some makers."""
        return Granting(tuple(one for one in self.grants if one.maker in names))

    def all_tests(self) -> list[Term]:
        """All tests, each once."""
        return list(dict.fromkeys(test for one in self.grants for test in one.tests))


def grantings(space: SearchSpace, orders: Sequence[Order]) -> Granting:
    """What may be granted to a program that was saturated without any grants, if tests hold.

    **Arguments:**

    - `orders`: orders of contractions of the program.
    """
    return Granting((*_of_rules(space), *_of_orders(space, orders[:MOST_TESTED])))


def with_cheap_tests(
    granting: Granting, space: SearchSpace, seconds: float, budget: int, deadline: Deadline
) -> Granting:
    """The grants whose tests are cheap and fit, some of them in chunks.

    **Arguments:**

    - `seconds`: the time of the program without grants.
    - `budget`: bytes of arguments, outputs and temporaries.
    - `deadline`: when to stop planning tests in chunks.
    """
    granted: list[Grant] = []
    searched = 0
    for one in granting.grants:
        testing, left = _alone(space, one, budget)
        schedule = Schedule(testing, build(testing), {})
        if _calls_programs(testing) or _seconds(schedule, space.machine) > SHARE * seconds:
            continue
        if predicted_peak(schedule, space.machine) <= left:
            granted.append(one)
        elif searched < MOST_SEARCHED and not deadline.passed():
            searched += 1
            chunked = prepare(testing, space.rules, left, space.machine, deadline=deadline)
            best = first_fitting(CappedExtraction.within(chunked, left, deadline))
            if best is not None and best.seconds <= SHARE * seconds:
                tests = tuple(output.term for output in best.schedule.program.outputs)
                granted.append(replace(one, tests=tests))
    return Granting(tuple(granted))


def _of_rules(space: SearchSpace) -> Iterator[Grant]:
    """The matches of rules with guards, without those whose guards cannot hold or be tested."""
    found = space.saturation.found[:MOST_TESTED]
    terms = _terms_of(space, {number for one in found for number in one.classes})
    for one in found:
        values = tuple(terms[number] for number in one.classes if number in terms)
        if len(values) < len(one.classes):
            continue
        rule = space.rules[one.rule]
        tests = _tests(space, one, values)
        if tests is not None:
            yield Grant(Granted(one.rule, values, one.axes), rule.name, str(rule.guard), tests)


def _of_orders(space: SearchSpace, orders: Sequence[Order]) -> Iterator[Grant]:
    """The orders of contractions whose factors can be tested."""
    for order in orders:
        try:
            tests = in_range(order, space.program.terms)
        except NoTest:
            continue
        yield Grant(order, REORDERED, IN_RANGE, tests)


def _terms_of(space: SearchSpace, numbers: set[int]) -> dict[int, Term]:
    """For e-classes, the fastest terms without loops; e-classes that have none are left out."""
    graph = space.saturation.graph
    found: dict[int, Term] = {}
    # Extract all at once if possible, or else one by one.
    for roots in [sorted(numbers), *([number] for number in sorted(numbers))]:
        if not roots or all(number in found for number in roots):
            continue
        model = CostModel(space.machine, {})
        selection = Extractor(graph, model, roots, {}).extract(math.inf, frozenset())
        if selection is None:
            continue
        for number, node in selection.nodes.items():
            if number not in found:
                args = [found[child] for child in node.children]
                found[number] = space.program.terms.make(node.op, args)
    return found


def _tests(space: SearchSpace, found: Found, values: Sequence[Term]) -> tuple[Term, ...] | None:
    """The tests of a match that are not known to hold; None if one is known to fail or cannot be computed."""
    guard = space.rules[found.rule].guard
    assert guard is not None
    terms = space.program.terms
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


def _alone(space: SearchSpace, grant: Grant, budget: int) -> tuple[Program, int]:
    """The program that computes a grant's tests, with all arguments in memory, and the bytes left for it."""
    program = replace(_testing(space.program, grant.tests), inputs=space.program.inputs)
    # The buffers of the whole program's results exist while the tests run.
    return program, budget - (space.program.fixed_bytes + space.program.aliased - program.fixed_bytes)


def _calls_programs(program: Program) -> bool:
    """Whether a program contains control flow."""
    return any(isinstance(term.op, Opaque) and term.op.call.bodies for term in program.reachable())


def _testing(program: Program, tests: Sequence[Term]) -> Program:
    """The program that computes tests from the inputs that they need."""
    used = {term.number for term in reachable(tests)}
    inputs = tuple(leaf for leaf in program.inputs if leaf.number in used)
    return Program(inputs, tuple(Output(test, ()) for test in tests), program.terms)


def _seconds(schedule: Schedule, machine: Machine) -> float:
    return predicted_seconds(schedule.block, CostModel(machine, {}), schedule.chunks)


def guarded(
    plain: Candidate, fast: Candidate, granting: Granting, machine: Machine, budget: float
) -> Candidate:
    """The program that runs `fast` if all tests hold, else `plain`; just `fast` if there are no tests.

    Its predicted time is that for data that passes.
    """
    tests = granting.all_tests()
    if not tests:
        return fast
    holds = joined(tests, plain.schedule.program.terms)
    program = _program(plain.schedule.program, fast.schedule.program, holds)
    testing = _testing(plain.schedule.program, [holds])
    others = program.fixed_bytes + program.aliased - testing.fixed_bytes
    tested = scheduled(testing, build(testing), {}, budget - others, machine)
    numbers = count(1 + max((loop.id for loop in plain.schedule.block.loops), default=0))
    branch, lengths = _numbered(fast.schedule, numbers)
    before, outer_lengths = _numbered(tested.schedule, numbers)
    results = tuple(dict.fromkeys(output.term for output in program.outputs))
    bodies = (plain.schedule.block, branch)
    block = Block((*before.steps, *(Compute(result, bodies) for result in results)), results)
    schedule = Schedule(program, block, {**plain.schedule.chunks, **lengths, **outer_lengths})
    makers = {**fast.makers, **plain.makers}
    found = predicted(schedule, makers, predicted_peak(schedule, machine), machine)
    if found.predicted_peak > budget:
        # It may fit without the copies for its reductions and products.
        bare = replace(machine, copies=False)
        found = predicted(schedule, makers, predicted_peak(schedule, bare), bare)
    taking = machine.taking(found.predicted_peak - program.fixed_bytes)
    return replace(
        found,
        seconds=fast.seconds + tested.seconds,
        taking=taking,
        fused=plain.fused and fast.fused,
        branches=(plain, fast),
        tests=granting.texts,
    )


def _program(plain: Program, fast: Program, holds: Term) -> Program:
    """The program that chooses between two programs with the same inputs and outputs by a truth value."""
    terms = plain.terms
    used = {term.number for one in (plain, fast) for term in one.reachable()}
    inputs = tuple(leaf for leaf in plain.inputs if leaf.number in used)
    sources = tuple(range(1, len(inputs) + 1))
    bodies = tuple(Body(replace(one, inputs=inputs, aliased=0), sources) for one in (plain, fast))
    layouts = [leaf.op.layout for leaf in inputs if isinstance(leaf.op, Leaf)]
    call = Call(
        1 + max(_calls(plain, fast), default=0),
        jax.lax.cond_p,
        {},
        ((), *layouts),
        tuple(output.layout for output in plain.outputs),
        tuple(output.term.dtype for output in plain.outputs),
        frozenset(),
        control=Switch(),
        bodies=bodies,
    )
    results = [terms.make(Opaque(call, place), [holds, *inputs]) for place in range(len(plain.outputs))]
    outputs = tuple(
        Output(result, output.layout) for result, output in zip(results, plain.outputs, strict=True)
    )
    return replace(plain, outputs=outputs, equalities=(), facts=())


def _calls(*programs: Program) -> Iterator[int]:
    """The ids of all calls in programs."""
    for program in programs:
        for inner in program.inside():
            yield from (term.op.call.id for term in inner.reachable() if isinstance(term.op, Opaque))


def _numbered(schedule: Schedule, numbers: Iterator[int]) -> tuple[Block, dict[int, int]]:
    """A schedule's block with new ids for its loops, and the chunk lengths by these ids."""
    renumbered = {loop.id: next(numbers) for loop in schedule.block.loops}
    lengths = {renumbered[number]: length for number, length in schedule.chunks.items()}
    return _renumbered(schedule.block, renumbered), lengths


def _renumbered(block: Block, numbers: Mapping[int, int]) -> Block:
    """A block with new ids for its loops."""
    known: dict[int, tuple[Block, ...]] = {}

    def bodies(step: Compute) -> tuple[Block, ...]:
        # All results of a call share its blocks, so renumber them once.
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
    return replace(block, steps=tuple(steps))
