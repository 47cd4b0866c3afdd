"""Programs are planned for GPUs and TPUs that are not present, and certified by their compilers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import eqsat
from eqsat.backend.certificate import certify
from eqsat.errors import BudgetError, EqsatError
from eqsat.support.units import parse_budget
from eqsat.targets.absent_devices import AbsentDevice
from eqsat.targets.catalogue import find_target
from eqsat.targets.cpu import CPU

TARGETS = ("h100", "tpu-v5e")


def shape(*lengths: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(lengths, dtype)


def kernel_matvec(x: Any, y: Any, v: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1) / 2) @ v


def neighbours(x: Any, y: Any) -> Any:
    return lax.top_k(-jnp.sum((x[:, None] - y[None]) ** 2, -1), 5)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T) @ v


def gaussian_process(x: Any, y: Any) -> Any:
    factor = jnp.linalg.cholesky(kernel(x) + jnp.eye(len(x)))
    return jnp.sum(jax.scipy.linalg.solve_triangular(factor, y, lower=True) ** 2)


def kernel(x: Any) -> Any:
    return jnp.exp(-jnp.sum((x[:, None] - x[None]) ** 2, -1))


CASES: list[tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...], str]] = [
    (kernel_matvec, (shape(6_000, 3), shape(5_000, 3), shape(5_000)), "10MB"),
    (
        jax.grad(lambda *xs: kernel_matvec(*xs).sum()),
        (shape(3_000, 3), shape(2_000, 3), shape(2_000)),
        "10MB",
    ),
    (neighbours, (shape(500, 20), shape(4_000, 20)), "4MB"),
    (attention, (shape(2_048, 64), shape(2_048, 64), shape(2_048, 64)), "8MB"),
    (gaussian_process, (shape(1_000, 4), shape(1_000)), "20MB"),
]


NAMES = ("kernel", "gradient", "neighbours", "attention", "cholesky")

SLOW = {("neighbours", "tpu-v5e"), ("cholesky", "tpu-v5e")}
"""What a compiler takes long for."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("case", "target"),
    [
        pytest.param(
            case, target, id=f"{name}-{target}", marks=[pytest.mark.nightly] * ((name, target) in SLOW)
        )
        for name, case in zip(NAMES, CASES, strict=True)
        for target in TARGETS
    ],
)
def test_the_targets_own_compiler_certifies_the_plan(
    target: str, case: tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...], str]
) -> None:
    function, shapes, budget = case
    plan = eqsat.optimize(function, budget=budget, target=target).plan(*shapes)
    assert plan.target == target
    assert plan.peak_bytes <= parse_budget(budget)
    # What anybody gets who compiles the source for the device.
    namespace: dict[str, Any] = {}
    exec(plan.source, namespace)
    found = certify(namespace["optimized"], [*shapes, *plan.constants], target=find_target(target))
    assert found.peak <= parse_budget(budget)
    if plan.changed:
        assert plan.peak_bytes < plan.original_peak_bytes or plan.predicted_seconds < plan.original_seconds


def kernel_density(x: Any, y: Any) -> Any:
    return jnp.mean(jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1)), 1)


def nearest(x: Any, y: Any) -> Any:
    return jnp.argmin(jnp.sum((x[:, None] - y[None]) ** 2, -1), 1)


def log_density(x: Any, y: Any) -> Any:
    return jax.nn.logsumexp(-jnp.sum((x[:, None] - y[None]) ** 2, -1), 1)


@pytest.mark.parametrize(("target", "budget"), [("h100", "250MB"), ("tpu-v5e", "20MB")])
@pytest.mark.one_in(4)
@pytest.mark.parametrize("function", [kernel_matvec, kernel_density, nearest, log_density])
def test_what_the_compiler_fuses_needs_no_loop(
    target: str, budget: str, function: Callable[..., Any]
) -> None:
    """Kernel matrices of 100,000 by 100,000 points, which are 40 GB if they are stored."""
    vector = [shape(100_000)] if function is kernel_matvec else []
    plan = eqsat.optimize(function, budget=budget, target=target).plan(
        shape(100_000, 3), shape(100_000, 3), *vector
    )
    assert not plan.loops
    assert plan.peak_bytes <= parse_budget(budget)


def test_a_kernel_matrix_times_several_vectors_is_split() -> None:
    """As a sum of products it would be stored, too, before it is broadcast along the vectors."""
    with jax.enable_x64(True):
        points, vectors = shape(10_000, 1, dtype="float64"), shape(10_000, 8, dtype="float64")
        plan = eqsat.optimize(kernel_matvec, budget="82MB", target="h100").plan(points, points, vectors)
    assert plan.loops
    assert plan.peak_bytes <= 82_000_000


def test_a_loop_whose_body_reads_a_kernel_several_times_computes_it_by_chunks() -> None:
    """Sinkhorn's iterations: the gradient of a logsumexp over rows and over columns, in a scan."""
    n = 2_000

    def potentials(x: Any, y: Any) -> Any:
        def loss(f: Any) -> Any:
            cost = jnp.sum((x[:, None] - y[None]) ** 2, -1)
            g = -jax.nn.logsumexp(f[:, None] - cost, axis=0)
            return jnp.sum(jax.nn.logsumexp(g[None] - cost, axis=1) ** 2)

        return lax.scan(lambda f, _: (f - 0.1 * jax.grad(loss)(f), None), jnp.zeros(n), length=5)[0]

    plan = eqsat.optimize(potentials, budget="5MB", target="h100").plan(shape(n, 3), shape(n, 3))
    assert plan.peak_bytes <= 5_000_000 < 4 * n * n


@pytest.mark.parametrize("target", ["h100", "h200"])
def test_short_sums_are_computed_for_each_of_their_readers(target: str) -> None:
    """Sinkhorn's iterations read squared distances in three dimensions four times each: 1.6 GB, if stored."""
    n = 20_000

    def potentials(x: Any, y: Any) -> Any:
        cost = jnp.sum((x[:, None] - y[None]) ** 2, -1)

        def iteration(_: Any, g: Any) -> Any:
            f = -jax.nn.logsumexp(g[None] - cost, axis=1)
            return -jax.nn.logsumexp(f[:, None] - cost, axis=0)

        return lax.fori_loop(0, 10, iteration, jnp.zeros(n))

    plan = eqsat.optimize(potentials, budget="40MB", target=target).plan(shape(n, 3), shape(n, 3))
    assert not plan.loops
    assert plan.peak_bytes <= 40_000_000
    assert plan.predicted_peak_bytes == pytest.approx(plan.peak_bytes, rel=0.15, abs=1e6)


def test_scores_that_a_softmax_reads_twice_are_stored_on_a_tpu() -> None:
    def scaled(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.T / 8) @ v

    plan = eqsat.optimize(scaled, target="tpu-v5e").plan(*[shape(8_192, 64)] * 3)
    assert plan.before.peak_bytes == pytest.approx(plan.original_peak_bytes, rel=0.15)


def test_predictions_are_the_buffers_that_the_compiler_assigns() -> None:
    def gram(x: Any, z: Any) -> Any:
        features = jnp.exp(-jnp.sum((x[:, None] - z[None]) ** 2, -1))
        return features.T @ features

    def products_of_pairs(x: Any, y: Any) -> Any:
        return jnp.exp(-jax.vmap(lambda a: jax.vmap(lambda b: jnp.dot(a - b, a - b))(y))(x)).sum()

    def joined(x: Any, y: Any) -> Any:
        first, second = (jnp.exp(-jnp.sum((x[:, None] - other) ** 2, -1)) for other in (x, y))
        return jnp.sum(jnp.sin(jnp.concatenate([first, second], 1)), 1)

    def padded(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.pad(jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1)), ((0, 0), (1, 1))) ** 2, 1)

    def messages(nodes: Any, senders: Any, receivers: Any) -> Any:
        return jax.ops.segment_sum(jax.nn.relu(nodes[senders] - nodes[receivers]), receivers, len(nodes))

    edges = shape(2_000_000, dtype="int32")
    for function, shapes in (
        (messages, (shape(10_000, 32), edges, edges)),
        (joined, (shape(5_000, 3), shape(6_000, 3))),
        (padded, (shape(5_000, 3), shape(6_000, 3))),
        (products_of_pairs, (shape(3_000, 20), shape(2_000, 20))),
        (kernel_matvec, (shape(9_000, 3), shape(8_000, 3), shape(8_000))),
        (attention, (shape(4_096, 64), shape(4_096, 64), shape(4_096, 64))),
        (neighbours, (shape(1_000, 20), shape(20_000, 20))),
        (gram, (shape(50_000, 3), shape(300, 3))),
        (kernel_density, (shape(40_000, 3), shape(40_000, 3))),
    ):
        plan = eqsat.optimize(function, target="h100").plan(*shapes)
        assert plan.before.peak_bytes == pytest.approx(plan.original_peak_bytes, rel=0.15, abs=1e6)


def test_an_array_that_is_multiplied_with_itself_renamed_is_stored_once() -> None:
    def gram(x: Any, z: Any) -> Any:
        features = jnp.exp(-jnp.sum((x[:, None] - z[None]) ** 2, -1))
        return features.T @ features

    plan = eqsat.optimize(gram, budget="12MB", target="h100").plan(shape(50_000, 3), shape(300, 3))
    assert plan.loops
    assert plan.predicted_peak_bytes == pytest.approx(plan.peak_bytes, rel=0.15)


def test_less_is_counted_where_the_choice_of_kernels_is_taken_for_made() -> None:
    """A property of jaxlib: without the options for absent devices, a product on an H100 has 4 MB, not 32."""
    target = find_target("h100")
    choosing = replace(target, compiler=replace(target.compiler, absent={}))
    shapes = [shape(2_000, 64), shape(64, 2_000)]
    less, all_ = (
        certify(lambda x, y: [jnp.sin(x @ y)], shapes, draft=True, target=one).temporaries
        for one in (choosing, target)
    )
    assert all_ - less == 28 << 20


def test_without_a_budget_it_is_the_memory_that_jax_lets_programs_have() -> None:
    shapes = shape(100_000), shape(100_000), shape(100_000)
    plan = eqsat.optimize(lambda x, y, v: x + y * v, target="h100").plan(*shapes)
    assert plan.budget_bytes == int(0.75 * 84_942_979_072) == plan.device_bytes
    assert "fits h100       yes           the same      63.7 GB for programs" in str(plan)


def test_what_fits_no_device_says_which_one_it_would_fit() -> None:
    with pytest.raises(BudgetError, match="what JAX lets programs have on v100, since none was named"):
        eqsat.optimize(lambda x: x + 1, target="v100").plan(shape(2_000_000_000))


def test_a_program_that_the_compiler_refuses_for_its_size_is_planned_all_the_same() -> None:
    shapes = shape(100_000, 3), shape(100_000, 3), shape(100_000)
    plan = eqsat.optimize(kernel_matvec, target="tpu-v5e").plan(*shapes)
    assert plan.changed
    assert plan.original_peak_bytes > 40e9
    assert plan.remedy == "as written it fits tpu-v5p"
    assert plan.peak_bytes < plan.device_bytes


def test_a_budget_above_the_memory_of_the_device_is_refused() -> None:
    with pytest.raises(EqsatError, match="exceeds the memory of h100"):
        eqsat.optimize(jnp.sin, budget="900GB", target="h100").plan(shape(3))


def test_programs_are_not_timed_on_an_absent_device() -> None:
    with pytest.raises(ValueError, match="h100 is not one of this machine"):
        eqsat.optimize(jnp.sin, target="h100", tune=True)


def test_a_plan_for_an_absent_device_is_not_called() -> None:
    optimized = eqsat.optimize(jnp.sin, budget="1MB", target="h100")
    for call in (optimized, jax.jit(optimized), jax.grad(optimized)):
        with pytest.raises(EqsatError, match=r"plan.save\(.*plan.export\(\).*plan.source"):
            call(1.0)


def test_a_function_that_calls_back_into_python_is_refused_with_the_reason() -> None:
    def called_back(x: Any) -> Any:
        return jax.pure_callback(lambda v: v, x, x) + 1

    with pytest.raises(EqsatError, match=r"calls back into Python .* h100 is absent"):
        eqsat.optimize(called_back, target="h100", budget="1GB").plan(shape(8))


def test_minimum_budgets_and_explanations_are_the_targets() -> None:
    shapes = shape(6_000, 3), shape(5_000, 3), shape(5_000)
    explanation = eqsat.explain(kernel_matvec, budgets=2, target="h100")(*shapes)
    least = eqsat.minimum_budget(kernel_matvec, target="h100")(*shapes)
    assert explanation.minimum_bytes == least < 1_000_000 < explanation.original_peak_bytes


def test_the_branch_for_the_platform_is_taken() -> None:
    def function(x: Any) -> Any:
        return lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos, default=jnp.tan)

    sources = {
        name: eqsat.optimize(function, budget="1MB", target=name).plan(shape(10)).source
        for name in ("cpu", "h100", "tpu-v5e")
    }
    assert {
        name: next(op for op in ("sin", "cos", "tan") if f"lax.{op}(" in text)
        for name, text in sources.items()
    } == {
        "cpu": "sin",
        "h100": "cos",
        "tpu-v5e": "tan",
    }


def test_products_that_rules_make_are_in_full_precision_where_the_default_is_less() -> None:
    def distances(x: Any, y: Any) -> Any:
        return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1)).sum(1)

    plan = partial(eqsat.optimize, distances, budget="11MB", accuracy="cancels", machine=CPU)
    shapes = shape(2_000, 40), shape(2_000, 40)
    product = re.compile(r'einsum\("\w\w,\w\w->\w\w", .*precision="highest"')
    assert product.search(plan(target="a100").plan(*shapes).source)
    assert not product.search(plan(target="cpu").plan(*shapes).source)


def test_without_its_compiler_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise ModuleNotFoundError("No module named 'libtpu'")

    monkeypatch.setattr("jax.experimental.topologies.get_topology_desc", missing)
    target = find_target("tpu-v5e")
    other = replace(target, absent=AbsentDevice("tpu-v5e", "tpu", "tpu", topology="v5e:4x4"))
    with pytest.raises(EqsatError, match=r"No module named 'libtpu'.*pip install 'eqsat\[tpu\]'"):
        certify(lambda x: [x], [shape(3)], target=other)
