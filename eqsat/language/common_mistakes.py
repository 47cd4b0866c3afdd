"""The words of the language, and notation from elsewhere that people write out of habit."""

from __future__ import annotations

STATEMENTS = ("rule", "fact", "monoid", "operation", "include")
"""The words that begin statements."""

KEYWORDS = frozenset(
    {*STATEMENTS, "from", "for", "where", "in", "guard", "example", "reject", "source"}
    | {"chunk", "concat", "fold", "rename", "dot", "iota", "delta", "inf"}
)
"""The words of the language, which cannot be names of variables, axes or functions."""

ARROWS = "`=>` rewrites one way, `==` both ways"

COMMON_MISTAKES = {
    "=": ARROWS,
    "->": ARROWS,
    "~": ARROWS,
    "~>": ARROWS,
    ":=": ARROWS,
    "<=": ARROWS,
    "=>>": ARROWS,
    "==>": ARROWS,
    "===": "`==` rewrites both ways",
    "<=>": "`==` rewrites both ways",
    "<->": "`==` rewrites both ways",
    "<==>": "`==` rewrites both ways",
    "<-": "rules are read from left to right: `left => right`",
    "<--": "rules are read from left to right: `left => right`",
    "**": "a power is written `a^2`",
    "//": "a comment begins with `#`, a quotient is written with one `/`",
    "@": "a matrix product is a contraction over a named axis: `dot[k](a, b)`",
    ";": "a rule ends where the next `rule` begins, its items are separated by `,`",
    "|": "conditions follow the equation: `where large(n), n in K`",
    "%": "a remainder is `rem(a, b)`",
    "&": "the elementwise function is `and(a, b)`; conditions are separated by `,`",
    "'": 'text is written in double quotes, `"..."`; there is no transpose, since axes have names',
}
"""Notation of other languages, with a hint at what to write in this one."""

CLAUSES = {
    **dict.fromkeys(("when", "if", "given", "with", "provided", "assuming", "require", "requires"), "where"),
    **dict.fromkeys(("whenever", "iff", "such", "suchthat", "st", "having", "let", "condition"), "where"),
    **dict.fromkeys(("forall", "all", "foreach", "over", "any"), "for"),
    **dict.fromkeys(("examples", "accept", "accepts", "test"), "example"),
    **dict.fromkeys(("rejects", "refuse", "refuses", "counterexample"), "reject"),
    **dict.fromkeys(("sources", "ref", "reference", "cite", "see"), "source"),
}
"""Words that begin clauses in other languages or in mathematics, with the word for that clause in this one.
"""

CHARACTERS = {
    "⇒": "write `=>`",
    "→": "write `=>`, or in a renaming `->`",
    "↦": "write `=>`, or in a renaming `->`",
    "≡": "write `==`",
    "⇔": "write `==`",
    "↔": "write `==`",
    "·": "write `*`, or `dot[k](a, b)` to sum over an axis",
    "×": "write `*`",
    "∗": "write `*`",
    "⋅": "write `*`, or `dot[k](a, b)` to sum over an axis",
    "÷": "write `/`",
    "−": "write `-`, the minus sign of the keyboard",
    "–": "write `-`, the minus sign of the keyboard",
    "—": "write `-`, the minus sign of the keyboard",
    "²": "write `^2`",
    "³": "write `^3`",
    "ᵀ": "axes have names instead of an order: A's transpose is A",
    "≤": "write `<=`",
    "≥": "write `>=`",
    "≠": "write `!=`",
    "∈": "write `in`",
    "∑": "write `sum[k] a`",
    "Σ": "write `sum[k] a`",
    "∏": "write `prod[k] a`",
    "√": "write `sqrt(a)`",
    "∞": "write `inf`",
    "“": 'write `"`',
    "”": 'write `"`',
    "„": 'write `"`',
    "‘": 'text is written in double quotes, `"..."`',
    "’": 'text is written in double quotes, `"..."`',
}
"""Characters that most keyboards lack, with a hint at what to write in their place."""

FORMS = {
    "CHUNK": "`chunk[n] a`",
    "CONCAT": "`concat[n] a`",
    "FOLD": "`fold[n, sum] a`",
    "RENAME": "`rename[j->k] a`",
    "DOT": "`dot[k](a, b)`",
    "IOTA": "`iota[n]`",
    "DELTA": "`delta[i, j]`",
    "_OPERATION": '`operation name[i, j](A: i j, b: i) -> j  from "module:function"`',
    "_STATE": "`state m = 0, s = 0`",
    "_MERGE": "`merge m = max(m1, m2)`",
    "where": "float(a), n in K",
    "for": "f in elementwise",
    "example": "a: i k",
    "reject": "a: i k",
    "source": '"Harville, theorem 18.1.1"',
}
"""Examples of each construct, by the token that begins it; for a clause, of what follows its word."""
