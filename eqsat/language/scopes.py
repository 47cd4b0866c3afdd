"""Whether the axes of a rule are right: nothing escapes, nothing is captured, loops are closed.

We try the rule on *all* terms there are, one axis at a time: each variable has the axis or not, each set
of axes contains it or not. We throw away what the left side and the `where` clauses rule out, and compare
both sides in each world that is left. A rule that fails in one of them is wrong on real programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.ir.operations import Signature
from eqsat.language.diagnostics import Refusal
from eqsat.language.shapes import Problem, Shape, Shaper
from eqsat.language.syntax import Expression, Rule, Variable
from eqsat.language.traverse import is_set, operator_axes, variables, walk
from eqsat.language.worlds import ANY, Worlds, common, different, somewhere, union, without, worlds_of

PATTERNS = "patterns on the left say which axes a variable has or lacks: `a{K}`, `b{!K}`"

SAME = "both sides of a rule have the same axes"

Operations = Mapping[str, Signature]


def check_scopes(rule: Rule, operations: Operations) -> None:
    """Raises `Refusal` if the sides of a rule differ in their axes, for some terms that it matches.

    The names in the rule must be known to be bound.
    """
    everything = list(worlds_of(rule))
    for left, right in [(rule.left, rule.right), (rule.right, rule.left)][: 1 + rule.both_ways]:
        trials = [_try(rule, left, right, operations, worlds) for worlds in everything]
        _check_not_vacuous(left, trials)
        failures = [failure for trial in trials for failure in _failures(rule, trial, right)]
        if failures:
            raise _refusal(min(failures, key=lambda failure: failure.rank), trials)


def check_property_axes(rule: Rule, axes: Sequence[str], operations: Operations) -> None:
    """Raises `Refusal` if what the left side matches may lack one of the `axes` of a property."""
    trials = [_try(rule, rule.left, rule.left, operations, worlds) for worlds in worlds_of(rule)]
    _check_not_vacuous(rule.left, trials)
    for trial in trials:
        for axis in axes:
            place = trial.worlds.place(axis)
            missing = 0 if place is None else trial.good & ~trial.before.axes[place]
            if missing:
                trial.failing, trial.good = missing, trial.good & ~missing
                message = f"the term may lack the axis `{axis}`, along which it would have the property"
                number = trial.worlds.smallest(missing)[1]
                hint = "a matrix property is of a term that has both axes in every case"
                refusal = Refusal(rule.left.position, message, hint)
                raise _refusal(_Failure((0,), trial.worlds.only(number), refusal), trials)


@dataclass(slots=True)
class _Trial:
    """How a direction of a rule fares in some worlds.

    **Attributes:**

    - `matched`: where the side that is matched makes sense, for all we know.
    - `reasons`: why it makes none elsewhere.
    - `before`, `after`: the shapes of the side that is matched, and of the new one.
    - `problems`: where the new one has no shape, and why.
    - `differing`: where the sides differ in axes or loops; `nameless`: in axes without a name, which
      says less to the reader.
    - `failing`, `good`: where the rule is wrong, and where it is right.
    """

    worlds: Worlds
    matched: int
    reasons: list[Problem]
    before: Shape
    after: Shape
    problems: list[Problem]
    differing: int
    nameless: int
    failing: int
    good: int


def _try(rule: Rule, left: Expression, right: Expression, operations: Operations, worlds: Worlds) -> _Trial:
    matching = Shaper(rule, operations, worlds, worlds.agreeing(rule), matching=True)
    before = matching.shape(left)
    matched = matching.good
    building = Shaper(rule, operations, worlds, matched, matching=False)
    after = building.shape(right)
    axes = somewhere(different(before.axes, after.axes))
    loops = somewhere(union(different(before.cut, after.cut), different(before.open, after.open)))
    named = somewhere(union(worlds.nothing, *worlds.axes.values()))
    differing = building.good & (axes | loops)
    good = building.good & ~differing
    return _Trial(
        worlds=worlds,
        matched=matched | matching.unknown,
        reasons=matching.problems,
        before=before,
        after=after,
        problems=building.problems,
        differing=differing,
        nameless=differing & axes & ~named,
        failing=matched & ~good & ~building.unknown,
        good=good,
    )


def _check_not_vacuous(left: Expression, trials: list[_Trial]) -> None:
    """Each axis and set that the left side names can be something."""
    for node in walk(left):
        for name in node.has if isinstance(node, Variable) else operator_axes(node):
            present = [(trial, somewhere(trial.worlds.axes[name])) for trial in trials]
            if any(trial.matched & worlds for trial, worlds in present):
                continue
            hint = "compare the patterns and the `where` clauses"
            for trial, worlds in present:
                for reason in trial.reasons:
                    if reason.worlds & worlds:
                        message = f"this never matches: {reason.message}"
                        raise Refusal(reason.position, message, reason.hint or hint)
            what = f"an axis of `{name}`" if is_set(name) else f"the axis `{name}`"
            raise Refusal(node.position, f"this never matches: there can't be {what}", hint)


@dataclass(frozen=True, slots=True)
class _Failure:
    """One world in which a rule is wrong, and how; that of the lowest rank is shown."""

    rank: tuple[int, ...]
    world: Worlds
    refusal: Refusal


def _failures(rule: Rule, trial: _Trial, right: Expression) -> list[_Failure]:
    """For each way in which a rule fails in a trial, the smallest world."""
    found: list[_Failure] = []
    for obscurity, where in ((0, trial.differing & ~trial.nameless), (2, trial.nameless)):
        if where:
            size, number = trial.worlds.smallest(where)
            world = trial.worlds.only(number)
            before, after = (_one(shape, number) for shape in (trial.before, trial.after))
            refusal = _difference(rule, world, before, after, right)
            found.append(_Failure((obscurity, size), world, refusal))
    for problem in trial.problems:
        size, number = trial.worlds.smallest(problem.worlds)
        refusal = Refusal(problem.position, problem.message, problem.hint)
        found.append(_Failure((1, size), trial.worlds.only(number), refusal))
    return found


def _one(shape: Shape, number: int) -> Shape:
    """The shape in the world of that number."""
    members = (shape.axes, shape.cut, shape.open)
    return Shape(*(tuple(worlds >> number & 1 for worlds in each) for each in members))


def _difference(rule: Rule, world: Worlds, before: Shape, after: Shape, right: Expression) -> Refusal:
    """What the two sides differ in, in a world."""
    side, other = ("right", "left") if right is rule.right else ("left", "right")
    had, have = world.named(before.axes), world.named(after.axes)
    for axis in sorted(had ^ have):
        label = _label(world, axis)
        if label is None:
            having, lacking = (other, side) if axis in had else (side, other)
            holders = [name for name, axes in sorted(world.terms.items()) if axis in world.named(axes)]
            what = f"all axes of `{holders[0]}`" if holders else "the axis of the best entries"
            message = f"the {having} side has {what}, the {lacking} side need not"
            return Refusal(right.position, message, SAME)
        what = f"an axis of `{label}`" if is_set(label) else f"the axis `{label}`"
        if axis in have:
            users = [one for one in variables(right) if axis in world.named(world.terms[one.name])]
            position = (users[0] if users else right).position
            return Refusal(position, f"{what} is free on the {side} but not on the {other}", SAME)
        return Refusal(right.position, f"{what} is free on the {other} but not on the {side}", SAME)
    loops = union(different(before.cut, after.cut), different(before.open, after.open))
    axis = min(world.named(loops))
    if axis in world.named(union(after.cut, after.open)):
        hint = f"close it by `concat[{axis}]`, or by `fold[{axis}, sum]`"
        return Refusal(right.position, f"`chunk[{axis}]` is in no loop over `{axis}`", hint)
    message = f"the {other} side is a chunk along `{axis}`, the {side} is not"
    return Refusal(right.position, message, f"take a chunk of each operand that may have `{axis}`")


def _label(world: Worlds, axis: str) -> str | None:
    """What the rule calls an axis of a world: its own name, or a set that contains it."""
    if axis != ANY:
        return axis
    return next((name for name, axes in sorted(world.axes.items()) if axis in world.named(axes)), None)


def _refusal(failure: _Failure, trials: list[_Trial]) -> Refusal:
    """What is said about a failure, with a hint at what would make the rule right."""
    refusal = failure.refusal
    here = [trial for trial in trials if trial.worlds.universe == failure.world.universe]
    refusal.hint = _missing_pattern(trials) or _missing_pattern(here) or refusal.hint
    named = [name for name, axes in failure.world.axes.items() if somewhere(axes)]
    if not refusal.hint and any(_worlds_with(trial, named) & trial.good for trial in trials):
        refusal.hint = PATTERNS
    refusal.hint = refusal.hint or "compare the axes of both sides"
    return refusal


def _worlds_with(trial: _Trial, names: list[str]) -> int:
    """The worlds in which all these names have axes."""
    found = trial.worlds.everywhere
    for name in names:
        found &= somewhere(trial.worlds.axes[name])
    return found


def _missing_pattern(trials: list[_Trial]) -> str:
    """A pattern that would make the rule right: the one which keeps most of what is right already."""
    best, most = "", 0
    for term in sorted(trials[0].worlds.terms):
        for axis in sorted(trials[0].worlds.axes):
            for present in (False, True):
                if any(trial.failing & _holds(trial, term, axis, present) for trial in trials):
                    continue
                kept = [trial.good & _holds(trial, term, axis, present) for trial in trials]
                named = [somewhere(trial.worlds.axes[axis]) for trial in trials]
                count = sum((a & b).bit_count() for a, b in zip(kept, named, strict=True))
                if count > most:
                    what = f"{'has all axes' if present else 'has no axis'} of `{axis}`"
                    if not is_set(axis):
                        what = f"{'has' if present else 'lacks'} the axis `{axis}`"
                    pattern = f"`{term}{{{'' if present else '!'}{axis}}}`"
                    best, most = f"if `{term}` {what}, say so on the left: {pattern}", count
    return best


def _holds(trial: _Trial, term: str, axis: str, present: bool) -> int:
    """The worlds in which a pattern of a variable holds."""
    have, axes = trial.worlds.terms[term], trial.worlds.axes[axis]
    return trial.worlds.everywhere & ~somewhere(without(axes, have) if present else common(axes, have))
