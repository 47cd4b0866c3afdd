"""Along which dimensions a JAX primitive may be done piece by piece, though its results lack them.

A scatter *accumulates*: it writes, adds or multiplies its updates into its operand. In which order is left
to XLA, so one part of them may come after another. The result of the first part takes the operand's place for
the second. A convolution *sums* over its input features, as does its derivative over the batch: what comes of
parts of them adds up to the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from eqsat.frontend.passing_registry import Dims, Site

Rule = Callable[[Site], Iterable[Dims]]

ACCUMULATING: dict[str, Rule] = {}
"""By primitive name: for each dimension, which one of each operand it is. The first operand lacks it."""

SUMMING: dict[str, Rule] = {}
"""The same of dimensions that are summed over."""


def _registers(rules: dict[str, Rule], names: tuple[str, ...]) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in rules, name
            rules[name] = rule
        return rule

    return register


def accumulates(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for the primitives of those names; their one result is like their first operand."""
    return _registers(ACCUMULATING, names)


def sums(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for the primitives of those names."""
    return _registers(SUMMING, names)


def accumulated_dimensions(eqn: Any) -> tuple[Dims, ...]:
    """The dimensions of length above 1 along which a jaxpr's equation accumulates."""
    return _dimensions(ACCUMULATING, eqn)


def summed_dimensions(eqn: Any) -> tuple[Dims, ...]:
    """The dimensions of length above 1 over which a jaxpr's equation sums."""
    return _dimensions(SUMMING, eqn)


def _dimensions(rules: dict[str, Rule], eqn: Any) -> tuple[Dims, ...]:
    rule = rules.get(eqn.primitive.name)
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


@sums("conv_general_dilated")
def _convolution(site: Site) -> Iterator[Dims]:
    left, right, _ = site.params["dimension_numbers"]  # each: batch (of the kernel: output), feature, spatial
    if site.params["feature_group_count"] == 1:
        yield (left[1], right[1])
