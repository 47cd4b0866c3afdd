"""Checks the operations and monoids that a file declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.formula import Monoid
from eqsat.ir.operations import OPERATIONS
from eqsat.ir.properties import PROPERTIES
from eqsat.language.diagnostics import Rejection
from eqsat.language.functions import GUARDS, MONOIDS, REDUCTIONS, SELECTIONS
from eqsat.language.syntax import MonoidDeclaration, OperationDeclaration, RuleFile
from eqsat.language.traverse import is_set
from eqsat.language.vocabulary import Vocabulary, vocabulary_of


def refused_declarations(file: RuleFile, known: Sequence[RuleFile]) -> Iterator[Rejection]:
    """Yields what is wrong with each declaration: its name is taken, or its signature makes no sense."""
    before = vocabulary_of([*known, *file.includes])
    lines: dict[str, int] = {}
    for operation in file.operations:
        try:
            _check_operation(operation, before, lines)
        except Rejection as refusal:
            yield refusal
        lines.setdefault(operation.signature.name, operation.position.line)
    included = vocabulary_of(file.includes).monoids
    lines = {}
    for declared in file.monoids:
        try:
            _check_monoid(declared, included, lines)
        except Rejection as refusal:
            yield refusal
        lines.setdefault(declared.monoid.name, declared.position.line)


def _check_operation(operation: OperationDeclaration, before: Vocabulary, lines: Mapping[str, int]) -> None:
    """Raises `Rejection` if an operation's name is taken or its signature makes no sense.

    `before` holds what other files declare, and `lines` the lines of the file's earlier operations,
    by name.
    """
    signature, position = operation.signature, operation.position
    name = signature.name
    if name in lines:
        message = f"there is already an operation `{name}`, in line {lines[name]}"
        raise Rejection(position, message, "call one of them something else")
    if name in OPERATIONS:
        message = f"`{name}` is a built-in operation"
        raise Rejection(position, message, f"use it as it is: `{before.operations[name]}`")
    if name in before.operations and before.operations[name] != signature:
        message = f"there is already another operation `{name}`: `{before.operations[name]}`"
        raise Rejection(position, message, "call one of them something else")
    _check_name(operation)
    _check_signature(operation)


def _check_monoid(
    declared: MonoidDeclaration, included: Mapping[str, Monoid], lines: Mapping[str, int]
) -> None:
    name = declared.monoid.name
    if name in lines:
        message = f"there is already a monoid `{name}`, in line {lines[name]}"
        raise Rejection(declared.position, message, "call one of them something else")
    if name in MONOIDS or name in REDUCTIONS or name in SELECTIONS:
        message = f"`{name}` is a built-in reduction"
        raise Rejection(declared.position, message, "call the monoid something else")
    if included.get(name, declared.monoid) != declared.monoid:
        message = f"an included file declares another monoid `{name}`"
        raise Rejection(declared.position, message, "call one of them something else")


def _check_name(operation: OperationDeclaration) -> None:
    name = operation.signature.name
    for what, names in (
        ("a reduction", REDUCTIONS),
        ("a selection", SELECTIONS),
        ("an elementwise function", ELEMENTWISE),
        ("a property", PROPERTIES),
        ("a guard", GUARDS),
        ("a word of the language", ("diag", "axes", "size")),
    ):
        if name in names:
            raise Rejection(operation.position, f"`{name}` is {what}", "call the operation something else")


def _check_signature(operation: OperationDeclaration) -> None:
    signature, position = operation.signature, operation.position
    labels = [label for label, _ in signature.operands]
    for label in labels:
        if labels.count(label) > 1:
            raise Rejection(position, f"two operands are called `{label}`", "give them different names")
    lists = [("the brackets", signature.axes), ("the result", signature.result)]
    lists += [(f"the operand `{label}`", axes) for label, axes in signature.operands]
    for where, axes in lists:
        for axis in axes:
            if is_set(axis):
                hint = (
                    "an operation names single axes, in lower case; along all others it works slice by slice"
                )
                raise Rejection(position, f"`{axis}` is a set", hint)
            if axes.count(axis) > 1:
                raise Rejection(
                    position, f"`{axis}` occurs twice in {where}", "give different axes different names"
                )
            if axis not in signature.axes:
                hint = (
                    f"name all axes in the brackets: `{signature.name}[{', '.join([*signature.axes, axis])}]`"
                )
                raise Rejection(position, f"the axis `{axis}` of {where} is not in the brackets", hint)
    for axis in signature.axes:
        if not any(axis in axes for where, axes in lists if where != "the brackets"):
            message = f"neither an operand nor the result has the axis `{axis}`"
            raise Rejection(position, message, "add it to one of them, or leave it out")
