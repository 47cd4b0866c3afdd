"""Along which dimensions a JAX primitive accumulates: it may be done piece by piece, one after another.

A scatter writes, adds or multiplies its updates into its operand. In which order is left to XLA, so one
part of them may come after another. The result of the first part takes the operand's place for the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from eqsat.frontend.passing_registry import Dims, Site

Rule = Callable[[Site], Iterable[Dims]]

RULES: dict[str, Rule] = {}
"""By primitive name: for each dimension, which one of each operand it is. The first operand lacks it."""


def accumulates(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for the primitives of those names; their one result is like their first operand."""

    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in RULES, name
            RULES[name] = rule
        return rule

    return register


def accumulated_dimensions(eqn: Any) -> tuple[Dims, ...]:
    """The dimensions of length above 1 along which a jaxpr's equation accumulates."""
    rule = RULES.get(eqn.primitive.name)
    if rule is None or eqn.effects:
        return ()
    shapes = tuple(tuple(atom.aval.shape) for atom in eqn.invars)
    if any(0 in shape for shape in shapes):
        return ()
    site = Site(shapes, tuple(tuple(out.aval.shape) for out in eqn.outvars), eqn.params)
    return tuple(
        dims
        for dims in rule(site)
        if all(shape[dim] > 1 for shape, dim in zip(shapes, dims, strict=True) if dim is not None)
    )


@accumulates("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def _scatter(site: Site) -> Iterator[Dims]:
    _, indices, updates = site.args
    numbers = site.params["dimension_numbers"]
    # The dimensions of the updates that are no windows are those of the indices, but for their last.
    rest = [dim for dim in range(len(updates)) if dim not in numbers.update_window_dims]
    for at in range(len(indices) - 1):
        if at not in numbers.scatter_indices_batching_dims:
            yield (None, at, rest[at])
