"""The registry of rules that say which dimensions pass through a primitive, and their vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]
Dims = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Passing:
    """One axis that goes through a primitive untouched.

    **Attributes:**

    - `args`: which dimension of each operand it is; `None` where the operand does not have it and
      is the same for every slice.
    - `outs`: which dimension of each result it is. Every result has it.
    - `groups`: if not 0, each of these dimensions consists of so many groups, one after another, and what
      passes is the axis that counts the groups.
    """

    args: Dims
    outs: tuple[int, ...]
    groups: int = 0


@dataclass(frozen=True, slots=True)
class Site:
    """An equation as rules see it: the shapes of its operands and results, and its parameters.

    `dtypes` are those of the operands.
    """

    args: tuple[Shape, ...]
    outs: tuple[Shape, ...]
    params: dict[str, Any]
    dtypes: tuple[Any, ...] = ()


Rule = Callable[[Site], Iterable[Passing]]

RULES: dict[str, Rule] = {}
"""By primitive name."""


def passes(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for the primitives of those names."""

    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in RULES, name
            RULES[name] = rule
        return rule

    return register


def aligned(site: Site, dims: Iterable[int], operands: int | None = None) -> Iterator[Passing]:
    """Dimensions that keep their number in the first `operands` operands (default: all) and all results."""
    count = len(site.args) if operands is None else operands
    for dim in dims:
        yield Passing((dim,) * count + (None,) * (len(site.args) - count), (dim,) * len(site.outs))


def others(site: Site, *taken: int) -> Iterator[int]:
    """The dimensions of the first operand that are not among `taken`."""
    rank = len(site.args[0])
    used = {dim % rank for dim in taken}
    return (dim for dim in range(rank) if dim not in used)
