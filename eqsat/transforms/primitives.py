"""The two primitives, and what each of JAX's transformations makes of them.

`eqsat_optimized` is a program; `eqsat_linear` is a linear map, of residuals and then of vectors. Evaluated or
lowered, either is planned; under any transformation, it becomes one or both of them again:

|           | `eqsat_optimized`, a `Call`                  | `eqsat_linear`, a `LinearMap`               |
|-----------|----------------------------------------------|---------------------------------------------|
| batching  | the program over the batch                   | the map over the batch                      |
| jvp       | the program, and the map of its derivative   | the same of the program from both to vectors |
| transpose | the backward program of it as a map          | the backward program                        |
| jet       | the program of the series' terms             | the same of the program from both to vectors |

`eqsat_optimized` also says which arguments are `donated`. That holds where it is evaluated by itself: inside
a `jit`, the caller decides about the arguments of the whole, and derivatives need the arguments again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import jet
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from eqsat.frontend.trace_context import like
from eqsat.transforms.call import Call
from eqsat.transforms.derivatives import as_linear, derivative, moved, primal, taylor
from eqsat.transforms.linear import LinearMap
from eqsat.transforms.selection import Mask, chosen, merged

optimized_p = Primitive("eqsat_optimized")
optimized_p.multiple_results = True

linear_p = Primitive("eqsat_linear")
linear_p.multiple_results = True


# Evaluation.


def _evaluate(*args: Any, program: Call, donated: Mask = ()) -> Sequence[Any]:
    return program.compilation.run(*args, donated=donated)


def _evaluate_linear(*args: Any, program: LinearMap) -> Sequence[Any]:
    return program.forward_call().compilation.run(*args)


# Types.


def _type(*args: Any, program: Call, donated: Mask = ()) -> tuple[list[Any], Any]:
    closed = program.closed
    return (like(closed.out_avals, args) if program.around.mesh.empty else closed.out_avals), closed.effects


def _type_linear(*args: Any, program: LinearMap) -> list[Any]:
    return like(program.outputs, args) if program.around.mesh.empty else list(program.outputs)


# Lowering.


def _lower(ctx: Any, *args: Any, program: Call, donated: Mask = ()) -> Any:
    if program.compilation.target.platforms.issuperset(ctx.module_context.platforms):
        function = program.compilation.planned().inline
    else:
        # Plans are for one platform: what is for another one stays as it is, if it may run there.
        program.compilation.check_present()
        function = jaxpr_as_fun(program.closed)
    with program.compilation.alone():
        inside = ctx.replace(avals_in=program.compilation.compiled_avals)
        results = mlir.lower_fun(function)(inside, *args)
    if inside.tokens_out is not None:  # by which its side effects keep their order
        ctx.set_tokens_out(inside.tokens_out)
    return results


def _lower_linear(ctx: Any, *args: Any, program: LinearMap) -> Any:
    return _lower(ctx, *args, program=program.forward_call())


# Batching.


def _batch(
    axis: Any, args: Sequence[Any], dims: Sequence[Any], *, program: Call, donated: Mask = ()
) -> tuple[Any, Any]:
    if all(dim is None for dim in dims) and not program.talks_over(axis.name):
        return optimized_p.bind(*args, program=program), [None] * len(program.closed.out_avals)
    batched, outs = program.batched(tuple(dims), axis.size, axis.spmd_name, axis.name)
    return optimized_p.bind(*args, program=batched), outs


def _batch_linear(
    axis: Any, args: Sequence[Any], dims: Sequence[Any], *, program: LinearMap
) -> tuple[Any, Any]:
    if all(dim is None for dim in dims) and not program.talks_over(axis.name):
        return linear_p.bind(*args, program=program), [None] * len(program.outputs)
    if all(dim is None for dim in dims):
        args, dims = [jnp.broadcast_to(args[0], (axis.size, *args[0].shape)), *args[1:]], [0, *dims[1:]]
    batched = program.batched(tuple(dims), axis.size, axis.spmd_name, axis.name)
    return linear_p.bind(*args, program=batched), [0] * len(program.outputs)


# Differentiation.


def _differentiate(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Call, donated: Mask = ()
) -> tuple[Sequence[Any], Sequence[Any]]:
    results = optimized_p.bind(*primals, program=primal(program, _nonzero(tangents)))
    return results, _tangents(primals, tangents, program)


def _tangents(primals: Sequence[Any], tangents: Sequence[Any], program: Call) -> list[Any]:
    wrt = _nonzero(tangents)
    outs = moved(program, wrt)
    avals, _ = _type(*(jax.typeof(primal) for primal in primals), program=program)
    zeros = [ad.Zero(aval.to_tangent_aval()) for aval in avals]
    if not any(outs):
        return zeros
    results = linear_p.bind(*primals, *chosen(wrt, tangents), program=derivative(program, wrt))
    kept = [zero for zero, out in zip(zeros, outs, strict=True) if not out]
    return merged(outs, results, kept)


def _differentiate_linear(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: LinearMap
) -> tuple[Sequence[Any], Sequence[Any]]:
    results = linear_p.bind(*primals, program=program)
    count = len(program.residuals)
    if any(_nonzero(tangents[:count])):
        return results, _tangents(primals, tangents, program.forward_call())
    vectors = [ad.instantiate_zeros(tangent) for tangent in tangents[count:]]
    return results, linear_p.bind(*primals[:count], *vectors, program=program)


def _nonzero(values: Sequence[Any]) -> Mask:
    return tuple(not isinstance(value, ad.Zero) for value in values)


# Transposition.


def _transpose(cotangents: Sequence[Any], *args: Any, program: Call, donated: Mask = ()) -> list[Any]:
    wrt = tuple(ad.is_undefined_primal(arg) for arg in args)
    known = [arg for arg in args if not ad.is_undefined_primal(arg)]
    results = iter(_pulled_back(cotangents, known, as_linear(program, wrt)))
    return [next(results) if mark else None for mark in wrt]


def _transpose_linear(cotangents: Sequence[Any], *args: Any, program: LinearMap) -> list[Any]:
    count = len(program.residuals)
    residuals, vectors = args[:count], args[count:]
    if any(map(ad.is_undefined_primal, residuals)):
        return _transpose(cotangents, *args, program=program.forward_call())
    results = _pulled_back(cotangents, residuals, program)
    return [None] * count + [
        result if ad.is_undefined_primal(vector) else None
        for result, vector in zip(results, vectors, strict=True)
    ]


def _pulled_back(cotangents: Sequence[Any], residuals: Sequence[Any], program: LinearMap) -> Sequence[Any]:
    which = _nonzero(cotangents)
    if not any(which):
        return [ad.Zero(aval) for aval in program.inputs]
    backward = program.backward_call(which)
    results: Sequence[Any] = optimized_p.bind(*residuals, *chosen(which, cotangents), program=backward)
    return results


# Taylor series.

EXPANSIONS: dict[Primitive, Any] = jet.jet_rules
"""JAX's rules, by primitive."""


def _expand(
    primals: Sequence[Any], series: Sequence[Sequence[Any]], *, program: Call, donated: Mask = ()
) -> tuple[Sequence[Any], list[Sequence[Any]]]:
    order, count = len(series[0]), len(program.closed.out_avals)
    terms = (term for of_argument in series for term in of_argument)
    results = optimized_p.bind(*primals, *terms, program=taylor(program, order))
    return results[:count], [results[count + number * order :][:order] for number in range(count)]


def _expand_linear(
    primals: Sequence[Any], series: Sequence[Sequence[Any]], *, program: LinearMap
) -> tuple[Sequence[Any], list[Sequence[Any]]]:
    return _expand(primals, series, program=program.forward_call())


optimized_p.def_impl(_evaluate)
optimized_p.def_effectful_abstract_eval(_type)
mlir.register_lowering(optimized_p, _lower)
batching.fancy_primitive_batchers[optimized_p] = _batch
ad.primitive_jvps[optimized_p] = _differentiate
ad.primitive_transposes[optimized_p] = _transpose
EXPANSIONS[optimized_p] = _expand

linear_p.def_impl(_evaluate_linear)
linear_p.def_abstract_eval(_type_linear)
mlir.register_lowering(linear_p, _lower_linear)
batching.fancy_primitive_batchers[linear_p] = _batch_linear
ad.primitive_jvps[linear_p] = _differentiate_linear
ad.primitive_transposes[linear_p] = _transpose_linear
EXPANSIONS[linear_p] = _expand_linear
