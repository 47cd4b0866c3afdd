"""The names of what rearranges arrays: sorts, reversals, first entries, axes merged and split."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eqsat.frontend.draft import View
from eqsat.frontend.names_entries import entry, last_fits, name_ranked
from eqsat.frontend.names_ranks import note_reversed, note_sort
from eqsat.frontend.naming import Labels, applied
from eqsat.frontend.registry import names
from eqsat.ir.operations import OPERATIONS

if TYPE_CHECKING:
    from eqsat.frontend.lower import Lowering

Views = Sequence[View]


def along(
    lowering: Lowering,
    operation: str,
    view: View,
    core: Mapping[int, str],
    result: Sequence[Hashable] | None = None,
    lengths: Mapping[str, int] | None = None,
    dtype: str | None = None,
) -> View | None:
    """An operation of one operand.

    **Arguments:**

    - `core`: which dimensions of the operand are its core axes; all others are the batch.
    - `result`: what the dimensions of the result are, the batch by their number in the operand; by
      default the same as those of the operand.
    - `lengths`: of core axes that only the result has.
    - `dtype`: the result's, by default the operand's.
    """
    shape = lowering.shape(view)
    labels: Labels = tuple(core.get(dimension, dimension) for dimension in range(len(shape)))
    wanted = labels if result is None else tuple(result)
    known = dict(zip(labels, shape, strict=True))
    known.update(lengths or {})
    return applied(
        lowering,
        OPERATIONS[operation],
        [(view, labels)],
        wanted,
        [known[label] for label in wanted],
        dtype or view.dtype,
    )


@names("sort")
def _sort(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    params = equation.params
    dimension = params["dimension"]
    if params["num_keys"] != 1 or len(operands) > 2:
        return
    key = operands[0]
    note_sort(lowering, equation, key, results[0])
    lowering.name(equation, results[0], lambda: along(lowering, "sort", key, {dimension: "n"}))
    # Unstable sorting may give the indices of equal entries in any order.
    if len(operands) == 2 and params["is_stable"] and _is_index(lowering, operands[1], dimension):
        dtype = results[1].dtype
        lowering.name(
            equation, results[1], lambda: along(lowering, "argsort", key, {dimension: "n"}, dtype=dtype)
        )


def _is_index(lowering: Lowering, view: View, dimension: int) -> bool:
    """Whether each entry of a view is its own place along that dimension."""
    return lowering.draft.counts_along(view.node, view.layout[dimension])


@names("rev")
def _rev(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    (view,) = operands
    note_reversed(lowering, equation, view, results[0])

    def build() -> View | None:
        reversed_: View | None = view
        for dimension in equation.params["dimensions"]:
            if reversed_ is not None and reversed_.layout[dimension] is not None:
                reversed_ = along(lowering, "reverse", reversed_, {dimension: "n"})
        return reversed_

    lowering.name(equation, results[0], build)


@names("slice")
def _slice(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    (view,) = operands
    params = equation.params
    before, after = lowering.shape(view), lowering.shape(results[0])
    cut = [dimension for dimension in range(len(before)) if before[dimension] != after[dimension]]
    strides = params["strides"] or (1,) * len(before)
    starts = params["start_indices"]
    stops = params["limit_indices"]
    if any(strides[d] != 1 or after[d] == 0 for d in cut) or any(
        after[d] > 1 and starts[d] != 0 and stops[d] != before[d] for d in cut
    ):
        return

    def build() -> View | None:
        part: View | None = view
        for dimension in cut:
            if after[dimension] == 1:
                if not last_fits(starts[dimension], "int32"):
                    return None
                where = lowering.constant(starts[dimension], "int32")
                part = part and entry(lowering, part, dimension, where)
                continue
            # The last entries are the first ones of the reversed array.
            steps = ["head"] if starts[dimension] == 0 else ["reverse", "head", "reverse"]
            for step in steps:
                if part is not None and step == "head":
                    rest = ["m" if d == dimension else d for d in range(len(before))]
                    part = along(lowering, step, part, {dimension: "n"}, rest, {"m": after[dimension]})
                elif part is not None:
                    part = along(lowering, step, part, {dimension: "n"})
        return part

    lowering.name(equation, results[0], build)
    if len(cut) == 1 and after[cut[0]] == 1:
        start = starts[cut[0]]
        name_ranked(lowering, equation, results[0], view, cut[0], lambda: lowering.constant(start, "uint32"))


@names("reshape")
def _reshape(lowering: Lowering, equation: Any, operands: Views, results: Views) -> None:
    (view,), (result,) = operands, results
    shape = lowering.shape(result)
    if 0 in shape or result.node == view.node:
        return
    order = equation.params.get("dimensions") or range(len(view.layout))

    def build() -> View | None:
        lengths = [length for length in shape if length != 1]
        left = tuple(axis for axis in (view.layout[d] for d in order) if axis is not None)
        regrouped = _regrouped(lowering, View(view.node, left, view.dtype), lengths)
        if regrouped is None:
            return None
        axes = iter(regrouped.layout)
        return View(regrouped.node, tuple(None if n == 1 else next(axes) for n in shape), view.dtype)

    lowering.name(equation, result, build)


def _regrouped(lowering: Lowering, view: View, lengths: Sequence[int]) -> View | None:
    """The view with dimensions of these lengths instead, in row-major order; none has length 1."""
    current: View | None = view
    at = 0
    for old, new in groups(lowering.shape(view), lengths):
        if len(old) == len(new) == 1:
            at += 1
            continue
        for _ in old[1:]:
            current = current and _merged(lowering, current, at)
        for length in new[:-1]:
            current = current and _split(lowering, current, at, length)
            at += 1
        at += 1
    return current


def groups(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The shortest runs of dimensions that have the same number of elements in both shapes.

    >>> list(groups((2, 3, 5, 8), (6, 5, 2, 4)))
    [([2, 3], [6]), ([5], [5]), ([8], [2, 4])]
    """
    left, right = list(old), list(new)
    while left and right:
        run, other = [left.pop(0)], [right.pop(0)]
        here, there = run[0], other[0]
        while here != there:
            if here < there:
                run.append(left.pop(0))
                here *= run[-1]
            else:
                other.append(right.pop(0))
                there *= other[-1]
        yield run, other


def _merged(lowering: Lowering, view: View, at: int) -> View | None:
    """The view with dimension `at` and the next one as one."""
    rank = len(view.layout)
    first, second = lowering.shape(view)[at : at + 2]
    rest = [*range(at), "p", *range(at + 2, rank)]
    return along(lowering, "merge", view, {at: "i", at + 1: "j"}, rest, {"p": first * second})


def _split(lowering: Lowering, view: View, at: int, length: int) -> View | None:
    """The view with dimension `at` as two, the first of that length."""
    rank = len(view.layout)
    whole = lowering.shape(view)[at]
    rest = [*range(at), "i", "j", *range(at + 1, rank)]
    return along(lowering, "split", view, {at: "p"}, rest, {"i": length, "j": whole // length})
