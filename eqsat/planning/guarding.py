"""Programs of two branches: one that is fast where tests hold of the data, and one that is right on any.

Orders of contractions are as good as that which was written where nothing over- or underflows in either.
Where rules with guards match is known from the program's e-graph, in which they have not been used: all that
is equal there is equal on any data. What the guards look at is taken from it, so a guard never depends on
what it guards. Rules are granted what is cheap to test, and a second e-graph says what comes of that.
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
from eqsat.planning.candidate_builder import REORDERED
from eqsat.planning.candidates import Candidate, predicted, scheduled
from eqsat.planning.capped_extraction import first_fitting
from eqsat.planning.liveness import predicted_peak, predicted_seconds
from eqsat.planning.loops import build
from eqsat.planning.magnitudes import in_range
from eqsat.planning.search_space import SearchSpace, prepare
from eqsat.support.deadline import Deadline
from eqsat.targets.machine import Machine

MOST_TESTED = 64
"""Of more matches of rules with guards, or of more orders, than this, the rest is not looked at."""

MOST_SEARCHED = 8
"""For tests of so many matches and orders, chunks are looked for if they don't fit whole."""

IN_RANGE = "nothing over- or underflows in either order"
"""What is tested for another order of a contraction."""

SHARE = 0.25
"""What takes longer to test than this part of the time that the program takes is not tested."""


@dataclass(frozen=True)
class Grant:
    """What may be used if tests hold: a match of a rule, or an order of a contraction.

    **Attributes:**

    - `what`: the match or the order.
    - `maker`: the rule's name, or that of orders of contractions.
    - `guard`: what is tested, as text.
    - `tests`: truth values without axes. Those that are known to hold are left out.
    """

    what: Granted | Order
    maker: str
    guard: str
    tests: tuple[Term, ...]


@dataclass(frozen=True)
class Granting:
    """All that may be used if all tests hold."""

    grants: tuple[Grant, ...]

    @property
    def granted(self) -> tuple[Granted, ...]:
        """Matches of rules."""
        return tuple(one.what for one in self.grants if isinstance(one.what, Granted))

    @property
    def orders(self) -> tuple[Order, ...]:
        """Orders of contractions."""
        return tuple(one.what for one in self.grants if isinstance(one.what, Order))

    @property
    def texts(self) -> tuple[str, ...]:
        """The names and guards of what has to be tested."""
        return tuple(dict.fromkeys(f"{one.maker}: {one.guard}" for one in self.grants if one.tests))

    @property
    def makers(self) -> frozenset[str]:
        """The names of what is granted anything."""
        return frozenset(one.maker for one in self.grants)

    def of_makers(self, names: Collection[str]) -> Granting:
        """What is granted to some rules, or to orders of contractions."""
        return Granting(tuple(one for one in self.grants if one.maker in names))

    def all_tests(self) -> list[Term]:
        """All tests, each once."""
        return list(dict.fromkeys(test for one in self.grants for test in one.tests))


def grantings(
    space: SearchSpace, orders: Sequence[Order], seconds: float, budget: int, deadline: Deadline
) -> Granting:
    """What can be granted in a program that has been saturated without it.

    **Arguments:**

    - `orders`: of contractions of the program.
    - `seconds`: what the program takes without them.
    - `budget`: bytes that there are.
    - `deadline`: when to stop looking for tests by chunks.
    """
    granted: list[Grant] = []
    searched = 0
    for one in (*_of_rules(space), *_of_orders(space, orders[:MOST_TESTED])):
        testing, left = _alone(space, one, budget)
        schedule = Schedule(testing, build(testing), {})
        if _calls_programs(testing) or _seconds(schedule, space.machine) > SHARE * seconds:
            continue
        if predicted_peak(schedule, space.machine) <= left:
            granted.append(one)
        elif searched < MOST_SEARCHED and not deadline.passed():
            searched += 1
            chunked = prepare(testing, space.rules, left, space.machine, deadline=deadline)
            best = first_fitting(chunked, left, deadline)
            if best is not None and best.seconds <= SHARE * seconds:
                tests = tuple(output.term for output in best.schedule.program.outputs)
                granted.append(replace(one, tests=tests))
    return Granting(tuple(granted))


def _of_rules(space: SearchSpace) -> Iterator[Grant]:
    """Matches of rules with guards, but for those whose guards can't hold."""
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
    """Orders of contractions of numbers that can be tested."""
    for order in orders:
        try:
            tests = in_range(order, space.program.terms)
        except NoTest:
            continue
        yield Grant(order, REORDERED, IN_RANGE, tests)


def _terms_of(space: SearchSpace, numbers: set[int]) -> dict[int, Term]:
    """For classes, the terms that compute them fastest, without loops; not for all, if some have none."""
    graph = space.saturation.graph
    found: dict[int, Term] = {}
    # All at once, if that can be; or else one by one.
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
    """What has to be tested for a match, but for what is known to hold; None if it can't be used."""
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
    """The program that tests for a grant, beside all arguments, and the bytes that there are for it."""
    program = replace(_testing(space.program, grant.tests), inputs=space.program.inputs)
    # The results of the whole have their places while tests are computed.
    return program, budget - (space.program.fixed_bytes + space.program.aliased - program.fixed_bytes)


def _calls_programs(program: Program) -> bool:
    """Whether there is control flow in a program."""
    return any(isinstance(term.op, Opaque) and term.op.call.bodies for term in program.reachable())


def _testing(program: Program, tests: Sequence[Term]) -> Program:
    """The program that computes tests, of what it needs of the inputs."""
    used = {term.number for term in reachable(tests)}
    inputs = tuple(leaf for leaf in program.inputs if leaf.number in used)
    return Program(inputs, tuple(Output(test, ()) for test in tests), program.terms)


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
        # Without copies for its reductions and products, it may fit.
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
    """The choice between two programs of the same inputs and outputs, by a truth value."""
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
    """The numbers of all calls in programs."""
    for program in programs:
        for inner in program.inside():
            yield from (term.op.call.id for term in inner.reachable() if isinstance(term.op, Opaque))


def _numbered(schedule: Schedule, numbers: Iterator[int]) -> tuple[Block, dict[int, int]]:
    """A schedule's block with other numbers for its loops, and their lengths of chunks."""
    renumbered = {loop.id: next(numbers) for loop in schedule.block.loops}
    lengths = {renumbered[number]: length for number, length in schedule.chunks.items()}
    return _renumbered(schedule.block, renumbered), lengths


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
