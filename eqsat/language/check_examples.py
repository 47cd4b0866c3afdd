"""Checks that the examples of a rule are possible: its left side can match terms with the given axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from eqsat.ir.operations import Signature
from eqsat.language.diagnostics import Rejection
from eqsat.language.membership_models import ANY, MembershipModels, models_of, somewhere
from eqsat.language.shapes import Shaper
from eqsat.language.syntax import Contraction, Example, Reduction, Rule
from eqsat.language.traverse import is_set, walk

Schemas = Mapping[str, Sequence[str]]
"""The axes that an example gives each variable."""

Labels = tuple[str | None, ...]
"""The axis of the example that each axis name of a universe stands for; None if no variable has the axis."""


def check_examples_possible(rule: Rule, operations: Mapping[str, Signature]) -> None:
    """Raises `Rejection` for an `example` that the left side cannot match, or a `reject` that is no term.

    A `reject` may break patterns and conditions, since that is often its purpose. But there must be
    a left side with the axes that it gives: for instance, the operands of its sums must have the
    axes that are summed.
    """
    for fires in (True, False):
        chosen = [example for example in rule.examples if example.fires == fires]
        if chosen:
            matches = [_match(rule, operations, models, fires) for models in models_of(rule, fires)]
            for example in chosen:
                _check_example(rule, example, matches)


@dataclass(frozen=True, slots=True)
class _Match:
    """Some models, and those of them that are `good`, in which the left side of a rule has a shape.

    For an `example`, the rule's patterns and conditions must hold in them as well.
    """

    models: MembershipModels
    good: int

    def having(self, schemas: Schemas, labels: Labels) -> int:
        """Returns the good models, as bits, in which each variable has the axes that the example gives it.

        It must have all of them and no others; only axes of the universe count, and `labels` says
        which axes of the example they are.
        """
        found = self.good
        for term, axes in schemas.items():
            for label, members in zip(labels, self.models.terms[term], strict=True):
                found &= members if label in axes else ~members
        return found


def _match(rule: Rule, operations: Mapping[str, Signature], models: MembershipModels, fires: bool) -> _Match:
    good = models.agreeing(rule) if fires else models.everywhere
    shaper = Shaper(rule, operations, models, good, matching=True)
    shaper.shape(rule.left)
    return _Match(models, shaper.good | shaper.unknown)


def _check_example(rule: Rule, example: Example, matches: list[_Match]) -> None:
    schemas = dict(example.schemas)
    axes = sorted({axis for schema in schemas.values() for axis in schema})
    nameless = {axis for axis in axes if _possible(matches, (ANY,), schemas, (axis,))}
    groups = sorted({match.models.universe for match in matches} - {(ANY,)})
    choices = {
        group: [labels for labels in _labellings(group, axes) if _possible(matches, group, schemas, labels)]
        for group in groups
    }
    for group, possible in choices.items():
        if not possible:
            raise _impossible(example, f"no axis of the example can be `{group[0]}`")
    for axis in axes:
        if axis not in nameless and not any(axis in labels for each in choices.values() for labels in each):
            raise _impossible(example, f"nothing on the left can have the axis `{axis}` of the example")
    for node in walk(rule.left):
        if isinstance(node, Reduction | Contraction):
            for name in filter(is_set, node.axes):
                if not any(
                    match.having(schemas, labels) & somewhere(match.models.axes[name])
                    for match in matches
                    for labels in choices.get(match.models.universe, [(axis,) for axis in nameless])
                ):
                    raise _impossible(example, f"no axis of the example can be in `{name}`")
    if not _assignable(list(choices.values()), frozenset(axes) - nameless, frozenset()):
        raise _impossible(example, "no left side consists of terms with these axes")


def _impossible(example: Example, message: str) -> Rejection:
    if example.fires:
        hint = "compare the example with the patterns on the left and the `where` clauses"
    else:
        hint = (
            "compare it with the left side: a `reject` may break patterns and conditions, but must be a term"
        )
    return Rejection(example.position, message, hint)


def _labellings(group: tuple[str, ...], axes: list[str]) -> Iterator[Labels]:
    """Yields all ways to assign different axes of the example, or None, to the axis names of a group."""
    none = [None] * len(group)
    return iter(sorted(set(permutations([*axes, *none], len(group))), key=repr))


def _possible(matches: list[_Match], universe: tuple[str, ...], schemas: Schemas, labels: Labels) -> bool:
    return any(match.having(schemas, labels) for match in matches if match.models.universe == universe)


def _assignable(choices: list[list[Labels]], needed: frozenset[str], taken: frozenset[str | None]) -> bool:
    """Returns whether one labelling of each group can be chosen such that no axis is used twice.

    Each axis in `needed` must be used.
    """
    if not choices:
        return needed <= taken
    return any(
        _assignable(choices[1:], needed, taken.union(labels) - {None})
        for labels in choices[0]
        if not taken.intersection(labels)
    )
