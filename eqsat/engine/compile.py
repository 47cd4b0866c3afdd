"""From checked rules to egglog rules.

One rule of the language becomes several of egglog's: one per direction, per order of commutative
operands, per number of operands of `f(a..)`, and per answer to "does this operand have the axis?"
where the right side takes a chunk or renames an axis of it (an operand without the axis is its own
chunk). `direction` writes each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from eqsat.engine.compiled import CompiledRule
from eqsat.engine.conditions import numbered_copies
from eqsat.engine.direction import Direction, Use
from eqsat.engine.encode import monoid_key
from eqsat.engine.rule_triggers import triggers
from eqsat.ir.elementwise import COMMUTATIVE
from eqsat.ir.operations import known_operation
from eqsat.language.listed import each_function
from eqsat.language.rewriting import bare, with_operands
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    Contraction,
    DeltaOf,
    Expression,
    Fact,
    FoldOf,
    IotaOf,
    Number,
    OperationOf,
    Reduction,
    RenameOf,
    Rule,
    SelectionOf,
    Variable,
)
from eqsat.language.traverse import is_set, operands, variables, walk


def orders(expression: Expression) -> Iterator[Expression]:
    """The expression with the operands of commutative functions in every order.

    Parts that are equal have one order: they match the same e-class.
    """
    found = list(dict.fromkeys(_commutative(expression)))
    for choice in product(*[(False, True)] * len(found)):
        swapped = {node for node, turned in zip(found, choice, strict=True) if turned}
        yield _ordered(expression, swapped)


def _commutative(expression: Expression) -> Iterator[Expression]:
    """The bare parts whose two operands may stand in either order, each after its operands."""
    for operand in operands(expression):
        yield from _commutative(operand)
    if isinstance(expression, Contraction) or (
        isinstance(expression, Apply) and expression.function in COMMUTATIVE and len(expression.operands) == 2
    ):
        first, second = operands(expression)
        if first != second:
            yield bare(expression)


def _ordered(expression: Expression, swapped: Collection[Expression]) -> Expression:
    """The expression with the operands of some bare parts swapped."""
    below = tuple(_ordered(operand, swapped) for operand in operands(expression))
    return with_operands(expression, below[::-1] if bare(expression) in swapped else below)


def expand(expression: Expression, variable: str, count: int) -> Expression:
    """`f(a..)` with `count` operands, where `a` stands for each of them."""
    match expression:
        case Apply(variadic=True):
            template = expression.operands[0]
            numbered = tuple(_numbered(template, variable, index) for index in range(count))
            return replace(expression, operands=numbered, variadic=False)
        case Number() | Variable() | IotaOf() | DeltaOf():
            return expression
        case Apply(operands=operands) | OperationOf(operands=operands) | FoldOf(operands=operands):
            return replace(expression, operands=tuple(expand(o, variable, count) for o in operands))
        case Contraction(left=left, right=right):
            return replace(
                expression, left=expand(left, variable, count), right=expand(right, variable, count)
            )
        case _:
            return replace(expression, operand=expand(expression.operand, variable, count))


def _numbered(expression: Expression, variable: str, index: int) -> Expression:
    match expression:
        case Variable(name=name) if name == variable:
            return replace(expression, name=f"{name}.{index}")
        case ChunkOf() | RenameOf():
            return replace(expression, operand=_numbered(expression.operand, variable, index))
        case _:
            return expression


def _variants(
    rule: Rule, left: Expression, right: Expression, number: int, precision: str, use: Use = ""
) -> Iterator[str]:
    variadic = [e for e in walk(left) if isinstance(e, Apply) and e.variadic]
    is_call = any(family in ("calls", "operations") for _, family in rule.classes)
    if variadic and not is_call:
        (variable,) = (e.name for e in walk(variadic[0]) if isinstance(e, Variable))
        pairs = [(expand(left, variable, count), expand(right, variable, count)) for count in (1, 2, 3)]
    else:
        pairs = [(left, right)]
    for one_left, one_right in pairs:
        for ordered in [one_left] if is_call else dict.fromkeys(orders(one_left)):
            uncertain = [
                e
                for e in walk(one_right)
                if isinstance(e, (ChunkOf, RenameOf)) and isinstance(e.operand, Variable) and not is_call
            ]
            uncertain = list(dict.fromkeys(uncertain))
            known = _known_axes(rule, one_left, one_right)
            for answers in product(*(_possible_answers(e, known) for e in uncertain)):
                # In the order of the rule: texts, and so plans, are the same in every process.
                present = [e for e, answer in zip(uncertain, answers, strict=True) if answer]
                absent = [e for e, answer in zip(uncertain, answers, strict=True) if not answer]
                has_axis = isinstance(left, RenameOf) or any(isinstance(e, ChunkOf) for e in uncertain)
                if uncertain and has_axis and not present:
                    continue  # what has the axis has it from an operand
                direction = Direction(rule, ordered, one_right, number, precision)
                yield from direction.compile(absent, present, use)


def _known_axes(rule: Rule, left: Expression, right: Expression) -> dict[tuple[str, str], bool]:
    """By variable and axis, whether it has the axis: by patterns, or since there is such a left side."""
    known: dict[tuple[str, str], bool] = {}
    for node in walk(left):
        present, absent = _needed_axes(node)
        for operand, axes, others in zip(operands(node), present, absent, strict=False):
            if isinstance(operand, Variable):
                known.update(((operand.name, axis), True) for axis in axes)
                known.update(((operand.name, axis), False) for axis in others)
    for variable in (*variables(left), *variables(right)):
        known.update(((variable.name, axis), True) for axis in variable.has)
        known.update(((variable.name, axis), False) for axis in variable.lacks)
    known.update(((given.term, axis), True) for given in rule.properties for axis in given.axes)
    return known


def _needed_axes(node: Expression) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """For each operand of a node, the axes that it must have, and those that it must not have."""
    match node:
        case Contraction(axes=axes):
            return [axes, axes], [(), ()]
        case Reduction(axes=axes):
            return [axes], [()]
        case RenameOf(old=old, new=new) | SelectionOf(axis=old, out_axis=new):
            return [(old,)], [(new,)]
        case ChunkOf(axis=axis) | ConcatOf(axis=axis):
            return [(axis,)], [()]
        case OperationOf(name=name, axes=axes):
            spec = known_operation(name)
            if spec is not None:
                names = dict(zip(spec.signature.axes, axes, strict=True))
                cores = [tuple(names[letter] for letter in core) for _, core in spec.signature.operands]
                return cores, [tuple(axis for axis in axes if axis not in core) for core in cores]
    return [], []


def _possible_answers(expression: Expression, known: Mapping[tuple[str, str], bool]) -> tuple[bool, ...]:
    """Whether the operand of a chunk or of a renaming, a variable, has the axis: what can be."""
    assert isinstance(expression, (ChunkOf, RenameOf))
    assert isinstance(expression.operand, Variable)
    axis = expression.axis if isinstance(expression, ChunkOf) else expression.old
    answer = known.get((expression.operand.name, axis))
    return (True, False) if answer is None else (answer,)


def compile_rule(rule: Rule | Fact, number: int, precision: str = "", guarded: bool = False) -> CompiledRule:
    """The egglog text of one rule, or of one fact.

    **Arguments:**

    - `number`: the rule's number among all rules of a run.
    - `precision`: of the contractions that a rule makes out of sums.
    - `guarded`: whether it is only to be used where its guard holds.
    """
    ruleset = f"rule-{number}"
    directions = _directions(rule)
    bodies: list[str] = []
    for said, left, right in directions:
        if isinstance(said, Fact):
            for ordered in dict.fromkeys(orders(left)):
                bodies += Direction(said, ordered, right, number, precision).compile_fact()
        else:
            bodies += _variants(said, left, right, number, precision, "granted" if guarded else "")
    guard = rule.data_guard if guarded and isinstance(rule, Rule) else None
    lines = []
    if guard is not None:
        assert isinstance(rule, Rule)
        columns = ["T" for _ in guard.guard.variables]
        columns += ["Axes" if is_set(name) else "i64" for name in guard.guard.axes]
        lines += [f"(relation {table}-{number} ({' '.join(columns)}))" for table in ("found", "granted")]
        found = [
            body
            for said, left, right in directions
            if isinstance(said, Rule)
            for body in _variants(said, left, right, number, precision, "found")
        ]
        lines += _ruleset(f"finding-{number}", f"{rule.name}.finding-{number}", found)
    lines += _ruleset(ruleset, f"{rule.name}.{number}", bodies)
    loops = (ChunkOf, ConcatOf, FoldOf)
    splits = any(isinstance(e, loops) for _, *sides in directions for side in sides for e in walk(side))
    return CompiledRule(
        name=rule.name,
        place=str(rule.position),
        number=number,
        ruleset=ruleset,
        text="\n".join(lines),
        precision=precision,
        splits=splits,
        accuracy="exact" if isinstance(rule, Fact) else (guard or rule).accuracy,
        renames=isinstance(rule, Rule) and isinstance(rule.left, RenameOf),
        copies=frozenset((copy.longer, which) for copy, which in numbered_copies(rule)),
        numbers=_numbers(rule),
        monoids={monoid_key(monoid): monoid for _, monoid in rule.monoids} if isinstance(rule, Rule) else {},
        triggers=tuple(triggers(said, left, right) for said, left, right in directions),
        guard=None if guard is None else guard.guard,
    )


def _directions(rule: Rule | Fact) -> list[tuple[Rule | Fact, Expression, Expression]]:
    """What is matched and what is made of it: for each direction, and each function that a rule lists."""
    if isinstance(rule, Fact):
        return [(rule, rule.term, rule.term)]
    found: list[tuple[Rule | Fact, Expression, Expression]] = []
    for one in each_function(rule):
        found.append((one, one.left, one.right))
        if one.both_ways:
            found.append((one, one.right, one.left))
    return found


def _ruleset(ruleset: str, name: str, bodies: Iterable[str]) -> Iterator[str]:
    """The commands that declare a ruleset."""
    yield f"(ruleset {ruleset})"
    for variant, body in enumerate(dict.fromkeys(bodies)):
        # To ask for sizes is no match yet.
        asks = "?" if "(need-size " in body else ""
        yield f'(rule {body} :ruleset {ruleset} :name "{name}.{variant}{asks}")'


def _numbers(rule: Rule | Fact) -> frozenset[float]:
    sides = (rule.left, rule.right) if isinstance(rule, Rule) else ()
    return frozenset(e.value for side in sides for e in walk(side) if isinstance(e, Number))
