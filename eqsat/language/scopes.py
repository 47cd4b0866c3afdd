"""Checks the axes of a rule: none escapes or is captured, and every chunk is in a loop.

The rule is tried on *all* terms, one axis at a time: each variable may have the axis or not, and
each set of axes may contain it or not. The models that the left side and the `where` clauses rule
out are dropped. In each of the others, both sides are compared. A rule that fails in one of them is
wrong on real programs.
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

SAME = "both sides of a rule must have the same axes"

Operations = Mapping[str, Signature]


def check_scopes(rule: Rule, operations: Operations) -> None:
    """Raises `Rejection` if the sides of a rule have different axes for some terms that it matches.

    All names in the rule must be bound (see `check_names`).
    """
    everything = list(models_of(rule))
    for left, right in [(rule.left, rule.right), (rule.right, rule.left)][: 1 + rule.both_ways]:
        trials = [_try(rule, left, right, operations, models) for models in everything]
        _check_not_vacuous(left, trials)
        failures = [failure for trial in trials for failure in _failures(rule, trial, right)]
        if failures:
            raise _refusal(min(failures, key=lambda failure: failure.rank), trials)


def check_property_axes(rule: Rule, axes: Sequence[str], operations: Operations) -> None:
    """Raises `Rejection` if a term that the left side matches may lack one of the `axes` of a property."""
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
                hint = "a term with a matrix property must have both axes in every case"
                refusal = Rejection(rule.left.position, message, hint)
                raise _refusal(_Failure((0,), trial.models.only(number), refusal), trials)


@dataclass(slots=True)
class _Trial:
    """The result of trying one direction of a rule in some models; each set of models is given as bits.

    **Attributes:**

    - `matched`: the models in which the matched side has a shape, or in which this cannot be
      decided.
    - `reasons`: why the matched side has no shape in the others.
    - `before`, `after`: the shapes of the matched side and of the new side.
    - `problems`: why the new side has no shape, and in which models.
    - `differing`: the models in which the sides differ in axes or loops.
    - `nameless`: those of them in which the sides differ in axes without a name, which make a less
      clear message.
    - `failing`, `good`: the models in which the rule is wrong, and those in which it is right.
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
    """Raises `Rejection` if some axis or set that the left side names can have no member in any match."""
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
            raise Rejection(node.position, f"this never matches: {what} cannot exist", hint)


@dataclass(frozen=True, slots=True)
class _Failure:
    """A model in which a rule is wrong, with the error; the failure of the lowest rank is reported."""

    rank: tuple[int, ...]
    model: MembershipModels
    refusal: Rejection


def _failures(rule: Rule, trial: _Trial, right: Expression) -> list[_Failure]:
    """Returns the ways in which a rule fails in a trial, each with the smallest model in which it does."""
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
    """Returns a shape in the model of that number."""
    members = (shape.axes, shape.cut, shape.open)
    return Shape(*(tuple(models >> number & 1 for models in each) for each in members))


def _difference(
    rule: Rule, model: MembershipModels, before: Shape, after: Shape, right: Expression
) -> Rejection:
    """Returns the error about the axes or loops in which the two sides differ in a model."""
    side, other = ("right", "left") if right is rule.right else ("left", "right")
    had, have = model.named(before.axes), model.named(after.axes)
    for axis in sorted(had ^ have):
        label = _label(model, axis)
        if label is None:
            having, lacking = (other, side) if axis in had else (side, other)
            holders = [name for name, axes in sorted(model.terms.items()) if axis in model.named(axes)]
            what = f"all axes of `{holders[0]}`" if holders else "the axis of the best entries"
            message = f"the {having} side has {what}, which the {lacking} side may lack"
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
        hint = f"put it inside `concat[{axis}]` or `fold[{axis}, sum]`"
        return Rejection(right.position, f"`chunk[{axis}]` is not inside a loop over `{axis}`", hint)
    message = f"the {other} side is a chunk along `{axis}`, but the {side} side is not"
    return Rejection(right.position, message, f"take a chunk of each operand that may have `{axis}`")


def _label(model: MembershipModels, axis: str) -> str | None:
    """Returns what the rule calls an axis of a model: its name, or a set that contains it, or None."""
    if axis != ANY:
        return axis
    return next((name for name, axes in sorted(model.axes.items()) if axis in model.named(axes)), None)


def _refusal(failure: _Failure, trials: list[_Trial]) -> Rejection:
    """Returns the error of a failure, with a hint at what would make the rule right."""
    refusal = failure.refusal
    here = [trial for trial in trials if trial.models.universe == failure.model.universe]
    refusal.hint = _missing_pattern(trials) or _missing_pattern(here) or refusal.hint
    named = [name for name, axes in failure.model.axes.items() if somewhere(axes)]
    if not refusal.hint and any(_worlds_with(trial, named) & trial.good for trial in trials):
        refusal.hint = PATTERNS
    refusal.hint = refusal.hint or "compare the axes of both sides"
    return refusal


def _worlds_with(trial: _Trial, names: list[str]) -> int:
    """Returns the models in which each of these names has a member."""
    found = trial.models.everywhere
    for name in names:
        found &= somewhere(trial.models.axes[name])
    return found


def _missing_pattern(trials: list[_Trial]) -> str:
    """Returns a hint at a pattern that would make the rule right, or "" if there is none.

    Of several such patterns, it suggests the one that keeps the most models in which the rule is
    right already.
    """
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
    """Returns the models in which a variable has all axes of a name (if `present`) or none of them."""
    have, axes = trial.models.terms[term], trial.models.axes[axis]
    return trial.models.everywhere & ~somewhere(without(axes, have) if present else common(axes, have))
