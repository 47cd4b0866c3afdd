"""JAX's public functions and their derivatives, optimized, are what they were; or raise what they raised.

`make test` tries a sample, `make oracle` all of them, which takes an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.oracle.expressions import expressions, function_of
from tests.oracle.judging import differentiable, gradient, judge, tangent

STEP = 171
"""The sample: one in so many."""

TIGHT = 0.3
"""The part of the temporaries that is left when it is tight."""

FORMS: dict[str, Callable[[Callable[..., Any], dict[str, Any]], Callable[..., Any]]] = {
    "value": lambda fn, _: fn,
    "gradient": gradient,
    "tangent": tangent,
}


def cases() -> Iterator[Any]:
    """Every expression in every form that it has; those outside the sample are marked."""
    for number, (expression, family) in enumerate(expressions().items()):
        for place, form in enumerate(FORMS):
            sampled = number % STEP == 0 and number // STEP % len(FORMS) == place
            marks = () if sampled else (pytest.mark.oracle,)
            yield pytest.param(expression, form, id=f"{family}-{form}-{expression}", marks=marks)


@pytest.mark.parametrize(("expression", "form"), list(cases()))
def test_function_of_jax(expression: str, form: str) -> None:
    function, args = function_of(expression)
    if form != "value" and not differentiable(args):
        return
    fn = FORMS[form](function, args)
    for part in (None, TIGHT):
        judge(fn, tuple(args.values()), part)
