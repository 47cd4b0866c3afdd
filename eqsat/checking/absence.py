"""Explains why a rule does not fire in a program: which part of its left side or which condition fails.

The engine runs *probes*: the parts of the left side, and the whole left side with fewer conditions. A
probe matches like a rule, but adds no terms. It only marks the terms that it matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.checking.conditions import Condition, Pattern, conditions_of, text_of, without
from eqsat.engine.compile import compile_rule
from eqsat.engine.compiled import CompiledRule
from eqsat.engine.saturate import Limits, saturate
from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.language.diagnostics import alternatives
from eqsat.language.syntax import (
    AxisDefinition,
    CopyDefinition,
    Expression,
    Fact,
    Guard,
    Number,
    Rule,
    Variable,
)
from eqsat.language.traverse import operands, walk

MARK = "nonnegative"
"""The property that probes are compiled with, as facts. `_compiled` then replaces it in their text."""


@dataclass(frozen=True, slots=True)
class Absence:
    """What keeps a rule from firing.

    **Attributes:**

    - `parts`: the parts of the left side that match nothing, though each of their operands matches
      something. Empty if the left side without conditions matches.
    - `conditions`: the conditions that fail on the matches of the left side without conditions.
    - `terms`: the terms that the left side matches without conditions.
    """

    parts: tuple[Expression, ...]
    conditions: tuple[Condition, ...] = ()
    terms: tuple[Term, ...] = ()


def absence(
    rule: Rule, program: Program, others: Sequence[CompiledRule], large: Sequence[Axis], limits: Limits
) -> Absence | None:
    """Returns what keeps a one-way rule from firing in a program, or None if it fires.

    **Arguments:**

    - `others`: the rules that run beside it.
    - `large`: the axes that may be split.
    """
    conditions = [c for c in conditions_of(rule) if not isinstance(c, AxisDefinition | CopyDefinition)]
    bare = rule
    for condition in conditions:
        bare = without(bare, condition)
    probes = {"all": rule, "bare": bare}
    for place, condition in enumerate(conditions):
        rest = rule
        for other in conditions:
            rest = without(rest, other) if other is not condition else rest
        probes[f"only {place}"] = rest
        # The other conditions may make no sense without one that chooses an axis, as `n in K` does.
        probes[f"without {place}"] = without(rule, condition)
    nodes = [node for node in dict.fromkeys(walk(bare.left)) if not isinstance(node, Variable | Number)]
    for place, node in enumerate(nodes[1:], 1):
        about = replace(bare, left=node, right=node, guards=(), comparisons=(), definitions=(), copies=())
        probes[f"part {place}"] = replace(about, properties=())
    found = _found(probes, program, others, large, limits)
    if found.get("all"):
        return None
    matched = found.get("bare")
    if matched:
        wrong = [
            condition
            for place, condition in enumerate(conditions)
            if found.get(f"only {place}") == [] or found.get(f"without {place}")
        ]
        # `n in N` only chooses among axes: another failing condition on n is the reason.
        limited = {name for c in wrong if isinstance(c, Guard) and c.name != "in" for name in c.operands}
        wrong = [
            c for c in wrong if not (isinstance(c, Guard) and c.name == "in" and c.operands[0] in limited)
        ]
        return Absence((), tuple(wrong or conditions), tuple(matched))
    there: dict[Expression, bool] = {bare.left: False}
    there.update((node, bool(found.get(f"part {place}"))) for place, node in enumerate(nodes) if place)
    missing = [
        node for node in nodes if not there[node] and all(there.get(below, True) for below in operands(node))
    ]
    return Absence(tuple(missing))


def told(absent: Absence, axes: Mapping[str, Sequence[str]]) -> str:
    """Returns a sentence that says what keeps a rule from firing on an example.

    **Arguments:**

    - `axes`: the axes of each variable in the example.
    """
    if absent.parts:
        return "nothing in it matches a part of the left side"
    parts = []
    for condition in absent.conditions:
        text = f"`{text_of(condition)}`"
        if isinstance(condition, Pattern) and condition.variable in axes:
            have = " ".join(axes[condition.variable])
            text += f" (`{condition.variable}` has the axes {have})" if have else " (a scalar)"
        parts.append(text)
    return f"{alternatives(parts, 'and')} {'does' if len(parts) == 1 else 'do'} not hold"


def _found(
    probes: dict[str, Rule],
    program: Program,
    others: Sequence[CompiledRule],
    large: Sequence[Axis],
    limits: Limits,
) -> dict[str, list[Term]]:
    """Returns the terms of the program that each probe matches, without the probes that can't run."""
    first = 1 + max((rule.number for rule in others), default=-1)
    compiled = dict(_compiled(probes, first))
    while True:
        try:
            chosen = [*others, *compiled.values()]
            graph = saturate(program, chosen, large, list(program.reachable()), limits).graph
            break
        except EqsatError as error:
            refused = [name for name, one in compiled.items() if f"rule {one.name}:" in str(error)]
            if not refused:
                raise
            del compiled[refused[0]]
    terms = list(program.reachable())
    return {
        name: [
            term
            for term in terms
            if one.number in graph.simplified.get(graph.class_of.get(term.number, -1), frozenset())
        ]
        for name, one in compiled.items()
    }


def _compiled(probes: dict[str, Rule], first: int) -> Iterator[tuple[str, CompiledRule]]:
    for number, (name, rule) in enumerate(probes.items(), first):
        fact = Fact(
            name=f"probe-{number}",
            property=MARK,
            axes=(),
            term=rule.left,
            guards=rule.guards,
            properties=rule.properties,
            comparisons=rule.comparisons,
            definitions=rule.definitions,
            examples=(),
            source="",
            space=rule.space,
            position=rule.position,
        )
        try:
            one = compile_rule(fact, number)
        except EqsatError:
            continue
        text = one.text.replace(f"(is-{MARK} e)", f"(simplified {number} e)")
        triggers = tuple(replace(trigger, made=frozenset()) for trigger in one.triggers)
        yield name, replace(one, text=text, triggers=triggers)
