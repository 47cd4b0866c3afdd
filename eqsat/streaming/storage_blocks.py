"""What is touched of an array where it lies, when a slice of it is read: blocks, as a whole.

A file is read by pages of rows, a chunked dataset by its chunks. Columns of a file of rows touch all of it:

    blocks of (4, 250) entries; read (10⁷, 2) of (10⁷, 250): touched are all 250 columns, 125 times as much
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.ir.moved_arrays import (
    Filled,
    Joined,
    Moved,
    Repeated,
    Reshaped,
    Taken,
    Transposed,
    Unsqueezed,
    Whole,
)
from eqsat.ir.moved_windows import Windows

PAGE = 4096
"""Bytes of a page, by which files are read."""

LINE = 64
"""Bytes of a cache line, by which memory is."""

CACHE_SHARE = 2 / 5
"""The share of the host's memory that pieces of chunked datasets may take (`eqsat.streaming.block_cache`)."""

CACHED = 0.1
"""What it costs to find entries in a piece that is in memory, relative to reading it."""


@dataclass(frozen=True)
class Block:
    """The pieces that an array lies in, each of which is read as a whole.

    **Attributes:**

    - `lengths`: of a piece, by dimension; `itemsize`: bytes of an entry.
    - `chunked`: whether they are the chunks of a dataset, which are kept for a while.
    """

    lengths: tuple[int, ...]
    itemsize: int
    chunked: bool = False


Blocks = Mapping[int, Block]


def storage_block(array: Any, shape: Sequence[int], itemsize: int) -> Block:
    """The block of an array, by what it says of itself; else that of rows in a file."""
    if (chunks := _chunks(array)) is not None and len(chunks) == len(shape):
        return Block(tuple(map(min, chunks, shape)), itemsize, True)
    if isinstance(array, np.ndarray) and array.itemsize:
        at_once = PAGE if isinstance(array, np.memmap) else LINE
        order = sorted(range(len(shape)), key=lambda number: -abs(array.strides[number]))
        return Block(_run(shape, order, max(1, at_once // array.itemsize)), itemsize)
    return rows_block(shape, itemsize)


def _chunks(array: Any) -> tuple[int, ...] | None:
    """The chunks of a dataset; None if it is not stored so, or does not say."""
    layout = getattr(array, "chunk_layout", None)  # tensorstore
    found = getattr(array, "chunks", None) if layout is None else layout.read_chunk.shape
    if not isinstance(found, tuple | list) or any(not isinstance(length, int) for length in found):
        return None
    return tuple(found) if all(length > 0 for length in found) else None


def rows_block(shape: Sequence[int], itemsize: int) -> Block:
    """The block of an array that lies in a file row by row."""
    return Block(_run(shape, range(len(shape)), max(1, PAGE // itemsize)), itemsize)


def _run(shape: Sequence[int], order: Sequence[int], entries: int) -> tuple[int, ...]:
    """A block of so many entries that follow each other, in the order of dimensions."""
    block = [1] * len(shape)
    for number in reversed(order):
        block[number] = max(1, min(shape[number], entries))
        entries = -(-entries // max(1, shape[number]))
        if entries <= 1:
            break
    return tuple(block)


def touched(moved: Moved, lengths: Sequence[int], blocks: Blocks, room: float = 0) -> float:
    """How many times as much is touched as is read, of slices of these lengths.

    **Arguments:**

    - `room`: bytes for pieces of chunked datasets, which are read once if they fit.
    """
    match moved:
        case Whole(source=source, shape=shape):
            return _by_blocks(shape, lengths, blocks.get(source), room)
        case Filled():
            return 1.0
        case Taken(of=of, places=places):
            steps = [abs(one.step) for one in places]
            inner = [min(a * step, size) for a, step, size in zip(lengths, steps, of.shape, strict=True)]
            return touched(of, inner, blocks, room) * math.prod(inner) / max(1, math.prod(lengths))
        case Joined(of=joined, dimension=at):
            before, after = lengths[:at], lengths[at + 1 :]
            parts = [(one, [*before, min(lengths[at], one.shape[at]), *after]) for one in joined]
            found = (one.shape[at] * touched(one, part, blocks, room) for one, part in parts)
            return sum(found) / max(1, moved.shape[at])
        case Transposed(of=of, order=order):
            return touched(of, [lengths[order.index(number)] for number in range(len(order))], blocks, room)
        case Repeated(of=of):
            return touched(of, list(map(min, lengths, of.shape)), blocks, room)
        case Windows(of=of, dimension=at, sizes=sizes):
            # A window is read with those beside it.
            span = min(of.shape[at], math.prod(lengths[at : at + len(sizes)]))
            return touched(of, [*lengths[:at], span, *lengths[at + len(sizes) :]], blocks, room)
        case Reshaped() | Unsqueezed():
            # Of rows in a file, the entries are in the same order.
            pieces = [blocks[source] for source in moved.sources if source in blocks]
            if not pieces:
                return 1.0
            least = min(pieces, key=lambda block: math.prod(block.lengths))
            run = _run(moved.shape, range(len(moved.shape)), math.prod(least.lengths))
            return _by_blocks(moved.shape, lengths, replace(least, lengths=run), room)
    raise AssertionError(moved)


def _by_blocks(shape: Sequence[int], lengths: Sequence[int], block: Block | None, room: float) -> float:
    if block is None or 0 in lengths:
        return 1.0
    pieces = list(zip(lengths, shape, block.lengths, strict=True))
    covered = math.prod(a if a % piece == 0 else min(size, a + piece - 1) for a, size, piece in pieces)
    found = covered / math.prod(lengths)
    kept = math.prod(min(size, -(-a // piece) * piece) for a, size, piece in pieces) * block.itemsize
    return 1.0 + CACHED * (found - 1.0) if block.chunked and kept <= room else found
