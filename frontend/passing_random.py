"""The rules for random numbers: draws for each key, and hashes of each pair of numbers."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.frontend.generators import is_threefry
from eqsat.frontend.passing_registry import Passing, Site, aligned, others, passes


def _keys(site: Site) -> Iterator[int]:
    """The dimensions of an array of keys of JAX's default generator.

    Others may draw something else for a batch of keys.
    """
    return (dim for dim in range(len(site.args[0])) if is_threefry(site.dtypes[0]))


def _broadcast(site: Site) -> Iterator[Passing]:
    """The dimensions of the results: of what all operands have, scalars aside."""
    shape = site.outs[0]
    for dim in range(len(shape)):
        args = (dim if given and given[dim] == shape[dim] else None for given in site.args)
        yield Passing(tuple(args), (dim,) * len(site.outs))


@passes("threefry2x32")
def _threefry(site: Site) -> Iterator[Passing]:
    return _broadcast(site)


@passes("random_bits", "random_split")
def _drawn(site: Site) -> Iterator[Passing]:
    return aligned(site, _keys(site))


@passes("random_fold_in")
def _folded_in(site: Site) -> Iterator[Passing]:
    # A key for all numbers may be a scalar, and so may a number for all keys.
    if is_threefry(site.dtypes[0]):
        yield from _broadcast(site)


@passes("random_seed")
def _seeded(site: Site) -> Iterator[Passing]:
    return aligned(site, others(site))


@passes("random_wrap", "random_unwrap")
def _taken_apart(site: Site) -> Iterator[Passing]:
    # The last dimension of what is no key holds the words of a key.
    return aligned(site, range(min(len(site.args[0]), len(site.outs[0]))))
