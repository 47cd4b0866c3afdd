"""Guards: conditions on the data under which a rule keeps the accuracy that it promises.

A guard is a list of tests, which are compiled to terms and computed at run time. Each test compares two
scalars. A scalar is a reduction of an elementwise expression over all axes, a bound of a dtype, a number, or
arithmetic on these. A comparison with NaN is false, and reductions propagate NaN. So data that contains a NaN
fails every test that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import accumulator, is_real_float, itemsize, numpy_dtype
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.ops import Const, Map, Reduce
from eqsat.ir.term import Term, Terms

BOUNDS = {"largest": "max", "smallest": "smallest_normal", "epsilon": "eps"}
"""The bounds of a dtype by their names in rules, with the attributes of `finfo` that hold them.

They are the largest number, the smallest normal number, and the distance from 1 to the next larger number.
"""

OVERALL = ("max", "min", "sum")
"""The reductions that an `Overall` may be."""

RELATIONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
"""The comparisons, with the elementwise functions that compute them."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, which takes the dtype of its context."""

    value: float


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of the dtype of a variable: `largest(a)`, `smallest(a)` or `epsilon(a)`."""

    kind: str
    variable: str


@dataclass(frozen=True, slots=True)
class Count:
    """The number of entries along axes of the rule: `size(K)`."""

    name: str


@dataclass(frozen=True, slots=True)
class Given:
    """A variable of the rule."""

    name: str


@dataclass(frozen=True, slots=True)
class GuardFunction:
    """An elementwise function applied to expressions."""

    function: str
    operands: tuple[Expression, ...]
    exponent: int | None = None


@dataclass(frozen=True, slots=True)
class Along:
    """A reduction along axes of the rule: `sum[K] a`."""

    kind: str
    axes: tuple[str, ...]
    operand: Expression


@dataclass(frozen=True, slots=True)
class Overall:
    """A reduction over all axes of the operand: `max(a)`."""

    kind: str
    operand: Expression


Expression = Literal | Bound | Count | Given | GuardFunction | Along | Overall


@dataclass(frozen=True, slots=True)
class Inequality:
    """A comparison of two scalars."""

    relation: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Guard:
    """The tests of a rule, all of which must hold.

    **Attributes:**

    - `variables`, `axes`: the names of the rule's variables and axes that the tests mention.
    """

    variables: tuple[str, ...]
    axes: tuple[str, ...]
    tests: tuple[Inequality, ...]

    def renamed(self, names: Mapping[str, str]) -> Guard:
        """Returns the guard with axes renamed. Axes that are not in `names` keep their names."""

        def side(expression: Expression) -> Expression:
            match expression:
                case Count(name=name):
                    return Count(names.get(name, name))
                case Along():
                    axes = tuple(names.get(axis, axis) for axis in expression.axes)
                    return Along(expression.kind, axes, side(expression.operand))
                case Overall(kind=kind, operand=operand):
                    return Overall(kind, side(operand))
                case GuardFunction():
                    return replace(expression, operands=tuple(map(side, expression.operands)))
            return expression

        axes = tuple(sorted(names.get(axis, axis) for axis in self.axes))
        tests = tuple(Inequality(one.relation, side(one.left), side(one.right)) for one in self.tests)
        return Guard(self.variables, axes, tests)

    def __str__(self) -> str:
        return ", ".join(f"{_text(test.left)} {test.relation} {_text(test.right)}" for test in self.tests)


class NoTest(Exception):
    """Raised when values cannot be tested, such as values that are not real floats or vary with a loop."""


def conditions(
    guard: Guard, values: Mapping[str, Term], axes: Mapping[str, frozenset[Axis]], terms: Terms
) -> list[Term]:
    """Returns the tests of a guard as boolean terms without axes.

    **Arguments:**

    - `values`, `axes`: the terms and the axes that the rule's variables and axes stand for.
    - `terms`: the table that interns the values. The tests are built in it.

    **Raises:** `NoTest` if a value is not a real float or varies with a loop, if a reduction is along axes
    that its operand lacks, or if a side of a test is not a scalar.
    """
    for name in guard.variables:
        if not is_real_float(values[name].dtype) or values[name].open:
            raise NoTest(name)
    builder = _Builder(values, axes, terms)
    return [builder.test(test) for test in guard.tests]


def joined(tests: list[Term], terms: Terms) -> Term:
    """Returns the conjunction of boolean terms, of which there is at least one. Each is used once."""
    first, *others = sorted(set(tests), key=lambda term: term.number)
    for other in others:
        first = terms.make(Map("and", "bool"), [first, other])
    return first


def given(expression: Expression) -> Iterator[Expression]:
    """Yields an expression and all its subexpressions."""
    yield expression
    match expression:
        case GuardFunction(operands=operands):
            for operand in operands:
                yield from given(operand)
        case Along(operand=operand) | Overall(operand=operand):
            yield from given(operand)


_SIGNS = {"add": (" + ", 1), "sub": (" - ", 1), "mul": (" * ", 2), "div": (" / ", 2)}
"""How arithmetic is written, and its precedence. A larger number binds more tightly."""


def _text(expression: Expression, around: int = 0) -> str:
    """Returns an expression as rules write it. `around` is the precedence of the surrounding expression."""
    match expression:
        case Literal(value=value):
            return f"{value:g}"
        case Bound(kind=kind, variable=name):
            return f"{kind}({name})"
        case Count(name=name):
            return f"size({name})"
        case Given(name=name):
            return name
        case Overall(kind=kind, operand=operand):
            return f"{kind}({_text(operand)})"
        case Along(kind=kind, axes=axes, operand=operand):
            text = f"{kind}[{', '.join(axes)}] {_text(operand, 2)}"
            return f"({text})" if around else text
        case GuardFunction(function=name, operands=(left, right)) if name in _SIGNS:
            sign, tightness = _SIGNS[name]
            text = f"{_text(left, tightness)}{sign}{_text(right, tightness + 1)}"
            return f"({text})" if tightness < around else text
        case GuardFunction(function="square" | "integer_pow", operands=(base,), exponent=exponent):
            return f"{_text(base, 3)}^{exponent or 2}"
        case GuardFunction(function="neg", operands=(operand,)):
            return f"-{_text(operand, 3)}"
        case GuardFunction(function=name, operands=operands):
            return f"{name}({', '.join(map(_text, operands))})"


class _Builder:
    """Builds the terms of tests for given values and axes."""

    def __init__(self, values: Mapping[str, Term], axes: Mapping[str, frozenset[Axis]], terms: Terms) -> None:
        self.values = values
        self.axes = axes
        self.terms = terms

    def test(self, test: Inequality) -> Term:
        """Builds a test as a boolean term. Raises `NoTest` if a side of it is not a scalar."""
        left, right = self.beside([test.left, test.right])
        if left.axes or right.axes:
            raise NoTest
        return self.terms.make(Map(RELATIONS[test.relation], "bool"), [left, right])

    def beside(self, expressions: list[Expression]) -> list[Term]:
        """Builds expressions and converts them to the widest dtype among them, which numbers take too."""
        built: list[Term | None] = [
            None if isinstance(one, Literal | Count) else self.build(one) for one in expressions
        ]
        dtypes = [term.dtype for term in built if term is not None]
        widest = max(dtypes, key=itemsize, default="float32")
        made = []
        for one, term in zip(expressions, built, strict=True):
            if term is None:
                made.append(self.number(self.value(one), widest))
            elif term.dtype not in (widest, "bool"):
                made.append(self.terms.make(Map("convert", widest), [term]))
            else:
                made.append(term)
        return made

    def value(self, expression: Expression) -> float:
        """Returns the number that a literal or a count stands for."""
        if isinstance(expression, Literal):
            return expression.value
        assert isinstance(expression, Count)
        count = 1
        for axis in self.axes[expression.name]:
            count *= axis.size
        return float(count)

    def number(self, value: float, dtype: str) -> Term:
        return self.terms.make(Const(repr(float(value)), dtype))

    def build(self, expression: Expression) -> Term:
        """Builds an expression as a term. Numbers without other context are float32."""
        match expression:
            case Literal() | Count():
                return self.number(self.value(expression), "float32")
            case Bound(kind=kind, variable=name):
                dtype = self.values[name].dtype
                finfo: Any = jnp.finfo
                limits = finfo(numpy_dtype(dtype))
                return self.number(float(getattr(limits, BOUNDS[kind])), accumulator(dtype))
            case Given(name=name):
                return self.values[name]
            case Overall(kind="max", operand=GuardFunction(function="abs", operands=(operand,))):
                # max(|x|) is max(max(x), -min(x)), which does not store |x| if x is stored.
                inside = self.build(operand)
                highest, lowest = self.overall("max", inside), self.overall("min", inside)
                below = self.terms.make(Map("neg", lowest.dtype), [lowest])
                return self.terms.make(Map("max", highest.dtype), [highest, below])
            case Overall(kind=kind, operand=operand):
                return self.overall(kind, self.build(operand))
            case Along(kind=kind, axes=names, operand=operand):
                inside = self.build(operand)
                along = frozenset[Axis]().union(*(self.axes[name] for name in names))
                if not along or not along <= inside.axes:
                    raise NoTest
                return self.terms.make(Reduce(kind, along, inside.dtype), [inside])
            case GuardFunction(function=name, operands=operands, exponent=exponent):
                first = [self.build(operands[0])] if name == "select_n" else []
                made = [*first, *self.beside(list(operands[len(first) :]))]
                boolean = ELEMENTWISE[name].boolean
                params = (("y", exponent),) if exponent is not None else ()
                return self.terms.make(Map(name, "bool" if boolean else made[-1].dtype, params), made)

    def overall(self, kind: str, operand: Term) -> Term:
        """Reduces the operand over all its axes.

        A narrower float is then converted to float32, the dtype in which bounds are computed.
        """
        if operand.axes:
            operand = self.terms.make(Reduce(kind, operand.axes, operand.dtype), [operand])
        wide = accumulator(operand.dtype)
        return operand if wide == operand.dtype else self.terms.make(Map("convert", wide), [operand])
