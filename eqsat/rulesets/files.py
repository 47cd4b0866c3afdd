"""Reads, checks and compiles rules files, the shipped ones and the user's, and binds their operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from os import fspath
from pathlib import Path
from typing import Any, NoReturn, cast

from eqsat.engine.compile import compile_rule
from eqsat.engine.compiled import CompiledRule
from eqsat.errors import RuleError
from eqsat.ir.operations import (
    REGISTERED,
    UNDECLARED,
    OperationSpec,
    Signature,
    definition_of,
    known_operation,
    operations_in_scope,
)
from eqsat.language.accuracies import ACCURACIES, Accuracy
from eqsat.language.parse import load_rules, load_text, parse_rules
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
    operations = bound_operations(files)
    with operations_in_scope(lambda: operations):
        check_operations(files)
        known = {**operations, **REGISTERED}
        signatures = frozenset(spec.signature for spec in known.values())
        return _compiled(files, signatures, accuracy, precision, of_target)


def load_file(path: RulePath) -> RuleFile:
    """Reads a user's `.rules` file, which may use the declarations of the shipped ones.

    **Raises:** `RuleError` if the file does not exist, or if something in it is wrong.
    """
    file = Path(fspath(path))
    if not file.is_file():
        raise RuleError(f"there is no rules file {str(file)!r}")
    return load_rules(file, shipped_files())


def load_rules_from(text: str, name: str) -> RuleFile:
    """Reads rules from a text, which error messages call `name`.

    **Raises:** `RuleError` if something in the text is wrong.
    """
    return load_text(text, name, shipped_files())


@cache
def shipped_files() -> tuple[RuleFile, ...]:
    """Returns the parsed shipped `.rules` files. Tests check them, so this does not, which takes as long."""
    paths = shipped()
    # Positions of rules contain the folder, so the name of the stored value must contain it too.
    name = f"rules of {paths[0].parent}"
    codec = Codec({Position: Special(str, Position.read)})

    def parsed() -> tuple[RuleFile, ...]:
        return tuple(all_files([parse_rules(path.read_text("utf-8"), str(path)) for path in paths]))

    return kept(name, tuple[RuleFile, ...], parsed, codec)


def bound_operations(files: Iterable[RuleFile], imports: bool = True) -> dict[str, OperationSpec]:
    """Returns the operations that files in use together and their includes declare, bound to their functions.

    **Arguments:**

    - `imports`: whether to import the functions of the operations.

    **Raises:** `RuleError` if there is no function of a name, or if a name is declared or registered as two
    operations.
    """
    found: dict[str, tuple[OperationDeclaration, Callable[..., Any] | None]] = {}
    for declaration in (one for file in all_files(files) for one in file.operations):
        name = declaration.signature.name
        function = _imported(declaration) if imports and declaration.function else None
        first, known = found.get(name, (declaration, function))
        place = f"in {first.position}"
        if first.signature != declaration.signature:
            _refuse(declaration, str(declaration.signature), str(first.signature), place)
        # Without imports, the names of the functions have to do.
        same = first.function == declaration.function or (known is not None and known is function)
        if first.function and declaration.function and not same:
            _refuse(declaration, declaration.function, first.function, place)
        _check_registered(declaration, function)
        found[name] = (first, known) if first.function else (declaration, function)
    return {
        name: OperationSpec(declaration.signature, function=function)
        for name, (declaration, function) in found.items()
    }


def _imported(declaration: OperationDeclaration) -> Callable[..., Any]:
    """Returns the function "module:name" of a declaration.

    **Raises:** `RuleError` if there is no such function.
    """
    where = f"{declaration.position}: operation {declaration.signature.name}"
    module, _, name = declaration.function.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RuleError(f"{where}: cannot import {declaration.function!r}: {error}") from error
    if not callable(function):
        raise RuleError(f"{where}: {declaration.function!r} is not a function")
    return cast("Callable[..., Any]", function)


def _check_registered(declaration: OperationDeclaration, function: Callable[..., Any] | None) -> None:
    """Raises `RuleError` if `eqsat.operation` has registered another operation of a declaration's name."""
    name = declaration.signature.name
    registered = REGISTERED.get(name)
    if registered is not None and registered.signature != declaration.signature:
        _refuse(declaration, str(declaration.signature), str(registered.signature), "by `eqsat.operation`")
    known = registered.function if registered else UNDECLARED.get(name)
    if known is not None and function is not None and definition_of(known) != definition_of(function):
        _refuse(declaration, definition_of(function), definition_of(known), "by `eqsat.operation`")


def _refuse(declaration: OperationDeclaration, here: str, there: str, place: str) -> NoReturn:
    """Refuses a declaration because its name means something else elsewhere."""
    where = f"{declaration.position}: operation {declaration.signature.name}"
    raise RuleError(f"{where}: it is {here} here, but already {there} {place}; rename one of the two")


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
    extra: tuple[RuleFile, ...],
    signatures: frozenset[Signature],
    accuracy: Accuracy,
    precision: str,
    of_target: frozenset[str],
) -> tuple[CompiledRule, ...]:
    """Returns the rules, compiled while the operations of these `signatures` are known."""
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
