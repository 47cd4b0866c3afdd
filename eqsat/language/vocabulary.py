"""The operations and monoids that a file may name: its own, those of its includes, and those known before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from eqsat.ir.formula import Monoid
from eqsat.ir.operations import OPERATIONS, REGISTERED, Declared, OperationSpec, Signature
from eqsat.language.syntax import RuleFile


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Signatures of operations and declared monoids, each by name."""

    operations: Mapping[str, Signature]
    monoids: Mapping[str, Monoid]


def all_files(files: Iterable[RuleFile]) -> Iterator[RuleFile]:
    """Yields the files and everything that they include: each file once, after the files that it includes."""
    seen: set[str] = set()

    def visit(file: RuleFile) -> Iterator[RuleFile]:
        if file.file not in seen:
            seen.add(file.file)
            for included in file.includes:
                yield from visit(included)
            yield file

    for file in files:
        yield from visit(file)


def declared_operations(files: Iterable[RuleFile]) -> Declared:
    """Returns the operations that the files and their includes declare, without their functions."""
    declarations = (operation for file in all_files(files) for operation in file.operations)
    return {one.signature.name: OperationSpec(one.signature) for one in declarations}


def vocabulary_of(files: Iterable[RuleFile]) -> Vocabulary:
    """Returns the operations and monoids that can be named where these files are known.

    The built-in operations and the registered ones are always among them. If two operations have the same
    name, the first one counts; of two monoids, the last.
    """
    specs = {**OPERATIONS, **REGISTERED}
    operations = {name: spec.signature for name, spec in specs.items()}
    monoids: dict[str, Monoid] = {}
    for file in all_files(files):
        for operation in file.operations:
            operations.setdefault(operation.signature.name, operation.signature)
        monoids.update((declared.monoid.name, declared.monoid) for declared in file.monoids)
    return Vocabulary(operations, monoids)
