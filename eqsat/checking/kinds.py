"""Which kinds of numbers each function takes, and the kind of its result.

A *kind* is one letter: b for truth values, i for signed and u for unsigned integers, f for real floats, c for
complex numbers.
"""

from __future__ import annotations

from eqsat.ir.elementwise import ELEMENTWISE

KINDS = "fiucb"
"""All kinds. The ones that most rules are about come first."""

DTYPES: dict[str, str] = {"f": "float32", "i": "int8", "u": "uint8", "c": "complex64", "b": "bool"}
"""The dtype that stands for each kind. Integers are narrow, so that sums and products wrap around."""

GUARDED: dict[str, str] = {"float": "f", "real": "biuf", "integer": "iu", "complex": "c", "boolean": "b"}
"""The kinds that each guard about dtypes allows."""


def kind_of(dtype: str) -> str:
    """Returns the kind of a dtype.

    >>> kind_of("float32"), kind_of("int32"), kind_of("bool")
    ('f', 'i', 'b')
    """
    names = {"float": "f", "bfloat": "f", "int": "i", "uint": "u", "complex": "c", "bool": "b"}
    return names[dtype.rstrip("0123456789")]


def words(text: str) -> list[str]:
    """Splits a text into words. One string is easier to read than a list of quoted names."""
    return text.split()


def _table() -> dict[str, str]:
    table = dict.fromkeys(ELEMENTWISE, "f")  # most special functions take floats and nothing else

    def enter(names: str, kinds: str) -> None:
        table.update(dict.fromkeys(names.split(), kinds))

    enter("add sub mul add_any square integer_pow neg sign abs div", "iufc")
    enter("max min lt le gt ge", "biuf")
    enter("rem clamp", "iuf")
    enter("eq ne copy stop_gradient convert select_n", "biufc")
    enter("and or xor not", "biu")
    enter("population_count clz shift_left shift_right_logical shift_right_arithmetic mulhi", "iu")
    enter("real imag conj", "c")
    enter("sqrt rsqrt exp exp2 log log1p expm1 sin cos tan sinh cosh tanh logistic pow", "fc")
    enter("asin acos atan asinh acosh atanh", "fc")
    return table


ELEMENTWISE_KINDS: dict[str, str] = _table()
"""The kinds of operands that each elementwise function takes; for `select_n`, the kinds of its cases."""

PARTS = frozenset({"abs", "real", "imag"})
"""Functions whose result is real if their operand is complex."""

REDUCTION_KINDS: dict[str, str] = {
    "sum": "iufc",
    "prod": "iufc",
    "max": "biuf",
    "min": "biuf",
    "and": "biu",
    "or": "biu",
    "xor": "biu",
    "mean": "fc",
}
"""The kinds that each reduction takes."""

CONTRACTION_KINDS = "iufc"

IOTA_KINDS = "iuf"

ORDERED_KINDS = "iufb"
"""The kinds that selections (argmax, argmin, top_k) take."""

_OPERATION_KINDS = {
    **dict.fromkeys(words("inv solve det solve_lower solve_upper cholesky qr_q qr_r"), "fc"),
    **dict.fromkeys(words("diagonal merge split reverse head append take tril triu"), KINDS),
    **dict.fromkeys(words("sort argsort"), KINDS),
    "kron": "iufc",
}


def operation_kinds(name: str) -> str:
    """Returns the kinds that a named operation takes as its first operand. Users' operations take floats."""
    return _OPERATION_KINDS.get(name, "f")


def result_kind(function: str, operand: str) -> str:
    """Returns the kind of an elementwise function's result, given the kind of its last operand."""
    if ELEMENTWISE[function].boolean:
        return "b"
    if function in PARTS:
        return "f" if operand == "c" else operand
    return "c" if function == "complex" else operand


_EXACT_FUNCTIONS = frozenset(
    words(
        "add sub mul add_any square neg sign abs max min clamp select_n and or xor not eq ne lt le gt ge"
        " copy stop_gradient convert real imag conj"
    )
)
_EXACT_REDUCTIONS = frozenset(REDUCTION_KINDS) - {"mean"}
_EXACT_OPERATIONS = frozenset(
    words("diagonal tril triu merge split kron reverse head append sort argsort take")
)


def is_exact(kind: str, name: str, exponent: int | None = None) -> bool:
    """Returns whether a function takes small integers to integers without rounding.

    **Arguments:**

    - `kind`: "elementwise", "reduction" or "operation".
    - `exponent`: of an `integer_pow`, which is exact unless it is negative.
    """
    if kind == "elementwise":
        return name in _EXACT_FUNCTIONS or (name == "integer_pow" and (exponent or 0) >= 0)
    return name in (_EXACT_REDUCTIONS if kind == "reduction" else _EXACT_OPERATIONS)
