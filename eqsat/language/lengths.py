"""Rewrites lengths of axes as terms: `size(k)` on the right side of a rule is `1 + max[k] iota[k]`."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.language.diagnostics import Rejection
from eqsat.language.rewriting import rewritten
from eqsat.language.syntax import Apply, Expression, IotaOf, Number, Reduction, Variable
from eqsat.language.traverse import is_set, walk


def with_lengths(expression: Expression, matched: Sequence[Expression]) -> Expression:
    """Returns an expression with each `size(k)` in it replaced by a term.

    **Arguments:**

    - `expression`: the side of a rule that is built.
    - `matched`: the sides that are matched. No length may stand there, since programs hold lengths
      as constants.

    **Raises:** `Rejection` if there is a length on a matched side, or one that is not of a single
    axis.
    """
    for node in (node for side in matched for node in walk(side)):
        if isinstance(node, Apply) and node.function == "size":
            hint = "match a constant, `a / c`, and compare it: `where c = size(k)`"
            raise Rejection(node.position, "a length cannot be matched", hint)
    return rewritten(expression, _length)


def _length(node: Expression) -> Expression | None:
    match node:
        case Apply(function="size", operands=(Variable(name=axis, has=(), lacks=()),)) if not is_set(axis):
            at = node.position
            return Apply("add", (Number("1", at), Reduction("max", (axis,), IotaOf(axis, at), at)), at)
        case Apply(function="size"):
            raise Rejection(node.position, "a length must be that of one axis", "write `size(k)`")
        case _:
            return None
