"""Tests declared monoids: merging must be associative, and the identity must change nothing.

The states are operands of folds in rules, on data drawn as for the rule. A monoid that no rule folds
with is tested on arbitrary numbers. The test compares what a fold would return, since two states with
different numbers may have the same meaning.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.checking.building import IllFormed
from eqsat.checking.drawing import Drawer
from eqsat.checking.instance import values_of
from eqsat.checking.oracle import Criterion, differs
from eqsat.checking.showing import literal
from eqsat.checking.sizes import Sizes
from eqsat.checking.statement import Statement, directions, statements
from eqsat.checking.typing import kinds_of
from eqsat.checking.values import Style
from eqsat.errors import EqsatError
from eqsat.ir.formula import Application, Constant, Formula, Monoid, Scalar
from eqsat.ir.numpy_functions import apply
from eqsat.language.syntax import FoldOf, Rule
from eqsat.language.traverse import walk

Array = np.ndarray[Any, np.dtype[Any]]
State = tuple[Array, ...]

STYLES = {
    Style("normal"): 6,
    Style("whole"): 6,
    Style("zeros"): 6,
    Style("masked"): 12,
    Style("positive"): 6,
    Style("hostile"): 40,
}
"""How many triples of states are drawn for each rule, by style of the data.

Most have hostile numbers, from the whole range of single precision. They are merged in double precision.
"""

ARBITRARY = 30
"""How many triples of states are drawn if no rule folds with a monoid."""

MOST_RULES = 3
"""From how many of the rules that fold with a monoid states are drawn."""


@dataclass(frozen=True)
class MonoidFailure:
    """States on which a monoid breaks a law.

    **Attributes:**

    - `law`: what is wrong, in a few words.
    - `left`, `right`: what a fold returns for the two states that should be equal.
    """

    law: str
    monoid: Monoid
    states: tuple[State, ...]
    left: Array
    right: Array

    def __str__(self) -> str:
        lines = [f"{self.law}:"]
        for name, state in zip("xyz", self.states, strict=False):
            parts = zip(self.monoid.state, state, strict=True)
            lines.append(f"  {name}: " + ", ".join(f"{part} = {literal(value)}" for part, value in parts))
        lines.append(f"  left:  {literal(self.left)}")
        lines.append(f"  right: {literal(self.right)}")
        return "\n".join(lines)


def check_monoid(monoid: Monoid, rules: Sequence[Rule]) -> tuple[int, MonoidFailure | None]:
    """Returns how many triples of states were tried, and the first failure; None if there was none.

    **Arguments:**

    - `rules`: the rules that may fold with the monoid.
    """
    tried = 0
    for states in _triples(monoid, rules):
        tried += 1
        x, y, z = states
        identity = tuple(
            np.asarray(part.value > 0 if value.dtype == bool else part.value)
            for part, value in zip(monoid.identity, x, strict=True)
        )
        pairs: list[tuple[str, State, State]] = [
            (
                "merging is not associative, since (x y) z differs from x (y z)",
                merged(monoid, merged(monoid, x, y), z),
                merged(monoid, x, merged(monoid, y, z)),
            ),
            (
                "the identity changes what comes after it",
                merged(monoid, merged(monoid, identity, x), y),
                merged(monoid, x, y),
            ),
            (
                "the identity changes what comes before it",
                merged(monoid, merged(monoid, x, identity), y),
                merged(monoid, x, y),
            ),
            *(
                (
                    "the identity changes a state that it is merged with",
                    merged(monoid, identity, state),
                    state,
                )
                for state in states
            ),
        ]
        for law, left, right in pairs:
            found = _first_difference(monoid, law, states, finished(monoid, left), finished(monoid, right))
            if found is not None:
                return tried, found
    return tried, None


def _first_difference(
    monoid: Monoid, law: str, states: tuple[State, ...], left: Array, right: Array
) -> MonoidFailure | None:
    """Returns the first element in which two results differ, with the states that it comes from."""
    left, right = np.broadcast_arrays(left, right)
    for place in np.ndindex(left.shape):
        if differs(left[place], right[place], Criterion.CLOSE):
            single = tuple(
                tuple(np.broadcast_to(part, left.shape)[place] for part in state) for state in states
            )
            return MonoidFailure(law, monoid, single, left[place], right[place])
    return None


# ------------------------------------------------------------------------------------------ formulas


def merged(monoid: Monoid, first: State, second: State) -> State:
    """Merges two states."""
    known: dict[str, Array] = {}
    for name, one, other in zip(monoid.state, first, second, strict=True):
        known |= {f"{name}1": one, f"{name}2": other}
    for name, formula in zip(monoid.state, monoid.merge, strict=True):
        known[name] = formula_value(formula, known)
    return tuple(known[name] for name in monoid.state)


def finished(monoid: Monoid, state: State) -> Array:
    """Returns the value that a fold with this final state returns."""
    return formula_value(monoid.finish, dict(zip(monoid.state, state, strict=True)))


def formula_value(formula: Formula, known: Mapping[str, Array]) -> Array:
    """Evaluates a formula, given the values of its scalars."""
    match formula:
        case Scalar(name=name):
            return known[name]
        case Constant(value=value):
            return np.asarray(value)
        case Application(function="convert", operands=(operand,)):
            return formula_value(operand, known).astype(float)
        case Application(function=function, operands=operands, exponent=exponent):
            values = [formula_value(operand, known) for operand in operands]
            parameters = {} if exponent is None else {"y": exponent}
            kind = np.result_type(*values[1:] if function == "select_n" else values).name
            if function in ("eq", "ne", "lt", "le", "gt", "ge", "is_finite"):
                kind = "bool"
            return apply(function, kind, values, parameters)


# -------------------------------------------------------------------------------------------- states


def _triples(monoid: Monoid, rules: Sequence[Rule]) -> Iterator[tuple[State, State, State]]:
    folding = [rule for rule in rules if _folds(rule, monoid)][:MOST_RULES]
    rng = random.Random(zlib.crc32(monoid.name.encode()))
    for rule in folding:
        statement = next(statements(directions(rule)[0]))
        for style, count in STYLES.items():
            for _ in range(count):
                triple = _drawn_states(statement, monoid, style, rng)
                if triple is not None:
                    yield triple
    if not folding:
        generator = np.random.default_rng(rng.randrange(2**32))
        for _ in range(ARBITRARY):
            x, y, z = (_arbitrary(monoid, generator) for _ in range(3))
            yield x, y, z


def _folds(rule: Rule, monoid: Monoid) -> bool:
    known = dict(rule.monoids)
    return any(isinstance(node, FoldOf) and known.get(node.monoid) == monoid for node in walk(rule.right))


def _arbitrary(monoid: Monoid, rng: np.random.Generator) -> State:
    special = np.array([0.0, 1.0, 2.0, -1.0, np.inf, -np.inf, np.nan])
    truths = {name for formula in (*monoid.merge, monoid.finish) for name in _truths(formula)}
    return tuple(
        rng.random(40) < 0.5
        if truths & {part, f"{part}1", f"{part}2"}
        else np.where(rng.random(40) < 0.3, rng.choice(special, 40), rng.normal(size=40))
        for part in monoid.state
    )


def _truths(formula: Formula) -> Iterator[str]:
    """Yields the names in a formula that must be truth values: conditions, and operands of logic."""
    if isinstance(formula, Application):
        logical = formula.operands if formula.function in ("and", "or", "xor", "not") else ()
        logical = formula.operands[:1] if formula.function == "select_n" else logical
        yield from (operand.name for operand in logical if isinstance(operand, Scalar))
        for operand in formula.operands:
            yield from _truths(operand)


def _drawn_states(
    statement: Statement, monoid: Monoid, style: Style, rng: random.Random
) -> tuple[State, State, State] | None:
    """Draws three states of equal shapes for a fold of a rule; None if an instance can't be drawn."""
    names = dict(statement.rule.monoids)
    fold = next(
        node
        for node in walk(statement.rule.right)
        if isinstance(node, FoldOf) and names.get(node.monoid) == monoid
    )
    drawer = Drawer(statement)
    kinds = kinds_of(statement)[0]
    instance = drawer.draw(rng, kinds, style)
    if instance is None:
        return None
    constants = {name: float(instance.values[name]) for name in instance.constants}
    sizes = Sizes(instance.lengths, constants)
    found: list[State] = []
    for _ in range(3):
        again = drawer.instance(rng.randrange(2**32), kinds, style, instance.placement, sizes)
        try:
            found.append(tuple(values_of(again, fold.operands)))
        except (EqsatError, IllFormed):
            return None
    return found[0], found[1], found[2]
