"""Donated arguments: whose memory the results may take."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Donation:
    """The donated arguments, and the results that take their place.

    **Attributes:**

    - `arguments`: the numbers of the arguments that are overwritten.
    - `pairs`: for each result that takes the place of an argument of its shape and dtype, that argument.
    - `aliased`: bytes of these results.
    - `unusable`: the types of the other donated arguments.
    """

    arguments: tuple[int, ...]
    pairs: Mapping[int, int]
    aliased: int
    unusable: tuple[str, ...]


NOTHING = Donation((), {}, 0, ())


def matched_donation(arguments: Sequence[Any], results: Sequence[Any], donated: Sequence[bool]) -> Donation:
    """Match donated arguments with results as JAX does: those of one type first, then those of one size.

    **Arguments:**

    - `arguments`, `results`: their types.
    - `donated`: whether the argument is donated, for each.
    """
    left = {number for number, given in enumerate(donated) if given}
    unmatched: dict[Hashable, list[int]] = defaultdict(list)
    for number in sorted(left):
        unmatched[_type(arguments[number])].append(number)
    sizes: list[int] = []
    pairs: dict[int, int] = {}
    aliased = 0
    for number, result in enumerate(results):
        if same := unmatched[_type(result)]:
            pairs[number] = same.pop(0)
            left.remove(pairs[number])
            aliased += math.prod(result.shape) * result.dtype.itemsize
        else:
            sizes.append(math.prod(result.shape))
    for number in sorted(left):
        if (size := math.prod(arguments[number].shape)) in sizes:
            sizes.remove(size)
            left.remove(number)
    return Donation(
        tuple(number for number, given in enumerate(donated) if given and number not in left),
        pairs,
        aliased,
        tuple(_text(arguments[number]) for number in sorted(left)),
    )


def _type(aval: Any) -> Hashable:
    return tuple(aval.shape), aval.dtype


def _text(aval: Any) -> str:
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]"
