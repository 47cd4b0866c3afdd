"""How loops combine the values of chunks: the text of each monoid's identity and merge."""

from __future__ import annotations

from eqsat.backend.elementwise import dtype_text
from eqsat.ir.dtypes import is_real_float

MERGES = {
    "sum": "{old} + {new}",
    "prod": "{old} * {new}",
    "max": "jnp.maximum({old}, {new})",
    "min": "jnp.minimum({old}, {new})",
    "and": "{old} & {new}",
    "or": "{old} | {new}",
    "xor": "{old} ^ {new}",
}


def identity_text(kind: str, dtype: str) -> str:
    """The monoid's identity as a scalar.

    >>> identity_text("max", "float32"), identity_text("min", "int32")
    ('-jnp.inf', 'jnp.iinfo(jnp.int32).max')
    """
    boolean = dtype == "bool"
    match kind:
        case "sum" | "or" | "xor":
            return "False" if boolean else "0"
        case "prod":
            return "1"
        case "and":
            return (
                "True"
                if boolean
                else "-1"
                if not dtype.startswith("u")
                else f"jnp.iinfo({dtype_text(dtype)}).max"
            )
    extreme = "min" if kind == "max" else "max"
    if boolean:
        return str(kind == "min")
    if is_real_float(dtype):
        return "-jnp.inf" if kind == "max" else "jnp.inf"
    return f"jnp.iinfo({dtype_text(dtype)}).{extreme}"


def merge_text(kind: str, old: str, new: str) -> str:
    """The combination of two partial results."""
    return MERGES[kind].format(old=old, new=new)
