"""Scatters that write what is there already: the entries that a gather has found in the same places.

x[i] = choose(flag, x[i], new)      under the assumption that the flag is not set
"""

from __future__ import annotations

from collections.abc import Sequence

from jax.lax import GatherScatterMode

from eqsat.ir.axis import Layout, layout_shape
from eqsat.ir.ops import Opaque
from eqsat.ir.term import Term


def writes_what_is_there(term: Term, args: Sequence[Term]) -> bool:
    """Returns whether the term, with these operands, is the first of them: a scatter of its own entries.

    The scatter writes nothing out of bounds, or treats such indices as the gather does.
    """
    assert isinstance(term.op, Opaque)
    if term.op.call.primitive.name != "scatter" or len(args) != 3:
        return False
    table, indices, entries = args
    if not isinstance(entries.op, Opaque) or entries.op.call.primitive.name != "gather":
        return False
    scatter, gather = term.op.call, entries.op.call
    dropping = scatter.params["mode"] == GatherScatterMode.FILL_OR_DROP
    if entries.args[0] is not table or not (dropping or gather.params["mode"] == scatter.params["mode"]):
        return False
    if gather.arg_layouts[0] != scatter.arg_layouts[0]:
        return False
    numbers = gather.params["dimension_numbers"]
    read = _places(
        (numbers.offset_dims, numbers.collapsed_slice_dims, numbers.start_index_map),
        (numbers.operand_batching_dims, numbers.start_indices_batching_dims),
        (*gather.arg_layouts, gather.out_layouts[0]),
        entries.args[1],
        gather.params["mode"] == GatherScatterMode.CLIP,
    )
    numbers = scatter.params["dimension_numbers"]
    written = _places(
        (numbers.update_window_dims, numbers.inserted_window_dims, numbers.scatter_dims_to_operand_dims),
        (numbers.operand_batching_dims, numbers.scatter_indices_batching_dims),
        scatter.arg_layouts,
        indices,
        dropping or scatter.params["mode"] == GatherScatterMode.CLIP,
    )
    return read is not None and read == written


def _places(
    dims: tuple[Sequence[int], Sequence[int], Sequence[int]],
    batching: tuple[Sequence[int], Sequence[int]],
    layouts: Sequence[Layout],
    indices: Term,
    anywhere: bool,
) -> dict[int, int] | None:
    """Returns where the entries of a table are: by dimension, the number of the term that has the index.

    Returns None if an entry is not known by its axes.

    **Arguments:**

    - `dims`: the dimensions of the entries that are of slices; those of the table that slices lack; those
      that the indices are of.
    - `batching`: the dimensions of the table, and those of the indices, that are of a batch.
    - `layouts`: of the table, the indices and the entries.
    - `anywhere`: whether the index of a dimension of which the entries are whole does not matter.
    """
    (windows, gone, indexed), (batch, index_batch) = dims, batching
    table, index, entries = layouts
    lengths, sizes = layout_shape(table), layout_shape(entries)
    slices = [d for d in range(len(table)) if d not in gone and d not in batch]
    single = {*gone, *batch}
    for window, d in zip(windows, slices, strict=True):
        if sizes[window] == lengths[d]:
            if entries[window] != table[d]:
                return None
        elif sizes[window] == 1:
            single.add(d)
        else:
            return None
    if any(entries[at] != index[place] for place, at in enumerate(_others(entries, windows))):
        return None
    if any(table[d] != index[place] for d, place in zip(batch, index_batch, strict=True)):
        return None
    parts = _components(indices, len(indexed))
    if parts is None:
        return None
    whole = set(range(len(table))) - single if anywhere else set()
    return {int(d): part.number for d, part in zip(indexed, parts, strict=True) if d not in whole}


def _others(entries: Layout, windows: Sequence[int]) -> list[int]:
    """Returns the dimensions of entries that are dimensions of the indices."""
    return [place for place in range(len(entries)) if place not in windows]


def _components(indices: Term, count: int) -> tuple[Term, ...] | None:
    """Returns the index of each of so many dimensions; None if they are not given one by one."""
    if count == 1:
        return (indices,)
    op = indices.op
    if isinstance(op, Opaque) and op.call.primitive.name == "concatenate" and len(indices.args) == count:
        along = op.call.params["dimension"] == len(op.call.out_layouts[0]) - 1
        return indices.args if along else None
    return None
