"""Checks that the functions in a rule exist and that each is used as functions of its kind are."""

from __future__ import annotations

import re
from collections.abc import Collection

from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.properties import PROPERTIES
from eqsat.language.diagnostics import Rejection, alternatives, counted, nearest
from eqsat.language.functions import (
    ARITIES,
    CALLED,
    CLASSES,
    ENTRIES,
    FOLDED,
    FOLDING,
    MONOIDS,
    PLACES,
    REDUCING,
    REDUCTIONS,
    SELECTIONS,
)
from eqsat.language.listed import called, functions_in
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    DeltaOf,
    Expression,
    FoldOf,
    IotaOf,
    OperationOf,
    Position,
    Reduction,
    RenameOf,
    Rule,
    SelectionOf,
)
from eqsat.language.traverse import function_name, is_set, operator_axes, walk
from eqsat.language.vocabulary import Vocabulary

LONGEST_VARIABLE = 3
"""An unknown function name that is longer is taken for a misspelt function, not for an undeclared variable.
"""


def check_functions(rule: Rule, text: str, vocabulary: Vocabulary) -> None:
    """Raises `Rejection` for functions that are unknown or that the rule uses wrongly.

    This covers function variables and their classes, numbers of operands, sets of axes where single
    axes must stand, and calls that are given chunks.
    """
    check_classes(rule, text)
    classes = dict(rule.classes)
    for side in (rule.left, rule.right):
        for node in walk(side):
            check_function(node, classes, vocabulary)
            check_single_axes(node, classes)
    check_calls(rule, classes)


def check_classes(rule: Rule, text: str) -> None:
    """Raises `Rejection` for function variables over unknown classes, and for those that are not matched."""
    matched = (rule.left, rule.right) if rule.both_ways else (rule.left,)
    seen: set[str] = set()
    for function, family in rule.classes:
        position = _position_of_class(rule, text, function, family)
        members = functions_in(family)
        if len(set(members)) < len(members):
            raise Rejection(position, "a function is listed twice", "leave one of them out")
        if not members and family not in CLASSES:
            hint = nearest(family, CLASSES) or f"the classes are {alternatives(CLASSES, 'and')}"
            if family in ELEMENTWISE or family in REDUCTIONS or family in OPERATIONS:
                hint = f"functions are listed in braces: `for {function} in {{{family}}}`"
            raise Rejection(position, f"there is no class `{family}`", hint)
        if function in seen:
            raise Rejection(
                position, f"`{function}` already ranges over a class", "write one class for each name"
            )
        if function in ELEMENTWISE or function in REDUCTIONS or function in OPERATIONS:
            hint = "call the function variable `f`, `g`..."
            raise Rejection(position, f"`{function}` is the name of a function", hint)
        for side in matched:
            if function not in map(function_name, walk(side)):
                where = "left" if side is rule.left else "right"
                message = f"the function `{function}` is not bound on the {where}"
                raise Rejection(
                    position, message, f"use it there, as in `{function}(a)` or `{function}[k] a`"
                )
        seen.add(function)


def _position_of_class(rule: Rule, text: str, function: str, family: str) -> Position:
    """Returns the position of `f in family`.

    The abstract syntax does not record it, so it is searched in the text.
    """
    lines = text.split("\n")
    for number in range(rule.position.line, len(lines) + 1):
        line = lines[number - 1].split("#")[0]
        wanted = re.escape(family) if functions_in(family) else rf"{family}\b"
        found = re.search(rf"\b{function}\s+in\s+{wanted}", line)
        if found:
            return Position(rule.position.file, number, found.start() + 1)
    return rule.position


def check_function(node: Expression, classes: dict[str, str], vocabulary: Vocabulary) -> None:
    """Raises `Rejection` if the function of a node is unknown, or not used as its class is."""
    name = function_name(node)
    if name is None:
        return
    family = classes.get(name, "")
    for member in functions_in(family):
        if isinstance(node, Apply) and node.variadic:
            hint = f"write each operand: `{name}(a)`, `{name}(a, b)`"
            raise Rejection(
                node.position, f"`..` is not allowed here: the functions of `{name}` are listed", hint
            )
        check_function(called(node, {name: member}), classes, vocabulary)
    match node:
        case _ if functions_in(family):
            pass
        case Apply() if not family:
            check_elementwise(node, vocabulary)
        case Apply() if family not in ARITIES:
            hint = f"reductions and selections are written `{name}[k] a`"
            raise Rejection(
                node.position, f"`{name}` ranges over {family}, so it is not written `{name}(a)`", hint
            )
        case Apply():
            arity = ARITIES[family]
            if arity is not None and not node.variadic and len(node.operands) != arity:
                message = f"functions in {family} take {counted(arity, 'operand')}, not {len(node.operands)}"
                form = ", ".join("abc"[:arity])
                raise Rejection(node.position, message, f"write `{name}({form})`")
        case Reduction() if not family and name not in (*REDUCTIONS, *PLACES):
            raise _unknown_brackets(node, vocabulary)
        case Reduction() if family and family not in REDUCING:
            hint = f"functions are written `{name}(a)`"
            raise Rejection(node.position, f"`{name}` ranges over {family}, so it cannot reduce", hint)
        case FoldOf():
            _check_fold(node, family, vocabulary)
        case OperationOf():
            _check_operation(node, vocabulary)


def check_elementwise(node: Apply, vocabulary: Vocabulary | None = None) -> None:
    """Raises `Rejection` if a node's function is not elementwise or has another number of operands."""
    name = node.function
    operations = vocabulary.operations if vocabulary else {}
    if name not in ELEMENTWISE:
        hint = nearest(name, ELEMENTWISE)
        if name in operations:
            hint = f"it is an operation, and names its axes: `{operations[name]}`"
        elif name in REDUCTIONS:
            hint = f"a reduction names its axes: `{name}[k] a`"
        elif name in ("diag", *ENTRIES):
            hint = f"it names its axes: `{name}[i, j] a`"
        elif name in PROPERTIES:
            hint = "it is a property: use it in a `where` clause, after the equation"
        elif name == "size":
            hint = "a length is of an axis, on the right side of a rule: `size(k)`"
        message = f"there is no elementwise function `{name}`"
        if len(name) > LONGEST_VARIABLE and not hint:
            hint = "functions are the elementwise primitives of JAX, such as `exp` or `log1p`"
        raise Rejection(node.position, message, hint or _declare(name, "elementwise"))
    arity = ELEMENTWISE[name].arity
    if not node.variadic and len(node.operands) != arity:
        message = f"`{name}` takes {counted(arity, 'operand')}, not {len(node.operands)}"
        raise Rejection(node.position, message, f"write `{name}({', '.join('abc'[:arity])})`")
    if name == "integer_pow" and node.exponent is None:
        raise Rejection(node.position, "`integer_pow` needs its exponent", "write `a^3`")


def _unknown_brackets(node: Reduction, vocabulary: Vocabulary) -> Rejection:
    """Returns the error about `name[k] a` where the name is neither a reduction nor an operation."""
    name = node.kind
    known = (*REDUCTIONS, *vocabulary.operations, *SELECTIONS, "diag", "delta", "dot")
    hint = nearest(name, known) or _declare(name, "reductions")
    if name in PROPERTIES:
        hint = "it is a property: use it in a `where` clause, after the equation"
    elif name in ELEMENTWISE:
        hint = f"it is an elementwise function: `{name}(a)`"
    elif name in vocabulary.monoids:
        hint = f"it is a monoid: use it as `fold[n, {name}](...)`"
    return Rejection(node.position, f"there is no reduction or operation `{name}`", hint)


def _declare(name: str, family: str) -> str:
    return f"if it is a variable, declare it: `for {name} in {family}`"


def _check_fold(node: FoldOf, family: str, vocabulary: Vocabulary) -> None:
    name = node.monoid
    declared = None if family else vocabulary.monoids.get(name)
    if not family and name in vocabulary.operations:
        _check_folded_operation(node)
        return
    if not family and name not in MONOIDS and declared is None:
        hint = nearest(name, (*MONOIDS, *vocabulary.monoids)) or _declare(name, "monoids")
        if name in REDUCTIONS:
            hint = f"partial results of {alternatives(MONOIDS)} can be combined, but not those of {name}"
        elif name in SELECTIONS:
            hint = f"use a function variable: `fold[{node.axis}, s] a  for s in selections`"
        raise Rejection(node.position, f"there is no monoid `{name}`", hint)
    if family == "calls":
        match node.operands:
            case (Apply(function=function),) if function == name:
                return
        hint = f"write `fold[{node.axis}, {name}] {name}(chunk[{node.axis}] a..)`"
        raise Rejection(node.position, f"a fold by the call `{name}` must be over `{name}` itself", hint)
    if family and family not in FOLDING:
        hint = f"let `{name}` range over {alternatives(sorted(FOLDING))}"
        raise Rejection(node.position, f"a fold can't combine with any of the {family}", hint)
    state = declared.state if declared else (name,)
    if len(node.operands) != len(state):
        message = f"`{name}` combines {counted(len(state), 'operand')}, not {len(node.operands)}"
        hint = f"write `fold[{node.axis}, {name}] a`"
        if declared:
            hint = f"write one for each part of its state: {alternatives(state, 'and')}"
        raise Rejection(node.position, message, hint)


def _check_folded_operation(node: FoldOf) -> None:
    name = node.monoid
    first, *rest = OPERATIONS[name].signature.axes if name in FOLDED else ("n",)
    if name not in FOLDED:
        hint = f"of the operations, only {alternatives(sorted(FOLDED))} are done chunk by chunk"
        raise Rejection(node.position, f"a fold can't combine with the operation `{name}`", hint)
    match node.operands:
        case (OperationOf(name=same, axes=(along, *_), operands=below),) if same == name:
            if along == node.axis and all(isinstance(o, ChunkOf) and o.axis == along for o in below):
                return
    hint = f"write `fold[{first}, {name}] {name}[{', '.join((first, *rest))}] chunk[{first}] a`"
    raise Rejection(node.position, f"a fold by `{name}` must be over `{name}` itself, of chunks", hint)


def _check_operation(node: OperationOf, vocabulary: Vocabulary) -> None:
    signature = vocabulary.operations.get(node.name)
    if signature is None:
        hint = nearest(node.name, vocabulary.operations)
        if node.name in REDUCTIONS or node.name in ("diag", *ENTRIES):
            hint = f"`{node.name}` takes one term"
        elif not hint:
            hint = f"if it is yours, declare it: `operation {node.name}[i, j](A: i j, b: i) -> j`"
        raise Rejection(node.position, f"there is no operation `{node.name}`", hint)
    for what, given, wanted in (
        ("axis", node.axes, signature.axes),
        ("operand", node.operands, signature.operands),
    ):
        if len(given) != len(wanted):
            message = f"`{node.name}` has {counted(len(wanted), what)}, not {len(given)}"
            raise Rejection(node.position, message, f"it is `{signature}`")


def check_single_axes(node: Expression, classes: dict[str, str]) -> None:
    """Raises `Rejection` if an operator over single axes has a set of axes, or the same axis twice.

    All operators but reductions and contractions are over single axes.
    """
    selects = isinstance(node, Reduction) and (node.kind in PLACES or classes.get(node.kind) == "selections")
    of_one = IotaOf | DeltaOf | ChunkOf | ConcatOf | FoldOf | RenameOf | OperationOf | SelectionOf
    if not selects and not isinstance(node, of_one):
        return
    axes = operator_axes(node)
    for axis in axes:
        if is_set(axis):
            hint = f"write single axes in lower case: `{axis.lower()}`"
            raise Rejection(node.position, f"`{axis}` is a set, but this operator takes single axes", hint)
        if axes.count(axis) > 1:
            hint = "give different axes different names: `rename[i->j] a` renames one"
            raise Rejection(node.position, f"`{axis}` stands for two axes here", hint)
    if selects and len(axes) > 1:
        raise Rejection(
            node.position, "a selection is along one axis", f"write `{function_name(node)}[{axes[0]}] a`"
        )


def check_calls(rule: Rule, classes: dict[str, str]) -> None:
    """Raises `Rejection` if a call on the right side gets a chunk along an axis that it may need whole.

    The call is allowed such chunks where a guard says that it passes, accumulates or sums along the
    axis, or where the left side already has the chunk.
    """
    passes = {guard.operands for guard in rule.guards if guard.name == "passes"}
    before = set(_chunked_calls(rule.left, classes))
    # A call that accumulates along an axis may be folded with itself over it; one that sums, with `sum`.
    folded = {
        (node.monoid, node.axis, operand)
        for node in walk(rule.right)
        if isinstance(node, FoldOf)
        for operand in node.operands
    }
    accumulates = {guard.operands for guard in rule.guards if guard.name == "accumulates"}
    summed = {guard.operands for guard in rule.guards if guard.name == "sums"}
    for call, chunk in _chunked_calls(rule.right, classes):
        along = (call.function, chunk.axis)
        if along in accumulates and (*along, call) in folded:
            continue
        if along in summed and ("sum", chunk.axis, call) in folded:
            continue
        if along not in passes and (call, chunk) not in before:
            message = f"`{call.function}` may need the axis `{chunk.axis}` whole"
            raise Rejection(chunk.position, message, f"add the guard `passes({call.function}, {chunk.axis})`")


def _chunked_calls(side: Expression, classes: dict[str, str]) -> list[tuple[Apply, ChunkOf]]:
    return [
        (node, operand)
        for node in walk(side)
        if isinstance(node, Apply) and classes.get(node.function) in CALLED
        for operand in node.operands
        if isinstance(operand, ChunkOf)
    ]


def reserved(name: str) -> str:
    """Returns what a name means in all rules, such as "a reduction", or "" for a name that is free."""
    kinds: list[tuple[str, Collection[str]]] = [
        ("a reduction", REDUCTIONS),
        ("an elementwise function", ELEMENTWISE),
        ("an operation", OPERATIONS),
    ]
    return next((kind for kind, names in kinds if name in names), "")
