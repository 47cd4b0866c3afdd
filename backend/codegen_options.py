"""The forms in which operations are emitted for a machine."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.targets.machine import Machine
from eqsat.targets.product_tiles import ProductTiles


@dataclass(frozen=True)
class CodegenOptions:
    """The options for the form of reductions and contractions.

    **Attributes:**

    - `fused_reduction`: the length of the longest reduction that does not store its operand. Longer sums may
      be emitted as products. None: no sum may be.
    - `orders_convolutions`: whether convolutions are written in the order of the library; `orders_bodies`:
      whether those in the loops of the function are, too. Their sums may then have another order.
    - `shifted_taps`: depthwise convolutions of at most so many entries are sums of shifted images.
    - `split_reduction`, `split_columns`: the lengths of the longest reductions that XLA does in one step:
      along the last axis, and along another one. Longer ones may be emitted in two steps. 0: none is.
    - `few_columns`: with fewer columns, what is reduced in two steps is transposed first.
    - `adds_rows`: whether the product of a vector and a matrix adds the matrix's rows one after the other. If
      so, products with many rows are emitted in blocks.
    - `transposes_slowly`: whether a product of two transposed matrices is slower than others.
    - `tiles`: the tiles of products' results, of which a product with few may be emitted in parts. None: none
      is.
    - `slices_bits`: whether scans take slices of the bits of bfloat16 arrays.
    - `indexed_slices`, `cache_line`: as of `Machine`.
    - `panel`: bytes that the library may pack for a product; operands are ordered accordingly. None: no
      limit, and operands are in the order that is fast.
    """

    fused_reduction: int | None = None
    adds_rows: bool = False
    panel: int | None = None
    split_reduction: int = 0
    split_columns: int = 0
    few_columns: int = 0
    orders_convolutions: bool = False
    orders_bodies: bool = False
    shifted_taps: int = 0
    transposes_slowly: bool = False
    slices_bits: bool = False
    indexed_slices: int = 0
    cache_line: int = 64
    tiles: ProductTiles | None = None


def codegen_options(machine: Machine, exact: bool) -> CodegenOptions:
    """The forms for a machine.

    **Arguments:**

    - `exact`: whether sums are to keep the order that XLA gives them.
    """
    if exact:
        # What XLA does outside of loops, convolutions that are put into loops do, too.
        return CodegenOptions(
            orders_convolutions=machine.orders_convolutions,
            transposes_slowly=machine.transposes_slowly,
            slices_bits=machine.widens,
            indexed_slices=machine.indexed_slices,
            cache_line=machine.cache_line,
        )
    steps = (machine.split_reduction, machine.split_columns) if machine.emits_steps else (0, 0)
    return CodegenOptions(
        fused_reduction=machine.fused_reduction,
        adds_rows=machine.adds_rows,
        split_reduction=steps[0],
        split_columns=steps[1],
        few_columns=machine.few_columns,
        orders_convolutions=machine.orders_convolutions,
        orders_bodies=machine.orders_convolutions,
        shifted_taps=machine.shifted_taps,
        transposes_slowly=machine.transposes_slowly,
        slices_bits=machine.widens,
        indexed_slices=machine.indexed_slices,
        cache_line=machine.cache_line,
        tiles=machine.tiles if machine.emits_steps else None,
    )
