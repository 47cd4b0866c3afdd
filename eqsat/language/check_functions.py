"""Whether the functions of a rule exist and are used as what they are."""

from __future__ import annotations

import re
from collections.abc import Collection

from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.language.diagnostics import Refusal, alternatives, nearest
from eqsat.language.functions import (
    APPLIED,
    CLASSES,
    FOLDING,
    MONOIDS,
    REDUCING,
    REDUCTIONS,
    SELECTIONS,
)
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    Expression,
    FoldOf,
    IotaOf,
    Position,
    Reduction,
    RenameOf,
    Rule,
)
from eqsat.language.traverse import function_name, is_set, operator_axes, walk


def check_functions(rule: Rule, text: str) -> None:
    """Refuses unknown functions and classes, wrong numbers of operands, and sets for single axes."""
    check_classes(rule, text)
    classes = dict(rule.classes)
    for side in (rule.left, rule.right):
        for node in walk(side):
            check_function(node, classes, [name for name, _ in rule.monoids])
            check_single_axes(node, classes)
    check_calls(rule, classes)


def check_classes(rule: Rule, text: str) -> None:
    """Function variables range over classes that exist, and occur in what they are matched with."""
    matched = (rule.left, rule.right) if rule.both_ways else (rule.left,)
    seen: set[str] = set()
    for function, family in rule.classes:
        position = _position_of_class(rule, text, function, family)
        if family not in CLASSES:
            hint = f"the classes are {alternatives(CLASSES, 'and')}"
            raise Refusal(position, f"there is no class `{family}`", hint)
        if function in seen:
            raise Refusal(position, f"`{function}` already ranges over a class")
        if function in ELEMENTWISE or function in REDUCTIONS:
            hint = "call the function variable `f`, `g`..."
            raise Refusal(position, f"`{function}` is the name of a function", hint)
        for side in matched:
            if function not in map(function_name, walk(side)):
                where = "left" if side is rule.left else "right"
                raise Refusal(position, f"the function `{function}` is not bound on the {where}")
        seen.add(function)


def _position_of_class(rule: Rule, text: str, function: str, family: str) -> Position:
    """Where `f in family` stands: the abstract syntax doesn't say, so we look in the text."""
    lines = text.split("\n")
    for number in range(rule.position.line, len(lines) + 1):
        line = lines[number - 1].split("#")[0]
        found = re.search(rf"\b{function}\s+in\s+{family}\b", line)
        if found:
            return Position(rule.position.file, number, found.start() + 1)
    return rule.position


def check_function(node: Expression, classes: dict[str, str], declared: Collection[str]) -> None:
    """The function that a node names exists, and is used as the functions of its class are."""
    name = function_name(node)
    if name is None:
        return
    family = classes.get(name)
    match node:
        case Apply() if family is None:
            check_elementwise(node)
        case Apply() if family not in APPLIED:
            hint = f"reductions and selections are written `{name}[k] a`"
            raise Refusal(node.position, f"`{name}` ranges over {family}: it is no function", hint)
        case Reduction() if family is None and name not in REDUCTIONS:
            raise _unknown(node.position, "reduction", name, REDUCTIONS, "reductions")
        case Reduction() if family is not None and family not in REDUCING:
            hint = f"functions are written `{name}(a)`"
            raise Refusal(node.position, f"`{name}` ranges over {family}: it reduces nothing", hint)
        case FoldOf() if family is None and name not in (*MONOIDS, *declared):
            raise _unknown(node.position, "monoid", name, MONOIDS, "monoids")
        case FoldOf() if family is not None and family not in FOLDING:
            hint = f"let `{name}` range over {alternatives(sorted(FOLDING))}"
            raise Refusal(node.position, f"a fold can't combine with any of the {family}", hint)


def check_elementwise(node: Apply) -> None:
    name = node.function
    if name not in ELEMENTWISE:
        raise _unknown(node.position, "elementwise function", name, ELEMENTWISE, "elementwise")
    arity = ELEMENTWISE[name].arity
    if not node.variadic and len(node.operands) != arity:
        wanted = "1 operand" if arity == 1 else f"{arity} operands"
        raise Refusal(node.position, f"`{name}` takes {wanted}, not {len(node.operands)}")
    if name == "integer_pow" and node.exponent is None:
        raise Refusal(node.position, "`integer_pow` needs its exponent", "write `a^3`")


def _unknown(position: Position, what: str, name: str, known: Collection[str], family: str) -> Refusal:
    if name in SELECTIONS:
        hint = f"a selection is named by its class: `s[k] a  for s in selections`, not `{name}[k] a`"
    elif name in REDUCTIONS:
        hint = f"partial results of {alternatives(known)} can be combined, those of {name} can't"
    else:
        hint = nearest(name, known) or f"if it is a variable, declare it: `for {name} in {family}`"
    return Refusal(position, f"there is no {what} `{name}`", hint)


def check_single_axes(node: Expression, classes: dict[str, str]) -> None:
    """Loops, renamings and selections are over one axis, not over a set."""
    selects = isinstance(node, Reduction) and classes.get(node.kind) == "selections"
    if not selects and not isinstance(node, IotaOf | ChunkOf | ConcatOf | FoldOf | RenameOf):
        return
    axes = operator_axes(node)
    for axis in axes:
        if is_set(axis):
            hint = f"an axis is in lower case: `{axis.lower()}`"
            raise Refusal(node.position, f"`{axis}` is a set, and this is over one axis", hint)
    if selects and len(axes) > 1:
        raise Refusal(node.position, "a selection is along one axis")


def check_calls(rule: Rule, classes: dict[str, str]) -> None:
    """A call is only given chunks along axes that it treats independently."""
    passes = {guard.operands for guard in rule.guards if guard.name == "passes"}
    before = set(_chunked_calls(rule.left, classes))
    for call, chunk in _chunked_calls(rule.right, classes):
        if (call.function, chunk.axis) not in passes and (call, chunk) not in before:
            message = f"`{call.function}` may need the axis `{chunk.axis}` whole"
            raise Refusal(chunk.position, message, f"add the guard `passes({call.function}, {chunk.axis})`")


def _chunked_calls(side: Expression, classes: dict[str, str]) -> list[tuple[Apply, ChunkOf]]:
    return [
        (node, operand)
        for node in walk(side)
        if isinstance(node, Apply) and classes.get(node.function) == "calls"
        for operand in node.operands
        if isinstance(operand, ChunkOf)
    ]
