"""Convolutions in the one order of dimensions for which XLA for CPUs calls its library.

XLA puts operands into that order itself, but only outside of loops. In a loop, any other order is computed
number by number, which takes 20 to 50 times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jax import lax

from eqsat.ir.axis import Layout
from eqsat.ir.ops import Call


def in_library_order(call: Call) -> Call:
    """A convolution with its images by batch, place and feature, and its kernel by place and features.

    Any other call, and a convolution in that order, is returned as it is.
    """
    if call.primitive is not lax.conv_general_dilated_p:
        return call
    image, kernel, result = call.params["dimension_numbers"]  # each: batch (or outputs), feature, places
    orders = (_features_last(image), (*kernel[2:], kernel[1], kernel[0]), _features_last(result))
    if all(order == tuple(range(len(order))) for order in orders):
        return call
    last = len(image) - 1
    places = tuple(range(1, last))
    images = (0, last, *places)
    numbers = lax.ConvDimensionNumbers(images, (last, last - 1, *range(last - 1)), images)
    first, second = call.arg_layouts
    return replace(
        call,
        params={**call.params, "dimension_numbers": numbers},
        arg_layouts=(_taken(first, orders[0]), _taken(second, orders[1])),
        out_layouts=(_taken(call.out_layouts[0], orders[2]),),
    )


def _features_last(spec: Sequence[int]) -> tuple[int, ...]:
    batch, feature, *places = spec
    return (batch, *places, feature)


def _taken(layout: Layout, order: Sequence[int]) -> Layout:
    return tuple(layout[dimension] for dimension in order)
