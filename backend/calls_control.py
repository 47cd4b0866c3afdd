"""How control flow and calls of functions are printed: their jaxprs become helper functions.

Rules of differentiation and batching (`custom_jvp`, `custom_vjp`, `custom_vmap`) are left out: the
emitted program is evaluated and never transformed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core

from eqsat.backend.calls_registry import Site, Unprintable, call, prints
from eqsat.backend.jaxpr_source import Writer, function, helper, jaxpr_function, returned, unpacked
from eqsat.backend.literals import literal


def closed(jaxpr: Any) -> Any:
    """A jaxpr with its constants, of which an open one must have none."""
    return jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else core.ClosedJaxpr(jaxpr, ())


@prints("jit", "pjit")
def _jit(site: Site) -> str:
    params = site.params
    for name in ("in_shardings", "out_shardings"):
        if any(type(sharding).__name__ != "UnspecifiedValue" for sharding in params[name]):
            raise Unprintable("shardings")
    for name in ("in_layouts", "out_layouts"):
        if any(layout is not None for layout in params[name]):
            raise Unprintable("layouts")
    if params["compiler_options_kvs"]:
        raise Unprintable("compiler options")
    # The emitted module is compiled as a whole.
    params.skip("ctx_mesh", "donated_invars", "inline", "keep_unused")
    return call(jaxpr_function(params["jaxpr"], params["name"], site.names), *site.args)


@prints("closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call", "custom_vmap_call")
def _call(site: Site) -> str:
    params = site.params
    jaxpr = params["call" if "call" in params else "call_jaxpr"]
    params.skip("name", "num_consts", "symbolic_zeros", "rule", "in_tree", "out_tree", "out_trees")
    params.skip("jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd")
    hint = closed(jaxpr).jaxpr.debug_info.func_name
    return call(jaxpr_function(closed(jaxpr), hint, site.names), *site.args)


@prints("checkpoint", "remat", "remat2")
def _remat(site: Site) -> str:
    params = site.params
    jaxpr = closed(params["jaxpr"])
    params.skip("policy")
    name = jaxpr_function(jaxpr, jaxpr.jaxpr.debug_info.func_name, site.names)
    prevent, differentiated = params["prevent_cse"], params["differentiated"]
    prevent = prevent if isinstance(prevent, bool) else any(prevent)
    if prevent and differentiated and site.args:
        # Without the barrier, XLA would merge this with the first computation, and keep its results.
        return f"{name}(*lax.optimization_barrier({returned(site.args)}))"
    return call(name, *site.args)


@prints("custom_linear_solve")
def _custom_linear_solve(site: Site) -> str:
    lengths, jaxprs = site.params["const_lengths"], site.params["jaxprs"]
    start = lengths.matvec + lengths.vecmat
    args = [*site.args[start : start + lengths.solve], *site.args[sum(lengths) :]]
    return call(jaxpr_function(jaxprs.solve, "solve", site.names), *args)


@prints("cond")
def _cond(site: Site) -> str:
    index, *args = site.args
    branches = [
        jaxpr_function(branch, f"branch_{number}", site.names)
        for number, branch in enumerate(site.params["branches"])
    ]
    platforms = site.params.get("branches_platforms")
    if platforms is not None:
        return call("lax.platform_dependent", *args, **_by_platform(platforms, branches))
    return call("lax.switch", index, returned(branches), *args)


@prints("platform_index")
def _platform_index(site: Site) -> str:
    platforms = site.params["platforms"]
    indices = [f"lambda: jnp.int32({index})" for index in range(len(platforms))]
    return call("lax.platform_dependent", **_by_platform(platforms, indices))


def _by_platform(platforms: Sequence[Sequence[str] | None], branches: Sequence[str]) -> dict[str, str]:
    """The options of `lax.platform_dependent` that say which branch is for which platforms."""
    options = {}
    for group, branch in zip(platforms, branches, strict=True):
        options.update(dict.fromkeys(("default",) if group is None else group, branch))
    return options


def _nested(
    writer: Writer, name: str, jaxpr: Any, consts: Sequence[str], groups: dict[str, int], split: int | None
) -> list[str]:
    """A function inside a helper: it takes tuples apart, runs a jaxpr, and returns tuples.

    **Arguments:**

    - `consts`: texts of the jaxpr's first inputs, which come from around the function.
    - `groups`: the function's parameters and how many inputs each of them holds.
    - `split`: how many results go into the first of two tuples; `None` for all results in one.
    """
    lines, inputs = [], list(consts)
    for group, count in groups.items():
        targets = writer.locals(count)
        if targets:
            lines.append(f"{unpacked(targets)} = {group}")
        inputs += targets
    statements, results = writer.body(jaxpr, inputs)
    if split is None:
        value = returned(results)
    else:
        value = f"{returned(results[:split])}, {returned(results[split:])}"
    return function(name, list(groups), [*lines, *statements, f"return {value}"])


def _scan_groups(site: Site) -> tuple[int, int]:
    """How many operands of a scan come from around it, and how many are carried."""
    params = site.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    # From JAX 0.11, trees say which operand and which result is what.
    groups = []
    for tree, count in ((params["ft_in"], len(site.args)), (params["ft_out"], len(site.out_shapes))):
        numbers = [list(group) for group in tree.update(list(range(count))).unpack()]
        if [number for group in numbers for number in group] != list(range(count)):
            raise Unprintable("a scan with its operands in another order")
        groups.append(numbers)
    return len(groups[0][0]), len(groups[0][1])


@prints("scan")
def _scan(site: Site) -> str:
    params = site.params
    jaxpr, (consts, carries) = params["jaxpr"], _scan_groups(site)
    options = {"length": literal(params["length"]), **site.given(reverse=False, unroll=1)}
    if params.get("_split_transpose"):
        raise Unprintable("a scan with a split transpose")
    params.skip("linear")

    def build(name: str) -> list[str]:
        writer = Writer(site.names)
        inputs = writer.locals(len(site.args))
        fixed, carry, slices = inputs[:consts], inputs[consts : consts + carries], inputs[consts + carries :]
        groups = {"carry": len(carry), "slices": len(slices)}
        body = _nested(writer, "body", jaxpr, fixed, groups, carries)
        loop = call("lax.scan", "body", returned(carry), returned(slices), **options)
        return function(name, inputs, [*body, "", f"carry, slices = {loop}", "return (*carry, *slices)"])

    key = ("scan", id(jaxpr.jaxpr), *map(id, jaxpr.consts), consts, carries, *options.items())
    return call(helper(site.names, "loop", key, jaxpr, build), *site.args)


@prints("while")
def _while(site: Site) -> str:
    params = site.params
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    first, second = params["cond_nconsts"], params["body_nconsts"]
    if condition.jaxpr.outvars[0].aval.shape:
        raise Unprintable("a batch of conditions")

    def build(name: str) -> list[str]:
        writer = Writer(site.names)
        inputs = writer.locals(len(site.args))
        carry = inputs[first + second :]
        groups = {"carry": len(carry)}
        lines = _nested(writer, "condition", condition, inputs[:first], groups, None)
        lines[-1] = lines[-1].replace("return (", "return ").removesuffix(",)")
        lines += ["", *_nested(writer, "body", body, inputs[first : first + second], groups, None)]
        loop = call("lax.while_loop", "condition", "body", returned(carry))
        return function(name, inputs, [*lines, "", f"return {loop}"])

    jaxprs = (condition, body)
    key = ("while", first, second, *(id(j.jaxpr) for j in jaxprs), *(id(c) for j in jaxprs for c in j.consts))
    return call(helper(site.names, "loop", key, jaxprs, build), *site.args)
