"""What users say of their programs: operations and properties."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

import eqsat
from eqsat.errors import EqsatError
from eqsat.ir.operations import REGISTERED, UNDECLARED, OperationSpec, known_operation, operations_in_scope
from eqsat.ir.program import Program
from eqsat.ir.properties import PROPERTIES
from eqsat.language.parse import parse_rules
from tests.frontend.named import names, spd
from tests.stages import check_meaning, lowered, normal

X, Y = normal(4, 3), normal(5, 3)
A = spd(4, 4)
SIGNATURE = "rbf[i, j, k](x: i k, y: j k) -> i j"


def kernel(x: Any, y: Any) -> Any:
    """A kernel."""
    return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1))


# Operations: they do what the function does.


def test_an_operation_is_the_function() -> None:
    rbf = eqsat.operation(kernel, signature=SIGNATURE)
    wanted = kernel(X, Y)
    np.testing.assert_allclose(rbf(X, Y), wanted, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(rbf)(X, Y), wanted, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(rbf, (None, 0))(X, Y[None])[0], wanted, rtol=1e-6)
    gradients = [jax.grad(lambda x, f=f: jnp.sum(f(x, Y)))(X) for f in (rbf, kernel)]
    np.testing.assert_allclose(*gradients, rtol=1e-5)
    jax.test_util.check_grads(rbf, (X, Y), order=2, rtol=0.05, atol=0.05)
    assert (rbf.__name__, rbf.__doc__) == ("kernel", "A kernel.")


def test_decorators_with_and_without_arguments() -> None:
    @eqsat.operation
    def plain(x: Any) -> Any:
        return x * 2

    @eqsat.operation(name="named", signature="(i)->(i)")
    def other(x: Any) -> Any:
        return x * 3

    assert UNDECLARED["plain"] is plain.__wrapped__
    assert str(REGISTERED["named"].signature) == "named[i](x: i) -> i"
    assert names(lambda x: other(x) + plain(x), X[0]) == ["named[3](0)"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (SIGNATURE, SIGNATURE),
        ("  rbf[i,j,k] ( x:i k,y:j k )->i j ", SIGNATURE),
        ("(i,k),(j,k)->(i,j)", "rbf[i, k, j](x: i k, y: j k) -> i j"),
        (" ( i , k ) , (j,k) -> (i, j)", "rbf[i, k, j](x: i k, y: j k) -> i j"),
        ("(i),()->()", "rbf[i](x: i, y) ->"),
        ("rbf[i, n](x: i, y: i) -> i n", "rbf[i, n](x: i, y: i) -> i n"),
    ],
)
def test_signatures(text: str, wanted: str) -> None:
    def rbf(x: Any, y: Any) -> Any:
        return x

    eqsat.operation(rbf, signature=text)
    assert str(REGISTERED["rbf"].signature) == wanted
    assert REGISTERED["rbf"].function is rbf


def test_operands_without_usable_names_get_some() -> None:
    eqsat.operation(lambda *xs: xs[0], name="first", signature="(i),(i)->(i)")
    assert str(REGISTERED["first"].signature) == "first[i](a0: i, a1: i) -> i"
    eqsat.operation(functools.partial(jnp.add), name="total", signature="(i),(i)->(i)")
    assert REGISTERED["total"].signature.axes == ("i",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rbf[i, j k](x: i k) -> i", r"expected `\]` or `,`"),
        ("rbf[i](x: i k) -> i", "the axis `k` of the operand `x` is not in the brackets"),
        ("rbf[i](x: i) -> j", "the axis `j` of the result is not in the brackets"),
        ("rbf[i, j](x: i) -> i", "neither an operand nor the result has the axis `j`"),
        ("rbf[i](x: i i) -> i", "twice"),
        ("rbf[i](x: i, x: i) -> i", "two operands are called `x`"),
        ("rbf[K](x: K) -> K", "`K` is a set"),
        ("(i,i)->(i)", "twice"),
        ("(N)->(N)", "`N` is a set"),
        ("(i)", "unexpected"),
        ("", "not finished"),
        ("other[i](x: i) -> i", "is of 'other', but the name is 'rbf'"),
        ("rbf[i](x: i) -> i  rule r a + 0 => a", "more than a signature"),
    ],
)
def test_signatures_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(EqsatError, match=message):
        eqsat.operation(kernel, name="rbf", signature=text)
    assert "rbf" not in REGISTERED


@pytest.mark.parametrize("name", ["solve", "sum", "exp", "spd", "chunk", "diag", "large"])
@pytest.mark.parametrize("signature", [None, "(i),(i)->(i)"])
def test_names_that_are_taken(name: str, signature: str | None) -> None:
    with pytest.raises(EqsatError):
        eqsat.operation(kernel, name=name, signature=signature)


@pytest.mark.parametrize("signature", [None, "(i)->(i)"])
def test_functions_without_a_name(signature: str | None) -> None:
    with pytest.raises(EqsatError, match=r"operation\(name=\.\.\.\)"):
        eqsat.operation(lambda x: x, signature=signature)


def test_what_is_no_function() -> None:
    with pytest.raises(EqsatError, match="takes a function"):
        eqsat.operation(3)  # type: ignore[call-overload]


def test_one_name_is_one_operation() -> None:
    eqsat.operation(kernel, name="rbf", signature=SIGNATURE)
    eqsat.operation(kernel, name="rbf", signature=SIGNATURE)
    eqsat.operation(kernel, name="rbf")
    with pytest.raises(EqsatError, match="there is already another operation `rbf`"):
        eqsat.operation(kernel, name="rbf", signature="(i,k),(j,k)->(i,j)")

    def mine(x: Any, y: Any) -> Any:
        return x @ y.T

    with pytest.raises(EqsatError, match=r"already, .*test_annotations.kernel; call .*mine something else"):
        eqsat.operation(mine, name="rbf", signature=SIGNATURE)
    assert REGISTERED["rbf"].function is kernel


def test_a_function_that_is_defined_again_replaces_itself() -> None:
    def define(factor: int) -> Any:
        @eqsat.operation(signature="(i)->(i)")
        def scaled(x: Any) -> Any:
            return x * factor

        return scaled

    old, new = define(2), define(3)
    np.testing.assert_allclose(old(X[0]), 2 * X[0])
    assert names(new, X[0]) == ["scaled[3](0)"]
    assert names(old, X[0]) == []


def test_an_operation_that_a_rules_file_declares() -> None:
    (declaration,) = parse_rules(f"operation {SIGNATURE}", "my.rules").operations
    rbf = eqsat.operation(kernel, name="rbf")
    assert names(rbf, X, Y) == []
    with operations_in_scope(lambda: {"rbf": OperationSpec(declaration.signature)}):
        found = known_operation("rbf")
        assert found is not None
        assert found.function is kernel
        assert names(rbf, X, Y) == ["rbf[4 5 3](0, 1)"]
    assert names(rbf, X, Y) == []


# Operations: what they take and return.


def test_operands_are_given_by_position() -> None:
    rbf = eqsat.operation(kernel, signature=SIGNATURE)
    with pytest.raises(TypeError, match="by position only; by name it got y"):
        rbf(X, y=Y)


def test_one_array_is_returned() -> None:
    pair = eqsat.operation(lambda x: (x, x), name="pair", signature="(i)->(i)")
    with pytest.raises(EqsatError, match="pair must return one array, not tuple"):
        pair(X)


def test_the_result_is_what_the_signature_says() -> None:
    wrong = eqsat.operation(lambda x, y: (x @ y.T).T, name="wrong", signature="(i,k),(j,k)->(i,j)")
    with pytest.raises(EqsatError, match="should have shape 4 5, but has 5 4"):
        wrong(X, Y)
    with pytest.raises(TypeError, match="has 2 operands; got 1"):
        wrong(X)
    scalar = eqsat.operation(lambda x: x, name="scalar", signature="(i)->()")
    with pytest.raises(EqsatError, match="should have shape a scalar, but has 3"):
        scalar(X[0])
    with pytest.raises(EqsatError, match="should have shape a scalar"):
        jax.vmap(scalar)(X)


# Properties.


def facts(program: Program) -> list[tuple[str, tuple[int, ...]]]:
    """The properties that are known, each with the numbers of the input's dimensions that it is about."""
    (leaf,) = program.inputs
    layout = leaf.op.layout  # type: ignore[union-attr]
    assert all(fact.term is leaf for fact in program.facts)
    return [(fact.property, tuple(layout.index(axis) for axis in fact.axes)) for fact in program.facts]


def test_what_is_assumed_is_known() -> None:
    program, _ = lowered(lambda a: eqsat.assume(a, "spd") @ a, A)
    assert facts(program) == [("spd", (0, 1))]
    program, _ = lowered(lambda a: eqsat.assume(a.T, "lower", "nonnegative") + 1, A)
    assert facts(program) == [("lower", (1, 0)), ("nonnegative", ())]
    program, _ = lowered(lambda x: jnp.sqrt(eqsat.assume(x, "positive")), X[0])
    assert facts(program) == [("positive", ())]
    program, _ = lowered(lambda a: eqsat.assume(eqsat.assume(a, "spd"), "spd", "spd") + 1, A)
    assert facts(program) == [("spd", (0, 1))]


def test_batches_of_matrices() -> None:
    batch = np.stack([A, A, A])
    said = [("lower", (1, 2))]
    assert facts(lowered(lambda a: eqsat.assume(a, "lower") + 1, batch)[0]) == said
    assert facts(lowered(jax.vmap(lambda a: eqsat.assume(a, "lower") + 1), batch)[0]) == said
    for place in range(3):
        program, _ = lowered(
            jax.vmap(lambda a: eqsat.assume(a, "lower") + 1, in_axes=place), np.moveaxis(batch, 0, place)
        )
        rows, columns = (dimension for dimension in range(3) if dimension != place)
        assert facts(program) == [("lower", (rows, columns))]
    nested = jax.vmap(jax.vmap(lambda a: eqsat.assume(a, "lower") + 1, in_axes=2), in_axes=1)
    assert facts(lowered(nested, normal(4, 2, 4, 3))[0]) == [("lower", (0, 2))]


def test_what_is_not_there_has_no_property() -> None:
    assert lowered(lambda x: eqsat.assume(jnp.full((3, 3), x), "symmetric") + 1, np.float32(1))[0].facts == ()
    assert lowered(lambda a: (eqsat.assume(jnp.exp(a), "symmetric"), a)[1], A)[0].facts == ()


def test_assuming_costs_nothing() -> None:
    def plain(a: Any) -> Any:
        return jnp.sum(a @ a)

    def said(a: Any) -> Any:
        a = eqsat.assume(a, "spd", "nonnegative")
        return jnp.sum(a @ a)

    texts = [jax.jit(fn).lower(A).compile().as_text() for fn in (plain, said)]
    assert texts[0].count(" = ") == texts[1].count(" = ")
    array = jnp.asarray(A)
    assert eqsat.assume(array, "spd") is array
    check_meaning(said, A, rtol=1e-4)


def test_assuming_works_under_transformations() -> None:
    def fn(a: Any) -> Any:
        return jnp.sum(jnp.linalg.cholesky(eqsat.assume(a, "spd")) ** 3)

    def plain(a: Any) -> Any:
        return jnp.sum(jnp.linalg.cholesky(a) ** 3)

    np.testing.assert_allclose(jax.grad(fn)(A), jax.grad(plain)(A), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.hessian(fn))(A), jax.hessian(plain)(A), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(jax.vmap(fn)(A[None])[0], fn(A), rtol=1e-5)
    transposed = jax.linear_transpose(lambda a: 2 * eqsat.assume(a, "symmetric"), A)
    np.testing.assert_allclose(transposed(A)[0], 2 * A)
    optimized = eqsat.optimize(fn, budget="1MB")
    np.testing.assert_allclose(optimized(A), fn(A), rtol=1e-5)
    scanned = jax.lax.scan(lambda c, a: (c + eqsat.assume(a, "spd"), None), A, A[None])[0]
    np.testing.assert_allclose(scanned, 2 * A)


def test_plain_numbers_can_be_assumed_of() -> None:
    assert eqsat.assume(2.0, "positive") == 2
    assert eqsat.assume(A, "spd").shape == (4, 4)


@pytest.mark.parametrize(
    ("shape", "properties", "message"),
    [
        ((3, 3), (), "assume what"),
        ((3, 3), ("hermitian",), f"no property 'hermitian'; there are {', '.join(PROPERTIES)}"),
        ((3,), ("spd",), r"'spd' is about matrices; this array has shape \(3,\)"),
        ((3, 4), ("lower", "symmetric"), "only a square matrix can be 'symmetric'; this one is 3 x 4"),
        ((5, 3, 4), ("diagonal",), "only a square matrix"),
        ((3, 4), ("orthogonal",), "4 columns of 3 entries"),
    ],
)
def test_what_can_not_be(shape: tuple[int, ...], properties: tuple[str, ...], message: str) -> None:
    with pytest.raises(EqsatError, match=message):
        eqsat.assume(jnp.zeros(shape), *properties)


@pytest.mark.parametrize("name", ["spd", "orthogonal"])
def test_what_complex_matrices_can_not_be(name: str) -> None:
    with pytest.raises(EqsatError, match=f"'{name}' is about real matrices; this one is complex64"):
        eqsat.assume(jnp.eye(3, dtype=jnp.complex64), name)
