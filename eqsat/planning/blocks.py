"""A program as nested blocks: straight-line steps and loops over the chunks of an axis."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat.ir.axis import Axis
from eqsat.ir.formula import Monoid
from eqsat.ir.ops import Concat, Dot, Fold, Opaque, Operation, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute one term from terms computed before.

    **Attributes:**

    - `bodies`: the blocks of its bodies, if the term is a call of control flow.
    """

    term: Term
    bodies: tuple[Block, ...] = ()

    @property
    def results(self) -> tuple[Term, ...]:
        return (self.term,)


@dataclass(frozen=True, slots=True)
class Loop:
    """Run `body` once per chunk of `axis`; each of `results`, a Fold or a Concat, combines the chunks.

    **Attributes:**

    - `id`: unique in its program; the key of its chunk length.
    - `imports`: terms computed outside that the body uses.
    """

    id: int
    axis: Axis
    results: tuple[Term, ...]
    body: Block
    imports: tuple[Term, ...]

    @property
    def shortest(self) -> int:
        """The shortest chunk length that its results allow: a chunk of a top-k must hold k entries."""
        monoids = [result.op.monoid for result in self.results if isinstance(result.op, Fold)]
        return max((monoid.k for monoid in monoids if isinstance(monoid, Select)), default=1)


@dataclass(frozen=True, eq=False)
class Block:
    """Steps in order. Compared by identity.

    **Attributes:**

    - `needs`: the results of the block.
    - `apart`: the numbers of products that are not fused with others, so that their bits are the same
      wherever they are computed.
    - `iterates`: whether it is inside of a loop, be it over chunks or one of control flow.
    """

    steps: tuple[Compute | Loop, ...]
    needs: tuple[Term, ...]
    apart: frozenset[int] = frozenset()
    iterates: bool = False

    def blocks(self) -> Iterator[Block]:
        """The block and all blocks inside it; the bodies of a call come once for all of its results."""
        yield self
        for inner in self.inside:
            yield from inner.blocks()

    @cached_property
    def inside(self) -> tuple[Block, ...]:
        """The blocks of the loops and calls that are steps of this block."""
        found = {id(inner): inner for step in self.steps for inner in inner_blocks(step)}
        return tuple(found.values())

    @cached_property
    def calls(self) -> tuple[Compute, ...]:
        """Its calls with bodies: one step per call, whatever the number of its results.

        With one step per result, the visits to a body would multiply at every level of nesting.
        """
        found: dict[int, Compute] = {}
        for step in self.steps:
            if isinstance(step, Compute) and step.bodies:
                found.setdefault(id(step.bodies), step)
        return tuple(found.values())

    @cached_property
    def bodies(self) -> tuple[Block, ...]:
        """The blocks of the bodies of its calls."""
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
    """Operands to copy with their axes in another order, for one reduction or one stored value.

    **Attributes:**

    - `sources`: by number of an operand, the value that is copied for it: the operand itself, or the value
      that it is a chunk of. Each of these values is stored, or an input.
    - `members`: the numbers of the elementwise terms that read the copies: those between the operands and the
      reduction, or those that make the stored value.
    - `reduced`: the axes that are reduced.
    - `last`: the axis that comes last in the copies, after the reduced axes.
    - `bytes`: the size of the copies that are made where they are read.
    - `held`: the size of the copies that can be made before the loop around the block.
    """

    sources: Mapping[int, Term]
    members: frozenset[int]
    reduced: frozenset[Axis]
    last: Axis
    bytes: int
    held: int


@dataclass(frozen=True, slots=True)
class FusedProducts:
    """Products of one matrix with several narrow matrices or vectors, and its sums, computed as one product.

    **Attributes:**

    - `op`: the op of the products.
    - `matrix`: the operand that they share.
    - `products`: the products; all of them are computed at the step of the first.
    - `narrow`: the other operand of each: a matrix of few columns, along any axes, or a vector; None for a
      sum.
    - `columns`: the number of columns after padding, which costs no time.
    - `bytes`: the size of the concatenated narrow operands, if they are concatenated where they are
      multiplied; else 0.
    - `held`: their size, if they can be concatenated before the loop around the block; else 0.
    - `result_bytes`: the size of all products together.
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
    """A key for the work of computing a term: the same one for all results of a call."""
    if isinstance(term.op, Opaque):
        return term.op.call, tuple(arg.number for arg in term.args)
    return term.number


def dependencies(step: Compute | Loop) -> tuple[Term, ...]:
    """The terms that must be computed before a step."""
    return step.imports if isinstance(step, Loop) else step.term.args


def bodies_of(result: Term) -> tuple[Term, ...]:
    """The terms that a loop's result combines: one, or one for each part of a declared monoid's state."""
    assert isinstance(result.op, (Fold, Concat))
    return result.args


def combination(closer: Term) -> str:
    """How a loop combines its chunks into a result, in a word."""
    match closer.op:
        case Concat():
            return "concatenation"
        case Fold(monoid=Select(kind=kind) | Monoid(name=kind)):
            return kind
        case Fold(monoid=Opaque(call=call)):
            return str(call.primitive.name)
        case Fold(monoid=Operation(spec=spec)):
            return spec.name
        case Fold(monoid=str(kind)):
            return kind
    raise AssertionError(closer)
