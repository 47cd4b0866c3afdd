"""The values of a jaxpr by its list of equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Literal

from eqsat.frontend.flat import FlatJaxpr


def evaluated(flat: FlatJaxpr, closed: ClosedJaxpr, wanted: Sequence[int | Literal], *args: Any) -> list[Any]:
    """Some values of a jaxpr, given its arguments."""
    variables = (*closed.jaxpr.constvars, *closed.jaxpr.invars)
    known = dict(zip((flat.numbers[var] for var in variables), (*closed.consts, *args), strict=True))
    known.update(flat.constants)
    read = lambda value: known[value] if isinstance(value, int) else value.val  # noqa: E731
    for one in flat.equations:
        results = one.bind([read(value) for value in one.inputs])
        known.update(zip(one.outputs, results if one.primitive.multiple_results else [results], strict=True))
    return [read(value) for value in wanted]
