"""Refuses rules that parse but can't be sound rewrites.

Each check says what is wrong for sure, from the rule's text alone. What needs the values (that both
sides are the same number) or their types is not decided here but by `eqsat check`, which evaluates.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.errors import RuleError
from eqsat.language.check_functions import check_functions
from eqsat.language.check_names import check_names
from eqsat.language.diagnostics import Refusal, alternatives, diagnostic, nearest
from eqsat.language.functions import GUARDS
from eqsat.language.scopes import check_scopes
from eqsat.language.syntax import Contraction, Example, Guard, Reduction, Rule, RuleFile, Variable
from eqsat.language.traverse import canonical, is_set, variables, walk


def check_file(rule_file: RuleFile, known: Sequence[RuleFile] = ()) -> None:
    """Raises `RuleError` at the first rule of the file that is not a well-formed rewrite.

    >>> from eqsat.language.parse import parse_rules
    >>> check_file(parse_rules("rule pull-factor  sum[K] (c{!K} * a) => c * sum[K] a", "my.rules"))
    >>> check_file(parse_rules("rule pull-factor  sum[K] (c * a) => c * sum[K] a", "my.rules"))
    Traceback (most recent call last):
    eqsat.errors.RuleError: my.rules:1:37: an axis of `K` is free on the right but not on the left
      1 | rule pull-factor  sum[K] (c * a) => c * sum[K] a
        |                                     ^
      hint: if `c` has no axis of `K`, say so on the left: `c{!K}`
    """
    lines: dict[str, int] = {}
    for rule in rule_file.rules:
        try:
            if rule.name in lines:
                message = f"there is already a rule `{rule.name}`, in line {lines[rule.name]}"
                raise Refusal(rule.position, message, "the rules of one file have different names")
            lines[rule.name] = rule.position.line
            _check_rule(rule, rule_file.text)
        except Refusal as refusal:
            shown = diagnostic(rule_file.text, refusal.position, refusal.message, refusal.hint)
            raise RuleError(shown) from None


def _check_rule(rule: Rule, text: str) -> None:
    # Each check may rely on what those before it have made sure of.
    for guard in rule.guards:
        _check_guard(guard)
    check_functions(rule, text)
    check_names(rule)
    for guard in rule.guards:
        _check_guard_operands(guard, rule)
    for example in rule.examples:
        _check_example(example, rule)
    _check_progress(rule)
    _check_nonempty(rule)
    check_scopes(rule)


def _check_guard(guard: Guard) -> None:
    if guard.name not in GUARDS:
        hint = nearest(guard.name, GUARDS) or f"the guards are {alternatives(GUARDS, 'and')}"
        raise Refusal(guard.position, f"there is no guard `{guard.name}`", hint)
    kinds = GUARDS[guard.name]
    if len(kinds) != len(guard.operands):
        operands = "1 operand" if len(kinds) == 1 else f"{len(kinds)} operands"
        hint = f"it is `{guard.name}({', '.join(kinds)})`"
        raise Refusal(guard.position, f"`{guard.name}` takes {operands}, not {len(guard.operands)}", hint)


_ALLOWED = {"axes": ("axis", "set"), "axes or term": ("set", "term")}
"""The kinds of name that an operand may be, where they are several."""


def _check_guard_operands(guard: Guard, rule: Rule) -> None:
    for kind, name in zip(GUARDS[guard.name], guard.operands, strict=True):
        actual = _kind(name, rule)
        allowed = _ALLOWED.get(kind, (kind,))
        if actual not in allowed:
            wanted = alternatives(_with_article(word) for word in allowed)
            message = f"`{guard.name}` takes {wanted}, and `{name}` is {_with_article(actual)}"
            hint = f"declare it `for {name} in calls`" if kind == "call" and actual == "function" else ""
            raise Refusal(guard.position, message, hint)


def _kind(name: str, rule: Rule) -> str:
    classes = dict(rule.classes)
    if name in {variable.name for variable in variables(rule.left)}:
        return "term"
    if name in classes:
        return "call" if classes[name] == "calls" else "function"
    return "set" if is_set(name) else "axis"


def _with_article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _check_example(example: Example, rule: Rule) -> None:
    # Whether the axes fit the patterns is for the tests of the rule to see: they match it with them.
    needed = {variable.name for variable in variables(rule.left)}
    given = [term for term, _ in example.schemas]
    for term, axes in example.schemas:
        if term not in needed:
            raise Refusal(example.position, f"the left side has no variable `{term}`", nearest(term, needed))
        if given.count(term) > 1:
            raise Refusal(example.position, f"the axes of `{term}` are given twice")
        if len(set(axes)) < len(axes):
            raise Refusal(example.position, f"`{term}` has an axis twice")
        if any(is_set(axis) for axis in axes):
            raise Refusal(example.position, "an example has single axes, in lower case")
    missing = sorted(needed.difference(given))
    if missing:
        message = f"the example does not say which axes `{missing[0]}` has"
        raise Refusal(example.position, message, f"a scalar has none: `{missing[0]}:`")


def _check_progress(rule: Rule) -> None:
    """A rule changes something, and not everything matches it."""
    # Only what is the same for sure is refused. A right side that the left side matches again may well
    # be of use: each firing may go on from the last, as when `a * (b * c)` is turned to the left.
    if canonical(rule.left) == canonical(rule.right):
        hint = "matching tries both orders of what commutes (`+`, `*`, `max`, `min`, `dot`...) without a rule"
        raise Refusal(rule.position, f"the sides of `{rule.name}` are the same", hint)
    for side in (rule.left, rule.right) if rule.both_ways else (rule.left,):
        if isinstance(side, Variable) and not rule.guards:
            hint = "guard it: `where stored(a)`"
            if side is rule.right:
                hint = "write `=>` instead of `==`, or guard it: `where stored(a)`"
            raise Refusal(side.position, f"every term matches `{side.name}`", hint)


def _check_nonempty(rule: Rule) -> None:
    """The axes of a new reduction are not empty."""
    defined = {definition.name for definition in rule.definitions}
    sure = {guard.operands[0] for guard in rule.guards if guard.name == "nonempty"}
    sure |= {
        guard.operands[1] for guard in rule.guards if guard.name == "in" and not is_set(guard.operands[0])
    }
    for node in walk(rule.right):
        if isinstance(node, Reduction | Contraction) and defined - sure >= set(node.axes):
            name = node.axes[0]
            message = f"`{name}` may be empty, and a reduction is over at least one axis"
            raise Refusal(node.position, message, f"add the guard `nonempty({name})`")
