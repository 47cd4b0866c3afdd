"""Users' operations: that each is what its declaration says, and what is said if it isn't."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from eqsat.checking.operations import broken_declaration
from eqsat.errors import RuleError
from eqsat.ir.operations import REGISTERED, OperationSpec, parse_signature
from eqsat.testing import check_rules

SIGNATURE = "rbf[i, j, k](x: i k, y: j k) -> i j"
README = (Path(__file__).parents[2] / "rules" / "README.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    before = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


def rbf(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.exp(-jnp.sum((x[:, None] - y[None]) ** 2, -1))


def refused(x: jax.Array, y: jax.Array) -> jax.Array:
    raise ValueError("not today\nnor tomorrow")


def branching(x: jax.Array, y: jax.Array) -> jax.Array:
    return rbf(x, y) if float(x[0, 0]) > 0 else rbf(y, x)


def unbatched(x: jax.Array, y: jax.Array) -> jax.Array:
    call = jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((), "float32"), x[0, 0], vmap_method=None)
    return rbf(x, y) + call


WRONG: dict[str, tuple[Callable[..., Any], str, str]] = {
    "transposed": (lambda x, y: rbf(x, y).T, r"of shape \(4, 3\) for .* says \(3, 4\)", "`-> j i`"),
    "summed": (lambda x, y: rbf(x, y).sum(1), r"of shape \(3,\) for .* says \(3, 4\)", "agree"),
    "raising": (refused, r"can't be traced for x of .*: ValueError: not today$", "that JAX can trace"),
    "branching": (branching, "can't be traced for x of .*: ConcretizationTypeError", "that JAX can trace"),
    "unbatched": (unbatched, "can't be traced slice by slice", "batch"),
    "several": (lambda x, y: (x, y), "returns 2 values", "one array"),
    "compared": (
        lambda x, y: rbf(x, y) > 0,
        "returns bool for operands of float32",
        "dtype of its first operand",
    ),
    "of one operand": (lambda x: x, "takes 1 positional argument", "that JAX can trace"),
}


@pytest.mark.parametrize("name", WRONG)
def test_operations_that_are_not_what_they_are_declared_to_be(name: str) -> None:
    function, message, advice = WRONG[name]
    found = broken_declaration(OperationSpec(parse_signature(SIGNATURE), function=function))
    assert found is not None
    assert re.search(message, found[0])
    assert advice in found[1]


def test_operations_that_are_what_they_are_declared_to_be() -> None:
    assert broken_declaration(OperationSpec(parse_signature(SIGNATURE), function=rbf)) is None
    square = OperationSpec(parse_signature("inverse[i, j](A: i j) -> j i"), function=jnp.linalg.inv)
    assert broken_declaration(square) is None


def test_a_failure_names_the_operation_where_the_rule_does(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("turned_kernels")
    module.__dict__["rbf"] = lambda x, y: rbf(x, y).T
    monkeypatch.setitem(sys.modules, "turned_kernels", module)
    text = f"""operation {SIGNATURE}  from "turned_kernels:rbf"
rule unfold
  rbf[i, j, k](x, y)  =>  exp(-sum[k] (x - y)^2)
fact never-negative
  nonnegative(rbf[i, j, k](x, y))
"""
    report = check_rules(text, examples=8, fail=False)
    assert len(report.failed) == 2
    assert report.failed[0].failures[0].startswith("rules:3:3: the operation `rbf` returns an array of shape")
    assert (
        report.failed[1].failures[0].startswith("rules:5:15: the operation `rbf` returns an array of shape")
    )


def test_an_operation_may_raise_on_shapes_that_its_signature_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("square_kernels")
    module.__dict__["rbf"] = lambda x, y: rbf(x, y) + x  # only if all are of one length
    monkeypatch.setitem(sys.modules, "square_kernels", module)
    text = f"""operation {SIGNATURE}  from "square_kernels:rbf"
rule unfold  rbf[i, j, k](x, y)  =>  exp(-sum[k] (x - y)^2)
"""
    with pytest.raises(RuleError, match="this rule can't be tested: `rbf` raised TypeError"):
        check_rules(text, examples=8)


def test_the_kernel_of_the_readme_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    python = next(text for text in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "def rbf" in text)
    rules = next(text for text in re.findall(r"```rules\n(.*?)```", README, re.DOTALL) if "mykernels" in text)
    module = ModuleType("mykernels")
    exec(python, module.__dict__)
    monkeypatch.setitem(sys.modules, "mykernels", module)
    assert check_rules(rules, examples=8).ok
