"""Which dtypes the terms of one instance have: those of each kind take turns.

A rule of floats is one of float16, bfloat16, float32 and float64, each with digits and a range of its own,
and integers wrap around at other numbers. Terms whose dtypes a rule ties to one another have the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from eqsat.checking.kinds import DTYPES
from eqsat.checking.typing import Kinds
from eqsat.language.syntax import Expression

NARROW = frozenset({"float16", "bfloat16"})
"""Floats that XLA sums in single precision."""

TURNS: dict[str, tuple[str, ...]] = {
    "f": (
        *("float32", "float16", "bfloat16", "float64", "float32", "float16"),
        *("float32", "float16", "bfloat16", "float32", "float64", "float16"),
    ),
    "i": ("int8", "int32", "int64", "int16", "int8"),
    "u": ("uint8", "uint32", "uint64", "uint16", "uint8"),
}
"""By kind, its dtypes in the order of their turns: all of them first, the most telling ones again."""

MIXED = 3
"""In every so many-th turn, terms that need not be of one dtype are of several."""


@dataclass(frozen=True)
class Dtypes:
    """The dtypes of one instance.

    **Attributes:**

    - `chosen`: by class of terms that have one dtype; for all others it is the one that stands for the kind.
    """

    kinds: Kinds
    chosen: Mapping[int, str]

    def of(self, node: Expression) -> str:
        """The dtype of a node of the left side."""
        known = self.chosen.get(self.kinds.classes[id(node)])
        return known or DTYPES[self.kinds.nodes[id(node)]]

    def of_variable(self, name: str) -> str:
        known = self.chosen.get(self.kinds.variable_classes[name])
        return known or DTYPES[self.kinds.variables[name]]

    @property
    def of_variables(self) -> dict[str, str]:
        return {name: self.of_variable(name) for name in self.kinds.variables}


def standing(kinds: Kinds) -> Dtypes:
    """The dtypes that stand for the kinds."""
    return Dtypes(kinds, {})


def in_turn(kinds: Kinds, turn: int, changing: str, narrow: bool = True) -> Dtypes:
    """The dtypes of one turn.

    **Arguments:**

    - `changing`: the kinds whose dtypes take turns.
    - `narrow`: whether floats may be half as long as singles.
    """
    chosen: dict[int, str] = {}
    places: dict[str, int] = {}
    of_class = {kinds.classes[node]: kind for node, kind in kinds.nodes.items()}
    for number, kind in sorted(of_class.items()):
        if kind not in changing or kind not in TURNS:
            continue
        taken = turns_of(kind, narrow)
        if kind == "f" and "c" in of_class.values():
            taken = ("float32",)  # those that complex64 is made of
        place = places.setdefault(kind, 0)
        places[kind] += 1
        chosen[number] = taken[(turn + place * (turn % MIXED == MIXED - 1)) % len(taken)]
    return Dtypes(kinds, chosen)


@cache
def turns_of(kind: str, narrow: bool = True) -> tuple[str, ...]:
    """The dtypes of a kind in turn."""
    return tuple(dtype for dtype in TURNS[kind] if narrow or dtype not in NARROW)
