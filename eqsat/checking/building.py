"""Builds the sides of a statement as terms of the IR.

Numbers, indices and conversions of the left side have the dtypes that were drawn for them. Those of the
right side take the dtype of the operands beside them, or else of the left side's result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from eqsat.checking.dtypes import Dtypes
from eqsat.checking.kinds import (
    CONTRACTION_KINDS,
    ELEMENTWISE_KINDS,
    IOTA_KINDS,
    ORDERED_KINDS,
    PARTS,
    REDUCTION_KINDS,
    kind_of,
    operation_kinds,
    result_kind,
)
from eqsat.checking.placement import Placement
from eqsat.checking.sizes import fits_operation
from eqsat.checking.statement import (
    ACCUMULATING,
    ENTRIES,
    PRIMITIVES,
    SELECTIONS,
    SUMMING,
    Statement,
    operation_called,
    signature_of,
)
from eqsat.engine.encode import number_text
from eqsat.ir.axis import Axis, Layout
from eqsat.ir.dtypes import counts_to
from eqsat.ir.elementwise import ELEMENTWISE
from eqsat.ir.formula import Monoid
from eqsat.ir.ops import (
    Call,
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Map,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.term import Term, Terms
from eqsat.language.functions import PLACES
from eqsat.language.syntax import (
    Apply,
    ChunkOf,
    ConcatOf,
    Contraction,
    DeltaOf,
    Expression,
    FoldOf,
    IotaOf,
    Number,
    OperationOf,
    Reduction,
    RenameOf,
    SelectionOf,
    Variable,
)

OTHER_PART = {
    "complex64": "float32",
    "complex128": "float64",
    "float32": "complex64",
    "float64": "complex128",
}
"""The dtype of the parts of each complex dtype, and the complex dtype that is made of each real one."""


class IllFormed(Exception):
    """A side is not well-formed with these axes and dtypes.

    **Attributes:**

    - `of_right`: whether it is the right side.
    """

    of_right = False


class NoSuchNumber(Exception):
    """A number does not exist in its dtype, as 0.5 in an integer one. The rule does not apply then."""


class Builder:
    """Builds the sides of one instance as terms.

    **Arguments:**

    - `axes`: the axis of the IR for the name of each axis.
    - `leaves`: the term that each variable stands for.
    - `terms`: the table that the terms are made in.
    """

    def __init__(
        self,
        statement: Statement,
        placement: Placement,
        axes: Mapping[str, Axis],
        leaves: Mapping[str, Term],
        dtypes: Dtypes,
        terms: Terms,
    ) -> None:
        self.statement = statement
        self.placement = placement
        self.axes = axes
        self.leaves = leaves
        self.dtypes = dtypes
        self.terms = terms
        self.monoids: dict[str, Monoid] = dict(statement.rule.monoids)
        self.matching = True

    def build(self, node: Expression, dtype: str, matching: bool) -> Term:
        """Returns the term of a side.

        **Arguments:**

        - `dtype`: the dtype of numbers that have no operand with a dtype beside them, on the right side.
        - `matching`: whether it is the left side.

        **Raises:** `IllFormed` or `NoSuchNumber`.
        """
        self.matching = matching
        return self.term(node, dtype)

    def check_sides(self, left: Term, right: Term) -> None:
        if left.axes != right.axes:
            names = [{n for n, a in self.axes.items() if a in side.axes} for side in (left, right)]
            left_axes, right_axes = (
                f"the axes {' '.join(sorted(side))}" if side else "no axes" for side in names
            )
            raise IllFormed(f"the left side has {left_axes}, but the right side has {right_axes}")
        if left.dtype != right.dtype:
            raise IllFormed(f"the left side has dtype {left.dtype}, but the right side has {right.dtype}")

    def set_of(self, names: Sequence[str]) -> frozenset[Axis]:
        return frozenset(self.axes[axis] for name in names for axis in self.placement.of(name))

    def require(self, dtype: str, kinds: str, what: str) -> None:
        if kind_of(dtype) not in kinds:
            raise IllFormed(f"{what} can't have the dtype {dtype}")

    def own(self, node: Expression, dtype: str) -> str:
        """Returns the dtype of a number, an index or a conversion.

        On the left side it is the one that was drawn, and on the right side that of the context.
        """
        return self.dtypes.of(node) if self.matching else dtype

    def term(self, node: Expression, dtype: str) -> Term:
        make = self.terms.make
        match node:
            case Variable(name=name):
                return self.leaves[name]
            case Number():
                return self.number(node, self.own(node, dtype))
            case Apply():
                return self.application(node, dtype)
            case IotaOf(axis=axis):
                own = self.own(node, dtype)
                self.require(own, IOTA_KINDS, f"`iota[{axis}]`")
                if self.matching and self.axes[axis].size - 1 > counts_to(own):
                    raise IllFormed(f"the dtype {own} is too narrow for the indices of `{axis}`")
                return make(Iota(self.axes[axis], own))
            case DeltaOf(first=first, second=second):
                if self.axes[first].size != self.axes[second].size:
                    raise IllFormed(f"the axes of `delta[{first}, {second}]` have different lengths")
                return make(Delta(self.axes[first], self.axes[second]))
            case Reduction():
                return self.reduction(node, self.term(node.operand, dtype))
            case Contraction():
                return self.contraction(node, self.term(node.left, dtype), self.term(node.right, dtype))
            case OperationOf():
                return self.operation(node, [self.term(operand, dtype) for operand in node.operands])
            case SelectionOf(axis=axis, out_axis=out, result=result):
                return self.selection(f"top_k:{result}", axis, out, self.term(node.operand, dtype))
            case RenameOf(old=old, new=new):
                operand = self.term(node.operand, dtype)
                return self.moved(Rename(self.axes[old], self.axes[new]), self.axes[old], operand)
            case ChunkOf(axis=axis):
                operand = self.term(node.operand, dtype)
                return self.moved(Chunk(self.axes[axis]), self.axes[axis], operand)
            case ConcatOf(axis=axis):
                return make(Concat(self.axes[axis]), [self.term(node.operand, dtype)])
            case FoldOf(monoid=monoid, operands=(OperationOf() as body,)) if monoid in ACCUMULATING:
                operands = [self.term(operand, dtype) for operand in body.operands]
                core = [self.axes[axis] for axis in body.axes]
                return self.terms.make(
                    Fold(self.axes[node.axis], self.call(monoid, core, operands)), operands
                )
            case FoldOf(operands=(OperationOf() as body,)) if body.name == node.monoid:
                operands = [self.term(operand, dtype) for operand in body.operands]
                spec = operation_called(body.name)
                folded = Operation(spec, tuple(self.axes[axis] for axis in body.axes), operands[0].dtype)
                return self.terms.make(Fold(self.axes[node.axis], folded), operands)
            case FoldOf():
                return self.fold(node, [self.term(operand, dtype) for operand in node.operands])

    def moved(self, op: Rename | Chunk, axis: Axis, operand: Term) -> Term:
        """Returns a renaming or a chunk of an operand.

        On the right side, an operand that lacks the axis is returned as it is.
        """
        if axis in operand.axes:
            if isinstance(op, Rename) and op.new in operand.axes:
                raise IllFormed("an axis is renamed to one that its operand already has")
            if isinstance(op, Rename) and op.new.size != op.old.size:
                raise IllFormed("an axis is renamed to one of another length")
            return self.terms.make(op, [operand])
        if self.matching:
            raise IllFormed("the operand of a renaming or a chunk lacks the axis")
        return operand

    def number(self, node: Number, dtype: str) -> Term:
        text = number_text(node.value, dtype)
        if text is None:
            raise NoSuchNumber(node.text)
        return self.terms.make(Const(text, dtype))

    def application(self, node: Apply, dtype: str) -> Term:
        name = node.function
        beside = {
            place: self.term(operand, dtype)
            for place, operand in enumerate(node.operands)
            if not _undecided(operand)
        }
        like = [term.dtype for place, term in beside.items() if name != "select_n" or place > 0]
        typed = like[-1] if like else "int32" if ELEMENTWISE[name].boolean else dtype
        operands = [
            beside[place] if place in beside else self.term(operand, typed)
            for place, operand in enumerate(node.operands)
        ]
        if name == "convert":
            return self.terms.make(Map("convert", self.own(node, dtype)), operands)
        cases = operands
        if name == "select_n":
            self.require(operands[0].dtype, "b", "the predicate of `select_n`")
            cases = operands[1:]
        if len({term.dtype for term in cases}) > 1:
            dtypes = " and ".join(term.dtype for term in cases)
            raise IllFormed(f"the operands of `{name}` have different dtypes: {dtypes}")
        allowed = ELEMENTWISE_KINDS[name]
        if name == "integer_pow" and (node.exponent or 0) < 0:
            allowed = "fc"
        self.require(cases[0].dtype, allowed, f"an operand of `{name}`")
        before = kind_of(cases[-1].dtype)
        after = result_kind(name, before)
        result = cases[-1].dtype
        if after != before:
            result = "bool" if after == "b" else OTHER_PART[result]
        return self.terms.make(Map(name, result, _parameters(node)), operands)

    def reduction(self, node: Reduction, operand: Term) -> Term:
        if node.kind in SELECTIONS:
            return self.selection(node.kind, node.axes[0], ENTRIES, operand)
        axes = self.set_of(node.axes)
        if not axes:
            raise IllFormed(f"`{node.kind}[{', '.join(node.axes)}]` has no axes to reduce over")
        if not axes <= operand.axes:
            raise IllFormed(f"`{node.kind}[{', '.join(node.axes)}]` reduces over axes that its operand lacks")
        self.require(operand.dtype, REDUCTION_KINDS[node.kind], f"the operand of `{node.kind}`")
        return self.terms.make(Reduce(node.kind, axes, operand.dtype), [operand])

    def contraction(self, node: Contraction, left: Term, right: Term) -> Term:
        axes = self.set_of(node.axes)
        if not axes:
            raise IllFormed(f"`dot[{', '.join(node.axes)}]` has no axes to reduce over")
        if not axes <= left.axes & right.axes:
            raise IllFormed(f"`dot[{', '.join(node.axes)}]` reduces over axes that an operand lacks")
        if left.dtype != right.dtype:
            raise IllFormed(f"the operands of `dot` have different dtypes: {left.dtype} and {right.dtype}")
        self.require(left.dtype, CONTRACTION_KINDS, "an operand of `dot`")
        return self.terms.make(Dot(axes, left.dtype), [left, right])

    def select_op(self, kind: str, axis: Axis, out: str, dtype: str) -> Select:
        name, _, result = kind.partition(":")
        entries = self.axes[out] if result else None
        k = entries.size if entries is not None else 1
        return Select(name, axis, k, entries, result or "indices", dtype if result == "values" else "int32")

    def selection(self, kind: str, axis: str, out: str, operand: Term) -> Term:
        self.require(operand.dtype, ORDERED_KINDS, f"the operand of `{kind}`")
        op = self.select_op(kind, self.axes[axis], out, operand.dtype)
        if op.k > op.axis.size:
            raise IllFormed(f"`{kind}[{axis}]` selects more entries than the axis has")
        if op.axis not in operand.axes or op.out_axis in operand.axes:
            raise IllFormed(f"the operand of `{kind}[{axis}]` lacks `{axis}`, or has the axis of the entries")
        if op.axis in operand.open and op.kind == "top_k":
            raise IllFormed(f"`{kind}[{axis}]` can't be applied to a chunk of its own axis")
        return self.terms.make(op, [operand])

    def fold(self, node: FoldOf, operands: list[Term]) -> Term:
        axis = self.axes[node.axis]
        if not any(axis in operand.open for operand in operands):
            raise IllFormed(f"nothing in `fold[{node.axis}]` depends on the chunk of `{node.axis}`")
        if node.monoid in SELECTIONS:
            op = self.select_op(node.monoid, axis, ENTRIES, operands[0].dtype)
            return self.terms.make(Fold(axis, op), operands)
        if any(axis in operand.axes for operand in operands):
            raise IllFormed(f"the operand of `fold[{node.axis}]` still has the axis `{node.axis}`")
        return self.terms.make(Fold(axis, self.monoids.get(node.monoid, node.monoid)), operands)

    # ------------------------------------------------------------------------------- operations

    def operation(self, node: OperationOf, operands: list[Term]) -> Term:
        signature = signature_of(node.name)
        core = dict(zip(signature.axes, (self.axes[axis] for axis in node.axes), strict=True))
        for operand, (name, letters) in zip(operands, signature.operands, strict=True):
            wanted = {core[letter] for letter in letters}
            if operand.axes & set(core.values()) != wanted:
                raise IllFormed(f"operand `{name}` of `{node.name}` has the wrong core axes")
            cut = frozenset(list(core.values())[-1:] if node.name in SUMMING else ())
            if operand.open & set(core.values()) - cut:
                raise IllFormed(f"`{node.name}` can't be applied to a chunk of a core axis")
        if not fits_operation(node, {name: axis.size for name, axis in self.axes.items()}):
            lengths = ", ".join(f"{axis} = {self.axes[axis].size}" for axis in node.axes)
            raise IllFormed(f"`{node.name}` can't have these lengths: {lengths}")
        if node.name in PRIMITIVES:
            return self.terms.make(self.call(node.name, list(core.values()), operands), operands)
        spec = operation_called(node.name)
        self.require(operands[0].dtype, operation_kinds(node.name), f"an operand of `{node.name}`")
        dtype = spec.dtype or operands[0].dtype
        return self.terms.make(Operation(spec, tuple(core.values()), dtype), operands)

    def call(self, name: str, axes: Sequence[Axis], operands: list[Term]) -> Opaque:
        """Returns a call of a JAX primitive, with all axes but its core axes as leading batch dimensions."""
        signature = PRIMITIVES[name]
        core = dict(zip(signature.axes, axes, strict=True))
        rest = frozenset[Axis]().union(*(operand.axes for operand in operands)) - set(axes)
        batch = tuple(sorted(rest))
        layouts: list[Layout] = [
            (*batch, *(core[letter] for letter in letters)) for _, letters in signature.operands
        ]
        accumulates = frozenset(axes[-1:] if name in ACCUMULATING else ())
        sums = frozenset(axes[-1:] if name in SUMMING else ())
        if accumulates:
            layouts[1] = (*layouts[1], None)  # the dimension of the coordinates of an index
        out = (*batch, *(core[letter] for letter in signature.result))
        last = len(layouts[0]) - 1
        parameters, primitive = _primitive(signature.name, last, operands[-1].dtype)
        # Calls with the same layouts are the same call, so they get the same number.
        number = hash((name, tuple(layouts))) % 10**6
        dtype = operands[-1].dtype
        call = Call(number, primitive, parameters, tuple(layouts), (out,), (dtype,), rest, accumulates, sums)
        return Opaque(call, 0)


def _primitive(name: str, last: int, dtype: str) -> tuple[dict[str, object], Any]:
    """Returns the parameters and the primitive of a call along the last dimension, `last`."""
    match name:
        case "sort":
            return {"dimension": last, "is_stable": True, "num_keys": 1}, jax.lax.sort_p
        case "cumsum":
            return {"axis": last, "reverse": False}, jax.lax.cumsum_p
        case "dot_general":
            numbers = (((last,), (last,)), (tuple(range(last - 1)), tuple(range(last - 1))))
            with jax.enable_x64(True):
                matrix = jax.ShapeDtypeStruct((2,) * (last + 1), dtype)
                traced = jax.make_jaxpr(lambda a, b: jax.lax.dot_general(a, b, numbers))(matrix, matrix)
            return dict(traced.eqns[-1].params), jax.lax.dot_general_p
        case "scatter_add":
            return _scattering(last, dtype), jax.lax.scatter_add_p
        case _:
            flags = {"transpose_a": False, "conjugate_a": False, "unit_diagonal": False}
            return {"left_side": True, "lower": True, **flags}, jax.lax.linalg.triangular_solve_p


def _scattering(last: int, dtype: str) -> dict[str, object]:
    """Returns the parameters of a scatter-add along dimension `last`; those before it are a batch."""
    batch = tuple(range(last))
    numbers = jax.lax.ScatterDimensionNumbers((), (last,), (last,), batch, batch)
    shapes = [(2,) * (last + 1), (2,) * (last + 1) + (1,), (2,) * (last + 1)]
    with jax.enable_x64(True):
        dtypes = (dtype, "int32", dtype)
        arrays = [jax.ShapeDtypeStruct(*one) for one in zip(shapes, dtypes, strict=True)]
        traced = jax.make_jaxpr(lambda x, index, updates: jax.lax.scatter_add(x, index, updates, numbers))(
            *arrays
        )
    return dict(traced.eqns[-1].params)


def _undecided(node: Expression) -> bool:
    """Returns whether an expression holds only numbers and indices, so that its context sets its dtype."""
    match node:
        case Number() | IotaOf():
            return True
        case ChunkOf(operand=operand) | RenameOf(operand=operand):
            return _undecided(operand)
        case Reduction(kind=kind, operand=operand):
            return kind not in PLACES and _undecided(operand)
        case Apply(function=name, operands=operands) if not _changes_dtype(name):
            return all(_undecided(operand) for operand in operands)
        case _:
            return False


def _changes_dtype(name: str) -> bool:
    return name in ("select_n", "convert", "complex", *PARTS) or ELEMENTWISE[name].boolean


def _parameters(node: Apply) -> tuple[tuple[str, int], ...]:
    if node.function == "integer_pow":
        assert node.exponent is not None
        return (("y", node.exponent),)
    return (("rounding_method", 1),) if node.function == "round" else ()
