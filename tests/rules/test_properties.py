"""What is known of terms: facts that follow from how a term is made, and what can be concluded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax import lax

from eqsat.rulesets.files import shipped_files
from tests.rules.proving import cannot_prove, declared, fires, function, prove, traced

ARRAYS = (
    "a: i k   s: i p   t: i p   v: i   w: k   c:   d: spd i p   e: spd i p   y: i   h: n i p   u: i l"
    "   k: spd k k"
)
RENAMING = (
    "rename-map rename-reduction rename-contraction rename-operation rename-iota rename-delta rename-twice"
    " rename-back rename-past-rename rename-across transpose-of-lower transpose-of-upper symmetric-both-ways"
    " positive-definite-both-ways diagonal-both-ways"
)
SIGNS = "positive-constant nonnegative-square positive-sum nonnegative-if-positive"
DIAGONAL = "equal-indices diagonal-along-rows"

PROBES = {
    "lower": ("solve-triangular", "solve({}, v)"),
    "upper": ("solve-upper-triangular", "solve({}, v)"),
    "spd": ("solve-by-cholesky", "solve({}, v)"),
    "orthogonal": ("solve-orthogonal", "solve({}, v)"),
}
"""By property, a rule that asks for it, and a program in which it can match."""


def known(property_name: str, term: str, facts: str) -> bool:
    """Whether a term is found to have a property, by these facts and by those that are always given."""
    if property_name == "symmetric":
        return is_own_transpose(term, facts)
    rule, program = PROBES[property_name]
    return fires(rule, program.replace("{}", term), ARRAYS, f"{facts} {RENAMING}")


def is_own_transpose(term: str, facts: str) -> bool:
    """Whether a term and its transpose are found to be equal, because it is symmetric."""
    values = declared(ARRAYS, term)
    compute = function(term, names=tuple(values))

    def either(*inputs: Any) -> Any:
        (matrix,) = compute(*inputs[:-1])
        return lax.select_n(inputs[-1], matrix.T, matrix)

    graph = traced(either, (*values.values(), np.asarray(True)), f"transpose-of-symmetric {facts}")
    class_of = graph.saturation.graph.class_of
    _, first, second = graph.program.outputs[0].term.args
    return class_of[first.number] == class_of[second.number]


@pytest.mark.parametrize(
    ("property_name", "term", "facts"),
    [
        # by construction
        ("lower", "tril(s)", "lower-part"),
        ("lower", "where(arange(5)[:, None] >= arange(5), s, 0)", "masked-lower"),
        ("lower", "cholesky(d)", "cholesky-factor"),
        ("lower", "diag(v)", f"diagonal-matrix diagonal-is-lower {DIAGONAL}"),
        ("upper", "triu(s)", "upper-part"),
        ("upper", "where(arange(5)[:, None] <= arange(5), s, 0)", "masked-upper"),
        ("upper", "cholesky(d).T", "cholesky-factor"),
        ("upper", "diag(v)", f"diagonal-matrix diagonal-is-lower {DIAGONAL}"),
        ("orthogonal", "qr(s)[0]", "orthonormal-factor"),
        ("orthogonal", "qr(s)[0].T", "orthonormal-factor orthogonal-both-ways"),
        ("spd", "diag(1 + v ** 2)", f"positive-diagonal {SIGNS} {DIAGONAL}"),
        ("spd", "assume(d, 'spd')", ""),
        ("spd", "assume(d, 'spd').T", ""),
        ("symmetric", "(a @ a.T)", "gram-matrix"),
        ("symmetric", "((a * w) @ a.T)", "weighted-gram-matrix"),
        ("symmetric", "outer(v, v)", "outer-product"),
        ("symmetric", "(v[:, None] + v)", "outer-sum"),
        ("symmetric", "(v[:, None] - v) ** 2", "squared-differences"),
        ("symmetric", "abs(v[:, None] - v)", "absolute-differences"),
        ("symmetric", "(s + s.T)", "symmetric-part rename-across"),
        ("symmetric", "assume(d, 'spd')", "positive-definite-is-symmetric"),
        ("symmetric", "diag(v)", f"diagonal-matrix diagonal-symmetric {DIAGONAL}"),
        # kernel matrices
        (
            "symmetric",
            "exp(-sum((a[:, None] - a) ** 2, -1) / 2)",
            "squared-differences symmetric-total symmetric-negated symmetric-divided symmetric-exponential",
        ),
        (
            "symmetric",
            "(c * sqrt(sum((a[:, None] - a) ** 2, -1)) + 1)",
            "squared-differences symmetric-total symmetric-root symmetric-scaled symmetric-shifted",
        ),
        (
            "symmetric",
            "maximum(sum(a * a, 1)[:, None] + sum(a * a, 1) - 2 * (a @ a.T), 0)",
            "outer-sum gram-matrix symmetric-scaled symmetric-difference symmetric-clamped",
        ),
        # closure
        ("symmetric", "(a @ a.T + outer(v, v))", "gram-matrix outer-product symmetric-sum"),
        ("symmetric", "(a @ a.T * outer(v, v))", "gram-matrix outer-product symmetric-product-of-entries"),
        ("symmetric", "(a @ a.T) ** 2", "gram-matrix symmetric-square"),
        (
            "symmetric",
            "inv(a @ a.T + diag(v))",
            f"gram-matrix diagonal-matrix diagonal-symmetric symmetric-sum"
            f" symmetric-inverse symmetric-both-ways symmetric-renamed {DIAGONAL}",
        ),
        ("spd", "(assume(d, 'spd') + assume(e, 'spd'))", "positive-definite-sum"),
        (
            "spd",
            "(assume(d, 'spd') + 0.5 * eye(5))",
            f"positive-definite-sum positive-definite-scaled"
            f" identity-is-diagonal positive-diagonal {SIGNS} equal-indices",
        ),
        ("spd", "(2 * assume(d, 'spd'))", f"positive-definite-scaled {SIGNS}"),
        ("spd", "(assume(d, 'spd') / 2)", f"positive-definite-divided {SIGNS}"),
        ("spd", "inv(assume(d, 'spd'))", "positive-definite-inverse positive-definite-renamed"),
        ("lower", "(tril(s) + tril(t))", "lower-part lower-sum"),
        ("lower", "(c * tril(s))", "lower-part lower-scaled"),
        ("lower", "(tril(s) / c)", "lower-part lower-divided"),
        ("lower", "(tril(s) @ tril(s))", "lower-part lower-product"),
        ("lower", "inv(tril(s))", "lower-part lower-inverse lower-columns-renamed lower-rows-renamed"),
        ("upper", "inv(tril(s)).T", "lower-part lower-inverse lower-columns-renamed lower-rows-renamed"),
        ("orthogonal", "(qr(s)[0] @ qr(t)[0])", "orthonormal-factor orthogonal-product"),
    ],
)
def test_what_is_known(property_name: str, term: str, facts: str) -> None:
    assert known(property_name, term, facts)


EVERY = " ".join(fact.name for file in shipped_files() for fact in file.facts if fact.space == "properties")


@pytest.mark.parametrize(
    ("property_name", "term"),
    [
        ("lower", "triu(s)"),
        ("lower", "where(arange(5)[:, None] > -arange(5), s, 0)"),
        ("lower", "where(arange(5)[:, None] >= arange(5), s, 1)"),
        ("lower", "(tril(s) + s)"),
        ("lower", "(tril(s) + c)"),
        ("lower", "(tril(s) @ tril(t).T)"),
        ("lower", "exp(tril(s))"),
        ("lower", "d"),
        ("orthogonal", "qr(s)[1]"),
        ("orthogonal", "(qr(s)[0] + qr(t)[0])"),
        ("orthogonal", "(2 * qr(s)[0])"),
        ("spd", "d"),
        ("spd", "diag(v)"),
        ("spd", "diag(v ** 2)"),
        ("spd", "(s @ s.T)"),
        ("spd", "(a @ a.T + diag(1 + v ** 2))"),
        ("spd", "(assume(d, 'spd') - assume(e, 'spd'))"),
        ("spd", "(assume(d, 'spd') + s)"),
        ("spd", "(-2 * assume(d, 'spd'))"),
        ("spd", "(assume(d, 'spd') * v)"),
        ("symmetric", "s"),
        ("symmetric", "(a @ (2 + a).T)"),
        ("symmetric", "outer(v, y)"),
        ("symmetric", "(v[:, None] - v)"),
        ("symmetric", "(s - s.T)"),
        ("symmetric", "(a @ a.T + v)"),
        ("symmetric", "(a @ a.T * v)"),
        ("symmetric", "(a @ a.T @ assume(d, 'spd'))"),
    ],
)
def test_what_is_not_known(property_name: str, term: str) -> None:
    assert not known(
        property_name, term, f"{EVERY} {SIGNS} {DIAGONAL}".replace("positive-definite-both-ways", "")
    )


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("lower-part-of-lower lower-part", "tril(tril(s))", "tril(s)"),
        ("lower-part-of-lower cholesky-factor", "tril(cholesky(d))", "cholesky(d)"),
        ("upper-part-of-upper upper-part", "triu(triu(s))", "triu(s)"),
        ("product-with-symmetric symmetric-part", "(s + s.T).T @ a", "(s + s.T) @ a"),
    ],
)
def test_what_follows(rules: str, left: str, right: str) -> None:
    prove(left, right, ARRAYS, rules, RENAMING)


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ("lower-part-of-lower upper-part lower-part", "tril(triu(s))", "triu(s)"),
        ("transpose-of-symmetric gram-matrix", "s.T", "s"),
        ("product-with-symmetric symmetric-part", "(s - s.T).T @ a", "(s - s.T) @ a"),
    ],
)
def test_what_does_not_follow(rules: str, left: str, right: str) -> None:
    cannot_prove(left, right, ARRAYS, f"{rules} {RENAMING}")


def test_every_fact_is_tested_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8").split("def test_every_fact")[0]
    names = EVERY.split()
    assert len(names) == len(set(names))
    missing = [name for name in names if name not in text]
    assert missing == [
        "positive-definite-kronecker",
        "diagonal-renamed",
        "orthogonal-columns-renamed",
        "orthogonal-rows-renamed",
        "positive-renamed",
        "nonnegative-renamed",
    ]
