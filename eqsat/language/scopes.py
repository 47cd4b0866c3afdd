"""Whether the axes of a rule are right: nothing escapes, nothing is captured, loops are closed.

We try the rule on *all* terms there are, one axis at a time: each variable has the axis or not, each set
of axes contains it or not. We throw away what the left side and the `where` clauses rule out, and compare
both sides in each model that is left. A rule that fails in one of them is wrong on real programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.ir.operations import Signature
from eqsat.language.diagnostics import Rejection
from eqsat.language.membership_models import (
    ANY,
    MembershipModels,
    common,
    different,
    models_of,
    somewhere,
    union,
    without,
)
from eqsat.language.shapes import Shape, ShapeProblem, Shaper
from eqsat.language.syntax import Expression, Rule, Variable
from eqsat.language.traverse import is_set, operator_axes, variables, walk

PATTERNS = "patterns on the left say which axes a variable has or lacks: `a{K}`, `b{!K}`"

SAME = "both sides of a rule have the same axes"

Operations = Mapping[str, Signature]


def check_scopes(rule: Rule, operations: Operations) -> None:
    """Raises `Rejection` if the sides of a rule differ in their axes, for some terms that it matches.

    The names in the rule must be known to be bound.
    """
    everything = list(models_of(rule))
    for left, right in [(rule.left, rule.right), (rule.right, rule.left)][: 1 + rule.both_ways]:
        trials = [_try(rule, left, right, operations, models) for models in everything]
        _check_not_vacuous(left, trials)
        failures = [failure for trial in trials for failure in _failures(rule, trial, right)]
        if failures:
            raise _refusal(min(failures, key=lambda failure: failure.rank), trials)


def check_property_axes(rule: Rule, axes: Sequence[str], operations: Operations) -> None:
    """Raises `Rejection` if what the left side matches may lack one of the `axes` of a property."""
    trials = [_try(rule, rule.left, rule.left, operations, models) for models in models_of(rule)]
    _check_not_vacuous(rule.left, trials)
    for trial in trials:
        for axis in axes:
            place = trial.models.place(axis)
            missing = 0 if place is None else trial.good & ~trial.before.axes[place]
            if missing:
                trial.failing, trial.good = missing, trial.good & ~missing
                message = f"the term may lack the axis `{axis}`, along which it would have the property"
                number = trial.models.smallest(missing)[1]
                hint = "a matrix property is of a term that has both axes in every case"
                refusal = Rejection(rule.left.position, message, hint)
                raise _refusal(_Failure((0,), trial.models.only(number), refusal), trials)


@dataclass(slots=True)
class _Trial:
    """How a direction of a rule fares in some models.

    **Attributes:**

    - `matched`: where the side that is matched makes sense, for all we know.
    - `reasons`: why it makes none elsewhere.
    - `before`, `after`: the shapes of the side that is matched, and of the new one.
    - `problems`: where the new one has no shape, and why.
    - `differing`: where the sides differ in axes or loops; `nameless`: in axes without a name, which
      says less to the reader.
    - `failing`, `good`: where the rule is wrong, and where it is right.
    """

    models: MembershipModels
    matched: int
    reasons: list[ShapeProblem]
    before: Shape
    after: Shape
    problems: list[ShapeProblem]
    differing: int
    nameless: int
    failing: int
    good: int


def _try(
    rule: Rule, left: Expression, right: Expression, operations: Operations, models: MembershipModels
) -> _Trial:
    matching = Shaper(rule, operations, models, models.agreeing(rule), matching=True)
    before = matching.shape(left)
    matched = matching.good
    building = Shaper(rule, operations, models, matched, matching=False)
    after = building.shape(right)
    axes = somewhere(different(before.axes, after.axes))
    loops = somewhere(union(different(before.cut, after.cut), different(before.open, after.open)))
    named = somewhere(union(models.nothing, *models.axes.values()))
    differing = building.good & (axes | loops)
    good = building.good & ~differing
    return _Trial(
        models=models,
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
            present = [(trial, somewhere(trial.models.axes[name])) for trial in trials]
            if any(trial.matched & models for trial, models in present):
                continue
            hint = "compare the patterns and the `where` clauses"
            for trial, models in present:
                for reason in trial.reasons:
                    if reason.models & models:
                        message = f"this never matches: {reason.message}"
                        raise Rejection(reason.position, message, reason.hint or hint)
            what = f"an axis of `{name}`" if is_set(name) else f"the axis `{name}`"
            raise Rejection(node.position, f"this never matches: there can't be {what}", hint)


@dataclass(frozen=True, slots=True)
class _Failure:
    """One model in which a rule is wrong, and how; that of the lowest rank is shown."""

    rank: tuple[int, ...]
    model: MembershipModels
    refusal: Rejection


def _failures(rule: Rule, trial: _Trial, right: Expression) -> list[_Failure]:
    """For each way in which a rule fails in a trial, the smallest model."""
    found: list[_Failure] = []
    for obscurity, where in ((0, trial.differing & ~trial.nameless), (2, trial.nameless)):
        if where:
            size, number = trial.models.smallest(where)
            model = trial.models.only(number)
            before, after = (_one(shape, number) for shape in (trial.before, trial.after))
            refusal = _difference(rule, model, before, after, right)
            found.append(_Failure((obscurity, size), model, refusal))
    for problem in trial.problems:
        size, number = trial.models.smallest(problem.models)
        refusal = Rejection(problem.position, problem.message, problem.hint)
        found.append(_Failure((1, size), trial.models.only(number), refusal))
    return found


def _one(shape: Shape, number: int) -> Shape:
    """The shape in the model of that number."""
    members = (shape.axes, shape.cut, shape.open)
    return Shape(*(tuple(models >> number & 1 for models in each) for each in members))


def _difference(
    rule: Rule, model: MembershipModels, before: Shape, after: Shape, right: Expression
) -> Rejection:
    """What the two sides differ in, in a model."""
    side, other = ("right", "left") if right is rule.right else ("left", "right")
    had, have = model.named(before.axes), model.named(after.axes)
    for axis in sorted(had ^ have):
        label = _label(model, axis)
        if label is None:
            having, lacking = (other, side) if axis in had else (side, other)
            holders = [name for name, axes in sorted(model.terms.items()) if axis in model.named(axes)]
            what = f"all axes of `{holders[0]}`" if holders else "the axis of the best entries"
            message = f"the {having} side has {what}, the {lacking} side need not"
            return Rejection(right.position, message, SAME)
        what = f"an axis of `{label}`" if is_set(label) else f"the axis `{label}`"
        if axis in have:
            users = [one for one in variables(right) if axis in model.named(model.terms[one.name])]
            position = (users[0] if users else right).position
            return Rejection(position, f"{what} is free on the {side} but not on the {other}", SAME)
        return Rejection(right.position, f"{what} is free on the {other} but not on the {side}", SAME)
    loops = union(different(before.cut, after.cut), different(before.open, after.open))
    axis = min(model.named(loops))
    if axis in model.named(union(after.cut, after.open)):
        hint = f"close it by `concat[{axis}]`, or by `fold[{axis}, sum]`"
        return Rejection(right.position, f"`chunk[{axis}]` is in no loop over `{axis}`", hint)
    message = f"the {other} side is a chunk along `{axis}`, the {side} is not"
    return Rejection(right.position, message, f"take a chunk of each operand that may have `{axis}`")


def _label(model: MembershipModels, axis: str) -> str | None:
    """What the rule calls an axis of a model: its own name, or a set that contains it."""
    if axis != ANY:
        return axis
    return next((name for name, axes in sorted(model.axes.items()) if axis in model.named(axes)), None)


def _refusal(failure: _Failure, trials: list[_Trial]) -> Rejection:
    """What is said about a failure, with a hint at what would make the rule right."""
    refusal = failure.refusal
    here = [trial for trial in trials if trial.models.universe == failure.model.universe]
    refusal.hint = _missing_pattern(trials) or _missing_pattern(here) or refusal.hint
    named = [name for name, axes in failure.model.axes.items() if somewhere(axes)]
    if not refusal.hint and any(_worlds_with(trial, named) & trial.good for trial in trials):
        refusal.hint = PATTERNS
    refusal.hint = refusal.hint or "compare the axes of both sides"
    return refusal


def _worlds_with(trial: _Trial, names: list[str]) -> int:
    """The models in which all these names have axes."""
    found = trial.models.everywhere
    for name in names:
        found &= somewhere(trial.models.axes[name])
    return found


def _missing_pattern(trials: list[_Trial]) -> str:
    """A pattern that would make the rule right: the one which keeps most of what is right already."""
    best, most = "", 0
    for term in sorted(trials[0].models.terms):
        for axis in sorted(trials[0].models.axes):
            for present in (False, True):
                if any(trial.failing & _holds(trial, term, axis, present) for trial in trials):
                    continue
                kept = [trial.good & _holds(trial, term, axis, present) for trial in trials]
                named = [somewhere(trial.models.axes[axis]) for trial in trials]
                count = sum((a & b).bit_count() for a, b in zip(kept, named, strict=True))
                if count > most:
                    what = f"{'has all axes' if present else 'has no axis'} of `{axis}`"
                    if not is_set(axis):
                        what = f"{'has' if present else 'lacks'} the axis `{axis}`"
                    pattern = f"`{term}{{{'' if present else '!'}{axis}}}`"
                    best, most = f"if `{term}` {what}, say so on the left: {pattern}", count
    return best


def _holds(trial: _Trial, term: str, axis: str, present: bool) -> int:
    """The models in which a pattern of a variable holds."""
    have, axes = trial.models.terms[term], trial.models.axes[axis]
    return trial.models.everywhere & ~somewhere(without(axes, have) if present else common(axes, have))
