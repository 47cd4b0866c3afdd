"""Named operations, which programs call by name, and which rules match and build.

An operation is a function of arrays whose dimensions its signature names: its *core* axes. Along all other
axes of the operands it is applied to each slice separately, as `jax.vmap` would. So
`solve[i, j](A: i j, b: i) -> j` solves for every column of b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

Sizes = Mapping[str, float]
"""The lengths of the core axes, by their names in the signature."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The name of an operation, and the core axes of its operands and its result.

    >>> str(Signature("solve", ("i", "j"), (("A", ("i", "j")), ("b", ("i",))), ("j",)))
    'solve[i, j](A: i j, b: i) -> j'
    """

    name: str
    axes: tuple[str, ...]
    operands: tuple[tuple[str, tuple[str, ...]], ...]
    result: tuple[str, ...]

    def __str__(self) -> str:
        operands = ", ".join(f"{name}: {' '.join(axes)}".rstrip(": ") for name, axes in self.operands)
        return f"{self.name}[{', '.join(self.axes)}]({operands}) -> {' '.join(self.result)}".rstrip()


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """How to compute a named operation, and what it costs.

    Specs are compared by their signatures and functions.

    **Attributes:**

    - `text`: the JAX expression of the operation on arrays that have only core axes. `{A}` stands for an
      operand, `{size_i}` for the length of a core axis. It is empty for a user's operation.
    - `function`: the user's function of such arrays, for a user's operation.
    - `dtype`: the dtype of the result, or "" for that of the first operand.
    - `uniform`: whether all operands must have the dtype of the result. JAX would promote mixed dtypes.
    - `once`: the number of floating-point operations for each slice of the first operand, such as those of a
      factorisation.
    - `each`: the number of operations for each slice of the result, such as those of a solve with the
      factors. Without `once`, they are priced as elementwise work. If neither is given, the cost is one
      operation per element of the array that the core axes span.
    - `beside`: how many numbers are stored per slice during the computation, besides operands and result.
    - `overwrites`: whether its routine overwrites its first operand: of one that is given, a copy.
    - `folds`: whether chunks of its operands along the first core axis can be taken one after another, with a
      state in place of those before (`eqsat/ir/row_factors.py`).
    """

    signature: Signature
    text: str = field(default="", compare=False)
    function: Callable[..., Any] | None = None
    dtype: str = field(default="", compare=False)
    uniform: bool = field(default=False, compare=False)
    once: Callable[[Sizes], float] | None = field(default=None, compare=False)
    each: Callable[[Sizes], float] | None = field(default=None, compare=False)
    beside: Callable[[Sizes], float] | None = field(default=None, compare=False)
    overwrites: bool = field(default=False, compare=False)
    folds: bool = field(default=False, compare=False)

    @property
    def name(self) -> str:
        return self.signature.name


def parse_signature(text: str) -> Signature:
    """Parses a signature such as `solve[i, j](A: i j, b: i) -> j`.

    The text must be well-formed: it is not checked.
    """
    head, result = text.split("->")
    name, rest = head.strip().split("[", 1)
    axes, operands = rest.split("](", 1)
    pairs = (part.split(":") for part in operands.strip().removesuffix(")").split(","))
    return Signature(
        name,
        tuple(axis.strip() for axis in axes.split(",")),
        tuple((pair[0].strip(), tuple(pair[1].split()) if len(pair) > 1 else ()) for pair in pairs),
        tuple(result.split()),
    )


def _table() -> dict[str, OperationSpec]:
    table: dict[str, OperationSpec] = {}

    def enter(
        signature: str,
        text: str,
        once: Callable[[Sizes], float] | None = None,
        each: Callable[[Sizes], float] | None = None,
        dtype: str = "",
        uniform: bool = True,
        beside: Callable[[Sizes], float] | None = None,
        overwrites: bool = False,
        folds: bool = False,
    ) -> None:
        parsed = parse_signature(signature)
        table[parsed.name] = OperationSpec(
            parsed, text, None, dtype, uniform, once, each, beside, overwrites, folds
        )

    # Linear algebra. A matrix maps vectors along j to vectors along i, and its inverse maps i to j.
    enter("inv[i, j](A: i j) -> j i", "jnp.linalg.inv({A})", lambda s: 2 * s["i"] ** 3, overwrites=True)
    enter(
        "solve[i, j](A: i j, b: i) -> j",
        "jnp.linalg.solve({A}, {b})",
        lambda s: s["i"] ** 3 * 2 / 3,
        lambda s: 2 * s["i"] * s["j"],
        overwrites=True,
    )
    for name, text in (("det", "jnp.linalg.det({A})"), ("logdet", "jnp.linalg.slogdet({A})[1]")):
        enter(f"{name}[i, j](A: i j) -> ", text, lambda s: s["i"] ** 3 * 2 / 3, overwrites=True)
    enter("cholesky[i, j](A: i j) -> i j", "jnp.linalg.cholesky({A})", lambda s: s["i"] ** 3 / 3)
    solve = "jax.scipy.linalg.solve_triangular({A}, {b}, lower=%s)"
    # Nothing is factorised. Each right-hand side is priced like a product with the matrix.
    enter("solve_lower[i, j](A: i j, b: i) -> j", solve % "True", lambda s: 0, lambda s: 2 * s["i"] ** 2)
    enter("solve_upper[i, j](A: i j, b: i) -> j", solve % "False", lambda s: 0, lambda s: 2 * s["i"] ** 2)
    orthogonal, q_work = "jnp.linalg.qr({A})[0]", lambda s: 4 * s["i"] * s["j"] ** 2
    enter("qr_q[i, j](A: i j) -> i j", orthogonal, q_work, overwrites=True)
    # R of A = Q R: as many rows as A has rows or columns, whichever are fewer.
    triangular, r_work = 'jnp.linalg.qr({A}, mode="r")', lambda s: 2 * s["i"] * s["j"] ** 2
    enter("qr_r[i, l, j](A: i j) -> l j", triangular, r_work, overwrites=True, folds=True)
    # The same, where Q is read as well: both have to be of one factorisation.
    enter("qr_r_beside_q[i, l, j](A: i j) -> l j", triangular, r_work, overwrites=True)
    # Q^T b, for that Q.
    enter(
        "qr_qt[i, l, j](A: i j, b: i) -> l",
        'jnp.matmul(jnp.linalg.qr({A})[0].T, {b}, precision="highest")',
        lambda s: 4 * s["i"] * s["j"] ** 2,
        lambda s: 2 * s["i"],
        beside=lambda s: s["i"] * s["j"],
        overwrites=True,
        folds=True,
    )
    # XLA makes room for the left singular vectors even where only the singular values are asked for.
    svd = "jnp.linalg.svd({A}, full_matrices=False)[%d]"
    enter(
        "svd_u[i, l, j](A: i j) -> i l",
        svd % 0,
        lambda s: 6 * s["i"] * s["j"] ** 2 + 20 * s["j"] ** 3,
        overwrites=True,
    )
    enter(
        "svd_s[i, l, j](A: i j) -> l",
        "jnp.linalg.svd({A}, full_matrices=False, compute_uv=False)",
        lambda s: 2 * s["i"] * s["j"] ** 2 + 3 * s["j"] ** 3,
        beside=lambda s: s["i"] * s["j"],
        overwrites=True,
    )
    # The right singular vectors are its rows; and the same, where the left ones are read as well.
    for name in ("svd_v", "svd_v_beside_u"):
        enter(
            name + "[i, l, j](A: i j) -> l j",
            svd % 2,
            lambda s: 2 * s["i"] * s["j"] ** 2 + 20 * s["j"] ** 3,
            beside=lambda s: s["i"] * s["j"],
            overwrites=True,
        )
    enter("eigenvalues[i, j](A: i j) -> i", "jnp.linalg.eigvalsh({A})", lambda s: 9 * s["i"] ** 3)
    enter("diagonal[i, j](A: i j) -> i", "jnp.diagonal({A})", None, lambda s: s["i"])
    enter("tril[i, j](A: i j) -> i j", "jnp.tril({A})", None, lambda s: s["i"] * s["j"])
    enter("triu[i, j](A: i j) -> i j", "jnp.triu({A})", None, lambda s: s["i"] * s["j"])
    # Named reductions.
    enter("softmax[k](a: k) -> k", "jax.nn.softmax({a})", None, lambda s: 16 * s["k"])
    enter("logsumexp[k](a: k) -> ", "jax.nn.logsumexp({a})", None, lambda s: 14 * s["k"])
    # Rearrangements. The axis p of a merge holds the pairs of i and j, with j running fastest.
    enter("merge[i, j, p](a: i j) -> p", "jnp.reshape({a}, ({size_p},))", None, lambda s: s["p"])
    enter("split[p, i, j](a: p) -> i j", "jnp.reshape({a}, ({size_i}, {size_j}))", None, lambda s: s["p"])
    kron = "jnp.kron({A}, {B})"
    enter("kron[i, j, k, l, p, q](A: i j, B: k l) -> p q", kron, None, lambda s: s["p"] * s["q"])
    enter("reverse[n](a: n) -> n", "lax.rev({a}, (0,))", None, lambda s: s["n"])
    # A central value: the median of at most 100 evenly spaced entries without NaNs, or 0 if not finite.
    centre = "jnp.nan_to_num(jnp.nanmedian({a}[:: {size_n} // 100 + 1]), posinf=0.0, neginf=0.0)"
    enter("centre[n](a: n) -> ", centre, None, lambda s: 30 * min(s["n"], 100.0))
    enter("head[n, m](a: n) -> m", "lax.slice({a}, (0,), ({size_m},))", None, lambda s: s["m"])
    enter("append[k, l](a: k, s) -> l", "jnp.append({a}, {s})", None, lambda s: s["l"])
    enter("sort[n](a: n) -> n", "jnp.sort({a})")
    enter("argsort[n](a: n) -> n", "jnp.argsort({a})", dtype="int32")
    # The entry at an index that counts from 0, and the nearest one if the index is out of range.
    take = '{a}.at[{index}].get(mode="clip", wrap_negative_indices=False)'
    enter("take[n](a: n, index) -> ", take, None, lambda s: 1, uniform=False)
    return table


OPERATIONS: dict[str, OperationSpec] = _table()
"""The built-in operations, by the names that rules use."""

REGISTERED: dict[str, OperationSpec] = {}
"""The operations that users registered by `eqsat.operation`, by name. They are known in the whole process."""

UNDECLARED: dict[str, Callable[..., Any]] = {}
"""Functions that users registered without a signature, by name. A `.rules` file may declare the signature."""

Declared = Mapping[str, OperationSpec]
"""The operations that `.rules` files declare, by name."""

_declared: ContextVar[Callable[[], Declared]] = ContextVar("_declared", default=dict)
"""Finds the operations that the files in use declare."""


@contextmanager
def operations_in_scope(declared: Callable[[], Declared]) -> Iterator[None]:
    """A context in which the operations that some `.rules` files declare are known, and those of no others.

    New threads begin outside of it.

    **Arguments:**

    - `declared`: finds them. It is called at most once, when a name is looked up that is neither built in nor
      registered.
    """
    token = _declared.set(cache(declared))
    try:
        yield
    finally:
        _declared.reset(token)


def definition_of(fn: Callable[..., Any]) -> str:
    """Returns the module and qualified name of a function.

    They stay the same when the function is defined again, as when its module is reloaded.
    """
    return f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', repr(fn))}"


def known_operation(name: str) -> OperationSpec | None:
    """Returns the operation of that name, or None if there is none.

    An operation is built in, registered, or declared by a file in use (`operations_in_scope`). One that was
    declared without a function gets the undeclared function of its name, if any.
    """
    spec = OPERATIONS.get(name) or REGISTERED.get(name) or _declared.get()().get(name)
    if spec is not None and not spec.text and spec.function is None and name in UNDECLARED:
        return replace(spec, function=UNDECLARED[name])
    return spec
