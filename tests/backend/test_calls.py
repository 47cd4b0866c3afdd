"""Printed calls do what the primitives do, to the bit."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend import core
from jax.extend.core import primitives

import eqsat
from eqsat.backend.calls import Namespace, call_source
from eqsat.backend.calls_arrays import FUNCTIONS, OPERATORS
from eqsat.backend.literals import NotLiteral, array, element, literal, scalar
from eqsat.frontend.value_numbering import called
from tests.primitives.calls import own_jvp, own_vjp, own_vmap


def evaluate(text: str, names: Namespace, **variables: Any) -> Any:
    """The value of an emitted expression."""
    scope = {"jax": jax, "jnp": jnp, "lax": lax, **names.objects, **variables}
    for source in names.imports:
        exec(source, scope)
    return eval(text, scope)


def identical(got: Any, wanted: Any) -> bool:
    """Whether two arrays have the same dtype, shape and bits."""
    if jnp.issubdtype(wanted.dtype, jax.dtypes.extended):
        return got.dtype == wanted.dtype and identical(jax.random.key_data(got), jax.random.key_data(wanted))
    got, wanted = np.asarray(got), np.asarray(wanted)
    return (got.dtype, got.shape, got.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


def printed(closed: core.ClosedJaxpr, inputs: Sequence[Any], names: Namespace, texts: list[str]) -> list[Any]:
    """The results of a jaxpr, each primitive called by what is printed for it; calls are looked into."""
    values = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(closed.jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return jnp.asarray(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else values[atom]

    for eqn in closed.jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        inner = called(eqn)
        if inner is not None:
            results = printed(inner, operands, names, texts)
        else:
            variables = [f"operand_{number}" for number in range(len(operands))]
            shapes = [[str(n) for n in atom.aval.shape] for atom in eqn.invars]
            out_shapes = [[str(n) for n in var.aval.shape] for var in eqn.outvars]
            texts.append(call_source(eqn.primitive, eqn.params, variables, shapes, out_shapes, names))
            value = evaluate(texts[-1], names, **dict(zip(variables, operands, strict=True)))
            results = list(value) if eqn.primitive.multiple_results else [value]
        values.update(zip(eqn.outvars, results, strict=True))
    return [jnp.asarray(read(atom)) for atom in closed.jaxpr.outvars]


def roundtrip(fn: Callable[..., Any], *args: Any) -> tuple[list[str], dict[str, Any]]:
    """Prints all that a function calls, and checks that it does the same: texts, and objects in them."""
    closed = jax.make_jaxpr(fn)(*args)
    names, texts = Namespace(), list[str]()
    inputs = jax.tree.leaves(args)
    got = printed(closed, inputs, names, texts)
    wanted = list(map(jnp.asarray, core.jaxpr_as_fun(closed)(*inputs)))
    assert len(got) == len(wanted)
    assert all(map(identical, got, wanted)), texts
    return texts, names.objects


rng = np.random.default_rng(0)
x34 = jnp.asarray(rng.normal(size=(3, 4)), np.float32)
x44 = jnp.asarray(rng.normal(size=(4, 4)), np.float32)
i34 = jnp.asarray(rng.integers(-9, 9, size=(3, 4)), np.int32)
spd = x44 @ x44.T + 4 * jnp.eye(4)
key = jax.random.key(1)

SCALARS: dict[str, Any] = {
    "floats": (x34, jnp.abs(x34) + 0.5),
    "integers": (i34, jnp.abs(i34) % 5 + 1),
    "booleans": (i34 > 0, i34 % 2 == 0),
    "half floats": (x34.astype(jnp.bfloat16), x34.astype(jnp.bfloat16) + 1),
    "complex": (x34 + 2j * x34, 1 - 1j * x34),
}


@pytest.mark.one_in(24)
@pytest.mark.parametrize("primitive", [*FUNCTIONS, *OPERATORS])
def test_elementwise(primitive: str) -> None:
    """Every primitive that is a function or an operator, on all dtypes that it takes."""
    exported = primitives.add_jaxvals_p if primitive == "add_any" else getattr(lax, f"{primitive}_p", None)
    params: list[dict[str, Any]] = [{}, {"accuracy": None}, {"out_dtype": None}]
    tried = 0
    for x, y in SCALARS.values():
        if primitive == "householder_product":
            x, y, exported = x.T, x[0, :3], lax.linalg.householder_product_p
        first = i34 > 0 if primitive == "select_n" else x
        for args, extra in itertools.product([(x,), (x, y), (first, y, x)], params):
            bind = functools.partial(exported.bind, **extra)
            try:
                core.jaxpr_as_fun(jax.make_jaxpr(bind)(*args))(*args)
            except Exception:  # another number of operands, or a dtype that it does not take
                continue
            texts, objects = roundtrip(bind, *args)
            assert not objects
            assert not any(".bind" in text for text in texts)
            tried += 1
    assert tried


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "custom derivatives": (lambda x: own_jvp(x) + own_vjp(x), (x34,)),
    "custom derivative, differentiated": (jax.grad(lambda x: (own_jvp(x) * own_vjp(x)).sum()), (x34,)),
    "custom_vmap": (lambda x: own_vmap(x), (x34,)),
    "checkpoint": (jax.grad(lambda x: jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())(x)), (x34,)),
    "jit": (jax.jit(lambda x: jax.jit(jnp.sin)(x) + jax.jit(jnp.sin)(x + 1)), (x34,)),
    "softmax": (jax.nn.softmax, (x34,)),
    "gelu": (jax.nn.gelu, (x34.astype(jnp.bfloat16),)),
    "expm": (jax.scipy.linalg.expm, (spd / 9,)),
    "linear algebra": (
        lambda a, b: (jnp.linalg.solve(a, b), jnp.linalg.eigh(a), jnp.linalg.svd(b), jnp.linalg.qr(b)),
        (spd, x44),
    ),
    "more linear algebra": (
        lambda a, b: (jnp.linalg.cholesky(a), jnp.linalg.det(b), lax.linalg.schur(b), lax.linalg.eig(b)),
        (spd, x44),
    ),
    "indexing": (
        lambda x, i: (x[i % 3, 1], x.at[i % 3].add(1.5), x[::-1, ::2], jnp.sort(x, axis=0)), (x34, i34),
    ),
    "convolution": (lambda x: jnp.convolve(x.ravel(), x[0]), (x34,)),
    "fft": (lambda x: (jnp.fft.rfft(x), jnp.fft.ifft2(x)), (x34,)),
    "windows": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 1), "SAME"), (x34,)),
    "gradient of a window": (
        jax.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 1), "SAME").sum()), (x34,),
    ),
    "sorting": (lambda x: (jnp.argsort(x), lax.top_k(x, 2), jnp.argmax(x), jnp.median(x)), (x34,)),
    "joining": (
        lambda x: (jnp.stack([x, x]), jnp.pad(x, 1), jnp.tile(x, (2, 1)), lax.split(x, (1, 3), 1)),
        (x34,),
    ),
    "quantiles": (lambda x: jnp.quantile(x, jnp.array([0.1, 0.5])), (x34,)),
    "conversions": (
        lambda x: (jnp.round(x), x.astype(jnp.int8), lax.reduce_precision(x, 5, 7), x.view(jnp.uint8), x**3),
        (x34,),
    ),
    "random": (lambda k: (jax.random.normal(k, (3,)), jax.random.split(k), jax.random.fold_in(k, 3)), (key,)),
    "random batch": (
        lambda k, n: (jax.vmap(jax.random.fold_in, (None, 0))(k, n), jax.random.fold_in(k, n[0])),
        (key, np.arange(3, dtype=np.uint32)),
    ),
    "random keys": (
        lambda k, s: (jax.random.key_data(k), jax.random.key(s), jax.random.permutation(k, 7)),
        (key, jnp.int32(3)),
    ),
    "many keys": (
        jax.vmap(lambda k: (jax.random.uniform(k, (2,)), jax.random.split(k))), (jax.random.split(key),),
    ),
    "raw keys": (
        lambda k: jax.random.gamma(jax.random.wrap_key_data(k), 2.0, (2,)), (jax.random.key_data(key),),
    ),
    "barrier": (lambda x: lax.optimization_barrier((x, x + 1)), (x34,)),
    "names": (lambda x: checkpoint_name(x * 2, "residual") + 1, (x34,)),
    "precision": (lambda x: lax.dot(x, x.T, precision="highest", preferred_element_type=jnp.float32), (x34,)),
}  # fmt: skip
"""Programs that need nothing but their text."""


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    fn, args = PROGRAMS[name]
    # JAX 0.12 has primitives of another kind, for searchsorted among others; they are bound. Control flow is
    # never printed as a call: it has bodies.
    control = {"custom_linear_solve", "platform_index", "cond", "while", "scan"}
    _, objects = roundtrip(fn, *args)
    assert {re.sub(r"_\d+$", "", name) for name in objects} <= {"call_hi_primitive", *control}


def quadruple(x: Any) -> Any:
    return jax.pure_callback(lambda v: np.float32(4) * np.asarray(v), x, x)


BOUND: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "callback": (quadruple, (x34,)),
    "reduction": (lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b + 0.5, (1,)), (x34,)),
    "scatter with a function": (lambda x: x.at[jnp.array([0, 2])].apply(jnp.sin), (x34,)),
    "window": (lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 1), (1, 1), "VALID"), (x34,)),
}  # fmt: skip
"""Programs with something that no text stands for."""


@pytest.mark.parametrize("name", BOUND)
def test_program_with_objects(name: str) -> None:
    fn, args = BOUND[name]
    assert roundtrip(fn, *args)[1]


def test_double_precision() -> None:
    with jax.enable_x64(True):
        x = jnp.linspace(0, 1, 7)
        assert x.dtype == np.float64
        roundtrip(
            lambda x: (x * 0.1 + np.float64(1 / 3), jnp.arange(3) * (2**40 + 1), jnp.uint64(2**63 + 5) + 1), x
        )
        roundtrip(lambda x: lax.fori_loop(0, 5, lambda i, c: c + jnp.cumsum(c) * i, x), x)


def source(fn: Callable[..., Any], *args: Any, lengths: dict[int, str]) -> str:
    """The call of fn's first equation, with variables x, y, ... and some lengths by name."""
    (eqn, *_) = jax.make_jaxpr(fn)(*args).eqns

    def shapes(group: Any) -> list[list[str]]:
        return [[lengths.get(n, str(n)) for n in v.aval.shape] for v in group]

    texts = ["xyz"[n] if isinstance(v, core.Var) else str(int(v.val)) for n, v in enumerate(eqn.invars)]
    return call_source(eqn.primitive, eqn.params, texts, shapes(eqn.invars), shapes(eqn.outvars), Namespace())


x789, rows = jnp.zeros((7, 8, 9)), {7: "rows"}


def test_split_lengths_are_printed_by_name() -> None:
    assert source(lambda x: x[:, 2:5], x789, lengths=rows) == "lax.slice(x, (0, 2, 0), (rows, 5, 9))"
    assert (
        source(lambda x: x[:, ::2], x789, lengths=rows) == "lax.slice(x, (0, 0, 0), (rows, 8, 9), (1, 2, 1))"
    )
    assert source(lambda x: x.reshape(7, 72), x789, lengths=rows) == "lax.reshape(x, (rows, 72))"
    assert source(lambda x: jnp.broadcast_to(x, (7, 3)), x789[0, 0, :3], lengths=rows) == (
        "lax.broadcast_in_dim(x, (rows, 3), (1,))"
    )
    bind = functools.partial(lax.dynamic_slice_p.bind, slice_sizes=(7, 2))
    assert source(bind, x789[0].T[:7], 0, 1, lengths=rows) == (
        "lax.dynamic_slice(x, (y, z), (rows, 2), allow_negative_indices=False)"
    )
    assert (
        source(lambda x: lax.iota(np.int32, 7) + x, 1, lengths=rows)
        == "lax.broadcasted_iota(jnp.int32, (rows,), 0)"
    )
    assert "(rows, 1, 9)" in source(
        lambda x, i: lax_gather(x, i), x789, jnp.zeros((4, 1), np.int32), lengths=rows
    )
    assert (
        source(lambda x: lax.split(x, (3, 6), axis=2), x789, lengths=rows)
        == "tuple(lax.split(x, (3, 6), axis=2))"
    )


def lax_gather(x: Any, i: Any) -> Any:
    numbers = lax.GatherDimensionNumbers((0, 2), (1,), (1,))
    return lax.gather(x, i, numbers, (7, 1, 9))


def scattered(
    places: tuple[int, ...], depth: tuple[int, ...], inserted: tuple[int, ...], window: tuple[int, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A scatter into 7 x 8 x 9 entries, some of the places outside; and its operands."""
    rng = np.random.default_rng(0)
    numbers = lax.ScatterDimensionNumbers(
        tuple(range(len(places), len(places) + len(window))), inserted, depth
    )
    indices = rng.integers(-2, 11, (*places, len(depth))).astype(np.int32)
    updates = rng.normal(size=(*places, *window)).astype(np.float32)
    return (
        lambda x, i, u: lax.scatter_add(x, i, u, numbers, mode="drop"),
        (rng.normal(size=(7, 8, 9)).astype(np.float32), indices, updates),
    )


@pytest.mark.parametrize("places", [(5,), (4, 5), (2, 3, 4), (0, 3)])
@pytest.mark.parametrize(
    ("depth", "inserted", "window"),
    [
        ((0,), (0,), (8, 9)),
        ((1,), (1,), (7, 9)),
        ((2, 0), (0, 2), (8,)),
        ((0, 1, 2), (0, 1, 2), ()),
        ((1,), (), (7, 2, 9)),
        ((2, 1), (1,), (7, 3)),
    ],
)
def test_scatters_keep_their_meaning_however_many_dimensions_the_places_have(
    places: tuple[int, ...], depth: tuple[int, ...], inserted: tuple[int, ...], window: tuple[int, ...]
) -> None:
    fn, args = scattered(places, depth, inserted, window)
    roundtrip(fn, *args)


def test_the_updates_of_a_scatter_are_not_copied() -> None:
    def binned(x: Any, places: Any) -> Any:
        sums = lax.scan(lambda total, row: (total + row, jnp.sin(total)), x[0], x)[1]
        return jnp.zeros((32, 8)).at[places].add(sums)

    x, places = jnp.ones((200, 300, 8)), jnp.zeros((200, 300), jnp.int32)
    text = eqsat.optimize(binned, budget="1GB").plan(x, places).source
    assert text is not None
    names: dict[str, Any] = {}
    exec(text, names)
    lowered = jax.jit(names["optimized"], compiler_options=eqsat.compiler_options()).lower(x, places)
    memory = lowered.compile().memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < 1.5 * x.nbytes + places.nbytes


def test_readable() -> None:
    assert source(lambda x: lax.cumsum(x, 1), x789, lengths={}) == "lax.cumsum(x, axis=1)"
    assert source(lambda x: lax.sort(x), x789, lengths={}) == "lax.sort((x,), dimension=2)"
    solve = functools.partial(lax.linalg.triangular_solve, left_side=True, lower=True)
    assert source(solve, x44, x44, lengths={}) == (
        "jnp.transpose(lax.linalg.triangular_solve(x, jnp.transpose(y), lower=True, transpose_a=True))"
    )
    assert source(lax.linalg.svd, x44, lengths={}) == (
        "tuple(lax.linalg.svd_p.bind("
        "x, full_matrices=True, compute_uv=True, subset_by_index=None, algorithm=None))"
    )


def test_an_unknown_parameter_is_not_dropped() -> None:
    """A parameter that a newer JAX adds makes the call a plain bind of all of them."""
    (eqn,) = jax.make_jaxpr(lambda x: lax.cumsum(x))(x34).eqns
    params = {**eqn.params, "novel": 3}
    text = call_source(eqn.primitive, params, ["x"], [["3", "4"]], [["3", "4"]], Namespace())
    assert text == "lax.cumsum_p.bind(x, axis=0, reverse=False, novel=3)"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "complex64"])
def test_numbers_are_exact(dtype: str) -> None:
    dt = jnp.dtype(dtype)
    bits = np.random.default_rng(0).integers(0, 256, (300, dt.itemsize), dtype=np.uint8)
    special = np.array([0.0, -0.0, 1 / 3, 448, 2.0**-9], dt)
    values = np.concatenate([bits.view(dt)[:, 0], special])
    with jax.enable_x64(True):
        for value in values:
            with contextlib.suppress(NotLiteral):
                assert identical(eval(scalar(value, dt)), value), value
                assert identical(eval(array(value[None])), value[None])
    assert element(special[1], dt) in ("-0.0", "complex(-0.0, 0.0)")


def test_literals() -> None:
    for value in (
        1,
        -0.0,
        np.inf,
        "it's",
        b"x",
        (1, (2.5, None)),
        [True],
        {"a": (1,)},
        2 - 0.0j,
        lax.Precision.HIGH,
    ):
        assert repr(eval(literal(value))) == repr(value)
    assert eval(literal(lax.ge_p)) is lax.ge_p
    assert eval(literal(jnp.dtype("bfloat16"))) == jnp.dtype("bfloat16")
    assert literal((np.int64(3), np.float32(0.5))) == "(3, 0.5)"
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    assert eval(literal(numbers)) == numbers
    for value in (object(), jnp.sin, jax.random.key(0), float, {1}):
        with pytest.raises(NotLiteral):
            literal(value)


def test_nan_with_a_payload_is_not_text() -> None:
    for bits in (0xFFC00000, 0x7FC00001):
        with pytest.raises(NotLiteral):
            element(np.uint32(bits).view(np.float32), np.float32)


def test_namespace() -> None:
    names = Namespace(reserved=["loop"])
    assert [names.fresh("loop"), names.fresh("loop"), names.fresh("lambda"), names.fresh("<lambda>")] == [
        "loop_2", "loop_3", "lambda_2", "lambda_3",
    ]  # fmt: skip
    assert names.fresh("x1") == "value_x1"
    assert names.fresh("jnp") == "jnp_2"
    value = object()
    assert names.bind(value, "thing") == names.bind(value, "other") == "thing"
    assert names.objects == {"thing": value}
