"""The forms in which operations are emitted for a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CodegenOptions:
    """The options for the form of reductions and contractions.

    **Attributes:**

    - `fused_reduction`: the length of the longest reduction that does not store its operand. Longer sums may
      be emitted as products. None: no sum may be.
    - `adds_rows`: whether the product of a vector and a matrix adds the matrix's rows one after the other. If
      so, products with many rows are emitted in blocks.
    - `panel`: bytes that the library may pack for a product; operands are ordered accordingly. None: no
      limit, and operands are in the order that is fast.
    """

    fused_reduction: int | None = None
    adds_rows: bool = False
    panel: int | None = None
