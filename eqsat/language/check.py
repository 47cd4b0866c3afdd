"""Rejects rules that parse but cannot be sound rewrites.

Each check decides from the rule's text alone, and reports only what is certainly wrong. Whether
both sides have equal values, and whether their types are right, is tested by `eqsat check`, which
evaluates rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import islice

from eqsat.language.check_clauses import (
    check_comparisons,
    check_conditions,
    check_examples,
    check_operands,
    check_property,
)
from eqsat.language.check_declarations import refused_declarations
from eqsat.language.check_examples import check_examples_possible
from eqsat.language.check_functions import check_functions
from eqsat.language.check_names import check_names
from eqsat.language.diagnostics import Problem, Rejection, raise_problems
from eqsat.language.duplicates import identities
from eqsat.language.limits import MOST_COMMUTING
from eqsat.language.scopes import check_property_axes, check_scopes
from eqsat.language.syntax import Contraction, Fact, Number, Reduction, Rule, RuleFile, Variable
from eqsat.language.traverse import canonical, commutes, function_name, is_set, operator_axes, walk
from eqsat.language.vocabulary import Vocabulary, all_files, vocabulary_of


def check_file(rule_file: RuleFile, known: Sequence[RuleFile] = ()) -> None:
    """Raises `RuleError` if a statement in the file, or in the files that it includes, cannot be right.

    >>> from eqsat.language.parse import parse_rules
    >>> check_file(parse_rules("rule pull-factor  sum[K] (c{!K} * a) => c * sum[K] a", "my.rules"))
    >>> check_file(parse_rules("rule pull-factor  sum[K] (c * a) => c * sum[K] a", "my.rules"))
    Traceback (most recent call last):
    eqsat.errors.RuleError: my.rules:1:37: an axis of `K` is free on the right but not on the left
      1 | rule pull-factor  sum[K] (c * a) => c * sum[K] a
        |                                     ^
      hint: if `c` has no axis of `K`, say so on the left: `c{!K}`

    **Arguments:**

    - `known`: other files whose operations and monoids the file may name.
    """
    raise_problems(list(problems_in(rule_file, known)))


def problems_in(
    rule_file: RuleFile,
    known: Sequence[RuleFile] = (),
    unread: Set[str] = frozenset(),
    partial: Set[str] = frozenset(),
) -> Iterator[Problem]:
    """Yields what is wrong in the file and in those that it includes: the first problem of each statement.

    **Arguments:**

    - `known`: other files whose operations and monoids the file may name.
    - `unread`: names of operations and monoids whose declarations are wrong. Statements that use
      them are not checked.
    - `partial`: names of files whose includes could not all be read. They are not checked.
    """
    for file in all_files([rule_file]):
        if file.file not in partial:
            for refusal in _refusals(file, known, unread):
                yield Problem(file.text, refusal, parsed=True)


def _refusals(file: RuleFile, known: Sequence[RuleFile], unread: Set[str]) -> Iterator[Rejection]:
    yield from refused_declarations(file, known)
    vocabulary = vocabulary_of([*known, file])
    statements: list[Rule | Fact] = [*file.rules, *file.facts]
    statements.sort(key=lambda statement: (statement.position.line, statement.position.column))
    named: dict[str, Rule | Fact] = {}
    said: dict[object, Rule] = {}
    for statement in statements:
        sides = (statement.left, statement.right) if isinstance(statement, Rule) else (statement.term,)
        if any(function_name(node) in unread for side in sides for node in walk(side)):
            continue
        try:
            _check_statement(statement, file.text, vocabulary, named, said)
        except Rejection as refusal:
            yield refusal


def _check_statement(
    statement: Rule | Fact,
    text: str,
    vocabulary: Vocabulary,
    named: dict[str, Rule | Fact],
    said: dict[object, Rule],
) -> None:
    """Raises `Rejection` if a statement is wrong, or if it repeats an earlier one.

    `named` holds the earlier statements by name, and `said` the earlier rules by their identities
    (see `duplicates`). The statement is added to both.
    """
    if statement.name in named:
        what = "rule" if isinstance(named[statement.name], Rule) else "fact"
        line = named[statement.name].position.line
        message = f"there is already a {what} `{statement.name}`, in line {line}"
        raise Rejection(statement.position, message, "the rules of one file must have different names")
    named[statement.name] = statement
    if isinstance(statement, Fact):
        _check_fact(statement, text, vocabulary)
        return
    _check_rule(statement, text, vocabulary)
    found = list(identities(statement))
    for identity in found:
        if identity in said:
            other = said[identity]
            message = (
                f"`{statement.name}` repeats the rewrite of `{other.name}` in line {other.position.line}"
            )
            raise Rejection(statement.position, message, "leave one of them out")
    said.update((identity, statement) for identity in found)


def _check_rule(rule: Rule, text: str, vocabulary: Vocabulary) -> None:
    # The order matters: each check relies on what the checks before it have established.
    check_conditions(rule)
    check_functions(rule, text, vocabulary)
    check_names(rule)
    check_operands(rule)
    check_comparisons(rule)
    check_examples(rule)
    _check_progress(rule)
    _check_nonempty(rule)
    check_scopes(rule, vocabulary.operations)
    check_examples_possible(rule, vocabulary.operations)
    _check_orders(rule)


def _check_fact(fact: Fact, text: str, vocabulary: Vocabulary) -> None:
    rule = fact.as_rule()
    check_property(fact.property, fact.axes, "...", fact.term.position)
    check_conditions(rule)
    check_functions(rule, text, vocabulary)
    check_names(rule, matched="in the term")
    check_operands(rule)
    check_comparisons(rule)
    check_examples(rule)
    bound = {axis for node in walk(fact.term) for axis in operator_axes(node)}
    bound |= {axis for node in walk(fact.term) if isinstance(node, Variable) for axis in node.has}
    bound |= {axis for known in fact.properties for axis in known.axes}
    for axis in fact.axes:
        if axis not in bound:
            message = f"nothing says that the term has the axis `{axis}`"
            raise Rejection(fact.term.position, message, f"say so by a pattern: `a{{{axis}}}`")
    if isinstance(fact.term, Variable):
        _check_variable_fact(fact, fact.term)
    check_property_axes(rule, fact.axes, vocabulary.operations)
    check_examples_possible(rule, vocabulary.operations)
    _check_orders(rule)


def _check_variable_fact(fact: Fact, term: Variable) -> None:
    if not (fact.properties or fact.guards or fact.comparisons):
        message = f"every term matches `{term.name}`"
        raise Rejection(
            term.position,
            message,
            "match a form, such as `exp(a)`, or add a condition, such as `where positive(a)`",
        )
    for known in fact.properties:
        if (known.name, known.axes, known.term) == (fact.property, fact.axes, term.name):
            raise Rejection(known.position, "the fact would only repeat this condition", "leave the fact out")


def _check_orders(rule: Rule) -> None:
    """Raises `Rejection` if a matched side has too many operators whose operands commute.

    Matching tries both orders of each, in all combinations.
    """
    for side in (rule.left, rule.right) if rule.both_ways else (rule.left,):
        nodes = (node for node in walk(side) if isinstance(node, Contraction) or commutes(node))
        surplus = next(islice(nodes, MOST_COMMUTING, None), None)
        if surplus is not None:
            message = f"this side has more than {MOST_COMMUTING} operators whose operands commute"
            hint = "each doubles the work of matching: put a variable in the place of a part"
            raise Rejection(surplus.position, message, hint)


def _check_progress(rule: Rule) -> None:
    """Raises `Rejection` if a rule changes nothing, or if too much matches it.

    A side that is matched must not be a number, nor a variable without conditions.
    """
    # Only sides that are certainly the same are rejected. A right side that the left side matches again
    # can be useful: each firing may continue the last, as when `a * (b * c)` is reassociated to the left.
    if canonical(rule.left) == canonical(rule.right):
        hint = "operands of `+`, `*`, `max`, `min`, `dot`... are matched in both orders without a rule"
        raise Rejection(rule.position, f"the sides of `{rule.name}` are the same", hint)
    for side in (rule.left, rule.right) if rule.both_ways else (rule.left,):
        if isinstance(side, Number):
            message = f"every {side.text} in a program matches this side"
            raise Rejection(side.position, message, "match the term that it is in, or write `=>`")
        conditions = (*rule.guards, *rule.properties, *rule.comparisons)
        if isinstance(side, Variable) and not conditions:
            hint = "add a condition: `where stored(a)`"
            if side is rule.right:
                hint = "write `=>` instead of `==`, or add a condition: `where stored(a)`"
            raise Rejection(side.position, f"every term matches `{side.name}`", hint)


def _check_nonempty(rule: Rule) -> None:
    """Raises `Rejection` if a reduction on the right side may be over an empty set of axes."""
    defined = {definition.name for definition in rule.definitions}
    sure = {guard.operands[0] for guard in rule.guards if guard.name == "nonempty"}
    sure |= {
        guard.operands[1] for guard in rule.guards if guard.name == "in" and not is_set(guard.operands[0])
    }
    for node in walk(rule.right):
        if isinstance(node, Reduction | Contraction) and defined - sure >= set(node.axes):
            name = node.axes[0]
            message = f"`{name}` may be empty, but a reduction needs at least one axis"
            raise Rejection(node.position, message, f"add the guard `nonempty({name})`")
