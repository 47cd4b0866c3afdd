"""How calls of collectives are printed."""

from __future__ import annotations

from typing import Any

from eqsat.backend.calls_registry import CallSite, Unprintable, call, prints
from eqsat.backend.literals import literal


def _names(value: Any) -> str:
    """The text of the axes of a mesh: of one, its name."""
    return literal(value[0] if isinstance(value, tuple) and len(value) == 1 else value)


@prints("psum", "pmax", "pmin")
def _reduction(site: CallSite) -> str:
    if any(isinstance(axis, int) for axis in site.params["axes"]):
        raise Unprintable("it sums over a dimension, too")
    return call(f"lax.{site.primitive.name}", *site.args, _names(site.params["axes"]))


@prints("all_gather")
def _gather(site: CallSite) -> str:
    site.params.skip("axis_size")
    options = {"axis": literal(site.params["all_gather_dimension"])} | site.given(tiled=False)
    return call("lax.all_gather", *site.args, _names(site.params["axis_name"]), **options)


@prints("reduce_scatter")
def _reduce_scatter(site: CallSite) -> str:
    site.params.skip("axis_size")
    options = {"scatter_dimension": literal(site.params["scatter_dimension"])} | site.given(tiled=False)
    return call("lax.psum_scatter", *site.args, _names(site.params["axis_name"]), **options)


@prints("ppermute")
def _permutation(site: CallSite) -> str:
    return call("lax.ppermute", *site.args, _names(site.params["axis_name"]), literal(site.params["perm"]))


@prints("axis_index")
def _index(site: CallSite) -> str:
    return call("lax.axis_index", _names(site.params["axis_name"]))
