"""Which dimensions pass through collectives, which combine or move values of several devices."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.frontend.passing_registry import Passing, Site, aligned, others, passes


@passes("psum", "pmax", "pmin", "ppermute")
def _entry_by_entry(site: Site) -> Iterator[Passing]:
    if any(isinstance(axis, int) for axis in site.params.get("axes") or ()):
        return iter(())  # It sums over a dimension, too.
    return aligned(site, range(len(site.args[0])))


@passes("all_gather")
def _gather(site: Site) -> Iterator[Passing]:
    gathered, tiled = site.params["all_gather_dimension"], site.params["tiled"]
    if tiled:
        yield from aligned(site, others(site, gathered))
        return
    for dim in range(len(site.args[0])):
        yield Passing((dim,), (dim + (dim >= gathered),))


@passes("reduce_scatter")
def _reduce_scatter(site: Site) -> Iterator[Passing]:
    scattered, tiled = site.params["scatter_dimension"], site.params["tiled"]
    for dim in others(site, scattered):
        yield Passing((dim,), (dim - (not tiled and dim > scattered),))


@passes("all_to_all")
def _all_to_all(site: Site) -> Iterator[Passing]:
    if site.params["tiled"]:
        yield from aligned(site, others(site, site.params["split_axis"], site.params["concat_axis"]))
