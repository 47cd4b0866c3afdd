"""Convolutions in the one order of dimensions for which XLA for CPUs calls its library, and depthwise ones.

XLA puts operands into that order itself, but only outside of loops. In a loop, any other order is computed
number by number, which takes 20 to 50 times as long.

Of depthwise convolutions, its library lays out the patches of all features. That takes 5 to 200 times as long
as the sum of shifted images (jaxlib 0.10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jax import lax

from eqsat.backend.literals import dtype_name
from eqsat.ir.axis import Layout
from eqsat.ir.ops import Call

SHIFTED = "depthwise_convolution"
"""The name of the function in the emitted program that computes depthwise convolutions."""

FUNCTION = """def depthwise_convolution(image, kernel, dtype, strides, padding, dilation):
    # The sum of shifted images, each multiplied by an entry of the kernel for each feature.
    wide = jnp.promote_types(dtype, jnp.float32)
    # Reductions would store all shifted images. That this is true is not known to XLA, so it fuses nothing
    # with the branch.
    known = jnp.signbit(image[(0,) * image.ndim].astype(wide)).astype(jnp.int32) < 2
    if any(low or high for low, high in padding):
        ends = ((0, 0, 0), *((low, high, 0) for low, high in padding), (0, 0, 0))
        image = lax.pad(image, jnp.zeros((), image.dtype), ends)
    window = kernel.shape[:-2]
    reach = [(size - 1) * step for size, step in zip(window, dilation)]

    def shifted_sum():
        result = None
        for place in itertools.product(*map(range, window)):
            starts = [number * step for number, step in zip(place, dilation)]
            limits = [size - far + start for size, far, start in zip(image.shape[1:], reach, starts)]
            part = lax.slice(
                image, (0, *starts, 0), (image.shape[0], *limits, image.shape[-1]), (1, *strides, 1)
            )
            part = part.astype(wide) * kernel[place].astype(wide)
            result = part if result is None else result + part
        return result.astype(dtype)

    shape = jax.eval_shape(shifted_sum).shape
    return lax.cond(known, shifted_sum, lambda: jnp.zeros(shape, dtype))
"""


def shifted_source(call: Call, operands: Sequence[str]) -> str:
    """A depthwise convolution in the library's order of dimensions as an expression."""
    params, (dtype,) = call.params, call.out_dtypes
    strides, padding = tuple(params["window_strides"]), tuple(map(tuple, params["padding"]))
    dilation = tuple(params["rhs_dilation"])
    return f"{SHIFTED}({', '.join(operands)}, {dtype_name(dtype)}, {strides}, {padding}, {dilation})"


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
