"""One entry along an axis as a reduction."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from eqsat.ir.axis import Axis
from eqsat.ir.interpret import interpret
from eqsat.ir.ops import Leaf
from eqsat.ir.program import Output, Program
from eqsat.ir.single_entries import entry_at
from eqsat.ir.term import Terms

N, M = Axis(0, 7), Axis(1, 2)
FLOATS = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -3.5]


@pytest.mark.parametrize(
    "values",
    [
        np.array(FLOATS, np.float32),
        np.array(FLOATS, np.float64),
        np.array(FLOATS, ml_dtypes.bfloat16),
        np.array([-128, 127, 0, 1, -1, 5, 6], np.int8),
        np.array([0, 255, 1, 2, 3, 4, 5], np.uint8),
        np.array([True, False, False, True, True, False, True]),
        np.array([1j, np.inf, 0, 3, 4, 5, 6], np.complex64),
    ],
    ids=lambda values: str(values.dtype),
)
def test_every_entry(values: np.ndarray[tuple[int], np.dtype[np.generic]]) -> None:
    array = np.stack([values, values[::-1]], axis=1)
    for place in range(len(values)):
        terms = Terms()
        leaf = terms.make(Leaf(0, (N, M), str(array.dtype)))
        program = Program((leaf,), (Output(entry_at(terms, leaf, N, place), (M,)),), terms)
        (found,) = interpret(program, [array])
        np.testing.assert_array_equal(found, array[place].astype(found.dtype))
