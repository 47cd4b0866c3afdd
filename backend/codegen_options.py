"""Which of the forms that an operation can be written in are the ones for a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CodegenOptions:
    """What decides on the form of reductions and contractions.

    **Attributes:**

    - `fused_reduction`: entries of the longest reduction that stores nothing of what it reads; longer sums
      may be written as products. None: no sum may be.
    - `adds_rows`: whether a product of a vector and a matrix adds the matrix's rows one after the other, and
      so is to be written in blocks where there are many.
    - `panel`: bytes that the library may pack for a product, whose operands are put in order for that. None:
      as many as it does if they are in the order that is fast.
    """

    fused_reduction: int | None = None
    adds_rows: bool = False
    panel: int | None = None
