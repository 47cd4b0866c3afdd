"""Builds the terms of a declared monoid: the merge of two partial results, and the finish.

The formulas of a monoid have neither axes nor dtypes. The terms get both from the operands of a fold. The
leaves of the terms stand for the parts of a state, and the caller supplies their values.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis
from eqsat.ir.dtypes import accumulator, is_inexact, is_real_float, numpy_dtype
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.formula import Application, Constant, Formula, Monoid, Scalar, names_in
from eqsat.ir.ops import Const, Leaf, Map
from eqsat.ir.term import Term, Terms

Axes = frozenset[Axis]


@dataclass(frozen=True, slots=True)
class State:
    """The state of a fold, part by part, as terms over leaves.

    **Attributes:**

    - `identity`: constants, the values of the parts before the first chunk.
    - `earlier`: leaves for the parts so far. They have the axes and dtypes in which the parts are carried.
    - `later`: leaves for the parts of one chunk. They have the axes of the fold's operands, and the
      accumulators of the operands' dtypes.
    - `merged`: terms for the parts after that chunk.
    - `finished`: a term over `earlier` for the result of the fold.
    """

    identity: tuple[Term, ...]
    earlier: tuple[Term, ...]
    later: tuple[Term, ...]
    merged: tuple[Term, ...]
    finished: Term


class Merging:
    """Builds the states of the folds of one loop, which share the parts that are equal.

    Parts are equal if they, and all parts that their merges depend on, have the same formulas and operands.
    For example, the running maximum of a softmax's normaliser is equal to that of the weighted sum.
    """

    def __init__(self) -> None:
        self._terms = Terms()
        self._leaves: dict[Hashable, int] = {}

    def state(self, monoid: Monoid, operands: Sequence[Term]) -> State:
        """Returns the state of a fold with that monoid and those operands.

        Raises an `EqsatError` if the formulas are ill-typed for the dtypes of the operands.
        """
        names = monoid.state
        used = [_closure(monoid, name) for name in names]
        dtypes = [accumulator(operand.dtype) for operand in operands]
        axes = [
            frozenset[Axis]().union(*(operands[names.index(part)].axes for part in parts)) for parts in used
        ]
        earlier, later = [], []
        for operand, dtype, spanned, parts in zip(operands, dtypes, axes, used, strict=True):
            key = tuple(_declared(monoid, part, operands) for part in parts)
            earlier.append(self._leaf(key, spanned, dtype))
            later.append(self._leaf(operand.number, operand.axes, dtype))
        known: dict[str, Term] = {}
        for name, old, new in zip(names, earlier, later, strict=True):
            known |= {f"{name}1": old, f"{name}2": new}
        merged = []
        for name, formula, dtype in zip(names, monoid.merge, dtypes, strict=True):
            known[name] = self._built(formula, known, dtype)
            merged.append(known[name])
            _check_part(monoid, f"the merge of {name}", known[name], dtype)
        finished = self._built(monoid.finish, dict(zip(names, earlier, strict=True)), dtypes[-1])
        _check_part(monoid, "what it finishes with", finished, dtypes[-1])
        identity = tuple(
            self._constant(constant, dtype) for constant, dtype in zip(monoid.identity, dtypes, strict=True)
        )
        return State(identity, tuple(earlier), tuple(later), tuple(merged), finished)

    def _leaf(self, key: Hashable, axes: Axes, dtype: str) -> Term:
        index = self._leaves.setdefault(key, len(self._leaves))
        return self._terms.make(Leaf(index, tuple(sorted(axes)), dtype))

    def _constant(self, constant: Constant, dtype: str) -> Term:
        return self._terms.make(Const(constant_text(constant, dtype), dtype))

    def _built(self, formula: Formula, known: Mapping[str, Term], dtype: str) -> Term:
        """Builds a formula as a term. Numbers and conversions without other context get `dtype`."""
        match formula:
            case Scalar(name=name):
                return known[name]
            case Constant():
                return self._constant(formula, dtype)
            case Application(function="convert", operands=(operand,)):
                inner = _own_dtype(operand, known) or dtype
                return self._terms.make(Map("convert", dtype), [self._built(operand, known, inner)])
            case Application(function="select_n", operands=(which, *cases)):
                inner = _own_dtype(formula, known) or dtype
                wanted = ["bool", *(inner for _ in cases)]
                return self._applied(formula, (which, *cases), wanted, inner, known)
            case Application(function=function, operands=operands):
                inner = _common_dtype(operands, known) or dtype
                result = "bool" if ELEMENTWISE[function].boolean else inner
                return self._applied(formula, operands, [inner] * len(operands), result, known)

    def _applied(
        self,
        formula: Application,
        operands: Sequence[Formula],
        dtypes: Sequence[str],
        result: str,
        known: Mapping[str, Term],
    ) -> Term:
        args = [self._built(operand, known, dtype) for operand, dtype in zip(operands, dtypes, strict=True)]
        if [arg.dtype for arg in args] != list(dtypes):
            found = ", ".join(arg.dtype for arg in args)
            raise EqsatError(f"{formula.function} of {found}: operands have one dtype, or are converted")
        params = () if formula.exponent is None else (("y", formula.exponent),)
        return self._terms.make(Map(formula.function, result, params), args)


def constant_text(constant: Constant, dtype: str) -> str:
    """Returns a number of a formula as the text of a `Const` of `dtype`.

    For an integer dtype, an infinity becomes the largest or smallest integer, and a fraction raises an
    `EqsatError`.

    >>> constant_text(Constant("1"), "float32"), constant_text(Constant("-inf"), "int8")
    ('1.0', '-128')
    """
    value = constant.value
    if is_inexact(dtype):
        return repr(value if is_real_float(dtype) else complex(value))
    if dtype == "bool":
        return str(value > 0)
    if math.isinf(value):
        limits = np.iinfo(numpy_dtype(dtype))
        return str(limits.max if value > 0 else limits.min)
    if value != int(value):
        raise EqsatError(f"{constant.text} is not a number of dtype {dtype}")
    return str(int(value))


def _part(monoid: Monoid, name: str) -> str:
    """Returns the part of the state that a name in a merge refers to: m for each of m1, m2 and m."""
    part = name if name in monoid.state else name[:-1]
    if part not in monoid.state or (part != name and name[-1] not in "12"):
        raise EqsatError(f"monoid {monoid.name}: {name} is no part of its state")
    return part


def _closure(monoid: Monoid, part: str) -> list[str]:
    """Returns the parts that a part's merge depends on, itself included, in the order of the state."""
    found: set[str] = set()
    waiting = [part]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            formula = monoid.merge[monoid.state.index(name)]
            waiting += [_part(monoid, used) for used in names_in(formula)]
    return [name for name in monoid.state if name in found]


def _declared(monoid: Monoid, part: str, operands: Sequence[Term]) -> tuple[object, ...]:
    """Returns what identifies a part, apart from the parts that it depends on."""
    place = monoid.state.index(part)
    return part, monoid.identity[place], monoid.merge[place], operands[place].number


def _common_dtype(formulas: Sequence[Formula], known: Mapping[str, Term]) -> str | None:
    """Returns the first dtype that any of the formulas has by itself, or None."""
    return next((dtype for formula in formulas if (dtype := _own_dtype(formula, known))), None)


def _own_dtype(formula: Formula, known: Mapping[str, Term]) -> str | None:
    """Returns the dtype that a formula has by itself, or None if it takes that of its context."""
    match formula:
        case Scalar(name=name):
            if name not in known:
                raise EqsatError(f"{name} is not known where it is used")
            return known[name].dtype
        case Constant() | Application(function="convert"):
            return None
        case Application(function="select_n", operands=(_, *cases)):
            return _common_dtype(cases, known)
        case Application(function=function, operands=operands):
            if function not in ELEMENTWISE:
                raise EqsatError(f"{function!r} is not a known elementwise function")
            return "bool" if ELEMENTWISE[function].boolean else _common_dtype(operands, known)


def _check_part(monoid: Monoid, what: str, term: Term, dtype: str) -> None:
    if term.dtype != dtype:
        raise EqsatError(f"monoid {monoid.name}: {what} is {term.dtype}, not {dtype}")
