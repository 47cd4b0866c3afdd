"""Guards: what must hold of the data for a rule to be as accurate as it promises, as terms to be computed.

A guard is a list of tests, each of which compares two scalars. A scalar is a reduction of an elementwise
expression over all axes, a bound of a dtype, a number, or what arithmetic makes of these. Every comparison
is false where a side is NaN, and reductions hand NaN on: data with a NaN fails every test that looks at it.
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
"""The bounds of a dtype, and what `finfo` calls them: its largest number, its smallest normal one, and the
distance from 1 to the next number."""

OVERALL = ("max", "min", "sum")
"""The reductions over all axes."""

RELATIONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
"""How scalars compare, and the elementwise functions that compare them."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A number; it takes the dtype of what stands beside it."""

    value: float


@dataclass(frozen=True, slots=True)
class Bound:
    """`largest(a)`, `smallest(a)`, `epsilon(a)`: a bound of the dtype of a."""

    kind: str
    variable: str


@dataclass(frozen=True, slots=True)
class Count:
    """`size(K)`: how many entries there are along axes."""

    name: str


@dataclass(frozen=True, slots=True)
class Given:
    """What a variable of the rule stands for."""

    name: str


@dataclass(frozen=True, slots=True)
class GuardFunction:
    """An elementwise function of expressions."""

    function: str
    operands: tuple[Expression, ...]
    exponent: int | None = None


@dataclass(frozen=True, slots=True)
class Along:
    """`sum[K] a`: a reduction along axes of the rule."""

    kind: str
    axes: tuple[str, ...]
    operand: Expression


@dataclass(frozen=True, slots=True)
class Overall:
    """`max(a)`: a reduction over all axes that the operand has."""

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

    - `variables`, `axes`: the names of the rule that the tests speak of.
    """

    variables: tuple[str, ...]
    axes: tuple[str, ...]
    tests: tuple[Inequality, ...]

    def renamed(self, names: Mapping[str, str]) -> Guard:
        """The guard with other names for axes."""

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
    """These values can't be tested: they are no real floats, or are computed inside of a loop."""


def conditions(
    guard: Guard, values: Mapping[str, Term], axes: Mapping[str, frozenset[Axis]], terms: Terms
) -> list[Term]:
    """The tests of a guard as truth values without axes.

    **Arguments:**

    - `values`, `axes`: what the rule's variables and axes stand for.
    - `terms`: the table that the values are from.

    **Raises:** `NoTest`.
    """
    for name in guard.variables:
        if not is_real_float(values[name].dtype) or values[name].open:
            raise NoTest(name)
    builder = _Builder(values, axes, terms)
    return [builder.test(test) for test in guard.tests]


def joined(tests: list[Term], terms: Terms) -> Term:
    """Whether all of some truth values hold, each looked at once."""
    first, *others = sorted(set(tests), key=lambda term: term.number)
    for other in others:
        first = terms.make(Map("and", "bool"), [first, other])
    return first


def given(expression: Expression) -> Iterator[Expression]:
    """An expression and all in it."""
    yield expression
    match expression:
        case GuardFunction(operands=operands):
            for operand in operands:
                yield from given(operand)
        case Along(operand=operand) | Overall(operand=operand):
            yield from given(operand)


_SIGNS = {"add": (" + ", 1), "sub": (" - ", 1), "mul": (" * ", 2), "div": (" / ", 2)}
"""How arithmetic is written, and how tightly it binds."""


def _text(expression: Expression, around: int = 0) -> str:
    """An expression as rules write it; `around` is how tightly what it is in binds."""
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
    """Builds the tests on one choice of values."""

    def __init__(self, values: Mapping[str, Term], axes: Mapping[str, frozenset[Axis]], terms: Terms) -> None:
        self.values = values
        self.axes = axes
        self.terms = terms

    def test(self, test: Inequality) -> Term:
        left, right = self.beside([test.left, test.right])
        if left.axes or right.axes:
            raise NoTest
        return self.terms.make(Map(RELATIONS[test.relation], "bool"), [left, right])

    def beside(self, expressions: list[Expression]) -> list[Term]:
        """Expressions that stand side by side, in one dtype: the widest of them. Numbers take it."""
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
                # Of a stored value, no other one of its size is made.
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
        """A scalar, in float32 if the operand is narrower: bounds are computed with it."""
        if operand.axes:
            operand = self.terms.make(Reduce(kind, operand.axes, operand.dtype), [operand])
        wide = accumulator(operand.dtype)
        return operand if wide == operand.dtype else self.terms.make(Map("convert", wide), [operand])
