"""Depthwise convolutions: of each feature by itself, and of one feature."""

from __future__ import annotations

import math

from jax import lax

from eqsat.ir.axis import layout_shape
from eqsat.ir.dtypes import is_real_float
from eqsat.ir.ops import Call


def is_shifted(call: Call, most: int) -> bool:
    """Whether a call is a depthwise convolution that is written as a sum of shifted images.

    **Arguments:**

    - `most`: the entries of each feature that it may multiply (`shifted_taps` of a machine).
    """
    taps = depthwise_taps(call)
    return taps is not None and taps <= most


def depthwise_taps(call: Call) -> int | None:
    """How many entries of each feature a depthwise convolution multiplies; None for any other call.

    Its image may be padded, and its window may have strides and be dilated, but the image may not be dilated.
    """
    if call.primitive is not lax.conv_general_dilated_p or call.params["batch_group_count"] > 1:
        return None
    image, (outputs, inputs, *window), _ = call.params["dimension_numbers"]
    shapes = [layout_shape(layout) for layout in call.arg_layouts]
    kernel, features = shapes[1], shapes[0][image[1]]
    if kernel[inputs] != 1 or kernel[outputs] != features or not is_real_float(call.out_dtypes[0]):
        return None
    if any(step > 1 for step in call.params["lhs_dilation"]) or not window:
        return None
    if any(0 in layout_shape(layout) for layout in (*call.arg_layouts, *call.out_layouts)):
        return None
    return int(math.prod(kernel[dimension] for dimension in window))
