"""A program as nested blocks: straight-line steps and loops over the chunks of an axis."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat.ir.axis import Axis
from eqsat.ir.formula import Monoid
from eqsat.ir.ops import Concat, Dot, Fold, Opaque, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute one term from terms computed before.

    **Attributes:**

    - `bodies`: of a call of control flow, the blocks of the programs inside.
    """

    term: Term
    bodies: tuple[Block, ...] = ()

    @property
    def results(self) -> tuple[Term, ...]:
        return (self.term,)


@dataclass(frozen=True, slots=True)
class Loop:
    """Run `body` once per chunk of `axis`; each of `results`, a Fold or a Concat, takes what it needs.

    **Attributes:**

    - `id`: unique in its program; chunk lengths are kept by it.
    - `imports`: terms computed outside that the body uses.
    """

    id: int
    axis: Axis
    results: tuple[Term, ...]
    body: Block
    imports: tuple[Term, ...]

    @property
    def shortest(self) -> int:
        """The shortest chunk that its results allow: a top-k's first chunk must hold k entries."""
        monoids = [result.op.monoid for result in self.results if isinstance(result.op, Fold)]
        return max((monoid.k for monoid in monoids if isinstance(monoid, Select)), default=1)


@dataclass(frozen=True, eq=False)
class Block:
    """Steps in order. Compared by identity.

    **Attributes:**

    - `needs`: the terms that whoever runs the block wants of it.
    - `apart`: the numbers of products that are taken by themselves, as they are elsewhere.
    """

    steps: tuple[Compute | Loop, ...]
    needs: tuple[Term, ...]
    apart: frozenset[int] = frozenset()

    def blocks(self) -> Iterator[Block]:
        """The block and all blocks inside of it, those of a call once for all of its results."""
        yield self
        for inner in self.inside:
            yield from inner.blocks()

    @cached_property
    def inside(self) -> tuple[Block, ...]:
        """The blocks of loops and bodies that are directly in this one."""
        found = {id(inner): inner for step in self.steps for inner in inner_blocks(step)}
        return tuple(found.values())

    @cached_property
    def calls(self) -> tuple[Compute, ...]:
        """Its calls with programs inside: one step for all results of a call, since with every level of
        nesting, as many times those would be looked into again."""
        found: dict[int, Compute] = {}
        for step in self.steps:
            if isinstance(step, Compute) and step.bodies:
                found.setdefault(id(step.bodies), step)
        return tuple(found.values())

    @cached_property
    def bodies(self) -> tuple[Block, ...]:
        """The blocks of the programs inside of its calls."""
        return tuple(body for call in self.calls for body in call.bodies)

    @cached_property
    def own_loops(self) -> tuple[Loop, ...]:
        """The loops over chunks that are steps of this block."""
        return tuple(step for step in self.steps if isinstance(step, Loop))

    @cached_property
    def products(self) -> tuple[tuple[Term, Dot], ...]:
        """The contractions that are steps of this block, each with its op."""
        terms = [step.term for step in self.steps if isinstance(step, Compute)]
        return tuple((term, term.op) for term in terms if isinstance(term.op, Dot))

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Every loop over chunks in the block and in bodies of control flow, outer before inner."""
        return tuple(loop for block in self.blocks() for loop in block.own_loops)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A whole program in blocks, with the chunk length of every loop by its id."""

    program: Program
    block: Block
    chunks: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Relayout:
    """Operands to copy for one reduction, or one value that is stored, with their axes in another order.

    **Attributes:**

    - `sources`: the operands, by number, each with what is copied for it: itself, or the value that it is a
      chunk of. All of that is stored, or an input.
    - `members`: the numbers of the elementwise terms between them and the reduction, or of those that make
      the value: they read the copies.
    - `reduced`: the axes that are reduced.
    - `last`: the axis that comes last in the copies, after those.
    - `bytes`: of the copies that are made where they are read.
    - `held`: of those that can be made before the loop that it is in.
    """

    sources: Mapping[int, Term]
    members: frozenset[int]
    reduced: frozenset[Axis]
    last: Axis
    bytes: int
    held: int


@dataclass(frozen=True, slots=True)
class FusedProducts:
    """Products of one matrix with several narrow ones, or vectors, and its sum, to be taken as one product.

    **Attributes:**

    - `op`: that of the products.
    - `matrix`: what all of them multiply.
    - `products`: by the first one they are taken.
    - `narrow`: what each multiplies it with: few columns, along any axes, or a vector. None: a sum.
    - `columns`: with so many the product is as fast as with those that there are.
    - `bytes`: of the narrow ones put together, if that is done where they are multiplied.
    - `held`: the same if it can be done before the loop that they are in.
    - `result_bytes`: of all products together.
    """

    op: Dot
    matrix: Term
    products: tuple[Term, ...]
    narrow: tuple[Term | None, ...]
    columns: int
    bytes: int
    held: int
    result_bytes: int


def inner_blocks(step: Compute | Loop) -> tuple[Block, ...]:
    """The blocks inside a step."""
    return (step.body,) if isinstance(step, Loop) else step.bodies


def work_of(term: Term) -> Hashable:
    """What is done to compute a term: the same for all results of a call."""
    if isinstance(term.op, Opaque):
        return term.op.call, tuple(arg.number for arg in term.args)
    return term.number


def dependencies(step: Compute | Loop) -> tuple[Term, ...]:
    """The terms that must be computed before a step."""
    return step.imports if isinstance(step, Loop) else step.term.args


def bodies_of(result: Term) -> tuple[Term, ...]:
    """The terms that a loop's result collects: one, or one for each part of a declared monoid's state."""
    assert isinstance(result.op, (Fold, Concat))
    return result.args


def combination(closer: Term) -> str:
    """How a loop's result comes together."""
    match closer.op:
        case Concat():
            return "concatenation"
        case Fold(monoid=Select(kind=kind) | Monoid(name=kind)):
            return kind
        case Fold(monoid=Opaque(call=call)):
            return str(call.primitive.name)
        case Fold(monoid=str(kind)):
            return kind
    raise AssertionError(closer)
