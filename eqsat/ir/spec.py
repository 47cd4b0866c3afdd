"""Checks that a program is well-formed, in one pass over the terms. Tests run it after every stage.

A term can vary with a loop, so that the loop's axis is in its `open`, and also have that axis. Its length is
then that of the current chunk. Most of the checks of `open` say that an operand of full length never meets a
chunked one.
"""

from __future__ import annotations

from collections.abc import Iterable

from eqsat.errors import EqsatError
from eqsat.ir.axis import Axis, Layout, layout_axes
from eqsat.ir.dtypes import is_extended, is_inexact, is_real_float, numpy_dtype
from eqsat.ir.elementwise import ELEMENTWISE, IDENTITIES
from eqsat.ir.formula import Monoid
from eqsat.ir.merging import Merging
from eqsat.ir.operation_function import check_shapes
from eqsat.ir.ops import (
    Chunk,
    Concat,
    Const,
    Delta,
    Dot,
    Fold,
    Iota,
    Leaf,
    Map,
    Op,
    Opaque,
    Operation,
    Reduce,
    Rename,
    Select,
)
from eqsat.ir.program import Output, Program
from eqsat.ir.spec_control import check_control
from eqsat.ir.term import Term, infer

REDUCTIONS = frozenset({"mean", *IDENTITIES})
SELECTIONS = frozenset({"argmax", "argmin", "top_k"})


def check_program(program: Program) -> None:
    """Raises an `EqsatError` that names the first ill-formed input, term or output of `program`, if any."""
    for index, leaf in enumerate(program.inputs):
        if not isinstance(leaf.op, Leaf) or leaf.op.index != index:
            raise EqsatError(f"input {index} should be Leaf number {index}, but is {describe(leaf)}")
    for inner in program.inside(known=True):
        _check_terms(inner)
        for number, output in enumerate(inner.outputs):
            _check_output(number, output)
            if output.term.open and inner is program:
                opened = sorted(output.term.open)
                raise EqsatError(f"output {number}: {describe(output.term)} is still open in {opened}")


def _check_terms(program: Program) -> None:
    sizes: dict[int, int] = {}
    for leaf in program.inputs:
        check_term(leaf)
    for term in program.reachable():
        check_term(term)
        for axis in _axes_mentioned(term):
            if sizes.setdefault(axis.id, axis.size) != axis.size:
                _fail(term, f"axis {axis} has length {sizes[axis.id]} elsewhere in the program")
        if isinstance(term.op, Leaf) and term not in program.inputs:
            _fail(term, "a leaf that is not among the program's inputs")


def check_term(term: Term) -> None:
    """Raises an `EqsatError` if `term` is ill-formed. The operands are assumed to be well-formed."""
    op, args = term.op, term.args
    _check_arity(term)
    _check_dtype(term, term.dtype)
    _check_loops(term)
    for axis in _axes_mentioned(term):
        if axis.size == 1:
            _fail(term, f"axis {axis}: a dimension of length 1 is no axis")
    match op:
        case Leaf(layout=layout):
            _check_layout(term, layout)
        case Const(text=text, dtype=dtype):
            try:
                parse_const(text, dtype)
            except ValueError:
                _fail(term, f"{text!r} is not a constant of dtype {dtype}")
        case Delta(first=first, second=second):
            if first == second:
                _fail(term, f"compares axis {first} with itself")
            if first.size != second.size:
                _fail(term, f"axes {first} and {second} differ in length")
        case Map(name=name):
            if name not in ELEMENTWISE:
                _fail(term, f"{name!r} is not a known elementwise function")
            if ELEMENTWISE[name].boolean and term.dtype != "bool":
                _fail(term, f"{name!r} gives truth values, not {term.dtype}")
        case Reduce(kind=kind, axes=axes):
            if kind not in REDUCTIONS:
                _fail(term, f"unknown reduction {kind!r}; there are {', '.join(sorted(REDUCTIONS))}")
            _check_bound(term, "reduced", axes)
        case Dot(axes=axes):
            _check_bound(term, "contracted", axes)
        case Select(axis=axis):
            _check_select(term, op, args[0])
            if axis in args[0].open and op.kind == "top_k":
                _fail(term, f"selects along axis {axis}, of which the operand is only a chunk")
        case Rename(old=old, new=new):
            _check_rename(term, old, new, args[0])
        case Opaque():
            _check_opaque(term, op, op.call.cut)
        case Operation():
            _check_operation(term, op)
        case Fold(monoid=Monoid() as monoid):
            _check_declared_fold(term, op, monoid)
        case Fold(monoid=str() | Select() as monoid):
            _check_fold(term, op, monoid, args[0])
        case Fold(axis=axis, monoid=Opaque() as call):
            _check_accumulation(term, axis, call)
        case Fold(axis=axis, monoid=Operation() as folded):
            _check_operation(term, folded, axis)
        case Concat(axis=axis) if axis not in args[0].axes:
            _fail(term, f"the body has no axis {axis} to concatenate along")
        case _:
            pass
    if infer(op, args) != (term.axes, term.dtype, term.open):
        _fail(term, "its axes, dtype or open loops are not those that its op and operands imply")


def parse_const(text: str, dtype: str) -> bool | int | float | complex:
    """Returns the Python value of `Const(text, dtype)`.

    Raises a `ValueError` if the text is not a constant of that dtype.

    >>> parse_const("-0.0", "float32"), parse_const("True", "bool")
    (-0.0, True)
    """
    if dtype == "bool":
        if text not in ("True", "False"):
            raise ValueError(text)
        return text == "True"
    if not is_inexact(dtype):
        return int(text)
    return float(text) if is_real_float(dtype) else complex(text)


def describe(term: Term) -> str:
    """Describes a term in one line for error messages: its number, op, axes and dtype."""
    axes = " ".join(map(repr, sorted(term.axes)))
    match term.op:
        case Operation(spec=spec, axes=core):
            op = f"{spec.name}[{', '.join(map(repr, core))}]"
        case Fold(axis=axis, monoid=Monoid(name=name)):
            op = f"Fold(axis={axis!r}, monoid={name!r})"
        case other:
            op = repr(other)
    return f"term {term.number} ({op}; axes {{{axes}}}, {term.dtype})"


def _fail(term: Term, problem: str) -> None:
    operands = "".join(f"\n  operand {i}: {describe(arg)}" for i, arg in enumerate(term.args))
    raise EqsatError(f"ill-formed {describe(term)}: {problem}{operands}")


def _axes_mentioned(term: Term) -> Iterable[Axis]:
    """Yields the axes of a term, and those that its op binds or names."""
    yield from sorted(term.axes)
    match term.op:
        case Reduce(axes=axes) | Dot(axes=axes):
            yield from sorted(axes)
        case Operation(axes=core) | Fold(monoid=Operation(axes=core)):
            yield from core
        case Select(axis=axis) | Chunk(axis=axis) | Concat(axis=axis) | Fold(axis=axis):
            yield axis
        case Rename(old=old):
            yield old
        case Opaque(call=call):
            for layout in (*call.arg_layouts, *call.out_layouts):
                yield from layout_axes(layout)
        case _:
            pass


def _expected_arity(op: Op) -> int | None:
    """Returns the number of operands that an op takes, or None for an unknown elementwise function."""
    match op:
        case Leaf() | Const() | Iota() | Delta():
            return 0
        case Map(name=name):
            return ELEMENTWISE[name].arity if name in ELEMENTWISE else None
        case Dot():
            return 2
        case Opaque(call=call) | Fold(monoid=Opaque(call=call)):
            return len(call.arg_layouts)
        case Operation(spec=spec) | Fold(monoid=Operation(spec=spec)):
            return len(spec.signature.operands)
        case Fold(monoid=Monoid(state=state)):
            return len(state)
        case Reduce() | Select() | Rename() | Chunk() | Concat() | Fold():
            return 1


def _check_arity(term: Term) -> None:
    expected = _expected_arity(term.op)
    if expected is not None and len(term.args) != expected:
        _fail(term, f"takes {expected} operands, but has {len(term.args)}")
    if any(arg.number >= term.number for arg in term.args):
        _fail(term, "an operand comes after it in the table of terms")


def _check_dtype(term: Term, dtype: str) -> None:
    if not is_extended(dtype):
        try:
            numpy_dtype(dtype)
        except TypeError:
            _fail(term, f"{dtype!r} is not the name of a dtype")


def _check_layout(term: Term, layout: Layout) -> None:
    named = layout_axes(layout)
    if len(set(named)) != len(named):
        _fail(term, f"the layout {layout} names an axis twice")


def _check_bound(term: Term, verb: str, axes: frozenset[Axis]) -> None:
    """Checks that an op binds at least one axis, and that every operand has all of them."""
    if not axes:
        _fail(term, f"no axes are {verb}")
    for axis in sorted(axes):
        for position, arg in enumerate(term.args):
            if axis not in arg.axes:
                _fail(term, f"axis {axis} is {verb}, but operand {position} does not have it")


def _check_loops(term: Term) -> None:
    """Checks that chunks are opened once, that loops close open chunks, and that operands agree in length."""
    op, args = term.op, term.args
    match op:
        case Chunk(axis=axis) if axis in args[0].open:
            _fail(term, f"takes a chunk of axis {axis}, of which its operand already is one")
        case Concat(axis=axis) | Fold(axis=axis) if not any(axis in arg.open for arg in args):
            _fail(term, f"loops over axis {axis}, but the body takes no chunk of it")
        case _:
            pass
    opened = frozenset[Axis]().union(*(arg.open for arg in args))
    for axis in sorted(opened):
        for position, arg in enumerate(args):
            if axis in arg.axes and axis not in arg.open:
                _fail(term, f"operand {position} has axis {axis} at full length, another one a chunk of it")


def _check_select(term: Term, op: Select, operand: Term) -> None:
    if op.kind not in SELECTIONS:
        _fail(term, f"unknown selection {op.kind!r}; there are {', '.join(sorted(SELECTIONS))}")
    if op.axis not in operand.axes:
        _fail(term, f"selects along axis {op.axis}, which the operand does not have")
    if op.result not in (("values", "indices") if op.kind == "top_k" else ("indices",)):
        _fail(term, f"{op.kind} has no result {op.result!r}")
    if not 1 <= op.k <= op.axis.size or (op.kind != "top_k" and op.k != 1):
        _fail(term, f"cannot select {op.k} of {op.axis.size} by {op.kind}")
    if (op.out_axis is None) != (op.k == 1):
        _fail(term, f"the best {op.k} need {'no axis' if op.k == 1 else 'an axis'} of their own")
    if op.out_axis is not None:
        if op.out_axis.size != op.k:
            _fail(term, f"the out axis {op.out_axis} should have length {op.k}")
        if op.out_axis in operand.axes or op.out_axis in operand.open:
            _fail(term, f"the out axis {op.out_axis} is already an axis or an open loop of the operand")


def _check_rename(term: Term, old: Axis, new: Axis, operand: Term) -> None:
    if old not in operand.axes:
        _fail(term, f"renames axis {old}, which the operand does not have")
    if new in operand.axes or new in operand.open:
        _fail(term, f"the new name {new} is already an axis or an open loop of the operand")
    if old.size != new.size:
        _fail(term, f"axes {old} and {new} differ in length")
    if old in operand.open:
        _fail(term, f"renames axis {old}, of which the operand is only a chunk")


def _check_opaque(term: Term, op: Opaque, cut: frozenset[Axis]) -> None:
    """Checks a call that may be given chunks along the axes `cut` only."""
    call = op.call
    if call.control is not None:
        check_control(term, call)
    for layout in (*call.arg_layouts, *call.out_layouts):
        _check_layout(term, layout)
    if not 0 <= op.result < len(call.out_layouts) == len(call.out_dtypes):
        _fail(term, f"the call has no result {op.result}")
    mentioned: set[Axis] = set()
    for position, (arg, layout) in enumerate(zip(term.args, call.arg_layouts, strict=True)):
        mentioned.update(layout_axes(layout))
        if extra := arg.axes - set(layout_axes(layout)):
            _fail(term, f"operand {position} has axes {sorted(extra)}, which are not in its layout {layout}")
    mentioned.update(*map(layout_axes, call.out_layouts))
    for axis in sorted(frozenset[Axis]().union(*(arg.open for arg in term.args))):
        if axis in mentioned and axis not in cut:
            _fail(term, f"{call.primitive} is given a chunk of axis {axis}, which it needs whole")


def _check_accumulation(term: Term, axis: Axis, op: Opaque) -> None:
    call = op.call
    if axis not in call.accumulates:
        _fail(term, f"{call.primitive} does not accumulate along axis {axis}")
    if any(axis in layout_axes(layout) for layout in (call.arg_layouts[0], *call.out_layouts)):
        _fail(term, f"what {call.primitive} accumulates into has the axis {axis} itself")
    _check_opaque(term, op, call.passing | {axis})


def _check_operation(term: Term, op: Operation, folded: Axis | None = None) -> None:
    """Checks an operation, or a fold with one, which is given chunks along its first core axis."""
    signature = op.spec.signature
    if folded is not None and (not op.spec.folds or op.axes[0] != folded):
        _fail(term, f"{signature} can't be folded along axis {folded}")
    if len(set(op.axes)) != len(op.axes):
        _fail(term, f"an axis stands for two of the core axes of {signature}")
    for arg, (name, letters) in zip(term.args, signature.operands, strict=True):
        core = op.core(letters)
        for axis in core:
            if axis not in arg.axes:
                _fail(term, f"operand {name} of {signature} lacks axis {axis}")
        if extra := sorted(arg.axes & set(op.axes) - set(core)):
            _fail(term, f"operand {name} of {signature} has axis {extra[0]}, a core axis that is not its own")
        if cut := sorted(arg.open & (set(op.axes) - {folded})):
            _fail(term, f"operand {name} varies with chunks of axis {cut[0]}; {op.spec.name} needs it whole")
    try:
        check_shapes(op, [arg.dtype for arg in term.args])
    except EqsatError as error:
        _fail(term, str(error))


def _check_declared_fold(term: Term, op: Fold, monoid: Monoid) -> None:
    for name, arg in zip(monoid.state, term.args, strict=True):
        if op.axis in arg.axes:
            _fail(term, f"the part {name} still has axis {op.axis}; only a selection may leave it there")
    try:
        Merging().state(monoid, term.args)
    except EqsatError as error:
        _fail(term, str(error))


def _check_fold(term: Term, op: Fold, monoid: str | Select, body: Term) -> None:
    if isinstance(monoid, Select):
        if monoid.axis != op.axis:
            _fail(term, f"a loop over {op.axis} cannot select along {monoid.axis}")
        _check_select(term, monoid, body)
    elif monoid not in IDENTITIES:
        _fail(term, f"{monoid!r} is not a monoid; there are {', '.join(sorted(IDENTITIES))}")
    elif op.axis in body.axes:
        _fail(term, f"the body still has axis {op.axis}; only a selection may leave it there")


def _check_output(number: int, output: Output) -> None:
    term, layout = output.term, output.layout
    named = layout_axes(layout)
    if len(set(named)) != len(named):
        raise EqsatError(f"output {number}: the layout {layout} names an axis twice")
    if missing := term.axes - set(named):
        raise EqsatError(f"output {number}: axes {sorted(missing)} of {describe(term)} are not in {layout}")
