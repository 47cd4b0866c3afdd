"""The abstract syntax of rules.

Axis names in lower case stand for one axis, in upper case for a set of axes (possibly empty in
`where` definitions, never empty in a reduction).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Position:
    """Where something stands: 1-based line and column."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


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
    """`fold[n, monoid] e`; the monoid's name may be a function variable."""

    axis: str
    monoid: str
    operand: Expression
    position: Position = field(compare=False)


Expression = (
    Number | Variable | Apply | Reduction | Contraction | IotaOf | RenameOf | ChunkOf | ConcatOf | FoldOf
)


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition: `large(n)`, `n in K`, `passes(f, n)`... `name` is "in" for membership."""

    name: str
    operands: tuple[str, ...]
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
class Example:
    """An `example` (`fires`) or `reject` clause: the axes of each term variable, as `a: i k  b: j k`."""

    fires: bool
    schemas: tuple[tuple[str, tuple[str, ...]], ...]
    position: Position = field(compare=False)


Accuracy = Literal["exact", "reassociates", "cancels"]
ACCURACIES: tuple[Accuracy, ...] = ("exact", "reassociates", "cancels")
"""From harmless to harmful: what a rule may do to floating-point results."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite `left => right`, or `left == right` when `both_ways`.

    `classes` maps each function variable to the class it ranges over: elementwise, reductions,
    monoids, selections, calls.
    """

    name: str
    left: Expression
    right: Expression
    both_ways: bool
    accuracy: Accuracy
    classes: tuple[tuple[str, str], ...]
    guards: tuple[Guard, ...]
    definitions: tuple[AxisDefinition, ...]
    examples: tuple[Example, ...]
    position: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The rules of one file, in order, with its text (for error messages)."""

    file: str
    text: str
    rules: tuple[Rule, ...]
