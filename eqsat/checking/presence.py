"""Tests whether a rule fires in a function, and if not, which of its parts or conditions are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.checking.absence import absence
from eqsat.checking.conditions import text_of
from eqsat.checking.explain import found_rule
from eqsat.checking.statement import directions, loops, statements
from eqsat.engine.compiled import CompiledRule
from eqsat.engine.saturate import Limits
from eqsat.ir.labels import axis_labels
from eqsat.ir.ops import Dot, Map, Operation, Reduce, Select
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.language.accuracies import ACCURACIES, Accuracy
from eqsat.language.diagnostics import diagnostic
from eqsat.language.syntax import RuleFile

MOST_TERMS = 3
"""How many terms are shown that the left side matches if its conditions are left out."""

MOST_STATEMENTS = 12
"""How many choices of functions are tried for each direction of a rule."""

MOST_LARGE = 2
"""How many axes may be split into chunks: the longest ones."""


def presence(
    name: str,
    files: Sequence[RuleFile],
    program: Program,
    others: Callable[[Accuracy], Sequence[CompiledRule]],
) -> str:
    """Returns a text that says whether a rule fires in a program, and if not, what is missing.

    **Arguments:**

    - `files`: the files among whose rules `name` is looked up.
    - `others`: returns the rules of an accuracy class, which are applied together with this one.

    **Raises:** `RuleError` if there is no such rule.
    """
    file, rule = found_rule(name, files)
    accuracy = max(("reassociates", rule.accuracy), key=ACCURACIES.index)
    beside = [other for other in others(accuracy) if other.name not in (rule.name, rule.qualified)]
    axes = sorted(program.axes(), key=lambda axis: -axis.size)[:MOST_LARGE]
    large = axes if loops(rule) else []
    seen: list[str] = []
    for one_way in directions(rule):
        for statement, _ in zip(statements(one_way), range(MOST_STATEMENTS), strict=False):
            absent = absence(statement.rule, program, beside, large, Limits())
            if absent is None:
                return f"{rule.qualified} fires in it."
            if absent.parts:
                shown = [
                    diagnostic(file.text, part.position, "nothing in the function equals this part")
                    for part in absent.parts
                ]
            else:
                held = [
                    diagnostic(file.text, condition.position, f"`{text_of(condition)}` does not hold")
                    for condition in absent.conditions
                ]
                terms = [f"  {_shown(term, program)}" for term in absent.terms[:MOST_TERMS]]
                shown = ["without its conditions, the left side matches these terms:", *terms, *held]
            seen += [text for text in shown if text not in seen]
    return "\n".join([f"{rule.qualified} does not fire in it, with the other rules at work:", *seen])


def _shown(term: Term, program: Program) -> str:
    """Describes a term as reports do: what computes it, its dtype and axes, and its source line."""
    match term.op:
        case Map(name=name) | Select(kind=name) | Reduce(kind=name):
            what = name
        case Operation(spec=spec):
            what = spec.name
        case Dot():
            what = "dot"
        case op:
            what = type(op).__name__.lower()
    labels = axis_labels(program, [f"argument {number}" for number in range(len(program.inputs))])
    axes = ", ".join(f"{labels.get(axis, axis)}:{axis.size}" for axis in sorted(term.axes))
    place = program.terms.origins.get(term.number)
    return f"{what}  {term.dtype}[{axes}]" + (f"  {place}   {place.code}" if place is not None else "")
