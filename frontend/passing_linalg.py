"""Which dimensions pass through linear algebra and Fourier transforms: the batch, and right-hand sides."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.frontend.passing_registry import Passing, Rule, Site, passes

CORES: dict[str, int] = {
    "cholesky": 2,
    "eig": 2,
    "eigh": 2,
    "geqp3": 2,
    "geqrf": 2,
    "hessenberg": 2,
    "householder_product": 2,
    "lu": 2,
    "lu_pivots_to_permutation": 1,
    "ormqr": 2,
    "qr": 2,
    "schur": 2,
    "svd": 2,
    "symmetric_product": 2,
    "tridiagonal": 2,
}
"""The rank of the first operand of one problem; all dimensions before are the batch, of all operands."""


def batch(site: Site, core: int) -> Iterator[Passing]:
    """The leading dimensions of all operands and results, but for the last `core` of the first operand."""
    for dim in range(len(site.args[0]) - core):
        yield Passing((dim,) * len(site.args), (dim,) * len(site.outs))


def batch_only(core: int) -> Rule:
    """The rule of a primitive that passes nothing but its batch."""
    return lambda site: batch(site, core)


for _name, _core in CORES.items():
    passes(_name)(batch_only(_core))


@passes("triangular_solve")
def _triangular_solve(site: Site) -> Iterator[Passing]:
    yield from batch(site, 2)
    # a @ x = b solves for each column of b by itself, x @ a = b for each row.
    dim = len(site.args[1]) - (1 if site.params["left_side"] else 2)
    yield Passing((None, dim), (dim,))


@passes("tridiagonal_solve")
def _tridiagonal_solve(site: Site) -> Iterator[Passing]:
    yield from batch(site, 1)
    dim = len(site.args[3]) - 1
    yield Passing((None, None, None, dim), (dim,))


@passes("fft")
def _fft(site: Site) -> Iterator[Passing]:
    return batch(site, len(site.params["fft_lengths"]))
