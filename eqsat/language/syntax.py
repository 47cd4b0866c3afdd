"""The abstract syntax of rules.

Axis names in lower case stand for one axis, in upper case for a set of axes (possibly empty in
`where` definitions, never empty in a reduction).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from eqsat.ir.formula import Monoid
from eqsat.ir.guard import Guard as ValueGuard
from eqsat.ir.operations import Signature
from eqsat.language.accuracies import Accuracy
from eqsat.language.position import Position as Position


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric constant; it takes the dtype of its context."""

    text: str
    position: Position = field(compare=False)

    @property
    def value(self) -> float:
        return float(self.text)


@dataclass(frozen=True, slots=True)
class Variable:
    """A term variable `a`, with the axes it must have `a{k}` and must not have `a{!k}`.

    For a set of axes K, `a{K}` has all of them and `a{!K}` has none of them.
    """

    name: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise function, or a function variable, of operands.

    `a + b` is add, `a - b` sub, `a * b` mul, `a / b` div, `-a` neg, `a^2` square; another integer
    power `a^n` is integer_pow with `exponent` n. `f(a..)` has `variadic` set and one operand, the
    variable that stands for all of them.
    """

    function: str
    operands: tuple[Expression, ...]
    position: Position = field(compare=False)
    variadic: bool = False
    exponent: int | None = None


@dataclass(frozen=True, slots=True)
class Reduction:
    """`sum[K] a`; `kind` may be a function variable. A selection `s[n] a` parses to this as well.

    `axes` is one name, or several when written `sum[J, K]` (their union).
    """

    kind: str
    axes: tuple[str, ...]
    operand: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Contraction:
    """`dot[K](a, b)`: the sum over K of a * b, K in both."""

    axes: tuple[str, ...]
    left: Expression
    right: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class IotaOf:
    """`iota[n]`: the index along n."""

    axis: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class DeltaOf:
    """`delta[i, j]`: the truth value of i = j, two axes of one length.

    `diag[i, j] a` is short for `select_n(delta[i, j], 0, a)`, and is parsed to that.
    """

    first: str
    second: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class OperationOf:
    """`solve[i, j](A, b)`: a named operation; `axes` in the order of its declaration.

    With one operand also `inv[i, j] A`, which takes the whole product that follows, as `sum[k]` does.
    """

    name: str
    axes: tuple[str, ...]
    operands: tuple[Expression, ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class SelectionOf:
    """`top_k[n, m] a`: the entries, along m, that are largest along n; `result` is "values".

    `top_k_indices[n, m] a` are the indices where they were. (Any selection: `s[n] a`, a `Reduction`.)
    """

    axis: str
    out_axis: str
    result: Literal["values", "indices"]
    operand: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class RenameOf:
    """`rename[m->n] a`."""

    old: str
    new: str
    operand: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class ChunkOf:
    """`chunk[n] a`."""

    axis: str
    operand: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class ConcatOf:
    """`concat[n] e`."""

    axis: str
    operand: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class FoldOf:
    """`fold[n, monoid] e`; the monoid's name may be a function variable.

    A monoid with a state of several parts has an operand for each: `fold[n, rescaled](m, s)`.
    """

    axis: str
    monoid: str
    operands: tuple[Expression, ...]
    position: Position = field(compare=False)


Expression = (
    Number
    | Variable
    | Apply
    | Reduction
    | Contraction
    | IotaOf
    | DeltaOf
    | OperationOf
    | SelectionOf
    | RenameOf
    | ChunkOf
    | ConcatOf
    | FoldOf
)


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition: `large(n)`, `n in K`, `passes(f, n)`... `name` is "in" for membership."""

    name: str
    operands: tuple[str, ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class PropertyGuard:
    """`spd[i, j](a)`, `nonnegative(a)`: the term is known to have a property.

    `name` is one of `eqsat.ir.properties.PROPERTIES`, which says how many axes it takes.
    """

    name: str
    axes: tuple[str, ...]
    term: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class SizeOf:
    """`size(n)`, `size(K)`: the length of an axis, or the product of the lengths of a set."""

    name: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """`c` in a comparison: the value of a term variable, which must be a real constant."""

    name: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left + right` and so on, of numbers known when a rule is matched; `operator` is + - * or /."""

    operator: str
    left: Quantity
    right: Quantity
    position: Position = field(compare=False)


Quantity = Number | SizeOf | ConstantValue | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    """`size(k) < 2 * size(n)`, `c = size(N)`; `relation` is one of < <= > >= = !=."""

    relation: str
    left: Quantity
    right: Quantity
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class CopyDefinition:
    """`l = copy(k)` in a `where` clause: l is an axis of the length of k that is nowhere else.

    `l = copy(k) + 1` is one entry longer; `longer` is that number.
    """

    name: str
    original: str
    longer: int
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class LengthDefinition:
    """`i = axis(size(p) / 2)` in a `where` clause: i is an axis of that length that is nowhere else."""

    name: str
    length: Quantity
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class AxisDefinition:
    """`J = axes(a) - axes(b) - K` in a `where` clause: the axes of the first, less those that follow.

    An item `axes(a)` is ("term", "a"), a set or an axis K is ("axes", "K").
    """

    name: str
    first: tuple[Literal["term", "axes"], str]
    less: tuple[tuple[Literal["term", "axes"], str], ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class DataGuard:
    """A `guard` clause: a rule is of the class `accuracy` where the guard holds of the data."""

    accuracy: Accuracy
    guard: ValueGuard


@dataclass(frozen=True, slots=True)
class Example:
    """An `example` (`fires`) or `reject` clause: the axes of each term variable, as `a: i k  b: j k`."""

    fires: bool
    schemas: tuple[tuple[str, tuple[str, ...]], ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite `left => right`, or `left == right` when `both_ways`.

    `classes` maps each function variable to the class it ranges over: elementwise, commutative,
    increasing, linear, reductions, monoids, selections, calls.

    `space` is the name of the rule's file without its ending; `source` says where the identity is from.
    `monoids` are the declarations of those that the rule folds with, by the names it gives them.
    """

    name: str
    left: Expression
    right: Expression
    both_ways: bool
    accuracy: Accuracy
    classes: tuple[tuple[str, str], ...]
    guards: tuple[Guard, ...]
    properties: tuple[PropertyGuard, ...]
    comparisons: tuple[Comparison, ...]
    definitions: tuple[AxisDefinition, ...]
    copies: tuple[CopyDefinition, ...]
    examples: tuple[Example, ...]
    source: str
    space: str
    monoids: tuple[tuple[str, Monoid], ...]
    data_guard: DataGuard | None
    position: Position = field(compare=False)
    lengths: tuple[LengthDefinition, ...] = ()

    @property
    def new_axes(self) -> tuple[str, ...]:
        """The names of the axes that the rule makes."""
        return (*(copy.name for copy in self.copies), *(new.name for new in self.lengths))

    @property
    def qualified(self) -> str:
        """The rule's name among all files: `contraction.pull-factor`."""
        return f"{self.space}.{self.name}"


@dataclass(frozen=True, slots=True)
class Fact:
    """`fact gram  symmetric[i, j](dot[k](a, rename[i->j] a))`: every match of `term` has the property.

    Clauses as of a rule, but for accuracy and classes.
    """

    name: str
    property: str
    axes: tuple[str, ...]
    term: Expression
    guards: tuple[Guard, ...]
    properties: tuple[PropertyGuard, ...]
    comparisons: tuple[Comparison, ...]
    definitions: tuple[AxisDefinition, ...]
    examples: tuple[Example, ...]
    source: str
    space: str
    position: Position = field(compare=False)

    def as_rule(self) -> Rule:
        """The rule that matches what the fact matches, and turns it into itself."""
        return Rule(
            name=self.name,
            left=self.term,
            right=self.term,
            both_ways=False,
            accuracy="exact",
            classes=(),
            guards=self.guards,
            properties=self.properties,
            comparisons=self.comparisons,
            definitions=self.definitions,
            copies=(),
            examples=self.examples,
            source=self.source,
            space=self.space,
            monoids=(),
            data_guard=None,
            position=self.position,
        )


@dataclass(frozen=True, slots=True)
class MonoidDeclaration:
    """A `monoid` declaration; what it means is `monoid`."""

    monoid: Monoid
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class OperationDeclaration:
    """An `operation` declaration: the user's function under a name that rules can use.

    `function` is "module:name", or empty if Python registers it by `eqsat.operation`.
    """

    signature: Signature
    function: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class RuleFile:
    """What one file says, in order, with its text (for error messages); `includes` are files as parsed.

    Files are compared by what they say themselves: each include twice over would be compared ever more often.
    """

    file: str
    text: str
    rules: tuple[Rule, ...]
    facts: tuple[Fact, ...] = ()
    monoids: tuple[MonoidDeclaration, ...] = ()
    operations: tuple[OperationDeclaration, ...] = ()
    includes: tuple[RuleFile, ...] = field(default=(), compare=False)
