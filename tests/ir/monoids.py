"""Declared monoids for tests, built from formulas in Python's notation."""

from __future__ import annotations

import ast

from eqsat.ir.formula import Application, Constant, Formula, Monoid, Scalar

OPERATORS = {"Add": "add", "Sub": "sub", "Mult": "mul", "Div": "div", "Gt": "gt", "Eq": "eq", "NotEq": "ne"}


def formula(text: str) -> Formula:
    """Parses a formula such as `s1 * exp(m1 - m) + 2`, `where(c, a, b)` or `a**2`."""
    return _formula(ast.parse(text, mode="eval").body)


def _formula(node: ast.expr) -> Formula:
    match node:
        case ast.Name(id="inf"):
            return Constant("inf")
        case ast.Name(id=name):
            return Scalar(name)
        case ast.Constant(value=value):
            return Constant(str(value))
        case ast.UnaryOp(operand=operand):
            inner = _formula(operand)
            return Constant(f"-{inner.text}") if isinstance(inner, Constant) else Application("neg", (inner,))
        case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=exponent)):
            return Application("integer_pow", (_formula(base),), exponent)
        case ast.BinOp(left=left, op=operator, right=right):
            return Application(OPERATORS[type(operator).__name__], (_formula(left), _formula(right)))
        case ast.Compare(left=left, ops=[relation], comparators=[right]):
            return Application(OPERATORS[type(relation).__name__], (_formula(left), _formula(right)))
        case ast.Call(func=ast.Name(id="where"), args=[which, yes, no]):
            return Application("select_n", (_formula(which), _formula(no), _formula(yes)))
        case ast.Call(func=ast.Name(id=name), args=args):
            return Application(name.rstrip("_"), tuple(map(_formula, args)))
    raise ValueError(ast.dump(node))


def monoid(name: str, state: dict[str, tuple[str, str]], finish: str | None = None) -> Monoid:
    """Returns a declared monoid; `state` has the identity and the merge of each part.

    Without `finish`, the result is the last part.
    """
    parts = tuple(state)
    identity = (formula(identity) for identity, _ in state.values())
    constants = tuple(constant for constant in identity if isinstance(constant, Constant))
    merges = tuple(formula(merge) for _, merge in state.values())
    return Monoid(name, parts, constants, merges, formula(finish or parts[-1]))


LARGEST = ("-inf", "max(m1, m2)")
SHRINK = "where(m{0} == m, 1, exp(m{0} - m))"
"""The factor that scales a part when the maximum grows; it is 1 if the maximum does not, even if infinite."""


def scaled(part: str) -> tuple[str, str]:
    return "0", " + ".join(f"{part}{which} * {SHRINK.format(which)}" for which in "12")


RESCALED = monoid("rescaled", {"m": LARGEST, "s": scaled("s")})
LOGSUMEXP = monoid("logsumexp", {"m": LARGEST, "s": scaled("s")}, "m + log(s)")
ATTENTION = monoid("attention", {"m": LARGEST, "n": scaled("n"), "s": scaled("s")}, "s / n")
TOTAL = monoid("total", {"s": ("0", "s1 + s2")})
MEAN = monoid("average", {"n": ("0", "n1 + n2"), "s": ("0", "s1 + s2")}, "s / n")
WELFORD = monoid(
    "welford",
    {
        "n": ("0", "n1 + n2"),
        "u": ("0", "u1 + (u2 - u1) * (n2 / max(n, 1))"),
        "q": ("0", "q1 + q2 + (u2 - u1)**2 * (n1 * n2 / max(n, 1))"),
    },
    "q / n",
)
BETTER = "or_(v2 > v1, and_(v2 != v2, v1 == v1))"
ARGMAX = monoid(
    "first-maximum",
    {"v": ("-inf", "max(v1, v2)"), "i": ("0", f"where({BETTER}, i2, i1)")},
)
