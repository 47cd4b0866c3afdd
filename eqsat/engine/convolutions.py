"""What a convolution computes, as a product of matrices: a row of patches for each place of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.ir.axis import Axis, Dimension, Layout, parts
from eqsat.ir.ops import Call

SINGLE = frozenset({"float32", "float16"})
"""The dtypes of convolutions that XLA for CPUs leaves to its library; others it computes number by number."""

PLACES = 3
"""The most dimensions besides batch and features for which it does."""


@dataclass(frozen=True)
class ConvolutionWork:
    """A convolution as products, one for each group of features.

    **Attributes:**

    - `groups`: the number of products.
    - `rows`, `depth`, `columns`: of each: places of the result, entries of a patch, features of the result.
    - `features`: how many entries of a patch are neighbours in the image.
    - `spread`: an image is dilated to so many times its size; what is between its entries is left out.
    - `by_numbers`: whether XLA for CPUs computes it number by number.
    """

    groups: int
    rows: int
    depth: int
    columns: int
    features: int
    spread: int
    by_numbers: bool

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.groups * self.rows * self.depth * self.columns / self.spread

    @property
    def runs(self) -> float:
        """How many runs of neighbours are copied to patches."""
        return self.groups * self.rows * self.depth / (self.features * self.spread)


def convolution_work(call: Call, length: Callable[[Axis], int]) -> ConvolutionWork:
    """What a call of `conv_general_dilated` computes.

    **Arguments:**

    - `length`: how long an axis is, in the loops that the call is in.
    """

    def size(dimension: Dimension) -> int:
        return math.prod(map(length, parts(dimension)))

    def sizes(layout: Layout, dimensions: Sequence[int]) -> int:
        return math.prod(size(layout[dimension]) for dimension in dimensions)

    images, kernel = call.arg_layouts
    (result,) = call.out_layouts
    left, (outputs, inputs, *window), (batch, features, *places) = call.params["dimension_numbers"]
    # A chunk may have fewer groups.
    batches = size(images[left[0]]) // size(result[batch]) if call.params["batch_group_count"] > 1 else 1
    groups = max(size(images[left[1]]) // size(kernel[inputs]), 1) * batches
    # XLA turns groups of a batch into one more dilated place.
    grouped = 1 < batches < size(kernel[outputs])
    return ConvolutionWork(
        groups=groups,
        rows=sizes(result, (batch, *places)),
        depth=sizes(kernel, (inputs, *window)),
        columns=max(size(result[features]) // groups, 1),
        features=size(kernel[inputs]),
        spread=math.prod(call.params["lhs_dilation"]),
        by_numbers=call.out_dtypes[0] not in SINGLE or len(places) > PLACES or grouped,
    )
