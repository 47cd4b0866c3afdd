"""Which calls are linear, and in which operands: for sums that are formed by parts and then go on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eqsat.ir.dtypes import is_inexact
from eqsat.ir.ops import Call

Groups = tuple[frozenset[int], ...]
"""Sets of positions: a call is linear in the operands of each set together while the others are fixed."""

FIRST = (frozenset({0}),)


def _gather(call: Call) -> Groups:
    # An entry that is out of bounds is the same for every part: only NaN and zero add up to themselves.
    filled = call.params.get("fill_value")
    same = filled is None or filled == 0 or np.isnan(filled)
    return FIRST if same and is_inexact(call.out_dtypes[0]) else ()


def _all(call: Call) -> Groups:
    return (frozenset(range(len(call.arg_layouts))),)


LINEAR: dict[str, Groups | Callable[[Call], Groups]] = {
    "concatenate": _all,
    "conv_general_dilated": (frozenset({0}), frozenset({1})),
    "copy": FIRST,
    "cumsum": FIRST,
    "dynamic_slice": FIRST,
    "dynamic_update_slice": (frozenset({0, 1}),),
    "fft": FIRST,
    "gather": _gather,
    "pad": (frozenset({0, 1}),),
    "reduce_window_sum": FIRST,
    "reshape": FIRST,
    "rev": FIRST,
    "scatter-add": (frozenset({0, 2}),),
    "slice": FIRST,
    "split": FIRST,
    "triangular_solve": (frozenset({1}),),
}
"""The groups of operands by primitive. Calls of other primitives are linear in none."""


def linear_operands(call: Call) -> Groups:
    """Returns sets of positions: the call is linear in the operands of each, if the others stay the same."""
    found = () if call.bodies else LINEAR.get(call.primitive.name, ())
    return found(call) if callable(found) else found
