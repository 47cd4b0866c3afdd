"""Wrong rules are refused, with arrays that show it; right ones are not."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from eqsat.errors import RuleError
from eqsat.testing import check_rules

WRONG = {
    "factor-dropped": "(a - b)^2  =>  a^2 - a * b + b^2",
    "maximum-as-linear": "max[K] (a{K} + b{K})  =>  (max[K] a) + (max[K] b)",
    "sign-wrong": "sum[K] (a{K} - b{K})  =>  (sum[K] a) + (sum[K] b)",
    "sum-of-quotients": "sum[K] (a{K} / b{K})  =>  (sum[K] a) / (sum[K] b)",
    "solve-of-transpose": "solve[i, j](a{i, j}, b{i, !j})  =>  rename[i->j] solve[j, i](a, rename[i->j] b)",
    "inverse-is-no-solve": "solve[i, j](a{i, j}, b{i, !j})  =>  dot[i](inv[i, j] a, 2 * b)",
    "determinant-of-sum": "det[i, j] (a{i, j} + b{i, j})  =>  (det[i, j] a) + (det[i, j] b)",
    "softmax-without-normaliser": "softmax[k] a{k}  =>  exp(a - max[k] a)",
    "logarithm-of-sum": "log(a + b)  =>  log(a) + log(b)",
    "logarithm-of-product": "log(a * b)  =>  log(a) + log(b)",
    "root-of-square": "sqrt(a^2)  =>  a",
    "exponential-overflows": "exp(a + b)  =>  exp(a) * exp(b)",
    "division-back": "(a / b) * b  =>  a  where B = axes(b), B in a",
    "integers-wrap": "max(a, b) - min(a, b)  =>  abs(a - b)",
    "integers-round": "(a + b) / c  =>  a / c + b / c",
    "complex-square": "abs(a)^2  =>  a^2",
    "mean-of-integers": "sum[K] a{K} * 2  =>  mean[K] a",
    "one-chunk-only": "sum[N] a  =>  fold[n, max] sum[N] chunk[n] a  where n in N, large(n)",
    "fold-of-means": "mean[N] a  =>  fold[n, sum] mean[N] chunk[n] a  where n in N, large(n)",
    "first-wins": "argmax[n] (-a{n})  =>  argmin[n] (a + 0 * a)",
    "sorted-otherwise": "sort[n] (-a{n})  =>  -sort[n] a",
    "take-otherwise": "take[n](a{n}, i)  =>  take[n](a, i + 1)",
    "kronecker-swapped": "kron[i, j, k, l, p, q](a, b)  =>  kron[k, l, i, j, p, q](b, a)",
    "constant-wrong": "(sum[K] a{K}) / c  =>  2 * mean[K] a  where c = size(K)",
    "determinant-by-cholesky": "logdet[i, j] a  =>  2 * (sum[i] log(diagonal[i, j] cholesky[i, j] a))"
    "  where symmetric[i, j](a), positive(a)",
    "diagonal-dropped": "sum[j] diag[i, j] a{i, !j}  =>  2 * a",
}
"""By name, rules that load and are wrong."""

RIGHT = {
    "distributivity": "sum[K] (c{!K} * a)  =>  c * sum[K] a",
    "commuting-sums": "sum[J] sum[K] a  =>  sum[K] sum[J] a",
    "determinant-of-product": "det[i, j] dot[k](a{i, !j}, b{j, !i})  =>  (det[i, k] a) * det[k, j] b"
    "  where size(i) = size(k)",
    "logarithm-of-product": "log(a * b)  =>  log(a) + log(b)  where positive(a), positive(b)",
    "mean": "(sum[K] a{K}) / c  =>  mean[K] a  where c = size(K), float(a)",
    "monotone": "max[k] f(a)  =>  f(max[k] a)  for f in increasing  where float(a), size(k) > 0",
    "linear": "f(sum[K] a)  =>  sum[K] f(a)  for f in linear",
    "selection": "select_n(m, a, 0 * a)  =>  a * select_n(m, 1, 0)  where integer(a)",
    "indices": "rename[j->k] iota[j]  =>  iota[k]",
}


def text_of(rules: dict[str, str], name: str) -> str:
    """A rule, with its `for` after its sides and before its conditions."""
    return f"rule {name} [rescales]\n  {rules[name]}"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_refused(name: str) -> None:
    with pytest.raises(RuleError) as caught:
        check_rules(text_of(WRONG, name))
    message = str(caught.value)
    assert message.startswith("rules:1:6: the two sides are not equal\n")
    assert f"  1 | rule {name} [rescales]\n    |      ^\n" in message
    assert "np.array" in message or "the right side is ill-formed" in message


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", RIGHT)
def test_right_rules_are_not(name: str) -> None:
    assert check_rules(text_of(RIGHT, name)).ok


def test_a_counter_example_is_small_and_can_be_pasted() -> None:
    report = check_rules(text_of(WRONG, "factor-dropped"), fail=False)
    (failure,) = report.rule("factor-dropped").failures
    assert failure.split("\n", 3)[3] == (
        "  the sides differ, on these arrays:\n"
        "    a = np.array(1.0)  # no axes\n"
        "    b = np.array(1.0)  # no axes\n"
        "    left side:  np.array(0.0)  # no axes\n"
        "    right side: np.array(1.0)"
    )


def test_a_wrong_woodbury_is_shown_on_few_numbers() -> None:
    text = """rule woodbury
      solve[i, j]((diag[i, j] d{!j, !k}) + dot[k](u{i, k, !j}, v{j, k, !i}), b{i, !j, !k})
        =>  rename[i->j] (b / d
              + dot[l](rename[k->l] (u / d),
                       solve[k, l]((diag[k, l] 1) + dot[i](rename[j->i] v, rename[k->l] (u / d)),
                                   dot[i](rename[j->i] v, b / d))))
      where l = copy(k), 2 * size(k) < size(i)"""
    (failure,) = check_rules(text, fail=False).rule("woodbury").failures
    arrays = dict(re.findall(r"^ +(\w) = (np\..*?)  #", failure, re.MULTILINE))
    values = {name: eval(array, {"np": np}) for name, array in arrays.items()}
    assert values["u"].shape == (3, 1)
    assert sum(value.size for value in values.values()) <= 12
    d, u, v, b = (values[name] for name in "duvb")
    left = np.linalg.solve(d * np.eye(3) + u @ v.T, b)
    shown = eval(re.search(r"left side: +(np\..*?)(  #|$)", failure, re.MULTILINE)[1], {"np": np})  # type: ignore[index]
    np.testing.assert_allclose(left, shown, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("logarithm-of-product", "`where positive(a)`"),
        ("integers-wrap", "`where float(a)`"),
        ("division-back", "`where float(a), positive(b)`"),
        ("complex-square", "`where float(a)`"),
    ],
)
def test_a_hint_says_what_is_missing(name: str, hint: str) -> None:
    (failure,) = check_rules(text_of(WRONG, name), fail=False).rule(name).failures
    assert f"no such case is found with {hint}" in failure


def test_an_axis_that_is_captured_is_refused_when_loaded() -> None:
    with pytest.raises(RuleError, match="free on the right but not on the left"):
        check_rules("rule captured  sum[K] (c * a{K})  =>  c * sum[K] a")


def test_empty_axes() -> None:
    text = "rule moments [cancels]  sum[K] (a - (sum[K] a) / c)^2  =>  max(sum[K] a^2 - (sum[K] a)^2 / c, 0)"
    with pytest.raises(RuleError, match=r"where size\(K\) > 0"):
        check_rules(f"{text}  where float(a), c = size(K)")
    assert check_rules(f"{text}  where float(a), c = size(K), c > 0").ok


def test_masked_rows() -> None:
    careless = "rule shift  log(sum[k] exp(a{k}))  =>  (max[k] a) + log(sum[k] exp(a - max[k] a))"
    with pytest.raises(RuleError, match=r"-np\.inf"):
        check_rules(careless)


def test_a_rule_that_is_never_finite_is_refused() -> None:
    with pytest.raises(RuleError, match="no instance was found"):
        check_rules("rule nothing  log(a - a - 1)  =>  log(a - a - 1) + 1  where float(a), real(a)")


def test_operations_need_functions() -> None:
    text = "operation unheard[i](a: i) -> i\nrule twice  unheard[i] (2 * a{i})  =>  2 * unheard[i] a"
    with pytest.raises(RuleError, match="has no function to call") as caught:
        check_rules(text)
    assert 'from "module:name"' in str(caught.value)


SIGNATURE = "kernel_matvec[i, j, k](x: i k, y: j k, v: j) -> i"

FUSED = f"""operation {SIGNATURE}  from "fused_kernels:kernel_matvec"

rule fuse
  dot[j](exp(-sum[k] (x{{i, k, !j}} - y{{j, k, !i}})^2), v{{j, !i, !k}})  =>  kernel_matvec[i, j, k](x, y, v)
  where float(v)
  example  x: i k  y: j k  v: j
"""


def test_a_users_operation_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "fused_kernels.py"
    text = (
        "import jax.numpy as jnp\n"
        "def kernel_matvec(x, y, v):\n"
        "    return jnp.exp(-jnp.sum((x[:, None] - y) ** 2, -1)) @ v\n"
    )
    module.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "fused.rules"
    path.write_text(FUSED)
    assert check_rules(path, examples=8).ok
    path.write_text(FUSED.replace("exp(-sum", "exp(-2 * sum"))
    with pytest.raises(RuleError, match="the sides differ"):
        check_rules(path, examples=8)
    with pytest.raises(RuleError, match="cannot import"):
        check_rules(FUSED.replace("kernel_matvec", "other_matvec"))


def test_results_are_the_same_every_time() -> None:
    first, second = (check_rules(text_of(WRONG, "softmax-without-normaliser"), fail=False) for _ in range(2))
    assert first.rules[0].failures == second.rules[0].failures


def test_a_hint_says_which_class_the_rule_is_of_then() -> None:
    text = "rule apart  log(a * b)  =>  log(a) + log(b)  where float(a)"
    (failure,) = check_rules(text, fail=False).rule("apart").failures
    assert "no such case is found with `where positive(a)`, declared [rescales]" in failure
