"""What one call of a library takes while it runs, in bytes: products, convolutions, transforms, LAPACK."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Sequence, Set
from typing import Any

from eqsat.backend.hlo import Array, Instruction, itemsize
from eqsat.targets.libraries import HostLibraries


def product_bytes(dot: Instruction, operands: Sequence[Array], threads: int, libraries: HostLibraries) -> int:
    """Panels of both operands that Eigen packs. A product with a vector packs nothing."""
    batch, rows, depth, columns = _product(dot, operands)
    if min(rows, columns) <= 1:
        return 0
    at_once = min(batch, libraries.eigen_batches * threads)
    return at_once * min(depth, libraries.eigen_depth) * (rows + columns) * itemsize(dot.results[0].dtype)


def panel_bytes(dot: Instruction, operands: Sequence[Array], threads: int, libraries: HostLibraries) -> int:
    """Panels of the right operand that YNNPACK packs: all of it in a batch."""
    batch, _, depth, columns = _product(dot, operands)
    return _packed(batch, depth, columns, threads, libraries) * itemsize(operands[1].dtype)


def _packed(batch: int, depth: int, columns: int, threads: int, libraries: HostLibraries) -> int:
    """Entries of the panels of an operand."""
    if batch == 1:
        columns = min(columns, libraries.ynn_columns * threads)
    return batch * depth * math.ceil(columns / libraries.ynn_tile) * libraries.ynn_tile


def column_bytes(operand: Array, reduced: Set[int], libraries: HostLibraries) -> int:
    """Rows that YNNPACK stores to reduce them to one, where that is not done within a row."""
    if set(range(len(operand.shape))) - reduced and len(operand.shape) - 1 not in reduced:
        rows = math.prod(operand.shape[dimension] for dimension in reduced)
        return operand.bytes * min(rows, libraries.ynn_rows) // max(rows, 1)
    return 0


def summed_bytes(
    product: Array, reduced: Set[int], left: Set[int], right: Set[int], threads: int, libraries: HostLibraries
) -> int:
    """What YNNPACK takes for the sum of a product of two different values, entry by entry.

    Where one of them does not vary with what is left, or that has a dimension of one entry, it makes a
    matrix product of it: of x * y, [1, n], with four columns. Elsewhere, or if nothing is left, it takes
    nothing to speak of.

    **Arguments:**

    - `reduced`: the dimensions of the product that are summed over.
    - `left`, `right`: those that each value varies with.
    """
    kept = set(range(len(product.shape))) - reduced
    if not reduced or kept <= left & right:
        return 0

    def entries(dimensions: Set[int]) -> int:
        return math.prod(product.shape[dimension] for dimension in dimensions)

    batch, depth = entries(kept & left & right), entries(reduced)
    entry = itemsize(product.dtype)
    most = max(_packed(batch, depth, entries(kept & side - other), threads, libraries) * entry
               for side, other in ((left, right), (right, left)))  # fmt: skip
    if max(kept) > max(reduced):
        most += (entries(left) + entries(right)) * entry  # They are transposed first.
    return most


def _product(dot: Instruction, operands: Sequence[Array]) -> tuple[int, int, int, int]:
    """Of a matrix product: the batch's size, rows, depth, columns."""
    left, right = operands
    batch = math.prod(left.shape[axis] for axis in dot.dimensions("lhs_batch_dims"))
    depth = math.prod(left.shape[axis] for axis in dot.dimensions("lhs_contracting_dims"))
    both = max(batch * depth, 1)
    return batch, left.elements // both, depth, right.elements // both


def convolution_bytes(convolution: Instruction, operands: Sequence[Array], libraries: HostLibraries) -> int:
    """Patches of the image as rows of a matrix, in single precision; other dtypes are done entry by entry."""
    result = convolution.results[0]
    if result.dtype != "f32":
        return 0
    groups = max(convolution.dimensions("feature_group_count") or (1,))
    kernel = operands[1]
    outputs = result.shape[_features(convolution)]
    patches = 4 * (result.elements // max(outputs, 1)) * groups * (kernel.elements // max(outputs, 1))
    spatial = len(result.shape) - 2
    if groups > 1:
        return patches
    if spatial > 2:
        # The result is computed elsewhere, and copied.
        return result.bytes + libraries.patches
    return min(patches, libraries.patches)


def _features(convolution: Instruction) -> int:
    """The dimension of a convolution's result that has the features."""
    labels = re.search(r"dim_labels=\S*->(\w+)", convolution.attributes)
    return labels[1].index("f") if labels else -1


def transform_bytes(fft: Instruction, operand: Array, threads: int) -> int:
    """Factors and a row of a Fourier transform along one axis, in complex numbers; more for long primes."""
    lengths = fft.dimensions("fft_length")
    real = fft.attribute("fft_type") in ("RFFT", "IRFFT")
    complex_bytes = max(itemsize(operand.dtype), itemsize(fft.results[0].dtype))
    rows = max(operand.elements, fft.results[0].elements)
    most = 0
    for length in lengths:
        at_once = min(max(rows // max(length, 1), 1), threads)
        if largest_factor(length) ** 2 <= length:
            most = max(most, at_once * length)
        else:
            # A convolution of at least twice the length instead.
            most = max(most, ((8 if real else 6) + 4 * (at_once - 1)) * length)
    return most * complex_bytes


def largest_factor(number: int) -> int:
    """The largest prime factor.

    >>> [largest_factor(number) for number in (1, 2, 96, 97, 1001)]
    [1, 2, 3, 97, 13]
    """
    largest, factor = 1, 2
    while factor * factor <= number:
        while number % factor == 0:
            largest, number = factor, number // factor
        factor += 1
    return max(largest, number)


def selection_bytes(operand: Array) -> int:
    """The indices of a row, of which the first are selected."""
    return 4 * operand.shape[-1]


def lapack_bytes(call: Instruction, operands: Sequence[Array]) -> int:
    """The workspace that LAPACK asks for, or nothing if a call is none of LAPACK's that needs one."""
    target = re.search(r'custom_call_target="lapack_([sdcz])(\w+?)(?:_ffi)?"', call.attributes)
    if target is None or target[2] not in WORKSPACES:
        return 0
    rows, columns = operands[0].shape[-2:]
    mode = re.search(r"\bmode = (\d+)", call.attributes)
    return WORKSPACES[target[2]](target[1], rows, columns, chr(int(mode[1])) if mode else "")


def _asked(kind: str, name: str, *sizes: int, **options: Any) -> list[int]:
    """The lengths of the workspaces that a routine asks for, by scipy's LAPACK: JAX calls the same."""
    routine = getattr(importlib.import_module("scipy.linalg.lapack"), f"{kind}{name}_lwork")
    return [int(complex(length).real) for length in routine(*sizes, **options)[:-1]]


def _entry(kind: str) -> int:
    return {"s": 4, "d": 8, "c": 8, "z": 16}[kind]


def _real(kind: str) -> int:
    return {"s": 4, "d": 8, "c": 4, "z": 8}[kind]


def _eigh(kind: str, rows: int, columns: int, mode: str) -> int:
    name = "syevd" if kind in "sd" else "heevd"
    lengths = _asked(kind, name, rows, compute_v=int(mode != "N"))
    return lengths[0] * _entry(kind) + 4 * lengths[1] + _real(kind) * sum(lengths[2:])


def _svd(kind: str, rows: int, columns: int, mode: str) -> int:
    short, long = min(rows, columns), max(rows, columns)
    (length,) = _asked(
        kind, "gesdd", rows, columns, compute_uv=int(mode != "N"), full_matrices=int(mode == "A")
    )
    reals = 0
    if kind in "cz":
        reals = 7 * short if mode == "N" else short * max(5 * short + 7, 2 * long + 2 * short + 1)
    return length * _entry(kind) + reals * _real(kind) + 32 * short


def _qr(kind: str, rows: int, columns: int, mode: str) -> int:
    return _asked(kind, "geqrf", rows, columns)[0] * _entry(kind)


def _eig(kind: str, rows: int, columns: int, mode: str) -> int:
    """Also a copy of the matrix, and the eigenvectors of both sides as pairs of reals."""
    length = _asked(kind, "geev", rows)[0]
    return (length + (3 if kind in "sd" else 1) * rows * rows) * _entry(kind)


def _reduced(name: str, complex_name: str) -> Callable[[str, int, int, str], int]:
    def needs(kind: str, rows: int, columns: int, mode: str) -> int:
        return _asked(kind, name if kind in "sd" else complex_name, rows)[0] * _entry(kind)

    return needs


WORKSPACES: dict[str, Callable[[str, int, int, str], int]] = {
    "syevd": _eigh,
    "heevd": _eigh,
    "gesdd": _svd,
    "geqrf": _qr,
    "orgqr": _qr,
    "ungqr": _qr,
    "geev": _eig,
    "gehrd": _reduced("gehrd", "gehrd"),
    "sytrd": _reduced("sytrd", "hetrd"),
    "hetrd": _reduced("sytrd", "hetrd"),
}
"""By LAPACK routine: bytes of its workspaces by kind, rows, columns and mode. Others work in place."""
