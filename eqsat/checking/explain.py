"""Explains a rule: its text, its source, an example before and after it in JAX, and what it saves."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from eqsat.backend.emit import emit
from eqsat.checking.building import IllFormed
from eqsat.checking.firing import fires_on, programs
from eqsat.checking.instance import Instance, Sides
from eqsat.checking.memberships import constant_names, variable_names
from eqsat.checking.report import indented
from eqsat.checking.sizes import SizeRules
from eqsat.engine.cost import CostModel
from eqsat.errors import RuleError
from eqsat.ir.ops import Concat, Const, Dot, Fold, Iota, Leaf, Operation, Rename
from eqsat.ir.program import Program
from eqsat.ir.term import Term
from eqsat.language.accuracies import MEANINGS
from eqsat.language.diagnostics import nearest
from eqsat.language.syntax import Fact, Rule, RuleFile
from eqsat.planning.blocks import Schedule
from eqsat.planning.liveness import predicted_seconds
from eqsat.planning.loops import build
from eqsat.targets.cpu import CPU

LENGTHS = ((1000, 2000, 3000, 500, 400, 300, 200), (30, 40, 50, 60, 20, 10), (10, 2000, 3000, 20, 1000, 30))
"""The lengths to choose from for the axes of a shown example, as in arrays of realistic size."""

CHOICES = 8
"""How many choices of lengths are compared."""

CHUNK = 128
"""The length of chunks in the programs that are shown."""

_STATEMENT = re.compile(r"\s*(rule|fact|monoid|operation|include)\b")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a program costs.

    **Attributes:**

    - `operations`: the number of floating-point operations.
    - `largest`: the size of the largest intermediate, in bytes.
    - `seconds`: the predicted time.
    """

    operations: float
    largest: int
    seconds: float


def explained(name: str, files: Sequence[RuleFile]) -> str:
    """Returns the explanation of a rule as text.

    **Arguments:**

    - `name`: the rule's name, alone or qualified by its file's: `contraction.pull-factor`.

    **Raises:** `RuleError` if there is no rule with that name, or more than one.
    """
    file, rule = found_rule(name, files)
    parts = [f"{rule.qualified}  ({rule.position.file}:{rule.position.line})", indented(_text(rule, file))]
    if rule.source:
        parts.append(f"Source: {rule.source}")
    parts.append(f"Accuracy [{rule.accuracy}]: {MEANINGS[rule.accuracy]}.")
    if rule.data_guard is not None:
        better = rule.data_guard.accuracy
        parts.append(f"Where its guard holds, it is [{better}]: {MEANINGS[better]}.")
    instance = _instance(rule)
    if instance is None:
        parts.append("No example of it can be shown.")
        return "\n\n".join(parts)
    lengths = ", ".join(f"{axis} = {length}" for axis, length in sorted(instance.lengths.items()))
    before, after = _programs(instance)
    names = [name for name in variable_names(instance.statement.rule) if name not in instance.constants]
    names += [f"mask_{number}" for number in range(len(before.inputs) - len(names))]
    chosen = ", ".join(f"{variable} = {function}" for variable, function in instance.statement.functions)
    parts.append(f"For example, with {lengths}{f' and {chosen}' if chosen else ''}, this")
    parts.append(indented(_source(before, names, "before")))
    parts.append("becomes" if not rule.both_ways else "becomes, or the other way round,")
    parts.append(indented(_source(after, names, "after")))
    parts.append(_effect(_cost(before), _cost(after)))
    return "\n\n".join(parts)


def found_rule(name: str, files: Sequence[RuleFile]) -> tuple[RuleFile, Rule]:
    found = [(file, rule) for file in files for rule in file.rules if name in (rule.name, rule.qualified)]
    found = list({rule.position: (file, rule) for file, rule in found}.values())
    if len(found) == 1:
        return found[0]
    if found:
        listed = " or ".join(rule.qualified for _, rule in found)
        raise RuleError(f"several rules are named {name!r}: write {listed}")
    facts: list[Fact] = [fact for file in files for fact in file.facts]
    if any(name in (fact.name, f"{fact.space}.{fact.name}") for fact in facts):
        raise RuleError(f"{name!r} is a fact, not a rule: it rewrites nothing")
    if any(declared.monoid.name == name for file in files for declared in file.monoids):
        folding = [rule.name for file in files for rule in file.rules if name in dict(rule.monoids)]
        listed = f": it is used by {', '.join(dict.fromkeys(folding))}" if folding else ""
        raise RuleError(f"{name!r} is a monoid, not a rule{listed}")
    known = [rule.name for file in files for rule in file.rules]
    advice = nearest(name.rpartition(".")[2], known)
    raise RuleError(f"there is no rule {name!r}" + (f": {advice}" if advice else ""))


def _text(rule: Rule, file: RuleFile) -> str:
    """Returns the rule as it is written in its file, with the comment above it."""
    lines = file.text.split("\n")
    first = rule.position.line - 1
    last = first + 1
    while last < len(lines) and not _STATEMENT.match(lines[last]):
        last += 1
    while not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#"):
        last -= 1
    while first and lines[first - 1].startswith("#") and "-----" not in lines[first - 1]:
        first -= 1
    return "\n".join(lines[first:last])


def _instance(rule: Rule) -> Instance | None:
    """Returns an instance on which the rule fires, with axes of realistic lengths, or None.

    Of several choices of lengths, it is the one with the largest gain.
    """
    found: list[Instance] = []
    for example in rule.examples:
        if example.fires and not found:
            fired = [
                loaded.instance
                for loaded in programs(rule, example)
                if fires_on(rule, loaded) and _is_one(loaded.instance)
            ]
            # A result with more axes makes a clearer example.
            fired.sort(key=lambda instance: -len(instance.sides.left.axes))
            for instance in fired[:1]:
                grown = (_grown(instance, seed) for seed in range(CHOICES))
                found += [one for one in grown if one is not None]
    return max(found, key=_gain, default=None)


def _is_one(instance: Instance) -> bool:
    """Returns whether both sides of an instance are well-formed.

    They may not be: an example doesn't name the sets of axes, so the engine may match with other ones.
    """
    try:
        return bool(instance.sides.program)
    except IllFormed:
        return False


def _gain(instance: Instance) -> float:
    """Returns how much the rule saves: the ratio of times, times the square root of that of memory."""
    before, after = map(_cost, _programs(instance))
    smaller: float = (before.largest + 1) / (after.largest + 1)
    return before.seconds / max(after.seconds, 1e-9) * math.sqrt(smaller)


def _programs(instance: Instance) -> list[Program]:
    """Returns the left side and the right side as programs."""
    program = instance.sides.program
    return [replace(program, outputs=(output,)) for output in program.outputs]


def _grown(instance: Instance, seed: int) -> Instance | None:
    """Returns the instance with longer axes, or None if none fit. Only its constants have real values."""
    axes = tuple(sorted(instance.placement.columns))
    names = tuple(constant_names(instance.statement.rule))
    sizes = SizeRules(instance.statement, axes).draw(
        random.Random(seed), instance.placement, names=names, lengths_of=LENGTHS, most=float("inf")
    )
    if sizes is None:
        return None
    # A length may be no number of a narrow dtype.
    kinds = instance.kinds
    wide = {kinds.variable_classes[name]: "int32" for name, kind in kinds.variables.items() if kind == "i"}
    for chosen in ({}, wide):
        dtypes = replace(instance.dtypes, chosen={**instance.dtypes.chosen, **chosen})
        values = {}
        for name, value in instance.values.items():
            shape = tuple(sizes.lengths[axis] for axis in instance.axes_of(name))
            number = np.asarray(sizes.constants.get(name, 0.0))
            dtype = chosen.get(kinds.variable_classes.get(name, -1), value.dtype)
            values[name] = np.broadcast_to(number.astype(dtype), shape)
        grown = replace(instance, dtypes=dtypes, lengths=sizes.lengths, values=values)
        try:
            Sides(grown)
        except IllFormed:
            continue
        return grown
    return None


def _schedule(program: Program) -> Schedule:
    block = build(program)
    return Schedule(program, block, {loop.id: min(CHUNK, loop.axis.size) for loop in block.loops})


def _source(program: Program, names: Sequence[str], function: str) -> str:
    """Returns a program as the source of a JAX function, without imports."""
    source = emit(_schedule(program), names).source
    start = source.index("def ")
    return source[start:].replace("def optimized(", f"def {function}(").rstrip()


def _cost(program: Program) -> Cost:
    schedule = _schedule(program)
    terms = list(program.reachable())
    lengths = {term.op.axis: CHUNK for term in terms if isinstance(term.op, Concat | Fold)}
    model = CostModel(CPU, lengths)
    results = {output.term for output in program.outputs}
    inner = [term for term in terms if term not in results and not isinstance(term.op, Leaf | Const | Iota)]
    return Cost(
        sum(_operations(term, model) for term in terms),
        max((model.bytes(term) for term in inner if not isinstance(term.op, Rename)), default=0),
        predicted_seconds(schedule.block, CostModel(CPU, {}), schedule.chunks),
    )


def _operations(term: Term, model: CostModel) -> float:
    """Returns the number of floating-point operations of a term. An elementwise function counts as one."""
    operands = term.args
    iterations = model.trips(model.loops(term.op, term, operands))
    opened = term.open.union(*(arg.open for arg in term.args))
    match term.op:
        case Leaf() | Const() | Iota() | Rename() | Concat():
            return 0.0
        case Dot():
            return 2.0 * iterations * model.elements(term.args[0].axes | term.args[1].axes, opened)
        case Operation() as op:
            return iterations * model.operation(op, term, operands)
        case _:
            axes = term.axes.union(*(arg.axes for arg in term.args))
            return float(iterations * model.elements(axes, opened)) if term.args else 0.0


def _effect(before: Cost, after: Cost) -> str:
    rows = [
        ("", "before", "after"),
        ("operations", _short(before.operations), _short(after.operations)),
        ("largest intermediate", f"{_short(before.largest)}B", f"{_short(after.largest)}B"),
        ("predicted time", _seconds(before.seconds), _seconds(after.seconds)),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _short(number: float) -> str:
    """Returns a number with three digits and a unit prefix.

    >>> _short(12_345_678), _short(12)
    ('12.3 M', '12 ')
    """
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {prefix}"
    return f"{number:.3g} "


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
