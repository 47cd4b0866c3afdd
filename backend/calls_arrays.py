"""How calls of the primitives on arrays are printed. Lengths that may be split come from the shapes."""

from __future__ import annotations

from jax import lax

from eqsat.backend.calls_registry import CallSite, Printer, Unprintable, call, prints
from eqsat.backend.literals import dtype_name, items, literal

OPERATORS = {
    "add": "+",
    "add_any": "+",
    "sub": "-",
    "mul": "*",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&",
    "or": "|",
    "xor": "^",
}
"""Primitives that Python's operators are on arrays of one dtype. (`/` and `%` differ on integers.)"""

SAME_NAME = """
abs acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz complex cos cosh
digamma div eq erf erf_inv erfc exp exp2 expm1 floor igamma igamma_grad_a igammac imag is_finite
lgamma log log1p logistic max min mulhi ne nextafter polygamma population_count pow real rem rsqrt
select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square
stop_gradient tan tanh zeta
"""
"""Primitives that are functions of `jax.lax` under their own names."""

FUNCTIONS = {
    **{name: f"lax.{name}" for name in SAME_NAME.split()},
    "not": "lax.bitwise_not",
    "regularized_incomplete_beta": "lax.betainc",
    "householder_product": "lax.linalg.householder_product",
}
"""Functions that take the operands and nothing else, and do nothing besides the primitive."""


def _function(name: str) -> Printer:
    return lambda site: call(name, *site.args)


def _operator(symbol: str) -> Printer:
    return lambda site: f"{site.args[0]} {symbol} {site.args[1]}"


for _primitive, _name in FUNCTIONS.items():
    prints(_primitive)(_function(_name))
for _primitive, _symbol in OPERATORS.items():
    prints(_primitive)(_operator(_symbol))


@prints("neg")
def _neg(site: CallSite) -> str:
    return f"-{site.args[0]}"


@prints("name")
def _name_of_residual(site: CallSite) -> str:
    # Only differentiation reads the names.
    site.params.skip("name")
    return site.args[0]


@prints("conj")
def _conj(site: CallSite) -> str:
    site.params.skip("input_dtype")
    return call("lax.conj", *site.args)


@prints("integer_pow")
def _integer_pow(site: CallSite) -> str:
    return call("lax.integer_pow", *site.args, literal(site.params["y"]))


@prints("round")
def _round(site: CallSite) -> str:
    return call("lax.round", *site.args, literal(site.params["rounding_method"]))


@prints("reduce_precision")
def _reduce_precision(site: CallSite) -> str:
    names = ("exponent_bits", "mantissa_bits")
    return call("lax.reduce_precision", *site.args, **{name: literal(site.params[name]) for name in names})


@prints("convert_element_type")
def _convert(site: CallSite) -> str:
    site.params.skip("weak_type")
    return call("lax.convert_element_type", *site.args, dtype_name(site.params["new_dtype"]))


@prints("bitcast_convert_type")
def _bitcast(site: CallSite) -> str:
    return call("lax.bitcast_convert_type", *site.args, dtype_name(site.params["new_dtype"]))


# Shapes


@prints("broadcast_in_dim")
def _broadcast_in_dim(site: CallSite) -> str:
    site.params.skip("shape")
    dims = literal(site.params["broadcast_dimensions"])
    return call("lax.broadcast_in_dim", site.args[0], items(site.out_shapes[0]), dims)


@prints("reshape")
def _reshape(site: CallSite) -> str:
    site.params.skip("new_sizes")
    return call("lax.reshape", site.args[0], items(site.out_shapes[0]), **site.given(dimensions=None))


@prints("transpose")
def _transpose(site: CallSite) -> str:
    return call("lax.transpose", site.args[0], literal(site.params["permutation"]))


@prints("squeeze")
def _squeeze(site: CallSite) -> str:
    return call("lax.squeeze", site.args[0], literal(site.params["dimensions"]))


@prints("rev")
def _rev(site: CallSite) -> str:
    return call("lax.rev", site.args[0], literal(site.params["dimensions"]))


@prints("tile")
def _tile(site: CallSite) -> str:
    return call("lax.tile", site.args[0], literal(site.params["reps"]))


@prints("iota")
def _iota(site: CallSite) -> str:
    site.params.skip("shape")
    if site.args:
        raise Unprintable("a shape that is known at run time only")
    dtype, dim = dtype_name(site.params["dtype"]), literal(site.params["dimension"])
    return call("lax.broadcasted_iota", dtype, items(site.out_shapes[0]), dim)


@prints("concatenate")
def _concatenate(site: CallSite) -> str:
    return call("lax.concatenate", items(site.args), literal(site.params["dimension"]))


@prints("stack")
def _stack(site: CallSite) -> str:
    return call("lax.stack", items(site.args), axis=literal(site.params["axis"]))


@prints("unstack")
def _unstack(site: CallSite) -> str:
    return call("lax.unstack", site.args[0], axis=literal(site.params["axis"]))


@prints("split")
def _split(site: CallSite) -> str:
    axis = site.params["axis"]
    site.params.skip("sizes")
    sizes = items(shape[axis] for shape in site.out_shapes)
    return f"tuple({call('lax.split', site.args[0], sizes, axis=literal(axis))})"


@prints("pad")
def _pad(site: CallSite) -> str:
    return call("lax.pad", *site.args, literal(site.params["padding_config"]))


@prints("optimization_barrier")
def _optimization_barrier(site: CallSite) -> str:
    return call("lax.optimization_barrier", items(site.args))


@prints("device_put")
def _device_put(site: CallSite) -> str:
    # Without devices, it only says that the operands are arrays.
    if any(place is not None for name in ("devices", "srcs") for place in site.params[name]):
        raise Unprintable("devices")
    site.params.skip("copy_semantics")
    return call("jax.device_put", items(site.args))


# Taking and putting parts


@prints("slice")
def _slice(site: CallSite) -> str:
    starts, limits, strides = (site.params[k] for k in ("start_indices", "limit_indices", "strides"))
    texts = [
        # Of a dimension taken from 0 in steps of 1, the limit is the result's length, even if split.
        length if start == 0 and (strides is None or strides[dim] == 1) else literal(limits[dim])
        for dim, (start, length) in enumerate(zip(starts, site.out_shapes[0], strict=True))
    ]
    steps = [] if strides is None or set(strides) <= {1} else [literal(strides)]
    return call("lax.slice", site.args[0], literal(starts), items(texts), *steps)


@prints("dynamic_slice")
def _dynamic_slice(site: CallSite) -> str:
    site.params.skip("slice_sizes")
    sizes = items(site.out_shapes[0])
    # The function would count negative starts from the end; the primitive takes them for 0.
    return call(
        "lax.dynamic_slice", site.args[0], items(site.args[1:]), sizes, allow_negative_indices="False"
    )


@prints("dynamic_update_slice")
def _dynamic_update_slice(site: CallSite) -> str:
    starts = items(site.args[2:])
    return call("lax.dynamic_update_slice", *site.args[:2], starts, allow_negative_indices="False")


@prints("gather")
def _gather(site: CallSite) -> str:
    numbers = site.params["dimension_numbers"]
    sizes = list(map(literal, site.params["slice_sizes"]))
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    for dim, out in zip((d for d in range(len(sizes)) if d not in gone), numbers.offset_dims, strict=True):
        sizes[dim] = site.out_shapes[0][out]
    options = site.given(unique_indices=False, indices_are_sorted=False)
    options["mode"] = literal(site.params["mode"])
    return call(
        "lax.gather", *site.args, literal(numbers), items(sizes), **options, **site.given(fill_value=None)
    )


@prints("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max", "scatter")
def _scatter(site: CallSite) -> str:
    if site.primitive.name == "scatter" and site.params["update_jaxpr"] is not None:
        raise Unprintable("a scatter with an update function")
    site.params.skip("update_jaxpr", "update_consts")  # what the primitive's name says
    operand, indices, updates, numbers = _with_one_scatter_dimension(site)
    options = site.given(indices_are_sorted=False, unique_indices=False)
    options["mode"] = literal(site.params["mode"])
    function = f"lax.{site.primitive.name.replace('-', '_')}"
    return call(function, operand, indices, updates, literal(numbers), **options)


def _with_one_scatter_dimension(site: CallSite) -> tuple[str, str, str, lax.ScatterDimensionNumbers]:
    """The operands of a scatter and its dimension numbers, with all places in one dimension.

    XLA rewrites a scatter to that form itself, but then copies the updates.
    """
    operand, indices, updates = site.args
    numbers: lax.ScatterDimensionNumbers = site.params["dimension_numbers"]
    into, places, shape = site.arg_shapes
    count = len(shape) - len(numbers.update_window_dims)
    behind = tuple(numbers.update_window_dims) == tuple(range(count, len(shape)))
    if count < 2 or not behind or numbers.operand_batching_dims or "0" in (*places, *shape):
        return operand, indices, updates, numbers
    sizes = iter(shape[count:])
    window = ["1" if dim in numbers.inserted_window_dims else next(sizes) for dim in range(len(into))]
    flat = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, 1 + len(into))),
        inserted_window_dims=(),
        scatter_dims_to_operand_dims=numbers.scatter_dims_to_operand_dims,
    )
    indices = call("jnp.reshape", indices, items(["-1", places[-1]]))
    return operand, indices, call("jnp.reshape", updates, items(["-1", *window])), flat


# Along axes


@prints("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor")
def _reduce(site: CallSite) -> str:
    return call(f"lax.{site.primitive.name}", site.args[0], axes=literal(tuple(site.params["axes"])))


@prints("argmax", "argmin")
def _arg_reduce(site: CallSite) -> str:
    (axis,) = site.params["axes"]
    dtype = dtype_name(site.params["index_dtype"])
    return call(f"lax.{site.primitive.name}", site.args[0], literal(axis), dtype)


@prints("top_k")
def _top_k(site: CallSite) -> str:
    text = call("lax.top_k", site.args[0], literal(site.params["k"]), axis=literal(site.params["axis"]))
    return f"tuple({text})"


@prints("sort")
def _sort(site: CallSite) -> str:
    options = {"dimension": literal(site.params["dimension"]), **site.given(is_stable=True, num_keys=1)}
    return call("lax.sort", items(site.args), **options)


@prints("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(site: CallSite) -> str:
    axis = literal(site.params["axis"])
    return call(f"lax.{site.primitive.name}", site.args[0], axis=axis, **site.given(reverse=False))


@prints("empty", "empty2")
def _empty(site: CallSite) -> str:
    # Nothing reads an empty value, so any will do.
    site.params.skip("memory_space")
    return call("jnp.zeros", items(site.out_shapes[0]), dtype_name(site.params["dtype"]))
