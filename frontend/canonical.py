"""Which jitted calls are which operations: by name, and by the proof that they compute the same.

The name of a call in a jaxpr is only a hint: users have functions called `solve`, and so is the
derivative of one. So the operation's own function is traced on the same shapes, and the values of the
two are compared (`eqsat.frontend.value_numbering`). A `vmap` of a call is recognised by tracing a `vmap` of
the function: for each way in which it may have come about.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jax.extend.core import ClosedJaxpr

from eqsat.frontend.naming import Labels
from eqsat.frontend.value_numbering import Numbering, primitives
from eqsat.ir.operations import OPERATIONS, OperationSpec, known_operation

Shape = tuple[int, ...]
Level = tuple[int | None, ...]
"""One `vmap`: the dimension of each operand that it is over."""

MOST_TRACES = 24
"""The number of ways of being `vmap`ped that are tried for one call."""

HEAVY = frozenset({"lu", "cholesky", "eigh", "qr", "custom_linear_solve", "gather", "sort"})
"""Primitives that a `vmap` makes no other ones of: a call without those of the function is not of it."""


@dataclass(frozen=True, slots=True)
class Canonical:
    """A function that computes an operation.

    **Attributes:**

    - `function`: on arrays whose last dimensions are the core axes in the order of the signature.
    - `result`: the core axes of its result, in the order in which it has them.
    - `batched`: whether these arrays may have dimensions before them, which are the batch.
    """

    spec: OperationSpec
    function: Callable[..., Any]
    result: tuple[str, ...]
    batched: bool


@dataclass(frozen=True, slots=True)
class Match:
    """An operation that a call computes: what its operands' dimensions are, and those of one result."""

    spec: OperationSpec
    operands: tuple[Labels, ...]
    first: int
    result: int
    labels: Labels


def _square(matrix: Any) -> Any:
    """Rules on diagonals are about square matrices."""
    if matrix.shape[-2] != matrix.shape[-1]:
        raise ValueError(matrix.shape)
    return matrix


def _real(matrix: Any) -> Any:
    """An upper factor is the lower one transposed; if it is complex, conjugated too."""
    if jnp.iscomplexobj(matrix):
        raise ValueError(matrix.dtype)
    return matrix


def _jax(operation: str, function: Callable[..., Any], batched: bool = True, result: str = "") -> Canonical:
    spec = OPERATIONS[operation]
    return Canonical(spec, function, tuple(result.split()) or spec.signature.result, batched)


JAX: dict[str, tuple[Canonical, ...]] = {
    "inv": (_jax("inv", jnp.linalg.inv),),
    "det": (_jax("det", jnp.linalg.det),),
    "slogdet": (_jax("logdet", lambda a: jnp.linalg.slogdet(a)[1]),),
    "cholesky": (
        _jax("cholesky", jnp.linalg.cholesky),
        _jax("cholesky", lambda a: jnp.linalg.cholesky(_real(a), upper=True), result="j i"),
    ),
    "_cholesky": (
        _jax("cholesky", lambda a: jax.scipy.linalg.cholesky(a, lower=True)),
        _jax("cholesky", lambda a: jax.scipy.linalg.cholesky(_real(a)), result="j i"),
    ),
    "eigh": (_jax("eigenvalues", lambda a: jnp.linalg.eigh(a)[0]),),
    "eigvalsh": (_jax("eigenvalues", jnp.linalg.eigvalsh),),
    "diagonal": (_jax("diagonal", lambda a: jnp.diagonal(_square(a), axis1=-2, axis2=-1)),),
    "tril": (_jax("tril", jnp.tril),),
    "triu": (_jax("triu", jnp.triu),),
    "kron": (_jax("kron", jnp.kron, batched=False),),
}
"""JAX's own, by the name that their jitted calls have in a jaxpr."""


def canonical(name: str) -> Sequence[Canonical]:
    """The functions that a call of that name may be of."""
    spec = known_operation(name)
    if spec is None or spec.function is None:
        return JAX.get(name, ())
    return (*JAX.get(name, ()), Canonical(spec, spec.function, spec.signature.result, batched=False))


class Recogniser:
    """Finds the operations that calls compute. It remembers what it has traced."""

    def __init__(self) -> None:
        self._numbering = Numbering()
        self._known: dict[tuple[str, int], tuple[ClosedJaxpr, list[Match]]] = {}
        self._traced: dict[Hashable, tuple[ClosedJaxpr, Labels] | None] = {}

    def matches(self, name: str, closed: ClosedJaxpr) -> list[Match]:
        """The operations that a call of that name computes from its first, or its last, operands."""
        candidates = canonical(name)
        if not candidates:
            return []
        # JAX traces a call once for all its uses at the same shapes. What is kept here keeps its id.
        key = (name, id(closed))
        if key not in self._known:
            found = [match for candidate in candidates for match in self._match(candidate, closed)]
            self._known[key] = (closed, found)
        return self._known[key][1]

    def _match(self, candidate: Canonical, closed: ClosedJaxpr) -> Iterator[Match]:
        count = len(candidate.spec.signature.operands)
        surplus = len(closed.in_avals) - count
        if surplus < 0:
            return
        # Tangents and residuals come after the operands, values that the function closes over before.
        for first in sorted({0, surplus}):
            match = self._match_operands(candidate, closed, first)
            if match is not None:
                yield match
                return

    def _match_operands(self, candidate: Canonical, closed: ClosedJaxpr, first: int) -> Match | None:
        count = len(candidate.spec.signature.operands)
        avals = closed.in_avals[first : first + count]
        shapes = [tuple(aval.shape) for aval in avals]
        inputs = [self._numbering.number(("input", position)) for position in range(count)]
        there: set[str] | None = None
        for levels in islice(vmaps(candidate, shapes), MOST_TRACES):
            traced = self._trace(candidate, levels, avals)
            if traced is None:
                continue
            body, labels = traced
            if there is None:
                there = set(primitives(closed))
                if not HEAVY.intersection(primitives(body)) <= there:
                    return None
            (wanted,) = self._numbering.results(body, inputs)
            others = [self._numbering.number(("other", position)) for position in range(len(closed.in_avals))]
            results = self._numbering.results(closed, [*others[:first], *inputs, *others[first + count :]])
            if wanted in results:
                operands = tuple(
                    operand_labels(candidate, levels, position, len(shape))
                    for position, shape in enumerate(shapes)
                )
                return Match(candidate.spec, operands, first, results.index(wanted), labels)
        return None

    def _trace(
        self, candidate: Canonical, levels: Sequence[Level], avals: Sequence[Any]
    ) -> tuple[ClosedJaxpr, Labels] | None:
        """The jaxpr of the function under these `vmap`s, and what its result's dimensions are."""
        arguments = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in avals]
        shapes = tuple((*argument.shape, str(argument.dtype), argument.weak_type) for argument in arguments)
        key = (candidate.spec.name, candidate.function, tuple(levels), shapes)
        if key not in self._traced:
            self._traced[key] = _traced(candidate, levels, arguments)
        return self._traced[key]


def _traced(
    candidate: Canonical, levels: Sequence[Level], arguments: Sequence[Any]
) -> tuple[ClosedJaxpr, Labels] | None:
    function = jax.jit(lambda *operands: candidate.function(*operands))
    for level in reversed(levels):
        function = jax.vmap(function, in_axes=level)
    try:
        outer = jax.make_jaxpr(function)(*arguments).jaxpr
    except Exception:  # of the user's function, on shapes that it is not for: then the call is not of it
        return None
    if len(outer.outvars) != 1 or not outer.eqns or outer.eqns[0].invars != outer.invars:
        return None
    rank = len(outer.outvars[0].aval.shape)
    core = candidate.result
    inner = rank - len(levels) - len(core)
    if inner < 0 or (inner and not candidate.batched):
        return None
    labels: Labels = (*(("vmap", level) for level in range(len(levels))), *_batch(inner), *core)
    # `vmap` moves the batch of the result to the front, which in the call it may not be.
    for equation in reversed(outer.eqns[1:]):
        if equation.primitive.name != "transpose":
            return None
        moved = dict(zip(equation.params["permutation"], labels, strict=True))
        labels = tuple(moved[dimension] for dimension in range(rank))
    body: ClosedJaxpr = outer.eqns[0].params["jaxpr"]
    return body, labels


def _batch(count: int) -> Labels:
    """The dimensions before the core, which broadcast as in NumPy: the last one is that of all operands."""
    return tuple(("batch", count - 1 - position) for position in range(count))


def operand_labels(candidate: Canonical, levels: Sequence[Level], position: int, rank: int) -> Labels:
    """The labels of an operand's dimensions under these `vmap`s."""
    left = list(range(rank))
    labels: dict[int, Hashable] = {}
    for number, level in enumerate(levels):
        dimension = level[position]
        if dimension is not None:
            labels[left.pop(dimension)] = ("vmap", number)
    _, core = candidate.spec.signature.operands[position]
    labels.update(zip(left, (*_batch(len(left) - len(core)), *core), strict=True))
    return tuple(labels[dimension] for dimension in range(rank))


def vmaps(candidate: Canonical, shapes: Sequence[Shape]) -> Iterator[tuple[Level, ...]]:
    """The ways, of none to two `vmap`s, in which operands may have these shapes; the plainest first."""
    cores = [len(core) for _, core in candidate.spec.signature.operands]

    def fits(inner: Sequence[Shape]) -> bool:
        ranks = [len(shape) for shape in inner]
        return all(rank >= core for rank, core in zip(ranks, cores, strict=True)) and (
            candidate.batched or ranks == cores
        )

    def further(depth: int, inner: Sequence[Shape]) -> Iterator[tuple[Level, ...]]:
        if depth == 0:
            if fits(inner):
                yield ()
            return
        for level in product(
            *(
                (None, *range(len(shape))) if len(shape) > core else (None,)
                for shape, core in zip(inner, cores, strict=True)
            )
        ):
            lengths = {shape[d] for shape, d in zip(inner, level, strict=True) if d is not None}
            if len(lengths) == 1:
                rest = [
                    tuple(length for d, length in enumerate(shape) if d != dimension)
                    for shape, dimension in zip(inner, level, strict=True)
                ]
                yield from ((level, *below) for below in further(depth - 1, rest))

    for depth in range(3):
        yield from further(depth, shapes)
