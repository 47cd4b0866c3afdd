"""Reads, checks and compiles rules files, the shipped ones and the user's, and binds their operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from os import fspath
from pathlib import Path

from eqsat.engine.compile import compile_rule
from eqsat.engine.compiled import CompiledRule
from eqsat.errors import RuleError
from eqsat.ir.operations import REGISTERED, definition_of, known_operation
from eqsat.language.accuracies import ACCURACIES, Accuracy
from eqsat.language.parse import load_rules, load_text, register_operations
from eqsat.language.position import Position
from eqsat.language.syntax import (
    Fact,
    OperationDeclaration,
    OperationOf,
    Rule,
    RuleFile,
)
from eqsat.language.traverse import walk
from eqsat.language.vocabulary import all_files
from eqsat.rules import FOR_TARGETS, shipped
from eqsat.rulesets.options import RulePath
from eqsat.storage.values import kept
from eqsat.support.serialisation import Codec, Special


def compiled_rules(
    paths: Sequence[RulePath], accuracy: Accuracy, precision: str, of_target: frozenset[str]
) -> tuple[CompiledRule, ...]:
    """Returns the rules and facts of the shipped files and of the user's, compiled for the engine.

    **Arguments:**

    - `paths`: the user's files.
    - `accuracy`: the last accuracy class, in the order of `ACCURACIES`, whose rules are used.
    - `precision`: the precision of the contractions that rules make out of sums; "" for JAX's
      default.
    - `of_target`: the files of `FOR_TARGETS` whose rules are used.

    **Raises:** `RuleError` if a file does not exist, or if something in it is wrong.
    """
    files = tuple(all_files([load_file(path) for path in paths]))
    check_operations(files)
    return _compiled(files, accuracy, precision, of_target)


def load_file(path: RulePath, imports: bool = True) -> RuleFile:
    """Reads a user's `.rules` file, which may use the declarations of the shipped ones.

    **Arguments:**

    - `imports`: whether to import the functions of the file's operations.

    **Raises:** `RuleError` if the file does not exist, or if something in it is wrong.
    """
    file = Path(fspath(path))
    if not file.is_file():
        raise RuleError(f"there is no rules file {str(file)!r}")
    found = load_rules(file, shipped_files())
    return _bound(found) if imports else found


def load_rules_from(text: str, name: str) -> RuleFile:
    """Reads rules from a text, which error messages call `name`.

    **Raises:** `RuleError` if something in the text is wrong.
    """
    return _bound(load_text(text, name, shipped_files()))


def _bound(loaded: RuleFile) -> RuleFile:
    """Binds the operations that a file and its includes declare to their functions, and returns the file."""
    for part in all_files([loaded]):
        for declaration in part.operations:
            _bind(declaration)
    return loaded


@cache
def shipped_files() -> tuple[RuleFile, ...]:
    """Returns the parsed and checked shipped `.rules` files."""
    paths = shipped()
    # Positions of rules contain the folder, so the name of the stored value must contain it too.
    name = f"rules of {paths[0].parent}"
    codec = Codec({Position: Special(str, Position.read)})
    files = kept(
        name, tuple[RuleFile, ...], lambda: tuple(all_files([load_rules(path) for path in paths])), codec
    )
    register_operations(files)
    return files


def _bind(declaration: OperationDeclaration) -> None:
    """Binds a declared operation to the function "module:name" of its declaration, if it has one.

    **Raises:** `RuleError` if there is no such function, or if the operation is bound to another
    one already.
    """
    spec = REGISTERED[declaration.signature.name]
    if not declaration.function:
        return
    where = f"{declaration.position}: operation {spec.name}"
    module, _, name = declaration.function.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RuleError(f"{where}: cannot import {declaration.function!r}: {error}") from error
    if not callable(function):
        raise RuleError(f"{where}: {declaration.function!r} is not a function")
    if spec.function is not None and definition_of(spec.function) != definition_of(function):
        raise RuleError(
            f"{where}: it is {definition_of(function)} here, but already {definition_of(spec.function)}, by"
            " `eqsat.operation` or another file; rename one of the two"
        )
    REGISTERED[spec.name] = replace(spec, function=function)


def check_operations(files: Iterable[RuleFile]) -> None:
    """Raises `RuleError` if a rule builds an operation that has no function."""
    for file in files:
        for rule in file.rules:
            for side in (rule.left, rule.right) if rule.both_ways else (rule.right,):
                for node in walk(side):
                    spec = known_operation(node.name) if isinstance(node, OperationOf) else None
                    if spec and not spec.text and spec.function is None:
                        raise RuleError(
                            f"{node.position}: the operation {spec.name} has no function to call; say which"
                            f' in its declaration, `operation {spec.signature} from "module:name"`, or'
                            " register one with eqsat.operation before this"
                        )


def _guarded(rule: Rule, allowed: Collection[Accuracy]) -> bool:
    """Returns whether a rule's guard promises one of the `allowed` classes."""
    return rule.data_guard is not None and rule.data_guard.accuracy in allowed


@lru_cache(maxsize=32)
def _compiled(
    extra: tuple[RuleFile, ...], accuracy: Accuracy, precision: str, of_target: frozenset[str]
) -> tuple[CompiledRule, ...]:
    allowed = ACCURACIES[: ACCURACIES.index(accuracy) + 1]
    chosen: list[Rule | Fact] = []
    left_out = {path for path in shipped() if path.stem in FOR_TARGETS - of_target}
    for file in all_files([*shipped_files(), *extra]):
        if Path(file.file) in left_out:
            continue
        chosen += [rule for rule in file.rules if rule.accuracy in allowed or _guarded(rule, allowed)]
        chosen += file.facts
    names = Counter(rule.name for rule in chosen)

    def compiled(rule: Rule | Fact, number: int) -> CompiledRule:
        guarded = isinstance(rule, Rule) and rule.accuracy not in allowed
        found = compile_rule(rule, number, precision, guarded)
        return found if names[rule.name] == 1 else replace(found, name=f"{rule.space}.{rule.name}")

    return tuple(compiled(rule, number) for number, rule in enumerate(chosen))
