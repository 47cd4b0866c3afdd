"""Which dimensions pass through slicing, joining, sorting, windows and contractions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from eqsat.frontend.passing_registry import Passing, Site, aligned, others, passes
from eqsat.ir.elementwise import ELEMENTWISE

# Taking parts


@passes("slice")
def _slice(site: Site) -> Iterator[Passing]:
    # A full slice with a stride of 1 has the operand's length; any other one is shorter.
    return aligned(site, others(site))


@passes("dynamic_slice")
def _dynamic_slice(site: Site) -> Iterator[Passing]:
    # A slice as long as the operand starts at 0 whatever the index says: XLA clamps it.
    return aligned(site, others(site), operands=1)


@passes("dynamic_update_slice")
def _dynamic_update_slice(site: Site) -> Iterator[Passing]:
    return aligned(site, others(site), operands=2)


@passes("split", "unstack", "argmax", "argmin", "top_k", "approx_top_k")
def _one_axis_taken(site: Site) -> Iterator[Passing]:
    params = site.params
    if "reduction_dimension" in params:
        axis = params["reduction_dimension"]
    elif "axes" in params:
        (axis,) = params["axes"]
    else:
        axis = params.get("axis", -1)
    axis %= len(site.args[0])
    gone = len(site.outs[0]) < len(site.args[0])
    for dim in others(site, axis):
        yield Passing((dim,), (dim - (gone and dim > axis),) * len(site.outs))


@passes("gather")
def _gather(site: Site) -> Iterator[Passing]:
    operand, indices = site.args
    numbers = site.params["dimension_numbers"]
    batching = tuple(numbers.operand_batching_dims)
    # Windows that span a dimension: in every mode their start counts as 0 or as out of bounds,
    # and which of the two does not depend on the dimension's length.
    windows = [d for d in range(len(operand)) if d not in {*numbers.collapsed_slice_dims, *batching}]
    for dim, out in zip(windows, numbers.offset_dims, strict=True):
        if site.params["slice_sizes"][dim] == operand[dim]:
            yield Passing((dim, None), (out,))
    rest = [d for d in range(len(site.outs[0])) if d not in numbers.offset_dims]
    partner = dict(zip(numbers.start_indices_batching_dims, batching, strict=True))
    for dim, out in zip(range(len(indices) - 1), rest, strict=True):
        yield Passing((partner.get(dim), dim), (out,))


@passes("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def _scatter(site: Site) -> Iterator[Passing]:
    operand, indices, updates = site.args
    numbers = site.params["dimension_numbers"]
    batching = tuple(numbers.operand_batching_dims)
    windows = [d for d in range(len(operand)) if d not in {*numbers.inserted_window_dims, *batching}]
    for dim, update in zip(windows, numbers.update_window_dims, strict=True):
        yield Passing((dim, None, update), (dim,))  # `_has_length` keeps the full windows
    # Other dimensions of the indices accumulate into the same operand: they don't pass.
    rest = [d for d in range(len(updates)) if d not in numbers.update_window_dims]
    for dim, at in zip(batching, numbers.scatter_indices_batching_dims, strict=True):
        assert at < len(indices) - 1
        yield Passing((dim, at, rest[at]), (dim,))


# Putting together


@passes("concatenate")
def _concatenate(site: Site) -> Iterator[Passing]:
    return aligned(site, others(site, site.params["dimension"]))


@passes("stack")
def _stack(site: Site) -> Iterator[Passing]:
    axis = site.params["axis"]
    if axis >= 0:
        for dim in others(site):
            yield Passing((dim,) * len(site.args), (dim + (dim >= axis),))


@passes("pad")
def _pad(site: Site) -> Iterator[Passing]:
    config = site.params["padding_config"]
    return aligned(site, (d for d, amounts in enumerate(config) if tuple(amounts) == (0, 0, 0)), operands=1)


@passes("tile")
def _tile(site: Site) -> Iterator[Passing]:
    return aligned(site, (d for d, times in enumerate(site.params["reps"]) if times == 1))


@passes("rev")
def _rev(site: Site) -> Iterator[Passing]:
    return aligned(site, others(site, *site.params["dimensions"]))


@passes("reshape")
def _reshape(site: Site) -> Iterator[Passing]:
    sharding = site.params.get("sharding")
    if site.params.get("dimensions") is not None or not (sharding is None or sharding.mesh.empty):
        return
    # In row-major order a dimension is the same in both shapes if it is as long and has as many
    # elements before it. Unit dimensions change neither, and dimensions longer than 1 that have
    # equally many elements before them are the same one: no ambiguity is left.
    (operand,), (result,) = site.args, site.outs
    before = {math.prod(result[:dim]): dim for dim, length in enumerate(result) if length > 1}
    for dim in range(len(operand)):
        out = before.get(math.prod(operand[:dim]))
        if out is not None:
            yield Passing((dim,), (out,))


@passes("bitcast_convert_type")
def _bitcast(site: Site) -> Iterator[Passing]:
    # Between widths, the last dimension of one side holds the parts of an element.
    return aligned(site, range(min(len(site.args[0]), len(site.outs[0]))))


# Along one axis, elementwise, and contractions


@passes("sort")
def _sort(site: Site) -> Iterator[Passing]:
    return aligned(site, others(site, site.params["dimension"]))


@passes("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(site: Site) -> Iterator[Passing]:
    return aligned(site, others(site, site.params["axis"]))


@passes("convert_element_type", "polynomial", *(ELEMENTWISE.keys() - {"convert"}))
def _elementwise(site: Site) -> Iterator[Passing]:
    # Those with parameters that a Map has no place for. The selector of select_n, the bounds of clamp and a
    # polynomial's coefficients may be scalars, and the latter have lengths of 1.
    for dim, length in enumerate(site.outs[0]):
        yield Passing(tuple(dim if shape and shape[dim] == length else None for shape in site.args), (dim,))


@passes("optimization_barrier")
def _barrier(site: Site) -> Iterator[Passing]:
    # What it keeps together stays together, chunk by chunk: what all operands have.
    return aligned(site, range(min(map(len, site.args))))


@passes("dot_general")
def _dot_general(site: Site) -> Iterator[Passing]:
    lhs, rhs = site.args
    (left, right), (left_batch, right_batch) = site.params["dimension_numbers"]
    out = 0
    for a, b in zip(left_batch, right_batch, strict=True):
        yield Passing((a, b), (out,))
        out += 1
    for dim in (d for d in range(len(lhs)) if d not in {*left, *left_batch}):
        yield Passing((dim, None), (out,))
        out += 1
    for dim in (d for d in range(len(rhs)) if d not in {*right, *right_batch}):
        yield Passing((None, dim), (out,))
        out += 1


@passes("ragged_dot_general")
def _ragged_dot(site: Site) -> Iterator[Passing]:
    lhs, rhs, _ = site.args
    numbers = site.params["ragged_dot_dimension_numbers"]
    (left, right), (left_batch, right_batch) = numbers.dot_dimension_numbers
    free_left = [d for d in range(len(lhs)) if d not in {*left, *left_batch}]
    free_right = [
        d for d in range(len(rhs)) if d not in {*right, *right_batch, *numbers.rhs_group_dimensions}
    ]
    first = len(site.outs[0]) - len(free_left) - len(free_right)
    for out, dim in enumerate(free_left, first):
        if dim not in numbers.lhs_ragged_dimensions:
            yield Passing((dim, None, None), (out,))
    for out, dim in enumerate(free_right, first + len(free_left)):
        yield Passing((None, dim, None), (out,))


@passes("bcoo_dot_general", "bcsr_dot_general")
def _sparse_dot(site: Site) -> Iterator[Passing]:
    # What the sparse operand is made of is as it is; the dense one has dimensions of its own.
    (_, right), (_, batch) = site.params["dimension_numbers"]
    *parts, rhs = site.args
    free = [d for d in range(len(rhs)) if d not in {*right, *batch}]
    for out, dim in enumerate(free, len(site.outs[0]) - len(free)):
        yield Passing((*(None for _ in parts), dim), (out,))


@passes("coo_matmat", "csr_matmat")
def _sparse_matmat(site: Site) -> Iterator[Passing]:
    yield Passing((None, None, None, 1), (1,))


@passes("reduce_max", "reduce_min")
def _extreme(site: Site) -> Iterator[Passing]:
    for out, dim in enumerate(others(site, *site.params["axes"])):
        yield Passing((dim,), (out,))


@passes("reduce")
def _reduce(site: Site) -> Iterator[Passing]:
    gone = site.params["dimensions"]
    count = len(site.outs)  # as many operands, then as many initial values
    for out, dim in enumerate(others(site, *gone)):
        yield Passing((dim,) * count + (None,) * count, (out,) * count)


# Windows


def _whole(site: Site) -> Iterator[int]:
    """The dimensions that a windowed primitive goes through one by one."""
    params = site.params
    ones = (1,) * len(params["window_dimensions"])
    table: Sequence[Sequence[Any]] = (
        params["window_dimensions"],
        params["window_strides"],
        params.get("base_dilation") or ones,
        [tuple(amounts) == (0, 0) for amounts in params["padding"]],
    )
    return (dim for dim, entries in enumerate(zip(*table, strict=True)) if all(e == 1 for e in entries))


@passes("reduce_window_sum", "reduce_window_max", "reduce_window_min", "select_and_gather_add")
@passes("select_and_scatter_add")
def _window(site: Site) -> Iterator[Passing]:
    return aligned(site, _whole(site))


@passes("select_and_scatter")
def _select_and_scatter(site: Site) -> Iterator[Passing]:
    return aligned(site, _whole(site), operands=2)


@passes("reduce_window")
def _reduce_window(site: Site) -> Iterator[Passing]:
    return aligned(site, _whole(site), operands=len(site.outs))


@passes("conv_general_dilated")
def _convolution(site: Site) -> Iterator[Passing]:
    params = site.params
    lhs, rhs, out = params["dimension_numbers"]  # each: batch (of the kernel: output), feature, spatial
    if params["batch_group_count"] == 1:
        yield Passing((lhs[0], None), (out[0],))
        if params["feature_group_count"] == 1:
            yield Passing((None, rhs[0]), (out[1],))
        elif params["feature_group_count"] == site.args[0][lhs[1]] == site.args[1][rhs[0]]:
            # One kernel per feature: as many groups as there are features left.
            yield Passing((lhs[1], rhs[0]), (out[1],))
        else:
            yield Passing((lhs[1], rhs[0]), (out[1],), params["feature_group_count"])
    else:
        yield Passing((lhs[0], rhs[0]), (out[1],), params["batch_group_count"])
    kernel = site.args[1]
    plan = zip(
        lhs[2:], rhs[2:], out[2:], params["window_strides"], params["padding"], params["lhs_dilation"],
        strict=True,
    )  # fmt: skip
    for dim, over, to, stride, padding, dilation in plan:
        if kernel[over] == 1 and stride == 1 and tuple(padding) == (0, 0) and dilation == 1:
            yield Passing((dim, None), (to,))
