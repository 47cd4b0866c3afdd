"""Users' statements about their programs: functions that rules can name, and properties of arrays."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from eqsat.errors import EqsatError
from eqsat.ir.operations import (
    REGISTERED,
    UNDECLARED,
    OperationSpec,
    Signature,
    definition_of,
)
from eqsat.ir.properties import PROPERTIES
from eqsat.language.check import check_file
from eqsat.language.common_mistakes import KEYWORDS
from eqsat.language.parse import parse_rules

F = TypeVar("F", bound=Callable[..., Any])

SQUARE = frozenset({"symmetric", "spd", "diagonal"})
"""The properties that only a square matrix can have."""

REAL = frozenset({"spd", "orthogonal"})
"""The properties that only a real matrix can have. For a complex one, they would involve conjugates."""

GUFUNC = re.compile(r"\s*\([^()]*\)(?:\s*,\s*\([^()]*\))*\s*->\s*\([^()]*\)\s*")
"""A signature in the notation of NumPy's generalised ufuncs."""


@overload
def operation(fn: F, *, name: str | None = None, signature: str | None = None) -> F: ...


@overload
def operation(*, name: str | None = None, signature: str | None = None) -> Callable[[F], F]: ...


def operation(fn: Any = None, *, name: str | None = None, signature: str | None = None) -> Any:
    """Makes a function an operation, which rules can name.

    The function behaves as its `jax.jit` does. In a program that `optimize` rewrites, a call of it keeps its
    name as well as its body, so rules can match it by name and replace it.

    **Arguments:**

    - `fn`: a function of arrays, given by position, that returns one array. Its result may depend on other
      values only if these never change.
    - `name`: the name that rules use; by default the function's name.
    - `signature`: the axes of the operands and of the result. It is written as in a rule,
      `"rbf[i, j, k](x: i k, y: j k) -> i j"`, or in NumPy's notation, `"(i,k),(j,k)->(i,j)"`. NumPy's
      notation lists the axes in the order in which they first occur. Without a signature, a `.rules` file
      has to declare the operation.

    **Returns:** the operation, or if `fn` is left out, a decorator.

    **Raises:** `EqsatError` if the signature is malformed, or if another function has the name.

    >>> @operation(signature="(i,k),(j,k)->(i,j)")
    ... def taxicab(x, y):
    ...     return jnp.abs(x[:, None] - y[None]).sum(-1)
    >>> taxicab(jnp.ones((2, 3)), jnp.zeros((4, 3))).shape
    (2, 4)
    """
    if fn is None:
        return lambda decorated: operation(decorated, name=name, signature=signature)
    if not callable(fn):
        raise EqsatError(f"operation takes a function, not {fn!r}")
    own = name or str(getattr(fn, "__name__", ""))
    if not own.isidentifier() and (signature is None or GUFUNC.fullmatch(signature)):
        raise EqsatError(f"rules can't call an operation {own!r}; give it a name: operation(name=...)")
    declared = None if signature is None else _parsed(signature, own, fn)
    if declared is not None and name is None:
        own = declared.name
    if declared is not None and declared.name != own:
        raise EqsatError(f"the signature {signature!r} is of {declared.name!r}, but the name is {own!r}")
    _register(own, declared, fn)
    return _callable(own, declared, fn)


def _parsed(text: str, name: str, fn: Callable[..., Any]) -> Signature:
    """Parses a signature in either notation.

    **Raises:** `EqsatError` if it is malformed.
    """
    if GUFUNC.fullmatch(text):
        text = _written_out(text, name, fn)
    file = parse_rules(f"operation {text}", "signature")
    check_file(file)
    if len(file.operations) != 1 or file.operations[0].function or file.rules or file.facts or file.monoids:
        raise EqsatError(f"{text!r} is more than a signature")
    return file.operations[0].signature


def _written_out(text: str, name: str, fn: Callable[..., Any]) -> str:
    """Translates a signature from NumPy's notation to that of rules."""
    *operands, result = [
        [axis.strip() for axis in group.split(",") if axis.strip()]
        for group in re.findall(r"\(([^()]*)\)", text)
    ]
    axes = dict.fromkeys(axis for group in (*operands, result) for axis in group)
    try:
        parameters = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        parameters = []
    if len(parameters) < len(operands) or KEYWORDS.intersection(parameters):
        parameters = [f"a{number}" for number in range(len(operands))]
    listed = [
        f"{parameter}: {' '.join(group)}" if group else parameter
        for parameter, group in zip(parameters, operands, strict=False)
    ]
    return f"{name}[{', '.join(axes)}]({', '.join(listed)}) -> {' '.join(result)}"


def _callable(name: str, signature: Signature | None, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function as a `jax.jit` whose name appears in the jaxprs of its callers."""

    def checked(*operands: Any) -> Any:
        if signature is not None and len(operands) != len(signature.operands):
            raise TypeError(f"{signature} has {len(signature.operands)} operands; got {len(operands)}")
        result = fn(*operands)
        if not hasattr(result, "shape") or not hasattr(result, "dtype"):
            raise EqsatError(f"the operation {name} must return one array, not {type(result).__name__}")
        if signature is not None:
            _check_shapes(signature, [jnp.shape(operand) for operand in operands], result.shape)
        return result

    checked.__name__ = checked.__qualname__ = name
    jitted = jax.jit(checked)

    @functools.wraps(fn)
    def call(*operands: Any, **options: Any) -> Any:
        if options:
            raise TypeError(
                f"the operation {name} takes arrays by position only; by name it got {', '.join(options)}"
            )
        return jitted(*operands)

    call.__dict__["__operation__"] = fn  # so that the text of a plan can import the function
    return call


def _check_shapes(signature: Signature, operands: Sequence[tuple[int, ...]], result: tuple[int, ...]) -> None:
    """Checks the shape of the result if the shapes of the operands match the signature.

    **Raises:** `EqsatError` if the result's shape does not match the signature.
    """
    lengths: dict[str, int] = {}
    for shape, (_, axes) in zip(operands, signature.operands, strict=True):
        if len(shape) != len(axes):
            return  # a call with operands of other ranks is not a call of the operation
        for axis, length in zip(axes, shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                return
    expected = " ".join(str(lengths.get(axis, "?")) for axis in signature.result) or "a scalar"
    if len(result) != len(signature.result) or any(
        lengths.setdefault(axis, length) != length
        for axis, length in zip(signature.result, result, strict=True)
    ):
        got = " ".join(map(str, result)) or "a scalar"
        raise EqsatError(f"{signature}: the function's result should have shape {expected}, but has {got}")


def _register(name: str, signature: Signature | None, fn: Callable[..., Any]) -> None:
    """Registers the operation, so that rules and the frontend know it.

    **Raises:** `EqsatError` if another function has the name.
    """
    if signature is None and name not in REGISTERED:
        # This raises an error if no .rules file could declare an operation of this name.
        check_file(parse_rules(f"operation {name}[i](a: i) -> i", "name"))
    known = REGISTERED.get(name)
    before = known.function if known is not None else UNDECLARED.get(name)
    if before is not None and definition_of(before) != definition_of(fn):
        raise EqsatError(
            f"there is an operation {name!r} already, {definition_of(before)}; call {definition_of(fn)}"
            " something else"
        )
    if signature is None:
        signature = known.signature if known is not None else None
    if signature is None:
        UNDECLARED[name] = fn
    else:
        REGISTERED[name] = OperationSpec(signature, function=fn)


def assume(array: Any, *properties: str) -> Any:
    """Returns `array` unchanged, and tells rules that it has the given properties.

    This costs nothing at run time. eqsat does not check the properties: if one does not hold, results may be
    wrong.

    **Arguments:**

    - `array`: any array. The properties of matrices are those of its last two dimensions.
    - `properties`: "symmetric", "spd" (symmetric positive definite), "diagonal", "lower" and "upper"
      (triangular), and "orthogonal" (orthonormal columns) are properties of matrices. "nonnegative",
      "positive" and "nonzero" are properties of every element.

    **Raises:** `EqsatError` if no property is given or one is unknown, or if an array of this shape and dtype
    can't have it.

    >>> assume(jnp.eye(2), "spd", "nonnegative").shape
    (2, 2)
    """
    shape = jnp.shape(array)
    if not properties:
        raise EqsatError(f"assume what? one of {', '.join(PROPERTIES)}")
    for name in properties:
        _check_property(name, shape, jnp.result_type(array))
    rank = len(shape)
    dimensions = (rank - 2, rank - 1) if rank >= 2 else ()
    operand = array if hasattr(array, "dtype") else jnp.asarray(array)
    return assume_p.bind(operand, properties=tuple(dict.fromkeys(properties)), dimensions=dimensions)


def _check_property(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    if name not in PROPERTIES:
        raise EqsatError(f"there is no property {name!r}; there are {', '.join(PROPERTIES)}")
    if PROPERTIES[name] == 0:
        return
    if len(shape) < 2:
        raise EqsatError(f"{name!r} is about matrices; this array has shape {shape}")
    rows, columns = shape[-2:]
    if name in SQUARE and rows != columns:
        raise EqsatError(f"only a square matrix can be {name!r}; this one is {rows} x {columns}")
    if name == "orthogonal" and columns > rows:
        raise EqsatError(f"{columns} columns of {rows} entries can't be orthonormal")
    if name in REAL and jnp.issubdtype(dtype, jnp.complexfloating):
        raise EqsatError(f"{name!r} is about real matrices; this one is {dtype}")


assume_p = Primitive("eqsat_assume")
"""The primitive that `assume` binds; it returns its operand.

Its parameters are `properties`, and `dimensions`: the dimensions of the rows and of the columns, or `()` for
arrays of fewer than two dimensions.
"""


def _batched(
    operands: Sequence[Any], batch: Sequence[int], *, properties: tuple[str, ...], dimensions: tuple[int, ...]
) -> tuple[Any, int]:
    (operand,), (place,) = operands, batch
    moved = tuple(dimension + (place <= dimension) for dimension in dimensions)
    return assume_p.bind(operand, properties=properties, dimensions=moved), place


def _differentiated(primals: Sequence[Any], tangents: Sequence[Any], **said: Any) -> tuple[Any, Any]:
    """The derivative rule: the tangent passes through, without the properties of the value."""
    return assume_p.bind(*primals, **said), tangents[0]


assume_p.def_impl(lambda operand, **_: operand)
assume_p.def_abstract_eval(lambda operand, **_: operand)
mlir.register_lowering(assume_p, lambda _, operand, **__: [operand])
batching.primitive_batchers[assume_p] = _batched
ad.primitive_jvps[assume_p] = _differentiated
ad.primitive_transposes[assume_p] = lambda cotangent, *_, **__: [cotangent]
