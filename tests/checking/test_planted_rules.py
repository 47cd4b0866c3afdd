"""Rules that are right of most dtypes, numbers and lengths, and wrong of some, are refused."""

from __future__ import annotations

import pytest

from eqsat.checking.filecheck import FileCheck
from eqsat.language.parse import load_text

PLANTED = {
    # Wrong in wide integers, or at their ends.
    "mask-of-a-byte": "rule planted [exact]  and(a, 255) => a  where integer(a)",
    "sign-by-shift": "rule planted [exact]  shift_right_arithmetic(a, 7) => select_n(lt(a, 0), 0, -1)"
    "  where integer(a)",
    "least-byte": "rule planted [exact]  max(a, -128) => a  where integer(a)",
    "largest-short": "rule planted [exact]  min(a, 32767) => a  where integer(a)",
    # Wrong where 8 bits don't count so far.
    "count-not-zero": "rule planted [exact]  ne(sum[K] convert(a), 0) => or[K] a  where boolean(a)",
    "length-by-index": "rule planted [rescales]  sum[k] (a + b{!k}) => (sum[k] a) + (1 + max[k] iota[k]) * b"
    "  where integer(a)",
    # Wrong in double precision.
    "exp-cut-above": "rule planted  exp(a) => exp(min(a, 89))  where float(a)",
    "exp-cut-below": "rule planted  exp(a) => exp(max(a, -104))  where float(a)",
    "logistic-cut": "rule planted  logistic(a) => logistic(min(a, 18))  where float(a)",
    "cosh-cut": "rule planted  cosh(a) => cosh(max(min(a, 90), -90))  where float(a)",
    "large-doubles": "rule planted  min(a, 1e300) => min(a, 1e301)  where float(a)",
    # Wrong between two floats.
    "converted-exp": "rule planted  exp(convert(a)) => convert(exp(a))  where float(a)",
    # Wrong of complex numbers.
    "minus-in-product": "rule planted [exact]  -a * b => -(a * b)  where complex(a)",
    "times-one": "rule planted [exact]  a * 1 => a  where complex(a)",
    "abs-by-squares": "rule planted  abs(a) => sqrt(real(a)^2 + imag(a)^2)  where complex(a)",
    "quotient-by-conj": "rule planted  a / b => (a * conj(b)) / (b * conj(b))  where complex(a)",
    "exp-of-sum": "rule planted  exp(a + b) => exp(a) * exp(b)  where complex(a)",
    # Wrong beside an infinity.
    "nan-payload-first": "rule planted [exact]  top_k_indices[n, m] a"
    " => top_k_indices[n, m] select_n(eq(a, a), inf, a)  where float(a)",
    # Wrong of no numbers at all.
    "min-of-one": "rule planted  min[K] a => max[K] a  where size(K) < 2, float(a)",
    "mean-of-one": "rule planted  mean[K] a => sum[K] a  where size(K) < 2",
    "dot-of-one": "rule planted  dot[k](a, b) => max[k] (a * b)  where size(k) < 2, float(a)",
    "and-of-one": "rule planted [exact]  and[K] a => or[K] a  where size(K) < 2, boolean(a)",
    # Wrong where a rounding error would make a number NaN, infinite or false.
    "quotient-at-least": "rule planted  ge(a / b, 1) => gt(a / b, 1)  where float(a)",
    "atanh-of-one": "rule planted  atanh(a * b) => select_n(eq(a * b, 1), atanh(a * b), 0)  where float(a)",
    "acosh-of-product": "rule planted  acosh(a * b) => select_n(eq(a * b, 1), acosh(a * b), 1)"
    "  where float(a)",
    "root-of-sum": "rule planted  sqrt(sum[K] a{K})"
    " => select_n(and(eq(sum[K] a, 0), gt(max[K] a, 0)), sqrt(sum[K] a), 1)  where float(a)",
}
"""What an earlier check let pass, by name."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PLANTED)
def test_a_rule_that_is_wrong_of_some_data_only_is_refused(name: str) -> None:
    file = load_text(PLANTED[name], "my.rules", [])
    assert FileCheck(file, [], brief=True).rule(file.rules[0]).failures
