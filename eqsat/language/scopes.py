"""Whether the axes of a rule are right: nothing escapes, nothing is captured, loops are closed.

We try the rule on *all* terms there are, one axis at a time: each variable has the axis or not, each set
of axes contains it or not. We throw away what the left side and the `where` clauses rule out, and compare
both sides in each world that is left. A rule that fails in one of them is wrong on real programs.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.language.diagnostics import Refusal
from eqsat.language.syntax import Expression, Rule
from eqsat.language.traverse import is_set, operator_axes, variables, walk
from eqsat.language.worlds import ANY, IllFormed, Shape, Unknown, World, worlds_of


@dataclass(frozen=True, slots=True)
class _Failure:
    """A world in which a rule is wrong, and how; the least obscure one is shown."""

    world: World
    refusal: Refusal
    obscurity: int


def check_scopes(rule: Rule) -> None:
    """Raises `Refusal` if the sides of a rule differ in their axes, for some terms that it matches.

    The names in the rule must be known to be bound.
    """
    worlds = list(worlds_of(rule))
    _check_direction(rule, rule.left, rule.right, worlds)
    if rule.both_ways:
        _check_direction(rule, rule.right, rule.left, worlds)


def _check_direction(rule: Rule, left: Expression, right: Expression, worlds: list[World]) -> None:
    failures: list[_Failure] = []
    good: list[World] = []
    reason: IllFormed | None = None
    matching: list[World] = []
    for world in worlds:
        try:
            before = world.shape(left, matching=True)
        except IllFormed as error:
            reason = error
            continue
        except Unknown:
            matching.append(world)  # for all we know
            continue
        matching.append(world)
        try:
            after = world.shape(right, matching=False)
        except IllFormed as error:
            failures.append(_Failure(world, Refusal(error.position, error.message), 1))
            continue
        except Unknown:
            continue
        difference = _difference(rule, world, before, after, right)
        if difference:
            # A name of the rule says more than "an axis of a".
            nameless = all(_label(world, axis) is None for axis in before.axes ^ after.axes)
            failures.append(_Failure(world, difference, 2 if before.axes != after.axes and nameless else 0))
        else:
            good.append(world)
    _check_not_vacuous(left, worlds, matching, reason)
    if failures:
        first = min(failures, key=lambda failure: failure.obscurity)
        first.refusal.hint = _missing_pattern(failures, good) or first.refusal.hint
        named = {name for name, axes in first.world.axes.items() if axes}
        if not first.refusal.hint and any(all(world.axes[name] for name in named) for world in good):
            first.refusal.hint = (
                "patterns on the left say which axes a variable has or lacks: `a{K}`, `b{!K}`"
            )
        raise first.refusal


def _check_not_vacuous(
    left: Expression, worlds: list[World], matching: list[World], reason: IllFormed | None
) -> None:
    """Each axis and set that an operator of the left is over can be something."""
    names = {name for node in walk(left) for name in operator_axes(node)}
    for name in sorted(names):
        possible = any(world.axes[name] for world in worlds)
        if reason and not any(world.axes[name] for world in matching) and possible:
            hint = "compare the patterns and the `where` clauses"
            raise Refusal(reason.position, f"this never matches: {reason.message}", hint)


def _label(world: World, axis: str) -> str | None:
    """What the rule calls an axis of a world: its own name, or a set that contains it."""
    if axis != ANY:
        return axis
    return next((name for name, axes in sorted(world.axes.items()) if axis in axes), None)


def _difference(rule: Rule, world: World, before: Shape, after: Shape, right: Expression) -> Refusal | None:
    """What the two sides differ in, in a world."""
    side, other = ("right", "left") if right is rule.right else ("left", "right")
    for axis in sorted(before.axes ^ after.axes):
        label = _label(world, axis)
        if label is None:
            lost = axis in before.axes
            having, lacking = (other, side) if lost else (side, other)
            holder = next(name for name, axes in sorted(world.terms.items()) if axis in axes)
            message = f"the {having} side has all axes of `{holder}`, the {lacking} side need not"
            return Refusal(right.position, message, "both sides of a rule have the same axes")
        what = f"an axis of `{label}`" if is_set(label) else f"the axis `{label}`"
        if axis in after.axes:
            holders = [variable for variable in variables(right) if axis in world.terms[variable.name]]
            position = (holders[0] if holders else right).position
            return Refusal(position, f"{what} is free on the {side} but not on the {other}")
        return Refusal(right.position, f"{what} is free on the {other} but not on the {side}")
    for axis in sorted(before.cut ^ after.cut | before.open ^ after.open):
        if axis in after.cut | after.open:
            hint = f"close it by `concat[{axis}]`, or by `fold[{axis}, sum]`"
            return Refusal(right.position, f"`chunk[{axis}]` is in no loop over `{axis}`", hint)
        return Refusal(right.position, f"the {other} side is a chunk along `{axis}`, the {side} is not")
    return None


def _missing_pattern(failures: list[_Failure], good: list[World]) -> str:
    """A pattern that would make the rule right: the one which keeps most of what is right already."""
    best, most = "", 0
    for term in sorted(failures[0].world.terms):
        for axis in sorted(failures[0].world.axes):
            for present in (False, True):

                def holds(world: World, term: str = term, axis: str = axis, present: bool = present) -> bool:
                    have, axes = world.terms[term], world.axes[axis]
                    return axes <= have if present else not axes & have

                kept = sum(holds(world) and bool(world.axes[axis]) for world in good)
                if kept > most and not any(holds(failure.world) for failure in failures):
                    what = f"{'has all axes' if present else 'has no axis'} of `{axis}`"
                    if not is_set(axis):
                        what = f"{'has' if present else 'lacks'} the axis `{axis}`"
                    pattern = f"`{term}{{{'' if present else '!'}{axis}}}`"
                    best, most = f"if `{term}` {what}, say so on the left: {pattern}", kept
    return best
