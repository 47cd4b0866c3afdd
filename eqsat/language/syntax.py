"""The abstract syntax of rules.

An axis name in lower case stands for one axis, and one in upper case for a set of axes. A set that
a `where` clause defines may be empty; the set of axes that a reduction reduces may not.
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
    """A numeric constant, which takes the dtype of its context."""

    text: str
    position: Position = field(compare=False)

    @property
    def value(self) -> float:
        return float(self.text)


@dataclass(frozen=True, slots=True)
class Variable:
    """A term variable, with the axes that it must have, `a{k}`, and must not have, `a{!k}`.

    For a set of axes K, `a{K}` has all axes of K, and `a{!K}` has none of them.
    """

    name: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise function, or a function variable, applied to operands.

    `a + b` is the function add, `a - b` sub, `a * b` mul, `a / b` div, `-a` neg and `a^2` square.
    Any other integer power `a^n` is integer_pow, with `exponent` n. `f(a..)` sets `variadic` and
    has one operand, in which a variable stands for each operand of f.
    """

    function: str
    operands: tuple[Expression, ...]
    position: Position = field(compare=False)
    variadic: bool = False
    exponent: int | None = None


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction `sum[K] a`, whose `kind` may be a function variable.

    Selections with one axis, such as `argmax[n] a` and `s[n] a`, parse to this as well. `axes`
    holds one name, or several if it is written `sum[J, K]`, which reduces over their union.
    """

    kind: str
    axes: tuple[str, ...]
    operand: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Contraction:
    """`dot[K](a, b)`: the sum over K of `a * b`, where both operands have the axes K."""

    axes: tuple[str, ...]
    left: Expression
    right: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class IotaOf:
    """`iota[n]`: the index along n, counted from 0."""

    axis: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class DeltaOf:
    """`delta[i, j]`: whether the indices along i and j are equal; both axes have the same length.

    `diag[i, j] a` is short for `select_n(delta[i, j], 0, a)`, and parses to that.
    """

    first: str
    second: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class OperationOf:
    """`solve[i, j](A, b)`: a named operation, with its `axes` in the order of its declaration.

    An operation of one operand is also written `inv[i, j] A`. It then applies to the whole product
    that follows, as `sum[k]` does.
    """

    name: str
    axes: tuple[str, ...]
    operands: tuple[Expression, ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class SelectionOf:
    """`top_k[n, m] a`: the largest entries along `axis` n, arranged along `out_axis` m.

    `result` is "values" for `top_k`, and "indices" for `top_k_indices`, which gives the indices of
    these entries. A selection `s[n] a` by a function variable is a `Reduction`.
    """

    axis: str
    out_axis: str
    result: Literal["values", "indices"]
    operand: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class RenameOf:
    """`rename[m->n] a`: the operand with its axis m called n."""

    old: str
    new: str
    operand: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class ChunkOf:
    """`chunk[n] a`: the operand's current chunk along n, in a loop over n."""

    axis: str
    operand: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class ConcatOf:
    """`concat[n] e`: a loop over n that lays the results of its iterations side by side."""

    axis: str
    operand: Expression
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class FoldOf:
    """`fold[n, monoid] e`: a loop over n that combines the results of its iterations by a monoid.

    The monoid's name may be a function variable. If the monoid's state has several parts, there is
    one operand for each: `fold[n, rescaled](m, s)`.
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
    """A condition on matched names, such as `large(n)` or `passes(f, n)`.

    A membership `n in K` has the name "in" and the operands n and K.
    """

    name: str
    operands: tuple[str, ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class PropertyGuard:
    """A condition that a term is known to have a property, such as `spd[i, j](a)` or `nonnegative(a)`.

    `name` is one of `eqsat.ir.properties.PROPERTIES`, which says how many axes it takes.
    """

    name: str
    axes: tuple[str, ...]
    term: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class SizeOf:
    """`size(n)`: the length of an axis; `size(K)`: the product of the lengths of a set of axes."""

    name: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """`c` in a comparison: the value of a term variable, which must match a real constant."""

    name: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left + right` and the like, of numbers that are known when a rule is matched.

    `operator` is +, -, * or /.
    """

    operator: str
    left: Quantity
    right: Quantity
    position: Position = field(compare=False)


Quantity = Number | SizeOf | ConstantValue | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition such as `size(k) < 2 * size(n)` or `c = size(N)`; `relation` is <, <=, >, >=, = or !=."""

    relation: str
    left: Quantity
    right: Quantity
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class CopyDefinition:
    """`l = copy(k)` in a `where` clause: l is a new axis as long as k, which no matched term has.

    `l = copy(k) + 1` is one entry longer than k; `longer` is that number of entries.
    """

    name: str
    original: str
    longer: int
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class LengthDefinition:
    """`i = axis(size(p) / 2)` in a `where` clause: i is a new axis of that length.

    No matched term has this axis.
    """

    name: str
    length: Quantity
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class AxisDefinition:
    """`J = axes(a) - axes(b) - K` in a `where` clause: the axes of the first item less those of the others.

    The item `axes(a)` is represented as ("term", "a"), and an axis or a set K as ("axes", "K").
    """

    name: str
    first: tuple[Literal["term", "axes"], str]
    less: tuple[tuple[Literal["term", "axes"], str], ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class DataGuard:
    """A `guard` clause: the rule is of the class `accuracy` for data that passes the guard's tests."""

    accuracy: Accuracy
    guard: ValueGuard


@dataclass(frozen=True, slots=True)
class Example:
    """An `example` or `reject` clause, such as `example a: i k  b: j k`.

    `fires` is true for an `example`. `schemas` holds each term variable with its axes.
    """

    fires: bool
    schemas: tuple[tuple[str, tuple[str, ...]], ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite `left => right`, or `left == right` if `both_ways`.

    `classes` holds each function variable with the class that it ranges over: one of
    `eqsat.language.functions.CLASSES`, or a list in braces (see `eqsat.language.listed`). `space`
    is the name of the rule's file without its suffix, and `source` says where the identity comes
    from. `monoids` holds the declared monoids that the rule's folds name, each with its
    declaration.
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
    def makers(self) -> tuple[CopyDefinition | LengthDefinition, ...]:
        """The definitions of the axes that the rule creates."""
        return (*self.copies, *self.lengths)

    @property
    def new_axes(self) -> tuple[str, ...]:
        """The names of the axes that the rule creates."""
        return tuple(made.name for made in self.makers)

    @property
    def qualified(self) -> str:
        """The rule's name after that of its file, as in `contraction.pull-factor`."""
        return f"{self.space}.{self.name}"


@dataclass(frozen=True, slots=True)
class Fact:
    """`fact gram  symmetric[i, j](dot[k](a, rename[i->j] a))`: every match of `term` has the property.

    A fact has the clauses of a rule, except for the accuracy class, function variables, guards and
    new axes.
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
        """Returns the rule that rewrites every match of the fact to itself, for checks that take rules."""
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
    """A `monoid` declaration, with the monoid that it declares."""

    monoid: Monoid
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class OperationDeclaration:
    """An `operation` declaration, which gives the user's function a name for rules to use.

    `function` is "module:name", or empty if Python code registers the function by
    `eqsat.operation`.
    """

    signature: Signature
    function: str
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The statements of one file, and its `text` for error messages.

    `includes` holds the parsed files that it includes. Comparing two files ignores them: a file
    that is included on several paths would be compared once for each path, and the number of paths
    may be exponential.
    """

    file: str
    text: str
    rules: tuple[Rule, ...]
    facts: tuple[Fact, ...] = ()
    monoids: tuple[MonoidDeclaration, ...] = ()
    operations: tuple[OperationDeclaration, ...] = ()
    includes: tuple[RuleFile, ...] = field(default=(), compare=False)
