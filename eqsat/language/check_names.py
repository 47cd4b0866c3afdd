"""Checks that each name in a rule means one thing, and that the side that is matched binds it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from eqsat.language.check_functions import reserved
from eqsat.language.diagnostics import Rejection, alternatives, nearest
from eqsat.language.functions import REDUCED
from eqsat.language.syntax import (
    Apply,
    AxisDefinition,
    Comparison,
    ConstantValue,
    Contraction,
    CopyDefinition,
    Expression,
    LengthDefinition,
    Position,
    Quantity,
    Reduction,
    Rule,
    SizeOf,
    Variable,
)
from eqsat.language.traverse import function_name, is_set, operator_axes, parts, variables, walk, written


def check_names(rule: Rule, matched: str = "on the left") -> None:
    """Raises `Rejection` if a name in the rule is not bound, or has two meanings.

    `matched` says in messages where names must be bound: "on the left", or for a fact "in the
    term".
    """
    _check_patterns(rule)
    _check_kinds(rule)
    _check_definitions(rule)
    _check_copies(rule)
    _check_matched_sets(rule)
    _check_bound(rule, rule.left, rule.right, matched)
    _check_variadics(rule.left, rule.right)
    if rule.both_ways:
        _check_bound(rule, rule.right, rule.left, "on the right")
        _check_variadics(rule.right, rule.left)


def _check_patterns(rule: Rule) -> None:
    """Raises `Rejection` if a variable's patterns say both that it has an axis and that it lacks it.

    The patterns may stand at different occurrences of the variable.
    """
    said: dict[tuple[str, str], bool] = {}
    for variable in (*variables(rule.left), *variables(rule.right)):
        items = [(axis, True) for axis in variable.has] + [(axis, False) for axis in variable.lacks]
        for axis, present in items:
            if said.setdefault((variable.name, axis), present) != present:
                message = f"`{variable.name}` can't both have and lack `{axis}`"
                hint = "a variable stands for one term: its patterns hold wherever it occurs"
                raise Rejection(variable.position, message, hint)


def _check_kinds(rule: Rule) -> None:
    """Raises `Rejection` if a name is used for two of: a term, an axis, a function."""
    kinds: dict[str, str] = {function: "a function" for function, _ in rule.classes}
    for node in (*walk(rule.left), *walk(rule.right)):
        named = [(axis, "an axis") for axis in _axes_at(node)]
        if isinstance(node, Variable):
            meaning = reserved(node.name)
            if meaning:
                message = f"`{node.name}` is {meaning}, so it can't be a variable"
                raise Rejection(node.position, message, "call the variable something else")
            named.append((node.name, "a term"))
        for name, kind in named:
            if kinds.setdefault(name, kind) != kind:
                hint = "call one of them something else"
                raise Rejection(node.position, f"`{name}` is {kinds[name]} and {kind}", hint)


def _axes_at(node: Expression) -> tuple[str, ...]:
    return (*node.has, *node.lacks) if isinstance(node, Variable) else operator_axes(node)


def _check_definitions(rule: Rule) -> None:
    taken = {axis for node in walk(rule.left) for axis in operator_axes(node)}
    if rule.both_ways:
        # A name that only one side binds may need a definition for the other direction.
        taken &= {axis for node in walk(rule.right) for axis in operator_axes(node)}
    for definition in rule.definitions:
        if not is_set(definition.name):
            hint = f"write sets of axes in upper case: `{definition.name.upper()}`"
            raise Rejection(definition.position, f"`{definition.name}` is defined as a set of axes", hint)
        if definition.name in taken:
            hint = "choose another name"
            raise Rejection(definition.position, f"`{definition.name}` already has a meaning", hint)
        taken.add(definition.name)


def _check_copies(rule: Rule) -> None:
    used = {axis for node in (*walk(rule.left), *walk(rule.right)) for axis in _axes_at(node)}
    defined = {definition.name for definition in rule.definitions}
    matched = {axis for node in walk(rule.left) for axis in _axes_at(node)}
    for copy in rule.makers:
        original = (copy.original,) if isinstance(copy, CopyDefinition) else ()
        for name in (copy.name, *original):
            if is_set(name):
                what = "a copy is of one axis" if original else "this must be one axis"
                message = f"`{name}` is a set, but {what}"
                raise Rejection(copy.position, message, f"write single axes in lower case: `{name.lower()}`")
        if copy.name in matched or copy.name in defined:
            message = f"`{copy.name}` already has a meaning"
            what = "a copy" if original else "a new axis"
            raise Rejection(copy.position, message, f"{what} must be an axis that is not on the left")
        if copy.name not in used:
            raise Rejection(copy.position, f"`{copy.name}` is not used", "leave it out")
        if rule.both_ways:
            message = "a rule that makes an axis cannot rewrite both ways"
            raise Rejection(copy.position, message, "write `=>` to rewrite from left to right only")
        defined.add(copy.name)


def _check_matched_sets(rule: Rule) -> None:
    """Raises `Rejection` if an operator has the same axis name twice, or is to match several sets of axes.

    On a side that is matched, one name must stand for the whole set of axes of an operator.
    """
    for node in (*walk(rule.left), *walk(rule.right)):
        if isinstance(node, Reduction | Contraction):
            for number, name in enumerate(node.axes):
                if name in node.axes[:number]:
                    what = "set" if is_set(name) else "axis"
                    message = f"the {what} `{name}` occurs twice in `[{', '.join(node.axes)}]`"
                    raise Rejection(node.position, message, "leave one of them out, or name another one")
    for side in (rule.left, rule.right) if rule.both_ways else (rule.left,):
        for node in walk(side):
            if isinstance(node, Reduction | Contraction) and len(node.axes) > 1:
                names = ", ".join(node.axes)
                if not any(map(is_set, node.axes)):
                    continue  # single axes, one for each name
                message = f"`[{names}]` can't be matched: nothing says which axes are in which"
                whole = next(filter(is_set, node.axes))
                hint = f"match all of them by one name, `[{whole}]`, or single axes: `[j, k]`"
                if side is rule.right:
                    hint = "write `=>` to rewrite from left to right only"
                raise Rejection(node.position, message, hint)


@dataclass(frozen=True, slots=True)
class _Bound:
    """The names that one side of a rule binds, with the help of the `where` clauses.

    `where` names that side in messages. `compared` holds the comparisons `name = quantity`, by
    name.
    """

    terms: Set[str]
    axes: Set[str]
    functions: Set[str]
    where: str
    compared: Mapping[str, Comparison]

    def demand_term(self, name: str, position: Position) -> None:
        if name not in self.terms:
            message = f"the variable `{name}` is not bound {self.where}"
            hint = nearest(name, self.terms) or f"the variables are {_quoted(self.terms)}"
            if self.where == "on the right":
                hint = "`==` rewrites both ways; write `=>` to rewrite from left to right only"
            raise Rejection(position, message, hint)

    def demand_axis(self, name: str, position: Position) -> None:
        if name in self.axes:
            return
        if is_set(name):
            message = f"the set of axes `{name}` is not bound {self.where}"
            hint = f"define it: `where {name} = axes(a) - axes(b)`"
        else:
            message = f"the axis `{name}` is not bound {self.where}"
            hint = f"bind it by `where {name} in K`, or by a pattern {self.where}: `a{{{name}}}`"
            if name in self.compared:
                # `h = size(p) / 2` was read as a comparison with a constant h.
                comparison = self.compared[name]
                length = written(comparison.right)
                message = f"`{name} = {length}` does not make an axis `{name}`"
                sized = any(isinstance(part, SizeOf) for part in parts(comparison.right))
                hint = f"write `{name} = axis({length if sized else 'size(p) / 2'})`"
                raise Rejection(comparison.position, message, hint)
        raise Rejection(position, message, nearest(name, self.axes) or hint)


def _check_bound(rule: Rule, left: Expression, right: Expression, where: str) -> None:
    """Raises `Rejection` unless `left` binds all variables and axes that `right` and the conditions use."""
    bound = _bound_by(rule, left, where)
    for node in (*walk(left), *walk(right)):
        if isinstance(node, Variable):
            bound.demand_term(node.name, node.position)
        for axis in _axes_at(node):
            bound.demand_axis(axis, node.position)
    for definition in rule.definitions:
        for kind, name in (definition.first, *definition.less):
            demand = bound.demand_term if kind == "term" else bound.demand_axis
            demand(name, definition.position)
    for copy in rule.copies:
        bound.demand_axis(copy.original, copy.position)
    for new in rule.lengths:
        for part in parts(new.length):
            _check_quantity(part, bound)
    for known in rule.properties:
        bound.demand_term(known.term, known.position)
        for axis in known.axes:
            bound.demand_axis(axis, known.position)
    for comparison in rule.comparisons:
        for part in (*parts(comparison.left), *parts(comparison.right)):
            _check_quantity(part, bound)
    for guard in rule.guards:
        for name in guard.operands:
            names = bound.terms | bound.axes | bound.functions
            if name not in names:
                message = f"`{name}` is not bound {bound.where}"
                hint = nearest(name, names) or "conditions may only use names that are matched"
                raise Rejection(guard.position, message, hint)


def _quoted(names: Set[str]) -> str:
    return alternatives((f"`{name}`" for name in sorted(names)), "and")


def _check_quantity(quantity: Quantity, bound: _Bound) -> None:
    match quantity:
        case SizeOf(name=name, position=position):
            if name in bound.terms:
                hint = "write `size(k)` for one of its axes, or `size(K)` with `K = axes(a)` for all"
                raise Rejection(position, f"`{name}` is a term, but only axes have a size", hint)
            bound.demand_axis(name, position)
        case ConstantValue(name=name, position=position):
            if name in bound.axes:
                raise Rejection(position, f"`{name}` is not a number", f"its length is `size({name})`")
            bound.demand_term(name, position)


def _bound_by(rule: Rule, side: Expression, where: str) -> _Bound:
    terms: set[str] = set()
    axes: set[str] = set()
    for node in walk(side):
        axes.update(operator_axes(node))
        if isinstance(node, Variable):
            terms.add(node.name)
            # `a{n}` binds n, each axis of a in turn. `a{K}` does not say which axes of a are to be in K.
            axes.update(axis for axis in node.has if not is_set(axis))
    # A property of a term binds the axes that it is along.
    axes.update(axis for known in rule.properties if known.term in terms for axis in known.axes)
    # A membership or a definition may use names that others bind, in any order.
    count = -1
    while len(axes) > count:
        count = len(axes)
        for guard in rule.guards:
            if guard.name == "in" and not is_set(guard.operands[0]) and guard.operands[1] in axes | terms:
                axes.add(guard.operands[0])
            if guard.name in REDUCED:  # such a guard chooses the axis, each possible one in turn
                axes.add(guard.operands[1])
        for copy in rule.copies:
            if copy.original in axes:
                axes.add(copy.name)
        axes.update(new.name for new in rule.lengths if _sized(new) <= axes)
        for definition in rule.definitions:
            if _is_known(definition, terms, axes):
                axes.add(definition.name)
    functions = {function for function, _ in rule.classes}
    compared = {
        comparison.left.name: comparison
        for comparison in rule.comparisons
        if comparison.relation == "=" and isinstance(comparison.left, ConstantValue)
    }
    return _Bound(terms, axes, functions, where, compared)


def _sized(new: LengthDefinition) -> set[str]:
    """Returns the names of the axes that the length of a new axis is computed from."""
    return {part.name for part in parts(new.length) if isinstance(part, SizeOf)}


def _is_known(definition: AxisDefinition, terms: Set[str], axes: Set[str]) -> bool:
    """Returns whether all names that a definition uses are bound."""
    items = (definition.first, *definition.less)
    return all(name in (terms if kind == "term" else axes) for kind, name in items)


def _check_variadics(left: Expression, right: Expression) -> None:
    """Raises `Rejection` if the variable of `f(a..)` is used other than as all operands of f."""
    matched = _variadics(left)
    for node in walk(right):
        if isinstance(node, Apply) and node.variadic:
            names = [variable.name for variable in variables(node)]
            if len(names) != 1:
                message = "`..` must follow a term with one variable, which stands for all operands"
                raise Rejection(node.position, message, "write `f(a..)` or `f(chunk[n] a..)`")
            if matched.get(names[0]) != node.function:
                message = f"`{names[0]}` does not stand for the operands of `{node.function}`"
                raise Rejection(node.position, message, f"match them: `{node.function}({names[0]}..)`")
    inside = {
        variable.position
        for node in walk(right)
        if isinstance(node, Apply) and node.variadic
        for variable in variables(node)
    }
    for variable in variables(right):
        if variable.name in matched and variable.position not in inside:
            function = matched[variable.name]
            message = f"`{variable.name}` stands for all operands of `{function}`"
            raise Rejection(variable.position, message, f"use it as `{function}({variable.name}..)`")


def _variadics(side: Expression) -> dict[str, str | None]:
    """Returns the variables that stand for all operands of a function, each with that function."""
    return {
        variable.name: function_name(node)
        for node in walk(side)
        if isinstance(node, Apply) and node.variadic
        for variable in variables(node)
    }
