"""Chooses the dtypes of the terms of one instance. The dtypes of each kind rotate from instance to instance.

A rule about floats is tested in float16, bfloat16, float32 and float64, since they differ in digits and
range. Integers of different widths wrap around at different numbers. Terms that have to have one dtype,
such as the operands of a sum, do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from eqsat.checking.kinds import DTYPES
from eqsat.checking.typing import Kinds
from eqsat.language.syntax import Expression

NARROW = frozenset({"float16", "bfloat16"})
"""The floats that XLA sums in single precision."""

TURNS: dict[str, tuple[str, ...]] = {
    "f": (
        *("float32", "float16", "bfloat16", "float64", "float32", "float16"),
        *("float32", "float16", "bfloat16", "float32", "float64", "float16"),
    ),
    "i": ("int8", "int32", "int64", "int16", "int8"),
    "u": ("uint8", "uint32", "uint64", "uint16", "uint8"),
}
"""The dtypes of each kind in the order of rotation. Those that find most mistakes come more often."""

MIXED = 3
"""In every third turn, terms that need not have one dtype have different ones."""


@dataclass(frozen=True)
class Dtypes:
    """The dtypes of one instance.

    **Attributes:**

    - `chosen`: the dtype of each class of terms that have one dtype, by the class's number. The terms of all
      other classes have the standard dtype of their kind.
    """

    kinds: Kinds
    chosen: Mapping[int, str]

    def of(self, node: Expression) -> str:
        """Returns the dtype of a node of the left side."""
        known = self.chosen.get(self.kinds.classes[id(node)])
        return known or DTYPES[self.kinds.nodes[id(node)]]

    def of_variable(self, name: str) -> str:
        known = self.chosen.get(self.kinds.variable_classes[name])
        return known or DTYPES[self.kinds.variables[name]]

    @property
    def of_variables(self) -> dict[str, str]:
        return {name: self.of_variable(name) for name in self.kinds.variables}


def standing(kinds: Kinds) -> Dtypes:
    """Returns the standard dtype of each kind."""
    return Dtypes(kinds, {})


def in_turn(kinds: Kinds, turn: int, changing: str, narrow: bool = True) -> Dtypes:
    """Returns the dtypes of one turn of the rotation.

    **Arguments:**

    - `changing`: the kinds whose dtypes rotate.
    - `narrow`: whether float16 and bfloat16 are among the floats.
    """
    chosen: dict[int, str] = {}
    places: dict[str, int] = {}
    of_class = {kinds.classes[node]: kind for node, kind in kinds.nodes.items()}
    for number, kind in sorted(of_class.items()):
        if kind not in changing or kind not in TURNS:
            continue
        taken = turns_of(kind, narrow)
        if kind == "f" and "c" in of_class.values():
            taken = ("float32",)  # the dtype of the parts of complex64
        place = places.setdefault(kind, 0)
        places[kind] += 1
        chosen[number] = taken[(turn + place * (turn % MIXED == MIXED - 1)) % len(taken)]
    return Dtypes(kinds, chosen)


@cache
def turns_of(kind: str, narrow: bool = True) -> tuple[str, ...]:
    """Returns the dtypes of a kind in the order of rotation, without float16 and bfloat16 if not `narrow`."""
    return tuple(dtype for dtype in TURNS[kind] if narrow or dtype not in NARROW)
